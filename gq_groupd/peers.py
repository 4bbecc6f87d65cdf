"""Moved to gq_run.peers."""

from gq_run.peers import Peers as Peers

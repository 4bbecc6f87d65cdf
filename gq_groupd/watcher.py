"""Moved to gq_run.watcher."""

from gq_run.watcher import Watcher as Watcher

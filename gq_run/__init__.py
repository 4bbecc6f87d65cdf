"""The shell that every daemon shares: options, the loop, sockets, files, locks, logging, metrics, readiness.

Owns everything that touches the system, so that cores stay pure. Never knows what a daemon decides. A daemon is an App
(daemon.py) given to `daemon.main`; the rest is found through the Daemon it gets.
"""

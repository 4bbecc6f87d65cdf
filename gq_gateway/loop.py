"""gq_run's loop on asyncio: the same face for what daemons share (server, metrics, signals), uvloop underneath.

Owns the asyncio loop. An exception that nobody catches ends run() with it, as it would in gq_run.loop: it is a bug, and a
supervisor starts the daemon anew. Broken connections of callers are none; what goes wrong while one is read ends that one.

A ZeroMQ socket's descriptor is edge-triggered, and sending swallows its signal: `add_reader` takes only sockets that send from
within their own reader, as gq_run.server does.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop
import zmq

from gq_run.loop import Loop, Timer

_EVENTS: Final = int(zmq.EVENTS)
_READABLE: Final = int(zmq.POLLIN)
_log = logging.getLogger("goqueue.gateway")


class AsyncLoop(Loop):
    """`aio` is the loop beneath: run_until_complete before run() and after it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.aio: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self.aio.set_exception_handler(self._uncaught)
        self._bug: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def add_reader(self, source: zmq.Socket[bytes] | int, call: Callable[[], None]) -> None:
        if isinstance(source, int):
            self.aio.add_reader(source, call)
        else:
            self.aio.add_reader(int(source.getsockopt(zmq.FD)), _read_all, source, call)
            self.aio.call_soon(_read_all, source, call)

    def remove_reader(self, source: zmq.Socket[bytes] | int) -> None:
        if isinstance(source, int):
            self.aio.remove_reader(source)
        elif not source.closed:
            self.aio.remove_reader(int(source.getsockopt(zmq.FD)))

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        timer = Timer(when, call)
        self.aio.call_later(max(0.0, when - self.now()), lambda: timer.call() if timer.call else None)
        return timer

    def each_turn(self, hook: Callable[[], None]) -> None:
        raise NotImplementedError("asyncio has no turns to speak of")

    def post(self, call: Callable[[], None]) -> None:
        self.aio.call_soon_threadsafe(call)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside everything else; an exception that ends it ends run()."""
        task = self.aio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def complete(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it to its end: before run() or after it."""
        self.aio.run_until_complete(work)
        self._raise_bug()

    def run(self) -> None:
        self.aio.run_forever()
        self._raise_bug()

    def stop(self) -> None:
        self.aio.call_soon_threadsafe(self.aio.stop)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            self.aio.run_until_complete(asyncio.wait(self._tasks))
        self.aio.run_until_complete(self.aio.shutdown_asyncgens())
        self.aio.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            self._fail(task.exception())

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError):
            _log.debug("a connection broke: %s", error)
        elif error is not None and "transport" in context:
            _log.error("a bug: a connection is ended", exc_info=error)     # the caller's, not everybody's
        elif error is None:
            _log.warning("asyncio: %s", context.get("message"))
        else:
            self._fail(error)

    def _fail(self, error: BaseException | None) -> None:
        self._bug = self._bug or error
        self.aio.stop()

    def _raise_bug(self) -> None:
        bug, self._bug = self._bug, None
        if bug:
            raise bug


def _read_all(source: zmq.Socket[bytes], call: Callable[[], None]) -> None:
    while not source.closed and int(source.get(_EVENTS)) & _READABLE:
        call()

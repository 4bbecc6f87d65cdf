"""The one loop of every daemon: do what is due, poll until the next deadline, handle what came.

Owns the poller, the timers and the wake-up descriptor. One thread; nothing here sleeps or starts another. Background threads
(fdatasync) hand results back with `post`. Never knows sockets' contents: Server and Caller do.

Order within a turn: due timers, then readable sockets, then posted calls, then the `each_turn` hooks, which see everything the
turn brought (logd writes once per partition and turn there).
"""

import heapq
import itertools
import os
import time
from collections import deque
from collections.abc import Callable

import zmq

IDLE_POLL_S = 60.0


class Timer:
    """A call at a monotonic time; cancel() forgets it."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """now() is CLOCK_MONOTONIC seconds, wall_us() Unix microseconds. Tests replace both."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._poller = zmq.Poller()
        self._readers: dict[object, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._hooks: list[Callable[[], None]] = []
        self._posted: deque[Callable[[], None]] = deque()
        self._running = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.add_reader(self._wake, self._woken)

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def add_reader(self, source: zmq.Socket[bytes] | int, call: Callable[[], None]) -> None:
        """Call when a ZeroMQ socket or a file descriptor has something to read (level-triggered)."""
        self._poller.register(source, zmq.POLLIN)
        self._readers[source] = call

    def remove_reader(self, source: zmq.Socket[bytes] | int) -> None:
        if self._readers.pop(source, None):
            self._poller.unregister(source)

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        timer = Timer(when, call)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self.call_at(self.now() + seconds, call)

    def each_turn(self, hook: Callable[[], None]) -> None:
        self._hooks.append(hook)

    def post(self, call: Callable[[], None]) -> None:
        """From any thread (or a signal handler): call it on the loop's thread, soon."""
        self._posted.append(call)
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Until stop()."""
        self._running = True
        while self._running:
            self.turn(IDLE_POLL_S)

    def stop(self) -> None:
        self._running = False

    def close(self) -> None:
        self.remove_reader(self._wake)
        os.close(self._wake)

    def turn(self, patience_s: float = 0.0) -> None:
        """One turn; waits patience_s at most for something to do."""
        if self._run_due():
            patience_s = 0.0             # the hooks have something to see
        for source, _ in self._poller.poll(self._wait_ms(patience_s)):
            call = self._readers.get(source)
            if call:
                call()
        for _ in range(len(self._posted)):       # what they post themselves waits for the next turn: sockets come between
            self._posted.popleft()()
        for hook in self._hooks:
            hook()

    def _woken(self) -> None:
        os.eventfd_read(self._wake)

    def _run_due(self) -> bool:
        now, ran = self.now(), False
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.call:
                timer.call()
                ran = True
        return ran

    def _wait_ms(self, patience_s: float) -> int:
        while self._timers and not self._timers[0][2].call:
            heapq.heappop(self._timers)
        if self._posted:
            return 0
        if self._timers:
            patience_s = min(patience_s, self._timers[0][0] - self.now())
        return max(0, int(patience_s * 1000 + 0.999))

"""Consuming from a group, blocking: iterate a Consumer, or poll it.

    with client.consumer("orders", group="billing") as consumer:
        for message in consumer:
            work(message.value)

Modes of `ack`: "auto" acks a message when the next one is asked for (and the last when the consumer is closed without an
exception); "manual" leaves it to message.ack(); "none" acks as it hands out. Acks are sent within 10 ms, many at once.
Iterating, a message's visibility timeout runs from when it is handed out; poll() hands out all it returns at once. A consumer
is used by one thread; settling messages is allowed from any.

Inside: whoever holds the lock drives the core. That is the app's thread whenever it asks for messages. While it is away for
longer than a tick, a small background thread drives (heartbeats, flushes, the next lease), and gives way when the app comes back.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final

from gq_client.consumer import LEFT, ConsumerCore
from gq_client.consumer_lease import HeldLease, Message
from gq_client.consumer_options import ConsumerOptions
from gq_client.consumer_shell import ConsumerShell
from gq_proto import limits
from gq_proto.errors import Closed, TimedOut

if TYPE_CHECKING:
    from gq_client.sync import Client

TICK_S: Final = 0.01          # the background thread looks this often whether the app is away
TICK_MAX_S: Final = 1.0       # ... less often while the app waits in here and does everything itself
CLOSE_S: Final = 5.0          # patience with settling and leaving at the end
NEVER: Final = float("inf")


class Consumer(ConsumerShell):
    """See the module's text. Made by Client.consumer."""

    def __init__(self, client: "Client", options: ConsumerOptions) -> None:
        super().__init__(options, ConsumerCore(options, self), client.routes)
        self._client = client
        self._line = line = client.line()
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        line.watch(self._wake)
        line.on_push(self._pushed)
        self._bell = threading.Event()
        self._entries = 0
        self._unlooked = 0                # messages handed out since it looked at the sockets,
        self._look_at = 0.0               # where it looks again then, however few they are
        self._waiting = self._wanted = self._dozing = self._woken = self._closed = False
        with self._entered():
            self._core.start(time.monotonic())
            self._carry()
        self._thread = threading.Thread(target=self._background, name=f"goqueue-consumer-{options.group}", daemon=True)
        self._thread.start()
        client.adopt(self)

    # -- for apps -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Message]:
        """Messages for ever; ends when the consumer is closed."""
        return self.messages()

    def messages(self, timeout: float | None = None) -> Iterator[Message]:
        """Messages until none came for `timeout` seconds."""
        return {"auto": self._walk_auto, "manual": self._walk, "none": self._walk_none}[self.options.ack](timeout)

    def poll(self, max_messages: int = limits.POLL_MESSAGES, timeout: float | None = None) -> list[Message]:
        """Up to so many messages, [] when none comes for `timeout` seconds. All returned count as started."""
        self._asks_for_more()
        out: list[Message] = []
        while len(out) < max_messages:
            held = self._next(max_messages - len(out), timeout if not out else 0)
            if held is None:
                break
            out += self._hand_out(held)
        return out

    def flush(self, timeout: float = CLOSE_S) -> None:
        """Wait until everything settled so far is durable; TimedOut otherwise."""
        with self._entered():
            end = time.monotonic() + timeout
            self._core.flush(time.monotonic())
            while not self._core.settler.idle:
                self._drive(end)
                if time.monotonic() >= end:
                    raise TimedOut("the group's coordinator did not confirm in time")

    def pause(self) -> None:
        """Hand out nothing and give back what was not started, until resume()."""
        with self._entered():
            self._core.pause(time.monotonic(), True)
            self._carry()

    def resume(self) -> None:
        with self._entered():
            self._core.pause(time.monotonic(), False)
            self._carry()

    def close(self, *, ack: bool = True) -> None:
        """Settle what was decided, give back the rest, leave. In mode auto what was handed out last counts as done, unless
        ack=False."""
        if self._closed:
            return
        if ack:
            self._asks_for_more()
        with self._entered():
            self._closed = True
            with contextlib.suppress(Closed):
                self._leave()
        self._bell.set()
        self._thread.join()
        self._client.drop(self._line)
        self._client.disown(self)
        os.close(self._wake)

    def _leave(self) -> None:
        end = time.monotonic() + CLOSE_S
        self._core.flush(time.monotonic())
        while not self._core.settler.idle and time.monotonic() < end:
            self._drive(end)
        self._core.leave(time.monotonic())
        self._carry()
        while self._core.state != LEFT and time.monotonic() < end:
            self._drive(end)

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(ack=error is None)

    def __del__(self) -> None:
        if hasattr(self, "_thread") and not self._closed:
            with contextlib.suppress(Exception):
                self.close(ack=False)

    # -- for messages (see Hub) -----------------------------------------------------------------

    def wake(self) -> None:
        """A message was settled while the flush timer rested."""
        self.asleep, self._woken = False, True
        if not self._closed:
            os.eventfd_write(self._wake, 1)
            self._bell.set()

    def confirm(self, held: HeldLease, offset: int) -> None:
        with self._entered():
            ticket = self._core.confirm(time.monotonic(), held, offset)
            self._carry()
            end = time.monotonic() + self._line.timeout
            while not ticket.done:
                self._drive(end)
                if time.monotonic() >= end:
                    raise TimedOut("the group's coordinator did not confirm in time; the message may be settled")
        if ticket.error:
            raise ticket.error

    # -- handing out ------------------------------------------------------------------------------

    def _next(self, most: int, timeout: float | None) -> HeldLease | None:
        """A lease whose view is to be walked; None when nothing came in time or the consumer was closed."""
        if self._closed:
            return None
        with self._entered():
            now = time.monotonic()
            end = NEVER if timeout is None else now + timeout
            if self._unlooked >= self._view or now >= self._look_at:
                self._take_in(now)
            while True:
                held = self._core.take(time.monotonic(), most)
                self._core.pump(now)
                self._carry()
                if held is not None:
                    self._unlooked += len(held.view)
                    return held
                if self._core.failed:
                    raise self._core.failed
                if self._closed or time.monotonic() >= end:
                    self._core.wanted = 0
                    return None
                self._waiting = True
                self._drive(end)
                self._waiting = False

    def _take_in(self, now: float) -> None:
        """The app is back: send what it decided, take what came meanwhile, without waiting."""
        self._unlooked, self._look_at = 0, now + TICK_S
        self._core.flush_due(now)
        self._carry()
        self._line.wire.look()

    def _walk(self, timeout: float | None) -> Iterator[Message]:
        now = time.monotonic
        while held := self._next(self._view, timeout):
            for cursor, message in enumerate(held.view, 1):
                held.cursor, held.at = cursor, now()
                yield message

    def _walk_auto(self, timeout: float | None) -> Iterator[Message]:
        now = time.monotonic
        self._asks_for_more()
        while held := self._next(self._view, timeout):
            self._current, acked, decided = held, held.acked, held.decided
            for cursor, message in enumerate(held.view, 1):
                held.cursor, held.at = cursor, now()
                yield message
                if message.offset not in decided:
                    acked.append(message.offset)
            self._current = None

    def _walk_none(self, timeout: float | None) -> Iterator[Message]:
        now = time.monotonic
        while held := self._next(self._view, timeout):
            acked = held.acked
            for cursor, message in enumerate(held.view, 1):
                held.cursor, held.at = cursor, now()
                acked.append(message.offset)
                yield message

    # -- driving ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """Hold the lock; the background thread gives way."""
        self._entries += 1
        if not self._lock.acquire(blocking=False):
            self._wanted = True
            os.eventfd_write(self._wake, 1)
            self._lock.acquire()
        self._wanted = False
        try:
            yield
        finally:
            self._waiting = False
            self._lock.release()
            if self._dozing:
                self._dozing = False
                self._bell.set()

    def _drive(self, end: float = NEVER) -> None:
        """One step: wait for news or what is due, and act on it."""
        now = time.monotonic()
        core = self._core
        if now >= core.next_deadline():
            core.due(now)
        self._carry()
        self._line.pump(max(0.0, min(core.next_deadline(), end) - now))
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        if self._woken:
            self._woken = False
            core.awake(time.monotonic())
        self._carry()

    def _carry(self) -> None:
        """What the core wants asked goes out."""
        while self._core.outbox:
            self._submit(self._line.session)
            self._line.wire.push()

    def _background(self) -> None:
        seen, tick = -1, TICK_S
        while not self._closed:
            self._bell.wait(tick)
            self._bell.clear()
            if self._entries != seen:
                seen, tick = self._entries, TICK_S
            elif self._waiting:
                tick = min(2 * tick, TICK_MAX_S)
                self._dozing = tick > 5 * TICK_S
            else:
                self._drive_for_the_app()

    def _drive_for_the_app(self) -> None:
        with self._lock, contextlib.suppress(Closed):
            while not (self._wanted or self._closed):
                self._drive()


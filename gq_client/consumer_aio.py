"""Consuming from a group on asyncio: `async for` over an AsyncConsumer, or await poll(). As gq_client.consumer_sync, awaited.

    async with client.consumer("orders", group="billing") as consumer:
        async for message in consumer:
            await work(message.value)

message.ack() and its kin do not wait; `await message.ack(sync=True)` does. Everything happens on the loop: while the app awaits
something, heartbeats, flushes and the next lease go on; an app that blocks the loop for longer than the session is expelled.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Final

from gq_client.consumer import LEFT, ConsumerCore
from gq_client.consumer_lease import HeldLease, Message
from gq_client.consumer_options import ConsumerOptions
from gq_client.consumer_settle import Ticket
from gq_client.consumer_shell import ConsumerShell
from gq_proto import limits
from gq_proto.errors import TimedOut

if TYPE_CHECKING:
    from gq_client.aio import AsyncClient

CLOSE_S: Final = 5.0
NEVER: Final = float("inf")


class AsyncConsumer(ConsumerShell):
    """Made by AsyncClient.consumer, on a running loop, used on it only."""

    def __init__(self, client: "AsyncClient", options: ConsumerOptions) -> None:
        super().__init__(options, ConsumerCore(options, self), client.routes)
        self._client = client
        self._line = line = client.line()
        self._news = asyncio.Event()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        line.on_push(self._pushed)
        line.after_turn = self._turn
        client.adopt(self)
        self._core.start(time.monotonic())
        self._turn()

    # -- for apps -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message]:
        """Messages for ever; ends when the consumer is closed."""
        return self.messages()

    async def messages(self, timeout: float | None = None) -> AsyncIterator[Message]:
        """Messages until none came for `timeout` seconds."""
        ack, now = self.options.ack, time.monotonic
        self._asks_for_more()
        while True:
            held = await self._next(self._view, timeout)
            if held is None:
                return
            self._current = held
            for message in held.view:
                held.cursor += 1
                held.at = now()
                if ack == "none":
                    held.acked.append(message.offset)
                yield message
                if ack == "auto" and message.offset not in held.decided:
                    held.acked.append(message.offset)
            self._current = None

    async def poll(self, max_messages: int = limits.POLL_MESSAGES, timeout: float | None = None) -> list[Message]:
        """Up to so many messages, [] when none comes for `timeout` seconds. All returned count as started."""
        self._asks_for_more()
        out: list[Message] = []
        while len(out) < max_messages:
            held = await self._next(max_messages - len(out), timeout if not out else 0)
            if held is None:
                break
            out += self._hand_out(held)
        return out

    async def flush(self, timeout: float = CLOSE_S) -> None:
        """Wait until everything settled so far is durable; TimedOut otherwise."""
        end = time.monotonic() + timeout
        self._core.flush(time.monotonic())
        self._turn()
        while not self._core.settler.idle:
            if not await self._wait(end):
                raise TimedOut("the group's coordinator did not confirm in time")

    def pause(self) -> None:
        """Hand out nothing and give back what was not started, until resume()."""
        self._core.pause(time.monotonic(), True)
        self._turn()

    def resume(self) -> None:
        self._core.pause(time.monotonic(), False)
        self._turn()

    async def close(self, *, ack: bool = True) -> None:
        """Settle what was decided, give back the rest, leave. In mode auto what was handed out last counts as done, unless
        ack=False."""
        if self._closed:
            return
        self._closed = True
        if ack:
            self._asks_for_more()
        end = time.monotonic() + CLOSE_S
        self._core.flush(time.monotonic())
        self._turn()
        while not self._core.settler.idle and await self._wait(end):
            pass
        self._core.leave(time.monotonic())
        self._turn()
        while self._core.state != LEFT and await self._wait(end):
            pass
        if self._timer:
            self._timer.cancel()
        self._line.after_turn = lambda: None
        self._client.drop(self._line)
        self._client.disown(self)
        self._news.set()

    async def __aenter__(self) -> "AsyncConsumer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close(ack=error is None)

    # -- for messages (see Hub) -----------------------------------------------------------------

    def wake(self) -> None:
        """A message was settled while the flush timer rested."""
        self._core.awake(time.monotonic())
        self._remind()

    def confirm(self, held: HeldLease, offset: int) -> "asyncio.Future[None]":
        ticket = self._core.confirm(time.monotonic(), held, offset)
        future: asyncio.Future[None] = self._line.loop.create_future()
        ticket.call = lambda: _settle(future, ticket)
        self._turn()
        if ticket.done:
            _settle(future, ticket)
        return future

    # -- driving ------------------------------------------------------------------------------------

    async def _next(self, most: int, timeout: float | None) -> HeldLease | None:
        """A lease whose view is to be walked; None when nothing came in time or the consumer was closed."""
        end = NEVER if timeout is None else time.monotonic() + timeout
        if not self._closed:
            self._core.flush_due(time.monotonic())
        while not self._closed:
            held = self._core.take(time.monotonic(), most)
            self._core.pump(time.monotonic())
            self._turn()
            if held is not None:
                return held
            if self._core.failed:
                raise self._core.failed
            if not await self._wait(end):
                self._core.wanted = 0
                return None
        return None

    async def _wait(self, end: float) -> bool:
        """Until something happened; False when `end` came first."""
        self._news.clear()
        left = end - time.monotonic()
        if left <= 0:
            await asyncio.sleep(0)
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if end == NEVER else left):
                await self._news.wait()
        return True

    def _turn(self) -> None:
        """Something came, or may have to go."""
        core = self._core
        if time.monotonic() >= core.next_deadline():
            core.due(time.monotonic())
        while core.outbox:
            self._submit(self._line.session)
            self._line.flush()
        self._remind()
        self._news.set()

    def _remind(self) -> None:
        when = self._core.next_deadline()
        if when == self._timer_at:
            return
        if self._timer:
            self._timer.cancel()
        self._timer_at, self._timer = when, None
        if when != NEVER:
            self._timer = self._line.loop.call_later(max(0.0, when - time.monotonic()), self._on_time)

    def _on_time(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._turn()


def _settle(future: "asyncio.Future[None]", ticket: Ticket) -> None:
    if future.done():
        return
    if ticket.error:
        future.set_exception(ticket.error)
    else:
        future.set_result(None)

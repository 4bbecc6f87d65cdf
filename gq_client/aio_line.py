"""A line on an event loop: one session and its sockets, their descriptors watched by asyncio. The waiting-free shell.

Owns the loop's readers and one timer. `call` and `run` are as in gq_client.line, awaited; `submit` answers through `call.then`
on the loop. Everything happens on the loop's thread; a cancelled task gives its request up.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from gq_client.ask import Ask, Asks
from gq_client.line import TIMEOUT_S, Operation, T
from gq_client.routing import Routes, To
from gq_client.session import NEVER, Call, Session
from gq_client.wire import Context, Wire
from gq_proto.errors import Closed, GoQueueError
from gq_proto.messages import Body, Kind


class AsyncLine:
    """Made on a running loop, used on it only. `after_turn` is called after every bunch of messages that was taken."""

    def __init__(self, context: Context, routes: Routes, token: bytes = b"", timeout: float = TIMEOUT_S) -> None:
        self.timeout = timeout
        self.loop = asyncio.get_running_loop()
        self.after_turn: Callable[[], None] = lambda: None
        self._pid = os.getpid()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self.session = Session(routes, token, random.random)
        self.wire = Wire(context, self.session, self._watch, self.loop.remove_reader)

    @property
    def routes(self) -> Routes:
        return self.session.routes

    async def call(self, kind: Kind, body: Body, payload: Sequence[Any] = (), *, to: To, timeout: float | None = None,
                   epoch: int = -1, safe: bool = True) -> tuple[Any, Sequence[Any]]:
        """Ask and wait: (reply body, reply frames), or the error."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        return await self.finish(self.submit(Call(kind, body, to, deadline, None, payload, epoch=epoch, safe=safe)))

    def submit(self, call: Call) -> Call:
        """Ask; `call.then` is called on the loop (or within this very call)."""
        self.check_owner()
        self.session.submit(time.monotonic(), call)
        self.flush()
        return call

    async def finish(self, call: Call) -> tuple[Any, Sequence[Any]]:
        """Wait for a call that was submitted. Cancelled, it is given up."""
        if not call.done:
            future: asyncio.Future[None] = self.loop.create_future()
            call.then = _chain(call.then, future)
            try:
                await future
            finally:
                self.session.cancel(call)
                if self.session.outbox:
                    self.flush()
        return call.result()

    async def run(self, operation: Operation[T], timeout: float | None = None) -> T:
        """Drive an operation to its end; the deadline is that of all its requests together."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        send, value = operation.send, None
        try:
            while True:
                step = send(value)
                send, value = operation.send, None
                try:
                    value = await self._answer(step, deadline)
                except GoQueueError as error:
                    send, value = operation.throw, error
        except StopIteration as end:
            result: T = end.value
            return result

    async def _answer(self, step: Ask | Asks, deadline: float) -> Any:
        if isinstance(step, Ask):
            return await self.finish(self.submit(step.call(deadline)))
        calls = [self.submit(ask.call(deadline)) for ask in step]
        return await asyncio.gather(*[self.finish(call) for call in calls], return_exceptions=True)

    def flush(self) -> None:
        """Send what the session holds, take what has come, set the timer."""
        if not self.wire.closed:
            self.wire.flush()
            self._remind()

    def on_push(self, handler: Callable[[int, Any], None]) -> None:
        """`handler(kind, body)` gets what daemons send unasked on this line's connections."""
        self.session.on_push = handler

    def check_owner(self) -> None:
        if self.wire.closed:
            raise Closed("the client was closed")
        if os.getpid() != self._pid:
            raise Closed("this client was made before a fork: make a new one in the child process")

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        if not self.wire.closed and os.getpid() == self._pid:
            self.wire.close()

    def _watch(self, fd: int) -> None:
        self.loop.add_reader(fd, self._readable, fd)

    def _readable(self, fd: int) -> None:
        self.wire.ready(fd)
        self.flush()
        self.after_turn()

    def _remind(self) -> None:
        when = self.session.next_due
        if when < self._timer_at:
            if self._timer:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self.loop.call_later(max(0.0, when - time.monotonic()), self._on_time)

    def _on_time(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self.session.due(time.monotonic())
        self.flush()
        self.after_turn()


def _chain(then: Callable[[Call], None] | None, future: asyncio.Future[None]) -> Callable[[Call], None]:
    def ended(call: Call) -> None:
        if then:
            then(call)
        if not future.done():
            future.set_result(None)

    return ended

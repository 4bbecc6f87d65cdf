"""A line: one session and its sockets, used by one thread at a time. The blocking shell.

Owns waiting. `call` is a request and its reply, `run` drives an operation written as a generator (gq_client.admin), `submit` leaves
the answer to a later `pump`. Not locked: a client keeps idle lines in a pool and each caller takes one for itself; consumers and
producers have lines of their own. After a fork the child's use of it raises Closed: sockets and threads stay with the parent.
"""

import os
import random
import select
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from gq_client.ask import Ask, Asks
from gq_client.routing import Routes, To
from gq_client.session import NEVER, Call, Session
from gq_client.wire import Context, Wire
from gq_proto import limits
from gq_proto.errors import Closed, GoQueueError
from gq_proto.messages import Body, Kind

T = TypeVar("T")
Operation = Generator[Ask | Asks, Any, T]
TIMEOUT_S = limits.REQUEST_DEADLINE_MS / 1000


class Line:
    """`timeout`: seconds a call waits when it says nothing else."""

    def __init__(self, context: Context, routes: Routes, token: bytes = b"", timeout: float = TIMEOUT_S) -> None:
        self.timeout = timeout
        self.publishers: dict[Any, Any] = {}     # the client's, by acks and the like
        self.pid = os.getpid()
        self.poller = select.poll()
        self.session = Session(routes, token, random.random)
        self.wire = Wire(context, self.session, lambda fd: self.poller.register(fd, select.POLLIN), self.poller.unregister)

    @property
    def routes(self) -> Routes:
        return self.session.routes

    def call(self, kind: Kind, body: Body, payload: Sequence[Any] = (), *, to: To, timeout: float | None = None,
             epoch: int = -1, safe: bool = True) -> tuple[Any, Sequence[Any]]:
        """Ask and wait: (reply body, reply frames), or the error."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        return self.finish(self.submit(Call(kind, body, to, deadline, None, payload, epoch=epoch, safe=safe)))

    def submit(self, call: Call) -> Call:
        """Ask; `call.then` is called from within a later pump (or this very call)."""
        self.check_owner()
        self.session.submit(time.monotonic(), call)
        self.wire.push()
        return call

    def finish(self, call: Call) -> tuple[Any, Sequence[Any]]:
        """Wait for a call that was submitted. Interrupted (Ctrl-C), it is given up."""
        try:
            while not call.done:
                self.pump()
        finally:
            self.session.cancel(call)
            if self.session.outbox and not self.wire.closed:
                self.wire.push()
        return call.result()

    def run(self, operation: Operation[T], timeout: float | None = None) -> T:
        """Drive an operation to its end; the deadline is that of all its requests together."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        send, value = operation.send, None
        try:
            while True:
                step = send(value)
                send, value = operation.send, None
                try:
                    value = self._answer(step, deadline)
                except GoQueueError as error:
                    send, value = operation.throw, error
        except StopIteration as end:
            result: T = end.value
            return result

    def _answer(self, step: Ask | Asks, deadline: float) -> Any:
        if isinstance(step, Ask):
            return self.finish(self.submit(step.call(deadline)))
        calls = [self.submit(ask.call(deadline)) for ask in step]
        answers: list[Any] = []
        for call in calls:
            try:
                answers.append(self.finish(call))
            except GoQueueError as error:
                answers.append(error)
        return answers

    def pump(self, patience: float = NEVER) -> None:
        """Take what has come or do what is due. When there is neither, wait: for a message, a descriptor of `watch`, the session's
        next deadline, `patience` seconds at most; and take what came. One step: call it again until what one waits for is there."""
        self.check_owner()
        if self.wire.drain():
            return
        now = time.monotonic()
        if now >= self.session.next_due:
            self.session.due(now)
            self.wire.push()
            return
        patience = min(patience, self.session.next_due - now)
        ready = self.poller.poll(None if patience == NEVER else max(0, int(patience * 1000 + 0.999)))
        for fd, _ in ready:
            self.wire.ready(fd)
        if ready:
            self.wire.flush()

    def watch(self, fd: int) -> None:
        """pump() also ends when this descriptor (an eventfd, say) is readable; it is not read."""
        self.poller.register(fd, select.POLLIN)

    def on_push(self, handler: Callable[[int, Any], None]) -> None:
        """`handler(kind, body)` gets what daemons send unasked on this line's connections."""
        self.session.on_push = handler

    def check_owner(self) -> None:
        if self.wire.closed:
            raise Closed("the client was closed")
        if os.getpid() != self.pid:
            raise Closed("this client was made before a fork: make a new one in the child process")

    def close(self) -> None:
        if not self.wire.closed and os.getpid() == self.pid:
            self.wire.close()

    def __del__(self) -> None:
        if hasattr(self, "wire"):
            self.close()

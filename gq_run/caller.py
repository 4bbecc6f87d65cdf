"""One daemon's line to another: a DEALER socket with correlation, deadlines and fast failure.

Owns the socket and what is unanswered. A call ends exactly once: with the (last) reply, with the peer's error, with Unavailable
(nobody there, or the connection broke: the fate of the call is unknown) or with TimedOut. It never blocks and never queues for a
peer that is not there; reconnecting is ZeroMQ's, retrying the caller's.

A peer drops replies that it cannot queue. So no more than UNANSWERED_MAX calls are sent before others are answered; the rest wait
here, in order: what is asked of each of thousands of partitions at once comes whole.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from gq_proto import limits, messages
from gq_proto.errors import Busy, GoQueueError, TimedOut, Unavailable
from gq_run import curve
from gq_run.frames import receive, send
from gq_run.loop import Loop, Timer
from gq_run.server import Payload

Done = Callable[[Any, list[zmq.Frame], GoQueueError | None], None]
SWEEP_S = 0.05                   # deadlines this close together are seen to at once


class Pending:
    """A call without its last reply. `request` while it was not sent: (kind, body, frames, topic id, partition, epoch)."""

    __slots__ = ("deadline", "done", "request")

    def __init__(self, deadline: float, done: Done, request: tuple[Any, ...] | None) -> None:
        self.deadline, self.done, self.request = deadline, done, request


class Caller:
    """`on_push(kind, body)` gets what the peer sends unasked, `on_up()`/`on_down()` the connection's comings and goings."""

    def __init__(self, loop: Loop, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, token: bytes = b"",
                 server_key: str = "", pair: tuple[bytes, bytes] = (b"", b"")) -> None:
        """`server_key`: the peer's public CURVE key, `pair` then is ours; "": no CURVE."""
        self._loop, self._context, self.endpoint, self.token = loop, context, endpoint, token
        self.server_key = server_key
        self._waiting: dict[int, Pending] = {}   # by id, which grow
        self._unsent: deque[int] = deque()       # ids; those that ended meanwhile among them
        self._out = 0                            # sent, of those that wait
        self._next_id = 1
        self._sweeper: Timer | None = None
        self.on_push: Callable[[int, Any], None] = lambda kind, body: None
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[], None] = lambda: None
        self.connected = False
        self.refused = 0                         # messages that were no replies
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, limits.HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.RCVHWM, limits.HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, limits.HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, limits.SESSION_MS)
        if "[" in endpoint:
            self._socket.setsockopt(zmq.IPV6, 1)
        if server_key:
            curve.call(self._socket, server_key, pair)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        loop.add_reader(self._socket, self._drain)
        loop.add_reader(self._monitor, self._changed)
        self._socket.connect(endpoint)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_reader(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()
        if self._sweeper:
            self._sweeper.cancel()
        self._fail_all(Unavailable(f"the line to {self.endpoint} was closed"))

    def call(self, kind: messages.Kind, body: messages.Body, done: Done, frames: Sequence[Payload] = (), *,
             timeout_s: float = limits.REQUEST_DEADLINE_MS / 1000, topic_id: int = 0, partition: int = -1,
             epoch: int = -1) -> None:
        """done(body, frames, error) is called once, never from within this call; before that with each reply that says `open`."""
        id = self._next_id
        self._next_id += 1
        deadline = self._loop.now() + timeout_s
        if self._unsent or self._out >= limits.UNANSWERED_MAX:      # in the order of asking
            self._waiting[id] = Pending(deadline, done, (kind, body, frames, topic_id, partition, epoch))
            self._unsent.append(id)
        elif self._send(id, deadline, kind, body, frames, topic_id, partition, epoch):
            self._waiting[id] = Pending(deadline, done, None)
        else:
            error = Unavailable(f"{self.endpoint} is not reachable")
            self._loop.post(lambda: done(None, [], error))
            return
        if self._sweeper is None or deadline < self._sweeper.when - SWEEP_S:
            self._sweep_at(deadline)

    def _send(self, id: int, deadline: float, kind: messages.Kind, body: messages.Body, frames: Sequence[Payload], topic_id: int,
              partition: int, epoch: int) -> bool:
        """False when nobody is there."""
        left_ms = max(1, int((deadline - self._loop.now()) * 1000))
        head = messages.encode_request(kind, id, body, deadline_ms=left_ms, token=self.token, topic_id=topic_id,
                                       partition=partition, epoch=epoch)
        try:
            send(self._socket, [head, *frames])
        except zmq.Again:
            return False
        self._out += 1
        return True

    def _send_more(self) -> None:
        """As many of those that wait as there is room for now."""
        while self._unsent and self._out < limits.UNANSWERED_MAX:
            id = self._unsent.popleft()
            pending = self._waiting.get(id)
            if pending is None or pending.request is None:
                continue
            if self._send(id, pending.deadline, *pending.request):
                pending.request = None
            else:
                del self._waiting[id]
                pending.done(None, [], Unavailable(f"{self.endpoint} is not reachable"))

    def _drain(self) -> None:
        while frames := receive(self._socket):
            self._take(frames)
        if self._unsent:
            self._send_more()

    def _take(self, frames: list[zmq.Frame]) -> None:
        body, error = None, None
        try:
            reply = messages.decode_reply(frames[0].buffer)
        except GoQueueError:
            self.refused += 1                    # no reply: what it was about runs into its deadline
            return
        try:
            body = messages.reply_body(reply)
        except GoQueueError as e:
            error = e
        if reply.id == 0:
            if error is None:
                self.on_push(reply.kind, body)
            return
        pending = self._waiting.get(reply.id)
        if pending is None:
            return
        if not getattr(body, "open", False):
            del self._waiting[reply.id]
            self._out -= 1
        pending.done(body, frames[1:], error)

    def _changed(self) -> None:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if self.connected:
                self.on_up()
            else:
                self._drain()
                self._fail_all(Unavailable(f"{self.endpoint} went away"))
                self.on_down()

    def _fail_all(self, error: GoQueueError) -> None:
        waiting, self._waiting, self._out = self._waiting, {}, 0
        self._unsent.clear()
        for pending in waiting.values():
            pending.done(None, [], error)

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._loop.now()
        late = [id for id, pending in self._waiting.items() if pending.deadline <= now]
        for id in late:
            self._end_late(self._waiting.pop(id))
        if self._unsent:
            self._send_more()
        if self._waiting:
            self._sweep_at(min(pending.deadline for pending in self._waiting.values()))

    def _end_late(self, pending: Pending) -> None:
        if pending.request is None:
            self._out -= 1
            pending.done(None, [], TimedOut(f"{self.endpoint} did not answer in time"))
        else:
            pending.done(None, [], Busy(f"{self.endpoint} left {limits.UNANSWERED_MAX} others unanswered"))

    def _sweep_at(self, deadline: float) -> None:
        """One timer for all that is unanswered, at the earliest deadline; idle long polls wake nobody."""
        if self._sweeper:
            self._sweeper.cancel()
        self._sweeper = self._loop.call_at(max(deadline, self._loop.now() + SWEEP_S), self._sweep)

"""Time, chance and the network of a simulated cluster: one queue of events, one random generator, nothing else decides.

Time is seconds since the start. The wall clock runs beside it and can be set. A Line is one connection: what is sent on it arrives
in order, late, or, when the line breaks or a message is lost, not at all; its caller hears Unavailable or TimedOut then and does
not know what became of its request. Messages are encoded and decoded on the way, so that nobody shares objects.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from gq_proto import messages as m
from gq_proto.errors import GoQueueError, TimedOut, Unavailable

EPOCH_US = 1_700_000_000_000_000
Done = Callable[[Any, Sequence[Any], GoQueueError | None], None]


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.wall_skew_us = 0
        self.loss = 0.0             # of a message
        self.delay_s = 0.002        # mean
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.peers = count()

    def wall_us(self) -> int:
        return EPOCH_US + int(self.now * 1e6) + self.wall_skew_us

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._order), call))

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + seconds, call)

    def step(self) -> bool:
        """The next event; False when there is none."""
        if not self._events:
            return False
        self.now, _, call = heapq.heappop(self._events)
        call()
        return True

    def delay(self) -> float:
        return self.random.expovariate(1 / self.delay_s) if self.random.random() < 0.98 else self.random.uniform(0, 0.5)

    def lost(self) -> bool:
        return self.random.random() < self.loss


class Frame:
    """As zmq.Frame: `buffer` is writable."""

    def __init__(self, data: Any) -> None:
        self.buffer = memoryview(bytearray(data))


class Call:
    """What a daemon's core sees of a request; `reply` and `fail` as gq_run.server.Incoming has them."""

    def __init__(self, line: "Line", id: int, raw: bytes, frames: Sequence[Any], deadline: float) -> None:
        request = m.decode_request(raw)
        self.line, self.id, self.kind = line, id, request.kind
        self.topic_id, self.partition, self.epoch = request.topic_id, request.partition, request.epoch
        self.body = m.request_body(request)
        self.frames = [Frame(frame) for frame in frames]
        self.peer, self.deadline = line.peer, deadline

    def reply(self, body: m.Body, frames: Sequence[Any] = ()) -> bool:
        return self.line.answer(self.id, m.encode_reply(self.kind, self.id, body), [bytes(frame) for frame in frames])

    def fail(self, error: GoQueueError) -> bool:
        return self.line.answer(self.id, m.encode_error(self.kind, self.id, error), [])


class Server:
    """One life of a daemon, as lines see it."""

    def __init__(self, handle: Callable[[Call], None]) -> None:
        self.handle = handle
        self.alive = True
        self.lines: list[Line] = []

    def kill(self) -> None:
        self.alive = False
        for line in list(self.lines):
            line.broke()
        self.lines.clear()


class Line:
    """From one caller to whichever life of a daemon `find` names when it is first used, again after it broke."""

    def __init__(self, world: World, find: Callable[[], Server | None], on_push: Callable[[int, Any], None] | None = None) -> None:
        self._world, self._find, self._on_push = world, find, on_push
        self._server: Server | None = None
        self._waiting: dict[int, Done] = {}
        self._ids = count(1)
        self._there = self._back = 0.0          # when the last message arrived, each way
        self.closed = False
        self.peer = b""

    def close(self) -> None:
        """The caller is gone: nothing comes back any more."""
        self.closed = True
        self._waiting.clear()
        if self._server and self in self._server.lines:
            self._server.lines.remove(self)
        self._server = None

    def call(self, kind: int, body: m.Body, done: Done, frames: Sequence[Any] = (), *, timeout_s: float = 10.0, topic_id: int = 0,
             partition: int = -1, epoch: int = -1) -> None:
        """done once (but for answers that say more follow), never from within; never, if the caller closes the line."""
        world, id = self._world, next(self._ids)
        self._waiting[id] = done
        if self._server is None:
            self._server = self._find()
            self.peer = b"peer-%d" % next(world.peers)
            if self._server:
                self._server.lines.append(self)
        server = self._server
        if server is None:
            world.later(0.001, lambda: self._end(id, Unavailable("nobody there")))
            return
        raw = m.encode_request(kind, id, body, deadline_ms=int(timeout_s * 1000), topic_id=topic_id, partition=partition,
                               epoch=epoch)
        copies = [bytes(frame) for frame in frames]
        deadline = world.now + timeout_s
        world.at(deadline, lambda: self._end(id, TimedOut("no answer in time")))
        if not world.lost():
            self._there = max(self._there, world.now + world.delay())
            world.at(self._there, lambda: self._arrive(server, id, raw, copies, deadline))

    def _arrive(self, server: Server, id: int, raw: bytes, frames: list[bytes], deadline: float) -> None:
        if server.alive and self._server is server:
            server.handle(Call(self, id, raw, frames, deadline))

    def answer(self, id: int, raw: bytes, frames: list[bytes]) -> bool:
        """False when the caller is gone."""
        if self.closed or self._server is None:
            return False
        if not self._world.lost():
            server = self._server
            self._back = max(self._back, self._world.now + self._world.delay())
            self._world.at(self._back, lambda: self._deliver(server, id, raw, frames))
        return True

    def push(self, kind: int, body: m.Body) -> bool:
        return self.answer(0, m.encode_reply(kind, 0, body), [])

    def _deliver(self, server: Server, id: int, raw: bytes, frames: list[bytes]) -> None:
        if self.closed or self._server is not server:
            return
        reply = m.decode_reply(raw)
        if id == 0:
            if self._on_push:
                self._on_push(reply.kind, m.reply_body(reply))
            return
        body, error = None, None
        try:
            body = m.reply_body(reply)
        except GoQueueError as refusal:
            error = refusal
        done = self._waiting.get(id) if getattr(body, "open", False) else self._waiting.pop(id, None)
        if done:
            done(body, [Frame(frame) for frame in frames], error)

    def _end(self, id: int, error: GoQueueError) -> None:
        done = self._waiting.pop(id, None)
        if done and not self.closed:
            done(None, [], error)

    def broke(self) -> None:
        """The server's life ended."""
        self._server = None
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            self._world.later(0.002, lambda done=done: None if self.closed else  # type: ignore[misc]
                              done(None, [], Unavailable("the line broke")))

"""A daemon's front door: a ROUTER socket whose messages are decoded, handed over, and answered.

Owns the socket and its endpoints, and a second socket for those that a guard watches (gq_run.security): there each request is held
against what its caller may do before it is handed over, and again what it is told before that leaves.

What is no request is answered with an error where it names an id, and dropped otherwise; a request past its deadline is dropped. A
handler raises a GoQueueError to refuse, calls reply() now, or keeps the request and replies later. A peer that is gone or does not
read (its queue is full) makes reply() False: nothing blocks, nothing grows.

Bounds: a peer that leaves more than UNREAD_BYTES_MAX of large replies unread is answered Busy until it reads; a turn takes
DRAIN_MAX requests and no new one after DRAIN_S, so that what they cost comes between others' requests, not before them.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from gq_proto import limits, messages
from gq_proto.access import Access
from gq_proto.errors import BadRequest, Busy, GoQueueError, UnknownKind
from gq_run.frames import receive, send
from gq_run.loop import Loop
from gq_run.security import Guard

DRAIN_MAX = 256          # messages taken in one turn,
DRAIN_S = 0.01           # and no further one after so long
PEERS_KEPT = 256         # with unread replies, before those that have read are looked for
GUARDED = b"\x01"         # before the routing ids of the guarded socket; ZeroMQ's own begin with 0
UNREAD = "you have not read what you asked for before: read, then ask for more"
Payload = bytes | bytearray | memoryview | zmq.Frame


class Incoming:
    """A request and the way back."""

    __slots__ = ("_server", "access", "body", "curve", "deadline", "epoch", "frames", "id", "kind", "partition", "peer", "round",
                 "token", "topic_id")
    curve: str                           # the caller's CURVE key, and the round of keys it was let in by: set by a guard
    round: int

    def __init__(self, server: "Server", peer: bytes, request: messages.Request, body: Any,
                 frames: list[zmq.Frame], deadline: float) -> None:
        self._server = server
        self.peer = peer                 # ZeroMQ routing id of the connection
        self.kind = request.kind
        self.id = request.id
        self.token = request.token
        self.topic_id = request.topic_id
        self.partition = request.partition
        self.epoch = request.epoch
        self.body = body
        self.frames = frames             # payload frames; .buffer is a writable memoryview
        self.deadline = deadline         # monotonic seconds
        self.access: Access | None = None    # of a caller that a guard let in; None: trusted

    def reply(self, body: messages.Body, frames: Sequence[Payload] = ()) -> bool:
        """False when the peer is gone or does not read."""
        if self.access is not None:
            try:
                body = self._server.shown(self, body)
            except GoQueueError as e:        # its key was revoked meanwhile
                return self.fail(e)
        if frames and not self._server.has_room(self.peer):
            self.fail(Busy(UNREAD))
            return False
        return self._server.send(self.peer, messages.encode_reply(self.kind, self.id, body), frames)

    def fail(self, error: GoQueueError) -> bool:
        return self._server.send(self.peer, messages.encode_error(self.kind, self.id, error))


class Unread:
    """Large frames that a peer was sent and ZeroMQ still holds, oldest first."""

    __slots__ = ("bytes", "frames")

    def __init__(self) -> None:
        self.bytes = 0
        self.frames: deque[tuple[int, Any]] = deque()

    def add(self, tracked: Sequence[tuple[int, Any]]) -> None:
        self.frames += tracked
        self.bytes += sum([size for size, _ in tracked])

    def look(self) -> int:
        """What is left, in bytes."""
        while self.frames and self.frames[0][1].done:
            self.bytes -= self.frames.popleft()[0]
        return self.bytes


class Server:
    """After bind() of any number of endpoints (ipc:// and tcp://) hands each request to `handle`, on the loop's thread."""

    def __init__(self, loop: Loop, context: zmq.Context[zmq.Socket[bytes]], handle: Callable[[Incoming], None]) -> None:
        self._loop = loop
        self._context = context
        self._handle = handle
        self._guard: Guard | None = None
        self._guarded: zmq.Socket[bytes] | None = None
        self.endpoints: list[str] = []   # bound ones; a tcp port 0 is resolved
        self.taken = 0                   # requests handed over
        self.refused = 0                 # messages that were no requests
        self.unsent = 0                  # replies whose peer was gone or full
        self._unread: dict[bytes, Unread] = {}
        self.socket = self._router()
        loop.add_reader(self.socket, lambda: self._drain(self.socket, None))

    def _router(self) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.LINGER, limits.LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, limits.HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, limits.HIGH_WATER_MARK)
        socket.setsockopt(zmq.BACKLOG, limits.BACKLOG)
        socket.setsockopt(zmq.MAXMSGSIZE, limits.FRAME_MAX)
        socket.setsockopt(zmq.HEARTBEAT_IVL, limits.HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, limits.SESSION_MS)
        return socket

    def bind(self, endpoint: str, guard: Guard | None = None) -> str:
        """Take requests at one more endpoint; its resolved form. With a guard (one for all) only from whom it lets in. OSError when
        the endpoint is taken or not allowed."""
        socket = self._watched_by(guard) if guard else self.socket
        if "[" in endpoint:
            socket.setsockopt(zmq.IPV6, 1)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as e:
            raise OSError(e.errno, f"cannot listen at {endpoint}: {os.strerror(e.errno or 0)}") from None
        bound = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.endpoints.append(bound)
        return bound

    def _watched_by(self, guard: Guard) -> "zmq.Socket[bytes]":
        if self._guarded is None:
            self._guard = guard
            self._guarded = socket = self._router()
            socket.setsockopt(zmq.RCVHWM, limits.GUARDED_HIGH_WATER_MARK)
            guard.prepare(socket)
            self._loop.add_reader(socket, lambda: self._drain(socket, guard))
        assert self._guard is guard
        return self._guarded

    def close(self) -> None:
        for socket in filter(None, (self.socket, self._guarded)):
            self._loop.remove_reader(socket)
            socket.close()
        for endpoint in self.endpoints:
            if endpoint.startswith("ipc://"):
                path = endpoint.removeprefix("ipc://")
                if os.path.exists(path):
                    os.unlink(path)

    def push(self, peer: bytes, kind: messages.Kind, body: messages.Body) -> bool:
        """To a connection, unasked."""
        return self.send(peer, messages.encode_reply(kind, 0, body))

    def send(self, peer: bytes, head: bytes, frames: Sequence[Payload] = ()) -> bool:
        socket, name = self.socket, peer
        if self._guarded is not None and peer.startswith(GUARDED):
            socket, name = self._guarded, peer[1:]
        try:
            tracked = send(socket, [name, head, *frames], track=bool(frames))
        except zmq.ZMQError as e:
            if e.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.unsent += 1
            return False
        if tracked:
            self._note_unread(peer, tracked)
        return True

    def _note_unread(self, peer: bytes, tracked: list[tuple[int, Any]]) -> None:
        if peer not in self._unread and len(self._unread) >= PEERS_KEPT:
            self._unread = {other: unread for other, unread in self._unread.items() if unread.look()}
        self._unread.setdefault(peer, Unread()).add(tracked)

    def has_room(self, peer: bytes) -> bool:
        """Has it read what it was sent, but for UNREAD_BYTES_MAX?"""
        unread = self._unread.get(peer)
        if unread is None:
            return True
        if not unread.look():
            del self._unread[peer]
        return unread.bytes < limits.UNREAD_BYTES_MAX

    def shown(self, incoming: Incoming, body: messages.Body) -> messages.Body:
        """What of a reply its caller may see; Unauthorized when it may nothing any more."""
        assert self._guard is not None
        return self._guard.shown(incoming, body)

    def _drain(self, socket: "zmq.Socket[bytes]", guard: Guard | None) -> None:
        until = self._loop.now() + DRAIN_S
        for _ in range(DRAIN_MAX):
            frames = receive(socket)
            if not frames:
                return
            self._take(frames, guard)
            if self._loop.now() >= until:
                return

    def _take(self, frames: list[zmq.Frame], guard: Guard | None) -> None:
        peer = GUARDED + frames[0].bytes if guard else frames[0].bytes
        try:
            if len(frames) < 2:
                raise BadRequest("an empty message: send an envelope, see protocol.txt")
            request = messages.decode_request(frames[1].buffer)
        except GoQueueError as e:
            self.refused += 1
            self.send(peer, messages.encode_error(0, 0, e))
            return
        deadline = self._loop.now() + request.deadline_ms / 1000
        if request.deadline_ms <= 0:
            return
        incoming = Incoming(self, peer, request, None, frames[2:], deadline)
        try:
            if guard:
                guard.admit(incoming, frames[1])
            if request.kind not in messages.REQUEST_KINDS:
                raise UnknownKind(f"request kind {request.kind} is unknown here")
            incoming.body = messages.request_body(request)
            if guard:
                guard.check(incoming)
            if self._unread and not self.has_room(peer):
                raise Busy(UNREAD)
            self.taken += 1
            self._handle(incoming)
        except GoQueueError as e:
            self.refused += 1
            incoming.fail(e)

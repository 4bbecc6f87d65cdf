"""A session's sockets: one DEALER a daemon, with the monitor that tells when its connection comes and goes.

Owns the sockets of one line and moves bytes between them and the session. Never blocks, never waits, knows no thread: who calls
it sees to that. A descriptor that is readable means "call drain()"; it is edge-triggered (ZeroMQ's), so whoever sends also
drains before waiting on it again: `flush` does.
"""

import time
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from gq_client.session import Session
from gq_proto import limits
from gq_run.frames import receive, send

EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
Context = zmq.Context[zmq.Socket[bytes]]


class Connection:
    """One daemon's. `hot`: something may have come: its descriptor was readable, or a send may have swallowed that signal."""

    __slots__ = ("endpoint", "fd", "hot", "monitor", "monitor_fd", "socket")

    def __init__(self, context: Context, endpoint: str, server_key: str = "", pair: tuple[bytes, bytes] | None = None) -> None:
        self.endpoint = endpoint
        self.hot = True
        self.socket = socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.LINGER, limits.LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, limits.HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, limits.HIGH_WATER_MARK)
        socket.setsockopt(zmq.RECONNECT_IVL, 20)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        socket.setsockopt(zmq.HEARTBEAT_IVL, limits.HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, limits.SESSION_MS)
        if "[" in endpoint:
            socket.setsockopt(zmq.IPV6, 1)
        if server_key:
            from gq_run import curve  # most never need it
            curve.call(socket, server_key, pair or zmq.curve_keypair())
        self.monitor = socket.get_monitor_socket(EVENTS)
        self.fd = int(socket.getsockopt(zmq.FD))
        self.monitor_fd = int(self.monitor.getsockopt(zmq.FD))
        socket.connect(endpoint)

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close()


class Wire:
    """`watch(fd)` and `unwatch(fd)` tell which descriptors to wait on."""

    def __init__(self, context: Context, session: Session, watch: Callable[[int], None], unwatch: Callable[[int], object],
                 now: Callable[[], float] = time.monotonic) -> None:
        self._context, self.session, self._watch, self._unwatch, self._now = context, session, watch, unwatch, now
        self._connections: dict[str, Connection] = {}
        self._by_fd: dict[int, Connection] = {}
        self.closed = False
        self.dialled = 0             # connections made so far: one more, and who waits must watch its descriptors too

    def flush(self) -> None:
        """Send what the session wants sent, dial whom it wants dialled, take what has come meanwhile."""
        self.push()
        self.drain()

    def push(self) -> None:
        """flush without the taking: for callers that drain right after."""
        session = self.session
        while session.dial:
            self._dial(session.dial.pop())
        while session.outbox:
            messages, session.outbox = session.outbox, []
            for endpoint, frames, call in messages:
                connection = self._connections[endpoint]
                connection.hot = True
                if not self._send(connection.socket, frames):
                    session.unsent(self._now(), call)

    def drain(self) -> bool:
        """Take all that has come, and what the session answers to it is sent. True when something came."""
        session, came, again = self.session, False, True
        while again and not self.closed:
            again = False
            for connection in list(self._connections.values()):
                if connection.hot:
                    again |= self._receive(connection)
            came |= again
            if session.outbox or session.dial:
                self.push()
                again = True
        return came

    def look(self) -> bool:
        """drain, for who has not waited on the descriptors."""
        for connection in self._connections.values():
            connection.hot = True
        return self.drain()

    def ready(self, fd: int) -> None:
        """A watched descriptor is readable. Call drain() after all of them."""
        connection = self._by_fd.get(fd)
        if connection and fd == connection.fd:
            connection.hot = True
        elif connection:
            self._events(connection)

    def close(self) -> None:
        """The session's calls end with Closed."""
        self.closed = True
        for connection in self._connections.values():
            self._unwatch(connection.fd)
            self._unwatch(connection.monitor_fd)
            connection.close()
        self._connections.clear()
        self._by_fd.clear()
        self.session.close()

    def _dial(self, endpoint: str) -> None:
        self.dialled += 1
        routes = self.session.routes
        connection = Connection(self._context, endpoint, routes.server_key(endpoint), routes.pair)
        self._connections[endpoint] = self._by_fd[connection.fd] = self._by_fd[connection.monitor_fd] = connection
        self._watch(connection.fd)
        self._watch(connection.monitor_fd)
        self._events(connection)     # a first try: before one failed, ZeroMQ does not signal the descriptor

    def _send(self, socket: zmq.Socket[bytes], frames: list[Any]) -> bool:
        try:
            send(socket, frames)
        except zmq.Again:
            return False
        return True

    def _receive(self, connection: Connection) -> bool:
        """True when something came."""
        came = False
        while not self.closed:
            frames = receive(connection.socket)
            if not frames:
                connection.hot = False
                break
            came = True
            head, *payload = frames
            self.session.received(self._now(), connection.endpoint, [head.bytes, *[frame.buffer for frame in payload]])
        return came

    def _events(self, connection: Connection) -> None:
        while not self.closed:
            try:
                event = parse_monitor_message(connection.monitor.recv_multipart(zmq.DONTWAIT))["event"]
            except zmq.Again:
                return
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.session.up(self._now(), connection.endpoint)
            elif event == zmq.EVENT_DISCONNECTED:
                self._receive(connection)        # what it still said
                self.session.down(self._now(), connection.endpoint)

"""The blocking client.

Owns the lines: idle ones wait in a pool, each call takes one for itself, so threads share a Client without waiting for
one another. Nothing is connected before the first call. Use it as a context manager, or close it.
"""

import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import zmq

from gq_client import node
from gq_client.admin import Admin
from gq_client.batch import ProducerOptions, Published
from gq_client.consumer_options import options_of
from gq_client.consumer_sync import Consumer
from gq_client.cursor import Cursor, Start, locate
from gq_client.delayed import Delays
from gq_client.draft import Headers, When
from gq_client.line import TIMEOUT_S, Line, Operation, T
from gq_client.producer import Producer
from gq_client.publisher import Publisher
from gq_client.reader import Reader
from gq_client.routing import To
from gq_proto.errors import CallerFault, Closed
from gq_proto.memory import keep_freed_memory
from gq_proto.messages import EARLIEST, Body, Kind

IDLE_LINES_MAX = 8


class Closable(Protocol):
    def close(self) -> None: ...


class Client(Admin, Delays):
    """A node or cluster, named by `server` ("host:port" of any metad), or `data_dir`, or the environment (GOQUEUE_SERVER,
    GOQUEUE_DATA_DIR). `timeout`: seconds that a call waits, retries included, when it says nothing else.

    Across hosts: `key` is an API key (GOQUEUE_KEY), `curve_server_key` the public CURVE key of the server's node, as
    `gqctl key curve` prints it there (GOQUEUE_CURVE_SERVER_KEY). `curve_pair`: (public, secret), for who is known to the node by a
    CURVE key of its own; else a fresh one does."""

    def __init__(self, server: str | None = None, *, data_dir: str | os.PathLike[str] | None = None, key: str | None = None,
                 curve_server_key: str | None = None, curve_pair: tuple[str, str] | None = None,
                 timeout: float = TIMEOUT_S) -> None:
        keep_freed_memory()
        self.routes = node.find(data_dir, server, curve_server_key, curve_pair)
        self.timeout = timeout
        self.token = node.token_of(key, self.routes)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._idle: list[Line] = []
        self._lines: set[Line] = set()             # all that are open
        self._users: dict[Closable, None] = {}     # producers, consumers, readers: closed first
        self._guard = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    # -- lines ------------------------------------------------------------------------------

    def line(self) -> Line:
        """A line of one's own; give it back with drop()."""
        with self._guard:
            self._check()
            line = Line(self._context, self.routes, self.token, self.timeout)
            self._lines.add(line)
        return line

    def drop(self, line: Line) -> None:
        """Close a line that line() made."""
        with self._guard:
            self._lines.discard(line)
        line.close()

    def take(self) -> Line:
        """An idle line; put() it back."""
        self._check()
        try:
            return self._idle.pop()
        except IndexError:
            return self.line()

    def put(self, line: Line) -> None:
        if self._closed or len(self._idle) >= IDLE_LINES_MAX:
            self.drop(line)
        else:
            self._idle.append(line)

    def call(self, kind: Kind, body: Body, payload: Sequence[Any] = (), *, to: To, timeout: float | None = None,
             epoch: int = -1, safe: bool = True) -> tuple[Any, Sequence[Any]]:
        """One request of the protocol and its reply: (body, frames)."""
        line = self.take()
        try:
            return line.call(kind, body, payload, to=to, timeout=timeout, epoch=epoch, safe=safe)
        finally:
            self.put(line)

    def run(self, operation: Operation[T], timeout: float | None = None) -> T:
        """Drive an operation (see gq_client.ask)."""
        line = self.take()
        try:
            return line.run(operation, timeout)
        finally:
            self.put(line)

    def consumer(self, topics: str | Sequence[str], group: str, **options: Any) -> Consumer:
        """A member of `group` (made if need be), see gq_client.consumer_sync. `options` are those of
        gq_client.consumer_options.options_of: mode, start, ack, visibility, max_poll, hold, session, client."""
        return Consumer(self, options_of(topics, group, **{"client": node.whoami(), **options}))

    def reader(self, topic: str, partition: int, from_: Start = EARLIEST, *, stop_at_end: bool = False, committed: bool = True,
               include_delayed: bool = False) -> Reader:
        """A simple read from "earliest", "latest", an offset or a time (datetime; Unix seconds as float) on. A delayed message
        that is due comes where it lies, one that is not when it is; never with stop_at_end. include_delayed: all where they lie.
        UnknownTopic."""
        found, offset = self.run(locate(self.routes, topic, partition, from_))
        return Reader(self, Cursor(found, partition, offset, stop_at_end=stop_at_end, committed=committed,
                                   include_delayed=include_delayed))

    # -- publishing --------------------------------------------------------------------------

    def publish(self, topic: str, value: Any, key: Any = None, *, headers: Headers = None, priority: int | str | None = None,
                delay: float | None = None, deliver_at: When = None, partition: int | None = None, acks: str = "leader",
                compress: str | None = None, idempotent: bool = True, timeout: float | None = None) -> Published:
        """Write one message and wait for it: (partition, offset, timestamp).

        value, key: bytes, str (as UTF-8) or None. headers: a mapping or pairs (order and duplicates kept). priority: 0..4 or its
        name. delay: seconds; deliver_at: Unix seconds or a datetime; 671,088.64 s ahead at most; none, less or past: now.
        partition: else by key, without a key in turn. acks: none, leader, all. compress: "zstd". A topic that is not there is made.
        BadRecord, TooLarge. TimedOut: it may or may not have been written."""
        patience = self.timeout if timeout is None else timeout
        line = self.take()
        wanted = acks, compress, idempotent
        clean = False
        try:
            publisher = line.publishers.get(wanted)
            if publisher is None:
                options = ProducerOptions(acks=acks, compress=compress, idempotent=idempotent)
                publisher = line.publishers[wanted] = Publisher(line, options, patience)
            found = publisher.publish(topic, value, key, headers, priority, delay, deliver_at, partition, patience)
            clean = True
            return found
        except CallerFault:
            clean = True
            raise
        finally:
            if clean:
                self.put(line)
            else:
                self.drop(line)          # what it still has under way must not hold up the next message

    def producer(self, *, batch_messages: int = ProducerOptions.batch_messages, batch_bytes: int = ProducerOptions.batch_bytes,
                 linger: float = ProducerOptions.linger, acks: str = "leader", compress: str | None = None,
                 idempotent: bool = True, buffer_bytes: int = ProducerOptions.buffer_bytes, timeout: float | None = None,
                 block: float | None = None) -> Producer:
        """A background batching producer, see gq_client.producer. linger: seconds a batch waits for company (0: none); timeout:
        seconds until a message fails; block: seconds that send waits while buffer_bytes are under way, then Busy (0: at once)."""
        patience = self.timeout if timeout is None else timeout
        options = ProducerOptions(batch_messages, batch_bytes, linger, acks, compress, idempotent, patience, buffer_bytes)
        return Producer(self, options, patience if block is None else block)

    # -- life -------------------------------------------------------------------------------

    def adopt(self, user: Closable) -> None:
        """Close it with the client."""
        with self._guard:
            self._check()
            self._users[user] = None

    def disown(self, user: Closable) -> None:
        with self._guard:
            self._users.pop(user, None)

    def close(self) -> None:
        """Flush and close producers, leave groups, close all sockets. Safe to repeat."""
        if self._closed or os.getpid() != self._pid:
            return
        for user in list(self._users):
            user.close()
        with self._guard:
            self._closed = True
            lines, self._lines, self._idle = list(self._lines), set(), []
        for line in lines:
            line.close()
        self._context.term()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_pid"):
            self.close()

    def _check(self) -> None:
        if self._closed:
            raise Closed("the client was closed")
        if os.getpid() != self._pid:
            raise Closed("this client was made before a fork: make a new one in the child process")

"""The asyncio client: as gq_client.sync, awaited.

Owns one line on the running loop for all calls; consumers may take lines of their own. Connected at the first call; belongs to the
loop that made that call. Use it as `async with`, or await close().
"""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

import zmq

from gq_client import node
from gq_client.admin import Admin
from gq_client.aio_line import AsyncLine
from gq_client.aio_producer import AsyncProducer
from gq_client.batch import ProducerOptions, Published
from gq_client.consumer_aio import AsyncConsumer
from gq_client.consumer_options import options_of
from gq_client.cursor import Cursor, Start, locate
from gq_client.delayed import Delays
from gq_client.draft import Headers, When
from gq_client.line import TIMEOUT_S, Operation, T
from gq_client.reader import AsyncReader
from gq_client.routing import To
from gq_proto.errors import Closed
from gq_proto.memory import keep_freed_memory
from gq_proto.messages import EARLIEST, Body, Kind

SOCKETS_MAX: Final = 65_535      # ZeroMQ's own default is enough for a few hundred consumers; descriptors bound them too


class AsyncClient(Admin, Delays):
    """See gq_client.sync.Client for the arguments."""

    def __init__(self, server: str | None = None, *, data_dir: str | os.PathLike[str] | None = None, key: str | None = None,
                 curve_server_key: str | None = None, curve_pair: tuple[str, str] | None = None,
                 timeout: float = TIMEOUT_S) -> None:
        keep_freed_memory()
        self.routes = node.find(data_dir, server, curve_server_key, curve_pair)
        self.timeout = timeout
        self.token = node.token_of(key, self.routes)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        self._shared: AsyncLine | None = None
        self._lines: set[AsyncLine] = set()
        self._users: dict[Any, None] = {}
        self._publishers: dict[Any, AsyncProducer] = {}
        self._closed = False
        self._pid = os.getpid()

    def line(self) -> AsyncLine:
        """A line of one's own; give it back with drop()."""
        self._check()
        line = AsyncLine(self._context, self.routes, self.token, self.timeout)
        self._lines.add(line)
        return line

    def drop(self, line: AsyncLine) -> None:
        """Close a line that line() made."""
        self._lines.discard(line)
        line.close()

    @property
    def shared(self) -> AsyncLine:
        """The line of all calls."""
        if self._shared is None:
            self._shared = self.line()
        return self._shared

    async def call(self, kind: Kind, body: Body, payload: Sequence[Any] = (), *, to: To, timeout: float | None = None,
                   epoch: int = -1, safe: bool = True) -> tuple[Any, Sequence[Any]]:
        """One request of the protocol and its reply: (body, frames)."""
        return await self.shared.call(kind, body, payload, to=to, timeout=timeout, epoch=epoch, safe=safe)

    async def run(self, operation: Operation[T], timeout: float | None = None) -> T:
        """Drive an operation (see gq_client.ask)."""
        return await self.shared.run(operation, timeout)

    def consumer(self, topics: str | Sequence[str], group: str, **options: Any) -> AsyncConsumer:
        """As gq_client.sync.Client.consumer. Call it on the running loop."""
        return AsyncConsumer(self, options_of(topics, group, **{"client": node.whoami(), **options}))

    async def reader(self, topic: str, partition: int, from_: Start = EARLIEST, *, stop_at_end: bool = False,
                     committed: bool = True, include_delayed: bool = False) -> AsyncReader:
        """As gq_client.sync.Client.reader."""
        found, offset = await self.run(locate(self.routes, topic, partition, from_))
        return AsyncReader(self, Cursor(found, partition, offset, stop_at_end=stop_at_end, committed=committed,
                                        include_delayed=include_delayed))

    async def publish(self, topic: str, value: Any, key: Any = None, *, headers: Headers = None, priority: int | str | None = None,
                      delay: float | None = None, deliver_at: When = None, partition: int | None = None, acks: str = "leader",
                      compress: str | None = None, idempotent: bool = True, timeout: float | None = None) -> Published:
        """As gq_client.sync.Client.publish; those under way together travel together."""
        patience = self.timeout if timeout is None else timeout
        wanted = acks, compress, idempotent, patience
        publisher = self._publishers.get(wanted)
        if publisher is None:
            publisher = self._publishers[wanted] = self.producer(linger=0, acks=acks, compress=compress, idempotent=idempotent,
                                                                 timeout=patience)
        return await (await publisher.send(topic, value, key, headers, priority, delay, deliver_at, partition))

    def producer(self, *, batch_messages: int = ProducerOptions.batch_messages, batch_bytes: int = ProducerOptions.batch_bytes,
                 linger: float = ProducerOptions.linger, acks: str = "leader", compress: str | None = None,
                 idempotent: bool = True, buffer_bytes: int = ProducerOptions.buffer_bytes, timeout: float | None = None,
                 block: float | None = None) -> AsyncProducer:
        """As gq_client.sync.Client.producer. Call it on the running loop."""
        patience = self.timeout if timeout is None else timeout
        options = ProducerOptions(batch_messages, batch_bytes, linger, acks, compress, idempotent, patience, buffer_bytes)
        return AsyncProducer(self, options, patience if block is None else block)

    def adopt(self, user: Any) -> None:
        """await user.close() with the client."""
        self._check()
        self._users[user] = None

    def disown(self, user: Any) -> None:
        self._users.pop(user, None)

    async def close(self) -> None:
        """Flush and close producers, leave groups, close all sockets. Safe to repeat."""
        if self._closed or os.getpid() != self._pid:
            return
        for user in list(self._users):
            await user.close()
        self._closed = True
        for line in list(self._lines):
            self.drop(line)
        self._context.term()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def _check(self) -> None:
        if self._closed:
            raise Closed("the client was closed")
        if os.getpid() != self._pid:
            raise Closed("this client was made before a fork: make a new one in the child process")

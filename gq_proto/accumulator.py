"""Where a producer's messages of one topic gather: the partitioner and one growing batch a partition, in one call a message.

The hot path of publishing. The compiled twin (`_codec.Accumulator`) does the same in C; this one is used without it and is the
oracle in tests. Knows no sockets and no time: what has to happen is told to `owner`:

    owner.wait()                 `gate` is set: memory is full. Returns when there is room, or raises; nothing was added yet
    owner.opened(partition)      a batch has its first message
    owner.full(partition)        a batch reached its limits, or the next message does not fit: seal it

Each `add` returns `ticket` made by __new__, with `batch` (the object that stands for the batch of that partition, see
seal) and `index` set. One add at a time happens as if at once: the compiled one holds the GIL, this one a lock; owner is called
outside of it. So many threads may add while another seals.

Partition: an explicit one, else murmur3 of the key, else (null key) round robin by batch.
"""

import importlib
import threading
from typing import Any, Protocol

from gq_proto import codec as _codec
from gq_proto.errors import BadRecord, TooLarge, UnknownPartition


class Owner(Protocol):
    """Who is told."""

    def wait(self) -> None: ...
    def opened(self, partition: int) -> None: ...
    def full(self, partition: int) -> None: ...


class PureTicket:
    """A message that was added: its place in its batch. Subclassed by who makes the tickets."""

    __slots__ = ("batch", "index")
    batch: Any
    index: int


class PureAccumulator:
    """`batches`: an object for the first batch of each partition."""

    def __init__(self, owner: Owner, ticket: Any, batches: list[Any], batch_bytes: int, batch_messages: int, max_value: int,
                 reserve: int = 4096) -> None:
        self._owner, self._ticket, self._batches = owner, ticket, list(batches)
        self._batch_bytes, self._batch_messages, self._reserve = batch_bytes, batch_messages, reserve
        self.max_value = max_value
        self.gate = False
        self._turn = 0
        self._builders = [_codec.BatchBuilder(reserve) for _ in batches]
        self._lock = threading.Lock()

    @property
    def partitions(self) -> int:
        return len(self._builders)

    @property
    def size(self) -> int:
        """Bytes in all open batches."""
        return sum(builder.size for builder in self._builders)

    def count(self, partition: int) -> int:
        """Messages in the open batch of a partition."""
        return int(self._builders[partition].count)

    def add(self, key: Any, value: Any, partition: int = -1, headers: bytes = b"", priority: int = 2, flags: int = 0,
            codec: int = 0, timestamp: int = 0) -> Any:
        """A ticket. str keys and values are encoded as UTF-8; None is null. Errors leave everything as it was."""
        if self.gate:
            self._owner.wait()
        key, value = _bytes("key", key), _bytes("value", value)
        if value is not None and len(value) > self.max_value:
            raise TooLarge(f"a value of {len(value)} bytes is above the topic's limit of {self.max_value}")
        need = 66 + len(key or b"") + len(value or b"") + len(headers)
        while True:
            with self._lock:
                at = self._choose(key, partition)
                builder = self._builders[at]
                if not builder.count or builder.size + need <= self._batch_bytes:
                    index = builder.add(key, value, headers, priority, flags, codec, timestamp)
                    ticket = self._ticket.__new__(self._ticket)
                    ticket.batch, ticket.index = self._batches[at], index
                    full = builder.count >= self._batch_messages or builder.size >= self._batch_bytes
                    break
            self._owner.full(at)
        if not index:
            self._owner.opened(at)
        if full:
            self._owner.full(at)
        return ticket

    def seal(self, partition: int, following: Any, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> Any:
        """(batch, bytes, count) of what is open in a partition, or None when nothing is; `following` stands for the next."""
        with self._lock:
            builder = self._builders[partition]
            count = builder.count
            if not count:
                return None
            batch, self._batches[partition] = self._batches[partition], following
            if partition == self._turn:
                self._turn = (partition + 1) % len(self._builders)
            return batch, builder.seal(producer_id, epoch, sequence), count

    def grow(self, batches: list[Any]) -> None:
        """The topic has more partitions: `batches` for the new ones."""
        with self._lock:
            self._builders += [_codec.BatchBuilder(self._reserve) for _ in batches]
            self._batches += batches

    def _choose(self, key: bytes | None, partition: int) -> int:
        count = len(self._builders)
        if partition >= count or partition < -1:
            raise UnknownPartition(f"the topic has partitions 0..{count - 1}, not {partition}")
        if partition >= 0:
            return partition
        return self._turn if key is None else int(_codec.partition_of(key, count))


def _bytes(what: str, given: Any) -> bytes | None:
    if given is None or type(given) is bytes:
        return given
    try:
        return given.encode() if isinstance(given, str) else bytes(memoryview(given))
    except (TypeError, UnicodeEncodeError, BufferError) as error:
        raise BadRecord(f"a {what} is bytes, text or None: {error}") from None


Accumulator: Any = PureAccumulator
Ticket: Any = PureTicket
if str(_codec.NAME) == "compiled":
    _compiled = importlib.import_module("gq_proto._codec")
    Accumulator, Ticket = _compiled.Accumulator, _compiled.Ticket

"""What a producer holds: options, batches, each partition's (`Home`), each topic's (`Lane`). Pure; what moves them is `batches`."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from gq_client.session import NEVER
from gq_proto import codec, limits
from gq_proto import record as r
from gq_proto.accumulator import Accumulator
from gq_proto.errors import BadConfig, GoQueueError
from gq_proto.messages import Acks, TopicMeta

ACKS: Final = {"none": Acks.NONE, "leader": Acks.LEADER, "all": Acks.ALL}


class Published(NamedTuple):
    """Where a message lies. offset -1 with acks="none". timestamp: Unix microseconds."""

    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True)
class ProducerOptions:
    """How to batch. linger: seconds a batch waits for company; timeout: seconds until a message's delivery fails."""

    batch_messages: int = 10_000
    batch_bytes: int = 256 * limits.KIB
    linger: float = 0.005
    acks: str = "leader"
    compress: str | None = None
    idempotent: bool = True
    timeout: float = limits.REQUEST_DEADLINE_MS / 1000
    buffer_bytes: int = 32 * limits.MIB

    def __post_init__(self) -> None:
        if self.acks not in ACKS:
            raise BadConfig(f"acks={self.acks!r}: use none, leader or all")
        if self.compress not in (None, "none", "zstd"):
            raise BadConfig(f"compress={self.compress!r}: use zstd or none")
        if not 1 <= self.batch_messages <= limits.BATCH_MESSAGES_MAX:
            raise BadConfig(f"batch_messages={self.batch_messages}: use 1 to {limits.BATCH_MESSAGES_MAX}")
        if not 1 <= self.batch_bytes <= limits.BATCH_BYTES_MAX:
            raise BadConfig(f"batch_bytes={self.batch_bytes}: use 1 to {limits.BATCH_BYTES_MAX}")
        if self.linger < 0 or self.timeout <= 0 or self.buffer_bytes < self.batch_bytes:
            raise BadConfig("linger is not negative, timeout positive, buffer_bytes not below batch_bytes")


class Batch:
    """Messages that share a fate. `done`: then `error`, or the first one lies at base_offset."""

    __slots__ = ("attempts", "base_offset", "callbacks", "count", "data", "deadline", "done", "epoch", "error", "event", "fixed",
                 "home", "last", "number", "opened_at", "producer_id", "sequence", "size", "timestamp", "unknown")

    def __init__(self, home: "Home") -> None:
        self.home = home
        self.data = b""
        self.count = self.size = self.attempts = 0
        self.number = 0                             # of its partition, as they were first sent: 1, 2 ..
        self.opened_at, self.deadline = NEVER, NEVER
        self.producer_id = self.epoch = self.sequence = -1
        self.done = self.unknown = False
        self.error: GoQueueError | None = None
        self.last: GoQueueError | None = None
        self.base_offset, self.timestamp = -1, 0
        self.callbacks: list[Callable[[], None]] = []
        self.fixed = False                          # sent with these numbers, and perhaps written
        self.event: Any = None                      # who waits: the shell's

    def published(self, index: int) -> Published:
        """Of the message with that index; or the error raised."""
        if self.error:
            raise self.error
        return Published(self.home.partition, self.base_offset + index if self.base_offset >= 0 else -1, self.timestamp)


class Home:
    """One partition's batches: `queue` to be sent, `flying` sent and unanswered, `redo` answered and to be sent again.
    `broken`: one failed, what flies is waited for. `resume`: sequence of the first that was certainly not written."""

    __slots__ = ("asking", "attempts", "broken", "epoch", "flying", "lane", "launched", "next_sequence", "partition", "producer_id",
                 "queue", "redo", "resume", "retry_at", "suspect")

    def __init__(self, lane: "Lane", partition: int, producer_id: int, epoch: int) -> None:
        self.lane, self.partition, self.producer_id, self.epoch = lane, partition, producer_id, epoch
        self.next_sequence = self.launched = 0
        self.queue: deque[Batch] = deque()
        self.flying: list[Batch] = []
        self.redo: list[Batch] = []
        self.retry_at = 0.0
        self.attempts = 0
        self.resume = -1
        self.broken = False
        self.asking = False                         # for a new producer id
        self.suspect = False                        # perhaps its topic is gone


class Shell(Protocol):
    """What the accumulators turn to (the first three, from any thread that adds), and the tickets."""

    def wait(self) -> None: ...
    def opened(self, lane: "Lane", partition: int) -> None: ...
    def full(self, lane: "Lane", partition: int) -> None: ...
    def await_batch(self, batch: Batch, timeout: float | None = None) -> Any: ...
    def tell(self, batch: Batch, call: Callable[[], Any]) -> None: ...


class Lane:
    """One topic of a producer. `create`: the producer's timestamps count."""

    def __init__(self, shell: Shell, topic: TopicMeta, ticket: type, options: ProducerOptions, producer_id: int,
                 epoch: int) -> None:
        self.shell = shell
        self.topic = topic
        self.create = topic.config.timestamp_type == "create"
        self.homes = [Home(self, p, producer_id, epoch) for p in range(len(topic.partitions))]
        self.accumulator = Accumulator(self, ticket, [Batch(home) for home in self.homes], options.batch_bytes,
                                       options.batch_messages, topic.config.max_message_bytes)
        self.add = self.accumulator.add

    def follow(self, topic: TopicMeta) -> None:
        """News of the topic: more partitions, another limit."""
        first = self.homes[0]
        more = [Home(self, p, first.producer_id, first.epoch) for p in range(len(self.homes), len(topic.partitions))]
        self.topic, self.create = topic, topic.config.timestamp_type == "create"
        self.homes += more
        self.accumulator.max_value = topic.config.max_message_bytes
        if more:
            self.accumulator.grow([Batch(home) for home in more])

    def wait(self) -> None:
        self.shell.wait()

    def opened(self, partition: int) -> None:
        self.shell.opened(self, partition)

    def full(self, partition: int) -> None:
        self.shell.full(self, partition)


def renumbered(data: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """A sealed batch with other numbers in its gq-batch header."""
    head = r.HEADER.unpack_from(data)
    key_size = 0 if head[8] == r.KEY_NULL else head[8]
    value_size = 0 if head[9] == r.VALUE_NULL else head[9]
    headers_at = r.HEADER_SIZE + key_size + value_size
    at, end = headers_at + 2 + r.BATCH_ENTRY_SIZE - r.BATCH_VALUE.size, headers_at + head[10]
    out = bytearray(data)
    count = r.BATCH_VALUE.unpack_from(data, at)[3]
    r.BATCH_VALUE.pack_into(out, at, producer_id, epoch, sequence, count)
    crc = 0
    for low, high in ((24, end), (0, 4), (16, 24), (8, 16)):
        crc = codec.crc32c(bytes(out[low:high]), crc)
    out[4:8] = crc.to_bytes(4)
    return bytes(out)

"""What a Core wants done, in order, and the answers it gets: the whole face between the pure core and its shell.

The shell owns sockets, the journal's producer and the copying of dead letters. An *ask* is an effect that is answered once, by
Core.answer(now_ms, wall_us, ask, reply, error) with the very same object; exactly one of reply and error is given. The core asks
again by itself when an answer was an error it can wait out: the shell retries nothing and parks nothing but Replies.

Tickets number the Appends of one Core: 1, 2, 3 ... Confirmations are cumulative and in order. `after` of a Reply, Fail or
Push is the ticket that must be durable first (0: at once). If an append is refused or its fate is unknown, the shell calls
Core.abandon(), sends what that returns, fails the Replies it has parked with Unavailable, and replays into a new Core.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gq_proto.errors import GoQueueError
from gq_proto.messages import AssignedPush, Body, GroupInfo
from gq_proto.runs import ALL_LANES


class Call(Protocol):
    """A request; gq_run.server.Incoming is one. `deadline` is monotonic seconds, `peer` the connection."""

    peer: bytes
    kind: int
    partition: int
    body: Any
    deadline: float


# -- to clients -------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Reply:
    """When it cannot be sent (peer gone or full) and body is a PollReply or SettleReply: Core.undelivered()."""

    call: Call
    body: Body
    after: int = 0


@dataclass(frozen=True, slots=True)
class Fail:
    call: Call
    error: GoQueueError
    after: int = 0


@dataclass(frozen=True, slots=True)
class Push:
    """Kind.ASSIGNED on the member's connection, the one its last Join, Heartbeat or Poll came on."""

    peer: bytes
    body: AssignedPush
    after: int = 0


# -- the journal --------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Append:
    """Records (key, value) for this core's `__groups` partition, in this order. The shell may join Appends into batches and cut
    between records, as long as order is kept. Confirm with Core.appended(now_ms, wall_us, ticket, end_offset)."""

    ticket: int
    records: Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Trim:
    """DeleteBefore(offset) on this core's `__groups` partition: everything below is in later snapshots. No answer."""

    offset: int


# -- logd --------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class WatchSet:
    """All (topic id, partition) this core watches; replaces the last one. The shell merges the cores' sets into one Watch,
    remembers (end, epoch) of the last Watched of each partition, and hands every Watched to every core that watches it
    (Core.watched). A partition new in a core's set is asked for with end 0, so that the core hears of it at once."""

    parts: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class AskRuns:
    """Runs(offset, lane, limit, packed where it is of one lane) -> RunsReply."""

    topic_id: int
    partition: int
    offset: int
    limit: int
    lane: int = ALL_LANES


@dataclass(frozen=True, slots=True)
class AskEndOfEpoch:
    """EndOfEpoch(of), envelope epoch -1 -> EndOfEpochReply."""

    topic_id: int
    partition: int
    of: int


@dataclass(frozen=True, slots=True)
class AskOffsetForTime:
    """OffsetForTime(timestamp_us) -> OffsetForTimeReply."""

    topic_id: int
    partition: int
    timestamp_us: int


# -- dead letters ----------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class PrepareDeadLetters:
    """Make sure `{topic}.dlq` exists with at least the topic's partition count (CreateTopic/AlterTopic, internal), and say
    where its partition `partition` ends now (high watermark) -> DeadLetterEnd."""

    topic_id: int
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class DeadLetterEnd:
    dlq_topic_id: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why one message is dead. `time_us` is when that was decided."""

    offset: int
    count: int
    reason: str
    time_us: int


@dataclass(frozen=True, slots=True)
class CopyDeadLetters:
    """Copy these messages of (topic_id, partition) into partition `partition` of dlq_topic_id -> DeadLettersCopied.

    Their intent is durable already. The copies are key, value, user headers and priority of the origin plus, as system headers
    before the user's, in this order: gq-dlq-topic, gq-dlq-partition, gq-dlq-offset, gq-dlq-count, gq-dlq-reason, gq-dlq-time
    (microseconds), gq-dlq-group; numbers as decimal text, the reason cut to 1,024 bytes of UTF-8.
    With `scan`, first read the DLQ partition from `dlq_end` on and leave out what is there already (same group, topic,
    partition, offset): an earlier try may have got that far. Answer with an error when any step fails or its fate is unknown:
    the core asks again after a while, with scan. Only one CopyDeadLetters per (group, topic, partition) is outstanding.
    """

    group: str
    topic_id: int
    topic: str
    partition: int
    dlq_topic_id: int
    dlq_end: int
    scan: bool
    items: tuple[DeadLetter, ...]


@dataclass(frozen=True, slots=True)
class DeadLettersCopied:
    """copied: offsets that are in the DLQ now (found or written); gone: offsets that no longer exist in the origin. Flat
    ranges; together all of the items, unless the copy ended early."""

    copied: list[int]
    gone: list[int]


# -- files for people ----------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Export:
    """Write meta/consumer_groups/{group}.json and offsets/{group}/{topic}-{partition}.offset from it. At most one per group
    and limits.EXPORT_INTERVAL_MS, and only when something changed."""

    info: GroupInfo


@dataclass(frozen=True, slots=True)
class ExportRemoved:
    """The group is gone: remove its files."""

    group: str


Ask = AskRuns | AskEndOfEpoch | AskOffsetForTime | PrepareDeadLetters | CopyDeadLetters
Effect = Reply | Fail | Push | Append | Trim | WatchSet | Ask | Export | ExportRemoved

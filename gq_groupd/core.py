"""One `__groups` partition's groups, as a pure state machine: inputs in, effects out. See the package's text and `effects`.

    core = Core(partition, rand32, settings)
    for record in journal: core.replay(offset, key, value)
    effects = core.start(now_ms, wall_us, topics, deleted, end_offset)     once, after replay, with all metadata
    effects = core.request(now_ms, wall_us, call)                          JOIN .. PAUSE
    effects = core.topics(now_ms, wall_us, topics, deleted)                what changed in the metadata
    effects = core.watched(now_ms, wall_us, watched)                       a part of a WatchReply
    effects = core.answer(now_ms, wall_us, ask, reply, error)              to an ask among the effects
    effects = core.appended(now_ms, wall_us, ticket, end_offset)           all Appends up to ticket are durable
    effects = core.undelivered(now_ms, wall_us, call, body)                a Reply could not be sent: leases in it return
    effects = core.due(now_ms, wall_us); core.next_deadline()              timers

now_ms is monotonic, never goes back; wall_us only dates what has to survive a restart. Effects are done in order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gq_groupd.effects import Ask, Call, Effect
from gq_proto import limits
from gq_proto.errors import GoQueueError
from gq_proto.messages import Body, TopicMeta, Watched


@dataclass(frozen=True, slots=True)
class Settings:
    """What options change. The topic's own delivery settings come with its metadata."""

    max_in_flight: int = limits.MAX_IN_FLIGHT
    unnamed_lease_ms: int = limits.UNNAMED_LEASE_MS
    rebalance_grace_ms: int = limits.REBALANCE_GRACE_MS
    group_expiry_ms: int = limits.GROUP_EXPIRY_MS
    heartbeat_ms: int = limits.HEARTBEAT_MS
    snapshot_records: int = 50_000          # the journal is trimmed when it holds more records
    snapshot_bytes: int = 64 * limits.MIB   # ... or more bytes than this


class Core:
    """rand32() gives 32 random bits: the only chance in here, and the caller's."""

    def __init__(self, partition: int, rand32: Callable[[], int], settings: Settings | None = None) -> None:
        raise NotImplementedError

    # -- life -------------------------------------------------------------------------

    def replay(self, offset: int, key: bytes, value: bytes) -> None:
        """One journal record, in order, before start()."""
        raise NotImplementedError

    def start(self, now_ms: int, wall_us: int, topics: Iterable[TopicMeta], deleted: Iterable[int],
              end_offset: int) -> list[Effect]:
        """Replay is done; the journal ends at end_offset. `topics` is all that metad knows."""
        raise NotImplementedError

    def abandon(self) -> list[Effect]:
        """The core is to be dropped: Fails for everything it has parked (polls, joins, marks, describes)."""
        raise NotImplementedError

    # -- inputs --------------------------------------------------------------------------

    def request(self, now_ms: int, wall_us: int, call: Call) -> list[Effect]:
        """Never raises GoQueueError: a refusal is a Fail among the effects. Parked requests past call.deadline are dropped."""
        raise NotImplementedError

    def topics(self, now_ms: int, wall_us: int, topics: Iterable[TopicMeta], deleted: Iterable[int]) -> list[Effect]:
        """Created and altered topics, whole; ids of deleted ones."""
        raise NotImplementedError

    def watched(self, now_ms: int, wall_us: int, watched: Watched) -> list[Effect]:
        """Told for every partition in the last WatchSet; harmless for others."""
        raise NotImplementedError

    def answer(self, now_ms: int, wall_us: int, ask: Ask, reply: Any, error: GoQueueError | None) -> list[Effect]:
        """`ask` is the effect itself."""
        raise NotImplementedError

    def appended(self, now_ms: int, wall_us: int, ticket: int, end_offset: int) -> list[Effect]:
        """Everything up to `ticket` is durable in the configured fsync mode; end_offset is the offset after its last record."""
        raise NotImplementedError

    def undelivered(self, now_ms: int, wall_us: int, call: Call, body: Body) -> list[Effect]:
        """The peer of `call` is gone: leases granted in `body` return uncounted, its parked polls are forgotten."""
        raise NotImplementedError

    def due(self, now_ms: int, wall_us: int) -> list[Effect]:
        """Do what is due at now_ms."""
        raise NotImplementedError

    def next_deadline(self) -> int | None:
        """When due() is wanted next, in ms of the same clock; None: never, until something happens."""
        raise NotImplementedError

    # -- outputs for eyes -------------------------------------------------------------------

    def gauges(self) -> "Sequence[PartGauge]":
        """Per (group, topic, partition), for metrics at scrape."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PartGauge:
    """Counters count since this core started; lag, in_flight and retrying are as of now."""

    group: str
    topic: str
    partition: int
    lag: int
    in_flight: int
    retrying: int
    consumed: int           # acked
    redelivered: int
    timed_out: int          # visibility timeouts
    dead_lettered: int
    expired: int
    rebalances: int = 0     # of the group, on each of its rows
    rebalance_ms: int = 0   # how long the group's last one took

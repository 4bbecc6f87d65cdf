"""What a consumer holds of one lease, and the messages an app sees of it.

Owns per lease: the ranges still to fetch, fetched bytes not yet decoded, decoded messages not yet handed out, how far the app
has started, and the ops (acks as bare offsets, the rest as Settle1) that wait to be sent. Knows no socket, clock or thread.

Invariants: `acked` keeps its identity and only the app appends to it, so that a flush from another thread
(`n = len(...)`, copy, delete the first n: each atomic under the GIL) loses nothing. A view is only ever cut behind what was
started. A message that is settled twice counts once: what is open is kept as ranges.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from gq_proto import codec
from gq_proto.messages import Lease, Op, Settle1
from gq_proto.ranges import normal, of_offsets, unpack
from gq_proto.receipt import Receipt

NEVER = 2**63 - 1
MANY = 16                          # numbers in ranges: a lease of more that is acked whole is acked without naming them


class Hub(Protocol):
    """What messages need of the consumer they came from."""

    asleep: bool

    def wake(self) -> None:
        """An op was recorded while nobody was watching: flush soon."""

    def confirm(self, lease: "HeldLease", offset: int) -> Any:
        """Flush and wait until the op on `offset` is durable; asyncio: something to await."""


class Message(codec.Record):
    """A record leased to this consumer. Each op is buffered and sent within milliseconds; sync=True waits until it is
    durable and raises StaleReceipt when it came too late (asyncio: returns an awaitable)."""

    __slots__ = ()
    owner: "HeldLease"
    offset: int
    topic: str
    partition: int
    delivery: int

    def ack(self, sync: bool = False) -> Any:
        """Done with it."""
        owner = self.owner
        owner.acked.append(self.offset)
        if owner.hub.asleep:
            owner.hub.wake()
        return owner.hub.confirm(owner, self.offset) if sync else None

    def nack(self, delay: float | None = None, sync: bool = False) -> Any:
        """Failed, counted: again after `delay` seconds, or the backoff."""
        return self.owner.record(Op.NACK, self.offset, -1 if delay is None else round(delay * 1000), "", sync)

    def reject(self, reason: str = "", sync: bool = False) -> Any:
        """Straight to the dead letter queue."""
        return self.owner.record(Op.REJECT, self.offset, -1, reason, sync)

    def extend(self, seconds: float, sync: bool = False) -> Any:
        """Mine for `seconds` more from now."""
        return self.owner.record(Op.EXTEND, self.offset, round(seconds * 1000), "", sync)

    def release(self, sync: bool = False) -> Any:
        """Not mine after all: uncounted, back at once."""
        return self.owner.record(Op.RELEASE, self.offset, -1, "", sync)

    @property
    def receipt(self) -> str:
        """Names this delivery of this message, for whoever settles it later, from anywhere."""
        return self.owner.receipt(self.offset)


class Batch:
    """Leases of one partition that came together: one for each priority. Begun with the first of them."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = False


class HeldLease:
    """One lease; see the module's text. `view` is the list that the app walks, `cursor` how many of it were handed out,
    `at` when the last was (monotonic seconds)."""

    __slots__ = ("_place", "acked", "at", "batch", "chunks", "count", "cursor", "decided", "fetching", "group_number",
                 "groups_partition", "high", "hub", "items", "last", "lease", "lost", "low", "open", "ops", "ranges", "raw_bytes",
                 "reported", "stale", "streaming", "todo", "view", "void")

    def __init__(self, lease: Lease, hub: Hub, groups_partition: int, group_number: int, batch: Batch | None = None) -> None:
        self.lease, self.hub = lease, hub
        self.groups_partition, self.group_number = groups_partition, group_number
        self.ranges: Sequence[int] = unpack(lease.packed) if lease.packed else lease.ranges
        self.todo: Sequence[int] = self.ranges    # ranges are never changed, others take their place
        self.open: Sequence[int] = sorted_ranges(self.ranges)
        self.count, self.low, self.high = count(self.open), self.open[0], self.open[-2] + self.open[-1]
        self._place = -1, 0                # an offset, and how many messages of the lease reach up to it
        self.chunks: deque[tuple[Any, list[int], int, int, Sequence[int] | None]] = deque()    # bytes, hidden, low, high, only
        self.items: list[Message] = []
        self.view: list[Message] = []
        self.cursor = 0
        self.last = -1                     # offset handed out last, before this view
        self.at = 0.0
        self.reported = 0
        self.acked: list[int] = []
        self.ops: list[Settle1] = []
        self.decided: set[int] = set()     # settled by another op than ack
        self.stale: list[int] = []         # refused: these were somebody else's already
        self.void: Sequence[int] = []      # not to be handed out: a newer lease holds these
        self.raw_bytes = 0                 # of chunks
        self.batch = batch or Batch()
        self.fetching = self.streaming = self.lost = False

    @property
    def key(self) -> tuple[int, int]:
        return self.lease.topic_id, self.lease.partition

    def overlaps(self, newer: "HeldLease") -> bool:
        """They hold messages in common. Those of two priorities never do."""
        one, other = self.lease.lane, newer.lease.lane
        return (self.low < newer.high and newer.low < self.high and (one == other or one < 0 or other < 0) and self.key == newer.key
                and bool(intersect(self.ranges, newer.open)))

    @property
    def unserved(self) -> bool:
        """True while the app may still be handed something of it."""
        return bool(self.items or self.chunks or self.todo)

    @property
    def done(self) -> bool:
        """True when nothing of it is left to hand out, to settle or to send."""
        return not (self.open or self.acked or self.ops or self.unserved)

    @property
    def at_work(self) -> bool:
        """True while the app has been handed some of it that it has not settled."""
        return count(self.open) > count(intersect(skip(self.ranges, self.started()), self.open))

    def record(self, op: Op, offset: int, arg_ms: int, reason: str, sync: bool) -> Any:
        """Buffer an op of the app on one message."""
        if op != Op.EXTEND:
            self.decided.add(offset)
        self.ops.append(Settle1(op, self.lease.lease, [offset, 1], arg_ms, reason))
        if self.hub.asleep:
            self.hub.wake()
        return self.hub.confirm(self, offset) if sync else None

    def receipt(self, offset: int) -> str:
        lease = self.lease
        return Receipt(lease.topic, lease.partition, offset, lease.delivery, self.groups_partition, self.group_number,
                       lease.lease, lease.random).text()

    def add_bytes(self, data: Any, hidden: list[int], low: int, high: int, only: Sequence[int] | None = None) -> None:
        """Records of it that lie in [low, high), encoded; only: its own are these, where others lie between them. Hidden ones are
        nobody's to settle."""
        self.chunks.append((data, hidden, low, high, only))
        self.raw_bytes += len(data)
        if hidden:
            self.forget(hidden)

    def next_view(self, most: int, now: float) -> list[Message]:
        """Up to `most` messages for the app to walk; [] when nothing is at hand. What it walked before counts as started; what
        it left of its last view comes again."""
        rest = self.view[self.cursor:]
        if self.cursor:
            self.last, self.cursor = self.view[self.cursor - 1].offset, 0
        self.view, self.batch.begun = [], True
        if rest:
            self.items = rest + self.items
        while len(self.items) < most and self.chunks:
            self.items += self._decode(*self.chunks.popleft())
            self.raw_bytes = sum(len(chunk[0]) for chunk in self.chunks)
        if self.items:
            self.view, self.items = self.items[:most], self.items[most:]
        self.at = now
        return self.view

    def _decode(self, data: Any, hidden: Sequence[int], low: int, high: int, only: Sequence[int] | None) -> list[Message]:
        lease = self.lease
        if self.void:
            hidden = sorted_ranges([*hidden, *self.void])
        decoded: list[Message] = codec.decode(data, Message, lease.topic, lease.partition, self, lease.delivery, low, high,
                                              hidden, only)
        return decoded

    def started(self) -> int:
        """How many messages, in the lease's order, the app has been handed."""
        offset = self.view[self.cursor - 1].offset if self.cursor else self.last
        if offset != self._place[0]:
            self._place = offset, position_of(self.ranges, offset) + 1
        return self._place[1]

    def cut(self) -> list[int]:
        """The app gets no more of it. The unstarted offsets, as ranges."""
        del self.view[self.cursor:]
        started = self.started()
        self.items, self.todo = [], []
        self.chunks.clear()
        return intersect(skip(self.ranges, started), self.open)

    def yield_to(self, ranges: Sequence[int]) -> None:
        """A newer lease of this consumer holds these (sorted): of them the app gets from there what it was not handed yet."""
        rest = sorted_ranges(skip(self.ranges, self.started()))
        lost = intersect(ranges, rest)
        if lost:
            self.void = sorted_ranges([*self.void, *lost])
            self.view[self.cursor:] = [m for m in self.view[self.cursor:] if not intersect([m.offset, 1], lost)]
            self.items = [m for m in self.items if not intersect([m.offset, 1], lost)]
            self.forget(lost)
            if not intersect(rest, self.open):
                self.cut()

    def take_ops(self) -> list[Settle1]:
        """The buffered ops, emptied: acks first, then the others in order. `named`: what one of them is about."""
        taken, n = [], len(self.acked)
        if n:
            taken.append(self._ack(self.acked[:n]))
            del self.acked[:n]
        m = len(self.ops)
        if m:
            ops = self.ops[:m]
            del self.ops[:m]
            for op in ops:
                if op.op != Op.EXTEND:
                    self.open = subtract(self.open, op.ranges)
            taken += joined(ops)
        return taken

    def _ack(self, offsets: list[int]) -> Settle1:
        lease, are = self.lease, codec.ranges_are
        if lease.random and len(self.ranges) > MANY and (are(self.ranges, offsets) or are(self.ranges, sorted(set(offsets)))):
            self.open = []
            return Settle1(Op.ACK, lease.lease, [], whole=lease.random)
        ranges = to_ranges(offsets)
        self.open = subtract(self.open, ranges) if ranges != self.open else []
        return Settle1(Op.ACK, lease.lease, ranges)

    def named(self, op: Settle1) -> list[int]:
        """What the op is about."""
        return list(self.ranges) if op.whole else op.ranges

    def forget(self, ranges: Sequence[int]) -> None:
        """These are nobody's any more (gone, hidden)."""
        self.open = subtract(self.open, ranges)


# -- ranges, flattened: [low, count, ...] ------------------------------------------------

def to_ranges(offsets: list[int]) -> list[int]:
    """Offsets in any order, duplicates allowed, as sorted ranges. Linear and fast when they are consecutive already."""
    first, n = offsets[0], len(offsets)
    if offsets[-1] - first + 1 == n and offsets == list(range(first, first + n)):
        return [first, n]
    return of_offsets(offsets)


def joined(ops: list[Settle1]) -> list[Settle1]:
    """Neighbours that differ in their offsets only, as one. Order is kept."""
    out: list[Settle1] = []
    for op in ops:
        last = out[-1] if out else None
        if last and (last.op, last.lease, last.arg_ms, last.reason) == (op.op, op.lease, op.arg_ms, op.reason):
            last.ranges += op.ranges
        else:
            out.append(Settle1(op.op, op.lease, list(op.ranges), op.arg_ms, op.reason))
    return out


def pairs(ranges: Sequence[int]) -> list[tuple[int, int]]:
    """(low, high) of each."""
    return [(low, low + count) for low, count in zip(ranges[::2], ranges[1::2], strict=True)]


def sorted_ranges(ranges: Sequence[int]) -> Sequence[int]:
    if codec.ranges_ascend(ranges):
        return ranges
    return [x for low, high in sorted(pairs(ranges)) for x in (low, high - low)]


def subtract(ranges: Sequence[int], taken: Sequence[int]) -> list[int]:
    """What of sorted `ranges` is not in `taken`."""
    return codec.ranges_subtract(ranges, taken if codec.ranges_ascend(taken) else normal(pairs(taken)))


def intersect(ranges: Sequence[int], other: Sequence[int]) -> list[int]:
    """What of `ranges` is in sorted `other` too, in the order of `ranges`."""
    if codec.ranges_ascend(ranges):
        return codec.ranges_intersect(ranges, other)
    return [x for low, high in pairs(ranges) for x in codec.ranges_intersect([low, high - low], other)]


def skip(ranges: Sequence[int], n: int) -> list[int]:
    """`ranges` without its first n offsets, in its own order."""
    return codec.ranges_tail(ranges, n)


def position_of(ranges: Sequence[int], offset: int) -> int:
    """Where `offset` stands in the order of `ranges`; -1 when it is not in them."""
    return codec.ranges_find(ranges, offset)


def is_ascending(ranges: Sequence[int]) -> bool:
    return codec.ranges_ascend(ranges)


def count(ranges: Sequence[int]) -> int:
    return codec.ranges_count(ranges)

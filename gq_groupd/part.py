"""One partition as one group sees it: where every message stands. Changed only by `apply` and by scanning the log's runs.

Hard: acked, attempts, waiting, dead, leases, anchors.acked, epoch, counts of what was lost. Soft, rebuilt by a scan from the first
unacked offset on: `open` (deliverable and not acked: its size is the lag), lanes, returned, retry.

    open  =  held (in leases)  +  waiting (backoff)  +  dead (going to the DLQ)  +  returned, retry (free again)
             +  what the lanes have not reached yet                    all disjoint
Anchored messages (delayed ones that came due) are in `anchors.open` in place of `open`; the other sets hold them alike.
"""

from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap64

from gq_groupd.acks import Acked
from gq_groupd.anchors import Anchors
from gq_groupd.bitmaps import TOP, bitmap_between, next_in, ranges_of, union_of, within
from gq_groupd.cursor import Entry, Lanes
from gq_groupd.dead import Dead
from gq_groupd.lease import Lease
from gq_groupd.retries import Attempts, Waiting
from gq_groupd.tables import PART, step
from gq_proto import control
from gq_proto.limits import PRIORITY_DEFAULT
from gq_proto.messages import Control
from gq_proto.record import kind_lane
from gq_proto.runs import CONTROL_KIND, DELAYED_KIND

if TYPE_CHECKING:
    from gq_groupd.group import Group

WINDOW = 4_096          # offsets looked at in one go where a run has holes
FEW = 16                # numbers in ranges that are cheaper to walk than a bitmap
LAPSED_MAX = 10_000     # leases of a part whose late acks are waited for


class Pick(NamedTuple):
    """Free messages for one lease."""

    ranges: list[int]
    delivery: int
    anchor: int = -1


class Part:
    def __init__(self, group: "Group", topic_id: int, topic: str, partition: int, start: int) -> None:
        self.group, self.topic_id, self.topic, self.partition = group, topic_id, topic, partition
        self.acked = Acked(start)
        self.attempts, self.waiting, self.dead, self.anchors = Attempts(), Waiting(), Dead(), Anchors()
        self.leases: dict[int, Lease] = {}      # with something open
        self.lapsed: dict[int, Lease] = {}      # with something lapsed
        self.held = BitMap64()
        self.epoch = -1
        self.expired, self.skipped_to = 0, -1
        self.open, self.returned, self.retry = BitMap64(), BitMap64(), BitMap64()
        self.scanned = start
        self.lanes = Lanes(start)
        self.end, self.log_start = start, 0
        self.stage = "unseen"
        self.new_epoch = -1                     # seen, the end of the last one not yet known; with what was said of it
        self.new_end = self.new_log_start = 0
        self.asking: set[str] = set()
        self.rest_until_ms = 0                  # an ask failed
        self.handover: tuple[str, int] | None = None   # old owner, until
        self.armed_ms: int | None = None
        self.consumed = self.redelivered = self.timed_out = self.dead_lettered = self.expired_now = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.topic_id, self.partition

    def step(self, event: str) -> None:
        self.stage = step(PART, self.stage, event)

    @property
    def serving(self) -> bool:
        return self.stage in ("scanning", "ready")

    # -- figures ---------------------------------------------------------------------------

    def lag(self) -> int:
        return len(self.open) + self.anchors.count()

    def committed(self) -> int:
        """The first unacked position. Moves the watermark over what is no message."""
        first = self.open.min() if self.open else max(self.scanned, self.acked.below)
        if self.anchors.open:
            first = min(first, min(self.anchors.open))
        if first > self.acked.below:
            self.acked.settle_below(first)
        return int(first)

    def lost_below(self, log_start: int) -> int:
        """Deliverable and not acked below log_start; where nothing was scanned yet, all offsets that are not acked."""
        lost = self.open.range_cardinality(0, log_start) + len(within(self.anchors.all(), 0, log_start))
        low = max(self.scanned, self.acked.below)
        if low < log_start:
            lost += log_start - low - self.acked.ahead.range_cardinality(low, log_start)
        return int(lost)

    def vanished(self) -> BitMap64:
        """Messages a group had to do with that are not in the log any more, now that all of it is scanned: a power loss can take
        the end of one segment and leave the next."""
        known = union_of((self.held, self.waiting.all, self.dead.all, self.returned, self.retry, self.attempts.any))
        return known - self.open - self.anchors.all() if known else known

    # -- the log's runs -------------------------------------------------------------------------

    def scan(self, runs: list[int], controls: list[Control], hidden: list[int], first: int, upto: int, laned: bool = True) -> None:
        """Runs of [first, upto). What lies at or above `scanned` becomes open; lanes take what they have room for, if the runs say
        which lane they are of."""
        found = self._entries(runs, controls, hidden)
        if first <= self.scanned < upto:
            for entry in _joined([entry for _, entry in found]):
                self._open(entry)
            self.scanned = upto
        if laned:
            self.lanes.feed(first, found, upto)

    def _entries(self, runs: list[int], controls: list[Control], hidden: list[int]) -> list[tuple[int, Entry]]:
        found: list[tuple[int, Entry]] = []
        ready = {c.offset: c.body for c in controls if c.type == control.ControlType.DELAY_READY}
        concealed = union_of(bitmap_between(low, low + n) for low, n in zip(hidden[::2], hidden[1::2]))
        for at in range(0, len(runs), 3):
            low, count, kind = runs[at], runs[at + 1], runs[at + 2]
            if kind & CONTROL_KIND:
                for offset in sorted(o for o in ready if low <= o < low + count) if ready else ():
                    found += self._ready_entries(offset, ready[offset])
            elif kind & DELAYED_KIND:
                continue
            elif concealed and concealed.range_cardinality(low, low + count):
                for a, n in _pairs(ranges_of(bitmap_between(low, low + count) - concealed)):
                    found.append((kind_lane(kind), Entry(a, a, a + n)))
            else:
                found.append((kind_lane(kind), Entry(low, low, low + count)))
        return found

    def _ready_entries(self, offset: int, body: bytes) -> list[tuple[int, Entry]]:
        named = control.decode_body(control.ControlType.DELAY_READY, body)
        assert isinstance(named, list)
        return [(PRIORITY_DEFAULT, Entry(offset, low, low + n, offset)) for low, n in _pairs(named)]

    def _open(self, entry: Entry) -> None:
        if entry.position < self.scanned and entry.high <= self.scanned:
            return
        if entry.anchor >= 0:
            if entry.anchor not in self.acked:
                met = self.anchors.open.get(entry.anchor, BitMap64()) | bitmap_between(entry.low, entry.high)
                self.anchors.meet(entry.anchor, met)
            return
        low = max(entry.low, self.scanned)
        left = self.acked.open_in(low, entry.high)
        if left is None:
            self.open.add_range(max(low, self.acked.below), entry.high)
        else:
            self.open |= left

    def rescan(self, low: int) -> None:
        """Forget what was scanned from `low` on; it is asked for again."""
        self.scanned = min(self.scanned, low)
        self.open.remove_range(low, TOP)
        for known in (self.returned, self.retry):
            known.difference_update(within(known, low, TOP))
            known.difference_update(self.anchors.open_from(low))
        self.anchors.unmeet(low)
        self.lanes.cut(low)

    # -- taking free messages ------------------------------------------------------------------------

    def servable(self) -> bool:
        return bool(self.retry or self.returned) or self.lanes.head() is not None

    def take_retry(self) -> Pick | None:
        """A message with failures behind it goes alone. After a restart, not before the scan has met it."""
        free, anchor = self._met(self.retry)
        return Pick([free.min(), 1], self.attempts.of(free.min()) + 1, anchor) if free else None

    def take(self, most: int) -> Pick | None:
        """Up to `most` messages without failures, those given back first. The caller grants them at once."""
        ranges, anchor = self._returned(most)
        most -= sum(ranges[1::2])
        while most > 0 and (head := self.lanes.head()):
            lane, entry = head
            if ranges and entry.anchor != anchor:
                break
            found, upto = self._usable(entry, min(entry.high, self.lanes.bound(lane) if entry.anchor < 0 else TOP), most)
            self.lanes.take(lane, upto)
            for low, n in _pairs(found):
                anchor = entry.anchor
                most -= n
                if ranges and ranges[-2] + ranges[-1] == low:
                    ranges[-1] += n
                else:
                    ranges += (low, n)
        return Pick(ranges, 1, anchor) if ranges else None

    def _returned(self, most: int) -> tuple[list[int], int]:
        free, anchor = self._met(self.returned)
        return (ranges_of(free[:most]), anchor) if free and most > 0 else ([], -1)

    def _met(self, free: BitMap64) -> tuple[BitMap64, int]:
        """Those of `free` that can go into one lease, and their anchor."""
        if not free:
            return free, -1
        plain = free & self.open
        if plain or not self.anchors.open:
            return plain, -1
        anchored = free & self.anchors.all()
        if not anchored:
            return anchored, -1
        anchor = self.anchors.of(anchored.min())
        return anchored & self.anchors.open[anchor], anchor

    def _usable(self, entry: Entry, high: int, most: int) -> tuple[list[int], int]:
        """The first free messages of the entry below `high`, in one window; and up to where it was looked at."""
        low = entry.low
        if entry.anchor < 0:
            n = min(most, high - low)
            if self.open.range_cardinality(low, low + n) == n and not self._busy(low, low + n):
                return [low, n], low + n
            first = next_in(self.open, low)
            if first is None or first >= high:
                return [], high
            low = first
        else:
            high = entry.high
        upto = min(high, low + WINDOW)
        source = self.open if entry.anchor < 0 else self.anchors.open.get(entry.anchor, BitMap64())
        free = source & bitmap_between(low, upto)
        for taken in (self.held, self.waiting.all, self.dead.all, self.returned, self.retry):
            free -= taken
        failed = free & self.attempts.any
        self.retry |= failed
        free -= failed
        if len(free) > most:
            upto = free[most]
            free.remove_range(upto, TOP)
        return ranges_of(free), upto

    def _busy(self, low: int, high: int) -> bool:
        return any(bitmap.range_cardinality(low, high)
                   for bitmap in (self.held, self.waiting.all, self.dead.all, self.returned, self.retry, self.attempts.any))

    # -- what apply does to it ----------------------------------------------------------------------------

    def grant(self, lease: Lease) -> None:
        taken = lease.open
        if not self.held.isdisjoint(taken):
            # Only at replay: the one who had it gave it back in entries that were lost with an unsynced tail.
            for other in list(self.leases.values()):
                self._leave(other, other.open & taken)
        self.held |= taken
        for other in [other for other in self.lapsed.values() if other.low < lease.high and lease.low < other.high]:
            self._lapse(other, taken)
        self.returned -= taken
        self.retry -= taken
        self.waiting.remove(taken)
        self.leases[lease.id] = lease
        member = self.group.members.get(lease.member)
        if member:
            member.in_flight += len(taken)
            member.leases[lease.id] = lease

    def ack(self, lease: Lease | None, bitmap: BitMap64, ranges: list[int], anchor: int) -> None:
        if lease:
            self._leave(lease, bitmap)
            self._lapse(lease, bitmap)
            lease.acked |= bitmap
        else:
            for other in [*self.leases.values(), *self.lapsed.values()]:
                self._leave(other, bitmap)
                self._lapse(other, bitmap)
        if anchor >= 0:
            self.anchors.ack(anchor, bitmap)
        else:
            if len(ranges) > FEW:
                self.acked.update(bitmap)
            else:
                for at in range(0, len(ranges), 2):
                    self.acked.add(ranges[at], ranges[at] + ranges[at + 1])
            self.open -= bitmap
        self._unfail(bitmap)
        self.dead.remove(bitmap)

    def give_back(self, lease: Lease, bitmap: BitMap64) -> None:
        self._leave(lease, bitmap)
        self._remember(lease, bitmap)
        failed = bitmap & self.attempts.any
        self.retry |= failed
        self.returned |= bitmap - failed

    def fail(self, lease: Lease, bitmap: BitMap64, count: int, now_ms: int, at_us: int, delay_ms: int) -> None:
        self._withdraw(lease, bitmap)
        self.attempts.set(bitmap, count)
        self._remember(lease, bitmap)
        if delay_ms > 0:
            self.waiting.add(bitmap, now_ms, at_us, delay_ms)
        else:
            self.retry |= bitmap

    def condemn(self, lease: Lease, bitmap: BitMap64, count: int, reason: str, at_us: int) -> None:
        self._withdraw(lease, bitmap)
        self.attempts.set(bitmap, count)
        self.dead.add(bitmap, count, reason, at_us)

    def _withdraw(self, lease: Lease, bitmap: BitMap64) -> None:
        """From wherever it is: the lease, or (late reject) free or waiting."""
        self._leave(lease, bitmap)
        self._lapse(lease, bitmap)
        self.waiting.remove(bitmap)
        self.returned -= bitmap
        self.retry -= bitmap

    def _leave(self, lease: Lease, bitmap: BitMap64) -> None:
        n = lease.open.intersection_cardinality(bitmap)
        if not n:
            return
        self.held -= lease.open & bitmap
        lease.open -= bitmap
        member = self.group.members.get(lease.member)
        if member:
            member.in_flight -= n
        if not lease.open:
            self.leases.pop(lease.id, None)
            if member:
                member.leases.pop(lease.id, None)

    def _remember(self, lease: Lease, bitmap: BitMap64) -> None:
        lease.lapsed |= bitmap
        self.lapsed[lease.id] = lease
        if len(self.lapsed) > LAPSED_MAX:
            oldest = next(iter(self.lapsed.values()))
            self._lapse(oldest, oldest.lapsed.copy())

    def _lapse(self, lease: Lease, bitmap: BitMap64) -> None:
        if lease.lapsed:
            lease.lapsed -= bitmap
            if not lease.lapsed:
                self.lapsed.pop(lease.id, None)

    def _unfail(self, bitmap: BitMap64) -> None:
        self.attempts.forget(bitmap)
        self.waiting.remove(bitmap)
        if self.returned:
            self.returned -= bitmap
        if self.retry:
            self.retry -= bitmap

    def retry_due(self, now_ms: int) -> None:
        ready = self.waiting.take_due(now_ms)
        self.retry |= ready

    # -- by position: marks, the log's start and end --------------------------------------------------------

    def in_region(self, low: int, high: int) -> BitMap64:
        """Messages at positions [low, high) that are known in any way but open or acked."""
        known = union_of((self.held, self.waiting.all, self.dead.all, self.returned, self.retry, self.attempts.any,
                          *(lease.lapsed for lease in self.lapsed.values())))
        region = within(known, low, high)
        if self.anchors.open or self.anchors.acked:
            region -= self.anchors.all()
            region |= union_of(bitmap for ready, bitmap in self.anchors.open.items() if low <= ready < high) & known
        for lease in [*self.leases.values(), *self.lapsed.values()]:
            if lease.anchor >= 0:
                members = lease.open | lease.lapsed
                region = region | members if low <= lease.anchor < high else region - members
        return region

    def void(self, bitmap: BitMap64) -> None:
        """Nobody's any more, no failures, no late acks."""
        for lease in list(self.leases.values()):
            self._leave(lease, bitmap)
        for lease in list(self.lapsed.values()):
            self._lapse(lease, bitmap)
        self._unfail(bitmap)
        self.dead.remove(bitmap)

    def mark(self, ack: bool, low: int, high: int) -> None:
        region = self.in_region(low, high)
        for lease in [*self.leases.values(), *self.lapsed.values()] if ack else ():
            lease.acked |= (lease.open | lease.lapsed) & region
        self.void(region)
        if ack:
            for ready in [ready for ready in self.anchors.open if low <= ready < high]:
                self.anchors.close(ready)
            self.anchors.forget(low, high)
            self.acked.add(low, high)
            self.open.remove_range(low, high)
        else:
            self.acked.remove(low, high)
            self.anchors.forget(low, high)
            self.rescan(low)

    def cut(self, end: int) -> None:
        """A new leader: nothing at or above end was ever there. What lies below is looked at anew: it may have holes now."""
        self.void(self.in_region(end, TOP))
        self.anchors.forget(end, TOP)
        self.acked.cut(end)
        self.end = min(self.end, end)
        self.rescan(min(self.acked.below, end))

    def gone(self, log_start: int) -> None:
        """Nothing below log_start is left."""
        lost = self.anchors.gone_below(log_start)
        self.void(self.in_region(0, log_start) | lost)
        self.acked.settle_below(log_start)
        self.open.remove_range(0, log_start)
        self.lanes.skip_to(log_start)
        self.scanned = max(self.scanned, log_start)
        self.end = max(self.end, log_start)


def _joined(entries: list[Entry]) -> list[Entry]:
    """Neighbours as one, whatever their lanes."""
    out: list[Entry] = []
    for entry in entries:
        if out and entry.anchor == out[-1].anchor == -1 and entry.low == out[-1].high:
            out[-1] = Entry(out[-1].position, out[-1].low, entry.high)
        else:
            out.append(entry)
    return out


def _pairs(ranges: list[int]) -> list[tuple[int, int]]:
    return list(zip(ranges[::2], ranges[1::2]))

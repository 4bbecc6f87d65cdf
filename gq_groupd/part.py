"""One partition as one group sees it: where every message stands. Changed only by `apply` and by scanning the log's runs.

Hard: acked, attempts, waiting, dead, leases, anchors.acked, epoch, counts of what was lost. Soft, rebuilt by a scan from the first
unacked offset on: `open` (deliverable and not acked: its size is the lag), lanes, returned, retry.

    open  =  held (in leases)  +  waiting (backoff)  +  dead (going to the DLQ)  +  returned, retry (free again)
             +  what the lanes have not reached yet                    all disjoint
Anchored messages (delayed ones that came due) are in `anchors.open` in place of `open`; the other sets hold them alike. `marked`
says of what lane those are that failed or came back: messages that are in none of its sets are of the default one.
"""

from collections.abc import Iterator
from operator import add, sub
from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap64

from gq_groupd.acks import Acked
from gq_groupd.anchors import Anchors
from gq_groupd.census import Census
from gq_groupd.cursor import Lanes
from gq_groupd.dead import Dead
from gq_groupd.lease import Lease
from gq_groupd.retries import Attempts, Waiting
from gq_groupd.stretch import Stretch, stretch_of
from gq_groupd.tables import PART, step
from gq_proto.bitmaps import TOP, bitmap_of, count_of, next_in, ranges_of, union_of, within
from gq_proto.limits import PRIORITIES, PRIORITY_DEFAULT
from gq_proto.messages import Control
from gq_proto.runs import ALL_LANES, NO_LANES

if TYPE_CHECKING:
    from gq_groupd.group import Group

WINDOW = 4_096          # offsets looked at in one go where a run has holes
FEW = 16                # numbers in ranges that are cheaper to walk than a bitmap
LAPSED_MAX = 10_000     # leases of a part whose late acks are waited for


class Pick(NamedTuple):
    """Free messages for one lease."""

    ranges: list[int]
    delivery: int
    anchor: int
    lane: int


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
        self.marked = [BitMap64() for _ in range(PRIORITIES)]
        self.scanned = start
        self.lanes, self.census = Lanes(start), Census(start)
        self.end, self.log_start = start, 0
        self.stage = "unseen"
        self.new_epoch = -1                     # seen, the end of the last one not yet known; with what was said of it
        self.new_end = self.new_log_start = 0
        self.asking: set[str] = set()
        self.rest_until_ms = 0                  # an ask failed
        self.handover: tuple[str, int] | None = None   # old owner, until
        self.armed_ms: int | None = None
        self.lately: tuple[list[int], BitMap64] = [], BitMap64()
        self.looked_ms, self.since = 0, [0] * PRIORITIES     # a poll looked, and since when each lane waits
        self.consumed = self.redelivered = self.timed_out = self.dead_lettered = self.expired_now = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.topic_id, self.partition

    def step(self, event: str) -> None:
        self.stage = step(PART, self.stage, event)

    @property
    def serving(self) -> bool:
        return self.stage in ("scanning", "ready")

    def restart(self) -> None:
        """After replay: what is soft is learnt anew."""
        self.open.clear()
        self.returned.clear()
        self.retry = self.attempts.any - self.held - self.waiting.all - self.dead.all
        self.anchors.open.clear()
        self.scanned = self.end = self.acked.below
        self.lanes, self.census = Lanes(self.acked.below), Census(self.acked.below)

    # -- figures ---------------------------------------------------------------------------

    def lag(self) -> int:
        return len(self.open) + self.anchors.count()

    def by_lane(self, some: BitMap64) -> list[int]:
        """Of messages that failed, came back or are anchored: how many of each lane."""
        counts = [some.intersection_cardinality(marked) for marked in self.marked]
        counts[PRIORITY_DEFAULT] = len(some) - sum(counts)
        return counts

    def lanes_of(self, some: BitMap64, lease: Lease | None) -> list[int]:
        """Of messages of the lease, or of none's."""
        if lease is None:
            return self.by_lane(some)
        counts = [0] * PRIORITIES
        counts[lease.lane] = len(some)
        return counts

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

    def scan(self, runs: list[int], controls: list[Control], hidden: list[int], first: int, upto: int, lane: int = ALL_LANES,
             more: bool = False, counts: list[int] | None = None, now_ms: int = 0) -> None:
        """Runs of [first, upto), as Runs(lane) answers: of all lanes; NO_LANES: of all, not told apart, with their counts; of one,
        which goes on behind upto if `more`. What lies at or above `scanned` becomes open; lanes take what they have room for."""
        found = stretch_of(runs, controls, hidden)
        if lane < 0 and first <= self.scanned < upto:
            before = self.scanned
            self._open(found)
            self.scanned = upto
            if self.census.counted == before:
                self._count(upto, found if lane == ALL_LANES else None, counts if first == before else None)
            self._came(before, found if lane == ALL_LANES else None, counts if first == before else None, now_ms)
        if lane == NO_LANES:
            return
        for number, ranges in enumerate(found.lanes):
            self.group.lanes |= bool(ranges) << number
        if lane >= 0 and upto >= self.scanned:
            upto, more = self.scanned, False
        self.lanes.feed(first, found, upto, more, lane)

    def recount(self, runs: list[int], first: int, upto: int, lane: int, counts: list[int]) -> None:
        """What was scanned without lanes is looked at again, and where some of a stretch is done already, run by run."""
        upto = min(upto, self.scanned)
        if self.census.counted == first < upto:
            self._count(upto, stretch_of(runs, [], []) if lane == ALL_LANES else None, counts)

    def _count(self, upto: int, found: Stretch | None, counts: list[int] | None) -> None:
        """Open messages of each lane from `counted` to `upto`: by their runs, or as they were counted, if all of them are open."""
        census, low = self.census, self.census.counted
        opened = self.open.range_cardinality(low, upto)
        if found is not None:
            counts = found.counts(low, upto)
            if sum(counts) != opened:
                counts = found.counts_open(self.open, low, upto)
        if counts and sum(counts) == opened:
            census.count(counts, upto)
        else:
            census.closely_to = upto

    def _came(self, low: int, found: Stretch | None, counts: list[int] | None, now_ms: int) -> None:
        """Of [low, scanned), what was never seen before."""
        census = self.census
        if census.known_to < 0 or self.scanned <= census.known_to:
            return
        if found is not None:
            census.arrived(found.counts(max(low, census.known_to), self.scanned, True), now_ms)
        elif counts and low >= census.known_to:
            census.arrived(counts, now_ms)
        census.known_to = self.scanned

    def _open(self, found: Stretch) -> None:
        for anchor, lanes in found.named:
            if anchor >= self.scanned and anchor not in self.acked:
                self._meet(anchor, lanes)
        for low, n in _pairs(found.plain):
            high, low = low + n, max(low, self.scanned)
            left = self.acked.open_in(low, high)
            if left is None:
                self.open.add_range(max(low, self.acked.below), high)
            else:
                self.open |= left

    def _meet(self, anchor: int, lanes: list[list[int]]) -> None:
        self.anchors.meet(anchor, union_of(map(bitmap_of, lanes)))
        for number, ranges in enumerate(lanes):
            self.group.lanes |= bool(ranges) << number
            if ranges and number != PRIORITY_DEFAULT:
                self.marked[number] |= bitmap_of(ranges)

    def rescan(self, low: int) -> None:
        """Forget what was scanned from `low` on; it is asked for again."""
        self.scanned = min(self.scanned, low)
        self.open.remove_range(low, TOP)
        if low < self.census.counted:
            self.census.reset(self.acked.below)
        for known in (self.returned, self.retry):
            known.difference_update(within(known, low, TOP))
            known.difference_update(self.anchors.open_from(low))
        self.anchors.unmeet(low)
        self.lanes.cut(low)

    # -- taking free messages ------------------------------------------------------------------------

    def has(self, lane: int) -> bool:
        """Something of the lane may be free, and at hand."""
        return bool(self.lanes.lanes[lane].count or self.retry or self.returned)

    def stock(self) -> list[int]:
        """Per lane, at most how many messages are free and at hand."""
        have = [lane.count for lane in self.lanes.lanes]
        if self.retry or self.returned:
            for number in range(PRIORITIES):
                have[number] += len(self._of_lane(self.retry, number)) + len(self._of_lane(self.returned, number))
        return have

    def take(self, lane: int, most: int, retries: int) -> Iterator[Pick]:
        """Up to `most` free messages of the lane: those that failed before first, each for itself, `retries` of them at most; then
        those given back; then what was never handed out. Each is to be granted before the next is looked for."""
        while most > 0:
            pick = self._retry(lane, retries) or self._again(lane, most) or self._next(lane, most) or self._retry(lane, retries)
            if pick is None:
                break
            retries -= pick.delivery > 1
            most -= count_of(pick.ranges)
            yield pick

    def _of_lane(self, some: BitMap64, lane: int) -> BitMap64:
        if not some:
            return some
        if lane != PRIORITY_DEFAULT:
            return some & self.marked[lane]
        return some - union_of(self.marked)

    def _mark(self, some: BitMap64, lane: int) -> None:
        if lane != PRIORITY_DEFAULT:
            self.marked[lane] |= some

    def _retry(self, lane: int, retries: int) -> Pick | None:
        """A message with failures behind it goes alone. After a restart, not before the scan has met it."""
        if retries <= 0 or not self.retry:
            return None
        free, anchor = self._met(self._of_lane(self.retry, lane))
        if not free:
            return None
        offset = free.min()
        self.retry.discard(offset)
        return Pick([offset, 1], self.attempts.of(offset) + 1, anchor, lane)

    def _again(self, lane: int, most: int) -> Pick | None:
        if not self.returned:
            return None
        free, anchor = self._met(self._of_lane(self.returned, lane))
        if not free:
            return None
        free = free[:most]
        self.returned -= free
        return Pick(ranges_of(free), 1, anchor, lane)

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

    def _next(self, number: int, most: int) -> Pick | None:
        """What the lane comes to first, for one lease."""
        lane, ranges, anchor = self.lanes.lanes[number], list[int](), -1
        while most > 0 and lane.runs:
            low, at = lane.first()
            if ranges and (at != anchor or low < ranges[-2] + ranges[-1]):
                break
            anchor = at
            found = self._usable(number, anchor, most)
            most -= count_of(found)
            if not ranges:
                ranges = found
            elif found and ranges[-2] + ranges[-1] == found[0]:
                ranges[-1] += found[1]
                ranges += found[2:]
            else:
                ranges += found
        return Pick(ranges, 1, anchor, number) if ranges else None

    def _usable(self, number: int, anchor: int, most: int) -> list[int]:
        """The first free messages of the lane, in one window, which it has passed then."""
        lane = self.lanes.lanes[number]
        if anchor < 0:
            low = lane.first()[0]
            first = next_in(self.open, low)
            if first != low:
                lane.pass_to(TOP if first is None else first)
                return []
        wanted = lane.peek(most)
        if self._all_free(wanted, anchor):
            lane.advance(wanted)
            return wanted
        window = lane.peek(WINDOW)
        upto = window[-2] + window[-1]
        free = bitmap_of(window) & self._source(anchor)
        for taken in (self.held, self.waiting.all, self.dead.all, self.returned, self.retry):
            free -= taken
        failed = free & self.attempts.any
        if failed:
            self._mark(failed, number)
            self.retry |= failed
            free -= failed
        if len(free) > most:
            upto = free[most]
            free.remove_range(upto, TOP)
        lane.pass_to(upto)
        return ranges_of(free)

    def _source(self, anchor: int) -> BitMap64:
        return self.open if anchor < 0 else self.anchors.open.get(anchor, BitMap64())

    def _all_free(self, ranges: list[int], anchor: int) -> bool:
        others = [self.held, self.waiting.all, self.dead.all, self.returned, self.retry, self.attempts.any]
        source = self._source(anchor)
        if len(ranges) == 2:
            low, high = ranges[0], ranges[0] + ranges[1]
            return bool(source.range_cardinality(low, high) == ranges[1]
                        and not any(bitmap.range_cardinality(low, high) for bitmap in others))
        bitmap = bitmap_of(ranges)
        self.lately = ranges, bitmap
        return bool(bitmap.issubset(source)) and all(other.isdisjoint(bitmap) for other in others if other)

    def bitmap_of(self, ranges: list[int]) -> BitMap64:
        """Not made twice of what it was made of a moment ago. The caller's own."""
        known, bitmap = self.lately
        self.lately = [], BitMap64()
        return bitmap if known is ranges else bitmap_of(ranges)

    # -- what apply does to it ----------------------------------------------------------------------------

    def grant(self, lease: Lease) -> None:
        taken = lease.open
        self.group.lanes |= 1 << lease.lane
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
            self._close(bitmap, lease)
            self.open -= bitmap
        self._unfail(bitmap)
        self.dead.remove(bitmap)

    def _close(self, bitmap: BitMap64, lease: Lease | None) -> None:
        """They are open no more: of which lanes were they?"""
        gone = self.open & bitmap
        gone.remove_range(self.census.counted, TOP)
        if gone:
            self.census.opened = list(map(sub, self.census.opened, self.lanes_of(gone, lease)))

    def _close_range(self, low: int, high: int, counts: list[int] | None = None) -> None:
        """counts: of which lanes they are, if that is known."""
        if self.open.range_cardinality(low, high):
            self.open.remove_range(low, high)
            if counts is None:
                self.census.reset(self.acked.below)
            else:
                self.census.opened = list(map(sub, self.census.opened, counts))

    def _lanes_within(self, low: int, high: int) -> list[int] | None:
        """Of what lanes the open messages of [low, high) are; None where some of them were never handed out, or are not counted."""
        some = within(self.open, low, high)
        rest, counts = some - self.held, [0] * PRIORITIES
        if high > self.census.counted or not rest.issubset(union_of((self.waiting.all, self.dead.all, self.returned, self.retry))):
            return None
        for lease in self.leases.values():
            counts[lease.lane] += lease.open.intersection_cardinality(some)
        return list(map(add, counts, self.by_lane(rest)))

    def give_back(self, lease: Lease, bitmap: BitMap64) -> None:
        self._leave(lease, bitmap)
        self._remember(lease, bitmap)
        self._mark(bitmap, lease.lane)
        failed = bitmap & self.attempts.any
        self.retry |= failed
        self.returned |= bitmap - failed

    def fail(self, lease: Lease, bitmap: BitMap64, count: int, now_ms: int, at_us: int, delay_ms: int) -> None:
        self._withdraw(lease, bitmap)
        self._mark(bitmap, lease.lane)
        self.attempts.set(bitmap, count)
        self._remember(lease, bitmap)
        if delay_ms > 0:
            self.waiting.add(bitmap, now_ms, at_us, delay_ms)
        else:
            self.retry |= bitmap

    def condemn(self, lease: Lease, bitmap: BitMap64, count: int, reason: str, at_us: int) -> None:
        self._withdraw(lease, bitmap)
        self._mark(bitmap, lease.lane)
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
        for marked in self.marked:
            if marked:
                marked -= bitmap

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

    def mark(self, ack: bool, low: int, high: int, now_ms: int = 0) -> None:
        region = self.in_region(low, high)
        counts = self._lanes_within(low, high) if ack else None
        self.census.departed(counts or [], now_ms)
        for lease in [*self.leases.values(), *self.lapsed.values()] if ack else ():
            lease.acked |= (lease.open | lease.lapsed) & region
        self.void(region)
        if ack:
            for ready in [ready for ready in self.anchors.open if low <= ready < high]:
                self.anchors.close(ready)
            self.anchors.forget(low, high)
            self.acked.add(low, high)
            self._close_range(low, high, counts)
        else:
            self.acked.remove(low, high)
            self.anchors.forget(low, high)
            self.rescan(low)

    def cut(self, end: int) -> None:
        """A new leader: nothing at or above end was ever there. What lies below is looked at anew: it may have holes now."""
        self.void(self.in_region(end, TOP))
        self.anchors.forget(end, TOP)
        self.acked.cut(end)
        for marked in self.marked:
            marked.remove_range(end, TOP)       # what comes in their place may be of other lanes
        self.end = min(self.end, end)
        self.rescan(min(self.acked.below, end))

    def gone(self, log_start: int) -> None:
        """Nothing below log_start is left."""
        lost = self.anchors.gone_below(log_start)
        self.void(self.in_region(0, log_start) | lost)
        self.acked.settle_below(log_start)
        self._close_range(0, log_start)
        self.lanes.skip_to(log_start)
        self.scanned = max(self.scanned, log_start)
        self.end = max(self.end, log_start)


def _pairs(ranges: list[int]) -> list[tuple[int, int]]:
    return list(zip(ranges[::2], ranges[1::2]))

"""Where the messages of one partition stand for one group, and what of that the log's runs say.

Hard: acked, attempts, waiting, dead, leases, anchors.acked, epoch, counts of what was lost. Soft, rebuilt by a scan from the first
unacked offset on: `open` (deliverable and not acked: its size is the lag), lanes, returned, retry.

    open  =  held (in leases)  +  waiting (backoff)  +  dead (going to the DLQ)  +  returned, retry (free again)
             +  what the lanes have not reached yet                    all disjoint
Anchored messages (delayed ones that came due) are in `anchors.open` in place of `open`; the other sets hold them alike. `marked`
says of what lane those are that failed or came back: messages that are in none of its sets are of the default one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

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
from gq_proto import ranges as rng
from gq_proto.bitmaps import TOP, Told, bitmap_of, union_of, within
from gq_proto.limits import PRIORITIES, PRIORITY_DEFAULT
from gq_proto.messages import Control
from gq_proto.runs import ALL_LANES, NO_LANES

if TYPE_CHECKING:
    from gq_groupd.group import Group


Lately = tuple[Sequence[int], Told, BitMap64]
NOTHING: Final[Lately] = [], [], BitMap64()


class Standing:
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
        self.lately: Lately = NOTHING           # ranges, as they are told, their bitmap: not made again by who meets them next
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
             counts: list[int] | None = None, now_ms: int = 0) -> None:
        """Runs of [first, upto), as Runs(lane) answers: of all lanes; NO_LANES: of all, not told apart, with their counts. What
        lies at or above `scanned` becomes open; lanes take what they have room for."""
        found = stretch_of(runs, controls, hidden)
        if first <= self.scanned < upto:
            before = self.scanned
            self._open(found)
            self.scanned = upto
            if self.census.counted == before:
                self._count(upto, found if lane == ALL_LANES else None, counts if first == before else None)
            self._came(before, found if lane == ALL_LANES else None, counts if first == before else None, now_ms)
        if lane == NO_LANES:
            return
        self._feed(found, first, upto)

    def load(self, lane: int, found: Stretch, first: int, upto: int, more: bool) -> None:
        """What of one lane lies in [first, upto), as Runs(lane) answers; it goes on behind if `more`."""
        if upto >= self.scanned:
            upto, more = self.scanned, False
        self._feed(found, first, upto, more, lane)

    def _feed(self, found: Stretch, first: int, upto: int, more: bool = False, lane: int = ALL_LANES) -> None:
        for number, ranges in enumerate(found.lanes):
            self.group.lanes |= bool(ranges) << number
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
        for low, high in rng.pairs(found.plain):
            low = max(low, self.scanned)
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

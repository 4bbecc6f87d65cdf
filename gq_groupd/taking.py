"""Taking free messages of one partition, lane by lane: what failed before, what came back, what was never handed out.

Each pick is of one lane, its ranges ascend, and it is granted before the next is looked for. Owns no state of its own but a bitmap
that was made a moment ago.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from gq_groupd.standing import NOTHING, Standing
from gq_proto.bitmaps import TOP, Told, bitmap_of, bitmap_told, heard, next_in, ranges_of, tell, union_of
from gq_proto.limits import PRIORITIES, PRIORITY_DEFAULT

WINDOW = 4_096          # messages looked at in one go where some of them are not free


class Pick(NamedTuple):
    """Free messages for one lease."""

    ranges: Sequence[int]
    total: int              # messages
    delivery: int
    anchor: int
    lane: int


class Taking(Standing):
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
            most -= pick.total
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
        return Pick([offset, 1], 1, self.attempts.of(offset) + 1, anchor, lane)

    def _again(self, lane: int, most: int) -> Pick | None:
        if not self.returned:
            return None
        free, anchor = self._met(self._of_lane(self.returned, lane))
        if not free:
            return None
        free = free[:most]
        self.returned -= free
        return Pick(ranges_of(free), len(free), 1, anchor, lane)

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
        lane, anchor, count = self.lanes.lanes[number], -1, 0
        ranges: list[int] | array[int] = []
        while count < most and lane.runs:
            low, at = lane.first()
            if ranges and (at != anchor or low < ranges[-2] + ranges[-1]):
                break
            anchor = at
            found, some = self._usable(number, anchor, most - count)
            count += some
            if not ranges:
                ranges = found
                continue
            self.lately = NOTHING            # it may be of `ranges` as they were
            if found and ranges[-2] + ranges[-1] == found[0]:
                ranges[-1] += found[1]
                ranges.extend(found[2:])
            else:
                ranges.extend(found)
        return Pick(ranges, count, 1, anchor, number) if ranges else None

    def _usable(self, number: int, anchor: int, most: int) -> "tuple[list[int] | array[int], int]":
        """The first free messages of the lane, in one window, which it has passed then; how many."""
        lane = self.lanes.lanes[number]
        if anchor < 0 and (low := lane.first()[0]) not in self.open:
            first = next_in(self.open, low)
            lane.pass_to(TOP if first is None else first)
            return [], 0
        wanted, count = lane.peek(most)
        if self._all_free(wanted, anchor):
            lane.advance(wanted, count)
            return wanted, count
        window, _ = lane.peek(WINDOW)
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
        return ranges_of(free), len(free)

    def _source(self, anchor: int) -> BitMap64:
        return self.open if anchor < 0 else self.anchors.open.get(anchor, BitMap64())

    def _all_free(self, ranges: Sequence[int], anchor: int) -> bool:
        others = [self.held, self.waiting.all, self.dead.all, self.returned, self.retry, self.attempts.any]
        source = self._source(anchor)
        if len(ranges) == 2:
            low, high = ranges[0], ranges[0] + ranges[1]
            return bool(source.range_cardinality(low, high) == ranges[1]
                        and not any(bitmap.range_cardinality(low, high) for bitmap in others))
        self.tell(ranges)
        bitmap = self.lately[2]
        return bool(bitmap.issubset(source)) and all(other.isdisjoint(bitmap) for other in others if other)

    def tell(self, ranges: Sequence[int]) -> Told:
        """For an entry: who applies it next has what was made of them a moment ago."""
        if self.lately[0] is not ranges:
            told = tell(ranges)
            self.lately = ranges, told, bitmap_told(told)
        return self.lately[1]

    def heard(self, told: Told) -> tuple[Sequence[int], BitMap64]:
        """The ranges, and their bitmap, which is the caller's own."""
        ranges, known, bitmap = self.lately
        self.lately = NOTHING
        return (ranges, bitmap) if known is told else heard(told)

"""Where a group is in a partition, per priority lane: an offset and some runs from there on.

Owns what is handed out for the first time, in offset order within a lane. Soft state: built anew from the runs of the log. Says
nothing about whether a message of a run is still open: who takes it looks.

A lane knows its runs below its `upto`. One whose buffer filled stops there (`more`), and what lies behind is asked for again when
it drains (`wants`); the others go on without it. Runs are kept in chunks: those that are to be served as they lie, or those that
one ready record names. A chunk's place is its position: the offset of its first message, or that of the ready record; the latter's
are kept together, however many they are.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from gq_groupd.stretch import Stretch
from gq_proto import codec
from gq_proto import ranges as rng
from gq_proto.limits import BUFFERED_RUNS, PRIORITIES

REFILL: Final = BUFFERED_RUNS // 4      # a lane with fewer runs asks for what lies behind
ANCHORED_RUNS: Final = 1_024    # of ready records a lane takes more: one may name hundreds of runs, a reply holds several
assert REFILL <= ANCHORED_RUNS


class Entry(NamedTuple):
    """Offsets [low, high); anchor -1: to be served as they lie, else at the ready record `anchor`."""

    low: int
    high: int
    anchor: int = -1


class Chunk:
    """Ascending ranges from number `at` on, `count` messages; 16 bytes a run."""

    __slots__ = ("anchor", "at", "count", "ranges")

    def __init__(self, ranges: Sequence[int], anchor: int) -> None:
        self.anchor = anchor
        self.ranges = array("q", ranges)
        self.at, self.count = 0, rng.count(self.ranges)

    def __len__(self) -> int:
        """Runs."""
        return len(self.ranges) // 2 - self.at

    @property
    def low(self) -> int:
        return self.ranges[2 * self.at]

    @property
    def high(self) -> int:
        return self.ranges[-2] + self.ranges[-1]

    def rest(self) -> Sequence[int]:
        return self.ranges[2 * self.at:] if self.at else self.ranges

    def extend(self, ranges: Sequence[int]) -> None:
        """With what lies behind; the first of it joins the last where it follows on."""
        if self.high == ranges[0]:
            self.ranges[-1] += ranges[1]
            self.ranges.extend(ranges[2:])
        else:
            self.ranges.extend(ranges)
        self.count += rng.count(ranges)

    def head(self, most: int) -> "array[int]":
        """The first `most` messages."""
        return codec.ranges_head(self.ranges[2 * self.at:2 * (self.at + most)], most)

    def pass_to(self, offset: int) -> None:
        """Without what lies below `offset`, which is not all of it."""
        ranges = self.ranges
        first = bisect_right(range(len(ranges) // 2), offset, self.at, key=lambda run: ranges[2 * run]) - 1
        if first >= self.at:
            passed = max(0, min(offset - ranges[2 * first], ranges[2 * first + 1]))
            self._drop(first, passed, sum(ranges[2 * self.at + 1:2 * first:2]) + passed)

    def advance(self, head: Sequence[int], count: int) -> None:
        """Without the `count` messages that head() gave, which is not all of it."""
        self._drop(self.at + len(head) // 2 - 1, head[-1], count)

    def _drop(self, first: int, passed: int, count: int) -> None:
        """Without the runs before number `first` and `passed` messages of that one, `count` in all."""
        ranges = self.ranges
        self.count -= count
        ranges[2 * first] += passed
        ranges[2 * first + 1] -= passed
        self.at = first + (not ranges[2 * first + 1])
        if self.at > BUFFERED_RUNS:
            del ranges[:2 * self.at]
            self.at = 0

    def cut(self, end: int) -> None:
        """Without what lies at or above end, which is not all of it."""
        self.ranges, self.at = array("q", rng.clip(self.rest(), 0, end)), 0
        self.count = rng.count(self.ranges)


class Lane:
    """`count` messages in all, `runs` runs."""

    __slots__ = ("_chunks", "count", "more", "runs", "upto")

    def __init__(self, upto: int) -> None:
        self._chunks: deque[Chunk] = deque()
        self.count = self.runs = 0
        self.upto = upto
        self.more = False       # there is more of the lane at or behind `upto`

    def entries(self) -> list[Entry]:
        return [Entry(low, high, chunk.anchor) for chunk in self._chunks for low, high in rng.pairs(chunk.rest())]

    def add(self, ranges: Sequence[int], anchor: int) -> int:
        """Behind what is there; joins it where it follows on. How many runs there was room for."""
        if anchor >= 0:
            if self.runs >= ANCHORED_RUNS:
                return 0
        else:
            ranges = ranges[:2 * max(BUFFERED_RUNS - self.runs, 0)]
        if not ranges:
            return 0
        last = self._chunks[-1] if self._chunks else None
        if last and last.anchor == anchor == -1:
            self._change(last, partial(last.extend, ranges))
        else:
            chunk = Chunk(ranges, anchor)
            self._chunks.append(chunk)
            self.count += chunk.count
            self.runs += len(chunk)
        return len(ranges) // 2

    def _change(self, chunk: Chunk, change: Callable[[], None]) -> None:
        self.count -= chunk.count
        self.runs -= len(chunk)
        change()
        self.count += chunk.count
        self.runs += len(chunk)

    # -- the front -------------------------------------------------------------------------

    def first(self) -> tuple[int, int]:
        """(lowest offset, anchor) of its first chunk, which it has."""
        chunk = self._chunks[0]
        return chunk.low, chunk.anchor

    def peek(self, most: int) -> "tuple[array[int], int]":
        """The first `most` messages as flat ranges, as far as the first chunk goes; how many."""
        chunk = self._chunks[0]
        return chunk.head(most), min(most, chunk.count)

    def pass_to(self, offset: int) -> None:
        """Messages of the first chunk below `offset` are served, or not wanted."""
        chunk = self._chunks[0]
        if chunk.high <= offset:
            self._pop_first(chunk)
        elif chunk.low < offset:
            self._change(chunk, partial(chunk.pass_to, offset))

    def advance(self, head: Sequence[int], count: int) -> None:
        """What peek() gave is served."""
        chunk = self._chunks[0]
        if count == chunk.count:
            self._pop_first(chunk)
        else:
            runs = len(chunk)
            chunk.advance(head, count)
            self.runs += len(chunk) - runs
            self.count -= count

    def _pop_first(self, chunk: Chunk) -> None:
        self._chunks.popleft()
        self.count -= chunk.count
        self.runs -= len(chunk)

    # -- the back ---------------------------------------------------------------------------

    def cut(self, end: int) -> None:
        """What lies at or above end does not exist, or will come anew."""
        while self._chunks:
            chunk = self._chunks[-1]
            if (chunk.low if chunk.anchor < 0 else chunk.anchor) < end:
                if chunk.anchor < 0 and chunk.high > end:
                    self._change(chunk, partial(chunk.cut, end))
                break
            self._chunks.pop()
            self.count -= chunk.count
            self.runs -= len(chunk)
        if self.upto >= end:
            self.upto, self.more = end, False


class Lanes:
    __slots__ = ("lanes",)

    def __init__(self, start: int) -> None:
        self.lanes = [Lane(start) for _ in range(PRIORITIES)]

    @property
    def upto(self) -> int:
        """Up to where all lanes are known."""
        return min(lane.upto for lane in self.lanes)

    def feed(self, first: int, stretch: Stretch, upto: int, more: bool = False, only: int = -1) -> None:
        """What lies in [first, upto), or all of lane `only` there. Lanes that are behind `first` ignore it, lanes that fill up
        stop. more: lane `only` goes on behind upto."""
        for number, lane in enumerate(self.lanes):
            if first <= lane.upto < upto and only in (-1, number):
                full = _fill(lane, stretch, number, upto)
                lane.upto, lane.more = (upto, more) if full < 0 else (max(lane.upto, full), True)

    def follow(self, scanned: int) -> bool:
        """They are all told what comes next, and have room for it."""
        return all(lane.upto >= scanned and lane.runs < REFILL for lane in self.lanes)

    def wants(self, scanned: int) -> list[int]:
        """Lanes that should be told what lies behind their upto."""
        return [number for number, lane in enumerate(self.lanes) if lane.upto < scanned and lane.runs < REFILL]

    def cut(self, end: int) -> None:
        for lane in self.lanes:
            lane.cut(end)

    def skip_to(self, offset: int) -> None:
        """What lies below offset is gone."""
        for lane in self.lanes:
            if lane.runs and lane.first()[1] < 0:
                lane.pass_to(offset)
            if lane.upto < offset:
                lane.upto, lane.more = offset, False


def _fill(lane: Lane, stretch: Stretch, number: int, upto: int) -> int:
    """Everything of the stretch that the lane does not know yet, by position. Where it was full; -1: it was not."""
    low = lane.upto
    for anchor, named in stretch.named:
        if low <= anchor < upto:
            if (full := _add(lane, rng.clip(stretch.lanes[number], low, anchor))) >= 0:
                return full
            low = anchor
            if named[number] and not lane.add(named[number], anchor):
                return anchor
    return _add(lane, rng.inside(stretch.lanes[number], low, upto))


def _add(lane: Lane, ranges: Sequence[int]) -> int:
    runs = lane.add(ranges, -1)
    return ranges[2 * runs] if 2 * runs < len(ranges) else -1

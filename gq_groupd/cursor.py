"""Where a group is in a partition, per priority lane: an offset and some runs from there on.

Owns what is handed out for the first time, in offset order within a lane. Soft state: built anew from the runs of the log. Says
nothing about whether a message of a run is still open: who takes it looks.

A lane knows its runs below its `upto`. One whose buffer filled stops there (`more`), and what lies behind is asked for again when
it drains (`wants`); the others go on without it. An entry's place is its position: the offset of its first message, or that of the
ready record it is anchored at. Entries of one ready record are kept together, however many they are.
"""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from gq_proto.limits import BUFFERED_RUNS, PRIORITIES

REFILL = BUFFERED_RUNS // 2     # a lane with fewer runs asks for what lies behind
ANCHORED_RUNS = 1_024           # of ready records a lane takes more: one may name hundreds of runs, a reply holds several


class Entry(NamedTuple):
    """Offsets [low, high); anchor -1: to be served as they lie, else at the ready record `anchor`."""

    low: int
    high: int
    anchor: int = -1

    @property
    def position(self) -> int:
        return self.low if self.anchor < 0 else self.anchor


class Lane:
    """24 bytes a run: low, high and anchor of each, from number `at` on; `count` messages in all."""

    __slots__ = ("_at", "_runs", "count", "more", "upto")

    def __init__(self, upto: int) -> None:
        self._runs = array("q")
        self._at = 0
        self.count = 0
        self.upto = upto
        self.more = False       # there is more of the lane at or behind `upto`

    def __len__(self) -> int:
        """Runs."""
        return (len(self._runs) - self._at) // 3

    def entries(self) -> list[Entry]:
        runs = self._runs[self._at:].tolist()
        return [Entry(*runs[at:at + 3]) for at in range(0, len(runs), 3)]

    def add(self, low: int, high: int, anchor: int) -> bool:
        """Behind what is there; joins it when it follows on. False when the buffer is full."""
        runs = self._runs
        if len(runs) > self._at:
            last = runs[-1]
            if anchor < 0 and last < 0 and runs[-2] == low:
                runs[-2] = high
                self.count += high - low
                return True
            held = len(runs) - self._at
            if held >= 3 * BUFFERED_RUNS and (anchor < 0 or (last != anchor and held >= 3 * ANCHORED_RUNS)):
                return False
        runs.append(low)
        runs.append(high)
        runs.append(anchor)
        self.count += high - low
        return True

    # -- the front -------------------------------------------------------------------------

    def first(self) -> tuple[int, int]:
        """(lowest offset, anchor) of its first entry, which it has."""
        return self._runs[self._at], self._runs[self._at + 2]

    def peek(self, most: int) -> list[int]:
        """The first `most` messages as flat ranges, as far as they have the first one's anchor."""
        runs, at = self._runs, self._at
        anchor, ranges = runs[at + 2], list[int]()
        while most > 0 and at < len(runs) and runs[at + 2] == anchor:
            n = min(runs[at + 1] - runs[at], most)
            ranges.append(runs[at])
            ranges.append(n)
            most -= n
            at += 3
        return ranges

    def pass_to(self, offset: int) -> None:
        """Messages of the first entry's anchor below `offset` are served, or not wanted."""
        runs, at = self._runs, self._at
        anchor = runs[at + 2]
        while at < len(runs) and runs[at + 2] == anchor and runs[at + 1] <= offset:
            self.count -= runs[at + 1] - runs[at]
            at += 3
        if at < len(runs) and runs[at + 2] == anchor and runs[at] < offset:
            self.count -= offset - runs[at]
            runs[at] = offset
        self._at = at
        if at == len(runs):
            self._clear()
        elif at >= 3 * BUFFERED_RUNS:
            del runs[:at]
            self._at = 0

    def _clear(self) -> None:
        del self._runs[:]
        self._at = self.count = 0

    # -- the back ---------------------------------------------------------------------------

    def cut(self, end: int) -> None:
        """What lies at or above end does not exist, or will come anew."""
        runs = self._runs
        while len(runs) > self._at and (runs[-3] if runs[-1] < 0 else runs[-1]) >= end:
            self.count -= runs[-2] - runs[-3]
            del runs[-3:]
        if len(runs) > self._at and runs[-1] < 0 and runs[-2] > end:
            self.count -= runs[-2] - end
            runs[-2] = end
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

    def feed(self, first: int, found: Iterable[tuple[int, int, int, int]], upto: int, more: bool = False, only: int = -1) -> None:
        """`found`: (lane, low, high, anchor), by position, of all that lies in [first, upto), or of all of lane `only`. Lanes that
        are behind `first` ignore it, lanes that fill up stop. more: lane `only` goes on behind upto."""
        lanes = self.lanes
        going = [first <= lane.upto < upto and only in (-1, number) for number, lane in enumerate(lanes)]
        for number, low, high, anchor in found:
            if not going[number]:
                continue
            lane = lanes[number]
            if anchor < 0:
                if low < lane.upto:
                    if high <= lane.upto:
                        continue
                    low = lane.upto
            elif anchor < lane.upto:
                continue
            if not lane.add(low, high, anchor):
                lane.upto, lane.more, going[number] = max(lane.upto, low if anchor < 0 else anchor), True, False
        for number in range(PRIORITIES):
            if going[number]:
                lanes[number].upto, lanes[number].more = upto, more

    def follow(self, scanned: int) -> bool:
        """They are all told what comes next, and have room for it."""
        return all(lane.upto >= scanned and len(lane) < REFILL for lane in self.lanes)

    def wants(self, scanned: int) -> list[int]:
        """Lanes that should be told what lies behind their upto."""
        return [number for number, lane in enumerate(self.lanes) if lane.upto < scanned and len(lane) < REFILL]

    def cut(self, end: int) -> None:
        for lane in self.lanes:
            lane.cut(end)

    def skip_to(self, offset: int) -> None:
        """What lies below offset is gone."""
        for lane in self.lanes:
            if len(lane) and lane.first()[1] < 0:
                lane.pass_to(offset)
            if lane.upto < offset:
                lane.upto, lane.more = offset, False

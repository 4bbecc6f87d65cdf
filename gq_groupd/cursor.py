"""Where a group is in a partition, per priority lane: an offset and at most 64 runs from there on.

Owns what is handed out for the first time, in offset order within a lane. Soft state: built anew from the runs of the log. Says
nothing about whether a message of a run is still open: who takes it looks.

A lane knows the runs below its `upto`. One whose buffer filled stops there, and what lies behind is asked for again when the lane
drains (`wants`). Until weights come, lanes are merged in offset order: nothing at or above the lowest `upto` is served.
An entry's place is its position: the offset of its first message, or that of the ready record it is anchored at.
"""

from collections import deque
from typing import NamedTuple

from gq_proto.limits import BUFFERED_RUNS, PRIORITIES


class Entry(NamedTuple):
    """Offsets [low, high), to be served at `position`; anchor -1: as they lie."""

    position: int
    low: int
    high: int
    anchor: int = -1


class Lane:
    __slots__ = ("entries", "upto")

    def __init__(self, upto: int) -> None:
        self.entries: deque[Entry] = deque()
        self.upto = upto


class Lanes:
    """`limit`: entries below it may be served."""

    __slots__ = ("lanes", "limit")

    def __init__(self, start: int) -> None:
        self.lanes = [Lane(start) for _ in range(PRIORITIES)]
        self.limit = start

    def feed(self, first: int, found: list[tuple[int, Entry]], upto: int) -> None:
        """`found`: (lane, entry) of all that is new to this scan of [first, upto), by position. Lanes that are behind `first`
        ignore it, lanes that fill up stop."""
        open_lanes = {n for n, lane in enumerate(self.lanes) if first <= lane.upto < upto}
        for number, entry in found:
            lane = self.lanes[number]
            if number not in open_lanes or (entry.position < lane.upto and entry.high <= lane.upto):
                continue
            if not self._add(lane, entry):
                lane.upto = max(lane.upto, entry.position)
                open_lanes.discard(number)
        for number in open_lanes:
            self.lanes[number].upto = upto
        self.limit = min(lane.upto for lane in self.lanes)

    def _add(self, lane: Lane, entry: Entry) -> bool:
        if entry.anchor < 0 and entry.low < lane.upto:
            entry = Entry(lane.upto, lane.upto, entry.high)
        last = lane.entries[-1] if lane.entries else None
        if last and last.anchor == entry.anchor == -1 and last.high == entry.low:
            lane.entries[-1] = Entry(last.position, last.low, entry.high)
        elif len(lane.entries) >= BUFFERED_RUNS:
            return False
        else:
            lane.entries.append(entry)
        return True

    def head(self) -> tuple[Lane, Entry] | None:
        """The lane to serve next, and its first entry."""
        best: tuple[Lane, Entry] | None = None
        for lane in self.lanes:
            if lane.entries:
                entry = lane.entries[0]
                if entry.position < self.limit and (best is None or entry.position < best[1].position):
                    best = lane, entry
        return best

    def take(self, lane: Lane, upto: int) -> None:
        """Offsets of the lane's first entry below `upto` are served."""
        entry = lane.entries[0]
        if upto >= entry.high:
            lane.entries.popleft()
        elif entry.anchor < 0:
            lane.entries[0] = Entry(upto, upto, entry.high)
        else:
            lane.entries[0] = Entry(entry.position, upto, entry.high, entry.anchor)

    def bound(self, lane: Lane) -> int:
        """Up to where its first entry may be served before another lane's turn comes."""
        bound = self.limit
        for other in self.lanes:
            if other is not lane and other.entries:
                bound = min(bound, other.entries[0].position)
        return bound

    def wants(self, scanned: int) -> int:
        """The offset to ask runs from, when what is served next is not at hand; -1: nothing is missing yet."""
        if self.limit >= scanned:
            return -1
        ready = sum(1 for lane in self.lanes for entry in lane.entries if entry.position < self.limit)
        return self.limit if ready < BUFFERED_RUNS // 4 else -1

    def cut(self, end: int) -> None:
        """What lies at or above end does not exist, or will come anew."""
        for lane in self.lanes:
            while lane.entries and lane.entries[-1].position >= end:
                lane.entries.pop()
            if lane.entries:
                last = lane.entries[-1]
                if last.anchor < 0 and last.high > end:
                    lane.entries[-1] = Entry(last.position, last.low, end)
            lane.upto = min(lane.upto, end)
        self.limit = min(self.limit, end)

    def skip_to(self, offset: int) -> None:
        """What lies below offset is gone."""
        for lane in self.lanes:
            while lane.entries and lane.entries[0].anchor < 0 and lane.entries[0].high <= offset:
                lane.entries.popleft()
            lane.upto = max(lane.upto, offset)
        self.limit = min(lane.upto for lane in self.lanes)

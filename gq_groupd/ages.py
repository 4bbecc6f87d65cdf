"""How old messages are when they are acked: counts per group and topic, in buckets of BOUNDS_MS.

A message's age runs from when groupd heard that its partition's log had grown over it. What lay in the log before the coordinator
first looked is of unknown age and not counted, and neither are delayed messages, which are meant to wait.

Owns the marks (end, time) of every watched partition, MARKS_MAX at most: when that is reached, every other one of the older half
goes, so that what is long ago is known less exactly, in proportion to its age. Soft: a restart begins anew.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from typing import Final

from pyroaring import BitMap64

from gq_proto.bitmaps import TOP

MARKS_MAX: Final = 256
BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 7_200_000)
Key = tuple[int, int]


class Marks:
    """`ends[i]` was first heard of at `times_ms[i]`; both grow."""

    __slots__ = ("ends", "times_ms")

    def __init__(self) -> None:
        self.ends, self.times_ms = array("q"), array("q")

    def grew(self, end: int, now_ms: int) -> None:
        ends, times_ms = self.ends, self.times_ms
        if ends and end <= ends[-1]:
            return
        ends.append(end)
        times_ms.append(now_ms)
        if len(ends) > MARKS_MAX:
            del ends[1 : MARKS_MAX // 2 : 2]
            del times_ms[1 : MARKS_MAX // 2 : 2]

    def cut(self, end: int) -> None:
        """A new leader's log ended there."""
        while self.ends and self.ends[-1] > end:
            self.ends.pop()
            self.times_ms.pop()

    def times(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """(upto, time) of [low, high], piece by piece; what is of unknown age is left out by a time of -1."""
        at = bisect_right(self.ends, low)
        while True:
            upto = self.ends[at] if at < len(self.ends) else TOP
            yield upto, self.times_ms[at] if 0 < at < len(self.ends) else -1
            if upto > high:
                return
            at += 1


class Ages:
    """`counts[group, topic]`: as many as BOUNDS_MS and one more for what is older than the last, then their sum in ms."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], list[int]] = {}
        self._marks: dict[Key, Marks] = {}

    def grew(self, key: Key, end: int, now_ms: int) -> None:
        """A partition's log ends at `end` or behind it."""
        marks = self._marks.get(key)
        if marks is None:
            marks = self._marks[key] = Marks()
        marks.grew(end, now_ms)

    def cut(self, key: Key, end: int) -> None:
        """Its new leader had nothing from `end` on."""
        if key in self._marks:
            self._marks[key].cut(end)

    def watch(self, keys: Collection[Key]) -> None:
        """All that is watched: of others nothing is heard any more."""
        for key in [key for key in self._marks if key not in keys]:
            del self._marks[key]

    def acked(self, group: str, topic: str, key: Key, messages: BitMap64, now_ms: int) -> None:
        """These messages, at least one, by this group."""
        marks = self._marks.get(key)
        if marks is None:
            return
        low, high = messages.min(), messages.max()
        for upto, time_ms in marks.times(low, high):
            count = messages.range_cardinality(low, upto) if time_ms >= 0 else 0
            if count:
                self._observe(group, topic, now_ms - time_ms, count)
            low = upto

    def _observe(self, group: str, topic: str, age_ms: int, count: int) -> None:
        counts = self.counts.get((group, topic))
        if counts is None:
            counts = self.counts[group, topic] = [0] * (len(BOUNDS_MS) + 2)
        counts[bisect_left(BOUNDS_MS, age_ms)] += count
        counts[-1] += age_ms * count

    def forget(self, group: str = "", topic: str = "") -> None:
        """The group is gone, or the topic."""
        for pair in [pair for pair in self.counts if group == pair[0] or topic == pair[1]]:
            del self.counts[pair]

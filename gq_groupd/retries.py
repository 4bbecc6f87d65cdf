"""Failed deliveries: how often each message failed, and what waits for its next try.

Owns the counts as level sets (count -> bitmap), so that 500 messages failing together cost one operation, and the waiting
messages as bitmaps by due time. Both hard. Due times run on the monotonic clock; the wall clock only carries them over a restart,
and never makes a wait longer than it was.
"""

import heapq
from itertools import count as counter
from operator import itemgetter

from pyroaring import BitMap64

from gq_proto.bitmaps import union_of
from gq_proto.messages import TopicConfig


def backoff_ms(config: TopicConfig, attempts: int) -> int:
    """Before the next try after `attempts` failed ones: base x 2^(attempts - 1), at most the maximum."""
    return min(config.backoff_base_ms << min(max(attempts - 1, 0), 40), config.backoff_max_ms)


class Attempts:
    """`any` is the union of all levels."""

    __slots__ = ("any", "levels")

    def __init__(self) -> None:
        self.levels: dict[int, BitMap64] = {}
        self.any = BitMap64()

    def of(self, offset: int) -> int:
        if offset in self.any:
            for level, bitmap in self.levels.items():
                if offset in bitmap:
                    return level
        return 0

    def set(self, bitmap: BitMap64, attempts: int) -> None:
        self.forget(bitmap)
        self.levels[attempts] = self.levels.get(attempts, BitMap64()) | bitmap
        self.any |= bitmap

    def forget(self, bitmap: BitMap64) -> None:
        if not self.any or self.any.isdisjoint(bitmap):
            return
        for level in list(self.levels):
            self.levels[level] -= bitmap
            if not self.levels[level]:
                del self.levels[level]
        self.any -= bitmap


class Waiting:
    """Entries [due_ms, tie, at_us, delay_ms, bitmap]. `all` is what waits; entries may be empty, never wrong."""

    __slots__ = ("_order", "all", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, int, int, BitMap64]] = []
        self.all = BitMap64()
        self._order = counter()

    def add(self, bitmap: BitMap64, now_ms: int, at_us: int, delay_ms: int) -> None:
        """From at_us (now_ms on the other clock) on, for delay_ms."""
        heapq.heappush(self.heap, (now_ms + delay_ms, next(self._order), at_us, delay_ms, bitmap.copy()))
        self.all |= bitmap

    def remove(self, bitmap: BitMap64) -> None:
        if not self.all or self.all.isdisjoint(bitmap):
            return
        self.all -= bitmap
        for entry in self.heap:
            entry[4].difference_update(bitmap)
        while self.heap and not self.heap[0][4]:
            heapq.heappop(self.heap)

    def next_due(self) -> int | None:
        return self.heap[0][0] if self.heap else None

    def take_due(self, now_ms: int) -> BitMap64:
        """What is due; it waits no longer."""
        due = []
        while self.heap and self.heap[0][0] <= now_ms:
            due.append(heapq.heappop(self.heap)[4])
        ready = union_of(due)
        self.all -= ready
        return ready

    def restart(self, now_ms: int, wall_us: int) -> None:
        """After replay: the clocks are known now."""
        entries = sorted(self.heap, key=itemgetter(1))
        self.heap = [(now_ms + min(delay, max(0, at_us // 1000 + delay - wall_us // 1000)), tie, at_us, delay, bitmap)
                     for _, tie, at_us, delay, bitmap in entries if bitmap]
        heapq.heapify(self.heap)

"""Delayed messages: work that takes its place at the ready record R that named it, not where it lies.

Owns, per R that is not done: which offsets it named and are still open (soft, from the runs' control bodies) and which are acked
already (hard). R itself counts as done when all of its offsets are; committed offset, reset and replay go by R.
"""

from pyroaring import BitMap64

from gq_proto.bitmaps import TOP, union_of


class Anchors:
    __slots__ = ("acked", "open")

    def __init__(self) -> None:
        self.acked: dict[int, BitMap64] = {}
        self.open: dict[int, BitMap64] = {}

    def meet(self, ready: int, offsets: BitMap64) -> BitMap64:
        """R was scanned and is not done. What of its offsets is open."""
        left = offsets - self.acked.get(ready, BitMap64())
        if left:
            self.open[ready] = left
        return left

    def ack(self, ready: int, offsets: BitMap64) -> None:
        self.acked[ready] = self.acked.get(ready, BitMap64()) | offsets
        if ready in self.open:
            self.open[ready] -= offsets

    def finished(self, ready: int) -> bool:
        """All acked, as far as the runs are known."""
        return ready in self.open and not self.open[ready]

    def forget(self, low: int, high: int) -> BitMap64:
        """Anchors in [low, high) are as if never met; returns the offsets they had open."""
        found = [ready for ready in self.open if low <= ready < high]
        offsets = union_of(self.open.pop(ready) for ready in found)
        for ready in [ready for ready in self.acked if low <= ready < high]:
            del self.acked[ready]
        return offsets

    def close(self, ready: int) -> None:
        """R is done."""
        self.open.pop(ready, None)
        self.acked.pop(ready, None)

    def open_from(self, low: int) -> BitMap64:
        """Open offsets of the ready records from `low` on."""
        return union_of(bitmap for ready, bitmap in self.open.items() if ready >= low)

    def unmeet(self, low: int) -> None:
        """Ready records from `low` on will be scanned again."""
        for ready in [ready for ready in self.open if ready >= low]:
            del self.open[ready]

    def gone_below(self, offset: int) -> BitMap64:
        """Messages below `offset` do not exist any more; returns those that were open."""
        lost = BitMap64()
        for ready, bitmap in list(self.open.items()):
            dead = bitmap.copy()
            dead.remove_range(offset, TOP)
            lost |= dead
            bitmap -= dead
            if bitmap:
                self.open[ready] = bitmap
            else:
                self.close(ready)
        return lost

    def of(self, offset: int) -> int:
        """The ready record an open offset is anchored at; -1 when it is none's."""
        for ready, bitmap in self.open.items():
            if offset in bitmap:
                return ready
        return -1

    def all(self) -> BitMap64:
        return union_of(self.open.values())

    def count(self) -> int:
        return sum(len(bitmap) for bitmap in self.open.values())

"""What of a partition a group is done with: everything below a watermark, and a roaring bitmap of what lies above.

State grows with holes, not with backlog. Hard state. Offsets that are no messages for groups (control records, delayed ones)
may or may not be counted in: `settle_below` moves the watermark over them when the runs are known.
"""

from pyroaring import BitMap64

from gq_proto.bitmaps import TOP, bitmap_between, run_end


class Acked:
    """`below`: all offsets under it are done. `ahead`: those above that are, never below it, never at it."""

    __slots__ = ("ahead", "below")

    def __init__(self, below: int = 0) -> None:
        self.below = below
        self.ahead = BitMap64()

    def __contains__(self, offset: int) -> bool:
        return offset < self.below or offset in self.ahead

    def add(self, low: int, high: int) -> None:
        """[low, high) is done."""
        if low > self.below:
            self.ahead.add_range(low, high)
        elif high > self.below:
            self.settle_below(high)

    def update(self, bitmap: BitMap64) -> None:
        """All of them are done; for many ranges at once."""
        self.ahead |= bitmap
        if self.ahead and self.ahead.min() <= self.below:
            self.below = run_end(self.ahead, self.below)
            self.ahead.remove_range(0, self.below)

    def settle_below(self, offset: int) -> None:
        """Everything below offset is done, or was no message."""
        if offset <= self.below:
            return
        self.below = offset
        if self.ahead:
            if offset in self.ahead:
                self.below = run_end(self.ahead, offset)
            self.ahead.remove_range(0, self.below)

    def remove(self, low: int, high: int) -> None:
        """[low, high) is open again."""
        if low >= high:
            return
        if low < self.below:
            if high < self.below:
                self.ahead.add_range(high, self.below)
            self.below = low
        self.ahead.remove_range(low, high)

    def cut(self, end: int) -> None:
        """Nothing at or above end was ever done."""
        self.below = min(self.below, end)
        self.ahead.remove_range(end, TOP)

    def open_in(self, low: int, high: int) -> BitMap64 | None:
        """What of [low, high) is not done; None stands for all of it."""
        low = max(low, self.below)
        if low >= high:
            return BitMap64()
        if not self.ahead or not self.ahead.range_cardinality(low, high):
            return None if low < high else BitMap64()
        return bitmap_between(low, high) - self.ahead

"""Delayed records of one partition: which of them are decided, and how.

Owns two sets of offsets, ready and cancelled, both from control records in the log: the first that names an offset decides. What is
delayed and in neither is pending and hidden; what is cancelled stays hidden. Loaded from the log when a delayed record is
first met, so partitions that never see one pay nothing.
"""

from collections.abc import Sequence

from pyroaring import BitMap64

from gq_proto.bitmaps import ranges_of
from gq_proto.control import ControlType


class Delays:
    __slots__ = ("_cancelled", "_ready")

    def __init__(self) -> None:
        self._ready = BitMap64()
        self._cancelled = BitMap64()

    def undecided(self, wanted: Sequence[int], delayed: Sequence[int]) -> list[int]:
        """The part of `wanted` that is a delayed record (`delayed` ranges) and not decided yet."""
        left = (_set(wanted) & _set(delayed)) - self._ready - self._cancelled
        return ranges_of(left)

    def apply(self, type_: int, decided: Sequence[int]) -> None:
        """A ready or cancelled record with these ranges is in the log; what was decided before keeps its fate."""
        first = _set(decided)
        if type_ == ControlType.DELAY_READY:
            self._ready |= first - self._cancelled
        else:
            self._cancelled |= first - self._ready

    def hidden(self, delayed: Sequence[int], include_pending: bool) -> list[int]:
        """Of these delayed ranges: what an app must not see. With include_pending only the cancelled."""
        asked = _set(delayed)
        return ranges_of(asked & self._cancelled if include_pending else asked - self._ready)

    def trim(self, log_start: int) -> None:
        for decided in (self._ready, self._cancelled):
            if decided and decided[0] < log_start:
                decided.remove_range(0, log_start)


def _set(ranges: Sequence[int]) -> BitMap64:
    found = BitMap64()
    for at in range(0, len(ranges), 2):
        found.add_range(ranges[at], ranges[at] + ranges[at + 1])
    return found

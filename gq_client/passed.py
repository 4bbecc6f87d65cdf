"""Delayed messages that a reader has gone by before they were due. They come to it at their ready record.

Owns which ones these are: what was hidden when the reader was there, and all that lies below where it began. What was due already
when the reader came by it got where it lies, so every message comes once. Nothing is pinned meanwhile: a few bits a message.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gq_proto import codec
from gq_proto import ranges as rng
from gq_proto.control import ControlType, decode_body

if TYPE_CHECKING:
    from pyroaring import BitMap64


class Passed:
    """Of a reader that began at `start`."""

    def __init__(self, start: int) -> None:
        self._below = start
        self._hidden: BitMap64 | None = None

    def add(self, hidden: Sequence[int]) -> None:
        """Ranges the reader passed. Those that are not delayed, but aborted or cancelled, will never be named: no harm."""
        if hidden:
            from gq_proto.bitmaps import bitmap_of  # only who meets such a message pays for the import
            found = bitmap_of(list(hidden))
            self._hidden = self._hidden | found if self._hidden else found

    def ready(self, frame: Any, low: int) -> tuple[int, list[int]]:
        """The offset of the frame's first ready record, at or after `low`, that names some of them, and which (ranges): they are
        passed no more. (-1, []) without one."""
        if not len(frame) or not (self._below or self._hidden):
            return -1, []
        for control in codec.scan(frame).controls:
            if control.offset >= low and control.type in (ControlType.DELAY_READY, ControlType.DELAY_CANCELLED):
                found = self._decided(decode_body(control.type, control.body))
                if found and control.type == ControlType.DELAY_READY:
                    return control.offset, found
        return -1, []

    def _decided(self, named: Any) -> list[int]:
        """Which of these ranges were passed; they are no more."""
        found = rng.clip(named, 0, self._below)
        if self._hidden:
            from gq_proto.bitmaps import bitmap_of, ranges_of
            inside = bitmap_of(rng.clip(named, self._below, int(self._hidden.max()) + 1)) & self._hidden
            self._hidden -= inside
            found = rng.union(found, ranges_of(inside))
        return found

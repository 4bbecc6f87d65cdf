"""Runs: what lies in a partition by kind, without the bytes. Flat lists [offset, count, kind, ...] and one segment's RunIndex.

A run is a maximal range of consecutive records of one kind (record flags & 0x1E, priority). Control runs count for no lane and are
never deliverable; delayed ones are not where they lie but where their ready record lies. `select_runs` and `extend_runs` (the two
that meet millions of runs when priorities are random) are the codec's.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gq_proto import codec
from gq_proto import record as r
from gq_proto.limits import PRIORITIES
from gq_proto.ranges import Ranges, subtract
from gq_proto.segment import RUN_ENTRY, Lane

Runs = list[int]

CONTROL_KIND: Final = r.kind_of(r.CONTROL, 0)
DELAYED_KIND: Final = r.kind_of(r.DELAYED, 0)
UNDELIVERABLE: Final = CONTROL_KIND | DELAYED_KIND
ALL_LANES: Final = -1
NO_LANES: Final = -2         # all runs, those joined that differ in priority alone
EVERY: Final = 2**62


def triples(runs: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(offset, count, kind) of each run."""
    return zip(runs[::3], runs[1::3], runs[2::3])


def append_run(runs: Runs, offset: int, count: int, kind: int) -> None:
    """Append in place; joins the last run when it follows on and is of its kind."""
    if runs and runs[-1] == kind and runs[-3] + runs[-2] == offset:
        runs[-2] += count
    else:
        runs += (offset, count, kind)


def extend(runs: Runs, more: Sequence[int]) -> None:
    """Append many in place."""
    if len(more) >= 3:
        append_run(runs, more[0], more[1], more[2])
        runs += more[3:]


def clip(runs: Sequence[int], low: int, high: int) -> Runs:
    """The part in [low, high)."""
    out: Runs = []
    for offset, count, kind in triples(runs):
        start, end = max(offset, low), min(offset + count, high)
        if start < end:
            out += (start, end - start, kind)
    return out


def count(runs: Sequence[int]) -> int:
    """Records in all."""
    return sum(runs[1::3])


def deliverable(runs: Sequence[int], lane: int = ALL_LANES, without: Sequence[int] = ()) -> Ranges:
    """Ranges a consumer of `lane` gets as they lie: no control records, none that are delayed, none in the ranges `without`."""
    out: Ranges = []
    for offset, length, kind in triples(runs):
        if kind & UNDELIVERABLE or (lane != ALL_LANES and kind & 7 != lane):
            continue
        if out and out[-2] + out[-1] == offset:
            out[-1] += length
        else:
            out += (offset, length)
    return subtract(out, without) if without else out


def count_deliverable(runs: Sequence[int], lane: int = ALL_LANES) -> int:
    """How many records `deliverable` would name."""
    return sum(length for _, length, kind in triples(runs)
               if not kind & UNDELIVERABLE and (lane == ALL_LANES or kind & 7 == lane))


def controls(runs: Sequence[int]) -> Ranges:
    """Ranges of control records."""
    return [number for offset, length, kind in triples(runs) if kind & CONTROL_KIND for number in (offset, length)]


class RunIndex:
    """One segment's runs, packed as in `.runs`: 9 bytes a run. Grows at the end; what `.runs` lacks is `unsaved`."""

    __slots__ = ("_saved_to", "base_offset", "packed")

    def __init__(self, base_offset: int, packed: bytes = b"", saved_to: int | None = None) -> None:
        """`packed` as read from `.runs`, which covers offsets below `saved_to`."""
        self.base_offset = base_offset
        self.packed = bytearray(packed)
        self._saved_to = base_offset if saved_to is None else saved_to

    def __len__(self) -> int:
        """Runs."""
        return len(self.packed) // RUN_ENTRY.size

    @property
    def next_offset(self) -> int:
        """The offset after the last run."""
        if not self.packed:
            return self.base_offset
        offset, length, _ = RUN_ENTRY.unpack_from(self.packed, len(self.packed) - RUN_ENTRY.size)
        return int(self.base_offset + offset + length)

    def extend(self, runs: Sequence[int]) -> None:
        """Append flat runs with absolute offsets."""
        codec.extend_runs(self.packed, self.base_offset, runs)

    def select(self, low: int, high: int = EVERY, lane: int = ALL_LANES, limit: int = EVERY) -> tuple[Runs, int]:
        """(runs of the lane in [low, high), next offset): at most `limit`; control runs are always among them. Nothing else of
        the lane lies below the next offset."""
        return codec.select_runs(self.packed, self.base_offset, low, high, lane, limit)

    def unsaved(self) -> bytes:
        """Entries for the next block of `.runs`; call `saved` when it is written."""
        out = bytearray()
        codec.extend_runs(out, self.base_offset, self.select(self._saved_to)[0])
        return bytes(out)

    def saved(self) -> None:
        """`.runs` covers everything that is here now."""
        self._saved_to = self.next_offset

    def truncate(self, next_offset: int) -> None:
        """Forget runs at and above `next_offset`."""
        kept, _ = self.select(self.base_offset, next_offset)
        self.packed = bytearray()
        self.extend(kept)
        self._saved_to = min(self._saved_to, next_offset)

    def lanes(self) -> list[Lane]:
        """Per priority: records and first offset, control records left out: the footer of `.runs`."""
        counts, firsts = [0] * PRIORITIES, [-1] * PRIORITIES
        for offset, length, kind in RUN_ENTRY.iter_unpack(self.packed):
            if not kind & CONTROL_KIND:
                lane = kind & 7
                counts[lane] += length
                firsts[lane] = self.base_offset + offset if firsts[lane] < 0 else firsts[lane]
        return [Lane(*lane) for lane in zip(counts, firsts)]

"""Splits: what each task reads. A piece is a stretch of one segment; a split is pieces together, so large that Spark's own cost of
a task, a tenth of a second of Python, is small beside it, and so small that all cores have some.

Rows that lie in the log are in the pieces' [low, high), which the filters narrow. Delayed messages come at their ready records:
those have a piece of their own per segment, for they may lie behind all that the filters leave of offsets and times.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gq_proto import ranges as rng
from gq_proto.limits import INDEX_INTERVAL_BYTES, TIMESTAMP_SKEW_US_MAX
from gq_proto.segment import Derived
from gq_spark.decided import aborted, cancelled, deciding
from gq_spark.layout import Segment
from gq_spark.log import Log, position_before, position_behind
from gq_spark.options import Options
from gq_spark.pruning import EVERY, Window

SPLIT_BYTES: Final = 128 * 1024 * 1024
SPLIT_BYTES_LEAST: Final = 8 * 1024 * 1024
SPLITS_A_CORE: Final = 2
OPEN_COST: Final = 128 * 1024           # a piece is as dear as so many bytes


@dataclass(frozen=True)
class Piece:
    """Records with low <= offset < high between two positions of a segment, without those in `skip`. Or `controls`: ranges of
    control records in the segment, of whose messages those in [first, last) come; `bases` are the segments they may lie in."""

    topic: str
    partition: int
    folder: str
    base: int
    position: int
    end: int
    low: int
    high: int
    skip: tuple[int, ...] = ()
    controls: tuple[int, ...] = ()
    bases: tuple[int, ...] = ()
    first: int = 0
    last: int = EVERY

    @property
    def cost(self) -> int:
        return self.end - self.position + OPEN_COST


@dataclass(frozen=True)
class Stretch:
    """Of a partition: from offset `low` to `high`."""

    log: Log
    low: int
    high: int


def plan(stretches: Iterable[Stretch], options: Options, window: Window, cores: int) -> list[list[Piece]]:
    """Splits, in order of topic, partition and offset."""
    wanted = [stretch for stretch in stretches if stretch.low < stretch.high]
    total = sum(part.size for stretch in wanted for part in stretch.log.within(stretch.low, stretch.high))
    target = min(SPLIT_BYTES, max(total // (SPLITS_A_CORE * cores), SPLIT_BYTES_LEAST))
    if options.min_partitions:
        target = min(target, max(total // options.min_partitions, INDEX_INTERVAL_BYTES))
    return _packed([piece for stretch in wanted for piece in _pieces(stretch, options, window, target)], target)


def _pieces(stretch: Stretch, options: Options, window: Window, target: int) -> Iterator[Piece]:
    log, low, high = stretch.log, stretch.low, stretch.high
    first, last = _rows_within(log, high, window)
    skip = aborted(log, high) if options.committed else []
    if options.include_delayed:
        skip = rng.union(skip, cancelled(log, low, high))
    bases = tuple(part.base for part in log.segments)
    for part in log.within(max(low, first), high):
        controls = [] if options.include_delayed else rng.clip(deciding(log.controls(part)), max(low, first), high)
        from_, to = max(low, first, part.base), min(high, last, part.following if part.following >= 0 else EVERY)
        for start, position, end, stop in _cuts(log, part, from_, to, target):
            yield Piece(log.place.topic, log.place.number, part.folder, part.base, position, end, start, stop,
                        tuple(rng.clip(skip, start, stop)))
        if controls:
            yield Piece(log.place.topic, log.place.number, part.folder, part.base, 0, 0, from_, from_, tuple(skip),
                        tuple(controls), bases, max(first, log.start), last)


def _rows_within(log: Log, high: int, window: Window) -> tuple[int, int]:
    """Offsets of the records that may be in the window."""
    first, last = window.low, window.high
    if window.oldest > 0:
        first = max(first, log.not_before(window.oldest, high))
    if window.newest < EVERY - 2 * TIMESTAMP_SKEW_US_MAX:
        # Producers' timestamps may lag by the skew behind a clock that others ran ahead of by as much.
        last = min(last, log.all_after(window.newest + 2 * TIMESTAMP_SKEW_US_MAX, high))
    return first, last


def _cuts(log: Log, part: Segment, low: int, high: int, target: int) -> Iterator[tuple[int, int, int, int]]:
    """(low, position, end, high) of stretches of a segment, about `target` bytes each."""
    if low >= high:
        return
    if part.following >= 0 and low <= part.base and high >= part.following and part.size <= target:
        yield low, 0, part.size, high       # its index need not be read
        return
    facts = log.facts(part, Derived.INDEX)
    position, end = position_before(facts.index, part.base, low), position_behind(facts.index, part.base, high, facts.position)
    if part.following >= 0 and high >= facts.next_offset:
        end = part.size             # what is wrong behind the last valid record is to be found
    while end - position > target * 3 // 2:
        cut = _point_at(facts.index, part.base, position + target)
        if cut is None or not low < cut[0] < high or cut[1] >= end:
            break
        yield low, position, cut[1], cut[0]
        low, position = cut
    yield low, position, end, high


def _point_at(index: bytes, base: int, position: int) -> tuple[int, int] | None:
    """The first index point (offset, position) at or behind a position."""
    number = bisect_left(range(len(index) // 8), position, key=lambda n: int.from_bytes(index[8 * n + 4 : 8 * n + 8]))
    if number == len(index) // 8:
        return None
    entry = index[8 * number : 8 * number + 8]
    return base + int.from_bytes(entry[:4]), int.from_bytes(entry[4:])


def _packed(pieces: Sequence[Piece], target: int) -> list[list[Piece]]:
    splits: list[list[Piece]] = []
    size = target
    for piece in pieces:
        if size + piece.cost > target + OPEN_COST or not splits:
            splits.append([])
            size = 0
        splits[-1].append(piece)
        size += piece.cost
    return splits

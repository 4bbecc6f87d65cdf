"""The pure codec's run index: packed >IIB entries (offset - base, count, kind), ascending, as in `.runs`."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from gq_proto import record as r
from gq_proto.limits import PRIORITIES
from gq_proto.segment import RUN_ENTRY

_SIZE: Final = RUN_ENTRY.size
_CONTROL: Final = r.kind_of(r.CONTROL, 0)
_APART: Final = r.kind_of(r.CONTROL | r.DELAYED, 0)     # what of a kind counts when lanes do not


def extend_runs(packed: bytearray, base: int, runs: Sequence[int]) -> None:
    """Append flat runs [offset, count, kind, ...] in place; one that follows on the last and is of its kind joins it."""
    if len(runs) % 3:
        raise ValueError("flat runs come in threes: offset, count, kind")
    for at in range(0, len(runs), 3):
        offset, count, kind = runs[at] - base, runs[at + 1], runs[at + 2]
        if packed:
            last_offset, last_count, last_kind = RUN_ENTRY.unpack_from(packed, len(packed) - _SIZE)
            if last_kind == kind and last_offset + last_count == offset:
                RUN_ENTRY.pack_into(packed, len(packed) - _SIZE, last_offset, last_count + count, kind)
                continue
        packed += RUN_ENTRY.pack(offset, count, kind)


def select_runs(packed: bytes | bytearray, base: int, low: int, high: int, lane: int = -1,
                limit: int = 2**62) -> tuple[list[int], int]:
    """(flat runs in [low, high), next offset): those of `lane` (-1: all) and every control run, cut to the bounds, at most `limit`.

    Lane -2: all, and only `control` and `delayed` of a kind count: what differs in the rest of it is one run.
    Neighbours of one kind that the end of a block kept apart are joined. Next offset is where the next call goes on: behind
    the last run looked at, at least `low`; `high` may lie beyond the end."""
    out: list[int] = []
    count, following = len(packed) // _SIZE, low
    first = bisect_right(range(count), low - base, key=lambda run: int.from_bytes(packed[run * _SIZE : run * _SIZE + 4])) - 1
    for run in range(max(first, 0), count):
        offset, length, kind = RUN_ENTRY.unpack_from(packed, run * _SIZE)
        start, end = max(base + offset, low), min(base + offset + length, high)
        if base + offset >= high or len(out) >= limit * 3:
            break
        if start >= end:
            continue
        following = end
        kind = kind & _APART if lane == -2 else kind
        if out and out[-1] == kind and out[-3] + out[-2] == start:
            out[-2] += end - start
        elif lane < 0 or kind & 7 == lane or kind & _CONTROL:
            out += (start, end - start, kind)
    return out, following


def lanes_within(packed: bytes | bytearray, base: int, ranges: Sequence[int]) -> list[int]:
    """[offset, count, lane, ...] of the records there are in ascending ranges; neighbours of one range and lane joined."""
    out: list[int] = []
    for at in range(0, len(ranges), 2):
        first = len(out)
        runs = select_runs(packed, base, ranges[at], ranges[at] + ranges[at + 1])[0]
        for run in range(0, len(runs), 3):
            offset, count, lane = runs[run], runs[run + 1], runs[run + 2] & 7
            if len(out) > first and out[-1] == lane and out[-3] + out[-2] == offset:
                out[-2] += count
            else:
                out += (offset, count, lane)
    return out


def lane_ranges(packed: bytes | bytearray, base: int, low: int, high: int, lane: int,
                limit: int = 2**62) -> tuple["array[int]", int]:
    """(canonical ranges of the records in [low, high) of one priority that are neither control nor delayed, at most `limit`; next
    offset): as select_runs, for very many of them."""
    out = array("q")
    count, last = len(packed) // _SIZE, low
    first = bisect_right(range(count), low - base, key=lambda run: int.from_bytes(packed[run * _SIZE : run * _SIZE + 4])) - 1
    for run in range(max(first, 0), count):
        offset, length, kind = RUN_ENTRY.unpack_from(packed, run * _SIZE)
        if base + offset >= high:
            break
        start, end = max(base + offset, low), min(base + offset + length, high)
        if kind & 7 == lane and not kind & _APART and start < end:
            if out and out[-2] + out[-1] == start:
                out[-1] += end - start
            elif len(out) >= 2 * limit:
                break
            else:
                out.extend((start, end - start))
        last = base + offset + length
    return out, max(low, min(last, high))


def lane_counts(packed: bytes | bytearray, base: int, low: int, high: int) -> list[int]:
    """Per priority, how many records in [low, high) are neither control nor delayed."""
    counts = [0] * 8                     # a damaged index may name lanes that do not exist
    for _, length, kind in zip(*[iter(select_runs(packed, base, low, high)[0])] * 3):
        if not kind & _APART:
            counts[kind & 7] += length
    return counts[:PRIORITIES]


def lane_totals(packed: bytes | bytearray) -> list[tuple[int, int]]:
    """Per priority (records, first offset - base, or -1), control records left out."""
    counts, firsts = [0] * 8, [-1] * 8
    for offset, count, kind in RUN_ENTRY.iter_unpack(memoryview(packed)[:len(packed) // _SIZE * _SIZE]):
        if not kind & _CONTROL:
            counts[kind & 7] += count
            if firsts[kind & 7] < 0:
                firsts[kind & 7] = offset
    return list(zip(counts, firsts))[:PRIORITIES]


def runs_by_lane(runs: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Of flat, ascending runs those that are neither control nor delayed, as canonical ranges: all together, and per priority. A
    priority that does not exist, from a damaged index, counts as the last."""
    plain: list[int] = []
    lanes: list[list[int]] = [[] for _ in range(PRIORITIES)]
    for offset, count, kind in zip(*[iter(runs)] * 3):
        for ranges in (plain, lanes[min(kind & 7, PRIORITIES - 1)]) if not kind & _APART else ():
            if ranges and ranges[-2] + ranges[-1] == offset:
                ranges[-1] += count
            else:
                ranges.extend((offset, count))
    return plain, lanes

"""Flat offset ranges [low, count, low, count, ...]: sorted, not empty, not overlapping, neighbours joined.

Every function returns a new list and takes canonical ones (`normal` makes them so). Cost is in the number of ranges; what meets
very many of them is the codec's.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from gq_proto import codec
from gq_proto.errors import BadRequest

Ranges = list[int]


def pack(ranges: "array[int]") -> bytes:
    """Each number as 64 bits, the lowest byte first: for very many of them."""
    return _in_order(ranges).tobytes()


def unpack(packed: bytes) -> "array[int]":
    """ValueError for a part of a number."""
    ranges = array("q")
    ranges.frombytes(packed)
    return _in_order(ranges)


def _in_order(ranges: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        ranges = ranges[:]
        ranges.byteswap()
    return ranges


def pairs(ranges: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(low, end) of each range, end exclusive."""
    for at in range(0, len(ranges), 2):
        yield ranges[at], ranges[at] + ranges[at + 1]


def check_ranges(ranges: Sequence[int]) -> None:
    """BadRequest unless the list is flat, ascending, not overlapping and without empty ranges: for lists from outside."""
    if codec.ranges_ascend(ranges):
        return
    if len(ranges) % 2 or (ranges and max(ranges) >= 2**62):
        raise BadRequest("offset ranges come in pairs (low, count) within 63 bits")
    raise BadRequest("offset ranges must ascend, must not overlap and must not be empty")


def _add(out: Ranges, low: int, end: int) -> None:
    """Append [low, end), which begins at or after the last range's begin."""
    if low >= end:
        return
    if out and low <= out[-2] + out[-1]:
        out[-1] = max(out[-1], end - out[-2])
    else:
        out += (low, end - low)


def normal(pairs_: Iterable[tuple[int, int]]) -> Ranges:
    """Canonical ranges of any (low, end) pairs."""
    out: Ranges = []
    for low, end in sorted(pairs_):
        _add(out, low, end)
    return out


def of_offsets(offsets: Iterable[int]) -> Ranges:
    """Canonical ranges of single offsets in any order, duplicates allowed."""
    return codec.ranges_of(offsets)


def count(ranges: Sequence[int]) -> int:
    """Offsets in all."""
    return codec.ranges_count(ranges)


def contains(ranges: Sequence[int], offset: int) -> bool:
    """Whether `offset` is in one of them."""
    at = bisect_right(range(0, len(ranges), 2), offset, key=lambda at: ranges[at]) - 1
    return at >= 0 and offset < ranges[2 * at] + ranges[2 * at + 1]


def union(one: Sequence[int], other: Sequence[int]) -> Ranges:
    """Offsets in either. Any ranges are taken."""
    if codec.ranges_ascend(one) and codec.ranges_ascend(other):
        return codec.ranges_union(one, other)
    return normal([*pairs(one), *pairs(other)])


def intersect(one: Sequence[int], other: Sequence[int]) -> Ranges:
    """Offsets in both."""
    return codec.ranges_intersect(one, other)


def subtract(one: Sequence[int], other: Sequence[int]) -> Ranges:
    """Offsets of `one` that are not in `other`."""
    return codec.ranges_subtract(one, other)


def inside(ranges: Sequence[int], low: int, high: int) -> Sequence[int]:
    """clip, at no cost where nothing sticks out; neighbours may stay apart then."""
    if ranges and low <= ranges[0] and ranges[-2] + ranges[-1] <= high:
        return ranges
    return clip(ranges, low, high)


def clip(ranges: Sequence[int], low: int, high: int) -> Ranges:
    """The part in [low, high)."""
    return intersect(ranges, [low, high - low]) if high > low else []

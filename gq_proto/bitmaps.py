"""Offset sets: roaring bitmaps and flat ranges [low, count, ...], and the ways between them.

Bounded work on hostile input: nothing here fills a bitmap with a range that was not clipped to what exists first.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pyroaring import BitMap64

from gq_proto import codec

TOP: Final = 2**63          # above every offset
SHORT: Final = 4_096        # bitmaps that are walked member by member
FEW: Final = 4              # ranges that are added one by one, and told number by number
Told = list[int] | bytes    # many ranges that ascend are told in roaring's portable 64-bit format


def bitmap_of(ranges: Sequence[int]) -> BitMap64:
    """Of ranges that are known to be small."""
    if len(ranges) > 2 * FEW and (made := _at_once(ranges)) is not None:
        return made
    bitmap = BitMap64()
    for at in range(0, len(ranges), 2):
        bitmap.add_range(ranges[at], ranges[at] + ranges[at + 1])
    return bitmap


def _packed(ranges: Sequence[int]) -> bytes | None:
    """None when they do not ascend."""
    try:
        return codec.ranges_roaring(ranges)
    except ValueError:
        return None


def _at_once(ranges: Sequence[int]) -> BitMap64 | None:
    packed = _packed(ranges)
    return None if packed is None else BitMap64.deserialize(packed)


def tell(ranges: Sequence[int]) -> Told:
    """For the journal."""
    if len(ranges) > 2 * FEW and (packed := _packed(ranges)) is not None:
        return packed
    return ranges if isinstance(ranges, list) else list(ranges)


def bitmap_told(told: Told) -> BitMap64:
    """ValueError for bytes that nobody told."""
    return BitMap64.deserialize(told) if isinstance(told, bytes) else bitmap_of(told)


def heard(told: Told) -> tuple[list[int], BitMap64]:
    """What was told: ranges and their bitmap. ValueError for bytes that nobody told."""
    bitmap = bitmap_told(told)
    return told if isinstance(told, list) else ranges_of(bitmap), bitmap


def bitmap_between(low: int, high: int) -> BitMap64:
    """[low, high)"""
    bitmap = BitMap64()
    bitmap.add_range(low, high)
    return bitmap


def ranges_of(bitmap: BitMap64, limit: int = 2**62) -> list[int]:
    """Sorted; at most `limit` ranges, the lowest."""
    if not bitmap:
        return []
    low, count = bitmap.min(), len(bitmap)
    if bitmap.max() - low + 1 == count:
        return [low, count]
    return codec.ranges_of(bitmap.to_array())[:2 * limit] if count <= SHORT else _long_ranges(bitmap, low, limit)


def _long_ranges(bitmap: BitMap64, first: int, limit: int) -> list[int]:
    """Long runs one by one, short ones by windows of members."""
    ranges: list[int] = []
    low: int | None = first
    while low is not None and len(ranges) < 2 * limit:
        high = run_end(bitmap, low)
        if high - low >= SHORT:
            ranges += (low, high - low)
        else:
            high = low + 2 * SHORT
            inside = bitmap & bitmap_between(low, high)
            found = codec.ranges_of(inside.to_array())
            if found[-2] + found[-1] == high:
                high = run_end(bitmap, high)
                found[-1] = high - found[-2]
            ranges += found
        low = next_in(bitmap, high)
    return ranges[:2 * limit]


def next_in(bitmap: BitMap64, offset: int) -> int | None:
    """The first one at or above offset."""
    if not bitmap or offset > bitmap.max():
        return None
    return int(bitmap.next_set_bit(offset))


def run_end(bitmap: BitMap64, low: int) -> int:
    """The first offset at or above low that is not in it. Gallops: O(log of the run)."""
    step, high = 1, low
    while bitmap.contains_range(high, high + step):
        high += step
        step *= 2
    while step > 1:
        step //= 2
        if bitmap.contains_range(high, high + step):
            high += step
    return high


def first_of(ranges: Sequence[int], n: int) -> Sequence[int]:
    """The first n offsets, in the order of the ranges."""
    return codec.ranges_head(ranges, n)


def clipped(ranges: list[int], low: int, high: int) -> tuple[BitMap64, list[int]]:
    """What of ranges lies in [low, high), and the ranges that stick out, whole parts: never fills more than the span."""
    if len(ranges) > 2 * FEW and low <= ranges[0] and ranges[-2] + ranges[-1] <= high:
        made = _at_once(ranges)
        if made is not None:
            return made, []
    inside = BitMap64()
    outside: list[int] = []
    for at in range(0, len(ranges), 2):
        a, b = ranges[at], ranges[at] + ranges[at + 1]
        if a >= low and b <= high:
            inside.add_range(a, b)
            continue
        c, d = max(a, low), min(b, high)
        if c >= d:
            outside += (a, b - a)
            continue
        inside.add_range(c, d)
        if a < c:
            outside += (a, c - a)
        if d < b:
            outside += (d, b - d)
    return inside, outside


def within(bitmap: BitMap64, low: int, high: int) -> BitMap64:
    """bitmap & [low, high), whatever high is."""
    if not bitmap:
        return BitMap64()
    high = min(high, bitmap.max() + 1)
    return bitmap & bitmap_between(low, high) if low < high else BitMap64()


def union_of(bitmaps: Iterable[BitMap64]) -> BitMap64:
    out = BitMap64()
    for bitmap in bitmaps:
        out |= bitmap
    return out

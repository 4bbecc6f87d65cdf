"""The pure codec's flat ranges [low, count, low, count, ...]: what is done with very many of them. See `gq_proto.ranges`.

Lists that ascend are taken where nothing else is said: no range empty, none begins before the last one ended.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Final, overload

ARRAY_MAX: Final = 4_096        # members of an array container


def ranges_ascend(ranges: Sequence[int]) -> bool:
    """Pairs within 63 bits, none empty, none beginning below 0 or before the last one ended."""
    end = 0
    if len(ranges) % 2:
        return False
    for at in range(0, len(ranges), 2):
        if ranges[at] < end or ranges[at + 1] <= 0:
            return False
        end = ranges[at] + ranges[at + 1]
    return end < 2**63


def ranges_of(offsets: Iterable[int]) -> list[int]:
    """Canonical ranges of offsets in any order, duplicates allowed."""
    out: list[int] = []
    end = -1
    for offset in sorted(set(offsets)):
        if offset == end and out:
            out[-1] += 1
        else:
            out += (offset, 1)
        end = offset + 1
    return out


def ranges_offsets(ranges: Sequence[int]) -> list[int]:
    """Every offset of ranges in any order, in theirs."""
    out: list[int] = []
    for at in range(0, len(ranges), 2):
        out += range(ranges[at], ranges[at] + ranges[at + 1])
    return out


def ranges_count(ranges: Sequence[int]) -> int:
    """Offsets of ranges in any order. OverflowError for more than there can be."""
    count = sum([ranges[at + 1] for at in range(0, len(ranges), 2)])
    if count >= 2**63:
        raise OverflowError("more than 63 bits of offsets")
    return count


def ranges_are(ranges: Sequence[int], offsets: list[int]) -> bool:
    """Whether these are the offsets of the ranges, in their order, whatever that is."""
    return len(offsets) == sum(ranges[1::2]) and offsets == ranges_offsets(ranges)


@overload
def ranges_head(ranges: "array[int]", most: int) -> "array[int]": ...
@overload
def ranges_head(ranges: list[int] | tuple[int, ...], most: int) -> list[int]: ...
@overload
def ranges_head(ranges: Sequence[int], most: int) -> "list[int] | array[int]": ...


def ranges_head(ranges: Sequence[int], most: int) -> "list[int] | array[int]":
    """The first `most` offsets, in the order of the ranges, whatever that is. Of an array an array."""
    out: list[int] = []
    for at in range(0, len(ranges), 2):
        if most <= 0:
            break
        out += (ranges[at], min(most, ranges[at + 1]))
        most -= ranges[at + 1]
    return array("q", out) if isinstance(ranges, array) else out


def ranges_tail(ranges: Sequence[int], passed: int) -> list[int]:
    """All but the first `passed` offsets, in the order of the ranges, whatever that is."""
    out: list[int] = []
    for at in range(0, len(ranges), 2):
        step = min(max(passed, 0), ranges[at + 1])
        passed -= step
        if step < ranges[at + 1]:
            out += (ranges[at] + step, ranges[at + 1] - step)
    return out


def ranges_find(ranges: Sequence[int], offset: int) -> int:
    """How many offsets stand before `offset` in the order of the ranges, whatever that is; -1 when it is in none."""
    before = 0
    for at in range(0, len(ranges), 2):
        if ranges[at] <= offset < ranges[at] + ranges[at + 1]:
            return before + offset - ranges[at]
        before += ranges[at + 1]
    return -1


def ranges_intersect(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Offsets in both, canonical."""
    out: list[int] = []
    a = b = 0
    while a < len(one) and b < len(other):
        one_end, other_end = one[a] + one[a + 1], other[b] + other[b + 1]
        _add(out, max(one[a], other[b]), min(one_end, other_end))
        if one_end <= other_end:
            a += 2
        else:
            b += 2
    return out


def ranges_subtract(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Offsets of `one` that are not in `other`, canonical."""
    out: list[int] = []
    b = 0
    for a in range(0, len(one), 2):
        low, end = one[a], one[a] + one[a + 1]
        while b < len(other) and other[b] + other[b + 1] <= low:
            b += 2
        c = b
        while c < len(other) and other[c] < end:
            _add(out, low, other[c])
            low = max(low, other[c] + other[c + 1])
            c += 2
        _add(out, low, end)
    return out


def ranges_union(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Offsets in either, canonical."""
    out: list[int] = []
    a = b = 0
    while a < len(one) or b < len(other):
        if b >= len(other) or (a < len(one) and one[a] <= other[b]):
            _add(out, one[a], one[a] + one[a + 1])
            a += 2
        else:
            _add(out, other[b], other[b] + other[b + 1])
            b += 2
    return out


def _add(out: list[int], low: int, end: int) -> None:
    """Append [low, end), which begins at or after the last range's begin."""
    if low >= end:
        return
    if out and low <= out[-2] + out[-1]:
        out[-1] = max(out[-1], end - out[-2])
    else:
        out += (low, end - low)


def ranges_roaring(ranges: Sequence[int]) -> bytes:
    """Ascending ranges as a roaring bitmap in its portable 64-bit format (github.com/RoaringBitmap/RoaringFormatSpec).

    Offsets that differ in more than their lowest 16 bits are in different containers: arrays where runs are short and members few,
    else runs. ValueError for ranges that do not ascend."""
    if not ranges_ascend(ranges):
        raise ValueError("ranges must ascend")
    buckets: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for at in range(0, len(ranges), 2):
        low, end = ranges[at], ranges[at] + ranges[at + 1]
        while low < end:
            high = min(end, (low | 0xFFFF) + 1)
            runs = buckets.setdefault(low >> 32, {}).setdefault(low >> 16 & 0xFFFF, [])
            if runs and runs[-1][1] + 1 == low & 0xFFFF:
                runs[-1] = runs[-1][0], high - 1 & 0xFFFF
            else:
                runs.append((low & 0xFFFF, high - 1 & 0xFFFF))
            low = high
    out = bytearray(len(buckets).to_bytes(8, "little"))
    for key, containers in buckets.items():
        out += key.to_bytes(4, "little") + _bucket(containers)
    return bytes(out)


def _bucket(containers: dict[int, list[tuple[int, int]]]) -> bytes:
    counts = [sum(last - first + 1 for first, last in runs) for runs in containers.values()]
    packed = [count > ARRAY_MAX or 2 * len(runs) < count for count, runs in zip(counts, containers.values())]
    flags = sum(1 << number for number, run in enumerate(packed) if run)
    size = len(counts)
    out = bytearray()
    if flags:
        out += (12347 | size - 1 << 16).to_bytes(4, "little") + flags.to_bytes((size + 7) // 8, "little")
    else:
        out += (12346).to_bytes(4, "little") + size.to_bytes(4, "little")
    for key, count in zip(containers, counts):
        out += key.to_bytes(2, "little") + (count - 1).to_bytes(2, "little")
    bodies = [_container(runs, run) for runs, run in zip(containers.values(), packed)]
    if not flags or size >= 4:
        position = len(out) + 4 * size
        for body in bodies:
            out += position.to_bytes(4, "little")
            position += len(body)
    return bytes(out + b"".join(bodies))


def _container(runs: list[tuple[int, int]], packed: bool) -> bytes:
    if packed:
        return len(runs).to_bytes(2, "little") + b"".join(
            first.to_bytes(2, "little") + (last - first).to_bytes(2, "little") for first, last in runs)
    return b"".join(member.to_bytes(2, "little") for first, last in runs for member in range(first, last + 1))

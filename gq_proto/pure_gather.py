"""The pure codec's `gather`: records of scattered offset ranges out of one segment file, with few reads.

It plans with the segment's `.index`: a range lies between the last point at or below its first offset and the first point at or
above its end. Neighbouring ranges share a read. Offsets in a segment are consecutive, so a record that does not follow on the
one before is damage, also where it was only passed over: a flipped offset never hides the records behind it.
"""

import os
from array import array
from collections.abc import Sequence
from typing import Final

from gq_proto import record as r
from gq_proto.found import Gathered
from gq_proto.limits import SPAN_BYTES_MAX
from gq_proto.pure_walk import crc_of, parse

SLACK: Final = 16 * 1024      # reading on is cheaper than another read


class _Index:
    """Packed >II points (offset - base, position)."""

    def __init__(self, packed: bytes, base: int) -> None:
        self._packed, self._base = packed, base
        self._count = len(packed) // 8
        self._near = 0          # the last point that was asked for

    def _offset(self, point: int) -> int:
        return self._base + int.from_bytes(self._packed[point * 8 : point * 8 + 4])

    def _position(self, point: int) -> int:
        return int.from_bytes(self._packed[point * 8 + 4 : point * 8 + 8])

    def before(self, offset: int) -> tuple[int, int]:
        """(position, offset) of the last point at or below `offset`; (-1, -1) if there is none."""
        point = self._find(offset)
        return (self._position(point), self._offset(point)) if point >= 0 else (-1, -1)

    def behind(self, offset: int, end: int) -> int:
        """Position of the first point at or above `offset`, at most `end`."""
        point = self._find(offset - 1) + 1
        return min(self._position(point), end) if point < self._count else end

    def _find(self, offset: int) -> int:
        """Number of the last point at or below `offset`, -1 if there is none. One near the last asked for is found soon."""
        low, step = self._near, 1
        if self._reaches(low, offset):
            while self._reaches(low + step, offset):
                low, step = low + step, 2 * step
            high = min(low + step, self._count)
        else:
            low, high = -1, min(low, self._count)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._reaches(middle, offset) else (low, middle)
        self._near = max(low, 0)
        return low

    def _reaches(self, point: int, offset: int) -> bool:
        return point < self._count and self._offset(point) <= offset


def gather(fd: int, start_position: int, end_position: int, ranges: Sequence[int], index: bytes = b"", base: int = 0,
           max_bytes: int = 2**62) -> Gathered:
    """The records of the flat, sorted `ranges` between two positions of the file `fd`; a record begins at `start_position`.

    CRC checked; at least one record where there is one, and no further one once `max_bytes` are there. A damaged record ends the
    walk: `bad` is its position. What was found is an array if `ranges` is one, else a list. OSError is the caller's."""
    if len(ranges) % 2:
        raise ValueError("flat ranges come in pairs: low, count")
    points = _Index(index, base)
    out, found = bytearray(), list[int]()
    at, expected, number, need = start_position, -1, 0, 0
    while number < len(ranges) and at < end_position and len(out) < max_bytes:
        jump, offset = points.before(ranges[number])
        if jump > at and jump < end_position:
            at, expected = jump, offset
        stop = _stop(points, at, ranges, number, end_position)
        length = min(max(stop - at, 1), SPAN_BYTES_MAX, max(max_bytes - len(out), 0) + SLACK)
        length = min(max(length, need), end_position - at)
        data = memoryview(os.pread(fd, length, at))
        pos = 0
        while pos < len(data) and number < len(ranges) and len(out) < max_bytes:
            why, head = parse(data, pos, len(data))
            if why == r.SHORT and (pos or len(data) == length < end_position - at):
                break
            if why or head is None or (expected >= 0 and head.offset != expected):
                return Gathered(bytes(out), _as_are(ranges, found), at + pos)
            while number < len(ranges) and ranges[number] + ranges[number + 1] <= head.offset:
                number += 2
            wanted = number < len(ranges) and ranges[number] <= head.offset
            if (wanted or expected < 0) and crc_of(data, pos, head.total) != head.crc:
                return Gathered(bytes(out), _as_are(ranges, found), at + pos)
            if wanted:
                out += data[pos : pos + head.total]
                _extend(found, head.offset)
            expected = head.offset + 1
            pos += head.total
        if not pos and not data:
            return Gathered(bytes(out), _as_are(ranges, found), at)
        need = 0
        if pos < len(data):
            _, head = parse(data, pos, len(data))
            need = head.total if head else r.HEADER_SIZE
        at += pos
    return Gathered(bytes(out), _as_are(ranges, found), -1)


def _stop(points: _Index, at: int, ranges: Sequence[int], number: int, end: int) -> int:
    """Where the read for this range and its near neighbours may end."""
    stop = points.behind(ranges[number] + ranges[number + 1], end)
    for following in range(number + 2, len(ranges), 2):
        if stop - at >= SPAN_BYTES_MAX or points.before(ranges[following])[0] > stop + SLACK:
            break
        stop = max(stop, points.behind(ranges[following] + ranges[following + 1], end))
    return stop


def _as_are(ranges: Sequence[int], found: list[int]) -> Sequence[int]:
    return array("q", found) if isinstance(ranges, array) else found


def _extend(found: list[int], offset: int) -> None:
    if found and found[-2] + found[-1] == offset:
        found[-1] += 1
    else:
        found += (offset, 1)

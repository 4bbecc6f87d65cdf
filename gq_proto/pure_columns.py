"""The pure codec's `columns`: a stretch of log as Arrow-ready buffers, for Spark.

Native byte order, int32 offsets (one more than entries), validity bitmaps with the least significant bit first. Values are as
stored: `flags` say which are compressed. The system's headers are left out.
"""

import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final

from gq_proto import record as r
from gq_proto.errors import Corrupt, TooLarge
from gq_proto.found import Columns
from gq_proto.pure_walk import Head, crc_of, parse, split_headers

_DATA_MAX: Final = 2**31 - 1
_SYSTEM: Final = r.SYSTEM_PREFIX.encode()


class _Bytes:
    """One binary column."""

    def __init__(self) -> None:
        self.offsets, self.data = array("i", [0]), bytearray()

    def add(self, piece: memoryview | bytes) -> None:
        self.data += piece
        if len(self.data) > _DATA_MAX:
            raise TooLarge("a column holds at most 2 GiB: ask for fewer records")
        self.offsets.append(len(self.data))


class _Valid:
    """One validity bitmap."""

    def __init__(self) -> None:
        self.bits = bytearray()

    def add(self, row: int, valid: bool) -> None:
        if row % 8 == 0:
            self.bits.append(0)
        self.bits[-1] |= valid << row % 8


class _Rows:
    """All columns, row by row."""

    def __init__(self) -> None:
        self.offsets, self.timestamps, self.priorities, self.flags = array("q"), array("q"), bytearray(), bytearray()
        self.keys, self.values, self.names, self.contents = _Bytes(), _Bytes(), _Bytes(), _Bytes()
        self.key_valid, self.value_valid, self.listed = _Valid(), _Valid(), _Valid()
        self.lists = array("i", [0])

    def add(self, buf: memoryview, at: int, head: Head, headers: list[tuple[bytes, bytes]]) -> None:
        row = len(self.offsets)
        value_at = at + r.HEADER_SIZE + head.key_size
        self.offsets.append(head.offset)
        self.timestamps.append(head.timestamp)
        self.priorities.append(head.priority)
        self.flags.append(head.flags)
        self.keys.add(buf[at + r.HEADER_SIZE : value_at])
        self.key_valid.add(row, not head.key_null)
        self.values.add(buf[value_at : value_at + head.value_size])
        self.value_valid.add(row, not head.value_null)
        for name, content in headers:
            self.names.add(name)
            self.contents.add(content)
        self.listed.add(row, bool(headers))
        self.lists.append(len(self.names.offsets) - 1)

    def done(self, size: int, following: int) -> Columns:
        buffers = (self.offsets, self.timestamps, self.priorities, self.flags,
                   self.keys.offsets, self.keys.data, self.key_valid.bits,
                   self.values.offsets, self.values.data, self.value_valid.bits, self.lists, self.listed.bits,
                   self.names.offsets, self.names.data, self.contents.offsets, self.contents.data)
        return Columns(size, following, len(self.offsets), self.lists[-1], *map(bytes, buffers))


def columns(data: Any, lo: int = 0, hi: int = 2**63 - 1, skip: Sequence[int] = (), without: int = r.CONTROL) -> Columns:
    """The records of `data` with lo <= offset < hi, by column. Left out: those inside the flat ranges `skip`, and those with one of
    the flags `without`. CRC and headers of the others are checked; Corrupt for anything but a cut end."""
    assert array("i").itemsize == 4 and sys.byteorder in ("little", "big")
    if len(skip) % 2:
        raise ValueError("flat ranges come in pairs: low, count")
    buf = memoryview(data).cast("B")
    rows, at, end, following, hidden = _Rows(), 0, len(buf), 0, 0
    while at < end:
        why, head = parse(buf, at, end)
        if why == r.SHORT:
            break
        why = r.BAD_OFFSET if not why and head and head.offset < following else why
        if why or head is None:
            raise Corrupt(f"the record at byte {at} {r.WHY[why]}")
        if head.offset >= hi:
            break
        following = head.offset + 1
        while hidden < len(skip) and skip[hidden] + skip[hidden + 1] <= head.offset:
            hidden += 2
        if head.offset >= lo and not head.flags & without and not (hidden < len(skip) and skip[hidden] <= head.offset):
            if crc_of(buf, at, head.total) != head.crc:
                raise Corrupt(f"the record at byte {at} {r.WHY[r.BAD_CRC]}")
            rows.add(buf, at, head, _headers(buf, at, head))
        at += head.total
    return rows.done(at, following)


def _headers(buf: memoryview, at: int, head: Head) -> list[tuple[bytes, bytes]]:
    """An app's; Corrupt."""
    if not head.headers_size:
        return []
    entries = split_headers(bytes(buf[at + head.total - head.headers_size : at + head.total]))
    if entries is None:
        raise Corrupt(f"the record at byte {at} {r.WHY[r.BAD_HEADERS]}")
    return [entry for entry in entries if not entry[0].startswith(_SYSTEM)]

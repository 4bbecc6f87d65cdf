"""The pure codec's `columns`: a stretch of log as Arrow-ready buffers, for Spark.

Native byte order, int32 offsets (count + 1 of them), validity bitmaps with the least significant bit first. Values are as stored:
`flags` say which are compressed. Control records and offsets outside [lo, hi) are left out; a cut last record is not there.
"""

import sys
from array import array
from typing import Any, Final

from gq_proto import record as r
from gq_proto.errors import Corrupt, TooLarge
from gq_proto.found import Columns
from gq_proto.pure_walk import crc_of, parse

_DATA_MAX: Final = 2**31 - 1


class _Bytes:
    """One binary column."""

    def __init__(self) -> None:
        self.offsets, self.data, self.valid = array("i", [0]), bytearray(), bytearray()

    def add(self, piece: memoryview, null: bool) -> None:
        row = len(self.offsets) - 1
        if row % 8 == 0:
            self.valid.append(0)
        self.valid[-1] |= (not null) << row % 8
        self.data += piece
        if len(self.data) > _DATA_MAX:
            raise TooLarge("a column holds at most 2 GiB: ask for fewer records")
        self.offsets.append(len(self.data))


def columns(data: Any, lo: int = 0, hi: int = 2**63 - 1) -> Columns:
    """The records of `data` with lo <= offset < hi, by column. CRC checked; Corrupt for anything but a cut end."""
    assert array("i").itemsize == 4 and sys.byteorder in ("little", "big")
    buf = memoryview(data).cast("B")
    offsets, timestamps, priorities, flags = array("q"), array("q"), bytearray(), bytearray()
    keys, values, headers = _Bytes(), _Bytes(), _Bytes()
    at, end, following = 0, len(buf), 0
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
        if head.offset >= lo and not head.flags & r.CONTROL:
            if crc_of(buf, at, head.total) != head.crc:
                raise Corrupt(f"the record at byte {at} {r.WHY[r.BAD_CRC]}")
            value_at = at + r.HEADER_SIZE + head.key_size
            headers_at = value_at + head.value_size
            offsets.append(head.offset)
            timestamps.append(head.timestamp)
            priorities.append(head.priority)
            flags.append(head.flags)
            keys.add(buf[at + r.HEADER_SIZE : value_at], head.key_null)
            values.add(buf[value_at:headers_at], head.value_null)
            headers.add(buf[headers_at : at + head.total], False)
        at += head.total
    return Columns(len(offsets), offsets.tobytes(), timestamps.tobytes(), bytes(priorities), bytes(flags),
                   keys.offsets.tobytes(), bytes(keys.data), bytes(keys.valid),
                   values.offsets.tobytes(), bytes(values.data), bytes(values.valid),
                   headers.offsets.tobytes(), bytes(headers.data))

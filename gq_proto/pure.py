"""The record codec in plain Python: the twin of `_codec`, used where no compiler was at hand, and the oracle in tests.

Owns every walk over records: stamp (the leader's hot path), scan (recovery, verify), find_valid, locate, check, gather, decode,
columns. Same names, results, errors and bytes as the compiled one; hypothesis tests hold them to each other. Only `gather`
touches a file descriptor. A walk checks a record's CRC before it believes anything but the lengths.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from crc32c import crc32c as _crc32c

from gq_proto import record as r
from gq_proto.compression import compress, decompress
from gq_proto.errors import Corrupt
from gq_proto.found import Batch, FoundBatch, FoundControl, OpenBatch, Scan, Stamped
from gq_proto.headers import DELAY_US_MAX
from gq_proto.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    INDEX_INTERVAL_BYTES,
    TIME_INDEX_INTERVAL_MS,
    TIMESTAMP_SKEW_US_MAX,
    USER_HEADERS_MAX,
    VALUE_MAX,
)
from gq_proto.message import Record
from gq_proto.pure_build import BatchBuilder, Bytes, decode_headers, encode_headers, partition_of
from gq_proto.pure_columns import columns
from gq_proto.pure_gather import gather
from gq_proto.pure_ranges import (
    ranges_are,
    ranges_ascend,
    ranges_count,
    ranges_find,
    ranges_head,
    ranges_intersect,
    ranges_of,
    ranges_offsets,
    ranges_roaring,
    ranges_subtract,
    ranges_tail,
    ranges_union,
)
from gq_proto.pure_runs import (
    extend_runs,
    lane_counts,
    lane_ranges,
    lane_totals,
    lanes_within,
    runs_by_lane,
    select_runs,
)
from gq_proto.pure_walk import Head, crc_body, crc_from, crc_of, parse, section

__all__ = ["NAME", "BatchBuilder", "Record", "check", "columns", "compress", "crc32c", "decode", "decode_headers", "decompress",
           "encode_headers", "extend_runs", "find_valid", "gather", "lane_counts", "lane_ranges", "lane_totals", "lanes_within",
           "locate", "partition_of", "ranges_are", "ranges_ascend", "ranges_count", "ranges_find", "ranges_head",
           "ranges_intersect", "ranges_of", "ranges_offsets", "ranges_roaring", "ranges_subtract", "ranges_tail", "ranges_union",
           "runs_by_lane", "scan", "select_runs", "stamp"]

NAME: Final = "pure"
TIME_INTERVAL_US: Final = TIME_INDEX_INTERVAL_MS * 1000

_STAMP: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")

_R = TypeVar("_R", bound=Record)


def crc32c(data: Bytes, value: int = 0) -> int:
    """CRC-32C of `data`, continuing from `value`."""
    return int(_crc32c(data, value))


class _Notes:
    """What stamp and scan collect on their way."""

    def __init__(self, segment_base: int, last_index_position: int, last_timestamp: int, last_time_point: int,
                 index_interval: int, time_interval_us: int) -> None:
        self.segment_base, self.last_index_position, self.index_interval = segment_base, last_index_position, index_interval
        self.max_timestamp, self.last_time_point, self.time_interval = last_timestamp, last_time_point, time_interval_us
        self.count, self.flags = 0, 0
        self.runs: list[int] = []
        self.due: list[int] = []
        self.times: list[int] = []
        self.index = bytearray()
        self.controls: list[FoundControl] = []

    def note(self, buf: memoryview, at: int, head: Head, offset: int, timestamp: int, position: int) -> None:
        """A record that was found good, at file position `position`."""
        self.count += 1
        self.flags |= head.flags
        kind = r.kind_of(head.flags, head.priority)
        if self.runs and self.runs[-1] == kind:
            self.runs[-2] += 1
        else:
            self.runs += (offset, 1, kind)
        relative = offset - self.segment_base
        if position - self.last_index_position >= self.index_interval and 0 <= relative < 2**32 and position < 2**32:
            self.index += relative.to_bytes(4) + position.to_bytes(4)       # an index has no place for others
            self.last_index_position = position
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            if timestamp - self.last_time_point >= self.time_interval:
                self.times += (timestamp, offset)
                self.last_time_point = timestamp
        if head.flags & r.CONTROL:
            key = at + r.HEADER_SIZE
            self.controls.append(FoundControl(offset, int.from_bytes(buf[key + 2 : key + 4]),
                                              bytes(buf[key + 4 : key + 4 + head.value_size])))


def stamp(frame: Any, base_offset: int, timestamp_us: int, *, create: bool = False, internal: bool = False, position: int = 0,
          segment_base: int = 0, last_index_position: int = 0, max_value: int = VALUE_MAX, last_timestamp: int = 0,
          last_time_point: int = 0, index_interval: int = INDEX_INTERVAL_BYTES,
          time_interval_us: int = TIME_INTERVAL_US) -> Stamped:
    """Validate a batch from outside and stamp it in place: offsets from `base_offset`, `timestamp_us` (or, with `create`, the
    producer's own within an hour of it), CRC. `position` is where the frame will lie in its segment, whose base is
    `segment_base`. `internal` admits control records and all system headers. Any violation is BadRecord, TooLarge or
    TimestampSkew that names the record; the frame is then half stamped and must be thrown away."""
    buf = memoryview(frame).cast("B")
    if buf.readonly:
        raise BufferError("stamp writes in place: the frame must be writable")
    end = len(buf)
    if not end:
        raise r.violation(r.EMPTY, 0, 0)
    notes = _Notes(segment_base, last_index_position, last_timestamp, last_time_point, index_interval, time_interval_us)
    batch: Batch | None = None
    at = 0
    while at < end:
        why, head = parse(buf, at, end)
        if why or head is None:
            raise r.violation(why, notes.count, at)
        if head.value_size > max_value:
            raise r.violation(r.LONG_VALUE, notes.count, at)
        if notes.count == BATCH_MESSAGES_MAX or (end > BATCH_BYTES_MAX and head.total < end):
            raise r.violation(r.LONG_BATCH, notes.count, at)
        body = crc_body(buf, at, head.total)
        if crc_from(body, buf, at) != head.crc:
            raise r.violation(r.BAD_CRC, notes.count, at)
        if head.flags & r.CONTROL and not internal:
            raise r.violation(r.FORBIDDEN_CONTROL, notes.count, at)
        timestamp = head.timestamp if create else timestamp_us
        if abs(timestamp - timestamp_us) > TIMESTAMP_SKEW_US_MAX:
            raise r.violation(r.SKEWED, notes.count, at)
        offset = base_offset + notes.count
        if head.headers_size or head.flags & (r.BATCH | r.DELAYED):
            why, said = section(buf, at, head)
            due = said.due + timestamp if said.delay == 2 else said.due
            if why or said.user_size > USER_HEADERS_MAX or (said.system and not internal) or (said.batch and notes.count) \
                    or (said.delay and due - timestamp > DELAY_US_MAX):
                why = why or (r.LONG_HEADERS if said.user_size > USER_HEADERS_MAX else r.FORBIDDEN_HEADER
                              if said.system and not internal else r.BAD_BATCH if said.batch and notes.count else r.LONG_DELAY)
                raise r.violation(why, notes.count, at)
            batch = Batch(*said.batch) if said.batch else batch
            if said.delay:
                notes.due += (offset, due)
        _STAMP.pack_into(buf, at + 8, offset, timestamp)
        _CRC.pack_into(buf, at + 4, crc_from(body, buf, at))
        notes.note(buf, at, head, offset, timestamp, position + at)
        at += head.total
    if batch and batch.count != notes.count:
        raise r.violation(r.BAD_BATCH, 0, 0)
    return Stamped(notes.count, end, base_offset, base_offset + notes.count, notes.max_timestamp, notes.flags, notes.runs,
                   notes.due, bytes(notes.index), notes.times, batch, notes.controls, notes.last_index_position,
                   notes.last_time_point)


def _valid(buf: memoryview, at: int, end: int) -> tuple[int, Head | None]:
    """parse, and the CRC."""
    why, head = parse(buf, at, end)
    if head is not None and not why and crc_of(buf, at, head.total) != head.crc:
        why = r.BAD_CRC
    return why, head


_REASONS: Final = {r.SHORT: "short", r.BAD_CRC: "crc", r.BAD_OFFSET: "offset"}


def scan(data: Any, start: int = 0, expected_offset: int = -1, *, base_position: int = 0, segment_base: int = 0,
         last_index_position: int = 0, last_timestamp: int = 0, last_time_point: int = 0,
         index_interval: int = INDEX_INTERVAL_BYTES, time_interval_us: int = TIME_INTERVAL_US) -> Scan:
    """Walk the records of a log from byte `start` of `data`, whose first byte lies at file position `base_position`: CRC checked,
    offsets consecutive from `expected_offset` (-1: from whatever comes first). Never raises for what it finds."""
    if start < 0:
        raise ValueError("a scan begins at a position, not before it")
    buf = memoryview(data).cast("B")
    notes = _Notes(segment_base, last_index_position, last_timestamp, last_time_point, index_interval, time_interval_us)
    batches: list[FoundBatch] = []
    at, end, expected, first, batch_at, batch_left = start, len(buf), expected_offset, -1, 0, 0
    why, head = r.OK, None
    while at < end:
        why, head = _valid(buf, at, end)
        if why or head is None:
            break
        if expected >= 0 and head.offset != expected:
            why = r.BAD_OFFSET
            break
        if head.flags & (r.BATCH | r.DELAYED):
            why, said = section(buf, at, head)
            if why:
                break
            if said.batch:
                batches.append(FoundBatch(head.offset, *said.batch))
                batch_at, batch_left = at, said.batch[3]
            if said.delay:
                notes.due += (head.offset, said.due + head.timestamp if said.delay == 2 else said.due)
        first = head.offset if first < 0 else first
        notes.note(buf, at, head, head.offset, head.timestamp, base_position + at)
        batch_left -= batch_left > 0
        expected = head.offset + 1
        at += head.total
    open_batch = None
    if batch_left:
        last = batches[-1]
        open_batch = OpenBatch(base_position + batch_at, last.offset, last.count - batch_left, last.count)
    reason = "end" if not why else "header" if why == r.BAD_OFFSET and head is None else _REASONS.get(why, "header")
    detail = f"the record at position {base_position + at} {r.WHY[why]}" if why else ""
    return Scan(notes.count, base_position + at, first, expected, notes.max_timestamp, notes.flags, notes.runs, notes.due,
                bytes(notes.index), notes.times, batches, notes.controls, notes.last_index_position, notes.last_time_point,
                reason, detail, open_batch)


def find_valid(data: Any, start: int, min_offset: int, max_offset: int) -> int:
    """Position of the next valid record at or after `start` with min_offset <= offset <= max_offset; -1 if there is none."""
    buf = memoryview(data).cast("B")
    raw = data if hasattr(data, "find") else bytes(buf)     # an mmap has it too
    magic = r.MAGIC + bytes([r.VERSION])
    at = raw.find(magic, max(start, 0))
    while at >= 0:
        why, head = parse(buf, at, len(buf))
        if not why and head and min_offset <= head.offset <= max_offset and crc_of(buf, at, head.total) == head.crc:
            return int(at)
        at = raw.find(magic, at + 1)
    return -1


def locate(data: Any, start: int, offset: int) -> int:
    """Position of the first record at or after `offset`, walking headers from the record at `start` without their CRCs; -1 when
    it does not begin in `data`, or the walk meets something that is no header."""
    buf = memoryview(data).cast("B")
    at, end = start, len(buf)
    while 0 <= at < end:
        _, head = parse(buf, at, end)
        if head is None:
            return -1
        if head.offset >= offset:
            return at
        at += head.total
    return -1


def check(data: Any) -> tuple[int, int, int, int]:
    """(bytes, count, first offset, next offset) of the valid records `data` begins with: whole, CRC right, offsets ascending."""
    buf = memoryview(data).cast("B")
    at, count, first, following = 0, 0, -1, -1
    while at < len(buf):
        why, head = _valid(buf, at, len(buf))
        if why or head is None or head.offset < following:
            break
        first = head.offset if first < 0 else first
        following = head.offset + 1
        count += 1
        at += head.total
    return at, count, first, following


def decode(data: Any, cls: type[_R] = Record, topic: str = "", partition: int = 0, owner: object = None, delivery: int = 1,  # type: ignore[assignment]
           lo: int = 0, hi: int = 2**63 - 1, skip: Sequence[int] = (), only: Sequence[int] | None = None) -> list[_R]:
    """The records of a fetch reply as objects of `cls`, made without calling its __init__. Left out: control records, offsets
    outside [lo, hi), inside the flat ranges `skip`, and outside those of `only`, if there are any: both ascend. A last record that
    is cut short is not there; anything else that is wrong raises Corrupt, unless it lies behind all that is wanted."""
    if len(skip) % 2 or len(only or ()) % 2:
        raise ValueError("flat ranges come in pairs: low, count")
    buf = memoryview(data).cast("B")
    at, end, following, found, hidden, wanted = 0, len(buf), 0, [], 0, 0
    while at < end:
        why, head = parse(buf, at, end)
        if why == r.SHORT:
            break
        if why or head is None:
            raise Corrupt(f"the record at byte {at} of a reply for {topic}/{partition} {r.WHY[why]}")
        offset = head.offset
        if offset < following:
            raise Corrupt(f"the record at byte {at} of a reply for {topic}/{partition} {r.WHY[r.BAD_OFFSET]}")
        if offset >= hi:
            break
        following = offset + 1
        while hidden < len(skip) and skip[hidden] + skip[hidden + 1] <= offset:
            hidden += 2
        if only is not None:
            while wanted < len(only) and only[wanted] + only[wanted + 1] <= offset:
                wanted += 2
            if wanted >= len(only):
                break
            if offset < only[wanted]:
                at += head.total
                continue
        if offset >= lo and not head.flags & r.CONTROL and not (hidden < len(skip) and skip[hidden] <= offset):
            if crc_of(buf, at, head.total) != head.crc:
                raise Corrupt(f"the record at byte {at} of a reply for {topic}/{partition} {r.WHY[r.BAD_CRC]}")
            found.append(_made(cls, buf, at, head, topic, partition, owner, delivery))
        at += head.total
    return found


def _made(cls: type[_R], buf: memoryview, at: int, head: Head, topic: str, partition: int, owner: object, delivery: int) -> _R:
    made = cls.__new__(cls)
    key_at = at + r.HEADER_SIZE
    value_at = key_at + head.key_size
    headers_at = value_at + head.value_size
    made.topic, made.partition, made.owner, made.delivery = topic, partition, owner, delivery
    made.offset, made.timestamp, made.priority, made.flags = head.offset, head.timestamp, head.priority, head.flags
    made.key = None if head.key_null else bytes(buf[key_at:value_at])
    made.raw_value = None if head.value_null else bytes(buf[value_at:headers_at])
    made.raw_headers = bytes(buf[headers_at : at + head.total])
    return made

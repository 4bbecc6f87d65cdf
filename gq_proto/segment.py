"""The files of a segment: names, and the layout of everything derived from the log.

    {base offset, 20 digits}.log     records end to end, nothing else
    .index .timeindex .runs .due .txnindex beside it: derived, rebuilt from the .log when missing or bad

A derived file is a header and blocks. A block carries the entries of some records *and says how far into the log they reach*, so
a torn or unsynced file of the active segment is no loss: the reader keeps the blocks that are whole, and the log is scanned from
where the last one ends. A sealed segment's file ends with a footer block.

    header   magic "GQ", kind u8 ("i" "t" "r" "d" "x"), version u8 (1), zero u32, base offset u64
    block    type u8 (0 entries, 1 footer), zero u24, payload size u32, log position u64, next offset u64, crc u32, payload
             crc = CRC-32C over the 24 bytes before it, then the payload, continued from the block before (from the file
             header's CRC for the first): a block that is missing, out of place or another file's is found out
    entries  .index       offset - base u32, position u32
             .timeindex   timestamp u64, offset - base u32
             .runs        offset - base u32, count u32, kind u8
             .due         offset u64, due microseconds u64
             .txnindex    low u64, count u32: exact ranges of aborted records, in the segment of their abort marker
    footer   .runs        5 x (count u32, first offset - base u32 or 0xFFFFFFFF) by lane, control records left out
             .timeindex   maximum timestamp u64;  others: empty

A run that a block's end cuts in two goes on in the next block; readers join it. Owns layout only: no file is touched here.
"""

import struct
from bisect import bisect_left
from enum import Enum
from typing import Final

from crc32c import crc32c
from msgspec import Struct

from gq_proto.limits import PRIORITIES

LOG_SUFFIX: Final = ".log"
NAME_DIGITS: Final = 20
VERSION: Final = 1

_HEADER: Final = struct.Struct(">2scBIQ")
_BLOCK: Final = struct.Struct(">B3xIQQI")
_CRC_AT: Final = _BLOCK.size - 4
_LANE: Final = struct.Struct(">II")
_NO_LANE: Final = 0xFFFF_FFFF
_ENTRIES, _FOOTER = 0, 1
assert _HEADER.size == 16 and _BLOCK.size == 28

INDEX_ENTRY: Final = struct.Struct(">II")
TIME_ENTRY: Final = struct.Struct(">QI")
RUN_ENTRY: Final = struct.Struct(">IIB")
DUE_ENTRY: Final = struct.Struct(">QQ")
TXN_ENTRY: Final = struct.Struct(">QI")


class Derived(Enum):
    """The derived files. The value is the suffix."""

    INDEX = ".index"
    TIMEINDEX = ".timeindex"
    RUNS = ".runs"
    DUE = ".due"
    TXNINDEX = ".txnindex"

    @property
    def letter(self) -> bytes:
        return _LETTERS[self]

    @property
    def entry(self) -> struct.Struct:
        return _ENTRY[self]


_LETTERS: Final = {Derived.INDEX: b"i", Derived.TIMEINDEX: b"t", Derived.RUNS: b"r", Derived.DUE: b"d", Derived.TXNINDEX: b"x"}
_ENTRY: Final = {Derived.INDEX: INDEX_ENTRY, Derived.TIMEINDEX: TIME_ENTRY, Derived.RUNS: RUN_ENTRY, Derived.DUE: DUE_ENTRY,
                 Derived.TXNINDEX: TXN_ENTRY}


class DerivedFile(Struct, frozen=True):
    """What of a derived file is good. The log is covered up to `position` and `next_offset`; to go on, cut the file to `size` and
    append blocks that continue from `crc`. `size` 0: begin anew with `derived_header`."""

    payload: bytes
    position: int
    next_offset: int
    footer: bytes | None
    size: int
    crc: int
    damaged: bool       # bytes followed that were no block


def segment_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """`00000000000000000042.log`"""
    return f"{base_offset:0{NAME_DIGITS}d}{suffix}"


def base_offset_of(name: str, suffix: str = LOG_SUFFIX) -> int | None:
    """The base offset in a segment file's name; None for any other name."""
    digits = name.removesuffix(suffix)
    if not name.endswith(suffix) or len(digits) != NAME_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    base = int(digits)
    return base if base < 2**63 else None


def derived_header(kind: Derived, base_offset: int) -> tuple[bytes, int]:
    """The first bytes of a derived file, and the CRC its first block continues from."""
    header = _HEADER.pack(b"GQ", kind.letter, VERSION, 0, base_offset)
    return header, crc32c(header)


def derived_block(crc: int, payload: bytes | bytearray, position: int, next_offset: int, *,
                  footer: bool = False) -> tuple[bytes, int]:
    """A block to append, and the CRC the next one continues from. `position` and `next_offset`: how far the log is covered."""
    start = _BLOCK.pack(_FOOTER if footer else _ENTRIES, len(payload), position, next_offset, 0)[:_CRC_AT]
    crc = crc32c(payload, crc32c(start, crc))
    return b"".join((start, crc.to_bytes(4), payload)), crc


def read_derived(raw: bytes, kind: Derived, base_offset: int) -> DerivedFile:
    """The blocks of a derived file that are whole and right. Never raises: what is not good is not there."""
    header, crc = derived_header(kind, base_offset)
    if raw[: len(header)] != header:
        return DerivedFile(b"", 0, base_offset, None, 0, crc, bool(raw))
    at, position, next_offset, footer, payloads = len(header), 0, base_offset, None, []
    while len(raw) - at >= _BLOCK.size and footer is None:
        type_, size, reached, following, said = _BLOCK.unpack_from(raw, at)
        end = at + _BLOCK.size + size
        if end > len(raw) or type_ not in (_ENTRIES, _FOOTER) or reached < position or following < next_offset:
            break
        right = crc32c(raw[at + _BLOCK.size : end], crc32c(raw[at : at + _CRC_AT], crc))
        if right != said or (type_ == _ENTRIES and size % kind.entry.size):
            break
        if type_ == _FOOTER:
            footer = raw[at + _BLOCK.size : end]
        else:
            payloads.append(raw[at + _BLOCK.size : end])
        at, position, next_offset, crc = end, reached, following, right
    return DerivedFile(b"".join(payloads), position, next_offset, footer, at, crc, at != len(raw))


def pack_times(times: list[int], base_offset: int) -> bytes:
    """`.timeindex` entries for flat [timestamp, offset, ...]."""
    return b"".join([TIME_ENTRY.pack(times[at], times[at + 1] - base_offset) for at in range(0, len(times), 2)])


def unpack_times(payload: bytes, base_offset: int) -> list[int]:
    """Flat [timestamp, offset, ...]."""
    return [number for timestamp, offset in TIME_ENTRY.iter_unpack(payload) for number in (timestamp, offset + base_offset)]


def pack_due(due: list[int]) -> bytes:
    """`.due` entries for flat [offset, due us, ...]."""
    return struct.pack(f">{len(due)}Q", *due)


def unpack_due(payload: bytes) -> list[int]:
    """Flat [offset, due us, ...]."""
    return list(struct.unpack(f">{len(payload) // 8}Q", payload))


def due_within(payload: bytes | bytearray, low: int, high: int, limit: int) -> list[int]:
    """Flat [offset, due us, ...] of the first `limit` entries with offsets in [low, high). Looks at nothing before them."""
    size = DUE_ENTRY.size
    numbers = range(len(payload) // size)

    def offset_of(number: int) -> int:
        return int.from_bytes(payload[number * size : number * size + 8])
    start = bisect_left(numbers, low, key=offset_of)
    end = bisect_left(numbers, high, lo=start, hi=min(len(numbers), start + limit), key=offset_of)
    return unpack_due(bytes(payload[start * size : end * size]))


def pack_ranges(ranges: list[int]) -> bytes:
    """`.txnindex` entries for flat [low, count, ...]."""
    return b"".join([TXN_ENTRY.pack(ranges[at], ranges[at + 1]) for at in range(0, len(ranges), 2)])


def unpack_ranges(payload: bytes) -> list[int]:
    """Flat [low, count, ...]."""
    return [number for pair in TXN_ENTRY.iter_unpack(payload) for number in pair]


class Lane(Struct, frozen=True):
    """One priority lane of a segment: how many records, and the first one's offset (-1: none)."""

    count: int
    first_offset: int


def pack_lanes(lanes: list[Lane], base_offset: int) -> bytes:
    """The footer of `.runs`."""
    assert len(lanes) == PRIORITIES
    return b"".join([_LANE.pack(lane.count, lane.first_offset - base_offset if lane.count else _NO_LANE) for lane in lanes])


def unpack_lanes(footer: bytes, base_offset: int) -> list[Lane] | None:
    """The lanes in a `.runs` footer; None when it is not one."""
    if len(footer) != PRIORITIES * _LANE.size:
        return None
    return [Lane(count, base_offset + first if first != _NO_LANE else -1) for count, first in _LANE.iter_unpack(footer)]


def pack_max_timestamp(timestamp: int) -> bytes:
    """The footer of `.timeindex`."""
    return timestamp.to_bytes(8)


def unpack_max_timestamp(footer: bytes) -> int | None:
    """The maximum timestamp in a `.timeindex` footer; None when it is not one."""
    return int.from_bytes(footer) if len(footer) == 8 else None

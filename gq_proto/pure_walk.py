"""The pure codec's reading half: from bytes to what they say, one record at a time.

Owns the checks of a single record (header, CRC, header section) in the order in which both codecs make them, so that both
name the same violation. Never raises for bad bytes: it returns the number of what is wrong. Buffers are memoryviews.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c as _crc
from msgspec import Struct

from gq_proto import record as r
from gq_proto.limits import DELAY_MS_MAX, PRIORITIES, VALUE_CEILING

_SIZE: Final = r.HEADER_SIZE
_DELAY_US_MAX: Final = DELAY_MS_MAX * 1000
_ENTRY_MIN: Final = 6           # count and one header with empty name and value
_BATCH_NAME: Final = r.BATCH_HEADER.encode()
_DELAY_NAME: Final = r.DELAY_HEADER.encode()
_DELIVER_AT_NAME: Final = r.DELIVER_AT_HEADER.encode()
_PREFIX: Final = r.SYSTEM_PREFIX.encode()


class Head(Struct, gc=False):
    """A parsed header. Lengths are effective (0 for null); `total` is the size of the whole record."""

    flags: int
    crc: int
    offset: int
    timestamp: int
    priority: int
    codec: int
    key_null: bool
    value_null: bool
    key_size: int
    value_size: int
    headers_size: int
    total: int


def _bad_flags(flags: int) -> bool:
    control = flags & r.CONTROL
    return bool(flags & ~r.FLAGS_KNOWN or (flags & r.COMMIT and not control)
                or (control and flags & (r.COMPRESSED | r.DELAYED)))


def _bad_codec(flags: int, codec: int) -> bool:
    return codec > r.CODEC_ZSTD or (codec == r.CODEC_ZSTD) != bool(flags & r.COMPRESSED)


def _legal_lanes(flags: int) -> frozenset[int]:
    """The values of bytes 24 and 25 (priority, codec) that go with `flags`."""
    return frozenset(priority << 8 | codec for priority in range(PRIORITIES) for codec in range(256)
                     if not _bad_flags(flags) and not _bad_codec(flags, codec))


_START: Final = r.MAGIC + bytes([r.VERSION])
_FAST: Final = struct.Struct(">3sBIqqHHIH")     # the header with magic and version, priority and codec taken together
_LANES: Final = [_legal_lanes(flags) for flags in range(256)]
_ODD: Final = r.COMPRESSED | r.CONTROL          # flags that say something about the lengths


def parse(buf: memoryview, at: int, end: int) -> tuple[int, Head | None]:
    """(OK, the header at `at`) of a record that ends by `end`, or what is wrong; SHORT comes with the head if there was one."""
    if end - at < _SIZE:
        return r.SHORT, None
    start, flags, crc, offset, timestamp, lane, key, value, headers = _FAST.unpack_from(buf, at)
    if start != _START or lane not in _LANES[flags] or not 0 <= timestamp <= r.TIMESTAMP_MAX \
            or not 0 <= offset <= r.OFFSET_MAX or (value > VALUE_CEILING and value != r.VALUE_NULL) \
            or 0 < headers < _ENTRY_MIN or flags & _ODD:
        why = _header_violation(start, flags, offset, timestamp, lane >> 8, lane & 0xFF, key, value, headers)
        if why:
            return why, None
    key_null, value_null = key == r.KEY_NULL, value == r.VALUE_NULL
    if key_null:
        key = 0
    if value_null:
        value = 0
    total = _SIZE + key + value + headers
    head = Head(flags, crc, offset, timestamp, lane >> 8, lane & 0xFF, key_null, value_null, key, value, headers, total)
    return (r.OK if total <= end - at else r.SHORT), head


def _header_violation(start: bytes, flags: int, offset: int, timestamp: int, priority: int, codec: int, key: int, value: int,
                      headers: int) -> int:
    """The first thing that is wrong, in the order both codecs look; OK when nothing is."""
    if start[:2] != r.MAGIC:
        return r.BAD_MAGIC
    if start != _START:
        return r.BAD_VERSION
    if _bad_flags(flags):
        return r.BAD_FLAGS
    if priority >= PRIORITIES:
        return r.BAD_PRIORITY
    if _bad_codec(flags, codec):
        return r.BAD_CODEC
    if not 0 <= timestamp <= r.TIMESTAMP_MAX:
        return r.BAD_TIMESTAMP
    if not 0 <= offset <= r.OFFSET_MAX:
        return r.BAD_OFFSET
    if value != r.VALUE_NULL and value > VALUE_CEILING:
        return r.BAD_LENGTH
    control = flags & r.CONTROL
    if 0 < headers < _ENTRY_MIN or (value == r.VALUE_NULL and flags & _ODD) or (control and key != 4):
        return r.BAD_LENGTH
    return r.OK


def crc_body(buf: memoryview, at: int, total: int) -> int:
    """The CRC over what a stamp leaves alone but for bytes 0..3: the state both CRCs of a stamp go on from."""
    return int(_crc(buf[at + 24 : at + total]))


def crc_from(body: int, buf: memoryview, at: int) -> int:
    """The record's CRC, from that of its body: bytes 0..3, 16..23, 8..15."""
    start = bytes(buf[at : at + 24])
    return int(_crc(b"".join((start[:4], start[16:], start[8:16])), body))


def crc_of(buf: memoryview, at: int, total: int) -> int:
    """The CRC the record's bytes call for, in the format's order."""
    return crc_from(crc_body(buf, at, total), buf, at)


class Section(NamedTuple):
    """What the header section says. `delay`: 0 none, 1 `due` is absolute, 2 `due` counts from the timestamp."""

    batch: tuple[int, int, int, int] | None
    delay: int
    due: int
    system: bool        # gq- headers other than batch and delay
    user_size: int      # encoded, as if the user's were alone


_NO_SECTION: Final = Section(None, 0, 0, False, 0)


def section(buf: memoryview, at: int, head: Head) -> tuple[int, Section]:
    """The header section of the record at `at`; (OK, what it says) or (what is wrong, nothing)."""
    if not head.headers_size:
        why = r.BAD_BATCH if head.flags & r.BATCH else r.BAD_DELAY if head.flags & r.DELAYED else r.OK
        return why, _NO_SECTION
    raw = bytes(buf[at + head.total - head.headers_size : at + head.total])
    entries = split_headers(raw)
    if not entries:
        return r.BAD_HEADERS, _NO_SECTION
    batch, delay, due, system, user_size = None, 0, 0, False, 0
    for number, (name, value) in enumerate(entries):
        if not name.startswith(_PREFIX):
            user_size += 4 + len(name) + len(value)
        elif user_size:
            return r.BAD_ORDER, _NO_SECTION
        elif name == _BATCH_NAME:
            batch = _batch_of(value, number, head.flags)
            if not batch:
                return r.BAD_BATCH, _NO_SECTION
        elif name in (_DELAY_NAME, _DELIVER_AT_NAME):
            delay, due = 2 if name == _DELAY_NAME else 1, _due_of(name, value, head.flags)
            if number != (1 if batch else 0):
                return r.BAD_ORDER, _NO_SECTION
            if due < 0:
                return r.BAD_DELAY, _NO_SECTION
        else:
            system = True
    if head.flags & r.BATCH and not batch:
        return r.BAD_BATCH, _NO_SECTION
    if head.flags & r.DELAYED and not delay:
        return r.BAD_DELAY, _NO_SECTION
    return r.OK, Section(batch, delay, due, system, user_size + 2 if user_size else 0)


def _batch_of(value: bytes, number: int, flags: int) -> tuple[int, int, int, int] | None:
    if number or not flags & r.BATCH or len(value) != r.BATCH_VALUE.size:
        return None
    batch: tuple[int, int, int, int] = r.BATCH_VALUE.unpack(value)
    return batch if batch[0] >= 0 and batch[1] >= 0 and batch[2] >= 0 and batch[3] >= 1 else None


def _due_of(name: bytes, value: bytes, flags: int) -> int:
    """Microseconds, -1 when malformed."""
    if not flags & r.DELAYED or len(value) != r.DELAY_VALUE.size:
        return -1
    due = int(r.DELAY_VALUE.unpack(value)[0])
    return due if due <= (_DELAY_US_MAX if name == _DELAY_NAME else r.TIMESTAMP_MAX) else -1


def split_headers(raw: bytes) -> list[tuple[bytes, bytes]] | None:
    """Names and values of a header section; None when it is malformed (an empty one is: no headers are no bytes)."""
    size = len(raw)
    if size < _ENTRY_MIN:
        return None
    entries, at = [], 2
    for _ in range(int.from_bytes(raw[:2])):
        if size - at < 2:
            return None
        name_end = at + 2 + int.from_bytes(raw[at : at + 2])
        if size - name_end < 2:
            return None
        value_end = name_end + 2 + int.from_bytes(raw[name_end : name_end + 2])
        if value_end > size:
            return None
        name = raw[at + 2 : name_end]
        if not name.isascii() and not _is_utf8(name):
            return None
        entries.append((name, raw[name_end + 2 : value_end]))
        at = value_end
    return entries if at == size and entries else None


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True

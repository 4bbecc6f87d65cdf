"""The pure codec's writing half: BatchBuilder, header lists, partitioner.

A builder holds one partition's next batch. Room for the gq-batch header is counted in `size` from the first record on, so
that a batch never outgrows a limit when it is sealed. CRCs are computed for offset 0, which the leader's stamp replaces.
"""

from collections.abc import Iterable
from typing import Final

import mmh3
from crc32c import crc32c as _crc

from gq_proto import record as r
from gq_proto.errors import BadRecord, TooLarge
from gq_proto.limits import (
    HEADER_COUNT_MAX,
    HEADERS_MAX,
    KEY_MAX,
    PRIORITIES,
    PRIORITY_DEFAULT,
    USER_HEADERS_MAX,
    VALUE_CEILING,
)
from gq_proto.pure_walk import split_headers

Bytes = bytes | bytearray | memoryview

_BATCH_NAME: Final = r.BATCH_HEADER.encode()
_BATCH_PREFIX: Final = len(_BATCH_NAME).to_bytes(2) + _BATCH_NAME + r.BATCH_VALUE.size.to_bytes(2)
_ZERO_OFFSET: Final = bytes(8)
_BASE_SEQUENCE_MAX: Final = 2**31 - 1
_EPOCH_MAX: Final = 2**15 - 1


def partition_of(key: Bytes, count: int) -> int:
    """murmur3 (x86, 32 bit, seed 0, & 0x7fffffff) of `key` modulo `count` partitions."""
    if count <= 0:
        raise BadRecord("a topic has at least one partition")
    return (int(mmh3.hash(bytes(key), 0, signed=False)) & 0x7FFF_FFFF) % count


def encode_headers(headers: Iterable[tuple[str, Bytes]]) -> bytes:
    """The header section for (name, value) pairs; system ones are moved to the front. b"" for none.

    TooLarge above 61,440 bytes of user headers or 65,535 in all; BadRecord for a name that is no UTF-8 text."""
    entries, user_size, unsorted, last = [], 2, False, 0
    for name, value in headers:
        name_bytes, place = _name_bytes(name), _place(name)
        if len(name_bytes) > HEADERS_MAX or len(value) > HEADERS_MAX:
            raise TooLarge(f"a header name or value is above {HEADERS_MAX} bytes")
        entry = b"".join((len(name_bytes).to_bytes(2), name_bytes, len(value).to_bytes(2), value))
        user_size += len(entry) if place == _USER else 0
        unsorted, last = unsorted or place < last, place
        entries.append((place, entry))
    if not entries:
        return b""
    if len(entries) > HEADER_COUNT_MAX or user_size > USER_HEADERS_MAX:
        raise TooLarge(f"headers are above {USER_HEADERS_MAX} bytes")
    if unsorted:
        entries.sort(key=lambda entry: entry[0])
    encoded = len(entries).to_bytes(2) + b"".join([entry for _, entry in entries])
    if len(encoded) > HEADERS_MAX:
        raise TooLarge(f"headers are above {HEADERS_MAX} bytes")
    return encoded


_USER: Final = 3


def _place(name: str) -> int:
    if not name.startswith(r.SYSTEM_PREFIX):
        return _USER
    return 0 if name == r.BATCH_HEADER else 1 if name in (r.DELIVER_AT_HEADER, r.DELAY_HEADER) else 2


def _name_bytes(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise BadRecord("a header name is not UTF-8 text") from None


def decode_headers(raw: Bytes) -> list[tuple[str, bytes]]:
    """All (name, value) pairs of a header section, in order; BadRecord when it is malformed."""
    if not raw:
        return []
    entries = split_headers(bytes(raw))
    if entries is None:
        raise BadRecord("a header section is malformed")
    return [(name.decode(), value) for name, value in entries]


class BatchBuilder:
    """Records of one partition, growing into one batch. Not thread-safe; its owner locks."""

    __slots__ = ("_body", "_count", "_first", "_reserve", "_size")

    def __init__(self, reserve: int = 65536) -> None:
        self._reserve = reserve     # what the compiled one allocates ahead
        self.clear()

    def clear(self) -> None:
        """Forget what was added."""
        self._count = self._size = 0
        self._first: tuple[int, int, int, int, bytes, bytes] = (0, 0, 0, 0, b"", b"")
        self._body = bytearray()

    @property
    def count(self) -> int:
        """Records added since the last seal or clear."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes `seal` will return at most: exactly that many with a producer id."""
        return self._size

    def add(self, key: Bytes | None, value: Bytes | None, headers: bytes = b"", priority: int = PRIORITY_DEFAULT,
            flags: int = 0, codec: int = 0, timestamp: int = 0) -> int:
        """Append a record; `headers` are already encoded. Its index in the batch; an error leaves the batch as it was."""
        _check(key, value, headers, priority, flags, codec, timestamp)
        extra = 0
        if not self._count:
            extra = r.BATCH_ENTRY_SIZE + (0 if headers else 2)
            if len(headers) + extra > HEADERS_MAX:
                raise TooLarge(f"headers are above {HEADERS_MAX - r.BATCH_ENTRY_SIZE} bytes")
        key_size = r.KEY_NULL if key is None else len(key)
        value_size = r.VALUE_NULL if value is None else len(value)
        payload = (b"" if key is None else bytes(key)) + (b"" if value is None else bytes(value))
        first = (flags, timestamp, priority << 8 | codec, key_size << 32 | value_size, payload, bytes(headers))
        if self._count:
            self._body += _record(*first)
        else:
            self._first = first
        self._size += r.HEADER_SIZE + len(payload) + len(headers) + extra
        self._count += 1
        return self._count - 1

    def seal(self, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
        """The batch; the builder is empty afterwards. With a producer id its first record names (id, epoch, sequence, count)."""
        if not self._count:
            raise BadRecord("an empty batch cannot be sealed")
        flags, timestamp, lane, sizes, payload, headers = self._first
        if producer_id >= 0:
            if not 0 <= epoch <= _EPOCH_MAX or not 0 <= sequence <= _BASE_SEQUENCE_MAX:
                raise BadRecord("a producer's epoch or sequence is out of range")
            named = int.from_bytes(headers[:2]) + 1
            value = r.BATCH_VALUE.pack(producer_id, epoch, sequence, self._count)
            headers = named.to_bytes(2) + _BATCH_PREFIX + value + headers[2:]
            flags |= r.BATCH
        sealed = b"".join((_record(flags, timestamp, lane, sizes, payload, headers), self._body))
        self.clear()
        return sealed


def _check(key: Bytes | None, value: Bytes | None, headers: bytes, priority: int, flags: int, codec: int, timestamp: int) -> None:
    if key is not None and len(key) > KEY_MAX:
        raise TooLarge(f"a key of {len(key)} bytes is above the limit of {KEY_MAX}")
    if value is not None and len(value) > VALUE_CEILING:
        raise TooLarge(f"a value of {len(value)} bytes is above the limit of {VALUE_CEILING}")
    if len(headers) > HEADERS_MAX:
        raise TooLarge(f"headers are above {HEADERS_MAX} bytes")
    if not 0 <= priority < PRIORITIES:
        raise BadRecord(f"priority {priority} is not one of 0..{PRIORITIES - 1}")
    if not 0 <= timestamp <= r.TIMESTAMP_MAX:
        raise BadRecord(f"timestamp {timestamp} is not Unix microseconds")
    control, compressed = flags & r.CONTROL, flags & r.COMPRESSED
    unknown = flags & ~(r.FLAGS_KNOWN & ~r.BATCH)
    if unknown or (flags & r.COMMIT and not control) or (control and flags & (r.COMPRESSED | r.DELAYED)):
        raise BadRecord(f"flags {flags:#x} are unknown, the system's, or exclude each other")
    if not 0 <= codec <= r.CODEC_ZSTD or (codec == r.CODEC_ZSTD) != bool(compressed):
        raise BadRecord(f"compression {codec} does not go with flags {flags:#x}")
    if (control and (key is None or len(key) != 4)) or (value is None and (control or compressed)):
        raise BadRecord("a control record has a key of 4 bytes and a value; a compressed one has a value")
    if 0 < len(headers) < 6 or (flags & r.DELAYED and not headers):
        raise BadRecord("headers are malformed or lack the delay that the flags promise")


def _record(flags: int, timestamp: int, lane: int, sizes: int, payload: bytes, headers: bytes) -> bytes:
    start = b"GQ\x01%c" % flags
    stamp = timestamp.to_bytes(8)
    body = b"%b%b%b%b%b" % (lane.to_bytes(2), sizes.to_bytes(6), len(headers).to_bytes(2), payload, headers)
    crc = _crc(_ZERO_OFFSET, _crc(stamp, _crc(start, _crc(body))))
    return b"%b%b%b%b%b" % (start, crc.to_bytes(4), _ZERO_OFFSET, stamp, body)

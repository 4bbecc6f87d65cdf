"""Record batches that tests of several kinds share: goldens, twins, damage, fuzz."""

import struct
from collections.abc import Iterable

from gq_proto import record as r
from gq_proto.control import ControlType, LeaderChange, Marker, control_flags, control_key, encode_body
from gq_proto.headers import delay_header, deliver_at_header
from gq_proto.limits import KEY_MAX, USER_HEADERS_MAX
from gq_proto.pure import BatchBuilder, encode_headers, scan, stamp

NOW = 1_800_000_000_000_000     # microseconds
BASE = 41
# b"the quick brown fox " * 8, as one release of zstd packed it
ZSTD = bytes.fromhex("28b52ffd20a0dd0000a074686520717569636b2062726f776e20666f7820010012474d26")


def batch(records: Iterable[dict], producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A sealed batch; each record is the keywords of BatchBuilder.add."""
    builder = BatchBuilder()
    for fields in records:
        builder.add(**{"key": None, "value": None} | fields)
    return builder.seal(*producer)


def stamped(sealed: bytes, base: int = BASE, now: int = NOW) -> bytes:
    """What a leader would write for it."""
    frame = bytearray(sealed)
    stamp(frame, base, now, internal=True)
    return bytes(frame)


def control(type_: int, body: object) -> dict:
    return {"key": control_key(type_), "value": encode_body(type_, body), "flags": control_flags(type_)}


def with_crc(raw: bytes) -> bytes:
    """One record with its CRC made right, for bytes that no builder writes."""
    from crc32c import crc32c
    crc = crc32c(raw[8:16], crc32c(raw[16:24], crc32c(raw[:4], crc32c(raw[24:]))))
    return raw[:4] + crc.to_bytes(4) + raw[8:]


def raw_record(*, flags: int = 0, priority: int = 2, codec: int = 0, key: bytes | None = b"k", value: bytes | None = b"v",
               headers: bytes = b"", offset: int = 0, timestamp: int = 0, **fields: int) -> bytes:
    """One record by hand; `magic`, `version`, `key_size`, `value_size`, `headers_size` override what follows from the rest."""
    head = struct.pack(">HBBIQQBBHIH", fields.get("magic", 0x4751), fields.get("version", 1), flags, 0, offset, timestamp, priority,
                       codec, fields.get("key_size", r.KEY_NULL if key is None else len(key)),
                       fields.get("value_size", r.VALUE_NULL if value is None else len(value)),
                       fields.get("headers_size", len(headers)))
    return with_crc(head + (key or b"") + (value or b"") + headers)


def samples() -> dict[str, bytes]:
    """Sealed batches by name, one of each shape the format knows."""
    big = encode_headers([("h", bytes(USER_HEADERS_MAX - 2 - 4 - 1))])
    assert len(big) == USER_HEADERS_MAX
    return {
        "plain": batch([{"key": b"k1", "value": b"hello"},
                        {"key": b"k2", "value": b"world", "headers": encode_headers([("a", b"1")])}]),
        "idempotent": batch([{"key": b"k", "value": b"v%d" % n, "timestamp": NOW + n} for n in range(3)], (77, 3, 1000)),
        "null-empty": batch([{"key": key, "value": value} for key in (None, b"", b"k") for value in (None, b"", b"v")]),
        "headers": batch([{"value": b"x", "headers": encode_headers(
            [("a", b"1"), ("a", b"2"), ("", b""), ("naïve-☃", bytes(range(256))), ("traceparent", b"00-0-0-01")])}], (1, 0, 0)),
        "full-headers": batch([{"value": b"x", "headers": big}]),
        "longest-key": batch([{"key": b"K" * KEY_MAX, "value": b""}]),
        "priorities": batch([{"key": b"p", "value": b"%d" % n, "priority": n} for n in (0, 1, 2, 3, 4, 4, 2)]),
        "delayed": batch([{"value": b"later", "flags": r.DELAYED, "headers": encode_headers([delay_header(5_000_000), ("u", b"")])},
                          {"value": b"at", "flags": r.DELAYED, "headers": encode_headers([deliver_at_header(NOW + 60_000_000)])}],
                         (9, 0, 5)),
        "ready": batch([control(ControlType.DELAY_READY, [3, 1, 7, 2])]),
        "cancelled": batch([control(ControlType.DELAY_CANCELLED, [5, 1])]),
        "commit": batch([control(ControlType.COMMIT, Marker(77, 3, "orders"))]),
        "abort": batch([control(ControlType.ABORT, Marker(77, 3, "orders"))]),
        "leader-change": batch([control(ControlType.LEADER_CHANGE, LeaderChange(4, 41))]),
        "transactional": batch([{"key": b"t", "value": b"1", "flags": r.TRANSACTIONAL}], (77, 3, 1003)),
        "compressed": batch([{"key": b"z", "value": ZSTD, "flags": r.COMPRESSED, "codec": 1}, {"value": b"not"}]),
        "dead-letter": batch([{"value": b"bad", "headers": encode_headers([("gq-dlq-topic", b"jobs"), ("u", b"1")])}]),
    }


INTERNAL = frozenset(("ready", "cancelled", "commit", "abort", "leader-change", "dead-letter"))     # refused from apps


def log() -> bytes:
    """All samples one after the other, as one partition's log from offset 0."""
    out, offset = bytearray(), 0
    for sealed in samples().values():
        out += stamped(sealed, offset)
        offset = scan(out).next_offset
    return bytes(out)

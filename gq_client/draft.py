"""What an app says of a message beyond key and value, in the record's terms: header bytes, priority, flags, compression.

Pure but for the wall clock that is handed in. Errors name what is wrong: BadRecord, TooLarge.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from gq_proto import codec
from gq_proto import record as r
from gq_proto.errors import BadRecord
from gq_proto.headers import DELAY_US_MAX, Header, check_user, delay_header, deliver_at_header
from gq_proto.limits import DELAY_MS_MAX, PRIORITIES, PRIORITY_DEFAULT

COMPRESS_FROM: Final = 64           # bytes; below, a frame's own header eats the gain
PRIORITIES_BY_NAME: Final = {name: number for number, name in enumerate(r.PRIORITY_NAMES)}
Headers = Mapping[str, Any] | Iterable[tuple[str, Any]] | None
When = float | datetime | None


def priority_of(priority: int | str | None) -> int:
    """0 critical .. 4 background, or its name."""
    if priority is None:
        return PRIORITY_DEFAULT
    number = PRIORITIES_BY_NAME.get(priority, -1) if isinstance(priority, str) else priority
    if not 0 <= number < PRIORITIES:
        raise BadRecord(f"priority {priority!r}: use 0..{PRIORITIES - 1} or {', '.join(r.PRIORITY_NAMES)}")
    return number


def headers_of(headers: Headers) -> list[Header]:
    """(name, bytes) pairs, order and duplicates kept; str values are encoded as UTF-8."""
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
    check_user(found)
    return found


def due_header(delay: float | None, deliver_at: When, now_us: int) -> list[Header]:
    """The system header of a delayed message; [] when it is due at once. delay: seconds; deliver_at: Unix seconds or datetime."""
    if delay is not None and deliver_at is not None:
        raise BadRecord("delay and deliver_at exclude each other: give one")
    if delay is not None:
        return [delay_header(round(delay * 1_000_000))] if delay > 0 else []
    if deliver_at is None:
        return []
    due_us = round((deliver_at.timestamp() if isinstance(deliver_at, datetime) else deliver_at) * 1_000_000)
    if due_us - now_us > DELAY_US_MAX:
        raise BadRecord(f"deliver_at is too far ahead: at most {DELAY_MS_MAX} ms from now")
    return [deliver_at_header(due_us)] if due_us > now_us else []


def prepared(value: Any, headers: Headers, priority: int | str | None, delay: float | None, deliver_at: When,
             compress: str | None, now_us: int) -> tuple[Any, bytes, int, int, int]:
    """(value, header bytes, priority, flags, codec) for Accumulator.add."""
    due = due_header(delay, deliver_at, now_us) if delay is not None or deliver_at is not None else []
    flags, packing = r.DELAYED if due else 0, r.CODEC_NONE
    pairs = due + headers_of(headers)
    if compress == "zstd" and value is not None:
        plain = value.encode() if isinstance(value, str) else bytes(value)
        packed = codec.compress(plain, r.CODEC_ZSTD) if len(plain) >= COMPRESS_FROM else plain
        if len(packed) < len(plain):
            value, flags, packing = packed, flags | r.COMPRESSED, r.CODEC_ZSTD
    return value, codec.encode_headers(pairs) if pairs else b"", priority_of(priority), flags, packing

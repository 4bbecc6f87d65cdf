"""What an app says of a message beyond key and value, in the record's terms: header bytes, priority, flags, compression.

Pure but for the wall clock that is handed in. Errors name what is wrong: BadRecord, TooLarge.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from numbers import Number
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
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
US: Final = timedelta(microseconds=1)


def priority_of(priority: int | str | None) -> int:
    """0 critical .. 4 background, or its name."""
    if priority is None:
        return PRIORITY_DEFAULT
    number = PRIORITIES_BY_NAME.get(priority, -1) if isinstance(priority, str) else priority
    if not isinstance(number, int) or not 0 <= number < PRIORITIES:
        raise BadRecord(f"priority {_shown(priority)}: use 0..{PRIORITIES - 1} or {', '.join(r.PRIORITY_NAMES)}")
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
    """The system header of a delayed message; [] when it is due at once: zero and negative delays and past times are that.
    delay: seconds; deliver_at: Unix seconds or datetime; both DELAY_MS_MAX ahead at most. BadRecord for what is beyond, or is no
    number (NaN, inf, text)."""
    if delay is not None and deliver_at is not None:
        raise BadRecord("delay and deliver_at exclude each other: give one")
    if delay is not None:
        delay_us = _micros("delay", delay)
        if delay_us > DELAY_US_MAX:
            raise BadRecord(f"delay {_shown(delay)} is too long: at most {DELAY_MS_MAX / 1000} seconds")
        return [delay_header(delay_us)] if delay_us > 0 else []
    if deliver_at is None:
        return []
    due_us = _moment_us(deliver_at) if isinstance(deliver_at, datetime) else _micros("deliver_at", deliver_at)
    if due_us - now_us > DELAY_US_MAX:
        raise BadRecord(f"deliver_at {_shown(deliver_at)} is too far ahead: at most {DELAY_MS_MAX / 1000} seconds from now")
    return [deliver_at_header(due_us)] if due_us > now_us else []


def _micros(what: str, seconds: Any) -> int:
    """Any kind of number, but no bool: that is a slip."""
    if isinstance(seconds, Number) and not isinstance(seconds, bool):
        try:
            micros: int = round(seconds * 1_000_000)      # type: ignore[operator]
            return micros
        except (TypeError, ValueError, ArithmeticError):
            pass
    raise BadRecord(f"{what} {_shown(seconds)} is not a number of seconds")


def _moment_us(moment: datetime) -> int:
    """Exact; one without a zone is local time."""
    try:
        return (moment.astimezone(UTC) - EPOCH) // US
    except (ValueError, OverflowError, OSError):
        raise BadRecord(f"deliver_at {moment} is not a time") from None


def _shown(given: Any) -> str:
    try:
        return f"{given!r:.60}"
    except ValueError:
        return "of thousands of digits"         # repr refuses those


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

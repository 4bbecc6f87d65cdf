"""How durations, sizes, times, positions and priorities are spelled in a shell, and what they mean.

    duration   500ms 30s 5m 2h 7d, several in a row (1h30m), a bare number is seconds
    delay      a duration of 671088640ms (7d18h) at most; a negative one means now
    size       1024, 64KiB = 64K (powers of two), 64KB (powers of ten)
    time       RFC 3339 (2026-05-01T12:00:00Z; a date alone is midnight, without a zone it is local time), Unix seconds,
               -1h (that long ago), +5m (in that time), now
    position   an offset (1234), earliest, latest, or a time; Unix seconds are written @1700000000 here
    priority   0-4 or critical high normal low background

Pure but for the clock, which is handed in. Every mistake is a ValueError whose text says what would be right; click reports it
as a usage error. Times are integers in microseconds, durations in milliseconds.
"""

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from gq_proto.limits import DELAY_MS_MAX
from gq_proto.record import PRIORITY_NAMES

DURATION_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SIZES: Final = {"": 1, "b": 1} | {
    name: int(base**power) for power, letter in enumerate("kmgt", 1)
    for name, base in ((letter, 1024), (letter + "ib", 1024), (letter + "b", 1000))}
DURATION_MAX_MS: Final = 100_000_000_000_000      # 3,000 years: in microseconds it still fits 63 bits
TIME_MAX_US: Final = 253_402_300_799_999_999
INF: Final = float("inf")
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class Position(NamedTuple):
    """Where in a log: exactly one of the three is meaningful. `name` is "earliest" or "latest"."""

    offset: int = -1
    time_us: int = -1
    name: str = ""

    def __str__(self) -> str:
        return self.name or (str(self.offset) if self.offset >= 0 else show_time(self.time_us))


def duration_ms(text: str) -> int:
    """'1h30m' -> 5400000."""
    return round(_milliseconds(text.strip()))


def _milliseconds(text: str) -> float:
    if _NUMBER.fullmatch(text):
        found = float(text) * 1000
    else:
        parts = _DURATION.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError(f"{text!r} is not a duration: write 500ms, 30s, 5m, 2h or 7d")
        found = sum(float(number) * DURATION_MS[unit] for number, unit in parts)
    if found > DURATION_MAX_MS:
        raise ValueError(f"{text!r:.60} is longer than 3000 years")
    return found


def delay_ms(text: str) -> int:
    """'1500us' -> 2: a part of a millisecond is rounded up, for a delay is never cut short. '-1s' -> 0."""
    text = text.strip()
    return delay_of(-_milliseconds(text[1:]) if text[:1] == "-" else _milliseconds(text))


def delay_of(ms: float) -> int:
    """0..DELAY_MS_MAX; what is less is 0, now."""
    if not finite(ms):
        raise ValueError(f"{ms!r} is not a delay")
    if ms > DELAY_MS_MAX:
        raise ValueError(f"that delay is too long: at most {DELAY_MS_MAX}ms (7d18h24m48.64s)")
    return max(0, math.ceil(round(ms, 3)))


def deliver_at_us(text: str, now_us: int) -> int:
    """A time (see time_us) that a message can wait for; one that is past means now."""
    return moment_of(time_us(text, now_us), now_us)


def finite(number: float) -> bool:
    """An int of any size is; math.isfinite refuses some."""
    return number == number and number not in (INF, -INF)


def moment_of(due_us: int, now_us: int) -> int:
    """DELAY_MS_MAX ahead at most."""
    if due_us - now_us > DELAY_MS_MAX * 1000:
        raise ValueError(f"that time is too far ahead: at most {DELAY_MS_MAX}ms (7d18h24m48.64s) from now")
    return due_us


def size_bytes(text: str) -> int:
    """'64KiB' -> 65536."""
    match = _SIZE.fullmatch(text.strip().lower())
    if not match or match[2] not in SIZES:
        raise ValueError(f"{text!r} is not a size: write 1048576, 64KiB, 10MB or 1G")
    return round(float(match[1]) * SIZES[match[2]])


def unlimited(parse: Callable[[str], int]) -> Callable[[str], int]:
    """`parse`, and -1 for 'unlimited' or '-1'."""
    return lambda text: -1 if text.strip().lower() in ("-1", "unlimited", "forever") else parse(text)


def time_us(text: str, now_us: int) -> int:
    """Unix microseconds, of a year that has four digits."""
    found = _time_us(text.strip(), now_us)
    if found > TIME_MAX_US:
        raise ValueError(f"{text.strip()!r:.60} is after the year 9999")
    return found


def _time_us(text: str, now_us: int) -> int:
    if text == "now":
        return now_us
    if text[:1] in ("-", "+") and len(text) > 1:
        sign = -1 if text[0] == "-" else 1
        return max(0, now_us + sign * duration_ms(text[1:]) * 1000)
    seconds = text.removeprefix("@")
    if _NUMBER.fullmatch(seconds):
        whole, _, fraction = seconds.partition(".")
        return int(whole) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    return _calendar_us(text)


def _calendar_us(text: str) -> int:
    wrong = f"{text!r} is not a time: write 2026-05-01T12:00:00Z, Unix seconds, or -1h for an hour ago"
    if not _DATE.match(text):
        raise ValueError(wrong)
    try:
        moment = datetime.fromisoformat(text).astimezone()
        whole = int(moment.replace(microsecond=0).timestamp())
    except (ValueError, OverflowError, OSError):
        raise ValueError(wrong) from None
    if whole < 0:
        raise ValueError(f"{text!r} is before 1970")
    return whole * 1_000_000 + moment.microsecond


def position(text: str, now_us: int) -> Position:
    """An offset, a name or a time."""
    text = text.strip()
    if text in (EARLIEST, LATEST):
        return Position(name=text)
    if text.isascii() and text.isdigit():
        return Position(offset=int(text))
    try:
        return Position(time_us=time_us(text, now_us))
    except ValueError:
        raise ValueError(f"{text!r} is not a position: write an offset, earliest, latest, @UNIXSECONDS, "
                         "2026-05-01T12:00:00Z or -1h") from None


def priority(text: str) -> int:
    """0..4."""
    text = text.strip().lower()
    if text in PRIORITY_NAMES:
        return PRIORITY_NAMES.index(text)
    if text in ("0", "1", "2", "3", "4"):
        return int(text)
    raise ValueError(f"{text!r} is not a priority: use 0-4 or {', '.join(PRIORITY_NAMES)}")


# -- the other way ------------------------------------------------------------------------

def show_duration(ms: float) -> str:
    """For people: 5400000 -> '1h30m'. At most two units; -1 is 'unlimited'."""
    if ms < 0:
        return "unlimited"
    left, shown = round(ms), list[str]()
    for unit in ("d", "h", "m", "s"):
        size = int(DURATION_MS[unit])
        if left >= size and len(shown) < 2:
            shown.append(f"{left // size}{unit}")
            left %= size
    return "".join(shown) or f"{left}ms"


def show_size(size: float) -> str:
    """For people: 65536 -> '64 KiB'; -1 is 'unlimited'."""
    if size < 0:
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def show_time(us: int) -> str:
    """RFC 3339 with microseconds, local zone: parses back exactly."""
    return datetime.fromtimestamp(us // 1_000_000).astimezone().replace(microsecond=us % 1_000_000).isoformat()

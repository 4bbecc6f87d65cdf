"""Durations, times and positions as JSON and URLs have them. Pure; the clock is handed in.

    duration   a number of seconds, or text with a unit: "500ms", "30s", "5m", "2h", "7d"
    time       Unix seconds, or RFC 3339 text (without a zone it is UTC)
    position   an offset, "earliest", "latest", or a time as text: RFC 3339 or "@UNIXSECONDS"
"""

import re
from datetime import UTC, datetime
from typing import Final

from gq_client.cursor import Start
from gq_gateway.problems import Refused
from gq_proto.errors import BadRequest
from gq_proto.messages import EARLIEST, LATEST

Duration = float | str
Time = float | str
Position = int | str

_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_DURATION: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(us|ms|s|m|h|d|)", re.ASCII)
_SECONDS: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
SECONDS_MAX: Final = 253_402_300_799          # the year 9999


def seconds(duration: Duration, field: str, most: float = 1e9) -> float:
    """Seconds of a duration in 0..most; Refused names the field."""
    if isinstance(duration, str):
        match = _DURATION.fullmatch(duration)
        value = float(match[1]) * _UNITS_S[match[2]] if match else -1.0
    else:
        value = duration
    if not 0 <= value <= most:
        raise Refused(BadRequest(f"{field} {duration!r:.60} is no duration of 0 to {most:g} seconds: write seconds, "
                                 "or text such as \"500ms\", \"30s\" or \"2h\""), field)
    return value


def milliseconds(duration: Duration, field: str, most_ms: int) -> int:
    return round(seconds(duration, field, most_ms / 1000) * 1000)


def unix_seconds(time: Time, field: str) -> float:
    """Unix seconds of a time; Refused names the field."""
    if isinstance(time, str):
        value = float(time) if _SECONDS.fullmatch(time) else _calendar(time)
    else:
        value = time
    if value is None or not 0 <= value <= SECONDS_MAX:
        raise Refused(BadRequest(f"{field} {time!r:.60} is no time: write Unix seconds or RFC 3339, 2026-05-01T12:00:00Z"), field)
    return value


def _calendar(text: str) -> float | None:
    if not _DATE.match(text):
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def position(where: Position, field: str) -> Start:
    """Where in a log, as gq_client takes it: an offset, "earliest", "latest", or Unix seconds as float."""
    if isinstance(where, int) or (where.isascii() and where.isdigit() and len(where) < 19):
        offset = int(where)
        if not 0 <= offset < 2**62:
            raise Refused(BadRequest(f"{field} {offset} is no offset"), field)
        return offset
    if where in (EARLIEST, LATEST):
        return where
    try:
        return float(unix_seconds(where.removeprefix("@") if where.startswith("@") else where, field))
    except Refused:
        raise Refused(BadRequest(f"{field} {where!r:.60} is no position: write an offset, \"earliest\", \"latest\", "
                                 "\"@UNIXSECONDS\" or RFC 3339"), field) from None


def show_time(us: int) -> str:
    """RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000, tzinfo=None).isoformat() + "Z"

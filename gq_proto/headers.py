"""Message headers: count u16, then per header name length u16, name (UTF-8), value length u16, value. None at all = no bytes.

Order and duplicates are kept, except that system headers (`gq-*`) are moved before the others, in the order the format
demands: gq-batch, then gq-deliver-at or gq-delay, then the rest. The two functions that turn lists into bytes and back are
the codec's (`codec.encode_headers`, `codec.decode_headers`); here are the words for single system headers.
"""

from collections.abc import Sequence

from gq_proto.errors import BadRecord
from gq_proto.limits import DELAY_MS_MAX
from gq_proto.record import DELAY_HEADER, DELAY_VALUE, DELIVER_AT_HEADER, SYSTEM_PREFIX, TIMESTAMP_MAX

Header = tuple[str, bytes]

DELAY_US_MAX = DELAY_MS_MAX * 1000


def delay_header(delay_us: int) -> Header:
    """`gq-delay`: due `delay_us` after the record's stamped timestamp. Goes with the DELAYED flag."""
    if not 0 <= delay_us <= DELAY_US_MAX:
        raise BadRecord(f"a delay of {delay_us // 1000} ms is out of range: use 0..{DELAY_MS_MAX} ms")
    return DELAY_HEADER, DELAY_VALUE.pack(delay_us)


def deliver_at_header(due_us: int) -> Header:
    """`gq-deliver-at`: due at a moment in Unix microseconds. Goes with the DELAYED flag."""
    if not 0 <= due_us <= TIMESTAMP_MAX:
        raise BadRecord(f"deliver-at {due_us} is not a time in Unix microseconds")
    return DELIVER_AT_HEADER, DELAY_VALUE.pack(due_us)


def due_of(headers: Sequence[Header], timestamp: int) -> int | None:
    """When a record with these headers, stamped at `timestamp`, is due; None when it is not delayed."""
    for name, value in headers:
        if name in (DELAY_HEADER, DELIVER_AT_HEADER):
            if len(value) != DELAY_VALUE.size:
                raise BadRecord(f"{name} holds {len(value)} bytes, not {DELAY_VALUE.size}")
            number = int(DELAY_VALUE.unpack(value)[0])
            return number + timestamp if name == DELAY_HEADER else number
    return None


def is_system(name: str) -> bool:
    """True for names apps neither see nor may use."""
    return name.startswith(SYSTEM_PREFIX)


def user_headers(headers: Sequence[Header]) -> list[Header]:
    """What an app sees."""
    return [header for header in headers if not is_system(header[0])]


def check_user(headers: Sequence[Header]) -> None:
    """BadRecord for a name that is the system's."""
    for name, _ in headers:
        if is_system(name):
            raise BadRecord(f"header {name!r:.80} begins with {SYSTEM_PREFIX}: those names are the system's")

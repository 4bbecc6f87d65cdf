"""The records of a segment one by one, each with its place in the file, control records in words: what `log dump` prints.

Slow and complete: the fast walks are the codec's. Damage is yielded as an entry with a Problem, and the walk goes on behind it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gq_ctl.verify import Place, Problem, base_of, mapped
from gq_proto import codec
from gq_proto.control import ControlType, decode_body
from gq_proto.errors import GoQueueError
from gq_proto.limits import RECORD_HEADER
from gq_proto.message import Record
from gq_proto.pure_walk import crc_of, parse
from gq_proto.record import BAD_CRC, CONTROL, SHORT, WHY, flag_names


class Entry(NamedTuple):
    """One record, or a Problem. `control` is empty for messages."""

    position: int
    size: int
    message: Record
    flags: list[str]
    control: dict[str, Any]
    problem: Problem | None = None


def records(segment: Path, place: Place, start: int) -> Iterator[Entry]:
    """Those at or after offset `start`."""
    with mapped(segment) as data:
        whole = bytes(data)
    buf, at, following = memoryview(whole), 0, max(base_of(segment), 0)
    while at < len(buf):
        why, head = parse(buf, at, len(buf))
        if head and why != SHORT and crc_of(buf, at, head.total) != head.crc:
            why = BAD_CRC
        if why or head is None:
            resume = codec.find_valid(whole, at + 1, following, following + (len(whole) - at) // RECORD_HEADER)
            yield Entry(at, 0, Record(), [], {}, Problem(segment, at, following, f"the record {WHY[why]}"))
            if resume < 0:
                return
            at = resume
            continue
        following = head.offset + 1
        if head.offset >= start:
            yield _entry(whole, at, head, place)
        at += head.total


def _entry(data: bytes, at: int, head: Any, place: Place) -> Entry:
    key_at = at + RECORD_HEADER
    value_at = key_at + head.key_size
    headers_at = value_at + head.value_size
    message = Record(place.topic, place.partition, head.offset, head.timestamp, head.priority, head.flags,
                     None if head.key_null else data[key_at:value_at], None if head.value_null else data[value_at:headers_at],
                     data[headers_at : at + head.total])
    control = control_json(message) if head.flags & CONTROL else {}
    return Entry(at, head.total, message, flag_names(head.flags), control)


def control_json(message: Record) -> dict[str, Any]:
    """A control record in words."""
    number = int.from_bytes((message.key or b"")[2:4])
    try:
        body = decode_body(number, message.raw_value or b"")
    except GoQueueError as e:
        return {"type": number, "problem": e.message}
    if number not in list(ControlType):
        return {"type": number}
    name = ControlType(number).name.lower()
    if isinstance(body, list):
        return {"type": name, "ranges": [[low, low + size] for low, size in zip(body[::2], body[1::2])]}
    assert body is not None
    return {"type": name} | {name: getattr(body, name) for name in body.__struct_fields__}

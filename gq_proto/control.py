"""Control records: facts about a partition that became known later, written into the partition itself.

    key     version u16 (0), type u16
    value   by type, big-endian
        0 abort, 1 commit     producer id i64, epoch i16, transactional id (UTF-8) to the end
        2 leader-change       epoch i32, start offset i64
        3 delay-ready, 4 delay-cancelled
                              offset ranges: (low u64, count u32) to the end, ascending, not overlapping

A reader dispatches on the type. An unknown one below 0x8000 is skipped; from there on the partition must be refused. A body may
grow at its end only for type 2; a new version of a body is a new type. Consumers never see control records.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct

from gq_proto import record as r
from gq_proto.errors import BadRecord

VERSION: Final = 0
CRITICAL_FROM: Final = 0x8000       # an unknown type from here on must not be skipped

_KEY: Final = struct.Struct(">HH")
_MARKER: Final = struct.Struct(">qh")
_LEADER: Final = struct.Struct(">iq")
_RANGE: Final = struct.Struct(">QI")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    DELAY_READY = 3
    DELAY_CANCELLED = 4


class Marker(Struct, frozen=True):
    """The end of a transaction in this partition; `type` says which end."""

    producer_id: int
    epoch: int
    transactional_id: str = ""


class LeaderChange(Struct, frozen=True):
    """The first record a leader writes: from `start_offset` on the log is of leader epoch `epoch`."""

    epoch: int
    start_offset: int


Body = Marker | LeaderChange | list[int]


def control_key(type_: int) -> bytes:
    """The key of a control record."""
    return _KEY.pack(VERSION, type_)


def control_flags(type_: int) -> int:
    """The record flags of a control record: a commit is told from an abort by its run alone."""
    if type_ == ControlType.COMMIT:
        return r.CONTROL | r.COMMIT | r.TRANSACTIONAL
    return r.CONTROL | r.TRANSACTIONAL if type_ == ControlType.ABORT else r.CONTROL


def encode_body(type_: int, body: Body) -> bytes:
    """The value of a control record: Marker for 0 and 1, LeaderChange for 2, flat ranges for 3 and 4."""
    if isinstance(body, Marker) and type_ in (ControlType.ABORT, ControlType.COMMIT):
        return _MARKER.pack(body.producer_id, body.epoch) + body.transactional_id.encode()
    if isinstance(body, LeaderChange) and type_ == ControlType.LEADER_CHANGE:
        return _LEADER.pack(body.epoch, body.start_offset)
    if isinstance(body, list) and type_ in (ControlType.DELAY_READY, ControlType.DELAY_CANCELLED):
        _check_ranges(body)
        return b"".join([_RANGE.pack(body[at], body[at + 1]) for at in range(0, len(body), 2)])
    raise BadRecord(f"a control record of type {type_} does not carry {type(body).__name__}")


def decode_body(type_: int, raw: bytes) -> Body | None:
    """The reverse; None for an unknown type that may be skipped, BadRecord for one that may not, or a malformed body."""
    try:
        if type_ in (ControlType.ABORT, ControlType.COMMIT):
            producer_id, epoch = _MARKER.unpack_from(raw)
            return Marker(producer_id, epoch, raw[_MARKER.size :].decode())
        if type_ == ControlType.LEADER_CHANGE:
            return LeaderChange(*_LEADER.unpack_from(raw))
        if type_ in (ControlType.DELAY_READY, ControlType.DELAY_CANCELLED):
            ranges = [number for pair in _RANGE.iter_unpack(raw) for number in pair]
            _check_ranges(ranges)
            return ranges
    except (struct.error, UnicodeDecodeError):
        raise BadRecord(f"the body of a control record of type {type_} is malformed") from None
    if type_ >= CRITICAL_FROM:
        raise BadRecord(f"a control record of unknown type {type_:#x} must not be skipped: this release is too old for the log")
    return None


def _check_ranges(ranges: Sequence[int]) -> None:
    end = 0
    for at in range(0, len(ranges) - 1, 2):
        low, count = ranges[at], ranges[at + 1]
        if low < end or not 0 < count < 2**32 or low + count > 2**63 - 1:
            raise BadRecord("offset ranges must ascend, must not overlap and must not be empty")
        end = low + count
    if not ranges or len(ranges) % 2:
        raise BadRecord("offset ranges come in pairs, and at least one")

"""Bodies of control records: round trips, cuts, what must not be skipped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_proto import record as r
from gq_proto.control import (
    CRITICAL_FROM,
    ControlType,
    LeaderChange,
    Marker,
    control_flags,
    control_key,
    decode_body,
    encode_body,
)
from gq_proto.errors import BadRecord

BODIES = [
    (ControlType.ABORT, Marker(1, 2, "orders-☃")), (ControlType.COMMIT, Marker(2**63 - 1, 2**15 - 1, "")),
    (ControlType.LEADER_CHANGE, LeaderChange(7, 2**62)),
    (ControlType.DELAY_READY, [3, 1, 5, 100, 2**62, 2**32 - 1]), (ControlType.DELAY_CANCELLED, [0, 1]),
]


@pytest.mark.parametrize(("type_", "body"), BODIES)
def test_round_trip(type_, body):
    assert decode_body(type_, encode_body(type_, body)) == body


@pytest.mark.parametrize(("type_", "body"), BODIES)
def test_a_cut_body_is_refused_or_shorter(type_, body):
    raw = encode_body(type_, body)
    for cut in range(len(raw)):
        try:
            assert decode_body(type_, raw[:cut]) != body
        except BadRecord:
            pass


@pytest.mark.parametrize(("type_", "body"), [
    (ControlType.ABORT, [1, 1]), (ControlType.DELAY_READY, Marker(1, 1)), (9, [1, 1]), (ControlType.DELAY_READY, []),
    (ControlType.DELAY_READY, [1]), (ControlType.DELAY_READY, [1, 0]), (ControlType.DELAY_READY, [5, 2, 6, 1]),
    (ControlType.DELAY_READY, [1, 2**32]), (ControlType.DELAY_READY, [2**63, 1]),
])
def test_bodies_that_are_none(type_, body):
    with pytest.raises(BadRecord):
        encode_body(type_, body)


def test_unknown_types():
    assert decode_body(5, b"?") is None
    assert decode_body(CRITICAL_FROM - 1, b"") is None
    with pytest.raises(BadRecord, match="must not be skipped"):
        decode_body(CRITICAL_FROM, b"")


def test_layout():
    assert control_key(ControlType.DELAY_READY) == b"\0\0\0\3"
    assert encode_body(ControlType.COMMIT, Marker(1, 2, "t")) == bytes.fromhex("0000000000000001 0002 74")
    assert encode_body(ControlType.LEADER_CHANGE, LeaderChange(1, 2)) == bytes.fromhex("00000001 0000000000000002")
    assert encode_body(ControlType.DELAY_READY, [1, 2]) == bytes.fromhex("0000000000000001 00000002")
    assert control_flags(ControlType.COMMIT) & r.COMMIT and not control_flags(ControlType.ABORT) & r.COMMIT


@given(st.integers(0, 2**16 - 1) | st.integers(0, 5), st.binary(max_size=60))
def test_any_bytes(type_, raw):
    try:
        decode_body(type_, raw)
    except BadRecord:
        pass

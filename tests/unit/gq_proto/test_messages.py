"""Envelopes and bodies: round trips, hostile bytes, and the examples of protocol.txt."""

import ast
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_proto import messages as m
from gq_proto.errors import BY_CODE, BadRequest, BadVersion, GoQueueError, Internal, NotLeader, error_of

SPEC = (Path(m.__file__).parents[1] / "protocol.txt").read_text()
EXAMPLE = re.compile(r"^ +example\n +(\[.*\])\n +([0-9a-f ]+)$", re.M)


def test_examples_of_the_specification_are_what_the_code_writes():
    examples = EXAMPLE.findall(SPEC)
    assert len(examples) == 3
    for text, hex_bytes in examples:
        frame = bytes.fromhex(hex_bytes)
        fields = ast.literal_eval(text)
        request = m.decode_request(frame)
        assert m.request_body(request) == msgspec.convert(fields[8], m.BODIES[m.Kind(fields[1])][0])
        assert m.encode_request(request.kind, request.id, m.request_body(request), deadline_ms=request.deadline_ms) == frame


def test_every_kind_and_error_is_in_the_specification():
    for kind in m.Kind:
        assert re.search(rf"(^|   ){kind.value} {kind.name}\b", SPEC, re.M), kind
    for code, error in BY_CODE.items():
        line = re.search(rf"^ *{code}  {error.name.upper()} .*$|^ *{code}  {error.name.upper()}$", SPEC, re.M)
        assert line and ("retriable" in line[0]) == error.retriable, error


def test_kinds_without_a_body_are_those_of_later_stages():
    assert set(m.Kind) - m.BODIES.keys() == {m.Kind.REPLICA_FETCH}


def test_an_error_reply_raises_its_class_and_keeps_its_text():
    reply = m.decode_reply(m.encode_error(m.Kind.FETCH, 9, NotLeader("ask n2")))
    with pytest.raises(NotLeader, match="ask n2"):
        m.reply_body(reply)
    assert isinstance(error_of(9999, "newer"), Internal)


def test_fields_may_be_appended():
    frame = msgspec.msgpack.encode([1, 14, 3, 10, b"", 0, -1, -1, [5, "a newer field"], "and one more"])
    assert m.request_body(m.decode_request(frame)) == m.OffsetForTime(5)


def test_another_version_is_named():
    with pytest.raises(BadVersion, match="version 2"):
        m.decode_request(msgspec.msgpack.encode([2, 1, 1, 10, b"", 0, -1, -1, []]))


@pytest.mark.parametrize("kind", sorted(m.BODIES))
def test_cut_anywhere_a_request_is_refused_with_a_typed_error(kind):
    frame = m.encode_request(kind, 1, m.Empty())
    for end in range(len(frame)):
        with pytest.raises(BadRequest):
            m.decode_request(frame[:end])


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data):
    for decode, body in ((m.decode_request, m.request_body), (m.decode_reply, m.reply_body)):
        try:
            body(decode(data))
        except (GoQueueError, KeyError) as e:
            assert not isinstance(e, KeyError) or decode is m.decode_request


@given(st.sampled_from(sorted(m.BODIES)), st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=5), max_leaves=20))
def test_any_body_decodes_or_is_refused(kind, body):
    request = m.decode_request(msgspec.msgpack.encode([1, kind, 1, 10, b"", 0, -1, -1, body]))
    try:
        m.request_body(request)
    except BadRequest as e:
        assert "\n" not in e.message

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_ctl import message
from gq_proto import codec

NOW = 1_700_000_000_000_000


def record(key, value, headers=()):
    builder = codec.BatchBuilder()
    builder.add(key, value, codec.encode_headers(list(headers)))
    frame = bytearray(builder.seal())
    codec.stamp(frame, 7, NOW)
    return codec.decode(bytes(frame), topic="t", partition=1)[0]


names = st.text(max_size=10).filter(lambda name: not name.startswith("gq-"))


@given(st.none() | st.binary(), st.none() | st.binary(), st.lists(st.tuples(names, st.binary(max_size=10)), max_size=4))
def test_what_is_printed_reads_back_as_the_same_message(key, value, headers):
    printed = json.loads(json.dumps(message.to_json(record(key, value, headers))))
    assert printed["topic"] == "t" and printed["partition"] == 1 and printed["offset"] == 7 and printed["timestamp"] == NOW
    draft = message.from_json(printed, NOW)
    assert (draft.key, draft.value, draft.headers) == (key, value, headers)
    assert draft.partition is None and draft.priority == 2


def test_drafts():
    line = {"value": {"a": 1}, "key": 5, "priority": "high", "delay": "1m", "partition": 2, "headers": {"a": "b"}}
    draft = message.from_json(line, NOW)
    assert draft == message.Draft(b'{"a":1}', b"5", [("a", b"b")], 1, 60_000, None, 2)
    assert message.from_json({"value": "x", "delay": 1.5}, NOW).delay_ms == 1500
    assert message.from_json({"value": "x", "deliver_at": "-1h"}, NOW).deliver_at_us == NOW - 3_600_000_000
    assert message.from_json({"value": None}, NOW).value is None
    assert message.from_json({"value": ""}, NOW).value == b""


@pytest.mark.parametrize(("line", "why"), [
    ([], "not an object"), ({}, "no value"), ({"value": "", "valeu": 1}, "unknown field 'valeu'"),
    ({"value": "!", "encoding": "base64"}, "the value is not base64"), ({"value": "", "encoding": "rot13"}, "encoding 'rot13'"),
    ({"value": "", "headers": "x"}, "headers are"), ({"value": "", "headers": {"gq-x": ""}}, "names are the system's"),
    ({"value": "", "priority": 9}, "not a priority"), ({"value": "", "priority": True}, "not a priority"),
    ({"value": "", "delay": -1}, "not a delay"), ({"value": "", "delay": float("inf")}, "not a delay"),
    ({"value": "", "delay": "soon"}, "not a duration"), ({"value": "", "partition": -1}, "not a partition"),
    ({"value": "\ud800"}, "lone surrogate"),
])
def test_what_is_wrong_is_said(line, why):
    with pytest.raises(ValueError, match=why):
        message.from_json(line, NOW)


def test_what_would_disturb_a_terminal_is_escaped():
    assert message.shown(b"a\x1b[31m\n\xff") == "a\\x1b[31m\\n\\xff"
    assert message.shown(None) == "<null>"
    assert message.shown("grün".encode()) == "grün"

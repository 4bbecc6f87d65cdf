import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_ctl import message, units
from gq_proto import codec
from gq_proto.headers import delay_header, deliver_at_header
from gq_proto.limits import DELAY_MS_MAX
from gq_proto.record import DELAYED

NOW = 1_700_000_000_000_000


def record(key, value, headers=(), flags=0):
    builder = codec.BatchBuilder()
    builder.add(key, value, codec.encode_headers(list(headers)), flags=flags)
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
    assert message.from_json({"value": "x", "deliver_at": None, "deliverAt": NOW / 1e6 + 2.5}, NOW).deliver_at_us == NOW + 2_500_000
    assert message.from_json({"value": None}, NOW).value is None
    assert message.from_json({"value": ""}, NOW).value == b""


@pytest.mark.parametrize("due", [delay_header(90_000_000), deliver_at_header(NOW + 90_000_000)])
def test_a_delayed_message_reads_back_with_its_due_time(due):
    printed = message.to_json(record(b"k", b"v", [due, ("a", b"b")], DELAYED))
    assert printed["deliver_at"] == units.show_time(NOW + 90_000_000) and printed["headers"] == {"a": "b"}
    draft = message.from_json(json.loads(json.dumps(printed)), NOW)
    assert draft.deliver_at_us == NOW + 90_000_000 and draft.delay_ms is None and draft.headers == [("a", b"b")]
    assert "deliver_at" not in message.to_json(record(b"k", b"v"))


@pytest.mark.parametrize(("delay", "ms"), [
    (-1, 0), (-1e300, 0), ("-1s", 0), (0, 0), (0.001, 1), (0.0001, 1), ("1ms", 1), (671_088.64, DELAY_MS_MAX), (5, 5000)])
def test_delays(delay, ms):
    assert message.from_json({"value": "", "delay": delay}, NOW).delay_ms == ms


@pytest.mark.parametrize("at", [0, -1, -1e300, 1.5, NOW / 1e6, "1970-01-01T00:00:00Z"])
def test_times_that_are_past(at):
    assert 0 <= message.from_json({"value": "", "deliver_at": at}, NOW).deliver_at_us <= NOW


@pytest.mark.parametrize("seconds", [DELAY_MS_MAX / 1000 + 0.001, 2**31, 2**32 - 1, 2**32, 10 * 365 * 86_400, 2**63, 10**400])
def test_delays_that_are_too_long(seconds):
    for line, why in (({"delay": seconds}, "too long"), ({"deliver_at": NOW // 10**6 + seconds}, "too far ahead")):
        with pytest.raises(ValueError, match=why):
            message.from_json({"value": "", **line}, NOW)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf"), 1e308, "NaN", "Infinity", True, [], {}])
def test_what_is_no_delay(wrong):
    for name in ("delay", "deliver_at", "deliverAt"):
        with pytest.raises(ValueError, match=r"is not a|too far"):
            message.from_json({"value": "", name: wrong}, NOW)


@pytest.mark.parametrize(("line", "why"), [
    ([], "not an object"), ({}, "no value"), ({"value": "", "valeu": 1}, "unknown field 'valeu'"),
    ({"value": "!", "encoding": "base64"}, "the value is not base64"), ({"value": "", "encoding": "rot13"}, "encoding 'rot13'"),
    ({"value": "", "headers": "x"}, "headers are"), ({"value": "", "headers": {"gq-x": ""}}, "names are the system's"),
    ({"value": "", "priority": 9}, "not a priority"), ({"value": "", "priority": True}, "not a priority"),
    ({"value": "", "delay": 0, "deliver_at": 0}, "exclude each other"), ({"value": "", "delay": "soon"}, "not a duration"),
    ({"value": "", "partition": -1}, "not a partition"),
    ({"value": "\ud800"}, "lone surrogate"),
])
def test_what_is_wrong_is_said(line, why):
    with pytest.raises(ValueError, match=why):
        message.from_json(line, NOW)


def test_what_would_disturb_a_terminal_is_escaped():
    assert message.shown(b"a\x1b[31m\n\xff") == "a\\x1b[31m\\n\\xff"
    assert message.shown(None) == "<null>"
    assert message.shown("grün".encode()) == "grün"

"""Messages as JSON and back: text, bytes, null and empty, headers, what is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_gateway.content import NewMessage, draft_of, stored
from gq_gateway.problems import Refused
from gq_proto import codec

BYTES = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=10).map(str.encode))
NAMES = st.text(min_size=1, max_size=5).filter(lambda name: not name.startswith("gq-"))
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=8)), max_size=4)


def record(value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]]) -> codec.Record:
    return codec.Record("t", 1, 2, 3, 2, 0, key, value, codec.encode_headers(headers) if headers else b"")


def read(text: str) -> Any:
    return draft_of(msgspec.json.decode(text, type=NewMessage))


@given(BYTES, BYTES, HEADERS, st.sampled_from(["auto", "base64"]))
def test_what_is_shown_is_read_again(value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]],
                                     encoding: str) -> None:
    shown = msgspec.json.decode(msgspec.json.encode(stored([record(value, key, headers)], encoding)[0]))
    fields = {name: shown[name] for name in ("value", "key", "headers", "encoding", "keyEncoding") if name in shown}
    draft = draft_of(msgspec.convert(fields, NewMessage))

    def as_bytes(data: Any) -> Any:
        return data.encode() if isinstance(data, str) else data

    assert as_bytes(draft.value) == value and as_bytes(draft.key) == key
    assert [(name, as_bytes(data)) for name, data in draft.headers or []] == headers


def test_null_and_empty_are_two_things() -> None:
    assert (read('{"value":null}').value, read('{"value":""}').value) == (None, "")
    assert (read('{"value":"","key":null}').key, read('{"value":"","key":""}').key) == (None, "")
    shown = stored([record(None, None, []), record(b"", b"", [])])
    assert [(one.value, one.key) for one in shown] == [(None, None), ("", "")]
    assert b'"encoding"' not in msgspec.json.encode(shown)


def test_bytes_are_base64_and_text_is_text() -> None:
    [text, bytes_] = stored([record("ä".encode(), b"\xff", []), record(b"\xff", None, [("h", b"\xfe"), ("i", b"1")])])
    assert (text.value, text.key, text.key_encoding) == ("ä", "/w==", "base64")
    assert (bytes_.value, bytes_.encoding) == ("/w==", "base64")
    assert msgspec.to_builtins(bytes_.headers) == {"h": {"base64": "/g=="}, "i": "1"}


def test_an_encoding_may_be_forced() -> None:
    [one] = stored([record(b"a\xff", b"k", [("h", b"v")])], "base64")
    assert (one.value, one.key, msgspec.to_builtins(one.headers)) == ("Yf8=", "aw==", {"h": {"base64": "dg=="}})
    [lossy] = stored([record(b"a\xff", None, [])], "utf-8")
    assert (lossy.value, lossy.encoding) == ("a\N{REPLACEMENT CHARACTER}", msgspec.UNSET)


def test_a_header_that_comes_twice_makes_a_list() -> None:
    [one] = stored([record(b"", None, [("a", b"1"), ("a", b"2")])])
    assert one.headers == [("a", "1"), ("a", "2")]
    assert read('{"value":"","headers":[["a","1"],["a","2"]]}').headers == [("a", "1"), ("a", "2")]


def test_what_else_is_said_of_a_message() -> None:
    draft = read('{"value":"v","priority":"high","delay":"5m","partition":3}')
    assert (draft.priority, draft.delay, draft.partition, draft.plain) == (1, 300, 3, False)
    assert read('{"value":"v","priority":"0"}').priority == 0
    assert read('{"value":"v","deliverAt":"2023-11-14T22:13:20Z"}').deliver_at == 1_700_000_000
    assert read('{"value":"v","key":"k","partition":1}').plain


@pytest.mark.parametrize(("text", "field"), [
    ('{"value":"x","encoding":"base64"}', "value"), ('{"value":"AA==","key":"*","keyEncoding":"base64"}', "key"),
    ('{"value":"","priority":9}', "priority"), ('{"value":"","priority":"soon"}', "priority"), ('{"value":"","delay":-1}', "delay"),
    ('{"value":"","delay":671088.641}', "delay"), ('{"value":"","deliverAt":"soon"}', "deliverAt"),
    ('{"value":"","delay":1,"deliverAt":1700000000}', "deliverAt"), ('{"value":"","headers":{"h":{"base64":"*"}}}', "headers.h")])
def test_what_is_wrong_is_named(text: str, field: str) -> None:
    with pytest.raises(Refused) as raised:
        read(text)
    assert raised.value.field == field


@pytest.mark.parametrize("text", [
    '{}', '{"value":1}', '{"value":{}}', '{"value":"","encoding":"latin-1"}', '{"value":"","partition":-1}',
    '{"value":"","partition":10000}', '{"value":"","offset":1}', '[]', '"x"'])
def test_what_has_another_shape_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(text)

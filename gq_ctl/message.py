"""A message as JSON and back: what `consume` prints and `publish --jsonl` takes.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000000, "key": "k", "value": "v", "headers": {"a": "b"},
     "priority": 2}

Text is UTF-8. Bytes that are none are base64, and "encoding": "base64" says so of the value, "key_encoding" of the key. Headers
are an object, or a list of [name, value] when a name comes twice or a value is no UTF-8 text ({"base64": "..."} in place of it).
null is null, never "". A delayed message has "deliver_at", when it is or was due. Reading back what was printed gives the same
message: topic, offset, timestamp and the like are left aside, and so is the partition of what has an offset.
"""

import binascii
from typing import Any, Final, NamedTuple

from gq_ctl import units
from gq_proto import headers as system
from gq_proto.record import DELAYED

BASE64: Final = "base64"
IGNORED: Final = frozenset(("topic", "offset", "timestamp", "delivery", "receipt", "flags"))
KNOWN: Final = frozenset(("key", "value", "headers", "priority", "delay", "deliver_at", "deliverAt", "partition", "encoding",
                          "key_encoding"))

Headers = list[tuple[str, bytes]]


class Draft(NamedTuple):
    """A message to be published. Delay in ms, deliver_at in Unix microseconds, None where nothing was said."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    priority: int | None
    delay_ms: int | None
    deliver_at_us: int | None
    partition: int | None


# -- printing ------------------------------------------------------------------------------

def to_json(message: Any, **more: Any) -> dict[str, Any]:
    """`message`: a record as gq_client hands it out."""
    found: dict[str, Any] = {"topic": message.topic, "partition": message.partition, "offset": message.offset,
                             "timestamp": message.timestamp}
    key = key_json(message.key)
    found["key"] = key.pop("key")
    found["value"], binary = _text(message.value)
    if binary:
        found["encoding"] = BASE64
    found.update(key)
    if message.raw_headers and message.headers:
        found["headers"] = headers_json(message.headers)
    found["priority"] = message.priority
    if (due_us := due_of(message)) is not None:
        found["deliver_at"] = units.show_time(due_us)
    found.update(more)
    return found


def key_json(key: bytes | None) -> dict[str, Any]:
    """The fields that tell a key."""
    text, binary = _text(key)
    return {"key": text, "key_encoding": BASE64} if binary else {"key": text}


def due_of(message: Any) -> int | None:
    """When a delayed message is due, in Unix microseconds; None for the others."""
    return system.due_of(message.system_headers, message.timestamp) if message.flags & DELAYED else None


def _text(data: bytes | None) -> tuple[str | None, bool]:
    if data is None:
        return None, False
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return binascii.b2a_base64(data, newline=False).decode(), True


def headers_json(headers: Headers) -> dict[str, Any] | list[list[Any]]:
    shown: list[tuple[str, Any]] = []
    simple = len({name for name, _ in headers}) == len(headers)
    for name, value in headers:
        text, binary = _text(value)
        shown.append((name, {BASE64: text} if binary else text))
        simple = simple and not binary
    return dict(shown) if simple else [[name, text] for name, text in shown]


def shown(data: bytes | None) -> str:
    """For a table: text, with what would disturb a terminal escaped; null in brackets."""
    if data is None:
        return "<null>"
    text = data.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


# -- reading -------------------------------------------------------------------------------

def from_json(found: object, now_us: int) -> Draft:
    """The message of a parsed line; ValueError says what is wrong with it."""
    if not isinstance(found, dict):
        raise ValueError("not an object: write {\"value\": ...}")
    unknown = found.keys() - KNOWN - IGNORED
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}: use {', '.join(sorted(KNOWN - {'deliverAt'}))}")
    if "value" not in found:
        raise ValueError("no value: write null for none")
    delay, deliver_at = found.get("delay"), found.get("deliver_at")
    deliver_at = found.get("deliverAt") if deliver_at is None else deliver_at
    if delay is not None and deliver_at is not None:
        raise ValueError("delay and deliver_at exclude each other: write one")
    return Draft(_bytes("value", found["value"], found.get("encoding")), _bytes("key", found.get("key"), found.get("key_encoding")),
                 _headers(found.get("headers")), _priority(found.get("priority")), _delay_ms(delay),
                 _deliver_at_us(deliver_at, now_us),
                 None if "offset" in found else _partition(found.get("partition")))


def _bytes(what: str, field: object, encoding: object) -> bytes | None:
    if encoding not in (None, BASE64, "utf-8"):
        raise ValueError(f"encoding {encoding!r} of the {what} is unknown: use base64 or leave it out")
    if field is None:
        return None
    if encoding == BASE64:
        try:
            return binascii.a2b_base64(str(field), strict_mode=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"the {what} is not base64") from None
    return encoded(field)


def encoded(field: object) -> bytes:
    """A string as UTF-8, anything else as compact JSON."""
    if not isinstance(field, str):
        from gq_ctl.output import json_bytes
        return json_bytes(field)
    try:
        return field.encode()
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate is no text: use base64 for bytes") from None


def _headers(field: object) -> Headers:
    if field is None:
        return []
    pairs = list(field.items()) if isinstance(field, dict) else field
    if not isinstance(pairs, list) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError("headers are an object or a list of [name, value]")
    return [_header(name, value) for name, value in pairs]


def _header(name: object, value: object) -> tuple[str, bytes]:
    if not isinstance(name, str):
        raise ValueError("a header's name is a string")
    if name.startswith("gq-"):
        raise ValueError(f"header {name!r} begins with gq-: those names are the system's")
    if isinstance(value, dict) and value.keys() == {BASE64}:
        return name, _bytes(f"header {name}", value[BASE64], BASE64) or b""
    return name, encoded(value)


def _priority(field: object) -> int | None:
    if isinstance(field, bool) or not isinstance(field, int | str | None):
        raise ValueError(f"{field!r} is not a priority: use 0-4 or a name")
    return None if field is None else units.priority(str(field))


def _delay_ms(field: object) -> int | None:
    """Numbers are seconds, strings carry a unit."""
    if isinstance(field, bool) or not isinstance(field, int | float | str | None):
        raise ValueError(f"{field!r} is not a delay: write seconds, or \"500ms\"")
    if isinstance(field, int | float):
        return units.delay_of(field * 1000)
    return None if field is None else units.delay_ms(field)


def _deliver_at_us(field: object, now_us: int) -> int | None:
    """Numbers are Unix seconds."""
    if isinstance(field, bool) or not isinstance(field, int | float | str | None):
        raise ValueError(f"{field!r} is not a time: write Unix seconds, or \"2026-05-01T12:00:00Z\"")
    if isinstance(field, int | float):
        if not units.finite(us := field * 1_000_000):
            raise ValueError(f"{field!r} is not a time")
        return units.moment_of(max(0, round(us)), now_us)
    return None if field is None else units.deliver_at_us(field, now_us)


def _partition(field: object) -> int | None:
    if field is None or (isinstance(field, int) and not isinstance(field, bool) and field >= 0):
        return field
    raise ValueError(f"{field!r} is not a partition")

"""Messages as JSON and back. Pure.

Text is UTF-8. Bytes that are none are base64, and "encoding": "base64" says so of the value, "keyEncoding" of the key; a header
that is no text is {"base64": "..."}. null is null, never "". Headers are an object, or a list of [name, value] where a name comes
twice. A reader may force base64 ("base64": everything), or text ("utf-8": what is no UTF-8 is replaced, so it may be lossy).
"""

from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from gq_client.draft import priority_of
from gq_gateway.moments import Duration, Time, seconds, unix_seconds
from gq_gateway.problems import Refused
from gq_proto import limits
from gq_proto.errors import BadRequest, GoQueueError

BASE64: Final = "base64"
Encoding = Literal["utf-8", "base64"]
Partition = Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_MAX)]
OffsetNumber = Annotated[int, Meta(ge=0, le=2**53 - 1)]     # exact in JavaScript


class Binary(Struct, forbid_unknown_fields=True):
    """Bytes that are no text."""

    base64: str


Headers = dict[str, str | Binary] | list[tuple[str, str | Binary]] | None


class NewMessage(Struct, forbid_unknown_fields=True, rename="camel"):
    """A message to be published."""

    value: Annotated[str | None, Meta(description="text, or base64 with encoding base64; null is a null value")]
    key: Annotated[str | None, Meta(description="messages of one key keep their order: they go to one partition")] = None
    headers: Annotated[Headers, Meta(
        description='an object, or a list of [name, value] where a name comes twice; Binary is {"base64": "..."}')] = None
    priority: Annotated[int | str | None,
                        Meta(description="0 to 4, or critical, high, normal (default), low, background")] = None
    delay: Annotated[Duration | None, Meta(description="delivered so much later: seconds, or text such as \"5m\"")] = None
    deliver_at: Annotated[Time | None, Meta(description="delivered then: Unix seconds or RFC 3339; not with delay")] = None
    partition: Annotated[Partition | None, Meta(description="this one; else by key, without a key in turn")] = None
    encoding: Annotated[Encoding, Meta(description="of the value")] = "utf-8"
    key_encoding: Annotated[Encoding, Meta(description="of the key")] = "utf-8"


class StoredMessage(Struct, rename="camel", kw_only=True):
    """A message as it lies in a log. timestamp: Unix microseconds. With a lease: delivery (1 is the first) and receipt."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: dict[str, str | Binary] | list[tuple[str, str | Binary]]
    priority: int
    encoding: Encoding | UnsetType = UNSET
    key_encoding: Encoding | UnsetType = UNSET
    delivery: int | UnsetType = UNSET
    receipt: str | UnsetType = UNSET


class Draft(NamedTuple):
    """A new message in gq_client's terms; `plain`: nothing but key, value and partition."""

    value: str | bytes | None
    key: str | bytes | None
    partition: int | None
    plain: bool
    headers: list[tuple[str, Any]] | None = None
    priority: int | None = None
    delay: float | None = None
    deliver_at: float | None = None


# -- in ----------------------------------------------------------------------------------

def draft_of(message: NewMessage) -> Draft:
    """Checked; Refused names the field."""
    value = message.value if message.encoding != BASE64 else unpacked(message.value, "value")
    key = message.key if message.key_encoding != BASE64 else unpacked(message.key, "key")
    if not message.headers and message.priority is None and message.delay is None and message.deliver_at is None:
        return Draft(value, key, message.partition, True)
    delay = None if message.delay is None else seconds(message.delay, "delay", limits.DELAY_MS_MAX / 1000)
    deliver_at = None if message.deliver_at is None else unix_seconds(message.deliver_at, "deliverAt")
    if delay is not None and deliver_at is not None:
        raise Refused(BadRequest("delay and deliverAt exclude each other: give one"), "deliverAt")
    return Draft(value, key, message.partition, False, _headers_in(message.headers), _priority(message.priority), delay, deliver_at)


def unpacked(text: str | None, field: str) -> bytes | None:
    if text is None:
        return None
    try:
        return a2b_base64(text, strict_mode=True)
    except (Error, ValueError):
        raise Refused(BadRequest(f"{field} is not base64"), field) from None


def _headers_in(headers: Headers) -> list[tuple[str, Any]] | None:
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, unpacked(value.base64, f"headers.{name}") if isinstance(value, Binary) else value) for name, value in pairs]


def _priority(priority: int | str | None) -> int | None:
    if priority is None:
        return None
    try:
        return priority_of(int(priority) if isinstance(priority, str) and priority.isdigit() else priority)
    except GoQueueError as error:
        raise Refused(error, "priority") from None


# -- out ---------------------------------------------------------------------------------

Writer = Callable[[bytes | None], tuple[str | None, Encoding | UnsetType]]


def by_content(data: bytes | None) -> tuple[str | None, Encoding | UnsetType]:
    if data is None:
        return None, UNSET
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return packed(data), "base64"


def as_base64(data: bytes | None) -> tuple[str | None, Encoding | UnsetType]:
    return (None, UNSET) if data is None else (packed(data), "base64")


def as_text(data: bytes | None) -> tuple[str | None, Encoding | UnsetType]:
    return (None, UNSET) if data is None else (data.decode("utf-8", "replace"), UNSET)


WRITERS: Final[dict[str, Writer]] = {"auto": by_content, "base64": as_base64, "utf-8": as_text}


def packed(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def stored(records: Sequence[Any], encoding: str = "auto") -> list[StoredMessage]:
    """Decoded records as JSON's. BadRecord when a value does not decompress."""
    write, out = WRITERS[encoding], []
    for record in records:
        value, how = write(record.value)
        message = StoredMessage(topic=record.topic, partition=record.partition, offset=record.offset, timestamp=record.timestamp,
                                key=None, value=value, headers=_headers_out(record.headers, write) if record.raw_headers else {},
                                priority=record.priority, encoding=how)
        if record.key is not None:
            message.key, message.key_encoding = write(record.key)
        out.append(message)
    return out


def _headers_out(headers: list[tuple[str, bytes]], write: Writer) -> dict[str, str | Binary] | list[tuple[str, str | Binary]]:
    shown = [(name, _header_out(value, write)) for name, value in headers]
    found = dict(shown)
    return found if len(found) == len(shown) else shown


def _header_out(value: bytes, write: Writer) -> str | Binary:
    text, how = write(value)
    assert text is not None
    return Binary(text) if how == BASE64 else text

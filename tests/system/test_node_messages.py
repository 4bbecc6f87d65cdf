"""What a message may be, over real daemons: any bytes come back byte for byte; what is too large is refused with a typed error, and
the client goes on with the connections it has."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gq_client.routing import To
from gq_proto import codec, limits
from gq_proto.errors import BadRecord, GoQueueError, TooLarge
from gq_proto.messages import Acks, Kind, Produce, ProducePart
from tests.system.groups import make_topic, read_all
from tests.system.harness import Node

EVERY_BYTE = bytes(range(256))
NOT_UTF8 = b"\xff\xfe\x80\xc3(\xed\xa0\x80\x00"


@pytest.fixture(scope="module")
def client(shared_node: Node) -> Iterator[Any]:
    with shared_node.client() as client:
        yield client


def headers_of_size(size: int) -> list[tuple[str, bytes]]:
    """Headers that encode to `size` bytes: a count of 2, and for each the lengths of name and value."""
    first = ("h", b"x" * 30_000)
    return [first, ("h", b"y" * (size - 2 - (4 + 1 + 30_000) - (4 + 1)))]


def publish_alone(client: Any, topic: str, value: Any, key: Any, headers: Any) -> tuple[int, int]:
    return client.publish(topic, value, key, headers=headers)[:2]  # type: ignore[no-any-return]


def publish_batched(client: Any, topic: str, value: Any, key: Any, headers: Any) -> tuple[int, int]:
    with client.producer() as producer:
        return producer.send(topic, value, key, headers).result(20)[:2]  # type: ignore[no-any-return]


PUBLISHERS = [publish_alone, publish_batched]
Publish = Callable[[Any, str, Any, Any, Any], tuple[int, int]]

ROUND_TRIPS: dict[str, tuple[Any, Any, Any]] = {
    "null key": (b"v", None, None),
    "empty key": (b"v", b"", None),
    "null value": (None, b"k", None),
    "empty value": (b"", b"k", None),
    "nothing at all": (None, None, None),
    "both empty": (b"", b"", None),
    "longest key": (b"v", b"\xff" * limits.KEY_MAX, None),
    "largest value": (EVERY_BYTE * (limits.VALUE_MAX // 256), b"k", None),
    "no UTF-8 anywhere": (NOT_UTF8, NOT_UTF8, [("h", NOT_UTF8)]),
    "a record within a record": (b"GQ\x01\x00" * 40, b"GQ\x01", None),
    "fullest headers": (b"v", b"k", headers_of_size(limits.USER_HEADERS_MAX)),
    "duplicate header names": (b"v", b"k", [("a", b"1"), ("b", b""), ("a", b"2"), ("a", b"1"), ("", b"0")]),
    "all at its largest": (b"v" * limits.VALUE_MAX, b"k" * limits.KEY_MAX, headers_of_size(limits.USER_HEADERS_MAX)),
}


@pytest.mark.parametrize("publish", PUBLISHERS)
def test_legal_messages_come_back_byte_for_byte(shared_node: Node, client: Any, publish: Publish) -> None:
    topic = make_topic(client, f"legal-{publish.__name__}", 1)
    for n, (name, (value, key, headers)) in enumerate(ROUND_TRIPS.items()):
        assert publish(client, topic.name, value, key, headers) == (0, n + 1), name
    found = read_all(client, topic)                 # offset 0 is the leader-change record
    assert len(found) == len(ROUND_TRIPS)
    for record, (name, (value, key, headers)) in zip(found, ROUND_TRIPS.items()):
        assert (record.value, record.key, record.headers) == (value, key, headers or []), name
    shared_node.gqctl("log", "verify", str(shared_node.data / "logs" / topic.name))


REFUSED: dict[str, tuple[Any, Any, Any, type[GoQueueError]]] = {
    "a key of one byte more": (b"v", b"k" * (limits.KEY_MAX + 1), None, TooLarge),
    "a value of one byte more": (b"v" * (limits.VALUE_MAX + 1), b"k", None, TooLarge),
    "headers of one byte more": (b"v", b"k", headers_of_size(limits.USER_HEADERS_MAX + 1), TooLarge),
    "a header of the system's": (b"v", b"k", [("gq-batch", b"1")], BadRecord),
    "a header name that is no UTF-8": (b"v", b"k", [("\udcff", b"1")], BadRecord),
}


@pytest.mark.parametrize("publish", PUBLISHERS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_too_much_is_a_typed_error_and_the_client_goes_on(client: Any, publish: Publish, name: str) -> None:
    value, key, headers, error = REFUSED[name]
    topic = f"refused-{publish.__name__}-{list(REFUSED).index(name)}"
    make_topic(client, topic, 1)
    assert publish(client, topic, b"before", b"k", None) == (0, 1)
    lines = len(client._lines)
    with pytest.raises(error) as caught:
        publish(client, topic, value, key, headers)
    assert caught.value.message and "\n" not in caught.value.message
    assert publish(client, topic, b"behind", b"k", None) == (0, 2)
    assert len(client._lines) == lines, "on the connections it had"


def test_a_larger_limit_is_a_topics_to_set(client: Any) -> None:
    size = 3 * limits.MIB
    topic = make_topic(client, "large", 1, maxMessageBytes=size)
    assert client.publish(topic.name, b"x" * size).offset == 1
    with pytest.raises(TooLarge):
        client.publish(topic.name, b"x" * (size + 1))
    assert client.publish(topic.name, b"small").offset == 2
    assert [len(record.value) for record in read_all(client, topic)] == [size, 5]


FORGED: dict[str, Callable[[bytearray], bytes]] = {
    "empty": lambda frame: b"",
    "a wrong CRC": lambda frame: bytes(frame[:4]) + bytes([frame[4] ^ 1]) + bytes(frame[5:]),
    "a changed value": lambda frame: bytes(frame[:-1]) + bytes([frame[-1] ^ 1]),
    "no magic": lambda frame: b"XX" + bytes(frame[2:]),
    "version 0": lambda frame: bytes(frame[:2]) + b"\x00" + bytes(frame[3:]),
    "version 2": lambda frame: bytes(frame[:2]) + b"\x02" + bytes(frame[3:]),
    "cut short": lambda frame: bytes(frame[:-1]),
    "half a header": lambda frame: bytes(frame[:20]),
    "bytes behind": lambda frame: bytes(frame) + b"G",
    "a huge value length": lambda frame: bytes(frame[:28]) + b"\xff\xff\xff\xfe" + bytes(frame[32:]),
}


def test_forged_batches_are_refused_by_logd_itself(shared_node: Node, client: Any) -> None:
    topic = make_topic(client, "forged", 1)
    builder = codec.BatchBuilder()
    builder.add(b"k", b"value")
    good = bytearray(builder.seal())
    for name, forge in FORGED.items():
        body = Produce([ProducePart(topic.id, 0)], Acks.LEADER)
        reply, _ = client.call(Kind.PRODUCE, body, [forge(good)], to=To.leader(topic.id, 0))
        assert reply.parts[0].error in (BadRecord.code, TooLarge.code), name
        assert reply.parts[0].message, name
    body = Produce([ProducePart(topic.id, 0)] * 2)
    reply, _ = client.call(Kind.PRODUCE, body, [FORGED["a wrong CRC"](good), bytes(good)], to=To.leader(topic.id, 0))
    assert reply.parts[0].error and not reply.parts[1].error, "each part stands for itself"
    assert [record.value for record in read_all(client, topic)] == [b"value"]

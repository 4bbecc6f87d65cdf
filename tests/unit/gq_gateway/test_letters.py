"""Dead letters: what stands in a letter, which are meant, which of the DLQ are outstanding. The rest needs a node."""

from typing import Any

import pytest

from gq_gateway import letters
from gq_gateway.letters import Choice, letter_of
from gq_proto import codec
from gq_proto import errors as e
from gq_proto.messages import GroupInfo, GroupPartition, Kind, MetadataReply, PartitionInfo, PartitionsReply
from gq_proto.names import dlq_of
from tests.unit.gq_gateway.rig import FakeClient


def record(**said: str) -> codec.Record:
    headers = [(f"gq-dlq-{name}", value.encode()) for name, value in said.items()]
    return codec.Record("t.dlq", 0, 9, 3, 2, 0, b"k", b"v", codec.encode_headers(headers))


def test_a_letter_tells_its_origin() -> None:
    letter = letter_of(record(topic="t", partition="2", offset="17", count="3", reason="too bad", time="5", group="g"))
    assert letter[1:] == ("t", 2, 17, 3, "too bad", 5, "g")
    assert letter_of(record(partition="x"))[1:] == ("", -1, -1, -1, "", -1, "")


@pytest.mark.parametrize(("choice", "fits"), [
    (Choice(), True), (Choice(group="g"), True), (Choice(group="h"), False), (Choice(reason="bad"), True),
    (Choice(reason="good"), False),
    (Choice(offsets=frozenset([9])), True), (Choice(offsets=frozenset([8])), False)])
def test_which_letters_are_meant(choice: Choice, fits: bool) -> None:
    assert choice.fits(letter_of(record(topic="t", reason="too bad", group="g"))) is fits


def outstanding(book: GroupPartition | None, log_start: int = 0, end: int = 10) -> Any:
    import asyncio
    client = FakeClient()
    topic = client.add_topic(dlq_of("t"), 1)
    client.answers[Kind.METADATA] = MetadataReply(0, [], [], [])
    part = PartitionInfo(topic.id, topic.name, 0, 1, True, True, log_start, end, end, 0, 1)
    client.answers[Kind.PARTITIONS] = PartitionsReply([part])
    books = GroupInfo("__dlq", 1, "shared", 1, False, [], [book]) if book else e.UnknownGroup("none")
    client.answers[Kind.DESCRIBE_GROUP] = books
    return asyncio.run(client.run(letters.outstanding(client.routes, "t", None)))


def book(committed: int, ahead: list[int]) -> GroupPartition:
    return GroupPartition("t.dlq", 7, 0, "", committed, 10, 0, 0, 0, 0, ahead)


def test_what_is_outstanding() -> None:
    assert outstanding(None) == {0: [0, 10]}
    assert outstanding(None, log_start=4) == {0: [4, 6]}
    assert outstanding(book(3, [5, 2])) == {0: [3, 2, 7, 3]}
    assert outstanding(book(10, [])) == {0: []}
    assert outstanding(book(0, []), end=0) == {0: []}

"""Dead letters: what stands in a letter, which are meant, which of the DLQ are outstanding, what becomes of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from gq_client import letters
from gq_client.letters import Choice, Letter, letter_of
from gq_client.routing import Routes
from gq_proto import codec
from gq_proto import errors as e
from gq_proto.messages import (
    GroupInfo,
    GroupPartition,
    Kind,
    Mark,
    MarkReply,
    MetadataReply,
    PartitionInfo,
    PartitionMeta,
    PartitionsReply,
    TopicConfig,
    TopicMeta,
)
from gq_proto.names import dlq_of


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


class Node:
    """Drives an operation; `answers` by Kind: a body, an error, or a function of what was asked. `asked`: all that was."""

    def __init__(self, log_start: int = 0, end: int = 10, created_us: int = 0) -> None:
        self.routes = Routes(["ipc://nowhere"])
        self.asked: list[Any] = []
        parts = {}
        for name, id in (("t", 7), (dlq_of("t"), 8)):
            self.routes.add(TopicMeta(name, id, TopicConfig(), [PartitionMeta("n", 1)], created_us=created_us))
            parts[id] = PartitionsReply([PartitionInfo(id, name, 0, 1, True, True, log_start, end, end, 0, 1)])
        self.answers: dict[int, Any] = {
            Kind.METADATA: MetadataReply(0, [], [], []), Kind.PARTITIONS: lambda body: parts[body.topic_ids[0]],
            Kind.MARK: MarkReply([1]), Kind.DESCRIBE_GROUP: e.UnknownGroup("none")}

    def run(self, operation: Any) -> Any:
        step = next(operation)
        while True:
            many = isinstance(step, list)
            found = [self._answer(ask) for ask in (step if many else [step])]
            try:
                if not many and isinstance(found[0], Exception):
                    step = operation.throw(found[0])
                else:
                    step = operation.send([(one, ()) for one in found] if many else (found[0], ()))
            except StopIteration as done:
                return done.value

    def _answer(self, ask: Any) -> Any:
        self.asked.append(ask.body)
        found = self.answers[ask.kind]
        return found(ask.body) if callable(found) else found

    def marks(self) -> Iterator[tuple[Any, ...]]:
        for body in self.asked:
            for one in body.items if isinstance(body, Mark) else ():
                yield body.group, one.topic_id, one.partition, one.ack, one.low, one.high, body.create


def outstanding(book: GroupPartition | None, **node: int) -> Any:
    played = Node(**node)
    if book:
        played.answers[Kind.DESCRIBE_GROUP] = GroupInfo("__dlq", 1, "shared", 1, False, [], [book])
    return played.run(letters.outstanding(played.routes, "t", None))


def book(committed: int, ahead: list[int]) -> GroupPartition:
    return GroupPartition("t.dlq", 7, 0, "", committed, 10, 0, 0, 0, 0, ahead)


def test_what_is_outstanding() -> None:
    assert outstanding(None) == {0: [0, 10]}
    assert outstanding(None, log_start=4) == {0: [4, 6]}
    assert outstanding(book(3, [5, 2])) == {0: [3, 2, 7, 3]}
    assert outstanding(book(10, [])) == {0: []}
    assert outstanding(book(0, []), end=0) == {0: []}


def letter(at: int, origin: int, **said: str) -> Letter:
    found = record(**{"topic": "t", "partition": "0", "offset": str(origin), "count": "3", "time": "100", "group": "g", **said})
    return letter_of(codec.Record("t.dlq", 0, at, 3, 2, 0, b"k", b"v", found.raw_headers))


def test_origins_are_reopened_and_letters_acked_as_ranges() -> None:
    node, some = Node(end=60), [letter(5, 40), letter(6, 41), letter(9, 50)]
    assert node.run(letters.reopen(node.routes, some)) == some
    node.run(letters.settle(node.routes, "t", some))
    assert list(node.marks()) == [("g", 7, 0, False, 40, 42, False), ("g", 7, 0, False, 50, 51, False),
                                  (letters.BOOKS, 8, 0, True, 5, 7, True), (letters.BOOKS, 8, 0, True, 9, 10, True)]


@pytest.mark.parametrize(("node", "said", "why"), [
    (Node(log_start=41), {}, "fell off the log"), (Node(created_us=101), {}, "the topic was made anew"),
    (Node(), {"topic": "gone"}, "there is no such topic"), (Node(), {"group": ""}, "of no group"),
    (Node(), {"offset": "x"}, "it does not say where it lay")])
def test_what_has_no_origin_any_more_is_not_reopened(node: Node, said: dict[str, str], why: str) -> None:
    assert node.run(letters.reopen(node.routes, [letter(5, 40, **said)])) == [], why
    assert not list(node.marks())


def test_a_group_that_is_gone_gets_nothing_the_others_do() -> None:
    node = Node(end=60)
    node.answers[Kind.MARK] = lambda body: e.UnknownGroup("gone") if body.group == "h" else MarkReply([1])
    some = [letter(5, 40, group="h"), letter(6, 41)]
    assert node.run(letters.reopen(node.routes, some)) == some[1:]

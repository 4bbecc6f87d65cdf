"""Operations as transcripts: what they ask of whom, and what they make of the answers."""

from collections.abc import Generator
from typing import Any

import pytest

from gq_client import admin, topics
from gq_client.ask import Ask
from gq_client.cursor import locate
from gq_client.routing import Routes, To
from gq_proto import messages as m
from gq_proto.errors import BadName, BadRequest, Busy, Forbidden, StaleReceipt, UnknownPartition, UnknownTopic
from gq_proto.messages import Kind, Op
from gq_proto.receipt import Receipt
from tests.unit.gq_client.wire_fakes import news, topic


class Run:
    """Drives an operation; `asked` are its requests, as many as answers were given."""

    def __init__(self, operation: Generator[Any, Any, Any], routes: Routes) -> None:
        self._operation, self._routes = operation, routes
        self.asked: list[Any] = []
        self.result: Any = None
        self.done = False

    def with_answers(self, *answers: Any) -> "Run":
        value: Any = None
        try:
            for answer in answers:
                self.asked.append(self._operation.send(value))
                if isinstance(answer, m.MetadataReply):
                    self._routes.merge(answer)
                value = [self._pair(one) for one in answer] if isinstance(answer, list) else self._pair(answer)
            self._operation.send(value)
        except StopIteration as end:
            self.result, self.done = end.value, True
        assert self.done, "it asks more"
        return self

    @staticmethod
    def _pair(answer: Any) -> Any:
        return answer if isinstance(answer, Exception) else (answer, [])


@pytest.fixture
def routes() -> Routes:
    return Routes(["a"])


def info(partition: int, leader: bool = True) -> m.PartitionInfo:
    return m.PartitionInfo(5, "t", partition, 1, leader, True, 0, 10, 10, 1, 1)


def test_ensure_asks_nothing_of_a_known_topic(routes: Routes) -> None:
    routes.merge(news(topic()))
    run = Run(topics.ensure(routes, "t"), routes).with_answers()
    assert run.result.id == 5 and run.asked == []


def test_ensure_looks_then_makes(routes: Routes) -> None:
    run = Run(topics.ensure(routes, "t"), routes).with_answers(news(), m.TopicReply(topic(), 2, True))
    assert [ask.kind for ask in run.asked] == [Kind.METADATA, Kind.CREATE_TOPIC]
    assert run.asked[1].body.auto and run.asked[1].body.if_not_exists and routes.topic("t").id == 5


def test_ensure_refuses_bad_names_at_once(routes: Routes) -> None:
    with pytest.raises(BadName):
        next(topics.ensure(routes, "no/slash"))


def test_create_is_repeated_only_when_that_does_no_harm(routes: Routes) -> None:
    for fine in (True, False):
        operation = admin.create_topic(routes, "t", partitions=2, if_not_exists=fine)
        run = Run(operation, routes).with_answers(m.TopicReply(topic(), 1, True))
        assert run.asked[0].safe is fine and run.asked[0].body.partitions == 2
    assert "t" in routes.topics


def test_delete_forgets_the_topic(routes: Routes) -> None:
    routes.merge(news(topic()))
    Run(admin.delete_topic(routes, "t"), routes).with_answers(m.DeleteTopicReply(5, 2))
    assert not routes.topics


def test_unknown_topics_and_partitions(routes: Routes) -> None:
    with pytest.raises(UnknownTopic):
        Run(admin.topic(routes, "x"), routes).with_answers(news(topic()))
    with pytest.raises(UnknownPartition):
        Run(admin.delete_before(routes, "t", 7), routes).with_answers(news(topic()))


def test_partitions_come_from_every_leader_in_order(routes: Routes) -> None:
    run = Run(admin.partitions(routes, "t"), routes).with_answers(
        news(topic()), [m.PartitionsReply([info(1), info(0), info(0, leader=False)])])
    assert [part.partition for part in run.result] == [0, 1]
    assert [ask.to for ask in run.asked[1]] == [To.node("logd", "n")]


def test_an_error_of_one_of_many_is_raised(routes: Routes) -> None:
    with pytest.raises(Busy):
        Run(admin.purge(routes, "t"), routes).with_answers(news(topic()), [m.DeleteBeforeReply(3), Busy("b")])


def test_what_the_daemons_keep_is_not_purged(routes: Routes) -> None:
    for operation in (admin.purge(routes, "__groups"), admin.delete_before(routes, "__groups", 0)):
        with pytest.raises(Forbidden, match="__groups is internal"):
            Run(operation, routes).with_answers()


def test_reset_marks_both_sides(routes: Routes) -> None:
    run = Run(admin.reset(routes, "g", "t", 1, 40), routes).with_answers(news(topic()), m.MarkReply([30, 9]))
    ask: Ask = run.asked[1]
    assert run.result == (30, 9) and ask.to == To.group("g") and ask.body.create
    assert [(mark.ack, mark.low, mark.high) for mark in ask.body.items] == [(True, 0, 40), (False, 40, -1)]


def test_receipts_are_settled_by_groups_partition_and_answered_in_order(routes: Routes) -> None:
    receipts = [Receipt("t", 0, offset, 1, partition, 3, 4, 5) for offset, partition in ((10, 1), (11, 2), (12, 1), (13, 3))]
    late = m.SettleResult(StaleReceipt.code, "late")
    answers = [m.SettleReply([m.SettleResult(), late]), m.SettleReply([m.SettleResult()]), Busy("b")]
    run = Run(admin.settle(routes, Op.NACK, receipts, arg_ms=7), routes).with_answers(answers)
    assert [ask.to.partition for ask in run.asked[0]] == [1, 2, 3]
    assert [item.offset for item in run.asked[0][0].body.items] == [10, 12]
    assert [type(error).__name__ for error in run.result] == ["NoneType", "NoneType", "StaleReceipt", "Busy"]


@pytest.mark.parametrize(("start", "answers", "offset"), [
    ("earliest", [], 0), (17, [], 17), (1.5, [news(topic()), m.OffsetForTimeReply(33, 0)], 33),
    ("latest", [news(topic()), [m.PartitionsReply([info(0), info(1)])]], 10)])
def test_positions(routes: Routes, start: Any, answers: list[Any], offset: int) -> None:
    run = Run(locate(routes, "t", 1, start), routes).with_answers(news(topic()), *answers)
    assert run.result[1] == offset


@pytest.mark.parametrize("start", [-1, "newest"])
def test_positions_that_are_none(routes: Routes, start: Any) -> None:
    with pytest.raises(BadRequest):
        Run(locate(routes, "t", 1, start), routes).with_answers(news(topic()))

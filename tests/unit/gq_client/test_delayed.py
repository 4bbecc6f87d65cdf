"""What is asked of which delayd, and what its answers become."""

from typing import Any

import pytest

from gq_client import delayed
from gq_client.ask import Ask
from gq_client.batch import Published
from gq_client.delayed import OFFSET_MAX, Delayed, Page
from gq_client.routing import Routes, To
from gq_proto import codec, limits
from gq_proto import messages as m
from gq_proto.errors import BadRequest, Busy, Corrupt, Internal, TimedOut, Unavailable, UnknownPartition, UnknownTopic
from gq_proto.headers import delay_header
from gq_proto.messages import Fate, Isolation, Kind
from gq_proto.record import DELAYED
from tests.unit.gq_client.test_admin import Run
from tests.unit.gq_client.wire_fakes import DELAYD, news

LED_BY = ("n", "o", "n", "")         # partition 3 has no leader just now


@pytest.fixture
def routes() -> Routes:
    return Routes(["a"])


def metadata(*leaders: str) -> m.MetadataReply:
    return news(m.TopicMeta("t", 5, m.TopicConfig(), [m.PartitionMeta(leader, 1) for leader in leaders], 1, 0, 1))


def listed(partitions: list[int], *rows: int, more: bool = False) -> m.ListDelayedReply:
    return m.ListDelayedReply(list(rows), more, partitions)


def record(offset: int, key: bytes | None) -> bytes:
    builder = codec.BatchBuilder()
    builder.add(key, b"v", codec.encode_headers([delay_header(1000)]), flags=DELAYED)
    data = bytearray(builder.seal())
    codec.stamp(data, offset, 1_000_000)
    return bytes(data)


def fetched(next_offset: int, covered: int = 1, log_start: int = 0, hidden: list[int] | None = None) -> m.FetchReply:
    return m.FetchReply([m.Fetched(0, "", 1, log_start, 100, 100, next_offset, hidden or [], [0] * covered, covered)])


class Frames(Run):
    """Answers may be (body, frames)."""

    @staticmethod
    def _pair(answer: Any) -> Any:
        return answer if isinstance(answer, tuple | Exception) else (answer, [])


def test_a_page_is_put_together_from_all_nodes_in_order_of_due_times(routes: Routes) -> None:
    run = Run(delayed.delayed(routes, "t", after=(7, 0, 1), limit=3, keys=False), routes).with_answers(
        metadata(*LED_BY[:3]), [listed([0, 2], 2, 9, 30, 0, 5, 40), listed([1], 1, 8, 10, 1, 2, 30, more=True)])
    nodes: list[Ask] = run.asked[1]
    assert [ask.to for ask in nodes] == [To.node("delayd", "n", 5), To.node("delayd", "o", 5)]
    assert [(ask.kind, ask.body.after, ask.body.limit) for ask in nodes] == [(Kind.LIST_DELAYED, [7, 0, 1], 3)] * 2   # type: ignore[attr-defined]
    assert run.result == Page([Delayed(1, 8, 10, None), Delayed(1, 2, 30, None), Delayed(2, 9, 30, None)], (30, 2, 9))


def test_the_last_page_says_so(routes: Routes) -> None:
    rows = (0, 5, 40, 0, 6, 41)
    for reply, after in ((listed([0], *rows), None), (listed([0], *rows, more=True), (41, 0, 6)), (listed([0]), None)):
        run = Run(delayed.delayed(routes, "t", limit=2, keys=False), routes).with_answers(metadata("n"), [reply])
        assert run.result.after == after


def test_a_partition_that_no_answer_covered_is_asked_for_alone(routes: Routes) -> None:
    run = Run(delayed.delayed(routes, "t", keys=False), routes).with_answers(
        metadata(*LED_BY), [listed([0], 0, 1, 10), listed([1])], [listed([2], 2, 1, 5), listed([3])])
    assert [ask.to for ask in run.asked[2]] == [To.delays(5, 2), To.delays(5, 3)]
    assert [row.partition for row in run.result.messages] == [2, 0]


def test_one_partition_is_asked_of_its_delayd(routes: Routes) -> None:
    run = Run(delayed.delayed(routes, "t", partition=1, keys=False), routes).with_answers(metadata(*LED_BY), [listed([1], 1, 4, 9)])
    assert [ask.to for ask in run.asked[1]] == [To.delays(5, 1)] and run.result == Page([Delayed(1, 4, 9, None)], None)
    assert routes.endpoint(To.delays(5, 0)) == DELAYD


def test_keys_are_read_and_what_went_meanwhile_is_left_out(routes: Routes) -> None:
    rows = (0, 9, 1, 0, 3, 2, 1, 3, 3, 0, 4, 4, 0, 6, 5, 0, 8, 6)
    run = Frames(delayed.delayed(routes, "t"), routes).with_answers(
        metadata("n", "n"), [listed([0, 1], *rows)],
        [(fetched(5, 1, log_start=4), [record(4, b"k4")]), (fetched(4), [record(3, None)])],
        [(fetched(10, 3, hidden=[8, 1]), [record(6, b"k6") + record(8, b"k8") + record(9, b"")])])
    first, second = run.asked[2], run.asked[3]
    assert [ask.to for ask in first] == [To.leader(5, 0), To.leader(5, 1)]
    assert [ask.body.parts[0].ranges for ask in first] == [[3, 2, 6, 1, 8, 2], [3, 1]]
    assert all(ask.body.include_delayed and ask.body.isolation == Isolation.READ_UNCOMMITTED for ask in first)
    assert [ask.body.parts[0].ranges for ask in second] == [[6, 1, 8, 2]], "a full answer is gone on from"
    assert run.result.messages == [Delayed(0, 9, 1, b""), Delayed(1, 3, 3, None), Delayed(0, 4, 4, b"k4"), Delayed(0, 6, 5, b"k6")]


def test_keys_that_cannot_be_read(routes: Routes) -> None:
    nothing = (fetched(3, 0), [b""])
    run = Frames(delayed.delayed(routes, "t"), routes).with_answers(metadata("n"), [listed([0], 0, 3, 2)], [nothing])
    assert run.result.messages == [Delayed(0, 3, 2, None)], "it ends all the same"
    for wrong in (Busy("b"), (m.FetchReply([m.Fetched(Corrupt.code, "at byte 7")]), [b""])):
        with pytest.raises(Busy if isinstance(wrong, Busy) else Corrupt):
            Frames(delayed.delayed(routes, "t"), routes).with_answers(metadata("n"), [listed([0], 0, 3, 2)], [wrong])


def test_pages_that_are_none(routes: Routes) -> None:
    for limit in (0, -1, limits.DELAYED_PAGE_MAX + 1):
        with pytest.raises(BadRequest):
            next(delayed.delayed(routes, "t", limit=limit))
    with pytest.raises(UnknownPartition):
        Run(delayed.delayed(routes, "t", partition=2), routes).with_answers(metadata("n", "n"))
    with pytest.raises(UnknownTopic):
        Run(delayed.delayed(routes, "x"), routes).with_answers(metadata("n"))


def test_fates_come_in_the_order_asked(routes: Routes) -> None:
    places = [(1, 7), (0, 3), (1, 6), Published(0, 3, 99), (0, 9), [1, 2]]
    run = Run(delayed.cancel_delayed(routes, "t", places), routes).with_answers(
        metadata("n", "n"), [m.CancelDelayedReply([2, 1, 3, 6, 2, 1]), m.CancelDelayedReply([3, 1, 0, 9, 1, 2])])
    assert [(ask.to, ask.body.ranges, ask.safe) for ask in run.asked[1]] == [
        (To.delays(5, 1), [2, 1, 6, 2], True), (To.delays(5, 0), [3, 1, 9, 1], True)]
    assert run.result == [Fate.DELIVERED, Fate.CANCELLED, Fate.DELIVERED, Fate.CANCELLED, Fate.ALREADY_CANCELLED, Fate.NONE]


def test_an_unknown_fate_is_an_error_of_its_own(routes: Routes) -> None:
    run = Run(delayed.cancel_delayed(routes, "t", [(0, 1), (1, 2), (1, 5)]), routes).with_answers(
        metadata("n", "n"), [TimedOut("t"), m.CancelDelayedReply([2, 1, 0])])
    assert [type(fate) for fate in run.result] == [TimedOut, Fate, Internal]


def test_many_offsets_are_asked_for_in_portions(routes: Routes) -> None:
    many = limits.DELAYED_RANGES_MAX + 1
    answers = [m.CancelDelayedReply([n for at in range(0, len(part), 2) for n in (part[at], 1, 0)])
               for part in ([n for at in range(many - 1) for n in (2 * at, 1)], [2 * (many - 1), 1])]
    run = Run(delayed.cancel_delayed(routes, "t", [(0, 2 * at) for at in range(many)]), routes).with_answers(metadata("n"), answers)
    assert [len(ask.body.ranges) for ask in run.asked[1]] == [2 * (many - 1), 2] and set(run.result) == {Fate.CANCELLED}


@pytest.mark.parametrize(("place", "error"), [((0, -1), BadRequest), ((0, OFFSET_MAX + 1), BadRequest), ((2, 0), UnknownPartition),
                                              ((-1, 0), UnknownPartition)])
def test_nothing_is_cancelled_when_a_place_is_none(routes: Routes, place: Any, error: Any) -> None:
    with pytest.raises(error):
        Run(delayed.cancel_delayed(routes, "t", [(0, 1), place]), routes).with_answers(metadata("n", "n"))
    assert Run(delayed.cancel_delayed(routes, "t", []), routes).with_answers(metadata("n")).result == []


def part(topic: str, partition: int) -> m.DelayPartition:
    return m.DelayPartition(5, topic, partition, 1, 0, 2, 3, 4, -1)


def test_stats_of_a_topic_and_of_all(routes: Routes) -> None:
    one = Run(delayed.delay_stats(routes, "t"), routes).with_answers(
        metadata("n", "o"), [m.DelayStatsReply([part("t", 0)]), m.DelayStatsReply([])], [m.DelayStatsReply([part("t", 1)])])
    assert [ask.to for ask in one.asked[1]] == [To.node("delayd", "n", 5), To.node("delayd", "o", 5)]
    assert [ask.to for ask in one.asked[2]] == [To.delays(5, 1)] and [stat.partition for stat in one.result] == [0, 1]
    every = Run(delayed.delay_stats(routes), routes).with_answers(
        metadata("n"), [m.DelayStatsReply([part("u", 0), part("t", 1), part("t", 0)])])
    assert [ask.to for ask in every.asked[1]] == [To.node("delayd", "n")]
    assert [(stat.topic, stat.partition) for stat in every.result] == [("t", 0), ("t", 1), ("u", 0)]


def test_stats_without_any_delayd(routes: Routes) -> None:
    bare = m.MetadataReply(1, [], [], [], "c")
    with pytest.raises(Unavailable, match="no delayd"):
        Run(delayed.delay_stats(routes), routes).with_answers(bare)

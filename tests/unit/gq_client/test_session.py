"""Transcripts of requests: where they go, how often, and how they end."""

from typing import Any

import pytest

from gq_client.backoff import MAX_S, backoff
from gq_client.routing import METAD as TO_METAD
from gq_client.routing import To
from gq_client.session import CONNECT_S, NEVER, Call
from gq_proto import limits
from gq_proto import messages as m
from gq_proto.errors import (
    BadRequest,
    Busy,
    Closed,
    DiskFull,
    NotCoordinator,
    NotLeader,
    TimedOut,
    Unavailable,
    UnknownPartition,
    UnknownTopicId,
)
from gq_proto.messages import Kind
from tests.unit.gq_client.wire_fakes import GROUPD, LOGD, METAD, Line, news, topic

LEADER = To.leader(5, 1)
ASK = m.OffsetForTime(1)
REPLY = m.OffsetForTimeReply(7, 8)


def known() -> Line:
    return Line(topic())


def test_a_request_goes_to_the_leader_and_its_reply_ends_it() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, patience=2.0)
    endpoint, request, body, _ = line.sent[0]
    assert (endpoint, request.topic_id, request.partition, request.epoch, request.deadline_ms) == (LOGD, 5, 1, -1, 2000)
    assert body == ASK
    line.answer(REPLY)
    assert call.result()[0] == REPLY
    assert line.ended == [call] and not len(line.session)


def test_frames_travel_both_ways() -> None:
    line = known()
    call = line.call(Kind.FETCH, m.Fetch([m.FetchPart(5, 1, -1, 0)]), LEADER, payload=[b"up"])
    assert line.sent[0][3] == [b"up"]
    line.answer(m.FetchReply([m.Fetched(0)]), b"down")
    assert call.result()[1] == [b"down"]


def test_routes_are_asked_for_once_and_everybody_waits_for_them() -> None:
    line = Line()
    calls = [line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER) for _ in range(3)]
    assert line.kinds() == [Kind.METADATA]
    line.answer(news(topic()))
    assert line.kinds() == [Kind.OFFSET_FOR_TIME] * 3
    for _ in calls:
        line.answer(REPLY)
    assert line.ended == calls


def test_requests_wait_for_their_connection_in_order() -> None:
    line = known()
    line.dead.add(LOGD)
    for stamp in (1, 2, 3):
        line.call(Kind.OFFSET_FOR_TIME, m.OffsetForTime(stamp), LEADER)
    assert line.sent == []
    line.session.up(line.now, LOGD)
    line.run()
    assert [body.timestamp_us for _, _, body, _ in line.sent] == [1, 2, 3]


def test_a_group_is_found_by_its_partition() -> None:
    line = Line(topic("__groups", 9, 16))
    line.call(Kind.DESCRIBE_GROUP, m.DescribeGroup("g"), To.group("g"))
    endpoint, request, _, _ = line.sent[0]
    assert endpoint == GROUPD and 0 <= request.partition < 16


@pytest.mark.parametrize("error", [Busy("b"), DiskFull("d"), Unavailable("u")])
def test_retriable_errors_are_retried_with_backoff_within_the_deadline(error: Busy) -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, patience=1.0)
    tries = 0
    while not call.done:
        if line.sent:
            tries += 1
            line.refuse(error)
            assert not line.sent, "no backoff"
        line.wait(0.01)
    assert 4 <= tries <= 8
    assert isinstance(call.error, type(error)), "the last reason says more than that time is up"


def test_a_retry_that_succeeds_is_a_success() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER)
    line.refuse(Busy("later"))
    line.wait(0.1)
    line.answer(REPLY)
    assert call.result()[0] == REPLY


def test_what_cannot_get_better_is_not_retried() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER)
    line.refuse(BadRequest("no"))
    assert isinstance(call.error, BadRequest)
    assert line.session.next_due == NEVER or not len(line.session)


def test_a_single_try_is_one() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, single=True)
    line.refuse(Busy("b"))
    assert isinstance(call.error, Busy) and not call.unknown_fate


@pytest.mark.parametrize("error", [NotLeader("moved"), UnknownPartition("p"), UnknownTopicId("t")])
def test_a_moved_partition_is_followed(error: NotLeader) -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER)
    line.refuse(error)
    assert line.kinds() == [Kind.METADATA]
    line.answer(news(topic(version=2), version=2, logd="ipc:///other"))
    line.wait(0.2)
    assert line.sent[0][0] == "ipc:///other"
    line.answer(REPLY)
    assert call.result()[0] == REPLY


@pytest.mark.parametrize("error", [UnknownPartition("p"), UnknownTopicId("t")])
def test_unknown_is_final_when_metadata_says_so_too(error: UnknownTopicId) -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER)
    line.refuse(error)
    line.answer(news(version=2, deleted=(5,)))
    assert call.error and type(call.error) is type(error)


def test_a_topic_that_was_never_there_ends_with_the_first_news() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, To.leader(99, 0))
    line.answer(news(topic(), version=2))
    assert isinstance(call.error, UnknownTopicId)


def test_a_coordinator_that_replays_is_waited_for() -> None:
    line = Line(topic("__groups", 9, 16))
    call = line.call(Kind.DESCRIBE_GROUP, m.DescribeGroup("g"), To.group("g"))
    line.refuse(NotCoordinator("replaying"))
    line.answer(news(topic("__groups", 9, 16), version=2))
    line.wait(0.2)
    assert line.kinds() == [Kind.DESCRIBE_GROUP]
    assert not call.done


def test_a_daemon_that_is_not_registered_yet_is_waited_for() -> None:
    line = Line()
    line.routes.merge(m.MetadataReply(1, [topic()], [], [], "c"))
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, patience=5)
    for _ in range(3):
        assert line.kinds() == [Kind.METADATA]
        line.answer(m.MetadataReply(1, [], [], [], "c"))
        line.wait(1.0)
    line.answer(news(version=2))
    line.wait(1.0)
    line.answer(REPLY)
    assert call.result()[0] == REPLY


def test_a_broken_connection_repeats_what_is_safe() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER)
    line.break_line(LOGD)
    line.answer(news())
    line.wait(0.1)
    assert line.kinds() == [Kind.OFFSET_FOR_TIME]
    line.answer(REPLY)
    assert call.result()[0] == REPLY


def test_a_broken_connection_ends_what_is_not() -> None:
    line = known()
    call = line.call(Kind.DELETE_TOPIC, m.DeleteTopic("t"), TO_METAD, safe=False)
    line.break_line(METAD)
    assert isinstance(call.error, Unavailable) and call.unknown_fate
    assert line.sent == []


def test_what_waits_for_a_dead_leader_follows_to_the_new_one() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER)
    line.break_line(LOGD, up=False)
    line.wait(0.1)                            # tries again: parked at the dead endpoint
    line.answer(news(topic(version=2), version=2, logd="ipc:///other"))
    line.wait(0.1)
    assert line.sent[0][0] == "ipc:///other"
    line.answer(REPLY)
    assert call.result()[0] == REPLY


def test_no_answer_is_timed_out_and_a_late_one_is_dropped() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, patience=2.0)
    line.wait(1.99)
    assert not call.done
    line.wait(0.02)
    assert isinstance(call.error, TimedOut) and call.unknown_fate
    line.answer(REPLY)
    assert line.ended == [call]


def test_a_node_that_is_not_there_is_given_up_early() -> None:
    line = Line()
    line.dead.add(METAD)
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, patience=60.0)
    line.wait(CONNECT_S + 0.1)
    assert isinstance(call.error, Unavailable) and METAD in call.error.message


def test_the_next_metad_is_tried() -> None:
    line = Line(bootstrap=(METAD, "tcp://b"))
    line.dead.add(METAD)
    call = line.call(Kind.METADATA, m.Metadata(), TO_METAD)
    line.wait(1.5)
    assert line.sent[0][0] == "tcp://b"
    line.answer(news(topic()))
    assert call.reply and line.routes.version == 1


def test_garbage_and_answers_to_nothing_are_dropped() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER)
    for frame in (b"", b"\xc1", b"\x90", m.encode_reply(Kind.OFFSET_FOR_TIME, 77, REPLY), m.encode_reply(200, 1, REPLY)):
        line.session.received(line.now, LOGD, [frame])
    assert not call.done
    line.answer(REPLY)
    assert call.done


def test_pushes_go_to_their_handler() -> None:
    line, got = known(), []
    line.session.on_push = lambda kind, body: got.append((kind, body.group))
    line.session.received(line.now, GROUPD, [m.encode_reply(Kind.ASSIGNED, 0, m.AssignedPush("g", "m", 1, []))])
    assert got == [(Kind.ASSIGNED, "g")]


def test_a_message_that_cannot_be_sent_is_tried_again() -> None:
    line = known()
    line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER)
    line.sent.clear()
    second = line.session.submit(line.now, Call(Kind.OFFSET_FOR_TIME, ASK, LEADER, line.now + 9, line.ended.append))
    line.session.outbox.clear()
    line.session.unsent(line.now, second)
    assert not second.done
    line.wait(0.1)
    assert line.kinds() == [Kind.OFFSET_FOR_TIME]


def test_silent_requests_end_when_they_are_sent() -> None:
    line = known()
    call = line.call(Kind.PRODUCE, m.Produce([], 0), LEADER, silent=True)
    assert call.done and call.error is None and len(line.sent) == 1


def test_close_ends_everything() -> None:
    line = known()
    calls = [line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER) for _ in range(3)]
    line.session.close()
    assert all(isinstance(call.error, Closed) for call in calls) and len(line.session) == 0


def test_a_cancelled_call_says_nothing_more() -> None:
    line = known()
    call = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, patience=1)
    line.session.cancel(call)
    line.answer(REPLY)
    line.wait(5)
    assert line.ended == [] and len(line.session) == 0


def test_backoff_doubles_is_capped_and_half_of_it_is_chance() -> None:
    waits = [backoff(attempt, 0.999999) for attempt in range(1, 20)]
    assert waits == sorted(waits) and waits[1] == pytest.approx(2 * waits[0])
    assert waits[-1] == pytest.approx(MAX_S) and backoff(3, 0.0) == pytest.approx(backoff(3, 0.999999) / 2, rel=1e-3)


def test_a_request_for_several_answers_ends_with_the_last() -> None:
    line = known()
    call = line.call(Kind.FETCH, m.Fetch([m.FetchPart(5, 1, -1, 0)], answers=3), LEADER)
    for value in (b"one", b"two"):
        line.answer(m.FetchReply([m.Fetched(0)], True), value)
        assert call.frames == [value] and not call.done and len(line.session) == 1
    line.answer(m.FetchReply([m.Fetched(0)]), b"three")
    assert call.done and call.frames == [b"three"]
    assert line.ended == [call] * 3, "told of each"


def test_several_answers_stop_when_the_connection_breaks() -> None:
    line = known()
    call = line.call(Kind.FETCH, m.Fetch([m.FetchPart(5, 1, -1, 0)], answers=3), LEADER, single=True)
    line.answer(m.FetchReply([m.Fetched(0)], True), b"one")
    line.session.down(line.now, LOGD)
    assert isinstance(call.error, Unavailable) and call.done and call.reply is None


def test_a_daemon_that_does_not_know_either_is_asked_again_only_if_that_is_safe() -> None:
    """"The change is made, but not confirmed": asked again, it would say that the topic exists already."""
    line = known()
    unsafe, safe = (line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, safe=safe) for safe in (False, True))
    line.refuse(TimedOut("made, but not confirmed"))
    line.refuse(TimedOut("made, but not confirmed"))
    line.wait(1.0)
    assert isinstance(unsafe.error, TimedOut) and unsafe.unknown_fate
    line.answer(REPLY)
    assert safe.result()[0] == REPLY


# -- more than a connection queues ----------------------------------------------------------------

MOST = limits.UNANSWERED_MAX


def ask_many(line: Line, count: int, **options: Any) -> list[Call]:
    return [line.call(Kind.OFFSET_FOR_TIME, m.OffsetForTime(i), LEADER, **options) for i in range(count)]


def stamps(line: Line) -> list[int]:
    return [body.timestamp_us for _, _, body, _ in line.sent if isinstance(body, m.OffsetForTime)]


def test_no_more_is_under_way_than_a_daemon_can_answer() -> None:
    line = known()
    calls = ask_many(line, MOST + 3)
    assert stamps(line) == list(range(MOST))
    line.answer(REPLY)
    line.refuse(BadRequest("no"))
    assert stamps(line) == list(range(2, MOST + 2))
    while line.sent:
        line.answer(REPLY)
    assert line.ended == calls and not line.session._queued


def test_long_polls_take_no_room_and_need_none() -> None:
    line = known()
    fetch = m.Fetch([m.FetchPart(5, 1, -1, 0)], max_wait_ms=1_000)
    for _ in range(MOST + 1):
        line.call(Kind.FETCH, fetch, LEADER)
    ask_many(line, MOST + 1)
    line.call(Kind.FETCH, fetch, LEADER)
    assert line.kinds() == [Kind.FETCH] * (MOST + 1) + [Kind.OFFSET_FOR_TIME] * MOST + [Kind.FETCH]


def test_who_gives_up_makes_room() -> None:
    line = known()
    calls = ask_many(line, MOST + 2)
    line.session.cancel(calls[MOST])                 # which was not sent yet: it takes none
    line.session.cancel(calls[0])
    line.run()
    assert stamps(line) == [*range(MOST), MOST + 1]
    line.answer(REPLY)                               # to the one that nobody waits for
    assert line.ended == [] and len(line.sent) == MOST


def test_what_was_not_even_sent_in_time_may_be_asked_again() -> None:
    line = known()
    ask_many(line, MOST)
    late = line.call(Kind.OFFSET_FOR_TIME, ASK, LEADER, patience=2.0, safe=False)
    line.wait(2.1)
    assert isinstance(late.error, Busy) and not late.unknown_fate
    line.wait(28.0)
    assert all(isinstance(call.error, TimedOut) for call in line.ended[1:]) and len(line.ended) == MOST + 1
    line.call(Kind.OFFSET_FOR_TIME, m.OffsetForTime(-7), LEADER)
    assert stamps(line)[-1] == -7


def test_a_broken_line_sends_what_waited_for_room_when_it_is_back() -> None:
    line = known()
    calls = ask_many(line, MOST + 5, safe=False)
    line.break_line(LOGD)
    assert stamps(line) == list(range(MOST, MOST + 5))
    assert line.ended == calls[:MOST]
    for _ in range(5):
        line.answer(REPLY)
    assert line.ended == calls


def test_a_full_socket_makes_room_too() -> None:
    line = known()
    calls = ask_many(line, MOST + 1, single=True)
    line.session.unsent(line.now, calls[0])
    line.run()
    assert stamps(line)[-1] == MOST and isinstance(calls[0].error, Busy)

"""The consumer's core against a hand-played groupd and logd: no socket, no clock."""

from typing import Any

import pytest

from gq_client.consumer import LINGER_S
from gq_client.consumer_options import ConsumerOptions
from gq_client.consumer_settle import progress_of
from gq_proto.errors import BadRequest, NotLeader, StaleReceipt, Unavailable, UnknownMember
from gq_proto.messages import (
    AssignedPush,
    Empty,
    Fetched,
    FetchReply,
    HeartbeatReply,
    JoinReply,
    Kind,
    Lease,
    Op,
    PollReply,
    RangeStatus,
    SettleReply,
    SettleResult,
)
from tests.unit.gq_client.play import EPOCH, TOPIC_ID, Play, log


def test_a_lease_is_fetched_handed_out_acked_and_forgotten() -> None:
    play = Play().joined().leased(1, 0, 3)
    play.bytes_by_ranges()
    messages = play.walk(3)
    assert [(m.offset, m.value, m.delivery) for m in messages] == [(0, b"v0", 1), (1, b"v1", 1), (2, b"v2", 1)]
    messages[1].ack()
    play.core.flush(play.now)
    first = play.pop(Kind.SETTLE)
    assert [(op.op, op.lease, op.ranges) for op in first.body.items] == [(Op.ACK, 1, [1, 1])]
    assert [(p.lease, p.started) for p in first.body.progress] == [(1, 3)]
    messages[0].ack()
    messages[2].ack()
    play.core.flush(play.now)
    ask = play.pop(Kind.SETTLE)
    assert [(op.op, op.lease, op.ranges) for op in ask.body.items] == [(Op.ACK, 1, [0, 1, 2, 1])]
    assert ask.body.progress == [], "it works on nothing of it any more"
    assert play.taken() == []
    first.then(play.now, SettleReply([SettleResult()]), [], None)
    ask.then(play.now, SettleReply([SettleResult()]), [], None)
    assert play.core.held == {}


def test_how_far_the_app_is_is_said_once_and_not_of_what_is_settled() -> None:
    play = Play().joined().leased(1, 0, 3).bytes_by_ranges()
    messages = play.walk(3)
    assert [(p.lease, p.started) for p in progress_of(play.core.held, play.now)] == [(1, 3)]
    assert progress_of(play.core.held, play.now) == []
    play.core.held[1].reported = 0
    for message in messages:
        message.ack()
    play.core.held[1].take_ops()
    assert progress_of(play.core.held, play.now) == []


def test_what_the_app_left_of_a_view_comes_again() -> None:
    play = Play().joined().leased(1, 0, 300).bytes_by_ranges()
    assert [m.offset for m in play.walk(5)] == [0, 1, 2, 3, 4]
    assert [m.offset for m in play.walk(295)] == list(range(5, 300))


def test_one_poll_at_a_time_and_one_lease_ahead() -> None:
    play = Play().joined()
    assert len(play.asked(Kind.POLL)) == 1
    play.leased(1, 0, 500).bytes_by_ranges()
    assert not play.asked(Kind.POLL), "a full lease waits already"
    play.walk(1)
    play.core.pump(play.now)
    assert len(play.asked(Kind.POLL)) == 1


def test_a_lost_lease_is_not_handed_out_any_further_and_its_late_acks_go_by_receipt() -> None:
    play = Play().joined().leased(1, 0, 500).bytes_by_ranges()
    held = play.core.take(play.now)
    assert held
    held.cursor = 2
    messages = held.view[:2]
    play.core.due(play.now + 3)
    assert play.asked(Kind.HEARTBEAT)[0].body.leases == [1]
    play.answer(Kind.HEARTBEAT, HeartbeatReply(1, play.core.assignment, lost=[1]))
    assert len(held.view) == 2, "the app's walk ends behind what it started"
    assert play.taken() == []
    messages[0].ack()
    play.core.flush(play.now)
    receipts = play.pop(Kind.SETTLE_RECEIPTS)
    assert [(r.op, r.topic, r.offset, r.lease, r.random, r.group_number) for r in receipts.body.items] == [(0, "t", 0, 1, 42, 9)]
    ticket = play.core.confirm(play.now, held, 0)
    receipts.then(play.now, SettleReply([SettleResult(31, "late")]), [], None)
    assert ticket.done and isinstance(ticket.error, StaleReceipt)
    assert play.core.settler.stale == 1


def test_what_a_newer_lease_holds_too_is_handed_out_once() -> None:
    """As after a groupd that forgot the first lease, or took its rest back because the app was stuck."""
    play = Play(read_ahead=False, max_poll=1000).joined().leased(1, 0, 200).bytes_by_ranges()
    got = play.walk(40)
    play.leased(2, 30, 100).bytes_by_ranges()
    assert [m.offset for m in play.core.queue[0].view[40:]] == []
    got += play.walk(170)
    assert [m.offset for m in got] == [*range(40), *range(130, 200), *range(30, 130)]
    assert [m.owner.lease.lease for m in got] == [1] * 110 + [2] * 100
    assert play.taken() == []
    for message in got:
        message.ack()
    play.core.flush(play.now)
    assert [(op.lease, op.ranges) for op in play.pop(Kind.SETTLE).body.items] == [(1, [0, 40, 130, 70]), (2, [30, 100])]


def test_a_lease_whose_rest_a_newer_one_holds_waits_for_no_bytes() -> None:
    play = Play(read_ahead=False).joined().leased(1, 0, 10)
    play.leased(2, 0, 10)
    first, second = play.pop(Kind.FETCH), play.pop(Kind.FETCH)
    second.then(play.now, FetchReply([Fetched(0, status=[0], covered=1, next_offset=10)]), [log(0, 10)], None)
    assert [m.owner.lease.lease for m in play.walk(10)] == [2] * 10
    first.then(play.now, FetchReply([Fetched(0, status=[0], covered=1, next_offset=10)]), [log(0, 10)], None)
    assert play.taken() == [] and 1 not in play.core.held


def test_revoked_leases_give_back_what_was_not_started() -> None:
    play = Play().joined().leased(1, 10, 20).bytes_by_ranges()
    play.walk(5)
    play.core.push(play.now, AssignedPush("g", "m1", 2, [], [1]))
    settle = play.pop(Kind.SETTLE)
    assert [(op.op, op.ranges) for op in settle.body.items] == [(Op.RELEASE, [15, 15])]
    assert play.core.generation == 2 and 1 in play.core.held, "five messages are still ours to settle"


def test_an_expired_session_joins_anew_and_drops_its_leases() -> None:
    play = Play().joined().leased(1, 0, 500).bytes_by_ranges()
    play.walk(3)
    play.core.due(play.now + 3)
    play.answer(Kind.HEARTBEAT, error=UnknownMember("gone"))
    assert play.core.held == {} and play.asked(Kind.JOIN)[0].body.member == ""
    play.joined("m2")
    assert play.core.member == "m2" and play.taken() == []


def test_an_old_members_answers_are_ignored() -> None:
    play = Play().joined()
    old = play.pop(Kind.POLL)
    play.core.due(play.now + 3)
    play.answer(Kind.HEARTBEAT, error=UnknownMember("gone"))
    play.joined("m2")
    old.then(play.now, PollReply([Lease(1, 1, TOPIC_ID, "t", 0, EPOCH, 1, [0, 5], 1)]), [], None)
    assert not play.core.held


def test_settles_are_sent_again_until_confirmed() -> None:
    play = Play().joined().leased(1, 0, 4).bytes_by_ranges()
    messages = play.walk(4)
    messages[0].ack()
    messages[1].nack(delay=2)
    messages[2].nack(delay=2)
    messages[3].reject("bad")
    play.core.flush(play.now)
    first = play.answer(Kind.SETTLE, error=Unavailable("gone"))
    play.core.due(play.now)
    assert not play.asked(Kind.SETTLE), "not at once"
    play.core.due(play.now + 1)
    again = play.pop(Kind.SETTLE)
    assert again.body.items == first.body.items
    assert [(op.op, op.ranges, op.arg_ms, op.reason) for op in again.body.items] == [
        (Op.ACK, [0, 1], -1, ""), (Op.NACK, [1, 1, 2, 1], 2000, ""), (Op.REJECT, [3, 1], -1, "bad")]


def test_a_ticket_waits_for_the_answer_of_its_op() -> None:
    play = Play().joined().leased(1, 0, 2).bytes_by_ranges()
    messages = play.walk(2)
    messages[0].ack()
    ticket = play.core.confirm(play.now, messages[0].owner, 0)
    assert not ticket.done
    play.answer(Kind.SETTLE, SettleReply([SettleResult()]))
    assert ticket.done and ticket.error is None


def test_gone_corrupt_and_partial_ranges() -> None:
    play = Play().joined().leased(1, 0, 2, 5, 1, 10, 10)
    ask = next(a for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges)
    play.core.outbox.remove(ask)
    part = Fetched(0, status=[RangeStatus.GONE, RangeStatus.CORRUPT, RangeStatus.OK], covered=3, next_offset=14)
    ask.then(play.now, FetchReply([part]), [log(10, 4)], None)
    assert [m.offset for m in play.walk(4)] == [10, 11, 12, 13]
    assert play.core.take(play.now) is None
    play.core.pump(play.now)
    assert [a.body.parts[0].ranges for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges] == [[14, 6]]
    play.core.flush(play.now)
    assert [(op.op, op.ranges, op.reason) for op in play.pop(Kind.SETTLE).body.items] == [(Op.REJECT, [5, 1], "corrupt")]
    assert play.core.held[1].open == [10, 10]


def test_a_lease_of_an_ended_epoch_goes_back() -> None:
    play = Play().joined().leased(1, 0, 4)
    ask = next(a for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges)
    play.core.outbox.remove(ask)
    ask.then(play.now, FetchReply([Fetched(NotLeader.code, "epoch 6 now")]), [b""], None)
    play.core.flush(play.now)
    assert [(op.op, op.ranges) for op in play.pop(Kind.SETTLE).body.items] == [(Op.RELEASE, [0, 4])]


def stream_of(play: Play) -> Any:
    return next(a for a in play.asked(Kind.FETCH) if not a.body.parts[0].ranges)


def test_the_next_lease_finds_its_bytes_read_ahead() -> None:
    play = Play().joined().leased(1, 0, 100).bytes_by_ranges()
    ahead = stream_of(play)
    assert ahead.body.parts[0].offset == 100 and ahead.body.max_wait_ms > 0
    play.core.outbox.remove(ahead)
    ahead.then(play.now, FetchReply([Fetched(0, next_offset=400)]), [log(100, 300)], None)
    for message in play.walk(100):
        message.ack()
    play.core.flush(play.now)
    play.leased(2, 100, 250)
    assert not [a for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges]
    assert [m.offset for m in play.walk(250)] == list(range(100, 350))
    play.core.pump(play.now)
    play.leased(3, 350, 40, 395, 5)
    assert [m.offset for m in play.walk(45)] == [*range(350, 390), *range(395, 400)]


def test_a_lease_that_waits_for_the_stream_is_served_when_it_comes() -> None:
    play = Play().joined().leased(1, 0, 10).bytes_by_ranges()
    play.walk(10)
    play.core.pump(play.now)
    ahead = stream_of(play)
    play.core.outbox.remove(ahead)
    play.leased(2, 10, 5)
    assert not play.asked(Kind.FETCH), "the bytes are on their way"
    ahead.then(play.now, FetchReply([Fetched(0, next_offset=13)]), [log(10, 3)], None)
    more = stream_of(play)
    assert more.body.parts[0].offset == 13
    play.core.outbox.remove(more)
    more.then(play.now, FetchReply([Fetched(0, next_offset=15)]), [log(13, 2)], None)
    assert [m.offset for m in play.walk(5)] == [10, 11, 12, 13, 14]


def test_a_stream_that_fails_leaves_its_lease_to_a_fetch_by_ranges() -> None:
    play = Play().joined().leased(1, 0, 10).bytes_by_ranges()
    play.walk(10)
    play.core.pump(play.now)
    ahead = stream_of(play)
    play.core.outbox.remove(ahead)
    play.leased(2, 10, 5)
    ahead.then(play.now, None, [], Unavailable("gone"))
    play.now += 1
    play.core.due(play.now)
    play.bytes_by_ranges()
    assert [m.offset for m in play.walk(5)] == [10, 11, 12, 13, 14]


def test_redeliveries_and_jumps_do_not_use_the_stream() -> None:
    play = Play().joined().leased(1, 0, 10).bytes_by_ranges()
    play.walk(10)
    play.core.pump(play.now)
    play.leased(2, 3, 1, delivery=2)
    assert [a.body.parts[0].ranges for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges] == [[3, 1]]
    play.bytes_by_ranges()
    play.core.pump(play.now)
    play.leased(3, 5000, 10)
    assert [a.body.parts[0].ranges for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges] == [[5000, 10]]


def test_shared_members_ask_for_what_they_can_do_in_a_while() -> None:
    play = Play(mode="shared").joined()
    assert play.asked(Kind.POLL)[0].body.max_messages == 64
    play.leased(1, 0, 64).bytes_by_ranges()
    play.walk(64)
    play.now += 6.4
    play.core.take(play.now)
    play.core.pump(play.now)
    assert play.asked(Kind.POLL)[0].body.max_messages == 64, "asked for when the first was begun"
    play.leased(2, 64, 64).bytes_by_ranges()
    play.walk(64)
    play.now += 6.4
    play.core.take(play.now)
    play.core.pump(play.now)
    play.leased(3, 128, 10)
    assert not [a for a in play.asked(Kind.FETCH) if not a.body.parts[0].ranges], "no reading ahead"
    play.bytes_by_ranges()
    play.taken()
    play.core.pump(play.now)
    assert play.asked(Kind.POLL)[0].body.max_messages in (9, 10)


def test_pause_gives_back_and_stops_asking() -> None:
    play = Play().joined().leased(1, 0, 10).bytes_by_ranges()
    play.answer(Kind.POLL, PollReply([]))
    play.core.outbox.clear()
    play.core._polling = False
    play.core.pause(play.now, True)
    assert [(op.op, op.ranges) for op in play.pop(Kind.SETTLE).body.items] == [(Op.RELEASE, [0, 10])]
    assert play.taken() == [] and not play.asked(Kind.POLL)
    play.core.pause(play.now, False)
    assert play.asked(Kind.POLL)


@pytest.mark.parametrize("own", [True, False])
def test_an_app_that_neither_works_nor_asks_gives_its_leases_back(own: bool) -> None:
    play = Play(**{"session_ms": 10_000} if own else {})
    play.node_session_ms = 10_000
    play.joined().leased(1, 0, 10).bytes_by_ranges()
    first = play.walk(1)[0]
    play.now += 11
    play.core.due(play.now)
    play.core.flush(play.now)
    assert not play.asked(Kind.SETTLE), "it may be at work on the first"
    first.ack()
    play.core.flush(play.now)
    play.answer(Kind.SETTLE, SettleReply([SettleResult()]))
    play.now += 4
    play.core.outbox.clear()
    play.core.due(play.now)
    assert [(op.op, op.ranges) for op in play.pop(Kind.SETTLE).body.items] == [(Op.RELEASE, [1, 9])]
    play.core._polling = False
    play.core.pump(play.now)
    assert not play.asked(Kind.POLL)
    assert play.taken() == []
    play.core.pump(play.now)
    assert play.asked(Kind.POLL), "it is back"


def test_leaving_settles_first() -> None:
    play = Play().joined().leased(1, 0, 10).bytes_by_ranges()
    play.walk(1)[0].ack()
    play.core.leave(play.now)
    kinds = [ask.kind for ask in play.core.outbox if ask.kind in (Kind.SETTLE, Kind.LEAVE)]
    assert kinds == [Kind.SETTLE, Kind.LEAVE]
    play.answer(Kind.SETTLE, SettleReply([SettleResult()]))
    play.answer(Kind.LEAVE, Empty())
    assert play.core.state == "left"


def test_a_leave_is_over_when_it_is_answered_not_before() -> None:
    play = Play().joined()
    play.core.leave(play.now)
    play.answer(Kind.POLL, error=UnknownMember("left"))
    assert play.core.state == "leaving"
    play.answer(Kind.LEAVE, Empty())
    assert play.core.state == "left"


def test_leaving_while_joining() -> None:
    for error in (None, Unavailable("starting")):
        play = Play()
        play.core.start(play.now)
        play.core.leave(play.now)
        play.answer(Kind.JOIN, JoinReply("m1", 1, [], 3000, 9) if not error else None, error=error)
        if not error:
            play.answer(Kind.LEAVE, Empty())
        assert play.core.state == "left"


def test_the_flush_timer_rests_and_a_message_wakes_it() -> None:
    play = Play().joined().leased(1, 0, 10).bytes_by_ranges()
    message = play.walk(1)[0]
    for _ in range(20):
        play.now += LINGER_S
        play.core.due(play.now)
    assert play.hub.asleep and play.core.next_deadline() > play.now + 1
    message.ack()
    assert play.hub.woken == 1
    play.core.awake(play.now)
    assert play.core.next_deadline() <= play.now + LINGER_S
    play.core.due(play.now + LINGER_S)
    assert play.asked(Kind.SETTLE)


def test_what_no_retry_helps_ends_the_consumer() -> None:
    play = Play()
    play.core.start(play.now)
    play.answer(Kind.JOIN, error=Unavailable("starting"))
    play.now += 1
    play.core.due(play.now)
    play.answer(Kind.JOIN, error=BadRequest("no"))
    assert isinstance(play.core.failed, BadRequest) and play.core.state == "left"


def test_a_cluster_that_was_never_reached_is_given_up() -> None:
    play = Play()
    play.core.reachable = lambda: False
    play.core.start(play.now)
    play.answer(Kind.JOIN, error=Unavailable("is the node up?"))
    assert isinstance(play.core.failed, Unavailable)


@pytest.mark.parametrize("wrong", [{"ack": "x"}, {"mode": "x"}, {"max_poll": 0}, {"max_poll": 100_000}])
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        ConsumerOptions("g", ("t",), **wrong)


def test_receipts() -> None:
    play = Play().joined().leased(7, 0, 2).bytes_by_ranges()
    text = play.walk(2)[1].receipt
    topic, partition, offset, delivery, nonce = text.split(":")
    assert (topic, partition, offset, delivery) == ("t", "0", "1", "1") and len(nonce) == 24


def test_a_poll_for_several_answers_is_outstanding_until_the_last_or_its_failure() -> None:
    play = Play().joined()
    for last in (PollReply([]), Unavailable("the connection broke")):
        ask = play.pop(Kind.POLL)
        assert ask.body.answers > 1
        for number in (1, 2):
            lease = Lease(number, 42, TOPIC_ID, "t", 0, EPOCH, 1, [number, 1], 30_000)
            ask.then(play.now, PollReply([lease], open=True), [], None)
            assert number in play.core.held and not play.asked(Kind.POLL)
        failed = isinstance(last, Unavailable)
        ask.then(play.now, None if failed else last, [], last if failed else None)
        play.now += 1
        play.core.due(play.now)
        assert play.asked(Kind.POLL)


def test_a_hold_consumer_takes_one_answer_at_a_time() -> None:
    play = Play(hold=True).joined()
    play.core.take(play.now, 1)
    play.core.pump(play.now)
    assert play.pop(Kind.POLL).body.answers == 1

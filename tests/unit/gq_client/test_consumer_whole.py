"""Leases of many ranges, and acks of whole ones, which name none of them."""

from typing import Any

import pytest

from gq_client.consumer_lease import count
from gq_client.consumer_settle import IN_FLIGHT_MAX
from gq_proto.errors import StaleReceipt, UnknownMember
from gq_proto.messages import Fetched, FetchReply, Kind, Op, RangeStatus, SettleReply, SettleResult
from tests.unit.gq_client.play import Play

SCATTERED = [x for low in range(0, 60, 3) for x in (low, 1)]


def settled(play: Play, ranges: list[int], acked: int) -> Any:
    """The Settle, once so many messages of a lease are acked."""
    play.leased(1, *ranges, packed=True).bytes_by_ranges()
    for message in play.walk(acked):
        message.ack()
    play.core.flush(play.now)
    return play.pop(Kind.SETTLE)


def test_leases_of_many_ranges_may_come_packed() -> None:
    play = Play().joined()
    assert play.asked(Kind.POLL)[0].body.packed
    play.leased(1, *SCATTERED, packed=True).bytes_by_ranges()
    messages = play.walk(20)
    assert [m.offset for m in messages] == list(range(0, 60, 3))
    messages[4].nack()
    messages[0].ack()
    play.core.flush(play.now)
    assert [(op.op, op.ranges) for op in play.pop(Kind.SETTLE).body.items] == [(Op.ACK, [0, 1]), (Op.NACK, [12, 1])]
    play.core.leave(play.now)
    assert list(play.core.held[1].open) == [x for low in SCATTERED[::2] if low not in (0, 12) for x in (low, 1)]


def test_what_was_not_fetched_of_a_packed_lease_is_asked_for_again_after_a_while() -> None:
    play = Play().joined().leased(1, *SCATTERED, packed=True)
    ask = next(a for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges)
    assert ask.body.parts[0].ranges == SCATTERED
    play.core.outbox.remove(ask)
    ask.then(play.now, FetchReply([Fetched(0, status=[RangeStatus.NOT_YET] * 20, covered=0, next_offset=0)]), [b""], None)
    assert not [a for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges], "not at once"
    play.now += 0.06
    play.core.pump(play.now)
    assert [a.body.parts[0].ranges for a in play.asked(Kind.FETCH) if a.body.parts[0].ranges] == [SCATTERED]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("packed", [True, False])
def test_a_whole_lease_is_acked_without_ranges_in_whatever_order(packed: bool, order: int) -> None:
    play = Play().joined().leased(1, *SCATTERED, packed=packed).bytes_by_ranges()
    for message in play.walk(20)[::order]:
        message.ack()
    play.core.flush(play.now)
    [op] = play.pop(Kind.SETTLE).body.items
    assert (op.op, op.lease, op.ranges, op.whole) == (Op.ACK, 1, [], 42)


def test_a_whole_lease_of_many_ranges_is_acked_without_them() -> None:
    [op] = settled(Play().joined(), SCATTERED, 20).body.items
    assert (op.op, op.lease, op.ranges, op.whole) == (Op.ACK, 1, [], 42)
    for ranges, acked in ((SCATTERED, 19), ([0, 20], 20)):
        [op] = settled(Play().joined(), ranges, acked).body.items
        assert not op.whole and count(op.ranges) == acked


def test_an_older_groupd_that_took_over_is_told_again_by_ranges() -> None:
    """It answers that all is well: to it that was an ack of nothing."""
    play = Play().joined()
    ask = settled(play, SCATTERED, 20)
    held = play.core.held[1]
    ticket = play.core.confirm(play.now, held, 0)
    ask.then(play.now, SettleReply([SettleResult()]), [], None)
    assert not ticket.done and play.core.held
    again = play.pop(Kind.SETTLE)
    assert [(op.op, op.ranges, op.whole) for op in again.body.items] == [(Op.ACK, SCATTERED, 0)]
    again.then(play.now, SettleReply([SettleResult()]), [], None)
    assert ticket.done and ticket.error is None
    assert not play.core.settler.whole


def test_what_is_refused_of_a_whole_ack_is_known_by_its_messages() -> None:
    for stale, refused in (([3, 1], 1), ([], 20)):
        play = Play().joined()
        ask = settled(play, SCATTERED, 20)
        ask.then(play.now, SettleReply([SettleResult(StaleReceipt.code, "", stale)], True), [], None)
        assert play.core.settler.stale == refused
    play = Play().joined()
    ask = settled(play, SCATTERED, 20)
    ask.then(play.now, None, [], UnknownMember("its session ended"))
    [late] = play.asked(Kind.SETTLE_RECEIPTS)
    assert [item.offset for item in late.body.items] == SCATTERED[::2], "by receipt each is named"


def test_a_lease_that_was_acked_whole_and_lost_is_settled_by_receipts() -> None:
    play = Play().joined()
    ask = settled(play, SCATTERED, 20)
    ask.then(play.now, None, [], UnknownMember("the session ended"))
    receipts = play.pop(Kind.SETTLE_RECEIPTS).body.items
    assert [(r.op, r.offset, r.lease, r.random) for r in receipts] == [(Op.ACK, low, 1, 42) for low in SCATTERED[::2]]


def test_so_many_settles_are_out_at_once_and_the_rest_goes_with_the_first_answer() -> None:
    play = Play(max_poll=100).joined().leased(1, 0, 100).bytes_by_ranges()
    messages = play.walk(IN_FLIGHT_MAX + 3)
    for message in messages:
        message.ack()
        play.core.flush(play.now)
    asks = play.asked(Kind.SETTLE)
    assert [op.ranges for ask in asks for op in ask.body.items] == [[n, 1] for n in range(IN_FLIGHT_MAX)]
    assert IN_FLIGHT_MAX >= 16, "confirmed after 5 ms, and a batch a third of one: fewer would hold back acks"
    play.core.outbox.remove(asks[0])
    asks[0].then(play.now, SettleReply([SettleResult()]), [], None)
    assert [op.ranges for op in play.asked(Kind.SETTLE)[-1].body.items] == [[IN_FLIGHT_MAX, 3]]

"""What becomes of leased messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_groupd import effects as fx
from gq_groupd.core import Settings
from gq_groupd.entries import Acked, Granted, decode, encode
from gq_proto.bitmaps import heard
from gq_proto.errors import BadRequest, StaleReceipt
from gq_proto.messages import Kind, Lease, Leave, Op, Progress, Receipt1, Settle, Settle1, SettleReceipts
from gq_proto.ranges import unpack
from gq_proto.record import kind_of
from tests.unit.gq_groupd.rig import Rig, offsets

STALE = StaleReceipt.code


def rig(count: int = 10, members: str = "a", **config: object) -> Rig:
    r = Rig(**config)
    for member in members:
        r.join(member, mode="shared")
    r.publish(count)
    return r


def test_acked_messages_are_done_and_lag_says_so() -> None:
    r = rig(1000)
    [lease] = r.poll()
    assert offsets(lease) == list(range(500)) and lease.delivery == 1 and r.part().lag == 1000
    assert r.settle(lease).error == 0
    part = r.part()
    assert (part.committed, part.lag, part.in_flight, part.end) == (500, 500, 0, 1000)


def test_499_of_500_acked_one_by_one_only_the_one_comes_back() -> None:
    r = rig(500)
    [lease] = r.poll()
    for offset in set(range(500)) - {77}:
        r.settle(lease, ranges=[offset, 1])
    r.beat(29_900, "a", held={"a": [lease]})
    assert r.poll() == []
    r.beat(200, "a", held={"a": [lease]})
    [again] = r.poll()
    assert offsets(again) == [77] and again.delivery == 2


def test_an_ack_that_names_messages_twice_is_written_once() -> None:
    r = rig(10)
    [lease] = r.poll()
    assert r.settle(lease, ranges=[2, 3, 0, 4, 1, 1]).error == 0
    assert r.settle(lease, ranges=[0, 6]).error == 0, "a repeated ack is none"
    acked = [entry.ranges for entry in map(decode, [value for _, _, value in r.journal]) if isinstance(entry, Acked)]
    assert acked == [[0, 5], [5, 1]] and (r.part().committed, r.part().lag) == (6, 4)


def test_an_ack_of_a_whole_lease_names_none_of_its_messages() -> None:
    r = rig(0)
    for kind in [kind_of(0, 0), kind_of(0, 3)] * 20:
        r.publish(1, kind=kind)
    urgent, others = r.poll()
    assert len(urgent.ranges) == len(others.ranges) == 40
    assert r.settle(urgent, whole=True).error == 0
    assert (r.part().lag, r.part().in_flight) == (20, 20)
    assert r.settle(urgent, whole=True).error == 0, "a repeated ack is none"
    acked = [entry.ranges for entry in map(decode, [value for _, _, value in r.journal]) if isinstance(entry, Acked)]
    assert [heard(told)[0] for told in acked] == [urgent.ranges]
    r.restart()
    assert (r.part().lag, r.part().acked_ahead) == (20, urgent.ranges[2:])
    assert r.settle(others, whole=True).error == 0
    assert (r.part().committed, r.part().lag) == (40, 0)


def test_many_ranges_are_packed_for_who_asks_and_in_the_journal() -> None:
    r = rig(0)
    for kind in [kind_of(0, 0), kind_of(0, 3)] * 20:
        r.publish(1, kind=kind)
    urgent, others = r.poll(packed=True)
    assert urgent.ranges == others.ranges == []
    assert [list(unpack(lease.packed)) for lease in (urgent, others)] == [
        [x for low in range(first, 40, 2) for x in (low, 1)] for first in (0, 1)]
    granted = [entry.ranges for entry in map(decode, [value for _, _, value in r.journal]) if isinstance(entry, Granted)]
    assert all(isinstance(told, bytes) and len(told) < 80 for told in granted)
    r.restart()
    assert r.part().in_flight == 40, "both are known again"
    assert r.settle(urgent, whole=True).error == 0
    assert r.settle(others, ranges=[1, 1, 3, 1]).error == 0
    r.restart()
    assert (r.part().lag, r.part().in_flight) == (18, 18)


def test_a_journal_that_tells_many_ranges_number_by_number_is_read() -> None:
    """As releases before the packed ones wrote it."""
    r = rig(0)
    for kind in [kind_of(0, 0), kind_of(0, 3)] * 20:
        r.publish(1, kind=kind)
    urgent, _ = r.poll()
    r.settle(urgent, whole=True)
    for at, (offset, key, value) in enumerate(r.journal):
        entry = decode(value)
        if isinstance(entry, Granted | Acked):
            entry.ranges = heard(entry.ranges)[0]
            assert len(entry.ranges) == 40
            r.journal[at] = (offset, key, encode(entry))
    r.restart()
    assert (r.part().lag, r.part().in_flight, r.part().acked_ahead) == (20, 20, urgent.ranges[2:])


def test_an_ack_of_a_whole_lease_that_is_nobodys_is_stale() -> None:
    r = rig(5)
    [lease] = r.poll()
    r.join("b")
    unknown = Lease(lease.lease + 77, 1, 2, "t", 0, 1, 1, [0, 5], 1)
    namesake = Lease(lease.lease, lease.random + 1, 2, "t", 0, 1, 1, [0, 5], 1)
    for member, known in (("b", lease), ("a", unknown), ("a", namesake)):
        assert r.settle(known, member=member, whole=True).error == StaleReceipt.code
    assert r.part().lag == 5


@given(st.lists(st.tuples(st.sampled_from([Op.ACK, Op.NACK, Op.REJECT, Op.RELEASE, Op.EXTEND]), st.integers(0, 11)), max_size=8),
       st.booleans())
def test_an_ack_of_a_whole_lease_is_one_of_all_its_messages(ops: list[tuple[Op, int]], again: bool) -> None:
    """Whatever became of them before, handed out again or not."""
    told = []
    for whole in (True, False):
        r = rig(12, backoff_base_ms=1)
        [lease] = r.poll()
        for op, offset in ops:
            r.settle(lease, op, [offset, 1])
        if again:
            r.advance(5)
            r.poll()
        result = r.settle(lease, whole=whole)
        part = r.part()
        told.append((result, part.committed, part.lag, part.in_flight, part.retrying, part.acked_ahead))
    assert told[0] == told[1]


def test_nack_backs_off_and_the_last_one_is_a_dead_letter() -> None:
    r = rig(1, max_retries=5)
    for delivery, delay in ((1, 1000), (2, 2000), (3, 4000), (4, 8000)):
        [lease] = r.poll()
        assert lease.delivery == delivery
        r.settle(lease, Op.NACK)
        r.beat(delay - 1, "a")
        assert r.poll() == [] and r.part().retrying == 1
        r.beat(1, "a")
    [lease] = r.poll()
    r.settle(lease, Op.NACK, reason="boom")
    assert r.dlq == [("g", "t", 0, 0, 5, "boom")]
    assert r.part().lag == 0 and r.poll() == []


def test_a_nack_with_a_delay_waits_that_long() -> None:
    r = rig(1)
    [lease] = r.poll()
    r.settle(lease, Op.NACK, arg_ms=5_000)
    r.beat(4_999, "a")
    assert not r.poll()
    r.beat(1, "a")
    assert r.poll()


def test_without_a_dlq_and_in_a_dlq_it_is_retried_for_ever_at_the_maximum() -> None:
    for topic, config in (("t", {"dlq_enabled": False}), ("t.dlq", {})):
        r = Rig({topic: 1}, **config)
        r.join(topics=[topic])
        r.publish(1, topic)
        for delivery in range(1, 7):
            [lease] = r.poll()
            assert lease.delivery == delivery
            r.settle(lease, Op.REJECT if delivery == 6 else Op.NACK)
            r.beat(1000 << (delivery - 1) if delivery < 3 else 59_999, "a")
            if delivery >= 3:
                assert not r.poll()
                r.beat(1, "a")
        assert r.poll() and not r.dlq


def test_reject_goes_straight_to_the_dead_letters() -> None:
    r = rig(3)
    [lease] = r.poll()
    r.settle(lease, Op.REJECT, [1, 1], reason="bad")
    assert r.dlq == [("g", "t", 0, 1, 1, "bad")]
    assert r.settle(lease).stale == [1, 1] and r.part().lag == 0


def test_release_and_a_clean_leave_do_not_count() -> None:
    r = rig(5, "ab")
    [lease] = r.poll()
    r.settle(lease, Op.RELEASE, [3, 2])
    assert [(lease.delivery, offsets(lease)) for lease in r.poll("b")] == [(1, [3, 4])]
    r.ask(Kind.LEAVE, Leave("g", "a"))
    assert [(lease.delivery, offsets(lease)) for lease in r.poll("b")] == [(1, [0, 1, 2])]


def test_the_clock_of_a_message_starts_when_the_app_starts_it() -> None:
    """500 x 100 ms under a visibility of 30 s: nothing comes back."""
    r = rig(500, "ab")
    [lease] = r.poll()
    for n in range(500):
        r.heartbeat("a", [lease], progress=[Progress(lease.lease, n + 1)])
        r.advance(100)
        r.settle(lease, ranges=[n, 1])
        assert not r.poll("b")
    assert r.part().lag == 0


def test_what_the_app_is_stuck_in_is_counted_and_the_rest_returns_uncounted() -> None:
    r = rig(5, "ab")
    [lease] = r.poll()
    r.heartbeat("a", [lease], progress=[Progress(lease.lease, 2, 500)])
    r.settle(lease, ranges=[0, 1])
    r.beat(29_499, "a", "b", held={"a": [lease]})
    assert not r.poll("b")
    r.beat(1, "a", "b", held={"a": [lease]})
    got = r.poll("b")
    assert [(lease.delivery, offsets(lease)) for lease in got] == [(2, [1]), (1, [2, 3, 4])]
    assert r.heartbeat("a", [lease]).lost == [lease.lease]


def test_extend() -> None:
    r = rig(2, "ab")
    [lease] = r.poll(hold=True)
    r.settle(lease, Op.EXTEND, [1, 1], arg_ms=60_000)
    r.beat(30_000, "a", "b")
    [other] = r.poll("b")
    assert offsets(other) == [0]
    assert r.settle(lease, Op.EXTEND, [0, 1]).error == STALE
    r.settle(other, member="b")
    r.beat(29_999, "a", "b")
    assert not r.poll("b")
    r.beat(1, "a", "b")
    assert [offsets(lease) for lease in r.poll("b")] == [[1]]


def test_a_late_ack_counts_until_the_message_is_handed_out_again() -> None:
    r = rig(2, "ab")
    [mine] = r.poll("a", hold=True)
    r.beat(30_000, "a", "b")
    assert r.settle(mine, ranges=[0, 1]).error == 0
    [other] = r.poll("b")
    assert offsets(other) == [1]
    result = r.settle(mine, ranges=[1, 1])
    assert result.error == STALE and result.stale == [1, 1]
    assert r.part().in_flight == 1 and r.settle(other, member="b").error == 0
    assert r.part().lag == 0


def test_an_ack_that_is_repeated_is_ok_and_somebody_elses_is_not() -> None:
    r = rig(2, "ab")
    [mine] = r.poll("a", 1)
    assert r.settle(mine).error == 0 == r.settle(mine).error
    assert r.settle(mine, member="b").error == STALE
    assert r.settle(mine, ranges=[1, 1]).stale == [1, 1]
    assert r.settle(mine, ranges=[0, 2]).stale == [1, 1]
    assert r.part().lag == 1


def test_a_receipt_is_all_it_takes_and_must_match_in_everything() -> None:
    r = rig(1)
    [lease] = r.poll(hold=True)
    number = r.describe().number
    good = {"op": Op.ACK, "topic": "t", "partition": 0, "offset": 0, "delivery": 1, "group_number": number,
            "lease": lease.lease, "random": lease.random}
    for field, wrong in (("random", 0), ("delivery", 2), ("topic", "u"), ("partition", 1), ("group_number", 9), ("lease", 5)):
        [result] = r.ask(Kind.SETTLE_RECEIPTS, SettleReceipts([Receipt1(**{**good, field: wrong})])).settled
        assert result.error == STALE, field
    assert r.part().lag == 1
    [result] = r.ask(Kind.SETTLE_RECEIPTS, SettleReceipts([Receipt1(**good)])).settled
    assert result.error == 0 and r.part().lag == 0


def test_hold_leases_outlive_the_member_and_a_restart() -> None:
    r = rig(1, "ab")
    assert r.poll("a", hold=True)
    r.ask(Kind.LEAVE, Leave("g", "a"))
    r.beat(10_000, "b")
    r.restart()
    r.beat(19_999, "b")
    assert not r.poll("b")
    r.beat(2, "b")
    assert [lease.delivery for lease in r.poll("b")] == [2]


def test_a_lost_consumer_costs_an_attempt_only_for_what_it_was_at() -> None:
    r = rig(500, "ab")
    [lease] = r.poll("a")
    r.settle(lease, ranges=[0, 100])
    r.beat(30_000, "b")
    got = r.poll("b")
    assert [(lease.delivery, lease.ranges) for lease in got] == [(2, [100, 1]), (1, [101, 399])]


def test_killed_three_times_over_restarts_it_is_dead_and_its_neighbours_are_not_harmed() -> None:
    r = rig(500, "")
    for name in "abc":
        r.join(name, mode="shared")
        [lease, *_] = r.poll(name)
        assert offsets(lease)[0] == 0
        r.restart()
        r.advance(30_001)
    assert r.dlq == [("g", "t", 0, 0, 3, "its consumer was lost")]
    r.join("d")
    assert [(lease.delivery, lease.ranges) for lease in r.poll("d")] == [(1, [1, 499])]


def test_a_lease_runs_out_with_nobody_connected() -> None:
    r = rig(3)
    r.poll(hold=True)
    r.advance(30_001)
    part = r.part()
    assert (part.in_flight, part.retrying, part.lag) == (0, 0, 3)
    [gauge] = r.core.gauges()
    assert (gauge.in_flight, gauge.retrying, gauge.lag, gauge.timed_out) == (0, 0, 3, 3)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wall_clock_that_is_set_expires_nothing_and_keeps_nothing(hours: int) -> None:
    r = rig(2, "ab")
    [failed] = r.poll("a", 1)
    [held] = r.poll("b", 1, hold=True)
    r.publish(1)
    [started] = r.poll("a", 1)
    r.heartbeat("a", [failed, started], progress=[Progress(started.lease, 1)])
    r.settle(failed, Op.NACK, arg_ms=29_000)
    r.skew_us += hours * 3_600_000_000
    r.beat(28_999, "a", "b", held={"a": [started], "b": [held]})
    part = r.part()
    assert (part.in_flight, part.retrying, part.lag, len(r.describe().members)) == (2, 1, 3, 2)
    r.beat(1_001, "a", "b", held={"a": [started], "b": [held]})
    assert r.part().in_flight == 0
    assert sorted((lease.delivery, *offsets(lease)) for lease in r.poll("a")) == [(2, 0), (2, 1), (2, 2)]


def test_a_lease_its_holder_does_not_name_any_more_returns_uncounted() -> None:
    r = rig(3, "ab")
    r.poll("a")
    r.beat(6_000, "a", "b")
    assert not r.poll("b")
    r.beat(3_000, "a", "b")
    assert [(lease.delivery, lease.ranges) for lease in r.poll("b")] == [(1, [0, 3])]


def test_answers_wait_for_the_journal() -> None:
    r = rig(3)
    [lease] = r.poll()
    r.hold.add(fx.Append)
    call = r.send(Kind.SETTLE, Settle("g", "a", [Settle1(Op.ACK, lease.lease, [0, 3])], []))
    [append] = r.held
    assert r.answer_to(call).settled[0].error == 0      # the shell parks it ...
    effects = r.core.request(r.now, r.wall, call)
    assert [e.after for e in effects if isinstance(e, fx.Reply)] == [append.ticket]     # ... for this ticket, repeated or not


@pytest.mark.parametrize("ranges", [[1], [0, 0], [-1, 2], [0, 2**63], [2**63, 1], [0, 1] * 100_001])
def test_hostile_ranges_are_refused(ranges: list[int]) -> None:
    r = rig(3)
    [lease] = r.poll()
    with pytest.raises(BadRequest):
        r.settle(lease, ranges=ranges)
    assert r.part().lag == 3


def test_a_huge_range_is_cut_to_the_lease() -> None:
    r = rig(3)
    [lease] = r.poll()
    assert r.settle(lease, ranges=[0, 2**61]).stale == [3, 2**61 - 3]
    assert r.part().lag == 0


def test_who_left_and_came_back_has_as_much_room_as_before() -> None:
    r = Rig()
    r.publish(100)
    r.join()
    [lease] = r.poll(most=100, hold=True)
    r.ask(Kind.LEAVE, Leave("g", "a"))
    r.join()
    assert r.settle(lease).error == 0
    r.publish(2_000)
    assert sum(len(offsets(r.poll())) for _ in range(4)) == Settings().max_in_flight


@pytest.mark.parametrize("whole", [True, False])
def test_a_lease_that_is_acked_to_the_last_message_sheds_what_it_held(whole: bool) -> None:
    r = Rig()
    r.publish(10)
    r.join()
    [lease] = r.poll()
    held = r.core._desk.state.leases[lease.lease]
    r.settle(lease, ranges=[0, 9])
    assert held.acked is held.acked
    r.settle(lease, whole=whole)
    assert held.acked is not held.acked, "made anew whenever somebody asks"
    assert set(held.acked) == set(range(10)) and r.settle(lease, whole=whole).error == 0

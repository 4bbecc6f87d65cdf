"""What the log does to a group: runs, lanes, epochs, retention, delayed messages, marks, restarts."""

import random

import pytest

from gq_groupd import effects as fx
from gq_groupd.core import Settings
from gq_groupd.desk import Desk
from gq_groupd.errands import UNHEARD_MS
from gq_groupd.loading import LOAD_RUNS, SCAN_RUNS, SCANS_MAX
from gq_groupd.part import Part
from gq_proto.errors import BadRequest, StaleReceipt, Unavailable, UnknownPartition, UnknownTopicId
from gq_proto.messages import DeleteGroup, DescribeGroup, Kind, Mark, Mark1, Op
from gq_proto.record import kind_lane, kind_of
from gq_proto.runs import ALL_LANES, NO_LANES
from tests.unit.gq_groupd.rig import LATER, NORMAL, READY, Rig, offsets


def scanning() -> Rig:
    """A member, five messages, and the answer to the question where they are held back."""
    r = Rig()
    r.join()
    r.hold.add(fx.AskRuns)
    r.publish(5, tell=False)
    r.tell()
    return r


def test_control_records_are_no_messages() -> None:
    r = Rig()
    r.join()
    r.publish(3)
    r.publish(1, kind=READY)
    r.publish(3)
    r.publish(1, kind=READY)
    [lease] = r.poll()
    assert lease.ranges == [0, 3, 4, 3] and r.part().lag == 6
    r.settle(lease)
    assert (r.part().committed, r.part().lag) == (8, 0)


def test_each_lane_comes_in_offset_order_even_when_buffers_overflow() -> None:
    r = Rig()
    rng = random.Random(1)
    kinds = [kind_of(0, rng.randrange(5)) for _ in range(3_000)]
    r.log().kinds += kinds
    r.join()
    got: list[int] = []
    while leases := r.poll(most=rng.randrange(1, 300)):
        got += offsets(leases)
        assert r.part().lag == len(kinds) - len(got) + len(offsets(leases))
        for lease in leases:
            r.settle(lease)
    for lane in range(5):
        assert [o for o in got if kind_lane(kinds[o]) == lane] == [o for o in range(3_000) if kind_lane(kinds[o]) == lane]
    assert len(got) == 3_000


def test_a_large_topic_costs_each_partition_a_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one look for each other partition: a group of 10,000 kept a daemon busy for a minute."""
    touched = 0

    def touch(desk: Desk, part: Part) -> None:
        nonlocal touched
        touched += 1
        real(desk, part)

    real = Desk.touch
    monkeypatch.setattr(Desk, "touch", touch)
    r = Rig({"t": 500})
    r.join()
    assert touched < 20 * 500


def held_slices(r: Rig) -> list[fx.AskRuns]:
    return [ask for ask in r.held if isinstance(ask, fx.AskRuns) and ask.lane == NO_LANES]


def mixed(r: Rig, partitions: int, count: int) -> None:
    rng = random.Random(2)
    for p in range(partitions):
        r.log("t", p).kinds += [kind_of(0, rng.randrange(5)) for _ in range(count)]


def answer_until_counted(r: Rig) -> None:
    """All asks but slices."""
    while asks := [ask for ask in r.held if ask not in held_slices(r)]:
        r.held = held_slices(r)
        for ask in asks:
            r.do(r.core.answer(r.now, r.wall, ask, r.answer(ask), None))


def test_serving_comes_before_counting() -> None:
    r = Rig({"t": 1})
    mixed(r, 1, 20_000)
    r.hold.add(fx.AskRuns)
    r.join()
    [first] = r.held
    assert isinstance(first, fx.AskRuns) and (first.lane, first.limit) == (ALL_LANES, LOAD_RUNS)
    r.held.clear()
    r.do(r.core.answer(r.now, r.wall, first, r.answer(first), None))
    kinds = r.log().kinds
    assert [offsets(lease) for lease in r.poll(most=20)] == [[o for o in range(200) if kinds[o] == kind_of(0, 0)][:20]]
    answer_until_counted(r)
    assert held_slices(r)
    r.release(fx.AskRuns)
    assert r.part().lag == 20_000


def test_few_slices_of_the_scan_are_under_way_and_every_partition_has_its_turn() -> None:
    r = Rig({"t": 20})
    mixed(r, 20, 6_000)
    for p in range(20):
        r.log("t", p).kinds += [NORMAL, READY] * 2_000
    r.hold.add(fx.AskRuns)
    r.join()
    answer_until_counted(r)
    turns: list[int] = []
    while slices := held_slices(r):
        assert len(slices) <= SCANS_MAX and all(len(r.answer(ask).runs) <= 3 * SCAN_RUNS for ask in slices)
        ask = slices[0]
        r.held.remove(ask)
        turns.append(ask.partition)
        r.do(r.core.answer(r.now, r.wall, ask, r.answer(ask), None))
        answer_until_counted(r)
    assert len(turns) == 4 * 20 and all(set(turns[n:n + 20]) == set(range(20)) for n in range(0, 80, 20))
    assert [r.part("t", p).lag for p in range(20)] == [8_000] * 20


def test_a_slice_that_fails_leaves_its_place_to_others_and_comes_again() -> None:
    r = Rig({"t": SCANS_MAX + 1})
    mixed(r, SCANS_MAX + 1, 7_000)
    r.hold.add(fx.AskRuns)
    r.join()
    answer_until_counted(r)
    slices, r.held = r.held, []
    for ask in slices:
        r.do(r.core.answer(r.now, r.wall, ask, None, Unavailable("no")))
    failed = {ask.partition for ask in slices}
    assert [{ask.partition} | failed for ask in held_slices(r)] == [set(range(SCANS_MAX + 1))]
    r.advance(250)
    assert len(held_slices(r)) == SCANS_MAX
    r.release(fx.AskRuns)
    assert [r.part("t", p).lag for p in range(SCANS_MAX + 1)] == [7_000] * (SCANS_MAX + 1)


def test_every_second_of_20_000_acked_then_everything_killed() -> None:
    r = Rig(settings=Settings(max_in_flight=10**9))
    r.join()
    r.publish(20_000)
    while leases := r.poll(most=1_000):
        for lease in leases:
            r.settle(lease, ranges=[x for o in offsets(lease) if o % 2 == 0 for x in (o, 1)])
    r.restart()
    r.advance(30_001)
    r.join("b")
    assert r.part().lag == 10_000
    got: list[int] = []
    while leases := r.poll("b"):
        for lease in leases:
            got += offsets(lease)
            r.settle(lease, member="b")
    assert sorted(got) == list(range(1, 20_000, 2)) and r.part().lag == 0


def test_power_loss_takes_back_acks_of_what_is_gone() -> None:
    r = Rig()
    r.join()
    r.publish(10)
    [lease] = r.poll()
    r.settle(lease, ranges=[0, 8])
    r.new_epoch(5)
    r.tell()
    assert (r.part().committed, r.part().lag) == (6, 0)
    r.publish(4)
    assert r.settle(lease, ranges=[8, 2]).error == StaleReceipt.code
    [again] = r.poll()
    assert (offsets(again), again.delivery, again.epoch) == ([6, 7, 8, 9], 1, 2)
    r.settle(again)
    r.restart()
    assert (r.part().committed, r.part().lag) == (10, 0)


def test_a_hole_that_a_power_loss_left_in_the_log_is_nobodys() -> None:
    r = Rig()
    r.join()
    r.publish(10)
    [lease] = r.poll()
    r.settle(lease, Op.NACK, [4, 2])
    r.log().kinds[3:6] = [READY] * 3
    r.new_epoch(10)
    r.tell()
    assert (r.part().lag, r.part().retrying, r.part().in_flight, r.part().expired) == (7, 0, 7, 3)
    assert r.settle(lease, ranges=[3, 1]).error == StaleReceipt.code


def test_nothing_happens_to_a_part_until_the_end_of_the_last_epoch_is_known() -> None:
    r = Rig()
    r.join()
    r.publish(10)
    [lease] = r.poll(most=3)
    r.settle(lease)
    r.new_epoch(2)
    r.hold.add(fx.AskEndOfEpoch)
    r.publish(5)
    assert not r.poll()
    r.new_epoch(4)
    r.tell()
    r.release(fx.AskEndOfEpoch)
    assert offsets(r.poll()) == [3] and r.part().lag == 1


def test_answers_of_another_epoch_are_not_believed() -> None:
    r = scanning()
    [ask] = r.held
    late = r.answer(ask)
    r.new_epoch(1)
    r.tell()
    r.held.clear()
    r.do(r.core.answer(r.now, r.wall, ask, late, None))
    assert not r.poll()
    r.release(fx.AskRuns)
    assert r.part().lag == 1 and offsets(r.poll()) == [0]


def test_retention_counts_what_was_lost_and_says_where_it_went_on() -> None:
    r = Rig()
    r.join()
    r.publish(10)
    r.publish(1, kind=READY)
    r.publish(10)
    [lease] = r.poll(most=8)
    r.settle(lease, ranges=[0, 2, 5, 1])
    r.settle(lease, Op.NACK, [6, 1])
    r.log().start = 13
    r.tell()
    part = r.part()
    assert (part.committed, part.lag, part.expired, part.skipped_to) == (13, 8, 10 - 3 + 2, 13)
    assert part.in_flight == 0 and part.retrying == 0
    assert r.settle(lease, ranges=[3, 1]).error == StaleReceipt.code
    r.restart()
    assert r.part() == part
    assert offsets(r.poll()) == list(range(13, 21))


def test_a_new_group_on_a_log_that_begins_late_has_lost_nothing() -> None:
    r = Rig()
    r.publish(10)
    r.log().start = 6
    r.join()
    part = r.part()
    assert (part.committed, part.lag, part.expired, part.skipped_to) == (6, 4, 0, -1)


def test_retention_while_groupd_was_down() -> None:
    r = Rig()
    r.join()
    r.publish(10)
    r.settle(r.poll(most=3)[0])
    r.log().start = 8
    r.restart()
    part = r.part()
    assert (part.committed, part.lag, part.expired, part.skipped_to) == (8, 2, 5, 8)


def test_marks() -> None:
    r = Rig()
    r.join()
    r.publish(20)
    [lease] = r.poll(most=10)
    assert r.mark(True, 0, 5) == 5
    assert (r.part().committed, r.part().lag, r.part().in_flight) == (5, 15, 5)
    assert r.settle(lease, ranges=[0, 1]).error == 0
    assert r.mark(True, 15, -1) == 5 and r.part().acked_ahead == [15, 5]
    assert r.mark(False, 3, 8) == 2
    assert (r.part().committed, r.part().lag, r.part().in_flight) == (3, 12, 2)
    assert r.settle(lease, ranges=[6, 1]).error == StaleReceipt.code
    assert r.settle(lease, ranges=[8, 2]).error == 0
    r.restart()
    assert (r.part().committed, r.part().lag) == (3, 10)
    assert offsets(r.poll()) == [3, 4, 5, 6, 7, *range(10, 15)]


def test_a_reset_zeroes_attempts_and_dead_letters() -> None:
    r = Rig(max_retries=1)
    r.join()
    r.publish(3)
    [lease] = r.poll()
    r.copy_error = Unavailable("no")
    r.settle(lease, Op.NACK)
    assert r.part().retrying == 3 and r.mark(False, 0, -1) == 0 and r.part().retrying == 0
    r.copy_error = None
    r.advance(5_000)
    assert not r.dlq
    assert [(lease.delivery, lease.ranges) for lease in r.poll()] == [(1, [0, 3])]


def test_a_mark_makes_the_group_when_told_and_waits_for_the_log() -> None:
    r = Rig()
    r.publish(5)
    r.hold.add(fx.AskRuns)
    r.hold.add(fx.WatchSet)
    item = Mark1(r.topics["t"].id, 0, True, 0, 3)
    call = r.send(Kind.MARK, Mark("__dlq", [item], True))
    assert r.answer_to(call) is None
    r.release(fx.AskRuns, fx.WatchSet)
    assert r.answer_to(call).changed == [3] and r.part(group="__dlq").lag == 2


def test_a_mark_waits_a_little_for_a_topic_that_was_just_made() -> None:
    r = Rig()
    new = r.create("new", 2)
    r.log("new", 1).kinds += [NORMAL] * 5
    calls = [r.send(Kind.MARK, Mark("g", [Mark1(new.id, partition, True, 0, 3)], True)) for partition in (1, 2)]
    never = r.send(Kind.MARK, Mark("g", [Mark1(r.topics["t"].id, 0, True, 0, 0), Mark1(1, 0, True, 0, 3)]))
    r.advance(UNHEARD_MS - 1)
    assert [r.answer_to(call) for call in (*calls, never)] == [None] * 3
    r.tell_topics("new")
    assert r.answer_to(calls[0]).changed == [3] and r.part("new", 1).lag == 2
    with pytest.raises(UnknownPartition):
        r.answer_to(calls[1])
    r.advance(1)
    with pytest.raises(UnknownTopicId, match="no topic has the id 1"):
        r.answer_to(never)


def test_an_internal_group_is_not_deleted_nor_set_back() -> None:
    r = Rig()
    r.publish(5)
    r.ask(Kind.MARK, Mark("__dlq", [Mark1(r.topics["t"].id, 0, True, 0, 3)], True))
    with pytest.raises(BadRequest, match="internal"):
        r.ask(Kind.DELETE_GROUP, DeleteGroup("__dlq", True))
    with pytest.raises(BadRequest, match="internal"):
        r.ask(Kind.MARK, Mark("__dlq", [Mark1(r.topics["t"].id, 0, False, 0, 3)]))
    assert r.part(group="__dlq").lag == 2


def test_what_was_not_reached_yet_is_served_after_a_replay_of_what_lies_behind_it() -> None:
    r = Rig()
    r.join()
    r.publish(20)
    r.poll(most=5)
    r.mark(True, 15, 20)
    r.mark(False, 15, 18)
    assert offsets(r.poll()) == list(range(5, 18))


def test_redrive_opens_the_origin_again() -> None:
    r = Rig(max_retries=1)
    r.join()
    r.publish(2)
    r.settle(r.poll()[0], Op.NACK, [1, 1])
    assert [entry[3] for entry in r.dlq] == [1]
    assert r.mark(False, 1, 2) == 1
    [lease] = r.poll()
    assert (offsets(lease), lease.delivery) == ([1], 1)
    r.settle(lease, Op.NACK)
    assert [entry[3] for entry in r.dlq] == [1, 1]


def test_delayed_messages_take_their_place_at_the_ready_record() -> None:
    r = Rig()
    r.join()
    r.publish(2)
    r.publish(3, kind=LATER)
    r.publish(2)
    [lease] = r.poll()
    assert lease.ranges == [0, 2, 5, 2] and r.part().lag == 4
    r.settle(lease)
    assert (r.part().committed, r.part().lag) == (7, 0)
    at = r.ready([2, 1, 4, 1])
    r.publish(1)
    assert (at, r.part().committed, r.part().lag) == (7, 7, 3)
    first, second = r.poll()
    assert (first.ranges, second.ranges) == ([2, 1, 4, 1], [8, 1])
    r.settle(second)
    r.settle(first, ranges=[4, 1])
    assert (r.part().committed, r.part().lag) == (7, 1)
    r.settle(first, Op.NACK, [2, 1])
    r.restart()
    assert (r.part().committed, r.part().lag) == (7, 1)
    r.beat(1_000, "a")
    [again] = r.poll()
    assert (again.ranges, again.delivery) == ([2, 1], 2)
    r.settle(again)
    assert (r.part().committed, r.part().lag) == (9, 0)
    r.restart()
    assert (r.part().committed, r.part().lag) == (9, 0)
    assert r.mark(False, 7, 8) == 2
    assert [lease.ranges for lease in r.poll()] == [[2, 1, 4, 1]]


def test_describe_does_not_wait_for_ever() -> None:
    r = scanning()
    call = r.send(Kind.DESCRIBE_GROUP, DescribeGroup("g"))
    assert r.answer_to(call) is None
    r.advance(3_000)
    assert r.answer_to(call).partitions[0].lag == 0


def test_asks_that_fail_are_asked_again() -> None:
    r = scanning()
    [ask] = r.held
    r.held.clear()
    r.do(r.core.answer(r.now, r.wall, ask, None, Unavailable("no")))
    assert not r.held
    r.advance(250)
    assert r.held == [ask]


def test_hidden_ranges_are_nobodys() -> None:
    r = Rig()
    r.join()
    part = r.core._desk.state.groups["g"].parts[r.topics["t"].id, 0]
    part.scan([0, 10, NORMAL], [], [2, 3, 9, 1], 0, 10)
    part.end = 10
    assert part.lag() == 6 and offsets(r.poll()) == [0, 1, 5, 6, 7, 8]

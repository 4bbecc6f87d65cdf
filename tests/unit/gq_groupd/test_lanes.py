"""Priorities as a consumer sees them: shares, order, starvation, retries, delays, restarts; against a simple-minded scheduler."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gq_groupd import effects as fx
from gq_groupd.core import Settings
from gq_groupd.shares import AHEAD_MAX
from gq_proto.messages import Lease, Op
from gq_proto.record import DELAYED, kind_lane, kind_of
from gq_proto.runs import NO_LANES
from tests.unit.gq_groupd.rig import Rig, offsets
from tests.unit.gq_groupd.test_shares import NONE, Dumb

LANES = range(5)
WEIGHTS = (50, 25, 15, 7, 3)
MANY = Settings(max_in_flight=10**9)


def fill(r: Rig, lanes: list[int], partition: int = 0) -> None:
    """Messages of these lanes, in turn."""
    r.log("t", partition).kinds += [kind_of(0, lane) for lane in lanes]


def lane_of(r: Rig, lease: Lease, offset: int) -> int:
    return kind_lane(r.log("t", lease.partition).kinds[offset])


def take(r: Rig, most: int = 500, member: str = "a") -> list[int]:
    """Lanes of what one poll brings, in the order of serving; all acked."""
    lanes = []
    for lease in r.poll(member, most):
        lanes += [lane_of(r, lease, offset) for offset in offsets(lease)]
        r.settle(lease, member=member)
    return lanes


@pytest.mark.parametrize("most", [1, 7, 100, 500])
@pytest.mark.parametrize("partitions", [1, 3])
def test_full_lanes_get_their_shares(most: int, partitions: int) -> None:
    r = Rig({"t": partitions})
    chance, wanted = random.Random(5), 10_000 if most > 1 else 2_000
    for p in range(partitions):
        fill(r, [chance.randrange(5) for _ in range(30_000)], p)
    r.join()
    got: Counter[int] = Counter()
    while got.total() < wanted:
        lanes = take(r, most)
        assert lanes
        got.update(lanes)
    assert all(abs(100 * got[lane] / got.total() - WEIGHTS[lane]) < 1.5 for lane in LANES), got


def test_full_lanes_of_a_shared_group_get_their_shares_whoever_polls() -> None:
    r = Rig(settings=MANY)
    fill(r, list(LANES) * 5_000)
    members = [f"m{n}" for n in range(20)]
    for member in members:
        r.join(member, mode="shared")
    got = Counter(lane for n in range(1_000) for lane in take(r, 3, members[n % 20]))
    assert [got[lane] for lane in LANES] == [30 * weight for weight in WEIGHTS]


def test_who_comes_next_goes_on_with_the_round_of_who_left() -> None:
    from gq_proto.messages import Kind, Leave
    r = Rig()
    fill(r, list(LANES) * 400)
    got: Counter[int] = Counter()
    for n in range(100):
        r.join(f"m{n}")
        got.update(take(r, 3, f"m{n}"))
        r.ask(Kind.LEAVE, Leave("g", f"m{n}"))
    assert [got[lane] for lane in LANES] == [3 * weight for weight in WEIGHTS]


def test_a_member_without_partitions_gets_nothing_and_its_share_once_it_has_some() -> None:
    from gq_proto.messages import Kind, Leave
    r = Rig()
    fill(r, list(LANES) * 6_000)
    r.join("a")
    r.join("b")
    got = Counter(take(r, member="a"))
    assert got and not take(r, member="b")
    r.ask(Kind.LEAVE, Leave("g", "a"))
    r.advance(1_000)
    got.update(lane for _ in range(19) for lane in take(r, member="b"))
    assert all(abs(got[lane] - 100 * WEIGHTS[lane]) <= AHEAD_MAX for lane in LANES), got


def test_a_large_poll_is_of_two_or_three_lanes() -> None:
    r = Rig(settings=MANY)
    fill(r, list(LANES) * 4_000)
    r.join()
    polls = [r.poll() for _ in range(10)]
    assert all(sum(sum(lease.ranges[1::2]) for lease in leases) == 500 for leases in polls)
    assert sum(map(len, polls)) < 10 * 3
    assert max(len(r.poll(most=100)) for _ in range(26)) == 5, "small ones are of all, once what was in advance is given back"


def test_lanes_that_turn_out_to_be_done_leave_a_large_poll_to_the_others() -> None:
    r = Rig()
    fill(r, [0] * 1_500)
    r.join()
    assert r.mark(True, 0, 1_500) == 1_500
    r.publish(300, kind=kind_of(0, 3))
    assert take(r, 600) == [3] * 300


def test_a_large_poll_after_a_restart_passes_what_was_acked_before() -> None:
    r = Rig()
    chance = random.Random(1)
    fill(r, [chance.randrange(5) for _ in range(5_000)])
    r.join()
    served = [lane for _ in range(6) for lane in take(r)]
    r.restart()
    while got := take(r):
        served += got
    assert len(served) == 5_000


def test_a_trickle_of_critical_messages_does_not_wait_behind_what_a_large_poll_put_off() -> None:
    r = Rig(settings=MANY)
    fill(r, [0] * 1_200)
    fill(r, [1, 2, 3, 4] * 5_000)
    r.join()
    for _ in range(3):
        take(r, 500)
    while 0 in take(r, 100):
        pass
    for _ in range(20):
        r.advance(1_000)
        r.publish(1, kind=kind_of(0, 0))
        assert take(r, 100)[0] == 0


def test_low_lanes_alone_get_everything() -> None:
    r = Rig(settings=MANY)
    fill(r, [3, 4, 4] * 400)
    r.join()
    assert Counter(lane for _ in range(4) for lane in take(r, 100)) == {3: 280, 4: 120}
    assert Counter(lane for _ in range(8) for lane in take(r, 100)) == {3: 120, 4: 680}


def test_critical_messages_come_first_whatever_partition_they_are_in() -> None:
    r = Rig({"t": 3})
    for p in range(3):
        fill(r, [4] * 5_000, p)
        fill(r, [0] * 4, p)
        fill(r, [4] * 5_000, p)
    r.join()
    assert take(r, 20) == [0] * 12 + [4] * 8


def test_a_critical_message_behind_millions_is_found_without_reading_them() -> None:
    r = Rig()
    lanes = [3, 4] * 20_000
    fill(r, lanes)
    fill(r, [0])
    asks: list[fx.AskRuns] = []
    answer = r.answer

    def noted(ask: object) -> object:
        if isinstance(ask, fx.AskRuns):
            asks.append(ask)
        return answer(ask)
    r.answer = noted    # type: ignore[method-assign]
    r.join()
    assert take(r, 3)[0] == 0
    runs = sum(len(answer(ask).runs) // 3 for ask in asks)
    assert runs < 3_000 and {ask.lane for ask in asks} >= {NO_LANES, 0}


def test_nobody_waits_longer_than_the_starvation_limit() -> None:
    """A slow consumer of full lanes: a round would take 100 seconds, and background had its turn at its end."""
    r = Rig()
    fill(r, [0] * 2_000 + [4] * 100 + [3] * 100)
    r.join()
    served = dict.fromkeys((0, 3, 4), 0)
    longest = dict.fromkeys((0, 3, 4), 0)
    for second in range(600):
        [lane] = take(r, 1)
        for other in served:
            longest[other] = max(longest[other], second - served[other])
        served[lane] = second
        r.beat(1_000, "a")
    assert longest[4] <= 31 and longest[3] <= 31 and longest[0] < 10


def test_where_nobody_polls_nobody_is_passed_over() -> None:
    r = Rig()
    fill(r, [4] * 100)
    r.join()
    take(r, 1)
    r.publish(1, kind=kind_of(0, 0))
    assert take(r, 1) == [0]
    r.publish(1, kind=kind_of(0, 0))
    r.beat(120_000, "a")
    assert take(r, 2) == [0, 4]


def test_a_retry_of_a_high_lane_overtakes_a_low_backlog() -> None:
    r = Rig()
    fill(r, [1] + [4] * 1_000)
    r.join()
    [high] = r.poll(most=1)
    r.settle(high, Op.NACK, arg_ms=500)
    assert take(r, 100) == [4] * 100
    r.beat(500, "a")
    [again, *rest] = r.poll(most=100)
    assert (offsets(again), again.delivery) == ([0], 2) and sum(len(offsets(lease)) for lease in rest) == 99


def test_a_retry_stays_in_its_lane() -> None:
    r = Rig()
    fill(r, [4] + [0] * 1_000)
    r.join()
    while lane_of(r, lease := r.poll(most=1)[0], offsets(lease)[0]) != 4:
        r.settle(lease)
    r.settle(lease, Op.NACK, arg_ms=0)
    lanes = take(r, 200)
    assert lanes[:50] == [0] * 50 and 0 < lanes.count(4) <= 2


def test_what_was_given_back_stays_in_its_lane_also_over_a_restart() -> None:
    r = Rig()
    fill(r, [0, 4] * 300)
    r.join()
    for lease in r.poll(most=100):
        r.settle(lease, Op.RELEASE)
    assert take(r, 60) == [0] * 54 + [4] * 6
    r.restart()
    r.heartbeat()
    assert Counter(take(r, 60))[0] >= 50


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_failed_knows_its_lane_over_a_restart(snapshot: bool) -> None:
    r = Rig(settings=Settings(snapshot_records=2 if snapshot else 10**6))
    fill(r, [0] * 3 + [4] * 1_000)
    r.join()
    [lease] = r.poll(most=3)
    r.settle(lease, Op.NACK, arg_ms=60_000)
    take(r, 50)
    if snapshot:
        for _ in range(5):
            take(r, 10)
        assert r.journal[0][0] > 5, "the journal was not cut"
    r.restart()
    assert 0 not in take(r, 10)
    r.beat(60_000, "a")
    assert take(r, 10)[:3] == [0, 0, 0]


def test_a_delayed_message_enters_its_lane_when_it_is_due() -> None:
    r = Rig()
    later = [kind_of(DELAYED, lane) for lane in (0, 4, 1, 2)]
    r.log().kinds += later
    fill(r, [4] * 300)
    r.join()
    assert set(take(r, 50)) == {4} and r.part().lag == 250
    r.ready([0, 4])
    [critical, high, normal, *low] = r.poll(most=50)
    assert [lease.ranges for lease in (critical, high, normal)] == [[0, 1], [2, 1], [3, 1]]
    r.settle(critical, Op.NACK, arg_ms=0)
    assert offsets(r.poll(most=1)) == [0]
    rest = [o for lease in low for o in offsets(lease)]
    assert 1 not in rest and r.part().lag == 254
    r.restart()
    got = set(rest)
    while leases := r.poll():
        got |= set(offsets(leases))
    assert 1 in got


def test_delayed_ones_come_by_their_ready_record_within_a_lane() -> None:
    r = Rig()
    r.log().kinds += [kind_of(DELAYED, 1)] * 3
    fill(r, [1])
    r.join()
    r.ready([1, 1])
    fill(r, [1])
    r.ready([0, 1, 2, 1])
    assert offsets(r.poll()) == [3, 1, 5, 0, 2]


def test_hundreds_of_messages_of_one_ready_record_all_come() -> None:
    r = Rig(settings=MANY)
    r.log().kinds += [kind_of(DELAYED, 2), kind_of(0, 2)] * 1_000
    r.join()
    while r.poll():
        pass
    r.ready([x for offset in range(0, 2_000, 2) for x in (offset, 1)])
    got: list[int] = []
    while leases := r.poll():
        got += offsets(leases)
    assert got == list(range(0, 2_000, 2))


polls = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 4)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), polls, st.integers(1, 3))
def test_polls_against_one_message_at_a_time(lanes: list[int], steps: list[tuple[int, int]], partitions: int) -> None:
    """Everything acked, or given back, or failed: which lanes come, and in what order within a lane and partition."""
    r = Rig({"t": partitions}, settings=MANY, max_retries=10**6)
    dumb = Dumb(WEIGHTS)
    left: list[Counter[int]] = [Counter() for _ in range(partitions)]
    for at, lane in enumerate(lanes):
        fill(r, [lane], at % partitions)
        left[at % partitions][lane] += 1
    r.join()
    single = len(set(lanes)) == 1
    last = {(p, lane): -1 for p in range(partitions) for lane in LANES}
    for most, op in steps:
        have = [sum(part[lane] for part in left) for lane in LANES]
        leases = r.poll(most=most)
        got = Counter(lane_of(r, lease, offset) for lease in leases for offset in offsets(lease))
        wanted = dumb.split(have, most, NONE)
        assert single or [got[lane] for lane in LANES] == wanted
        assert got.total() == sum(wanted)
        for lease in leases:
            lane = lane_of(r, lease, offsets(lease)[0])
            if op != Op.RELEASE and lease.delivery == 1:
                assert offsets(lease) == sorted(offsets(lease)) and offsets(lease)[0] > last[lease.partition, lane]
                last[lease.partition, lane] = offsets(lease)[-1]
            r.settle(lease, Op.RELEASE if op == Op.RELEASE else Op.ACK)
            if op != Op.RELEASE:
                left[lease.partition][lane] -= len(offsets(lease))
            else:
                last = {(p, lane): -1 for p in range(partitions) for lane in LANES}

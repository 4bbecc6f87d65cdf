"""Figures per priority: what is ready, in flight, came and went, whatever happened in between; against a count by hand."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gq_groupd import effects as fx
from gq_groupd.census import Rate
from gq_groupd.core import Settings
from gq_groupd.part import Part
from gq_proto.messages import DescribeGroup, Kind, LaneInfo, Op
from gq_proto.record import DELAYED, kind_lane, kind_of
from gq_proto.runs import ALL_LANES, UNDELIVERABLE
from tests.unit.gq_groupd.rig import Rig, offsets

MANY = Settings(max_in_flight=10**9)


def lanes(r: Rig, partition: int = 0) -> dict[int, LaneInfo]:
    info = r.ask(Kind.DESCRIBE_GROUP, DescribeGroup("g", True))
    [part] = [part for part in info.partitions if part.partition == partition]
    assert sum(lane.ready + lane.in_flight + lane.retrying for lane in part.lanes) == part.lag
    return {lane.priority: lane for lane in part.lanes}


def ready(r: Rig) -> list[int]:
    found = lanes(r)
    return [found[lane].ready if lane in found else 0 for lane in range(5)]


def part_of(r: Rig) -> Part:
    [part] = r.core._desk.state.groups["g"].parts.values()
    return part


def by_hand(r: Rig) -> list[int]:
    """Open messages of each lane that are nobody's and wait for nothing."""
    part, log = part_of(r), r.log()
    free = (part.open | part.anchors.all()) - part.held - part.waiting.all - part.dead.all
    return [sum(kind_lane(log.kinds[offset]) == lane for offset in free) for lane in range(5)]


def mixed(r: Rig, count: int, seed: int = 3) -> None:
    chance = random.Random(seed)
    r.log().kinds += [kind_of(0, chance.randrange(5)) for _ in range(count)]
    if r.watching:
        r.tell()


def test_figures_of_each_priority() -> None:
    r = Rig(settings=MANY)
    r.join()
    r.publish(10, kind=kind_of(0, 0))
    r.publish(20, kind=kind_of(0, 3))
    [critical, low] = r.poll(most=12)
    r.settle(critical, ranges=critical.ranges[:1] + [4])
    r.settle(critical, Op.NACK, [4, 1], arg_ms=5_000)
    r.advance(2_000)
    found = lanes(r)
    assert set(found) == {0, 3}
    assert (found[0].ready, found[0].in_flight, found[0].retrying, found[0].enqueued, found[0].dequeued) == (0, 5, 1, 10, 4)
    assert (found[3].ready, found[3].in_flight, found[3].retrying, found[3].enqueued, found[3].dequeued) == (18, 2, 0, 20, 0)
    assert found[0].served_ms_ago == found[3].served_ms_ago == 2_000
    assert found[0].enqueued_per_s == pytest.approx(5, abs=1) and found[0].dequeued_per_s == pytest.approx(2, abs=0.5)
    assert r.describe().partitions[0].lanes == []
    gauge, = r.core.gauges()
    assert list(gauge.lanes) == list(found.values())
    r.settle(low)
    assert (lanes(r)[3].in_flight, lanes(r)[3].dequeued) == (0, 2)


def test_nothing_is_said_of_priorities_that_were_never_there() -> None:
    r = Rig()
    r.publish(5)
    r.join()
    assert list(lanes(r)) == [2]
    for lease in r.poll():
        r.settle(lease)
    r.advance(1_000)
    assert (lanes(r)[2].ready, lanes(r)[2].enqueued, lanes(r)[2].dequeued) == (0, 0, 5)


def test_a_backlog_is_counted_without_its_runs() -> None:
    r = Rig(settings=MANY)
    mixed(r, 30_000)
    r.join()
    asked: list[fx.AskRuns] = []
    answer = r.answer

    def noted(ask: object) -> object:
        if isinstance(ask, fx.AskRuns):
            asked.append(ask)
        return answer(ask)
    r.answer = noted    # type: ignore[method-assign]
    assert ready(r) == by_hand(r)
    r.restart()
    assert ready(r) == by_hand(r)
    assert sum(len(answer(ask).runs) // 3 for ask in asked) < 6_000


def test_where_some_is_done_it_is_counted_run_by_run_after_a_restart() -> None:
    r = Rig(settings=MANY)
    r.join()
    mixed(r, 16_000)
    for n in range(40):
        for lease in r.poll(most=100):
            r.settle(lease, Op.ACK if n % 3 else Op.NACK)
    assert ready(r) == by_hand(r)
    r.restart()
    assert part_of(r).census.counted < part_of(r).scanned
    assert ready(r) == by_hand(r)


def test_a_commit_of_what_was_handed_out_leaves_nothing_to_count() -> None:
    r = Rig(settings=MANY)
    r.join()
    mixed(r, 1_000)
    for _ in range(4):
        r.poll(most=100)
    handed = part_of(r).held
    upto = next(offset for offset in range(1_000) if offset not in handed)
    assert upto > 10 and r.mark(True, 0, upto) == upto
    assert part_of(r).census.counted == 1_000 and ready(r) == by_hand(r)
    r.mark(True, 0, upto + 300)
    assert part_of(r).census.counted < 1_000 and ready(r) == by_hand(r)


def test_delayed_messages_come_with_their_ready_record() -> None:
    r = Rig()
    r.join()
    r.publish(2, kind=kind_of(DELAYED, 0))
    r.publish(1, kind=kind_of(DELAYED, 4))
    assert not lanes(r)
    r.ready([0, 3])
    assert [(lane.priority, lane.ready, lane.enqueued) for lane in lanes(r).values()] == [(0, 2, 2), (4, 1, 1)]
    r.settle(r.poll(most=1)[0])
    assert ready(r) == [1, 0, 0, 0, 1] == by_hand(r)


EVENTS = ["publish", "poll", "ack", "nack", "release", "mark", "unmark", "restart", "gone", "epoch", "late", "due"]
steps = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 30), st.integers(0, 30)), min_size=8, max_size=30)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_ready_is_right_whatever_happened(todo: list[tuple[str, int, int]]) -> None:
    r = Rig(settings=MANY, max_retries=10**6)
    r.join(session_ms=10**6)
    held = []
    for what, x, y in todo:
        log = r.log()
        if what == "publish":
            mixed(r, 20 * x, y)
        elif what == "poll":
            held += r.poll(most=5 * x + 1)
        elif what in ("ack", "nack", "release") and held:
            lease = held.pop(x % len(held))
            some = [n for o in offsets(lease)[y % 3::1 + y % 2] for n in (o, 1)]
            r.settle(lease, {"ack": Op.ACK, "nack": Op.NACK, "release": Op.RELEASE}[what], some, arg_ms=50 * x)
        elif what in ("mark", "unmark"):
            r.mark(what == "mark", 10 * x, 10 * x + 5 * y)
        elif what == "restart":
            r.restart()
        elif what == "gone":
            log.start = min(max(log.start, 3 * x), log.end)
            r.tell()
        elif what == "epoch":
            r.new_epoch(max(log.start, log.end - x))
            r.tell()
            held = []
        elif what == "late":
            log.kinds += [kind_of(DELAYED, y % 5)] * (1 + x % 3)
            r.tell()
        elif what == "due":
            waiting = [o for o in range(log.start, log.end) if log.kinds[o] & UNDELIVERABLE == kind_of(DELAYED, 0)]
            named = {o for c in log.controls.values() for low, n in zip(c.lanes[::3], c.lanes[1::3]) for o in range(low, low + n)}
            if fresh := [o for o in waiting if o not in named]:
                r.ready([n for o in fresh for n in (o, 1)])
        r.advance(10)
        r.heartbeat(leases=held)
        assert ready(r) == by_hand(r)


def test_a_slice_that_is_half_done_is_asked_for_with_its_lanes() -> None:
    r = Rig(settings=MANY)
    r.join()
    mixed(r, 12_000)
    for _ in range(30):
        for lease in r.poll(most=200):
            r.settle(lease)
    r.restart()
    part = part_of(r)
    low = part.census.counted
    assert low < part.scanned == 12_000
    r.hold.add(fx.AskRuns)
    call = r.send(Kind.DESCRIBE_GROUP, DescribeGroup("g", True))
    asked: list[fx.AskRuns] = []
    while r.held:
        ask = r.held.pop(0)
        asked.append(ask)
        r.do(r.core.answer(r.now, r.wall, ask, r.answer(ask), None))
    assert (asked[0].offset, asked[0].lane) == (low, ALL_LANES)
    assert part.census.counted == 12_000 and r.answer_to(call).partitions[0].lanes


def test_rates() -> None:
    rate = Rate()
    assert rate.per_s(0) == 0
    for ms in range(0, 60_000, 100):
        rate.add(7, ms)
    assert rate.per_s(60_000) == pytest.approx(70, rel=0.02)
    assert rate.per_s(70_000) == pytest.approx(70 / 2.718, rel=0.02)
    late = Rate()
    for ms in range(500_000, 503_000, 100):
        late.add(7, ms)
    assert late.per_s(503_000) == pytest.approx(70, rel=0.02)

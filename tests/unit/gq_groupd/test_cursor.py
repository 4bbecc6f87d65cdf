"""The lanes' buffers, against lists of all that a log holds."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from gq_groupd.cursor import ANCHORED_RUNS, REFILL, Entry, Lanes
from gq_groupd.stretch import Stretch
from gq_proto.codec import ranges_of
from gq_proto.limits import BUFFERED_RUNS

LANES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=60)


def stretch(log: list[int], low: int, high: int, only: int = -1, most: int = 10**9) -> Stretch:
    """Of a lane, at most so many runs."""
    lanes = [ranges_of([at for at in range(low, high) if log[at] == lane]) for lane in range(5)]
    mine = [ranges[:2 * most] if only in (-1, lane) else [] for lane, ranges in enumerate(lanes)]
    return Stretch(ranges_of(range(low, high)), mine, [])


def as_they_lie(**lanes: list[int]) -> Stretch:
    return Stretch([], [lanes.get(f"lane{number}", []) for number in range(5)], [])


def serve(lanes: Lanes, number: int, most: int) -> list[int]:
    """What a consumer of one lane would get."""
    lane = lanes.lanes[number]
    if not lane.runs:
        return []
    ranges, count = lane.peek(most)
    assert count == sum(ranges[1::2]) <= most
    lane.pass_to(ranges[-2] + ranges[-1])
    return [offset for low, n in zip(ranges[::2], ranges[1::2]) for offset in range(low, low + n)]


@given(LANES, st.lists(st.tuples(st.integers(1, 400), st.integers(0, 4), st.integers(1, 50)), max_size=60), st.integers(1, 30))
def test_each_lane_is_served_once_in_order_from_bounded_memory(runs: list[tuple[int, int]], steps: list[tuple[int, int, int]],
                                                               load: int) -> None:
    log = [lane for lane, n in runs * 20 for _ in range(n)]
    lanes, scanned = Lanes(0), 0
    served: list[list[int]] = [[] for _ in range(5)]

    def fill() -> None:
        for number in lanes.wants(scanned):
            low = lanes.lanes[number].upto
            mine = stretch(log, low, len(log)).lanes[number]
            upto = mine[2 * load] if len(mine) > 2 * load else len(log)
            lanes.feed(low, stretch(log, low, len(log), number, load), min(upto, scanned), upto < scanned, number)
        for lane in lanes.lanes:
            assert lane.runs == len(lane.entries()) <= BUFFERED_RUNS and lane.count == sum(e.high - e.low for e in lane.entries())

    def scan(upto: int) -> None:
        nonlocal scanned
        if upto > scanned:
            lanes.feed(scanned, stretch(log, scanned, upto), upto)
            scanned = upto

    for step, number, most in steps:
        scan(min(len(log), scanned + step))
        served[number] += serve(lanes, number, most)
        fill()
    scan(len(log))
    for number in range(5):
        while got := serve(lanes, number, 1_000) or [fill(), *serve(lanes, number, 1_000)][1:]:
            served[number] += got
            fill()
        assert not lanes.lanes[number].more
    assert served == [[offset for offset, lane in enumerate(log) if lane == number] for number in range(5)]


def test_a_full_lane_knows_that_it_goes_on_and_the_others_go_on_without_it() -> None:
    lanes, end = Lanes(0), 4 * BUFFERED_RUNS
    lanes.feed(0, stretch([offset & 1 for offset in range(end)], 0, end), end)
    assert [(lane.runs, lane.upto, lane.more) for lane in lanes.lanes[:3]] == [
        (BUFFERED_RUNS, end // 2, True), (BUFFERED_RUNS, end // 2 + 1, True), (0, end, False)]
    assert lanes.upto == end // 2 and not lanes.wants(end)
    lanes.lanes[0].pass_to(2 * (BUFFERED_RUNS - REFILL + 1) - 1)
    assert lanes.wants(end) == [0]


def test_what_is_cut_comes_again_and_what_lies_before_stays() -> None:
    lanes = Lanes(0)
    lanes.feed(0, as_they_lie(lane2=[0, 10], lane1=[10, 10]), 20)
    lanes.lanes[2].pass_to(3)
    lanes.cut(15)
    assert [entry for lane in lanes.lanes for entry in lane.entries()] == [Entry(10, 15), Entry(3, 10)] and lanes.upto == 15
    assert [lane.count for lane in lanes.lanes] == [0, 5, 7, 0, 0]
    lanes.cut(1)
    assert not any(lane.runs for lane in lanes.lanes) and lanes.upto == 1
    lanes.feed(0, as_they_lie(lane2=[0, 10]), 10)
    assert lanes.lanes[2].entries() == [Entry(1, 10)]


def test_what_follows_on_is_one_run() -> None:
    lanes = Lanes(0)
    for at in range(0, 30, 10):
        lanes.feed(at, as_they_lie(lane2=[at, 10]), at + 10)
    lanes.feed(30, as_they_lie(lane2=[30, 5, 37, 3]), 40)
    lane = lanes.lanes[2]
    assert lane.entries() == [Entry(0, 35), Entry(37, 40)] and (lane.runs, lane.count) == (2, 38)


def test_a_ready_record_is_buffered_whole_and_passed_by_itself() -> None:
    lanes = Lanes(0)
    named = [x for n in range(2 * BUFFERED_RUNS) for x in (3 * n, 1)]
    ready = (5_000, [[], [], named, [], []])
    plain = as_they_lie(lane2=[6_000, 1])
    lanes.feed(0, Stretch([], plain.lanes, [ready]), 7_000)
    lane = lanes.lanes[2]
    assert (lane.runs, lane.upto, lane.more) == (2 * BUFFERED_RUNS, 6_000, True)
    assert lane.first() == (0, 5_000) and lane.peek(10**6) == (array("q", named), 2 * BUFFERED_RUNS)
    lane.pass_to(named[-2])
    assert lane.entries() == [Entry(named[-2], named[-2] + 1, 5_000)]
    lanes.feed(6_000, plain, 7_000)
    assert lane.count == 2 and lane.peek(5) == (array("q", [named[-2], 1]), 1)
    lanes.cut(5_500)
    assert lane.count == 1
    lanes.cut(5_000)
    assert lane.count == 0


def test_ready_records_come_between_what_lies_before_and_behind_them() -> None:
    lanes = Lanes(0)
    found = Stretch([], as_they_lie(lane2=[0, 5, 8, 2], lane0=[7, 1]).lanes, [(6, [[3, 1], [], [1, 2], [], []])])
    lanes.feed(0, found, 10)
    assert lanes.lanes[2].entries() == [Entry(0, 5), Entry(1, 3, 6), Entry(8, 10)]
    assert lanes.lanes[0].entries() == [Entry(3, 4, 6), Entry(7, 8)]
    late = Lanes(6)
    late.feed(0, found, 10)
    assert late.lanes[2].entries() == [Entry(1, 3, 6), Entry(8, 10)]
    later = Lanes(7)
    later.feed(0, found, 9)
    assert later.lanes[2].entries() == [Entry(8, 9)] and later.lanes[0].entries() == [Entry(7, 8)]


def test_lanes_take_ready_records_until_there_are_very_many() -> None:
    lanes = Lanes(0)
    records = [(1_000 + n, [[], [], [x for k in range(200) for x in (2 * k, 1)], [], []]) for n in range(10)]
    lanes.feed(0, Stretch([], [[]] * 5, records), 2_000)
    lane = lanes.lanes[2]
    assert ANCHORED_RUNS <= lane.runs < ANCHORED_RUNS + 200 and (lane.upto, lane.more) == (1_000 + lane.runs // 200, True)


def test_what_is_gone_is_not_served() -> None:
    lanes = Lanes(0)
    lanes.feed(0, as_they_lie(lane2=[0, 10, 20, 10]), 30)
    lanes.skip_to(25)
    assert lanes.lanes[2].entries() == [Entry(25, 30)] and lanes.upto == 30
    lanes.skip_to(40)
    assert lanes.lanes[2].count == 0 and lanes.upto == 40

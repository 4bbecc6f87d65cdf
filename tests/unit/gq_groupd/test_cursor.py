"""The lanes' buffers, against lists of all that a log holds."""

from hypothesis import given
from hypothesis import strategies as st

from gq_groupd.cursor import REFILL, Entry, Lanes
from gq_groupd.stretch import Piece, below
from gq_proto.limits import BUFFERED_RUNS

LANES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=60)


def pieces(log: list[int], low: int, high: int) -> list[Piece]:
    found: list[Piece] = []
    at = low
    while at < high:
        first = at
        while at < high and log[at] == log[first]:
            at += 1
        found.append((log[first], first, at, -1))
    return found


def serve(lanes: Lanes, number: int, most: int) -> list[int]:
    """What a consumer of one lane would get."""
    lane = lanes.lanes[number]
    if not len(lane):
        return []
    ranges = lane.peek(most)
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
            mine = [piece for piece in pieces(log, low, len(log)) if piece[0] == number]
            upto = mine[load][1] if len(mine) > load else len(log)
            found = below(mine[:load], scanned)
            lanes.feed(low, found, min(upto, scanned), upto < scanned, number)
        for lane in lanes.lanes:
            assert len(lane) <= BUFFERED_RUNS and lane.count == sum(e.high - e.low for e in lane.entries())

    def scan(upto: int) -> None:
        nonlocal scanned
        if upto > scanned:
            lanes.feed(scanned, pieces(log, scanned, upto), upto)
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
    lanes = Lanes(0)
    lanes.feed(0, [(offset & 1, offset, offset + 1, -1) for offset in range(4 * BUFFERED_RUNS)], 4 * BUFFERED_RUNS)
    assert [(len(lane), lane.upto, lane.more) for lane in lanes.lanes[:3]] == [
        (BUFFERED_RUNS, 2 * BUFFERED_RUNS, True), (BUFFERED_RUNS, 2 * BUFFERED_RUNS + 1, True), (0, 4 * BUFFERED_RUNS, False)]
    assert lanes.upto == 2 * BUFFERED_RUNS and not lanes.wants(4 * BUFFERED_RUNS)
    lanes.lanes[0].pass_to(2 * (BUFFERED_RUNS - REFILL + 1) - 1)
    assert lanes.wants(4 * BUFFERED_RUNS) == [0]


def test_what_is_cut_comes_again_and_what_lies_before_stays() -> None:
    lanes = Lanes(0)
    lanes.feed(0, [(2, 0, 10, -1), (1, 10, 20, -1)], 20)
    lanes.lanes[2].pass_to(3)
    lanes.cut(15)
    assert [entry for lane in lanes.lanes for entry in lane.entries()] == [Entry(10, 15), Entry(3, 10)] and lanes.upto == 15
    assert [lane.count for lane in lanes.lanes] == [0, 5, 7, 0, 0]
    lanes.cut(1)
    assert not any(len(lane) for lane in lanes.lanes) and lanes.upto == 1
    lanes.feed(0, [(2, 0, 10, -1)], 10)
    assert lanes.lanes[2].entries() == [Entry(1, 10)]


def test_a_ready_record_is_buffered_whole_and_passed_by_itself() -> None:
    lanes = Lanes(0)
    named = [(2, 3 * n, 3 * n + 1, 5_000) for n in range(2 * BUFFERED_RUNS)]
    lanes.feed(0, [*named, (2, 6_000, 6_001, -1)], 7_000)
    lane = lanes.lanes[2]
    assert (len(lane), lane.upto, lane.more) == (2 * BUFFERED_RUNS, 6_000, True)
    assert lane.first() == (0, 5_000) and lane.peek(10**6) == [x for _, low, *_ in named for x in (low, 1)]
    lane.pass_to(3 * (2 * BUFFERED_RUNS - 1))
    assert lane.entries() == [Entry(3 * (2 * BUFFERED_RUNS - 1), 3 * (2 * BUFFERED_RUNS - 1) + 1, 5_000)]
    lanes.feed(6_000, [(2, 6_000, 6_001, -1)], 7_000)
    assert lane.count == 2 and lane.peek(5) == [3 * (2 * BUFFERED_RUNS - 1), 1]
    lanes.cut(5_500)
    assert lane.count == 1
    lanes.cut(5_000)
    assert lane.count == 0


def test_what_is_gone_is_not_served() -> None:
    lanes = Lanes(0)
    lanes.feed(0, [(2, 0, 10, -1), (2, 20, 30, -1)], 30)
    lanes.skip_to(25)
    assert lanes.lanes[2].entries() == [Entry(25, 30)] and lanes.upto == 30
    lanes.skip_to(40)
    assert lanes.lanes[2].count == 0 and lanes.upto == 40

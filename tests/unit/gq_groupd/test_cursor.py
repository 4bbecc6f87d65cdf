from hypothesis import given
from hypothesis import strategies as st

from gq_groupd.cursor import Entry, Lanes
from gq_proto.limits import BUFFERED_RUNS

LANES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=400)


def runs_of(log: list[int], low: int, high: int) -> list[tuple[int, Entry]]:
    found = []
    at = low
    while at < high:
        first = at
        while at < high and log[at] == log[first]:
            at += 1
        found.append((log[first], Entry(first, first, at)))
    return found


@given(LANES, st.lists(st.integers(1, 40), max_size=60), st.integers(1, 30))
def test_every_offset_is_served_once_in_order_from_bounded_memory(runs: list[tuple[int, int]], steps: list[int],
                                                                  load: int) -> None:
    log = [lane for lane, n in runs for _ in range(n)]
    lanes, scanned, served = Lanes(0), 0, []
    for step in [*steps, len(log)]:
        upto = min(len(log), scanned + step)
        if upto > scanned:
            lanes.feed(scanned, runs_of(log, scanned, upto), upto)
            scanned = upto
        assert all(len(lane.entries) <= BUFFERED_RUNS for lane in lanes.lanes)
        for _ in range(len(log)):
            wanted = lanes.wants(scanned)
            if wanted >= 0:
                upto = min(scanned, wanted + load)
                lanes.feed(wanted, runs_of(log, wanted, upto), upto)
            head = lanes.head()
            if not head:
                break
            lane, entry = head
            high = min(entry.high, lanes.bound(lane))
            served += range(entry.low, high)
            lanes.take(lane, high)
    assert served == list(range(len(log)))


def test_what_is_cut_comes_again_and_what_lies_before_stays() -> None:
    lanes = Lanes(0)
    lanes.feed(0, [(2, Entry(0, 0, 10)), (1, Entry(10, 10, 20))], 20)
    lanes.take(lanes.lanes[2], 3)
    lanes.cut(15)
    assert [e for lane in lanes.lanes for e in lane.entries] == [Entry(10, 10, 15), Entry(3, 3, 10)] and lanes.limit == 15
    lanes.cut(1)
    assert lanes.head() is None and lanes.limit == 1
    lanes.feed(0, [(2, Entry(0, 0, 10))], 10)
    assert lanes.head() == (lanes.lanes[2], Entry(1, 1, 10))

"""Ages at ack: which mark a message belongs to, what is unknown, how marks thin out."""

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from gq_groupd.ages import BOUNDS_MS, MARKS_MAX, Ages, Marks
from gq_groupd.daemon import Gauges
from gq_proto import messages as m
from gq_run import metrics
from tests.unit.gq_groupd.rig import Rig

KEY = (5, 0)


def counted(ages: Ages) -> dict[int, int]:
    """By bucket's bound; -1 above all; and the sum."""
    [counts] = ages.counts.values()
    found = {bound: count for bound, count in zip((*BOUNDS_MS, -1), counts) if count}
    return found | {0: counts[-1]}


def test_each_message_is_as_old_as_the_news_of_it() -> None:
    ages = Ages()
    for end, now in ((10, 1_000), (12, 1_100), (20, 1_900)):
        ages.grew(KEY, end, now)
    ages.acked("g", "t", KEY, BitMap64([3, 9]), 2_000)
    assert ages.counts == {}, "there before the first look"
    ages.acked("g", "t", KEY, BitMap64([8, 9, 10, 11, 12, 15, 19]), 2_000)
    assert counted(ages) == {1_000: 2, 100: 3, 0: 2 * 900 + 3 * 100}
    ages.acked("g", "t", KEY, BitMap64([20, 21]), 2_000)
    ages.acked("g", "t", (5, 1), BitMap64([1]), 2_000)
    assert counted(ages)[0] == 2_100, "never heard of"


def test_the_slowest_are_counted_too() -> None:
    ages = Ages()
    ages.grew(KEY, 0, 0)
    ages.grew(KEY, 1, 0)
    ages.acked("g", "t", KEY, BitMap64([0]), BOUNDS_MS[-1] + 1)
    assert counted(ages) == {-1: 1, 0: BOUNDS_MS[-1] + 1}


def test_a_new_leader_with_less_takes_marks_back() -> None:
    ages = Ages()
    for end, now in ((0, 100), (5, 200), (10, 300), (9, 350)):
        ages.grew(KEY, end, now)
    ages.cut(KEY, 7)
    ages.grew(KEY, 12, 400)
    ages.acked("g", "t", KEY, BitMap64([4]), 500)
    ages.acked("g", "t", KEY, BitMap64([8]), 500)
    assert counted(ages) == {500: 1, 100: 1, 0: 400}


def test_what_is_not_watched_is_unknown_and_what_is_gone_is_forgotten() -> None:
    ages = Ages()
    for key in (KEY, (6, 0)):
        ages.grew(key, 0, 0)
        ages.grew(key, 5, 0)
    ages.watch([KEY])
    ages.acked("g", "t", (6, 0), BitMap64([1]), 5)
    assert ages.counts == {}
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t")):
        ages.acked(group, topic, KEY, BitMap64([1]), 5)
    ages.forget(topic="u")
    ages.forget(group="h")
    assert list(ages.counts) == [("g", "t")]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=2_000))
def test_marks_are_few_and_err_towards_youth_in_proportion(steps: list[tuple[int, int]]) -> None:
    marks, end, now, exact = Marks(), 0, 0, list[tuple[int, int]]()
    marks.grew(0, 0)
    for grown, later in steps:
        now += later
        exact.append((end, now))
        end += grown
        marks.grew(end, now)
    assert len(marks.ends) == len(marks.times_ms) <= MARKS_MAX
    assert list(marks.ends) == sorted(set(marks.ends)) and list(marks.times_ms) == sorted(marks.times_ms)
    for first, time in exact:
        [(upto, found)] = marks.times(first, first)
        assert upto > first and found >= time
    assert all(next(marks.times(first, first))[1] == time for first, time in exact[-MARKS_MAX // 2:]), "exact lately"


def test_acks_are_counted_whatever_became_of_the_message_before() -> None:
    r = Rig()
    r.join()
    r.publish(3)
    [lease] = r.poll()
    r.beat(700, "a")
    r.settle(lease, m.Op.ACK, [0, 2])
    r.settle(lease, m.Op.NACK, [2, 1], arg_ms=0)
    r.beat(300, "a")
    [lease] = r.poll()
    r.settle(lease)
    assert counted(r.core.ages) == {1_000: 3, 0: 2 * 700 + 1_000}
    r.settle(lease)
    assert counted(r.core.ages)[0] == 2_400, "acked twice"


def test_a_scrape_gets_seconds() -> None:
    class Hosted:
        def ages(self) -> dict[tuple[str, str], list[int]]:
            ages = Ages()
            ages.grew(KEY, 0, 0)
            ages.grew(KEY, 2, 0)
            ages.acked("g", "t", KEY, BitMap64([0, 1]), 250)
            return ages.counts

        def gauges(self) -> tuple[()]:
            return ()

        members = gauges

    [(metric, labels, value)] = Gauges(lambda: [Hosted()], lambda: 1.0).samples()  # type: ignore[list-item]
    assert metric is metrics.END_TO_END_LATENCY and labels == ("g", "t") and isinstance(value, metrics.Histogram)
    assert value.sum == 0.5 and value.counts[value.bounds.index(0.25)] == 2 == sum(value.counts)

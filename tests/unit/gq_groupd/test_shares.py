"""Weights, against a scheduler that hands out one message at a time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gq_groupd.shares import Shares
from gq_proto.limits import LANE_WEIGHTS

NONE = [False] * 5


class Dumb:
    """One message after the other: the first lane that has one and may, else a new round."""

    def __init__(self, weights: tuple[int, ...]) -> None:
        self.weights, self.left = weights, list(weights)

    def split(self, have: list[int], room: int, more: list[bool]) -> list[int]:
        have, taken = list(have), [0] * len(have)
        while room:
            lane = next((n for n in range(len(have)) if have[n] and self.left[n]), None)
            if lane is None:
                if not any(have) or any(more[n] and not have[n] and self.left[n] for n in range(len(have))):
                    break
                self.left = list(self.weights)
                continue
            have[lane] -= 1
            self.left[lane] -= 1
            taken[lane] += 1
            room -= 1
        return taken


counts = st.lists(st.one_of(st.just(0), st.integers(0, 40), st.integers(0, 400)), min_size=3, max_size=3)


@given(st.lists(st.tuples(counts, st.integers(0, 500), st.lists(st.booleans(), min_size=3, max_size=3)), max_size=12),
       st.lists(st.integers(1, 50), min_size=3, max_size=3))
def test_split_against_one_at_a_time(polls: list[tuple[list[int], int, list[bool]]], weights: list[int]) -> None:
    shares, dumb = Shares(weights), Dumb(tuple(weights))
    for have, room, more in polls:
        assert shares.split(have, room, more) == dumb.split(have, room, more)
        assert shares.left == dumb.left


def test_the_shares_of_full_lanes() -> None:
    shares, total = Shares(LANE_WEIGHTS), Counter[int]()
    for room in [1, 7, 499, 500, 3, 40] * 10:
        for lane, n in enumerate(shares.split([10**6] * 5, room, NONE)):
            total[lane] += n
    assert [total[lane] / total.total() for lane in range(5)] == [weight / 100 for weight in LANE_WEIGHTS]


def test_lanes_that_have_nothing_leave_everything_to_the_others() -> None:
    shares = Shares(LANE_WEIGHTS)
    assert shares.split([0, 0, 0, 0, 10**6], 500, NONE) == [0, 0, 0, 0, 500]
    assert shares.split([0, 0, 0, 700, 300], 1_000, NONE) == [0, 0, 0, 700, 300]
    assert shares.split([0] * 5, 500, NONE) == [0] * 5


def test_what_comes_late_in_a_round_still_has_its_weight() -> None:
    shares = Shares(LANE_WEIGHTS)
    assert shares.split([0, 0, 0, 0, 100], 50, NONE) == [0, 0, 0, 0, 50]
    assert shares.split([60, 0, 0, 0, 100], 60, NONE) == [59, 0, 0, 0, 1]


def test_nobody_takes_the_place_of_a_lane_that_goes_on_out_of_sight() -> None:
    shares = Shares(LANE_WEIGHTS)
    assert shares.split([60, 1_000, 0, 0, 1_000], 500, [True, False, False, False, False]) == [60, 50, 0, 0, 6]
    assert shares.split([0, 1_000, 0, 0, 1_000], 500, [True, False, False, False, False]) == [0] * 5
    assert shares.split([40, 1_000, 0, 0, 1_000], 40, [True, False, False, False, False]) == [40, 0, 0, 0, 0]


def test_out_of_turn_is_of_its_own_weight() -> None:
    shares = Shares(LANE_WEIGHTS)
    assert shares.take(4, 500) == 3 and shares.left[4] == 0
    assert shares.take(4, 500) == 3 and shares.left[4] == 0
    assert shares.take(0, 20) == 20 and shares.left[0] == 30
    shares.give_back(0, 100)
    assert shares.left[0] == 50

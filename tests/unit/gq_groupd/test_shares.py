"""Weights, against a scheduler that hands out one message at a time."""

from collections import Counter
from operator import add, sub

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_groupd.shares import AHEAD_MAX, LARGE, Shares
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

# -- few lanes ---------------------------------------------------------------------------

arrivals = st.lists(st.one_of(st.just(0), st.integers(0, 40), st.integers(0, 2_000)), min_size=5, max_size=5)
rooms = st.one_of(st.integers(0, 40), st.integers(200, 1_000))


@given(st.lists(st.tuples(arrivals, rooms), max_size=30))
def test_a_filled_poll_is_as_large_as_the_rounds_and_no_lane_far_from_them(polls: list[tuple[list[int], int]]) -> None:
    shares, exact = Shares(LANE_WEIGHTS), Shares(LANE_WEIGHTS)
    have, others = [0] * 5, [0] * 5
    for came, room in polls:
        have, others = list(map(add, have, came)), list(map(add, others, came))
        taken, given = shares.fill(have, room, NONE), exact.split(others, room, NONE)
        assert sum(taken) == sum(given) == min(room, sum(have))
        assert all(0 <= some <= there for some, there in zip(taken, have))
        have, others = list(map(sub, have, taken)), list(map(sub, others, given))
        assert all(abs(one - other) <= AHEAD_MAX for one, other in zip(have, others))
        assert shares.left == exact.left


@given(st.lists(st.tuples(arrivals, st.integers(0, LARGE - 1)), max_size=20))
def test_small_polls_are_the_rounds_to_the_message(polls: list[tuple[list[int], int]]) -> None:
    shares, exact = Shares(LANE_WEIGHTS), Shares(LANE_WEIGHTS)
    for have, room in polls:
        assert shares.fill(have, room, NONE) == exact.split(have, room, NONE)


@given(st.lists(st.tuples(arrivals, arrivals, rooms, st.lists(st.booleans(), min_size=5, max_size=5)), max_size=30))
def test_messages_that_vanish_are_owed_to_nobody(polls: list[tuple[list[int], list[int], int, list[bool]]]) -> None:
    shares, have = Shares(LANE_WEIGHTS), [0] * 5
    for came, gone, room, more in polls:
        have = [max(0, there - lost) + some for there, lost, some in zip(have, gone, came)]
        taken = shares.fill(have, room, more)
        assert all(0 <= some <= there for some, there in zip(taken, have))
        assert sum(taken) <= room and (any(more) or sum(taken) == min(room, sum(have)))
        assert all(abs(owed) <= AHEAD_MAX for owed in shares.owed)
        have = list(map(sub, have, taken))


def test_small_polls_give_back_what_large_ones_took_in_advance() -> None:
    shares = Shares(LANE_WEIGHTS)
    for _ in range(10):
        shares.fill([10**6] * 5, 500, NONE)
    before = list(shares.owed)
    assert any(before)
    got = [shares.fill([10**6] * 5, 100, NONE) for _ in range(26)]
    assert shares.owed == [0] * 5
    assert [sum(lane) for lane in zip(*got)] == [26 * weight + owed for weight, owed in zip(LANE_WEIGHTS, before)]


@pytest.mark.parametrize("room", [10, 100, 200, 255, 256, 500])
def test_what_was_put_off_does_not_wait_once_it_is_all_there_is(room: int) -> None:
    shares = Shares(LANE_WEIGHTS)
    while shares.owed[0] < AHEAD_MAX // 2:
        shares.fill([10**6] * 5, 500, NONE)
    left = shares.owed[0]
    while left:
        taken = shares.fill([left, *[10**6] * 4], room, NONE)
        assert taken[0] == min(left, room)
        left -= taken[0]


def test_the_last_messages_of_a_low_lane_that_were_put_off_come_first_in_a_small_poll() -> None:
    shares = Shares(LANE_WEIGHTS)
    shares.owed = [0, 0, 0, -40, 40]
    assert shares.fill([10**6] * 4 + [40], 100, NONE)[4] == 40


def test_what_others_had_in_advance_of_messages_that_vanished_keeps_nobody_waiting() -> None:
    shares = Shares(LANE_WEIGHTS)
    shares.owed = [0, 75, -75, 70, -70]
    assert shares.fill([0, 0, 0, 0, 864], 10, NONE) == [0, 0, 0, 0, 10]


def test_full_lanes_fill_a_poll_two_or_three_at_a_time() -> None:
    shares, total, lanes = Shares(LANE_WEIGHTS), [0] * 5, 0
    for _ in range(20):
        taken = shares.fill([10**6] * 5, 500, NONE)
        total, lanes = list(map(add, total, taken)), lanes + sum(map(bool, taken))
        assert taken[0] and sum(taken) == 500
    assert lanes < 20 * 3
    assert all(abs(some - weight * 100) <= AHEAD_MAX for some, weight in zip(total, LANE_WEIGHTS))


def test_a_lane_that_has_no_more_than_its_due_is_not_put_off() -> None:
    shares = Shares(LANE_WEIGHTS)
    for few in (1, 15, 3):
        taken = shares.fill([0, 10**6, 10**6, 10**6, few], 500, NONE)
        assert taken[4] == few
    for _ in range(5):
        taken = shares.fill([10**6, 0, 0, 0, 10**6], 500, NONE)
    assert shares.fill([2, 0, 0, 0, 10**6], 500, NONE) == [2, 0, 0, 0, 498]

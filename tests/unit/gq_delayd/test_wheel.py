"""The wheel against a sorted list: whatever is added whenever, and however the clock moves, the same comes due at the same tick."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from gq_delayd.wheel import FEW, REACH, SHIFTS, STEP_US, TICK_US, Wheel, pairs, tick_of
from gq_proto.limits import DELAY_MS_MAX

BASE = 170_000_000_000          # a tick of today


class Dumb:
    """The same as one sorted list of (tick, part, offset, due)."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []

    def add(self, part: int, flat: list[int]) -> None:
        self.rows = sorted([*self.rows, *((tick_of(due), part, offset, due) for offset, due in pairs(flat))])

    def advance(self, tick: int) -> set[tuple[int, int, int]]:
        due = {row[1:] for row in self.rows if row[0] <= tick}
        self.rows = [row for row in self.rows if row[0] > tick]
        return due


def came(wheel: Wheel, tick: int) -> set[tuple[int, int, int]]:
    found = wheel.advance(tick)
    assert [when for when, _, _ in found] == sorted(when for when, _, _ in found)
    return {(part, offset, due) for _, part, entries in found for offset, due in pairs(entries)}


DELAYS = st.one_of(st.integers(-5_000, 3_000), st.integers(0, 2**15), st.integers(0, 2**20), st.integers(0, DELAY_MS_MAX // 10))
MOVES = st.one_of(st.integers(-400_000, -1), st.integers(0, 3), st.integers(0, 300), st.integers(0, 2**15), st.integers(0, 2**22))
STEPS = st.lists(st.one_of(
    st.tuples(st.just("add"), st.integers(0, 2), st.lists(DELAYS, min_size=1, max_size=20)),
    st.tuples(st.just("move"), MOVES, st.just([])),
    st.tuples(st.just("prepare"), st.integers(1, 30), st.just([])),
    st.tuples(st.just("drop"), st.integers(0, 2), st.just([])),
), max_size=25)


@settings(max_examples=150)
@given(STEPS, st.integers(0, TICK_US - 1))
def test_the_wheel_does_what_a_sorted_list_does(steps: list[tuple[str, int, list[int]]], within: int) -> None:
    wheel, dumb, tick, offset = Wheel(BASE), Dumb(), BASE, 0
    for what, number, delays in steps:
        if what == "add":
            flat = [n for i, delay in enumerate(delays) for n in (offset + i, (tick + delay) * TICK_US - within)]
            offset += len(delays)
            wheel.add(number, flat)
            dumb.add(number, flat)
        elif what == "move":
            tick += number
            assert came(wheel, tick) == dumb.advance(tick)
        elif what == "prepare":
            wheel.prepare(number)
        else:
            wheel.drop(number)
            dumb.rows = [row for row in dumb.rows if row[1] != number]
        first = wheel.next_tick()
        assert (first is None) == (not dumb.rows)
        assert first is None or first <= max(dumb.rows[0][0], wheel.now), "never sleeps past what is due"
        assert [wheel.size(part) for part in range(3)] == [sum(row[1] == part for row in dumb.rows) for part in range(3)]
    assert came(wheel, 2**60) == dumb.advance(2**60) and not wheel


@pytest.mark.parametrize("due_us", [0, 1, TICK_US - 1, TICK_US, TICK_US + 1])
def test_a_message_is_due_at_the_first_tick_at_or_after_its_time(due_us: int) -> None:
    wheel = Wheel(BASE)
    due = (BASE + 5) * TICK_US + due_us
    wheel.add(1, [0, due])
    for tick in range(BASE, BASE + 10):
        if came(wheel, tick):
            assert tick * TICK_US >= due > (tick - 1) * TICK_US
            return
    raise AssertionError("never")


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40_000)), max_size=2 * FEW),
       st.lists(st.integers(1, 7_000), max_size=20))
def test_few_messages_come_in_steps_and_never_before_their_time(messages: list[tuple[int, int]], moves: list[int]) -> None:
    start = wall_us = BASE * TICK_US
    wheel, waiting = Wheel(BASE), {(part, offset, start + delay) for offset, (part, delay) in enumerate(messages)}
    for part, offset, due in waiting:
        wheel.add(part, [offset, due])
    for move in [0, *moves]:
        wall_us += move
        found = came(wheel, wall_us // TICK_US)
        step = wheel.next_step(wall_us // TICK_US + 1)
        early = {(part, offset, due) for _, part, entries in wheel.early(wall_us) for offset, due in pairs(entries)}
        assert bool(early) <= (step <= wall_us) and all(due <= wall_us for _, _, due in found | early)
        assert found.isdisjoint(early) and found | early <= waiting
        waiting -= found | early
        slot = [due for _, _, due in waiting if tick_of(due) == wall_us // TICK_US + 1]
        assert len(slot) > FEW or all(due > wall_us or -(-min(slot) // STEP_US) * STEP_US > wall_us for due in slot)
        assert [wheel.size(part) for part in range(3)] == [sum(row[0] == part for row in waiting) for part in range(3)]
    assert came(wheel, 2**60) == waiting and not wheel


def test_the_levels_are_those_of_the_design_and_hold_the_longest_delay() -> None:
    spans = [10 << shift for shift in SHIFTS]
    assert spans == [10, 2_560, 163_840, 10_485_760]
    assert [span * slots for span, slots in zip(spans, REACH)] == [2_560, 163_840, 10_485_760, DELAY_MS_MAX]
    wheel = Wheel(BASE)
    wheel.add(1, [1, (BASE + DELAY_MS_MAX // 10) * TICK_US])
    assert not came(wheel, BASE + DELAY_MS_MAX // 10 - 1)
    assert came(wheel, BASE + DELAY_MS_MAX // 10)


def test_a_large_slot_is_split_before_its_time_bit_by_bit() -> None:
    wheel, start = Wheel(BASE), ((BASE >> 14) + 2) << 14
    wheel.add(1, [n for i in range(5000) for n in (i, (start + i * 3) * TICK_US)])
    while wheel.prepare(100):
        pass
    wheel.now = start - 1_000
    turns = 0
    while wheel.prepare(100):
        turns += 1
    assert turns >= 40 and all(place.level < 2 for place in wheel.places([1]))
    assert len(came(wheel, start + 15_000)) == 5000


def test_what_does_not_count_any_more_is_swept_out() -> None:
    wheel = Wheel(BASE)
    wheel.add(1, [n for i in range(1000) for n in (i, (BASE + 7 * i) * TICK_US)])
    wheel.add(2, [5, (BASE + 1) * TICK_US])
    wheel.sweep(1, BitMap64(range(0, 1000, 10)))
    assert (wheel.size(1), wheel.size(2)) == (100, 1)
    assert {offset for part, offset, _ in came(wheel, BASE + 10_000) if part == 1} == set(range(0, 1000, 10))


def test_a_message_costs_sixteen_bytes() -> None:
    wheel = Wheel(BASE)
    wheel.add(1, [n for i in range(100_000) for n in (i, (BASE + i % 200_000) * TICK_US)])
    held = sum(entries.buffer_info()[1] * entries.itemsize for entries in wheel.all_of(1))
    assert held == 1_600_000 and all(isinstance(entries, array) for entries in wheel.all_of(1))

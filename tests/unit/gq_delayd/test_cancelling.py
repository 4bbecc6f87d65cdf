"""Cancelling: what is answered is what the log says."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from gq_delayd.cancelling import fates
from gq_delayd.effects import AskMarker
from gq_delayd.part import Part
from gq_proto import messages as m
from gq_proto import ranges as rng
from gq_proto.control import ControlType
from gq_proto.errors import BadRequest, DiskFull, NotCoordinator, TimedOut, Unavailable
from gq_proto.limits import DELAYED_RANGES_MAX
from gq_proto.messages import Fate, Kind
from tests.unit.gq_delayd.rig import MS, Play

SECOND = 1_000 * MS


def test_a_cancelled_message_is_never_ready() -> None:
    play = Play()
    play.log.publish(play.wall_us + 100 * MS, 6)
    play.run(0.01)
    assert play.cancel(1, 2, 4, 1) == [1, 2, Fate.CANCELLED, 4, 1, Fate.CANCELLED]
    assert [offset for offset, _ in play.listed()] == [0, 3, 5] and play.stats().cancelled == 3
    play.run(0.5)
    assert play.fired() == [0, 3, 5] and play.log.cancelled == {1, 2, 4}


def test_every_fate_is_told() -> None:
    play = Play()
    play.log.publish(play.wall_us + 20 * MS, 2)
    play.log.publish(times=2)
    play.log.publish(play.wall_us + 9 * SECOND, 4)
    play.run(0.1)
    assert play.cancel(4, 1) == [4, 1, Fate.CANCELLED]
    assert play.cancel(0, 2, 2, 5, 7, 100) == [0, 2, Fate.DELIVERED, 2, 2, Fate.NONE, 4, 1, Fate.ALREADY_CANCELLED,
                                               5, 2, Fate.CANCELLED, 7, 1, Fate.CANCELLED, 8, 99, Fate.NONE]


def test_enormous_ranges_cost_nothing() -> None:
    play = Play()
    play.log.publish(play.wall_us + 9 * SECOND, 2)
    play.run(0.1)
    assert play.cancel(0, 2**62) == [0, 2, Fate.CANCELLED, 2, 2**62 - 2, Fate.NONE]


def test_a_large_cancel_is_several_records() -> None:
    play = Play()
    play.log.publish(play.wall_us + 9 * SECOND, 20_000)
    play.run(0.1)
    assert play.cancel(0, 20_000) == [n for low in (0, 8_192, 16_384) for n in (low, min(8_192, 20_000 - low), Fate.CANCELLED)] or \
        play.cancel(0, 20_000) == [0, 20_000, Fate.ALREADY_CANCELLED]
    assert len([ask for ask in play.markers if ask.type == ControlType.DELAY_CANCELLED]) == 3


def test_what_is_asked_for_wrongly_is_refused() -> None:
    play = Play()
    play.run(0.01)
    for ranges in ([], [1], [5, 0], [5, 2, 6, 1], [0, 2**63], [n for i in range(DELAYED_RANGES_MAX + 1) for n in (2 * i, 1)]):
        with pytest.raises(BadRequest):
            play.call(Kind.CANCEL_DELAYED, m.CancelDelayed(ranges))
    with pytest.raises(NotCoordinator):
        play.call(Kind.CANCEL_DELAYED, m.CancelDelayed([0, 1]), partition=5)
    with pytest.raises(NotCoordinator):
        play.call(Kind.CANCEL_DELAYED, m.CancelDelayed([0, 1]), partition=-1)


@pytest.mark.parametrize("seed", range(30))
def test_racing_with_firing_exactly_one_of_both_is_true(seed: int) -> None:
    chance = random.Random(seed)
    play = Play()
    play.slow_s = chance.choice([0.0002, 0.003, 0.02])
    play.log.publish(play.wall_us + 50 * MS, 20)
    calls = []
    for offset in range(20):
        play.later(lambda offset=offset: calls.append(  # type: ignore[misc]
            play.call(Kind.CANCEL_DELAYED, m.CancelDelayed([offset, 1]))), chance.uniform(0.03, 0.09))
    play.run(1.0)
    told = {call.reply.fates[0]: call.reply.fates[2] for call in calls}
    assert told == {offset: Fate.CANCELLED if offset in play.log.cancelled else Fate.DELIVERED for offset in range(20)}
    assert play.log.cancelled.isdisjoint(play.fired()) and len(play.fired()) + len(play.log.cancelled) == 20
    play.check()


def test_who_comes_second_is_told_so() -> None:
    play = Play()
    play.log.publish(play.wall_us + 9 * SECOND, 1)
    play.run(0.1)
    calls = [play.call(Kind.CANCEL_DELAYED, m.CancelDelayed([0, 1])) for _ in range(2)]
    play.run(0.1)
    assert [call.reply.fates for call in calls] == [[0, 1, Fate.CANCELLED], [0, 1, Fate.ALREADY_CANCELLED]]


@pytest.mark.parametrize("error", [DiskFull("full"), TimedOut("late")])
def test_a_refusal_is_passed_on_and_nothing_is_cancelled(error: Exception) -> None:
    play = Play()
    play.log.publish(play.wall_us + 100 * MS)
    play.run(0.01)
    play.refuse = lambda ask: error if isinstance(ask, AskMarker) and ask.type == 4 else None  # type: ignore[assignment,return-value]
    with pytest.raises(type(error)):
        play.cancel(0, 1)
    play.run(0.5)
    assert play.fired() == [0]


def test_an_answer_that_was_lost_is_told_when_asked_again() -> None:
    play = Play()
    play.log.publish(play.wall_us + 9 * SECOND)
    play.run(0.01)

    def refuse(ask: object) -> TimedOut | None:
        if isinstance(ask, AskMarker):
            play.log.mark(ask.type, ask.ranges, play.wall_us)
            play.refuse = lambda ask: None
            return TimedOut("no answer")
        return None
    play.refuse = refuse  # type: ignore[assignment]
    with pytest.raises(TimedOut):
        play.cancel(0, 1)
    assert play.cancel(0, 1) == [0, 1, Fate.ALREADY_CANCELLED]


def test_a_partition_that_moves_meanwhile_answers_to_ask_again() -> None:
    play = Play()
    play.log.publish(play.wall_us + 9 * SECOND)
    play.run(0.01)
    call = play.call(Kind.CANCEL_DELAYED, m.CancelDelayed([0, 1]))
    play._at().own({})
    play.run(0.1)
    assert isinstance(call.error, Unavailable)


OFFSETS = st.sets(st.integers(0, 60))


@given(OFFSETS, OFFSETS, OFFSETS, st.lists(st.tuples(st.integers(0, 9), st.integers(1, 15)), min_size=1, max_size=6))
def test_fates_cover_exactly_what_was_asked(ready: set[int], cancelled: set[int], taken: set[int],
                                            gaps: list[tuple[int, int]]) -> None:
    part = Part(1, "t", 0)
    part.ready, part.cancelled = BitMap64(ready), BitMap64((cancelled | taken) - ready)
    asked, at = [], 0
    for gap, count in gaps:
        asked += [at + gap, count]
        at += gap + count
    found = fates(part, asked, BitMap64(taken - ready))
    told = {offset: fate for low, count, fate in zip(found[::3], found[1::3], found[2::3]) for offset in range(low, low + count)}

    def fate(offset: int) -> Fate:
        if offset in ready:
            return Fate.DELIVERED
        if offset in taken:
            return Fate.CANCELLED
        return Fate.ALREADY_CANCELLED if offset in cancelled else Fate.NONE
    assert told == {offset: fate(offset) for low, end in rng.pairs(asked) for offset in range(low, end)}
    assert sum(found[1::3]) == len(told) and found[::3] == sorted(found[::3])

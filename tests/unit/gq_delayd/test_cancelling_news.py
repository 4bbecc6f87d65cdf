"""Cancelling what was published a moment ago: the log has it, delayd has not met it yet."""

import random
from typing import Any

import pytest

from gq_delayd.effects import AskDue, AskMarker
from gq_proto import messages as m
from gq_proto.errors import Unavailable
from gq_proto.messages import Fate, Kind
from tests.unit.gq_delayd.rig import MS, Call, Log, Play

HOUR = 3_600_000 * MS


def cancel(play: Play, *ranges: int, patience_s: float = 5.0) -> Call:
    return play.call(Kind.CANCEL_DELAYED, m.CancelDelayed(list(ranges)), patience_s=patience_s)


def test_what_the_log_has_is_cancelled_although_delayd_has_not_met_it() -> None:
    play = Play()
    play.run(0.1)
    play.log.publish(play.wall_us + HOUR, 3)
    call = cancel(play, 1, 1)
    play.run(0.1)
    assert call.reply.fates == [1, 1, Fate.CANCELLED] and play.log.cancelled == {1}


def test_an_answer_that_was_on_its_way_is_not_believed() -> None:
    """The log was read a moment before the message came."""
    play = Play()
    play.run(0.1)
    play.log.publish()
    first = cancel(play, 0, 1)
    [held] = [effect for effect in play._at().turn() if isinstance(effect, AskDue)]
    answer = play.log.due(held.offset, held.limit)
    play.log.publish(play.wall_us + HOUR)
    second = cancel(play, 1, 1)
    play._at().answer(held, answer, None)
    play.run(0.1)
    assert (first.reply.fates, second.reply.fates) == ([0, 1, Fate.NONE], [1, 1, Fate.CANCELLED])


def test_what_the_log_has_not_is_nothing_and_costs_one_look() -> None:
    play = Play()
    play.log.publish(play.wall_us + HOUR)
    play.run(0.1)
    asked: list[Any] = []
    play.refuse = asked.append      # type: ignore[assignment]
    call = cancel(play, 0, 1, 50, 7)
    play.run(0.1)
    assert call.reply.fates == [0, 1, Fate.CANCELLED, 50, 7, Fate.NONE]
    assert [type(ask) for ask in asked] == [AskDue, AskMarker]


def test_a_log_that_does_not_answer_is_asked_again_and_who_gives_up_is_forgotten() -> None:
    play = Play()
    play.run(0.1)
    play.refuse = lambda ask: Unavailable("not now") if isinstance(ask, AskDue) else None
    play.log.publish(play.wall_us + HOUR, 2)
    patient, short = cancel(play, 0, 1), cancel(play, 1, 1, patience_s=0.1)
    play.run(1.0)
    assert patient.reply is None and short.reply is None
    play.refuse = lambda ask: None
    play.run(1.0)
    assert patient.reply.fates == [0, 1, Fate.CANCELLED] and short.reply is short.error is None


def test_a_partition_that_moves_meanwhile_answers_to_ask_again() -> None:
    play = Play()
    play.run(0.1)
    call = cancel(play, 5, 1)
    play._at().own({})
    play.run(0.1)
    assert isinstance(call.error, Unavailable)


def test_a_log_that_lost_something_meanwhile_answers_to_ask_again() -> None:
    """What is known of it begins anew: nothing can be said before it is read."""
    play = Play()
    play.log.publish(play.wall_us + HOUR, 3)
    play.run(0.1)
    play.refuse = lambda ask: Unavailable("not now") if isinstance(ask, AskDue) else None
    call = cancel(play, 5, 1)
    play.log.lose(1)
    play.log.lead()
    play.run(1.0)
    assert isinstance(call.error, Unavailable) and call.reply is None


def test_a_page_knows_what_was_published_before_it_was_asked_for() -> None:
    first, second = Log(0), Log(1)
    play = Play(first, second)
    play.run(0.1)
    for _ in range(20):
        second.publish(play.wall_us + HOUR)
        first.publish(play.wall_us + HOUR)
        page = play.call(Kind.LIST_DELAYED, m.ListDelayed([], 1000), partition=-1)
        play.run(0.1)
        assert len(page.reply.delayed) == 3 * (first.end + second.end)


@pytest.mark.parametrize("seed", range(20))
def test_each_message_can_be_cancelled_from_when_it_is_there(seed: int) -> None:
    chance = random.Random(seed)
    play = Play()
    play.slow_s = chance.choice([0.0002, 0.003, 0.02])
    play.run(0.1)
    calls: dict[int, Call] = {}

    def publish() -> None:
        offset = play.log.publish(play.wall_us + HOUR)
        calls[offset] = cancel(play, offset, 1)

    for _ in range(30):
        play.later(publish, chance.uniform(0.0, 0.1))
    play.run(2.0)
    assert len(calls) == 30
    assert {offset: call.reply.fates for offset, call in calls.items()} == {offset: [offset, 1, Fate.CANCELLED] for offset in calls}
    assert play.log.cancelled == set(calls)

"""Pages in due order, against sorting everything."""

import random

import pytest

from gq_delayd.effects import AskMarker
from gq_proto import messages as m
from gq_proto.errors import BadRequest, DiskFull, NotCoordinator
from gq_proto.messages import Kind
from tests.unit.gq_delayd.rig import MS, TOPIC, Log, Play

SECOND = 1_000 * MS
DAY = 86_400 * SECOND


def pages(play: Play, partition: int, limit: int) -> list[tuple[int, int, int]]:
    """(due, partition, offset) of all."""
    found: list[tuple[int, int, int]] = []
    while True:
        page = play.ask(Kind.LIST_DELAYED, m.ListDelayed(list(found[-1]) if found else [], limit), partition)
        found += [(due, number, offset) for number, offset, due in zip(*[iter(page.delayed)] * 3)]
        assert len(page.delayed) <= 3 * limit and (not page.more or len(page.delayed) == 3 * limit)
        if not page.more:
            return found


@pytest.mark.parametrize("seed", range(6))
def test_all_pages_together_are_everything_in_order(seed: int) -> None:
    chance = random.Random(seed)
    play = Play(Log(0), Log(1), Log(2))
    expected = []
    for number in range(3):
        for _ in range(150):
            due = play.wall_us + chance.choice([SECOND, 60 * SECOND, 3600 * SECOND, DAY, 7 * DAY]) + chance.randrange(200) * MS
            expected.append((due, number, play.logs[TOPIC, number].publish(due)))
    play.run(0.2)
    assert pages(play, -1, 20) == sorted(expected)
    assert pages(play, 1, 7) == sorted(row for row in expected if row[1] == 1)
    assert pages(play, 2, 10_000) == sorted(row for row in expected if row[1] == 2)
    taken = chance.sample(expected, 60)
    for _, number, offset in taken:
        play.ask(Kind.CANCEL_DELAYED, m.CancelDelayed([offset, 1]), number)
    assert pages(play, -1, 33) == sorted(set(expected) - set(taken))


def test_a_large_slot_is_split_over_several_turns_and_nothing_is_missed() -> None:
    play = Play()
    chance = random.Random(1)
    dues = [play.wall_us + 3 * DAY + chance.randrange(3600) * SECOND for _ in range(40_000)]
    play.log.records = [(play.log.records or [(18, 0)])[0][:1] + (due,) for due in dues]
    play.run(0.5)
    call = play.call(Kind.LIST_DELAYED, m.ListDelayed([], 100))
    assert call.reply is None, "not at once"
    turns = 0
    while call.reply is None:
        play.now += 0.0001
        play.step()
        turns += 1
    assert turns >= 5
    assert pages(play, 0, 5_000) == sorted((due, 0, offset) for offset, due in enumerate(dues))


def test_what_is_overdue_is_still_listed_and_can_be_cancelled() -> None:
    play = Play()
    play.log.publish(play.wall_us + 20 * MS, 3)
    play.refuse = lambda ask: DiskFull("full") if isinstance(ask, AskMarker) and ask.type == 3 else None
    play.run(0.5)
    assert len(play.listed()) == 3 and play.stats().overdue == 3
    assert play.cancel(1, 1) == [1, 1, m.Fate.CANCELLED]
    play.refuse = lambda ask: None
    play.run(2.0)
    assert play.fired() == [0, 2] and play.listed() == []


def test_statistics() -> None:
    play = Play(Log(0), Log(1))
    play.logs[TOPIC, 0].publish(play.wall_us + 20 * MS, 4)
    due = play.wall_us + 60 * SECOND
    play.logs[TOPIC, 0].publish(due + 5)
    play.logs[TOPIC, 0].publish(due, 2)
    play.run(0.2)
    stats = play.stats()
    assert (stats.topic, stats.scheduled, stats.overdue, stats.ready, stats.next_due_us) == ("t", 3, 0, 4, due)
    assert 0 <= stats.lateness_p50_us <= stats.lateness_p99_us < 20 * MS and not stats.loading
    play.cancel(5, 2)
    assert play.stats().next_due_us == due + 5
    every = play.ask(Kind.DELAY_STATS, m.DelayStats(), -1).partitions
    assert [part.partition for part in every] == [0, 1] and every[1].next_due_us == every[1].lateness_p50_us == -1


def test_what_makes_no_sense_is_refused() -> None:
    play = Play()
    play.run(0.01)
    with pytest.raises(BadRequest):
        play.call(Kind.LIST_DELAYED, m.ListDelayed([1, 2]))
    with pytest.raises(NotCoordinator):
        play.call(Kind.LIST_DELAYED, m.ListDelayed(), 4)
    assert play.ask(Kind.LIST_DELAYED, m.ListDelayed([], -5)).delayed == []

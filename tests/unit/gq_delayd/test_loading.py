"""Learning the log: from nothing, from the index, over epochs and losses; and what is believed of it."""

import pytest

from gq_delayd import index
from gq_delayd.effects import AskDue
from gq_delayd.part import Part
from gq_delayd.settings import Settings
from gq_proto import messages as m
from gq_proto.errors import DiskFull, GoQueueError, NotCoordinator, PartitionOffline, UnknownTopicId
from gq_proto.messages import Kind
from tests.unit.gq_delayd.rig import MS, TOPIC, Log, Play

SECOND = 1_000 * MS


def restarted(play: Play) -> list[AskDue]:
    """The daemon begins anew; what it asks of the log."""
    asked: list[AskDue] = []

    def note(ask: object) -> None:
        if isinstance(ask, AskDue):
            asked.append(ask)
    play.refuse = note  # type: ignore[assignment]
    play.start()
    play.run(0.05)
    return asked


def mixed(play: Play) -> None:
    """Some fired, some cancelled, some waiting, with other messages between."""
    for number in range(30):
        play.log.publish(play.wall_us + (20 if number < 10 else 5_000 + number) * MS)
        play.log.publish()
    play.run(0.2)
    play.cancel(40, 10)
    play.run(2.0)


def waiting(play: Play) -> list[int]:
    return [offset for offset, _ in play.listed()]


def test_an_empty_partition_is_ready_at_once() -> None:
    play = Play()
    play.run(0.01)
    assert play.core.unread() == [] and play.listed() == []


def test_without_an_index_everything_is_learnt_from_the_log() -> None:
    play = Play()
    mixed(play)
    expected = play.listed()
    play.files.clear()
    asked = restarted(play)
    assert asked[0].offset == 0 and play.listed() == expected
    assert len(expected) == 15


def test_with_an_index_only_what_is_new_is_asked_for() -> None:
    play = Play()
    mixed(play)
    end = play.log.end
    play.log.publish(play.wall_us + 9 * SECOND)
    asked = restarted(play)
    assert asked[0].offset == end
    assert waiting(play) == [n for n in range(20, 60, 2) if not 40 <= n < 50] + [end]
    assert play.cancel(0, 1, 22, 1, 40, 1) == [0, 1, m.Fate.DELIVERED, 22, 1, m.Fate.CANCELLED, 40, 1, m.Fate.ALREADY_CANCELLED]


@pytest.mark.parametrize("damage", ["gone", "empty", "header", "first block", "last block", "cut", "more"])
def test_a_damaged_index_is_made_good_from_the_log(damage: str) -> None:
    play = Play()
    mixed(play)
    expected, raw = play.listed(), play.files[TOPIC, 0]
    if damage == "gone":
        play.files.clear()
    elif damage in ("header", "first block", "last block"):
        raw[{"header": 3, "first block": 30, "last block": len(raw) - 3}[damage]] ^= 0x10
    elif damage == "more":
        raw += bytes(100)
    else:
        del raw[{"empty": 0, "cut": len(raw) - 7}[damage] :]
    play.start()
    play.run(0.05)
    assert play.listed() == expected
    play.run(6.0)
    assert sorted(play.fired()) == sorted([*range(0, 20, 2), *(offset for offset, _ in expected)])
    play.check()
    restarted(play)
    assert play.listed() == [], "and the file goes on where it is right"


def test_many_pages() -> None:
    play = Play(settings=Settings(due_page=7))
    for number in range(100):
        play.log.publish(play.wall_us + SECOND + number * MS)
    asked = restarted(play)
    assert len(asked) >= 100 // 7 and len(play.listed()) == 100


def test_no_index_is_written_where_none_is_wanted() -> None:
    play = Play(settings=Settings(index_interval_s=0))
    mixed(play)
    assert not play.files and play.writes == 0
    restarted(play)
    assert len(play.listed()) == 15


@pytest.mark.parametrize("error", [PartitionOffline("a bad disk"), DiskFull("cannot be made yet")])
def test_a_log_that_cannot_be_read_keeps_nobody_waiting(error: GoQueueError) -> None:
    play = Play(Log(0), Log(1))
    play.refuse = lambda ask: error if ask.key == (TOPIC, 1) else None
    play.start()
    play.run(1.0)
    assert play.core.unread() == [] and [part.serving for part in play.core.parts()] == [True, False]
    play.refuse = lambda ask: None
    play.run(1.0)
    assert all(part.serving for part in play.core.parts())


def test_nothing_is_ready_before_the_whole_log_is_read() -> None:
    play = Play(settings=Settings(due_page=5))
    for _ in range(40):
        play.log.publish(play.wall_us + 10 * MS)
    play.run(0.1)
    play.files.clear()
    play.now += 1
    play.slow_s = 0.01
    before = len(play.markers)
    play.start()
    while play.core.unread():
        assert len(play.markers) == before
        with pytest.raises(NotCoordinator):
            play.call(Kind.LIST_DELAYED, m.ListDelayed())
        assert play.stats().loading
        play.run(0.001)
    play.run(0.1)
    assert len(play.markers) == before, "all of it was decided"


# -- epochs --------------------------------------------------------------------------------------

def test_a_new_epoch_that_lost_nothing_changes_nothing() -> None:
    play = Play()
    mixed(play)
    expected = play.listed()
    play.log.lead()
    play.run(0.1)
    assert play.listed() == expected
    play.run(6.0)
    assert len(play.fired()) == 25 and play.markers[-1].epoch == 2
    play.check()


def test_messages_that_a_power_loss_took_are_forgotten_and_new_ones_at_their_offsets_have_their_own_time() -> None:
    play = Play()
    play.log.publish(play.wall_us + SECOND, 10)
    play.run(0.5)
    play.log.lose(5)
    play.log.lead()
    play.log.publish(play.wall_us + 5 * SECOND, 5)
    play.run(1.0)
    assert play.fired() == [0, 1, 2, 3, 4] and len(play.listed()) == 5
    play.run(5.0)
    assert len(play.fired()) == 10
    play.check()


def test_a_ready_record_that_a_power_loss_took_is_written_again() -> None:
    play = Play()
    play.log.publish(play.wall_us + 50 * MS, 3)
    play.log.publish(play.wall_us + 5 * SECOND)
    play.run(0.2)
    assert play.fired() == [0, 1, 2]
    play.log.lose(4)
    play.log.lead()
    play.run(0.5)
    assert play.fired() == [0, 1, 2] and waiting(play) == [3]


def test_a_ready_record_that_was_confirmed_and_lost_before_it_was_met_is_written_again() -> None:
    play = Play()
    play.log.publish(play.wall_us + 50 * MS, 3)
    play.run(0.04)
    known = play.log.end
    play.known.clear()                           # nothing is heard of the log
    play.run(0.1)
    assert play.fired() == [0, 1, 2] and play.stats().scheduled == 0
    play.log.lose(known)
    play.log.lead()
    play.known[TOPIC, 0] = (0, -1, -1)
    play.run(0.5)
    assert play.fired() == [0, 1, 2] and play.stats().scheduled == 0


def test_an_index_that_says_more_than_the_log_has_counts_up_to_there() -> None:
    play = Play()
    play.log.publish(play.wall_us + 9 * SECOND, 5)
    play.run(1.5)
    end = play.log.end
    play.log.publish(play.wall_us + 9 * SECOND, 5)
    play.run(1.5)
    assert len(index.blocks(bytes(play.files[TOPIC, 0]), TOPIC, 0)) == 2
    play.log.lose(7)
    play.log.lead()
    play.log.publish(play.wall_us + 20 * SECOND, 5)
    asked = restarted(play)
    assert asked[0].offset == end and len(play.listed()) == 12
    play.run(10.0)
    assert play.fired() == list(range(7))
    play.check()


def test_news_of_an_older_epoch_are_not_believed() -> None:
    play = Play()
    play.log.publish(play.wall_us + SECOND)
    play.log.lead()
    play.run(0.1)
    play._at().watched(m.Watched(TOPIC, 0, 1, 0, 500))
    play.run(0.1)
    part = next(iter(play.core.parts()))
    assert part.epoch == 2 and part.end == part.known == 1


# -- what else happens to a log ----------------------------------------------------------------------

def test_what_retention_takes_before_its_time_has_expired() -> None:
    play = Play()
    play.log.publish(play.wall_us + 5 * SECOND, 10)
    play.run(0.1)
    play.log.start = 4
    play.run(0.1)
    assert (play.stats().expired, play.stats().scheduled) == (4, 6) and waiting(play) == list(range(4, 10))
    assert play.cancel(0, 4) == [0, 4, m.Fate.NONE]
    play.run(6.0)
    assert play.fired() == list(range(4, 10))
    restarted(play)
    assert play.listed() == []


def test_a_log_start_that_moved_while_it_was_read_counts_too() -> None:
    play = Play()
    play.log.publish(play.wall_us + 60 * SECOND, 10)
    play.run(2.0)
    play.log.start = 4
    restarted(play)
    assert waiting(play) == list(range(4, 10))


def test_a_partition_that_moved_away_is_forgotten_and_a_deleted_topics_index_removed() -> None:
    play = Play(Log(0), Log(1))
    for log in play.logs.values():
        log.publish(play.wall_us + SECOND, 3)
    play.run(0.5)
    play._at().own({(TOPIC, 1): "t"})
    play.run(2.0)
    assert play.fired(play.logs[TOPIC, 0]) == [] and play.fired(play.logs[TOPIC, 1]) == [0, 1, 2]
    with pytest.raises(NotCoordinator):
        play.call(Kind.LIST_DELAYED, m.ListDelayed(), 0)
    play._at().own({}, frozenset({"t"}))
    play.step()
    assert not play.files and list(play.core.parts()) == []


def test_a_topic_made_anew_is_another_one() -> None:
    play = Play()
    play.log.publish(play.wall_us + SECOND, 3)
    play.run(0.5)
    play._at().own({(8, 0): "t"}, frozenset({"t"}))
    play.logs = {(8, 0): Log()}
    play.known = {}
    play.run(2.0)
    assert play.fired() == [] and [part.key for part in play.core.parts()] == [(8, 0)]


def test_errors_are_waited_out() -> None:
    play = Play()
    play.log.publish(play.wall_us + 100 * MS, 3)
    asked = []

    def refuse(ask: object) -> UnknownTopicId | None:
        asked.append(ask)
        return UnknownTopicId("not yet") if len(asked) < 4 else None
    play.refuse = refuse  # type: ignore[assignment]
    play.start()
    play.run(3.0)
    assert play.fired() == [0, 1, 2]


def test_a_busy_log_is_not_waited_for() -> None:
    """Something is published all the time: it serves, and what comes is learnt."""
    play = Play()
    for number in range(300):
        play.log.publish(play.wall_us + 50 * MS if number % 3 else None)
        play.run(0.001)
        if number == 10:
            play.start()
    assert play.core.unread() == []
    play.run(0.2)
    assert len(play.fired()) == 200


def test_counts_begin_when_it_serves() -> None:
    play = Play()
    mixed(play)
    assert (play.stats().ready, play.stats().cancelled) == (10, 5)
    restarted(play)
    assert (play.stats().ready, play.stats().cancelled, play.stats().scheduled) == (0, 0, 15)


def test_the_part_says_no_more_than_the_log() -> None:
    part = Part(1, "t", 0)
    part.learn([5, 1, 6, 2])
    assert part.decide(m.Control(7, 2, bytes(12))) == []
    assert list(part.pending) == [5, 6]

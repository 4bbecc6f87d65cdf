"""Making ready: never early, in due order, once, whatever is refused or lost on the way, and whatever the clock does."""

import random
from itertools import pairwise

import pytest

from gq_delayd.core import LOOK_S
from gq_delayd.effects import AskMarker
from gq_delayd.part import Group, spread
from gq_delayd.wheel import STEP_US, TICK_US
from gq_proto import ranges as rng
from gq_proto.errors import DiskFull, NotLeader, TimedOut, Unavailable
from gq_proto.messages import WriteMarkerReply
from tests.unit.gq_delayd.rig import MS, Log, Play, array_of

HOUR_US = 3_600_000_000


def test_four_delays_are_ready_in_due_order() -> None:
    play = Play()
    now = play.wall_us
    for delay in (40, 10, 30, 20):
        play.log.publish(now + delay * MS)
    play.run(0.1)
    assert play.fired() == [1, 3, 2, 0]
    play.check()


def test_never_early_at_the_edges_of_ticks() -> None:
    play = Play()
    start = (play.wall_us // TICK_US + 3) * TICK_US
    for number in range(200):
        play.log.publish(start + number // 5 * TICK_US + (-1, 0, 1, TICK_US // 2, TICK_US - 1)[number % 5])
    play.run(0.6, every=0.0003)
    play.check()
    late = [stamp - play.log.records[offset][1] for offset, (_, stamp) in play.log.ready.items()]
    assert len(late) == 200 and 0 <= min(late) and max(late) <= 2 * TICK_US


def test_one_record_a_partition_and_tick() -> None:
    play = Play(Log(0), Log(1))
    due = (play.wall_us // TICK_US + 5) * TICK_US
    for log in play.logs.values():
        log.publish(due - 9_999, 40)
        log.publish()
        log.publish(due, 40)
    play.run(0.2)
    assert [(ask.key[1], ask.ranges) for ask in play.markers] == [(0, [0, 40, 41, 40]), (1, [0, 40, 41, 40])]


def test_few_messages_of_a_tick_need_not_wait_for_its_end() -> None:
    play = Play()
    start = (play.wall_us // TICK_US + 5) * TICK_US
    for within in (100, 500, 4_100, 9_900):
        play.log.publish(start + within)
    play.run(0.2, every=1.0)              # nothing but its own deadlines wakes it
    assert [ask.ranges for ask in play.markers] == [[0, 2], [2, 1], [3, 1]]
    assert all(0 <= stamp - play.log.records[offset][1] <= STEP_US + 500 for offset, (_, stamp) in play.log.ready.items())


def test_who_waits_for_what_is_due_later_looks_at_the_clock_once_a_second() -> None:
    play = Play()
    play.log.publish(play.wall_us + 3_600_000 * MS)
    play.run(5.0)
    play.core.at(play.now, play.wall_us)
    assert play.core.next_deadline() == play.now + LOOK_S


def test_past_and_present_are_at_once() -> None:
    play = Play()
    for ago in (0, 1, HOUR_US):
        play.log.publish(play.wall_us - ago)
    play.run(0.02)
    assert sorted(play.fired()) == [0, 1, 2]


def test_a_record_names_no_more_than_it_may() -> None:
    play = Play()
    play.log.publish(play.wall_us + 50 * MS, 20_000)
    play.run(0.3)
    assert [rng.count(ask.ranges) for ask in play.markers] == [8_192, 8_192, 3_616]
    assert play.fired() == list(range(20_000))


@pytest.mark.parametrize("error", [DiskFull("full"), NotLeader("elsewhere"), Unavailable("gone"), TimedOut("late")])
def test_the_kth_record_cannot_be_written_for_a_while(error: Exception) -> None:
    play = Play()
    for number in range(10):
        play.log.publish(play.wall_us + (50 + 10 * number) * MS)
    asked: list[AskMarker] = []

    def refuse(ask: object) -> Exception | None:
        if isinstance(ask, AskMarker):
            asked.append(ask)
            return error if 4 <= len(asked) < 14 else None
        return None
    play.refuse = refuse  # type: ignore[assignment]
    play.run(3.0)
    assert sorted(play.fired()) == list(range(10)) and play.fired()[:3] == [0, 1, 2]
    play.check()
    assert play.stats().ready == 10 and play.stats().overdue == 0
    assert any("refused" in note.text for note in play.notes)


def test_a_record_that_was_written_though_its_answer_was_lost_is_not_written_twice() -> None:
    play = Play()
    play.log.publish(play.wall_us + 50 * MS, 5)
    lost = []

    def refuse(ask: object) -> Exception | None:
        if isinstance(ask, AskMarker) and not lost:
            lost.append(play.log.mark(ask.type, ask.ranges, play.wall_us))
            return TimedOut("no answer")
        return None
    play.refuse = refuse  # type: ignore[assignment]
    play.run(1.0)
    assert play.fired() == [0, 1, 2, 3, 4] and play.stats().ready == 5 and play.stats().scheduled == 0


def test_a_record_that_took_nothing_though_nobody_had_decided_is_written_again() -> None:
    play = Play()
    play.log.publish(play.wall_us + 50 * MS, 5)
    asked = []

    def refuse(ask: object) -> Exception | None:
        if isinstance(ask, AskMarker):
            asked.append(ask)
            if len(asked) == 1:
                play.log.mark = lambda *_: WriteMarkerReply(-1)  # type: ignore[method-assign]
            else:
                play.log.mark = kept_mark  # type: ignore[method-assign]
        return None
    kept_mark = play.log.mark
    play.refuse = refuse  # type: ignore[assignment]
    play.run(1.0)
    assert play.fired() == []
    play.run(3.0)
    assert play.fired() == [0, 1, 2, 3, 4] and len(asked) == 2
    play.run(5.0)
    assert len(asked) == 2, "and then there is no doubt"


def test_while_the_disk_is_full_everything_waits_and_then_goes_out_in_due_order() -> None:
    play = Play()
    rng_ = random.Random(4)
    dues = [play.wall_us + rng_.randrange(10, 900) * MS for _ in range(300)]
    for due in dues:
        play.log.publish(due)
    play.refuse = lambda ask: DiskFull("full") if isinstance(ask, AskMarker) else None
    play.run(1.0)
    assert play.fired() == [] and play.stats().overdue == 300 and len(play.listed()) == 300
    assert len(play.markers) < 600, "with pauses"
    play.refuse = lambda ask: None
    play.run(2.0)
    assert sorted(play.fired()) == list(range(300))
    order = [dues[offset] for offset in play.fired()]
    assert max(a - b for a, b in pairwise(order)) <= 900 * MS // 8, "coarsely, in a few records"


# -- the clock -----------------------------------------------------------------------------------

def test_a_clock_set_forward_makes_due_what_is_then_due() -> None:
    play = Play()
    play.log.publish(play.wall_us + HOUR_US // 2)
    play.log.publish(play.wall_us + 2 * HOUR_US)
    play.run(0.5)
    play.wall += HOUR_US
    play.run(1.1)
    assert play.fired() == [0]
    play.run(0.5)
    assert play.fired() == [0] and len(play.listed()) == 1
    assert play.core.jumps == 1


def test_a_clock_set_back_makes_what_waits_wait_longer() -> None:
    play = Play()
    play.log.publish(play.wall_us + 2_000 * MS)
    play.run(0.5)
    play.wall -= HOUR_US
    play.run(10.0, every=0.5)
    assert play.fired() == [] and play.listed()
    play.run(3600.0, every=30.0)
    assert play.fired() == [0]
    play.check()


def test_what_was_due_and_could_not_be_written_waits_again_when_the_clock_is_set_back() -> None:
    play = Play()
    play.log.publish(play.wall_us + 50 * MS, 3)
    play.refuse = lambda ask: DiskFull("full") if isinstance(ask, AskMarker) else None
    play.run(0.5)
    play.wall -= HOUR_US
    play.run(1.5)
    play.refuse = lambda ask: None
    play.run(60.0, every=0.5)
    assert play.fired() == [] and len(play.listed()) == 3 and play.stats().overdue == 0
    play.run(3600.0, every=20.0)
    assert play.fired() == [0, 1, 2]
    play.check()


def test_a_clock_set_forth_and_back_fires_nothing_twice_and_loses_nothing() -> None:
    play = Play()
    for minutes in (1, 30, 59, 61, 90, 120):
        play.log.publish(play.wall_us + minutes * 60_000 * MS, 3)
    for by in (HOUR_US, -HOUR_US, HOUR_US // 2, -HOUR_US // 2, -HOUR_US, HOUR_US):
        play.run(1.2, every=0.3)
        play.wall += by
    play.run(1.2)
    assert play.fired() == list(range(9))
    play.run(2 * 3600.0, every=20.0)
    assert sorted(play.fired()) == list(range(18))
    play.check()


def test_a_clock_that_drifts_is_followed() -> None:
    play = Play()
    for number in range(100):
        play.log.publish(play.wall_us + 10_000 * MS + number * 7 * MS)
    for _ in range(1_200):
        play.run(0.01)
        play.wall -= 40
    play.check()
    late = [stamp - play.log.records[offset][1] for offset, (_, stamp) in play.log.ready.items()]
    assert len(late) == 100 and max(late) <= 2 * TICK_US and play.core.jumps == 0


# -- after a time away ------------------------------------------------------------------------------

def test_what_came_due_meanwhile_goes_out_at_once_and_in_due_order() -> None:
    play = Play()
    for delay in (400, 100, 300, 200):
        play.log.publish(play.wall_us + delay * MS)
    play.run(0.05)
    play.now += 5.0
    play.start()
    play.run(0.02)
    assert play.fired() == [1, 3, 2, 0]


@pytest.mark.parametrize("count", [3, 100, 2_000, 60_000])
def test_a_group_of_many_ticks_is_cut_in_due_order(count: int) -> None:
    chance = random.Random(count)
    dues = [chance.randrange(10**9) for _ in range(count)]
    group = Group(7, array_of([n for offset, due in enumerate(dues) for n in (offset, due)]))
    pieces = spread(group, 16)
    assert 1 <= len(pieces) <= 16 and sorted(n for piece in pieces for n in piece.entries[::2]) == list(range(count))
    for one, other in pairwise(pieces):
        assert max(one.entries[1::2]) <= min(other.entries[1::2]) + TICK_US and one.tick <= other.tick
    assert len(spread(Group(7, array_of([0, 5, 1, TICK_US - 1])), 16)) == 1

"""The index files: how often, how much, and that they say what the log says at every block."""

import random
from itertools import pairwise

from gq_delayd import index, saving
from gq_delayd.settings import Settings
from tests.unit.gq_delayd.rig import MS, TOPIC, Play

SECOND = 1_000 * MS


def said(play: Play) -> tuple[dict[int, int], set[int], set[int], int]:
    """What the file says: pending, delivered, cancelled, below which offset."""
    raw = bytes(play.files[TOPIC, 0])
    blocks = index.blocks(raw, TOPIC, 0)
    assert blocks and blocks[-1].size == len(raw)
    *_, found = index.load(raw, len(raw))
    assert found
    pending = {offset: due for flat in found.pending for offset, due in zip(flat[::2], flat[1::2])}
    decided = found.delivered | found.cancelled | found.expired
    return ({offset: due for offset, due in pending.items() if offset not in decided}, set(found.delivered), set(found.cancelled),
            blocks[-1].next_offset)


def test_nothing_is_written_a_message() -> None:
    play = Play()
    for number in range(2_000):
        play.log.publish(play.wall_us + (500 + number) * MS)
        play.run(0.002)
    play.run(3.0)
    assert play.writes <= 9 and len(play.fired()) == 2_000


def test_at_rest_nothing_is_written() -> None:
    play = Play()
    play.log.publish(play.wall_us + 3600 * SECOND)
    play.run(3.0)
    writes = play.writes
    play.run(60.0, every=0.5)
    assert play.writes == writes == 1


def test_the_file_says_what_the_log_says() -> None:
    play = Play()
    dues = {}
    for number in range(200):
        due = play.wall_us + (100 if number % 2 else 60_000) * MS
        dues[play.log.publish(due)] = due
        play.run(0.003)
    play.cancel(0, 20)
    play.run(2.5)
    pending, delivered, cancelled, known = said(play)
    assert delivered == set(play.log.ready) and cancelled == play.log.cancelled and known == play.log.end
    assert pending == {offset: due for offset, due in dues.items() if offset not in delivered | cancelled}


def test_a_file_of_the_past_is_written_anew_while_the_rest_goes_on(monkeypatch) -> None:
    monkeypatch.setattr(saving, "COMPACT_ENTRIES", 400)
    monkeypatch.setattr(saving, "SLICE", 16)
    play = Play(settings=Settings(index_interval_s=0.05))
    chance = random.Random(3)
    sizes = []
    for _ in range(300):
        for _ in range(10):
            play.log.publish(play.wall_us + chance.choice([20, 60, 100_000]) * MS)
        play.run(0.01)
        sizes.append(len(play.files.get((TOPIC, 0), b"")))
    play.run(1.0)
    pending, delivered, _, _ = said(play)
    assert delivered == set(play.log.ready) and len(pending) + len(delivered) == 3_000
    assert any(a > 1.2 * b for a, b in pairwise(sizes)), "it shrank"
    assert not play.fresh
    before = play.listed()
    play.start()
    play.run(0.1)
    assert play.listed() == before


def test_an_orderly_end_leaves_nothing_to_read() -> None:
    play = Play()
    play.log.publish(play.wall_us + 60 * SECOND, 10)
    play.run(0.1)
    play.log.publish(times=100)
    play.run(0.1)
    for effect in play.core.finish():
        play._do(effect)
    assert said(play)[3] == play.log.end == 110


def test_a_disk_that_takes_nothing_harms_nothing() -> None:
    play = Play()
    play.log.publish(play.wall_us + SECOND, 10)
    play.run(0.1)
    play.unwritable = True
    play.run(5.0)
    play.log.publish(play.wall_us + SECOND, 10)
    play.run(5.0)
    assert len(play.fired()) == 20 and play.writes == 1, "asked once, and no more"
    play.unwritable = False
    play.start()
    play.run(0.1)
    assert play.listed() == []


def test_a_log_without_delays_costs_a_file_only_now_and_then() -> None:
    play = Play()
    play.log.publish(times=1_000)
    play.run(2.0)
    for effect in play.core.finish():
        play._do(effect)
    assert not play.files

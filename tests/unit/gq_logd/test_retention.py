"""Retention by age and size, DeleteBefore: whole sealed segments, and an emptied log that remembers its offsets."""

from pathlib import Path

import pytest

from gq_proto import codec, messages
from gq_proto import record as rec
from gq_proto.errors import BadRequest
from gq_proto.messages import Kind
from tests.unit.gq_logd.world import Call, World, batch_of, produce, values

HOUR_MS = 3_600_000


def logs(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("logs/t/0/*.log"))


def others(folder: Path) -> set[int]:
    return {int(path.stem) for path in folder.glob("logs/t/0/*") if path.stem.isdecimal()}


def test_by_size_whole_sealed_segments(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000, "retention_bytes": 3500, "retention_ms": -1})
    for number in range(40):
        world.publish(batch_of(b"%02d" % number * 100))
        size = world.partition.log.size_bytes
        assert size <= 3500 + 2 * 1000
    left = values(world.read_all(world.partition.log.start))
    assert left == [b"%02d" % n * 100 for n in range(40 - len(left), 40)] and len(left) >= 3500 // 250 - 1
    assert logs(tmp_path)[0] == world.partition.log.start > 0 and others(tmp_path) == set(logs(tmp_path))
    assert world.fetch(0)[0].error == 35 and world.fetch(0)[0].log_start == logs(tmp_path)[0]
    world.crash()
    assert world.partition.log.start == logs(tmp_path)[0]


def test_by_size_also_what_came_while_a_slow_disk_kept_the_start_from_moving(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000, "retention_bytes": 3500, "retention_ms": -1})
    world.hold_syncs = True
    for number in range(40):
        world.publish(batch_of(b"%02d" % number * 100))
    assert world.partition.log.size_bytes > 8000
    world.hold_syncs = False
    world.sync()
    assert world.partition.log.size_bytes <= 3500 + 2 * 1000
    assert logs(tmp_path)[0] == world.partition.log.start


def test_by_age_and_the_live_segment_too_when_all_of_it_is_old(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000, "retention_ms": HOUR_MS})
    for number in range(10):
        world.publish(batch_of(b"%02d" % number * 100))
        world.tick(600)
    assert len(world.read_all(world.partition.log.start)) < 10
    world.tick(2 * HOUR_MS / 1000)
    end = world.partition.log.end
    assert world.partition.log.start == end and logs(tmp_path) == [end]
    assert world.core.next_deadline(world.now, world.wall_us) is None
    world.crash()
    assert world.publish(batch_of(b"new"))[0].base_offset == end + 1       # behind the leader-change record
    world.tick(2 * HOUR_MS / 1000)
    assert logs(tmp_path) == [end + 2]


def test_age_counts_from_when_a_delayed_message_is_due(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"retention_ms": HOUR_MS})
    headers = codec.encode_headers([("gq-delay", (5 * HOUR_MS * 1000).to_bytes(8))])
    world.publish(batch_of(b"later", flags=rec.DELAYED, headers=headers))
    world.tick(5.9 * HOUR_MS / 1000)
    assert len(world.read_all(include_delayed=True)) == 1
    world.stop()
    world.start()
    world.tick(0.2 * HOUR_MS / 1000)
    assert world.partition.log.start == world.partition.log.end


def test_a_slow_topic_rolls_when_its_first_record_is_past_retention(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"retention_ms": HOUR_MS})
    for number in range(50):
        world.publish(batch_of(b"%d" % number))
        world.tick(0.1 * HOUR_MS / 1000)
    assert 10 <= len(world.read_all(world.partition.log.start)) <= 22


def test_shorter_retention_works_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.tick(HOUR_MS / 1000)
    world.lead(retention_ms=1000)
    world.tick(2)
    assert world.read_all(world.partition.log.start) == []


def test_retention_survives_restarts_and_needs_no_writes(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000, "retention_ms": HOUR_MS})
    for number in range(10):
        world.publish(batch_of(b"%02d" % number * 100))
    world.crash()
    world.tick(1.1 * HOUR_MS / 1000)
    assert world.partition.log.start == world.partition.log.end


def test_a_wall_clock_that_jumps_back_keeps_things_a_jump_forth_does_not_break(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"retention_ms": HOUR_MS})
    world.publish(batch_of(b"a"))
    world.wall_us -= HOUR_MS * 1000
    world.tick(1.5 * HOUR_MS / 1000)
    assert values(world.read_all()) == [b"a"]
    world.wall_us += HOUR_MS * 1000
    world.tick(1)
    assert world.partition.log.start == world.partition.log.end


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_delete_before(tmp_path: Path, end: str) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000})
    for number in range(20):
        world.publish(batch_of(b"%02d" % number * 100))
    assert world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(10)).log_start == 10
    assert world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(5)).log_start == 10
    if end == "stop":
        world.stop()
        world.start()
    else:
        world.crash()
    assert [r.offset for r in world.read_all(10)] == list(range(10, 21))
    assert world.fetch(9)[0].error == 35
    assert 7 <= logs(tmp_path)[0] <= 10
    with pytest.raises(BadRequest):
        world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(22))
    assert world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(-1)).log_start == 21
    assert logs(tmp_path) == [21] and world.partition.log.size_bytes == 0
    world.crash()
    assert world.partition.log.start == world.partition.log.end == 21


def test_purge_while_a_sync_runs(tmp_path: Path) -> None:
    world = World(tmp_path, fsync="every")
    world.publish(batch_of(b"a"))
    world.hold_syncs = True
    world.send(produce(batch_of(b"b")))
    calls = [Call(Kind.DELETE_BEFORE, messages.DeleteBefore(offset)) for offset in (1, -1)]
    world.send(*calls)
    assert not calls[0].done and not calls[1].done
    world.sync()
    world.hold_syncs = False
    world.sync()
    assert [call.reply.log_start for call in calls] == [2, 2]
    assert values(world.read_all(2)) == [b"b"]
    world.tick(3)
    world.crash()
    assert values(world.read_all(2)) == [b"b"]

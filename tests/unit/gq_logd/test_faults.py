"""A disk that fails: nothing is answered that is not written, memory follows the disk, and full disks are lived through."""

import contextlib
import errno
from pathlib import Path

import pytest

from gq_proto import codec, control, messages
from gq_proto import record as rec
from gq_proto.errors import DiskFull
from gq_proto.messages import Kind
from tests.unit.gq_logd.world import Call, FaultyDisk, World, batch_of, produce, values


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_full_disk_at_each_write(tmp_path: Path, error: int, share: float) -> None:
    for fail_at in range(1, 16):
        disk = FaultyDisk()
        world = World(tmp_path / str(fail_at), disk=disk, settings={"segment_bytes": 1500})
        disk.writes, disk.fail_at, disk.error, disk.share = 0, fail_at, error, share
        wanted = []
        for number in range(12):
            new = [b"%d.%d" % (number, i) * 40 for i in range(2)]
            batch = batch_of(*new, producer=3, sequence=2 * number)
            produced = world.publish(batch)[0]
            while produced.error:
                assert produced.error == 54
                produced = world.publish(batch)[0]
            assert not produced.duplicate
            wanted += new
            world.tick(1.1)
        assert world.partition.online
        assert values(world.read_all()) == wanted
        world.crash()
        assert not world.notes
        assert values(world.read_all()) == wanted
        assert world.publish(batch_of(b"x", b"y", producer=3, sequence=23))[0].error == 34
        assert world.publish(batch_of(b"x", producer=3, sequence=24))[0].error == 0
        world.core.files.pool.close()


def test_when_the_write_fails_no_batch_of_the_turn_counts(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world = World(tmp_path, disk=disk)
    world.publish(batch_of(b"a", producer=1))
    disk.writes, disk.fail_at = 0, 1
    batches = [batch_of(value, producer=1, sequence=sequence) for value, sequence in ((b"b", 1), (b"b", 1), (b"c", 2))]
    assert [p.error for p in world.publish(*batches)] == [54, 54, 54]
    assert values(world.read_all()) == [b"a"]
    assert [(p.error, p.base_offset, p.duplicate) for p in world.publish(*batches)] == [(0, 2, False), (0, 2, True), (0, 3, False)]


def test_markers_that_cannot_be_written_decide_nothing_and_all_are_told_so(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world = World(tmp_path, disk=disk)
    delay = codec.encode_headers([("gq-delay", (60_000_000).to_bytes(8))])
    world.publish(batch_of(b"a", b"b", b"c", flags=rec.DELAYED, headers=delay))
    markers = [(4, [1, 1]), (3, [1, 2]), (3, [1, 1]), (3, [3, 1])]

    def written() -> list[Call]:
        bodies = [messages.WriteMarker(type_, control.encode_body(type_, ranges)) for type_, ranges in markers]
        calls = [Call(Kind.WRITE_MARKER, body) for body in bodies]
        with contextlib.suppress(DiskFull):
            world.send(*calls)
        return calls
    disk.writes, disk.fail_at = 0, 1
    assert [call.error.code for call in written()] == [54, 54, 54, 54], "also the one that had nothing left to decide"
    assert [call.reply.taken for call in written()] == [[1, 1], [2, 1], [], [3, 1]]
    assert [call.reply.taken for call in written()] == [[], [], [], []]
    world.crash()
    assert [call.reply.taken for call in written()] == [[], [], [], []]
    assert values(world.read_all()) == [b"b", b"c"]


def test_a_disk_that_stays_full_still_reads(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world = World(tmp_path, disk=disk)
    world.publish(batch_of(b"a"))
    disk.writes, disk.fail_at, disk.stay = 0, 1, True
    for _ in range(3):
        assert world.publish(batch_of(b"b"))[0].error == 54
        world.tick(5)
        assert values(world.read_all()) == [b"a"]
    assert world.core.next_deadline(world.now, world.wall_us) is not None      # the checkpoint is tried again
    disk.fail_at = None
    assert world.publish(batch_of(b"c"))[0].error == 0
    world.tick(5)
    world.crash()
    assert values(world.read_all()) == [b"a", b"c"]


def test_an_io_error_takes_the_partition_offline_until_restart(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world = World(tmp_path, disk=disk, partitions=2)
    world.publish(batch_of(b"a"))
    world.publish(batch_of(b"a"), partition=1)
    disk.writes, disk.fail_at, disk.error = 0, 1, errno.EIO
    assert world.publish(batch_of(b"b"), batch_of(b"c"))[0].error == 56
    assert world.publish(batch_of(b"d"))[0].error == 56
    assert world.fetch(0)[0].error == 56
    assert world.publish(batch_of(b"d"), partition=1)[0].error == 0
    info = world.ask(Kind.PARTITIONS, messages.Partitions([])).partitions
    assert [(i.online, bool(i.problem)) for i in info] == [(False, True), (True, False)]
    world.tick(5)
    world.crash()
    assert values(world.read_all()) == [b"a"]
    assert world.publish(batch_of(b"e"))[0].error == 0


def test_no_way_back_to_the_last_good_length_is_an_io_error(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world = World(tmp_path, disk=disk)
    world.publish(batch_of(b"a"))
    disk.writes, disk.fail_at, disk.fail_truncate = 0, 1, True
    assert world.publish(batch_of(b"b" * 100))[0].error == 56
    disk.fail_truncate = False
    world.crash()
    assert values(world.read_all()) == [b"a"]


@pytest.mark.parametrize("mode", ["every", "interval"])
def test_a_failed_sync_takes_the_partition_offline(tmp_path: Path, mode: str) -> None:
    disk = FaultyDisk()
    world = World(tmp_path, disk=disk, fsync=mode)
    world.publish(batch_of(b"a"))
    world.tick(2)
    world.hold_syncs = True
    calls = [produce(batch_of(b"b")), produce(batch_of(b"c"))]
    world.send(calls[0])
    world.send(calls[1])
    world.tick(2)
    disk.fail_sync = True
    world.sync()
    assert [call.reply.parts[0].error for call in calls] == ([56, 56] if mode == "every" else [0, 0])
    assert world.publish(batch_of(b"d"))[0].error == 56
    disk.fail_sync = False
    assert world.publish(batch_of(b"d"))[0].error == 56
    world.hold_syncs = False
    world.crash()
    assert world.publish(batch_of(b"d"))[0].error == 0


def test_too_many_open_files_pass(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world = World(tmp_path, disk=disk)
    world.publish(batch_of(b"a"))
    disk.writes, disk.fail_at, disk.error, disk.share = 0, 1, errno.EMFILE, 0
    assert world.publish(batch_of(b"b"))[0].error == 53
    assert world.publish(batch_of(b"b"))[0].error == 0


def test_a_partition_that_cannot_be_made_is_made_later(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail_at, disk.stay = 1, True
    world = World(tmp_path, disk=disk)
    assert world.send(produce(batch_of(b"a"))).parts[0].error == 54
    disk.fail_at = None
    world.tick(3)
    assert world.send(produce(batch_of(b"a"))).parts[0].error == 0

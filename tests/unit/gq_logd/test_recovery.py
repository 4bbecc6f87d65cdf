"""Restarts after every kind of end: the longest valid prefix, nothing valid thrown away, no known offset given out again."""

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gq_logd.config import LogConfig
from gq_proto import codec, messages
from gq_proto import record as rec
from gq_proto.messages import Kind
from tests.unit.gq_logd.world import World, batch_of, produce, values


def data(n: int) -> list[bytes]:
    return [b"v%d" % i * (i % 7 + 1) for i in range(n)]


def positions(path: str) -> list[int]:
    raw = Path(path).read_bytes()
    found, at = [], 0
    while at < len(raw):
        found.append(at)
        at = codec.locate(raw, at, struct.unpack_from(">q", raw, at + 8)[0] + 1)
        if at < 0:
            break
    return [*found, len(raw)]


def test_everything_comes_back_after_a_kill(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(*[batch_of(value) for value in data(50)])
    world.crash()
    assert values(world.read_all()) == data(50)
    assert world.publish(batch_of(b"next"))[0].base_offset == 52      # each start writes a leader-change record


def test_everything_comes_back_after_an_orderly_stop_without_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.publish(*[batch_of(value) for value in data(50)])
    world.stop()
    scanned: list[int] = []
    scan = codec.scan

    def counting(raw: Any, *args: Any, **kw: Any) -> Any:
        scanned.append(len(raw))
        return scan(raw, *args, **kw)

    monkeypatch.setattr(codec, "scan", counting)
    world.start()
    assert sum(scanned) < os.path.getsize(world.log_path()) + 200      # the walk from the last index point, here the start
    assert len([size for size in scanned if size]) == 1
    assert values(world.read_all()) == data(50)


def test_a_torn_tail_at_every_byte_of_the_last_three_records(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    world.publish(*[batch_of(value) for value in data(8)])
    world.core.files.pool.close()
    ends = positions(world.log_path())
    for size in range(ends[-4], ends[-1] + 1):
        copy = tmp_path / "b"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "a", copy)
        os.truncate(copy / "logs/t/0" / os.path.basename(world.log_path()), size)
        again = World(copy, lead=False)
        whole = max(i for i, end in enumerate(ends) if end <= size)      # records, leader-change included
        assert again.partition.log.end == whole
        assert os.path.getsize(again.log_path()) == ends[whole]
        assert bool(again.notes) == (size not in ends)
        again.epoch = 5
        again.lead()
        assert values(again.read_all()) == data(8)[:whole - 1]
        again.publish(batch_of(b"new"))
        assert values(again.read_all())[-1] == b"new"
        again.core.files.pool.close()


def test_offsets_known_to_be_used_are_not_given_out_again(tmp_path: Path) -> None:
    """The log is cut below its recovery point, by hand or by a lying disk."""
    world = World(tmp_path)
    world.publish(*[batch_of(value) for value in data(8)])
    world.stop()
    ends = positions(world.log_path())
    os.truncate(world.log_path(), ends[-3] + 5)
    world.start()
    assert any("lost" in note for note in world.notes)
    produced = world.publish(batch_of(b"new"))[0]
    assert produced.base_offset == 10                                  # 9 is the leader-change record
    assert values(world.read_all()) == [*data(8)[:6], b"new"]
    world.crash()
    assert values(world.read_all()) == [*data(8)[:6], b"new"]
    fetched = world.ask(Kind.FETCH, messages.Fetch([messages.FetchPart(77, 0, ranges=[5, 5])])).parts[0]
    assert fetched.covered == 1 and not fetched.error
    assert world.ask(Kind.END_OF_EPOCH, messages.EndOfEpoch(1)).end_offset == 7      # what comes behind was lost
    assert world.ask(Kind.END_OF_EPOCH, messages.EndOfEpoch(2)).end_offset == 11


def test_the_log_is_gone_altogether(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(*data(8)))
    world.stop()
    os.remove(world.log_path())
    world.start()
    assert world.read_all(9) == []
    assert world.publish(batch_of(b"new"))[0].base_offset == 10


def test_half_an_idempotent_batch_is_cut_as_a_whole(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(*data(4), producer=5), batch_of(*data(4), producer=5, sequence=4))
    world.core.files.pool.close()
    ends = positions(world.log_path())
    os.truncate(world.log_path(), ends[7])                             # leader-change, 4, 2 of 4
    world.start()
    assert values(world.read_all()) == data(4)
    assert os.path.getsize(world.log_path()) == ends[5]
    assert world.publish(batch_of(*data(4), producer=5, sequence=4))[0].error == 0
    assert values(world.read_all()) == data(4) * 2


def test_half_a_batch_that_was_whole_on_the_disk_once_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(*data(4), producer=5), batch_of(*data(4), producer=5, sequence=4))
    world.stop()                                                       # the checkpoint vouches for all of it
    os.truncate(world.log_path(), positions(world.log_path())[7])      # leader-change, 4, 2 of 4
    for _ in range(2):
        world.start()
        assert values(world.read_all()) == data(4) + data(2)
    assert world.publish(batch_of(*data(4), producer=5, sequence=4))[0].error == 0


FIELDS = {"magic": 0, "version": 2, "flags": 3, "crc": 4, "offset": 15, "timestamp": 23, "priority": 24, "codec": 25,
          "key length": 27, "value length": 31, "headers length": 33, "key": 34, "value": 37, "offset high": 8,
          "value length high": 28}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("derived", [True, False])
def test_a_flipped_bit_in_the_middle(tmp_path: Path, field: str, derived: bool) -> None:
    world = World(tmp_path)
    world.publish(*[batch_of(value) for value in data(30)])
    (world.stop if derived else world.core.files.pool.close)()
    path = world.log_path()
    at = positions(path)[15]
    raw = bytearray(Path(path).read_bytes())
    raw[at + FIELDS[field]] ^= 1
    Path(path).write_bytes(raw)
    world.start()
    fetched, _ = world.fetch(15)
    assert fetched.error == 55 and path in fetched.message and f"position {at}" in fetched.message
    assert fetched.next_offset == 16
    wanted = [value for i, value in enumerate(data(30)) if i != 14]    # offset 15, behind the leader-change record
    assert values(world.read_all()) == wanted
    assert Path(path).read_bytes()[:len(raw)] == bytes(raw)
    by_ranges = world.ask(Kind.FETCH, messages.Fetch([messages.FetchPart(77, 0, ranges=[3, 1, 14, 3, 20, 2])])).parts[0]
    assert by_ranges.status == [0, 3, 0] and by_ranges.covered == 3
    assert world.publish(batch_of(b"new"))[0].error == 0
    assert values(world.read_all()) == [*wanted, b"new"]
    world.stop()
    world.start()
    assert values(world.read_all()) == [*wanted, b"new"]
    assert world.fetch(15)[0].error == 55


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".runs", ".due"])
@pytest.mark.parametrize("harm", ["missing", "empty", "cut", "flipped", "foreign"])
@pytest.mark.parametrize("sealed", [True, False])
def test_derived_files_are_rebuilt(tmp_path: Path, suffix: str, harm: str, sealed: bool) -> None:
    world = World(tmp_path, settings={"segment_bytes": 4000} if sealed else {})
    delay = codec.encode_headers([("gq-delay", (5_000_000).to_bytes(8))])
    for number in range(40):
        world.publish(batch_of(b"x" * 150, priorities=[number % 5], flags=rec.DELAYED if number == 3 else 0,
                               headers=delay if number == 3 else b""))
        world.tick(1)
    before = world.ask(Kind.RUNS, messages.Runs(0))
    due = world.ask(Kind.DUE, messages.Due(0))
    time = world.ask(Kind.OFFSET_FOR_TIME, messages.OffsetForTime(world.wall_us - 30_500_000))
    world.stop()
    path = world.log_path(0, suffix)
    raw = bytearray(Path(path).read_bytes())
    if harm == "missing":
        os.remove(path)
    elif harm == "foreign":
        Path(path).write_bytes(raw.replace(b"GQ", b"QG"))
    else:
        raw[len(raw) // 2] ^= 4
        Path(path).write_bytes(raw if harm == "flipped" else raw[:0 if harm == "empty" else -7])
    world.start()
    after = world.ask(Kind.RUNS, messages.Runs(0))
    assert join(after.runs) == join(before.runs)
    assert world.ask(Kind.DUE, messages.Due(0)).due == due.due
    assert world.ask(Kind.OFFSET_FOR_TIME, messages.OffsetForTime(world.wall_us - 30_500_000)) == time
    assert len(world.read_all(include_delayed=True)) == 40
    world.stop()
    world.start()
    assert len(world.read_all(include_delayed=True)) == 40


def join(flat: list[int]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for offset, count, kind in zip(flat[::3], flat[1::3], flat[2::3]):
        if found and found[-1][2] == kind and found[-1][0] + found[-1][1] == offset:
            found[-1] = (found[-1][0], found[-1][1] + count, kind)
        else:
            found.append((offset, count, kind))
    return found


def test_small_files_damaged_or_missing(tmp_path: Path) -> None:
    """Everything in them can be had from the log again."""
    world = World(tmp_path)
    world.publish(batch_of(*data(4), producer=5))
    world.tick(2)
    world.publish(batch_of(*data(4), producer=5, sequence=4))
    world.stop()
    for name in ("checkpoint", "leader-epochs", "producers.snapshot"):
        for harm in ("missing", "flipped"):
            path = tmp_path / "logs/t/0" / name
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2] ^= 1
            if harm == "missing":
                path.unlink()
            else:
                path.write_bytes(raw)
            world.start()
            assert values(world.read_all()) == data(4) * 2
            assert world.publish(batch_of(*data(4), producer=5, sequence=4))[0].duplicate
            assert world.ask(Kind.END_OF_EPOCH, messages.EndOfEpoch(1)).epoch == 1
            world.tick(2)
            world.stop()


def test_a_power_loss_that_eats_sequences_does_not_make_duplicates(tmp_path: Path) -> None:
    """The snapshot must not know batches that the log has lost: they would be answered as written."""
    world = World(tmp_path)
    world.publish(batch_of(b"a", producer=5))
    world.tick(3)
    size = os.path.getsize(world.log_path())
    saved = {name: (tmp_path / "logs/t/0" / name).read_bytes() for name in ("checkpoint", "producers.snapshot")}
    world.publish(batch_of(b"b", producer=5, sequence=1))
    world.core.files.pool.close()
    os.truncate(world.log_path(), size)                                 # the unsynced end is gone
    assert saved == {name: (tmp_path / "logs/t/0" / name).read_bytes() for name in saved}
    world.start()
    produced = world.publish(batch_of(b"b", producer=5, sequence=1))[0]
    assert produced.error == 0 and not produced.duplicate
    assert values(world.read_all()) == [b"a", b"b"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["publish", "big", "tick", "kill", "stop"]), max_size=25), st.booleans())
def test_any_order_of_writes_and_ends(tmp_path_factory: pytest.TempPathFactory, steps: list[str], random_lanes: bool) -> None:
    world = World(tmp_path_factory.mktemp("w"), config=LogConfig(), settings={"segment_bytes": 3000})
    wanted: list[bytes] = []
    sequence = 0
    for number, step in enumerate(steps):
        if step in ("publish", "big"):
            new = [b"%d.%d" % (number, i) * (40 if step == "big" else 1) for i in range(number % 4 + 1)]
            lanes = range(5) if random_lanes else (2,)
            assert not world.publish(batch_of(*new, producer=9, sequence=sequence, priorities=lanes))[0].error
            wanted += new
            sequence += len(new)
        elif step == "tick":
            world.tick(1.1)
        elif step == "kill":
            world.crash()
        else:
            world.stop()
            world.start()
        assert not world.notes
    assert values(world.read_all()) == wanted
    runs = join(world.ask(Kind.RUNS, messages.Runs(0)).runs)
    assert sum(count for _, count, kind in runs if not rec.kind_flags(kind) & rec.CONTROL) == len(wanted)
    assert [offset + count for offset, count, _ in runs][:-1] == [offset for offset, _, _ in runs][1:]
    world.core.files.pool.close()


def test_a_kill_in_the_middle_of_a_turn_leaves_what_was_answered(tmp_path: Path) -> None:
    world = World(tmp_path, fsync="every")
    world.hold_syncs = True
    call = produce(batch_of(b"a"))
    world.send(call)
    assert not call.done
    world.sync()
    assert call.reply.parts[0].error == 0
    world.crash()
    world.hold_syncs = False
    assert values(world.read_all()) == [b"a"]

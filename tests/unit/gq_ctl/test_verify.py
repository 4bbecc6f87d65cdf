import json

import pytest
from click.testing import CliRunner

from gq_ctl import app, records, verify
from gq_ctl.verify import Place
from gq_proto import codec, control, files, segment
from gq_proto.record import HEADER_SIZE
from gq_proto.segment import Derived


def batch(first, values, key=b"k"):
    builder = codec.BatchBuilder()
    for value in values:
        builder.add(key, value)
    frame = bytearray(builder.seal())
    codec.stamp(frame, first, 1_700_000_000_000_000)
    return bytes(frame)


def leader_change(offset):
    builder = codec.BatchBuilder()
    body = control.encode_body(control.ControlType.LEADER_CHANGE, control.LeaderChange(3, offset))
    builder.add(control.control_key(2), body, flags=control.control_flags(2))
    frame = bytearray(builder.seal())
    codec.stamp(frame, offset, 1_700_000_000_000_000, internal=True)
    return bytes(frame)


@pytest.fixture
def partition(tmp_path):
    """Two segments: a leader change and messages 1..4, messages 5..9 of 100 bytes."""
    folder = tmp_path / "logs" / "orders" / "3"
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(leader_change(0) + batch(1, [b"a" * 100] * 4))
    (folder / f"{5:020}.log").write_bytes(batch(5, [b"%d" % n * 100 for n in range(5, 10)]))
    return folder


def found(folder):
    (place,) = verify.places(folder)
    return verify.verify_place(place)


SIZE = HEADER_SIZE + 1 + 100


def test_a_good_partition_is_counted(partition):
    whole = found(partition)
    assert (whole.messages, whole.control, whole.first_offset, whole.next_offset, whole.segments) == (9, 1, 0, 10, 2)
    assert not whole.problems and not whole.notes


def test_the_same_partition_is_found_from_every_level_and_deleted_ones_are_not(partition, tmp_path):
    gone = tmp_path / "logs" / "orders.17.deleted" / "0"
    gone.mkdir(parents=True)
    (gone / f"{0:020}.log").write_bytes(batch(0, [b"x"]))
    for path in (tmp_path, tmp_path / "logs", partition.parent, partition):
        (place,) = verify.places(path)
        assert (place.topic, place.partition, len(place.segments)) == ("orders", 3, 2)
    (single,) = verify.places(partition / f"{5:020}.log")
    assert verify.verify_place(single).messages == 5


@pytest.mark.parametrize("at", range(0, SIZE, 3))
def test_a_flipped_bit_anywhere_is_named_with_file_and_position_and_the_rest_is_counted(partition, at):
    path = partition / f"{5:020}.log"
    data = bytearray(path.read_bytes())
    data[2 * SIZE + at] ^= 0x10
    path.write_bytes(data)
    whole = found(partition)
    assert [(p.path, p.position, p.offset) for p in whole.problems] == [(path, 2 * SIZE, 7)]
    assert f"{path}: position {2 * SIZE}: offset 7: " in str(whole.problems[0])
    assert whole.messages == 8 and whole.next_offset == 10


@pytest.mark.parametrize("cut", [1, HEADER_SIZE, SIZE - 1])
def test_a_torn_tail_is_a_note_in_the_last_segment_and_damage_in_another(partition, cut):
    last, first = partition / f"{5:020}.log", partition / f"{0:020}.log"
    last.write_bytes(last.read_bytes()[:-cut])
    whole = found(partition)
    assert not whole.problems and [(n.path, n.position) for n in whole.notes] == [(last, 4 * SIZE)] and whole.messages == 8
    first.write_bytes(first.read_bytes()[:-cut])
    assert [p.path for p in found(partition).problems] == [first]


def test_a_missing_segment_is_a_gap(partition):
    (partition / f"{20:020}.log").write_bytes(batch(20, [b"x"]))
    whole = found(partition)
    assert "begins at offset 20, the one before it ends at 10" in whole.problems[0].detail


def test_damage_at_the_end_of_the_last_segment_is_damage(partition):
    path = partition / f"{5:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert [p.position for p in found(partition).problems] == [4 * SIZE]


def test_an_empty_segment_is_fine(partition):
    (partition / f"{10:020}.log").touch()
    whole = found(partition)
    assert not whole.problems and whole.next_offset == 10 and whole.segments == 3


def test_the_small_files_are_checked_and_a_log_that_ends_below_what_was_synced_is_damage(partition):
    for name, raw in ((files.CHECKPOINT, files.encode_checkpoint(files.Checkpoint(0, 10, 10, 10))),
                      (files.PARTITION_META, files.encode_partition_meta(files.PartitionMeta(7, 3, "orders")))):
        (partition / name).write_bytes(raw)
    assert not found(partition).problems
    (partition / files.CHECKPOINT).write_bytes(files.encode_checkpoint(files.Checkpoint(0, 11, 11, 11)))
    (problem,) = found(partition).problems
    assert (problem.path.name, problem.offset) == (f"{5:020}.log", 10) and "synced up to offset 11" in problem.detail
    (single,) = verify.places(partition / f"{0:020}.log")
    assert not verify.verify_place(single).problems
    (partition / files.PARTITION_META).write_bytes(b"GQM")
    assert [p.path.name for p in found(partition).problems] == [files.PARTITION_META, f"{5:020}.log"]


@pytest.fixture
def indexed(partition):
    """The derived files of the sealed first segment, as logd makes them."""
    data = (partition / f"{0:020}.log").read_bytes()
    scan = codec.scan(data, 0, 0, index_interval=120, time_interval_us=0)
    runs = b"".join(segment.RUN_ENTRY.pack(*run) for run in zip(scan.runs[::3], scan.runs[1::3], scan.runs[2::3]))
    payloads = {Derived.RUNS: runs, Derived.INDEX: scan.index, Derived.TIMEINDEX: segment.pack_times(scan.times, 0)}
    assert all(payloads.values())

    def write(kind, payload, position=None, next_offset=5):
        position = len(data) if position is None else position
        header, crc = segment.derived_header(kind, 0)
        block, _ = segment.derived_block(crc, payload, position, next_offset)
        (partition / f"{0:020}{kind.value}").write_bytes(header + block)

    for kind, payload in payloads.items():
        write(kind, payload)
    return payloads, write


def test_derived_files_that_agree_with_the_log_are_fine(partition, indexed):
    whole = found(partition)
    assert not whole.problems and not whole.notes
    _, write = indexed
    write(Derived.RUNS, segment.RUN_ENTRY.pack(0, 1, 0x22), 0, 0)     # reaches nowhere: says nothing
    assert [p.path.suffix for p in found(partition).problems] == [".runs"]


@pytest.mark.parametrize(("kind", "says"), [(Derived.RUNS, "other runs"), (Derived.INDEX, "begins at position"),
                                            (Derived.TIMEINDEX, "another time")])
def test_a_whole_derived_file_that_contradicts_the_log_is_a_problem(partition, indexed, kind, says):
    payloads, write = indexed
    wrong = bytearray(payloads[kind])
    wrong[-2] ^= 1
    write(kind, wrong)
    (problem,) = found(partition).problems
    assert problem.path.suffix == kind.value and says in problem.detail


def test_a_derived_file_that_reaches_elsewhere_than_the_log_is_a_problem(partition, indexed):
    payloads, write = indexed
    write(Derived.RUNS, payloads[Derived.RUNS], 10**6)
    write(Derived.INDEX, payloads[Derived.INDEX], 3)
    assert sorted(p.path.suffix for p in found(partition).problems) == [".index", ".runs"]


def test_a_damaged_derived_file_is_a_problem_of_a_sealed_segment_only(partition, indexed):
    path = partition / f"{0:020}.index"
    path.write_bytes(path.read_bytes() + b"torn")
    assert [p.path for p in found(partition).problems] == [path]
    path.rename(partition / f"{5:020}.index")
    whole = found(partition)
    assert not whole.problems and [n.path.suffix for n in whole.notes] == [".index"]


def test_records_are_listed_with_positions_controls_in_words_and_damage_between(partition):
    path = partition / f"{0:020}.log"
    entries = list(records.records(path, Place("orders", 3, [path]), 0))
    assert entries[0].control == {"type": "leader_change", "epoch": 3, "start_offset": 0}
    assert [e.message.offset for e in entries] == [0, 1, 2, 3, 4]
    data = bytearray(path.read_bytes())
    data[entries[2].position + 40] ^= 1
    path.write_bytes(data)
    again = list(records.records(path, Place("orders", 3, [path]), 0))
    assert [e.problem is not None for e in again] == [False, False, True, False, False]
    assert again[2].problem.position == entries[2].position
    assert [e.message.offset for e in records.records(path, Place("orders", 3, [path]), 3)] == [0, 3, 4]


def run(*argv, capfd):
    code = app.run(argv)
    said = capfd.readouterr()
    return code, said.out, said.err


def test_the_commands(partition, tmp_path, capfd):
    code, out, err = run("log", "verify", str(tmp_path), "-o", "json", capfd=capfd)
    row = json.loads(out)
    assert code == 0 and row["messages"] == 9 and row["topic"] == "orders" and row["problems"] == 0
    assert err == "gqctl: 9 messages, 0 internal ones, in 1 partitions: no damage\n"
    code, out, err = run("log", "dump", str(partition), "-o", "json", "--from", "1", "--max", "2", capfd=capfd)
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [1, 2]
    path = partition / f"{5:020}.log"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    code, out, err = run("log", "verify", str(partition), capfd=capfd)
    assert code == 1 and f"{path}: position 0: offset 5" in err
    assert run("log", "dump", str(partition), capfd=capfd)[0] == 1
    assert run("log", "verify", str(tmp_path / "nothing"), capfd=capfd)[0] == 2
    (tmp_path / "empty").mkdir()
    assert run("log", "verify", str(tmp_path / "empty"), capfd=capfd)[0] == 4


def test_help_everywhere():
    def walk(command, args):
        shown = CliRunner().invoke(app.root, [*args, "--help"])
        assert shown.exit_code == 0 and "Usage: " in shown.output
        for name in getattr(command, "commands", {}):
            walk(command.commands[name], [*args, name])
    walk(app.root, [])

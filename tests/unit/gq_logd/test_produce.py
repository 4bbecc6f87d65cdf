"""Produce: stamped in order of arrival, written once, each part answered for itself; idempotence; timestamps; rolls."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gq_logd.turn import control_frame
from gq_proto import codec, messages
from gq_proto import record as rec
from gq_proto.control import ControlType, LeaderChange, encode_body
from gq_proto.errors import BadRequest, Forbidden, NotLeader
from gq_proto.limits import REQUEST_FRAMES_MAX
from gq_proto.messages import Kind
from tests.unit.gq_logd.world import (
    NODE,
    START_US,
    TOPIC,
    Call,
    FaultyDisk,
    QuickDisk,
    World,
    batch_of,
    produce,
    values,
)

SECOND = 1_000_000


def test_several_partitions_in_one_request_are_answered_part_by_part(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=2)
    parts = [messages.ProducePart(TOPIC, n) for n in (0, 1, 7, 1)]
    parts += [messages.ProducePart(5, 0), messages.ProducePart(TOPIC, 0, 99)]
    bad = bytearray(batch_of(b"bad"))
    bad[-1] ^= 1
    frames = [batch_of(b"a", b"b"), batch_of(b"c"), batch_of(b"d"), bytes(bad), batch_of(b"e"), batch_of(b"f")]
    reply = world.send(Call(Kind.PRODUCE, messages.Produce(parts), frames))
    assert [part.error for part in reply.parts] == [0, 0, 23, 12, 22, 52]
    assert [part.base_offset for part in reply.parts] == [1, 1, -1, -1, -1, -1]
    assert values(world.read_all()) == [b"a", b"b"]
    assert values(world.read_all(partition=1)) == [b"c"]


def test_requests_of_one_turn_are_written_in_order_with_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"0"))
    writes = []
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: writes.append(len(buffers)) or pwritev(fd, buffers, at))
    produced = world.publish(*[batch_of(b"%d" % n) for n in range(1, 10)])
    assert [p.base_offset for p in produced] == list(range(2, 11))
    assert writes == [9]
    assert values(world.read_all()) == [b"%d" % n for n in range(10)]


def test_frames_and_parts_must_match(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(BadRequest):
        world.send(Call(Kind.PRODUCE, messages.Produce([messages.ProducePart(TOPIC, 0)]), []))
    for count in (0, REQUEST_FRAMES_MAX + 1):
        with pytest.raises(BadRequest, match="send 1 to 1024"):
            world.send(Call(Kind.PRODUCE, messages.Produce([messages.ProducePart(TOPIC, 0)] * count), [batch_of(b"a")] * count))
    assert world.read_all() == []


def test_acks_none_gets_no_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    call = produce(batch_of(b"a"), acks=0)
    world.send(call)
    assert not call.done
    assert values(world.read_all()) == [b"a"]


def test_apps_may_not_send_control_records_daemons_may(tmp_path: Path) -> None:
    from gq_logd.turn import control_frame
    world = World(tmp_path)
    frame = bytes(control_frame(3, b"\0\0\0\0\0\0\0\5\0\0\0\1"))
    assert world.publish(frame)[0].error == 12
    assert world.publish(frame, internal=True)[0].error == 0


def test_apps_may_not_write_to_internal_topics_daemons_may(tmp_path: Path) -> None:
    world = World(tmp_path)
    meta = messages.TopicMeta("__groups", TOPIC + 1, world.settings, [messages.PartitionMeta(NODE, world.epoch)])
    world.apply(topics=[meta])
    for internal, error in ((False, Forbidden.code), (True, 0)):
        call = Call(Kind.PRODUCE, messages.Produce([messages.ProducePart(TOPIC + 1, 0)], 1, internal), [batch_of(b"a")])
        world.send(call)
        assert call.reply.parts[0].error == error


# -- idempotence ------------------------------------------------------------------------

def test_a_repeated_batch_gets_its_first_offset_within_the_window_of_five(tmp_path: Path) -> None:
    world = World(tmp_path)
    batches = [batch_of(b"%d" % n, producer=4, sequence=n) for n in range(8)]
    offsets = [p.base_offset for p in world.publish(*batches)]
    for n in range(3, 8):
        again = world.publish(batches[n])[0]
        assert (again.error, again.base_offset, again.duplicate) == (0, offsets[n], True)
    assert world.publish(batches[2])[0].error == 34
    assert world.publish(batch_of(b"x", producer=4, sequence=9))[0].error == 34
    assert len(world.read_all()) == 8


def test_a_duplicate_in_the_same_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    one, two = world.publish(batch_of(b"a", producer=4), batch_of(b"a", producer=4))
    assert one.base_offset == two.base_offset == 1 and two.duplicate and not one.duplicate
    assert two.timestamp_us == one.timestamp_us == START_US
    assert values(world.read_all()) == [b"a"]


def test_a_duplicate_is_answered_with_the_timestamp_it_got_first(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 300})
    batches = [batch_of(b"%d" % n * 50, b"x", producer=4, sequence=2 * n) for n in range(5)]
    first = []
    for batch in batches:
        world.tick(1)
        first.append(world.publish(batch)[0].timestamp_us)
    assert first == sorted(set(first)) and first[0] > START_US
    for restart in (lambda: world.tick(1), world.crash, world.stop):
        restart()
        if restart == world.stop:
            world.start()
        assert [world.publish(batch)[0].timestamp_us for batch in batches] == first
    assert [record.timestamp for record in world.read_all()][::2] == first


def test_timestamps_of_apps_are_told_as_they_are_stored(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"timestamp_type": "create"})
    late, early = (batch_of(b"v", producer=n, timestamp=START_US - n * SECOND) for n in (1, 2))
    for _ in range(2):
        assert [p.timestamp_us for p in world.publish(late, early)] == [START_US - SECOND, START_US - 2 * SECOND]


def test_a_duplicate_of_what_is_gone_or_damaged_has_no_timestamp(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 300})
    batches = [batch_of(b"%d" % n * 200, producer=4, sequence=n) for n in range(4)]
    world.publish(*batches)
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(3))
    assert world.partition.log.start == 3
    with open(world.log_path(3), "r+b") as file:
        file.seek(60)
        file.write(b"?")
    again = world.publish(*batches)
    assert [(p.error, p.duplicate, p.timestamp_us) for p in again] == [(0, True, 0)] * 3 + [(0, True, START_US)]


def test_epochs_fence_and_begin_anew(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a", producer=4, epoch=1))
    assert world.publish(batch_of(b"b", producer=4, epoch=0, sequence=1))[0].error == 33
    assert world.publish(batch_of(b"b", producer=4, epoch=2, sequence=1))[0].error == 34
    assert world.publish(batch_of(b"b", producer=4, epoch=2, sequence=0))[0].error == 0
    assert world.publish(batch_of(b"b", producer=4, epoch=1, sequence=1))[0].error == 33


def test_idempotence_survives_kills_and_stops(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000})
    batches = [batch_of(b"%d" % n * 100, producer=4, sequence=n) for n in range(30)]
    for number, batch in enumerate(batches):
        offset = world.publish(batch)[0].base_offset
        if number % 3 == 0:
            world.crash()
        elif number % 3 == 1:
            world.stop()
            world.start()
        else:
            world.tick(2)
        again = world.publish(batch)[0]
        assert again.duplicate and again.base_offset == offset
    assert len(world.read_all()) == 30


# -- epochs -------------------------------------------------------------------------------

def test_the_first_append_of_an_epoch_is_preceded_by_a_leader_change(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a", b"b"))
    world.crash()
    world.crash()
    world.publish(batch_of(b"c"))
    reply = world.ask(Kind.RUNS, messages.Runs(0))
    assert [(c.offset, c.type, c.body) for c in reply.controls] == [
        (0, 2, b"\0\0\0\1" + bytes(8)), (3, 2, b"\0\0\0\3" + (3).to_bytes(8))]
    assert reply.runs == [0, 1, 34, 1, 2, 2, 3, 1, 34, 4, 1, 2]
    asked = {of: world.ask(Kind.END_OF_EPOCH, messages.EndOfEpoch(of)) for of in range(5)}
    assert {of: (reply.epoch, reply.end_offset) for of, reply in asked.items()} == {
        0: (-1, 0), 1: (1, 3), 2: (1, 3), 3: (3, 5), 4: (3, 5)}


def test_another_epoch_than_the_leaders_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.send(produce(batch_of(b"a"), epoch=1)).parts[0].error == 0
    assert world.send(produce(batch_of(b"a"), epoch=0)).parts[0].error == 52
    with pytest.raises(NotLeader):
        world.ask(Kind.RUNS, messages.Runs(0), epoch=2)
    world.lead()
    assert world.send(produce(batch_of(b"a"), epoch=1)).parts[0].error == 52


def test_before_metad_speaks_nothing_is_led(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.crash(lead=False)
    with pytest.raises(NotLeader):
        world.ask(Kind.RUNS, messages.Runs(0))
    assert world.fetch(0)[0].error == 52


# -- time -----------------------------------------------------------------------------------

def test_append_timestamps_never_decrease(tmp_path: Path) -> None:
    world = World(tmp_path)
    stamps = []
    for step_s in (0, 10, -3600, 5, 3600, 3600, -7200, 1):
        world.wall_us += step_s * SECOND
        stamps.append(world.publish(batch_of(b"x"))[0].timestamp_us)
        if step_s == 5:
            world.crash()
        elif step_s == -7200:
            world.stop()
            world.start()
    assert stamps == sorted(stamps)
    assert stamps == [record.timestamp for record in world.read_all()]
    assert stamps[1] == START_US + 10 * SECOND == stamps[2]


@pytest.mark.parametrize("crash", [True, False])
def test_timestamps_after_a_restart_on_an_empty_segment(tmp_path: Path, crash: bool) -> None:
    world = World(tmp_path)
    stamp = world.publish(batch_of(b"x"))[0].timestamp_us
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(-1))
    world.wall_us -= 3600 * SECOND
    assert world.publish(batch_of(b"x"))[0].timestamp_us == stamp
    if crash:
        world.crash()
    assert world.publish(batch_of(b"x"))[0].timestamp_us == stamp


def test_create_timestamps_are_the_producers_within_an_hour(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"timestamp_type": "create"})
    stamps = [START_US + s * SECOND for s in (0, -3599, 3599, 5)]
    for stamp in stamps:
        assert world.publish(batch_of(b"x", timestamp=stamp))[0].error == 0
    for stamp in (START_US + 3601 * SECOND, START_US - 3601 * SECOND):
        assert world.publish(batch_of(b"x", timestamp=stamp))[0].error == 36
    assert [record.timestamp for record in world.read_all()] == stamps


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4000), min_size=1, max_size=30), st.integers(0, 100_000), st.booleans())
def test_offset_for_time_against_a_walk(tmp_path_factory: pytest.TempPathFactory, steps_ms: list[int], ask_ms: int,
                                        restart: bool) -> None:
    world = World(tmp_path_factory.mktemp("t"), settings={"segment_bytes": 900})
    for step in steps_ms:
        world.wall_us += step * 1000
        world.publish(batch_of(b"x" * 100))
    if restart:
        world.stop()
        world.start()
    asked = START_US + ask_ms * 1000
    records = [(0, START_US + steps_ms[0] * 1000), *[(record.offset, record.timestamp) for record in world.read_all()]]
    later = [pair for pair in records if pair[1] >= asked]
    reply = world.ask(Kind.OFFSET_FOR_TIME, messages.OffsetForTime(asked))
    assert (reply.offset, reply.timestamp_us) == (later[0] if later else (records[-1][0] + 1, 0))
    world.core.files.pool.close()


# -- rolls ------------------------------------------------------------------------------------

def test_segments_roll_and_batches_never_straddle(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 2000})
    for number in range(20):
        world.publish(batch_of(*[b"%02d.%d" % (number, i) * 30 for i in range(4)]))
    logs = sorted(tmp_path.glob("logs/t/0/*.log"))
    assert len(logs) > 5
    for log in logs:
        raw = log.read_bytes()
        assert 0 < len(raw) <= 2000
        scan = codec.scan(raw)
        assert scan.reason == "end" and scan.first_offset == int(log.stem)
    assert len(world.read_all()) == 80
    assert [r.offset for r in world.read_all(40)] == list(range(40, 81))


def test_a_turn_that_rolls_in_the_middle(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000})
    produced = world.publish(*[batch_of(b"%d" % n * 300) for n in range(9)])
    assert [p.base_offset for p in produced] == list(range(1, 10))
    assert values(world.read_all()) == [b"%d" % n * 300 for n in range(9)]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000})
    world.publish(batch_of(b"a"), batch_of(b"b" * 5000), batch_of(b"c"))
    assert values(world.read_all()) == [b"a", b"b" * 5000, b"c"]
    assert len(list(tmp_path.glob("logs/t/0/*.log"))) == 3


def test_the_largest_value_and_one_byte_more(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"max_message_bytes": 1000})
    produced = world.publish(batch_of(b"x" * 1000), batch_of(b"x" * 1001), batch_of(None), batch_of(b""))
    assert [p.error for p in produced] == [0, 13, 0, 0]
    assert values(world.read_all()) == [b"x" * 1000, None, b""]


def test_few_descriptors_suffice_for_many_segments(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1000}, partitions=3, open_files_max=8)
    for number in range(60):
        for partition in range(3):
            world.publish(batch_of(b"%d" % number * 100), partition=partition)
        world.tick(0.3)
    for partition in range(3):
        assert len(world.read_all(partition=partition)) == 60
    assert len(world.core.files.pool) <= 8


# -- fsync=every ----------------------------------------------------------------------------------

def test_every_answers_and_shows_only_what_is_synced(tmp_path: Path) -> None:
    world = World(tmp_path, fsync="every", partitions=2)
    world.hold_syncs = True
    calls = [produce(batch_of(b"a")), produce(batch_of(b"b")), produce(batch_of(b"c"), partition=1)]
    for call in calls:
        world.send(call)
    assert not any(call.done for call in calls)
    assert world.fetch(0)[0].high_watermark == 0 and world.fetch(0)[1] == []
    assert len(world.held) == 2                       # one round a partition; b waits for the next
    world.sync()
    assert [call.done for call in calls] == [True, False, True]
    assert values(world.read_all()) == [b"a"]
    assert len(world.held) == 1
    world.sync()
    assert calls[1].done and values(world.read_all()) == [b"a", b"b"]


def test_every_a_duplicate_waits_for_the_sync_of_the_first(tmp_path: Path) -> None:
    world = World(tmp_path, fsync="every")
    world.hold_syncs = True
    first, again = produce(batch_of(b"a", producer=1)), produce(batch_of(b"a", producer=1))
    world.send(first)
    world.send(again)
    assert not first.done and not again.done
    world.sync()
    world.sync()
    assert again.reply.parts[0].duplicate


def test_interval_syncs_once_a_second_and_rests_when_nothing_changes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tick(5)
    assert world.core.next_deadline(world.now, world.wall_us) is None
    world.hold_syncs = True
    world.publish(batch_of(b"a"))
    assert not world.held
    world.tick(0.9)
    assert not world.held
    world.tick(0.2)
    assert len(world.held) == 1
    world.sync()
    world.tick(5)
    assert not world.held and (tmp_path / "logs/t/0/checkpoint").exists()
    deadline = world.core.next_deadline(world.now, world.wall_us)
    assert deadline is not None and deadline > world.now + 3600          # retention, a week from now


def test_none_saves_checkpoints_without_syncs(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world = World(tmp_path, disk=disk, fsync="none", settings={"retention_ms": -1})
    world.publish(batch_of(b"a"))
    world.tick(3)
    assert not disk.synced and (tmp_path / "logs/t/0/checkpoint").exists()
    assert world.core.next_deadline(world.now, world.wall_us) is None
    world.crash()
    assert values(world.read_all()) == [b"a"]


def test_many_partitions_share_few_sync_threads(tmp_path: Path) -> None:
    world = World(tmp_path, fsync="every", partitions=9, syncs_max=2)
    world.hold_syncs = True
    calls = [produce(batch_of(b"x"), partition=n) for n in range(9)]
    world.send(*calls)
    rounds = 0
    while world.held:
        assert len(world.held) <= 2
        rounds += 1
        world.sync()
    assert rounds == 5 and all(call.done for call in calls)


def test_the_reserve_is_for_daemons(tmp_path: Path) -> None:
    class Full(QuickDisk):
        free = 500
        asked = 0

        def free_bytes(self, path: str) -> int:
            self.asked += 1
            return self.free

        def total_bytes(self, path: str) -> int:
            return 10_000

    disk = Full()
    world = World(tmp_path, disk=disk, reserve_bytes=5000)              # a tenth of the disk is the most: 1000
    assert world.publish(batch_of(b"a"))[0].error == 54
    assert world.publish(batch_of(b"b"), internal=True)[0].error == 0
    disk.free = 1300
    one, two = world.publish(batch_of(b"c" * 200), batch_of(b"d" * 200))
    assert (one.error, two.error) == (0, 54)                            # what the turn takes is counted
    disk.free = 1 << 40
    disk.asked = 0
    for _ in range(5):
        world.publish(batch_of(b"e"))
    assert disk.asked == 1                                              # plenty: not looked at each time
    disk.free = 0
    world.tick(0.3)
    assert world.publish(batch_of(b"f"))[0].error == 54
    assert values(world.read_all()) == [b"b", b"c" * 200, *[b"e"] * 5]


def test_topic_settings_come_with_metadata(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(max_message_bytes=10)
    assert world.publish(batch_of(b"x" * 11))[0].error == 13
    assert world.core.catalog.topics[TOPIC].partitions[0].leader == NODE


def test_counters(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a", b"b"), batch_of(b"c", producer=1, sequence=9))
    stats = world.partition.stats
    assert stats.messages_produced == 2                                 # the leader-change record is no message
    change = len(control_frame(ControlType.LEADER_CHANGE, encode_body(ControlType.LEADER_CHANGE, LeaderChange(1, 0))))
    assert stats.bytes_produced + change == world.partition.log.size_bytes == os.path.getsize(world.log_path())
    assert world.core.appends.topics["t"].errors == {"sequence_gap": 1}
    world.fetch(0)
    assert stats.bytes_consumed == stats.bytes_produced + change
    assert rec.HEADER_SIZE < stats.bytes_produced

"""Micro-batches without Spark: every row comes once, whatever appears, vanishes or is asked for again."""

import json
import os
import random
import shutil

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from gq_proto import files, messages
from gq_proto import record as r
from gq_proto.control import ControlType
from gq_proto.messages import Kind
from gq_spark.loss import DataLoss
from gq_spark.rates import shared_out
from gq_spark.source import SCHEMA
from gq_spark.stream import StreamReader, decoded, encoded
from tests.unit.gq_logd.world import TOPIC, World, batch_of
from tests.unit.gq_spark.reads import decide, delayed, finish, micro_batch, offsets, segments, settle, stream

EVERYTHING = ReadAllAvailable()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path, settings={"segment_bytes": 5_000}, partitions=2)
    yield made
    made.stop()


def drained(made, start, limit=EVERYTHING):
    """(rows, offset) of all micro-batches until nothing is left, each through JSON as Spark would have it."""
    found = []
    while True:
        end = json.loads(json.dumps(made.latestOffset(start, limit)))
        if end == start:
            return found, end
        batch = micro_batch(made, start, end)
        assert batch == micro_batch(stream_like(made), start, end), "a batch that is run again is the same"
        found.append(batch)
        start = end


def stream_like(made):
    return StreamReader(made._options, SCHEMA)


def places(batches):
    return [(row["partition"], row["offset"]) for batch in batches for row in batch]


def test_a_stream_begins_at_the_end_unless_told(world):
    world.publish(batch_of(b"1", b"2"))
    settle(world)
    assert stream(world.folder).initialOffset() == {"t": {"id": TOPIC, "partitions": {"0": 3, "1": 0}}}
    assert stream(world.folder, startingOffsets="earliest").initialOffset()["t"]["partitions"] == {"0": 0, "1": 0}
    assert stream(world.folder, startingOffsets='{"t":{"0":2}}').initialOffset()["t"]["partitions"] == {"0": 2, "1": 0}


def test_every_row_once(world):
    chance = random.Random(1)
    made = stream(world.folder, startingOffsets="earliest")
    start, seen, sent, waiting = made.initialOffset(), [], 0, []
    for _ in range(40):
        for partition in (0, 1):
            if chance.random() < 0.8:
                count = chance.randint(1, 9)
                world.publish(batch_of(*(bytes(300) for _ in range(count))), partition=partition)
                sent += count
        if chance.random() < 0.4:
            [one] = world.publish(delayed(b"d"))
            waiting.append(one.base_offset)
        if waiting and chance.random() < 0.3:
            decide(world, ControlType.DELAY_READY, [waiting.pop(0), 1])
            sent += 1
        world.tick(chance.choice([0.2, 2]))
        limit = chance.choice([EVERYTHING, ReadMaxRows(5)])
        end = made.latestOffset(start, limit)
        seen.append(micro_batch(made, start, end))
        start = end
        if chance.random() < 0.1:
            made = stream(world.folder)         # a restart: the checkpoint has the offset, options say latest
    settle(world)
    rest, _ = drained(made, start)
    found = places(seen + rest)
    assert len(found) == len(set(found)) == sent


def test_a_delayed_message_comes_in_the_batch_of_its_ready_record(world):
    world.publish(batch_of(b"a"), delayed(b"d1", b"d2"))
    settle(world)
    made = stream(world.folder, startingOffsets="earliest")
    first, end = drained(made, made.initialOffset())
    assert places(first) == [(0, 1)]
    ready = decide(world, ControlType.DELAY_READY, [3, 1])
    settle(world)
    second, later = drained(made, end)
    assert places(second) == [(0, 3)] and later["t"]["partitions"]["0"] == ready + 1
    decide(world, ControlType.DELAY_CANCELLED, [2, 1])
    settle(world)
    assert places(drained(made, later)[0]) == []


def test_an_open_transaction_holds_the_stream_up(world):
    world.publish(batch_of(b"a"), batch_of(b"t", producer=1, flags=r.TRANSACTIONAL),
                  batch_of(b"u", producer=2, flags=r.TRANSACTIONAL), batch_of(b"b"))
    settle(world)
    made = stream(world.folder, startingOffsets="earliest")
    first, end = drained(made, made.initialOffset())
    assert places(first) == [(0, 1)]
    finish(world, ControlType.ABORT, 1)
    finish(world, ControlType.COMMIT, 2)
    settle(world)
    assert places(drained(made, end)[0]) == [(0, 3), (0, 4)]


def test_a_limit_is_shared_out(world):
    world.publish(batch_of(*(b"x" for _ in range(90))))
    world.publish(batch_of(*(b"y" for _ in range(9))), partition=1)
    settle(world)
    made = stream(world.folder, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxRows(20) and stream(world.folder).getDefaultReadLimit() == EVERYTHING
    batches, _ = drained(made, made.initialOffset(), limit)
    assert len(places(batches)) == 99 and 5 <= len(batches) <= 8
    assert all(len(batch) <= 21 for batch in batches) and {row["partition"] for row in batches[0] + batches[1]} == {0, 1}


def test_shares():
    assert shared_out({"a": 0, "b": 5}, {"a": 10, "b": 5}, 20) == {"a": 10, "b": 5}
    assert shared_out({"a": 0, "b": 0}, {"a": 1000, "b": 1}, 10) == {"a": 9, "b": 1}
    assert shared_out({"a": 7}, {"a": 1000}, 1) == {"a": 8}


def test_available_now_ends_where_it_began(world):
    world.publish(batch_of(*(b"x" for _ in range(10))))
    settle(world)
    made = stream(world.folder, startingOffsets="earliest")
    start = made.initialOffset()
    made.prepareForTriggerAvailableNow()
    world.publish(batch_of(b"later"))
    settle(world)
    batches, end = drained(made, start, ReadMaxRows(4))
    assert len(places(batches)) == 10
    assert made.reportLatestOffset()["t"]["partitions"]["0"] == end["t"]["partitions"]["0"] + 1


def test_partitions_that_appear_are_read_from_their_beginning(world):
    world.publish(batch_of(b"a"))
    settle(world)
    made = stream(world.folder)
    start = made.initialOffset()
    world.count = 3
    world.lead()
    world.publish(batch_of(b"new", b"new"), partition=2)
    settle(world)
    batches, _ = drained(made, start)
    assert places(batches) == [(2, 1), (2, 2)]


def test_what_is_gone_is_an_error_or_a_warning(world, caplog):
    for number in range(60):
        world.publish(batch_of(b"%d" % number + bytes(300)))
    settle(world)
    strict, lax = (stream(world.folder, startingOffsets="earliest", failOnDataLoss=word) for word in ("true", "false"))
    start = strict.initialOffset()
    end = strict.latestOffset(start, EVERYTHING)
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(30))
    settle(world)
    assert int(segments(world)[0].stem) > 0
    with pytest.raises(DataLoss, match="t/0: offsets 0-29"):
        micro_batch(strict, start, end)
    assert offsets(micro_batch(lax, start, end)) == list(range(30, 61)) and "offsets 0-29" in caplog.text
    shutil.rmtree(f"{world.folder}/logs/t/1")
    with pytest.raises(DataLoss, match="t/1: the partition is gone"):
        strict.latestOffset(end, EVERYTHING)
    assert lax.latestOffset(end, EVERYTHING) == end


def test_a_log_that_became_shorter(world, caplog):
    world.publish(batch_of(b"a", b"b"))
    settle(world)
    made, lax = stream(world.folder), stream(world.folder, failOnDataLoss="false")
    start = made.initialOffset()
    path = segments(world)[0]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataLoss, match="ends at offset 2, and 3 was next"):
        made.latestOffset(start, EVERYTHING)
    assert lax.latestOffset(start, EVERYTHING) == start


def test_a_topic_made_anew_is_another(tmp_path):
    old, new = World(tmp_path / "a"), World(tmp_path / "b")
    old.publish(batch_of(*(b"old" for _ in range(20))))
    new.publish(batch_of(b"new"))
    settle(old)
    settle(new)
    made = stream(tmp_path / "a", failOnDataLoss="false")
    start = made.initialOffset()
    strict = stream(tmp_path / "a")
    meta = tmp_path / "b/logs/t/0/partition.meta"
    meta.write_bytes(files.encode_partition_meta(files.PartitionMeta(TOPIC + 1, 0, "t")))
    shutil.rmtree(tmp_path / "a/logs/t")
    os.rename(tmp_path / "b/logs/t", tmp_path / "a/logs/t")
    with pytest.raises(DataLoss, match="made anew"):
        strict.latestOffset(start, EVERYTHING)
    batches, end = drained(made, start)
    assert [row["value"] for batch in batches for row in batch] == [b"new"]
    assert end == {"t": {"id": TOPIC + 1, "partitions": {"0": 2}}}


def test_offsets_as_text():
    ends = {("b", 2, 10): 5, ("b", 2, 9): 6, ("a", 1, 0): 2**60}
    assert decoded(json.loads(json.dumps(encoded(ends)))) == ends
    assert json.dumps(encoded(ends)) == json.dumps(encoded(dict(reversed(ends.items()))))
    assert list(encoded(ends)["b"]["partitions"]) == ["9", "10"]


def test_sealed_segments_are_asked_once_for_their_control_records(world):
    for number in range(60):
        world.publish(batch_of(b"%d" % number + bytes(300)))
    settle(world)
    made = stream(world.folder, startingOffsets="earliest")
    start = made.initialOffset()
    end = made.latestOffset(start, EVERYTHING)
    made.partitions(start, end)
    world.publish(batch_of(b"x"))
    settle(world)
    later = made.latestOffset(end, EVERYTHING)
    made.partitions(end, later)
    assert not [path for path in made._disk.opened if path.endswith(".runs") and segments(world)[-1].stem not in path]

"""Files that are not what their names say: what is lost is told, and nothing is shown that a simple read would hide."""

import os
import shutil

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from gq_proto import codec
from gq_proto import record as r
from gq_proto.compression import compress
from gq_proto.control import ControlType
from gq_proto.errors import BadRequest, UnknownTopic
from gq_spark import arrow
from gq_spark.disk import Disk
from gq_spark.layout import find
from gq_spark.log import Kept, Log
from gq_spark.loss import DataLoss
from tests.unit.gq_logd.world import World, batch_of
from tests.unit.gq_spark.reads import decide, delayed, finish, offsets, reader, rows, segments, settle, stream


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path, settings={"segment_bytes": 3_000})
    yield made
    made.stop()


def fill(world: World) -> list[int]:
    """Several segments; the offsets."""
    for _ in range(30):
        world.publish(batch_of(bytes(400)))
    settle(world)
    return offsets(rows(world.folder))


def test_another_segment_under_a_segments_name(world):
    every, paths = fill(world), segments(world)
    for other in (paths[0], paths[-1]):
        shutil.copy(other, paths[2])
        with pytest.raises(DataLoss, match=paths[2].name):
            rows(world.folder)
        lost = range(int(paths[2].stem), int(paths[3].stem))
        assert offsets(rows(world.folder, failOnDataLoss="false")) == [offset for offset in every if offset not in lost]


def test_a_folder_in_place_of_a_file(world):
    every, paths = fill(world), segments(world)
    for suffix in (".index", ".timeindex", ".runs"):
        derived = paths[2].with_suffix(suffix)
        derived.unlink(missing_ok=True)
        derived.mkdir()
    assert offsets(rows(world.folder, minPartitions=50)) == every
    paths[2].unlink()
    paths[2].mkdir()
    with pytest.raises(DataLoss, match=paths[1].name):
        rows(world.folder)
    left = offsets(rows(world.folder, failOnDataLoss="false"))
    assert left == [offset for offset in every if not int(paths[2].stem) <= offset < int(paths[3].stem)]


def test_a_transaction_whose_end_was_cut_off_is_open(world):
    world.publish(batch_of(b"plain"), batch_of(b"dropped", producer=1, flags=r.TRANSACTIONAL))
    every = offsets(rows(world.folder, isolation="read_uncommitted"))
    finish(world, ControlType.ABORT, 1)
    settle(world)
    path = segments(world)[0]
    os.truncate(path, path.stat().st_size - 1)
    assert offsets(rows(world.folder)) == every[:1]


def test_what_a_stream_keeps_of_a_segment_is_not_taken_for_anothers(tmp_path):
    kept: Kept = {}
    found = []
    for size, delay in ((400, False), (500, True)):
        world = World(tmp_path, settings={"segment_bytes": 3_000})
        if delay:
            world.publish(delayed(b"d"))
            decide(world, ControlType.DELAY_READY, [1, 1])
        for _ in range(20):
            world.publish(batch_of(bytes(size)))
        settle(world)
        world.stop()
        [place] = find(Disk(), [str(tmp_path)], ["t"])
        log = Log(Disk(), place, kept)
        found.append([log.controls(part) for part in log.segments[:2]])
        shutil.rmtree(tmp_path / "logs")
    assert found[0][0][:2] == [0, 1] and found[1][0] != found[0][0]


def test_a_stream_outlives_the_topic_that_it_names(world, caplog):
    fill(world)
    strict, lax = (stream(world.folder, topic="t", startingOffsets="earliest", failOnDataLoss=word) for word in ("true", "false"))
    start = lax.initialOffset()
    shutil.rmtree(f"{world.folder}/logs/t")
    with pytest.raises(UnknownTopic):
        strict.latestOffset(start, ReadAllAvailable())
    assert lax.latestOffset(start, ReadAllAvailable()) == start and "t/0: the partition is gone" in caplog.text
    with pytest.raises(UnknownTopic):
        lax.initialOffset()


def test_offsets_of_what_is_not_there(world):
    fill(world)
    for named in ('{"t": {"1": 0}}', '{"u": {"0": 0}}'):
        for option in ("startingOffsets", "endingOffsets"):
            with pytest.raises(BadRequest, match=f"option {option} names ./.: there is no such partition"):
                rows(world.folder, **{option: named})
        with pytest.raises(BadRequest, match="option startingOffsets names"):
            stream(world.folder, startingOffsets=named).initialOffset()


def compressed(*values: bytes) -> bytes:
    builder = codec.BatchBuilder()
    for value in values:
        builder.add(b"", value, flags=r.COMPRESSED, codec=r.CODEC_ZSTD)
    return builder.seal()


def test_values_that_are_a_thousand_times_longer_than_stored(world, monkeypatch):
    monkeypatch.setattr(arrow, "PLAIN_BYTES", 100_000)
    world.publish(batch_of(None, b""), compressed(*[compress(bytes(40_000))] * 10), batch_of(b"last"))
    settle(world)
    made = reader(world.folder)
    batches = [batch for split in made.partitions() for batch in made.read(split)]
    assert [len(value or b"") for batch in batches for value in batch["value"].to_pylist()] == [0, 0, *[40_000] * 10, 4]
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(1, 14))
    assert max(batch.nbytes for batch in batches) < 100_000 + 40_000 + 1000


def test_a_value_that_does_not_decompress(world, caplog):
    world.publish(batch_of(b"a"), compressed(b"rubbish", compress(b"b"), b"", b"rubbish"), batch_of(b"c"))
    settle(world)
    with pytest.raises(DataLoss, match="t/0: offset 2: a compressed value is not zstd"):
        rows(world.folder)
    left = rows(world.folder, failOnDataLoss="false")
    assert [(row["offset"], row["value"]) for row in left] == [(1, b"a"), (3, b"b"), (6, b"c")]
    assert "t/0: offset 5: " in caplog.text

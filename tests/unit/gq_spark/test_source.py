"""Rows of a batch against a simple read of the same log, whatever is in it; splits, filters, loss."""

import itertools
import os
import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from gq_proto import codec, messages
from gq_proto import record as r
from gq_proto.control import ControlType
from gq_proto.errors import BadRequest, UnknownTopic
from gq_proto.messages import Kind
from gq_spark import layout, planning, source
from gq_spark import reading as reading_module
from gq_spark.loss import DataLoss
from gq_spark.source import SCHEMA, GoQueue
from tests.samples import ZSTD
from tests.unit.gq_logd.world import START_US, World, batch_of
from tests.unit.gq_spark.reads import (
    decide,
    delayed,
    finish,
    offsets,
    plain,
    reader,
    rows,
    rows_of,
    segments,
    settle,
    shown,
    without_derived,
)


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path, settings={"segment_bytes": 20_000})
    yield made
    made.stop()


def fill(world: World, count: int = 300, size: int = 400) -> None:
    """Several segments, a second apart, so that there are points in time."""
    for number in range(0, count, 10):
        world.publish(batch_of(*(b"%d" % (number + n) + bytes(size) for n in range(10)), priorities=(2, 0, 2, 4)))
        world.tick(1.5)
    settle(world)


# -- what a row is --------------------------------------------------------------------------------------------------------

def odd_batch() -> bytes:
    builder = codec.BatchBuilder()
    headers = codec.encode_headers([("é", b"\xff\xfe"), ("", b""), ("a", b"1"), ("a", b"2")])
    for number, (key, value) in enumerate(itertools.product((None, b"", b"k\x00"), (None, b"", b"\xff" * 50))):
        builder.add(key, value, headers=headers if number % 2 else b"", priority=number % 5)
    builder.add(b"z", ZSTD, flags=r.COMPRESSED, codec=1)
    return builder.seal(5, 0, 0)


def test_rows_are_what_a_simple_read_gives(world):
    world.publish(odd_batch(), batch_of(b"x" * 30_000))
    settle(world)
    found = [plain(row) for row in rows(world.folder)]
    assert found == [shown(record) for record in world.read_all()]
    assert {row["key"] for row in found} >= {None, b"", b"k\x00"} and {row["value"] for row in found} >= {None, b""}
    assert found[0]["headers"] is None and found[1]["headers"][0] == {"key": "é", "value": b"\xff\xfe"}
    assert b"the quick brown fox " * 8 in [row["value"] for row in found]
    assert {row["priority"] for row in found} == {0, 1, 2, 3, 4}


def test_some_of_the_columns_in_any_order(world):
    fill(world, 20)
    schema = StructType([StructField("offset", LongType()), StructField("partition", IntegerType())])
    made = reader(world.folder, schema=schema)
    assert rows_of(made)[3] == {"offset": 4, "partition": 0}
    assert list(rows_of(made)[3]) == ["offset", "partition"]
    with pytest.raises(BadRequest, match="column offset int"):
        GoQueue({"path": world.folder}).reader(StructType([StructField("offset", IntegerType())]))


def test_batches_are_what_spark_expects(world):
    fill(world, 20)
    made = reader(world.folder)
    batches = [batch for split in made.partitions() for batch in made.read(split)]
    for batch in batches:
        assert isinstance(batch, pa.RecordBatch) and batch.schema.equals(to_arrow_schema(SCHEMA, timezone="UTC"))
        batch.validate(full=True)


def test_a_topic_without_messages_and_an_empty_partition(tmp_path):
    world = World(tmp_path, partitions=3)
    settle(world)
    assert rows(tmp_path) == []
    world.publish(batch_of(b"1"), partition=1)
    settle(world)
    assert [(row["partition"], row["value"]) for row in rows(tmp_path)] == [(1, b"1")]
    world.stop()


def test_a_hundred_partitions_share_splits(tmp_path):
    world = World(tmp_path, partitions=100)
    for number in range(100):
        world.publish(batch_of(b"%d" % number, b"x"), partition=number)
    settle(world)
    made = reader(tmp_path)
    splits = made.partitions()
    found = rows_of(made, splits)
    assert sorted((row["partition"], row["offset"]) for row in found) == [(n, o) for n in range(100) for o in (1, 2)]
    assert len(splits) < 10
    assert len(reader(tmp_path, minPartitions=50).partitions()) >= 50
    world.stop()


# -- what is seen of it -------------------------------------------------------------------------------------------------

def test_nothing_above_the_checkpoint_unless_uncommitted(world):
    fill(world, 20)
    world.hold_syncs = True
    world.publish(batch_of(b"new"))
    assert offsets(rows(world.folder)) == list(range(1, 21))
    assert offsets(rows(world.folder, isolation="read_uncommitted")) == list(range(1, 22))


def test_without_a_checkpoint_the_last_valid_record_is_the_end(world):
    fill(world, 20)
    for damage in (b"", b"rubbish"):
        with open(f"{world.folder}/logs/t/0/checkpoint", "wb") as file:
            file.write(damage)
        assert offsets(rows(world.folder)) == list(range(1, 21))


def test_a_torn_tail_is_not_there(world):
    fill(world, 20)
    whole = segments(world)[-1].read_bytes()
    for cut in (1, 100, 470):
        segments(world)[-1].write_bytes(whole + whole[:500][:-cut])
        assert offsets(rows(world.folder, isolation="read_uncommitted")) == list(range(1, 21))
    segments(world)[-1].write_bytes(whole[:-10])
    assert offsets(rows(world.folder)) == list(range(1, 20)), "synced or not: the last record is cut"


def test_delayed_messages_come_at_their_ready_record(world):
    world.publish(batch_of(b"a"), delayed(b"d1", b"d2", b"d3"), batch_of(b"b"))     # offsets 1, 2-4, 5
    fill(world, 100)
    cancelled = decide(world, ControlType.DELAY_CANCELLED, [3, 1])
    ready = decide(world, ControlType.DELAY_READY, [2, 2])          # logd drops what was cancelled
    world.publish(batch_of(b"c"))
    settle(world)
    found = rows(world.folder)
    assert sorted(offsets(found)) == [1, 2, *range(5, 106), ready + 1]
    assert found[-1]["offset"] == 2 or found[-2]["offset"] == 2, "at its ready record, not where it lies"
    assert [row["headers"] for row in found if row["offset"] == 2] == [[{"key": "u", "value": b"1"}]]
    # Positions are the ready records', values their own.
    assert offsets(rows(world.folder, startingOffsets=f'{{"t": {{"0": {ready}}}}}')) == [ready + 1, 2]
    assert sorted(offsets(rows(world.folder, endingOffsets=f'{{"t": {{"0": {ready}}}}}'))) == [1, *range(5, 106)]
    assert sorted(offsets(rows(world.folder, includeDelayed="true"))) == [1, 2, *range(4, 106), ready + 1]
    assert offsets(rows(world.folder, [LessThan(("offset",), 5)])) == [1, 2]
    assert offsets(rows(world.folder, [EqualTo(("offset",), 2)])) == [2]
    assert offsets(rows(world.folder, [EqualTo(("offset",), 4)])) == [], "not due yet"
    assert cancelled < ready


def test_a_ready_message_below_the_log_start_has_expired(world):
    world.publish(delayed(b"d1"))
    fill(world, 200)
    decide(world, ControlType.DELAY_READY, [1, 1])
    settle(world)
    assert 1 in offsets(rows(world.folder))
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(100))
    settle(world)
    assert offsets(rows(world.folder)) == list(range(100, 202))


def test_transactions(world):
    world.publish(batch_of(b"keep", producer=1, flags=r.TRANSACTIONAL),
                  batch_of(b"drop", b"drop", producer=2, flags=r.TRANSACTIONAL), batch_of(b"plain"))
    fill(world, 100)
    finish(world, ControlType.ABORT, 2)
    finish(world, ControlType.COMMIT, 1)
    world.publish(batch_of(b"open", producer=3, flags=r.TRANSACTIONAL), batch_of(b"behind"))
    settle(world)
    expected = [shown(record) for record in world.read_all()]
    assert [plain(row) for row in rows(world.folder)] == expected and len(expected) == 102
    everything = {b"drop", b"open", b"behind"} | {row["value"] for row in expected}
    assert {row["value"] for row in rows(world.folder, isolation="read_uncommitted")} == everything
    for names in ((".txnindex",), (".index", ".timeindex", ".runs", ".due", ".txnindex")):
        without_derived(world, names)
        assert [plain(row) for row in rows(world.folder)] == expected
    os.remove(f"{world.folder}/logs/t/0/checkpoint")
    assert [plain(row) for row in rows(world.folder)] == expected


def test_control_records_are_rows_when_asked_for(world):
    world.publish(batch_of(b"a"))
    settle(world)
    assert offsets(rows(world.folder, includeControl="true")) == [0, 1]
    assert rows(world.folder, includeControl="true")[0]["flags"] == r.CONTROL


@pytest.mark.parametrize("seed", range(12))
def test_random_logs_against_a_simple_read(tmp_path, seed):
    chance = random.Random(seed)
    world = World(tmp_path, settings={"segment_bytes": chance.choice([3_000, 20_000])})
    waiting: list[int] = []
    gone: set[int] = set()
    for _ in range(60):
        what = chance.random()
        if what < 0.5:
            size = chance.choice([0, 10, 900])
            world.publish(batch_of(*(bytes(size) for _ in range(chance.randint(1, 8))), priorities=(2, 1)))
        elif what < 0.7:
            [made] = world.publish(delayed(*(b"d" for _ in range(chance.randint(1, 4)))))
            waiting += range(made.base_offset, world.partition.log.end)
        elif waiting:
            chosen = sorted(chance.sample(waiting, chance.randint(1, len(waiting))))
            waiting = [offset for offset in waiting if offset not in chosen]
            cancel = chance.random() < 0.3
            gone |= set(chosen) if cancel else set()
            decide(world, ControlType.DELAY_CANCELLED if cancel else ControlType.DELAY_READY, codec.ranges_of(chosen))
        if chance.random() < 0.1:
            world.crash()
        world.tick(chance.choice([0.1, 2]))
    settle(world)
    expected = {record.offset: shown(record) for record in world.read_all()}
    if chance.random() < 0.3:
        without_derived(world)
    for options in ({}, {"minPartitions": 7}, {"minPartitions": 1000}):
        found = [plain(row) for row in rows(tmp_path, **options)]
        assert len({row["offset"] for row in found}) == len(found)
        assert {row["offset"]: row for row in found} == expected
    shown_early = offsets(rows(tmp_path, includeDelayed="true"))
    assert sorted(shown_early) == sorted({*expected, *waiting} - gone)
    # Any two stretches that meet give what one gives.
    middle = chance.randint(0, world.partition.log.end)
    parts = [rows(tmp_path, endingOffsets=f'{{"t":{{"0":{middle}}}}}'), rows(tmp_path, startingOffsets=f'{{"t":{{"0":{middle}}}}}')]
    assert sorted(offsets(parts[0]) + offsets(parts[1])) == sorted(expected)
    # Filters leave what Spark would.
    low, high = sorted(chance.sample(range(world.partition.log.end + 1), 2))
    kept = offsets(rows(tmp_path, [GreaterThanOrEqual(("offset",), low), LessThan(("offset",), high)]))
    assert {offset for offset in kept if low <= offset < high} == {offset for offset in expected if low <= offset < high}
    world.stop()


# -- splits and pruning -----------------------------------------------------------------------------------------------------

def test_one_segment_spreads_over_splits(world, monkeypatch):
    fill(world, 40, size=450)
    assert len(segments(world)) == 1
    made = reader(world.folder, minPartitions=4)
    splits = made.partitions()
    assert 4 <= len(splits) <= 6
    assert offsets(rows_of(made, splits)) == list(range(1, 41))
    monkeypatch.setattr(planning, "SPLIT_BYTES_LEAST", 4000)
    assert 3 <= len(reader(world.folder).partitions()) <= 2 * source.CORES + 1


def test_records_longer_than_a_chunk(world, monkeypatch):
    monkeypatch.setattr(reading_module, "CHUNK", 1000)
    world.publish(batch_of(b"a", bytes(5000), b"b", bytes(900)), batch_of(bytes(12_000)))
    settle(world)
    assert [len(row["value"]) for row in rows(world.folder)] == [1, 5000, 1, 900, 12_000]


def at(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def test_filters_leave_files_closed(world):
    fill(world)
    every = rows(world.folder)
    assert len(segments(world)) >= 6
    whole = reader(world.folder)
    rows_of(whole)
    late = plain(every[-5])["timestamp"]
    made = reader(world.folder, [GreaterThanOrEqual(("timestamp",), at(late))])
    found = rows_of(made)
    assert offsets(found)[-5:] == offsets(every)[-5:] and len(found) < 40
    assert made.disk.logs_opened == 1 < len(segments(world)) == whole.disk.logs_opened    # the live one, for its end
    assert made.disk.bytes_read * 5 < whole.disk.bytes_read
    made = reader(world.folder, [GreaterThan(("offset",), 150), LessThanOrEqual(("offset",), 152)])
    assert {151, 152} <= set(offsets(rows_of(made))) and made.disk.logs_opened == 2
    for filters in ([EqualTo(("partition",), 1)], [In(("topic",), ("u", "v"))], [EqualTo(("offset",), 9999)]):
        made = reader(world.folder, filters)
        assert rows_of(made) == [] and made.disk.logs_opened <= 1


@pytest.mark.parametrize("kind", ["append", "create"])
def test_filters_and_options_of_time(tmp_path, kind):
    chance = random.Random(kind)
    world = World(tmp_path, settings={"segment_bytes": 20_000, "timestamp_type": kind})
    for _ in range(150):
        skew = chance.randint(-3_500_000_000, 3_500_000_000) if kind == "create" else 0
        world.publish(batch_of(bytes(700), timestamp=world.wall_us + skew))
        world.wall_us += 200_000_000
        world.tick(1)
    settle(world)
    every = [plain(row) for row in rows(tmp_path)]
    for step in range(40):
        low = START_US + step * 800_000_000 + chance.choice([-1, 0, 1])
        high = low + chance.choice([1, 1_000_000_000, 20_000_000_000])
        made = reader(tmp_path, [GreaterThanOrEqual(("timestamp",), at(low)), LessThan(("timestamp",), at(high))])
        kept = [row for row in map(plain, rows_of(made)) if low <= row["timestamp"] < high]
        assert kept == [row for row in every if low <= row["timestamp"] < high]
        first = next((row["offset"] for row in every if row["timestamp"] >= low), 10**9)
        assert offsets(rows(tmp_path, startingTimestamp=at(low).isoformat())) == [o for o in offsets(every) if o >= first]
        assert offsets(rows(tmp_path, endingTimestamp=at(low).isoformat())) == [o for o in offsets(every) if o < first]
    without_derived(world)
    low = every[70]["timestamp"]
    found = [row for row in map(plain, rows(tmp_path, [GreaterThanOrEqual(("timestamp",), at(low))])) if row["timestamp"] >= low]
    assert found == [row for row in every if row["timestamp"] >= low]
    world.stop()


def test_spark_takes_the_reader_for_one_without_filters(world):
    fill(world, 10)
    made = reader(world.folder)
    assert made.pushFilters.__func__ is DataSourceReader.pushFilters      # its check while pushing down is off
    given = [EqualTo(("offset",), 3), EqualTo(("value",), b"")]
    assert list(made.pushFilters(given)) == given
    assert offsets(rows(world.folder, given, pushFilters="false")) == list(range(1, 11))


# -- loss ---------------------------------------------------------------------------------------------------------------------

def test_a_segment_that_retention_took_after_planning(world, caplog):
    fill(world)
    made, lax = reader(world.folder), reader(world.folder, failOnDataLoss="false")
    splits, first = made.partitions(), segments(world)[0]
    os.remove(first)
    with pytest.raises(DataLoss, match=first.name):
        rows_of(made, splits)
    left = offsets(rows_of(lax, splits))
    assert left == list(range(int(segments(world)[0].stem), 301))
    assert first.name in caplog.text


def test_a_corrupt_sealed_segment(world, caplog):
    fill(world)
    path = segments(world)[1]
    base, raw = int(path.stem), bytearray(path.read_bytes())
    where = raw.index(b"GQ\x01", 3000)
    for place in (where + 60, where + 30, where):       # in the value, in the length of the value, in the magic
        damaged = bytearray(raw)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(DataLoss, match=rf"{path.name}: the record at position {where} "):
            rows(world.folder)
        caplog.clear()
        found = offsets(rows(world.folder, failOnDataLoss="false"))
        bad = int.from_bytes(raw[where + 8 : where + 16])
        assert found == [offset for offset in range(1, 301) if offset != bad] and base < bad
        assert caplog.text.count("going on with the rest") == 1
    path.write_bytes(raw[:where + 5])
    with pytest.raises(DataLoss, match=path.name):
        rows(world.folder)
    following = int(segments(world)[2].stem)
    lost = range(int.from_bytes(raw[where + 8 : where + 16]), following)
    assert offsets(rows(world.folder, failOnDataLoss="false")) == [offset for offset in range(1, 301) if offset not in lost]


def test_offsets_that_are_gone(world):
    fill(world)
    os.remove(segments(world)[0])
    start = int(segments(world)[0].stem)
    assert offsets(rows(world.folder)) == list(range(start, 301))       # earliest is what there is
    with pytest.raises(DataLoss, match=f"t/0: offsets 3-{start - 1} "):
        rows(world.folder, startingOffsets='{"t": {"0": 3}}')
    assert offsets(rows(world.folder, startingOffsets='{"t": {"0": 3}}', failOnDataLoss="false")) == list(range(start, 301))


def test_a_topic_that_is_not_there(world):
    with pytest.raises(UnknownTopic, match="topic nope is not in"):
        rows(world.folder, topic="nope")
    assert rows(world.folder, topic="nope*") == []


def test_a_segment_that_retention_takes_while_it_is_planned(world, monkeypatch, caplog):
    fill(world)
    first, listed = segments(world)[0], layout.find

    def find(*args):
        places = listed(*args)
        for suffix in (".log", ".index", ".timeindex", ".runs"):
            first.with_suffix(suffix).unlink(missing_ok=True)
        return places
    monkeypatch.setattr(layout, "find", find)
    kept = first.read_bytes()
    left = list(range(int(segments(world)[1].stem), 301))
    assert offsets(rows(world.folder, startingTimestamp=START_US / 1e6)) == left, "the first that is as new"
    for options in ({}, {"minPartitions": 20}, {"includeDelayed": "true"}):
        first.write_bytes(kept)
        with pytest.raises(DataLoss, match=first.name):
            rows(world.folder, **options)
        first.write_bytes(kept)
        assert offsets(rows(world.folder, failOnDataLoss="false", **options)) == left

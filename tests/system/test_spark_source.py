"""Batches: what Spark reads from a live node's files is what a client reads from its daemons."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gq_proto.headers import user_headers
from tests.system.harness import ROOT, Node, until
from tests.unit.gq_logd.world import START_US, World, batch_of

ZONES = ("UTC", "Asia/Kolkata")
PUSHING = "spark.sql.python.filterPushdown.enabled"


def load(spark: Any, path: object, topic: str, **options: object) -> Any:
    return spark.read.format("goqueue").options(topic=topic, **options).load(str(path))


def rows(frame: Any) -> dict[tuple[int, int], Any]:
    """By partition and offset, each there once."""
    listed = frame.collect()
    found = {(row["partition"], row["offset"]): row for row in listed}
    assert len(found) == len(listed)
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions, several segments, a message a minute; written by logd's core."""
    folder = tmp_path_factory.mktemp("log")
    world = World(folder, settings={"segment_bytes": 20_000}, partitions=2)
    for number in range(200):
        world.publish(batch_of(b"%d" % number + bytes(400)), partition=number % 2)
        world.tick(60)
    world.tick(3)
    world.stop()
    return folder


def test_rows_of_a_live_topic_equal_a_simple_read(spark, shared_node: Node):
    client = shared_node.client()
    client.create_topic("mixed", partitions=3)
    values = (None, b"", b"x" * 3000, b"\xff\xfe")
    for number, (key, value) in enumerate(itertools.product((None, b"", b"k", b"\xc3\x28"), values)):
        client.publish("mixed", value, key, partition=number % 2, priority=number % 5, compress="zstd" if number % 3 else None,
                       headers=[("é", b"\xff\xfe"), ("a", b""), ("a", b"2")] if number % 2 else None)
    soon = client.publish("mixed", b"soon", partition=0, delay=0.05)
    late = client.publish("mixed", b"late", partition=0, delay=500)
    gone = client.publish("mixed", b"gone", partition=1, delay=500)
    client.cancel_delayed("mixed", [gone])
    marks = client.publish("mixed", b"last", partition=1)

    def complete() -> Any:
        found = rows(load(spark, shared_node.data, "mixed"))
        return found if {(0, soon.offset), (1, marks.offset)} <= found.keys() else None
    found = until(complete, "the checkpoints vouch for all of it", every=0.3)
    expected = {}
    for partition in range(3):
        with client.reader("mixed", partition, stop_at_end=True) as reader:
            for message in reader:
                expected[partition, message.offset] = message
    assert found.keys() == expected.keys() and (0, late.offset) not in found and (1, gone.offset) not in found
    for place, message in expected.items():
        row = found[place]
        assert (row.topic, row.key, row.value, row.priority) == ("mixed", message.key, message.value, message.priority)
        assert [tuple(header) for header in row.headers or ()] == [(n, bytes(v)) for n, v in user_headers(message.headers)]
        assert row.timestamp.timestamp() == pytest.approx(message.timestamp / 1e6, abs=1e-6)
    both = rows(load(spark, shared_node.data, "mixed", includeDelayed="true"))
    assert both.keys() == found.keys() | {(0, late.offset)}


def test_reading_while_a_producer_appends(spark, shared_node: Node):
    client, stop = shared_node.client(), threading.Event()
    client.create_topic("growing", partitions=2)

    def produce() -> None:
        with client.producer() as producer:
            for number in itertools.count():
                if stop.is_set():
                    return
                producer.send("growing", b"%d" % number + bytes(200), partition=number % 2)
                if number % 50 == 0:
                    stop.wait(0.01)
    thread = threading.Thread(target=produce)
    thread.start()
    try:
        before: dict[int, int] = {}
        for isolation in ("read_committed", "read_uncommitted", "read_committed"):
            def counts(isolation: str = isolation) -> Any:
                frame = load(spark, shared_node.data, "growing", isolation=isolation)
                return frame.groupBy("partition").agg({"offset": "max", "*": "count"}).collect()
            for row in until(counts, "there is something to read", every=0.2):
                assert row["count(1)"] == row["max(offset)"], "offset 0 is a control record: nothing is missing, nothing twice"
                if isolation == "read_committed":
                    assert row["count(1)"] > before.get(row["partition"], 0)
                    before[row["partition"]] = row["count(1)"]
    finally:
        stop.set()
        thread.join()


def test_moments_are_the_same_in_every_session_time_zone(spark, log: Path):
    from pyspark.sql import functions as F
    frame = load(spark, log, "t").where("partition = 0 and offset <= 2")
    seen = {}
    try:
        for zone in ZONES:
            spark.conf.set("spark.sql.session.timeZone", zone)
            us, text = F.unix_micros("timestamp"), F.col("timestamp").cast("string").substr(1, 16)
            seen[zone] = frame.where(f"timestamp >= timestamp_micros({START_US})").select("offset", us, text).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert len({tuple(row[:2] for row in found) for found in seen.values()}) == 1 and len(seen["UTC"]) == 2
    assert START_US <= seen["UTC"][0][1] < START_US + 1_000_000
    assert len({found[0][2] for found in seen.values()}) == len(ZONES), "the same moments, each in its zone's words"


def test_filters_are_pushed_where_spark_allows_it(spark, log: Path):
    """Spark keeps what was pushed with the load(): hence one for each query, and none is pushed without the option."""
    late = START_US + 190 * 60_000_000
    options = {"minPartitions": 16, "pushFilters": "true"}
    spark.conf.set(PUSHING, "true")
    try:
        for one, count, most in ((f"timestamp >= timestamp_micros({late})", 10, 4),
                                 ("topic = 't' and partition = 1 and offset between 10 and 12", 3, 2)):
            kept = load(spark, log, "t", **options).where(one)
            assert kept.count() == count and kept.rdd.getNumPartitions() <= most
        whole = load(spark, log, "t", minPartitions=16)
        assert whole.where("offset >= 98").union(whole.where("offset <= 2")).count() == 10
        assert whole.count() == 200
    finally:
        spark.conf.set(PUSHING, "false")
    kept = load(spark, log, "t", **options).where("offset >= 98")
    assert kept.count() == 6 and kept.rdd.getNumPartitions() >= 16, "nothing is pushed, and it works"


def test_a_schema_of_some_columns(spark, log: Path):
    frame = spark.read.format("goqueue").schema("value binary, offset bigint").load(str(log))
    assert frame.where("offset = 5").collect()[0].asDict().keys() == {"value", "offset"}
    with pytest.raises(Exception, match="column offset string"):
        spark.read.format("goqueue").schema("offset string").load(str(log)).count()


def test_errors_say_what_to_do(spark, log: Path, tmp_path: Path):
    for options, text in (({"topic": "nope"}, "topic nope is not in"), ({"startingOffset": "0"}, "startingoffset is unknown"),
                          ({"isolation": "none"}, "use read_committed or read_uncommitted")):
        with pytest.raises(Exception, match=text):
            spark.read.format("goqueue").options(**options).load(str(log)).count()
    shutil.copytree(log, tmp_path / "copy")
    path = sorted((tmp_path / "copy/logs/t/0").glob("*.log"))[1]
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"GQ\x01", 5000) + 100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Exception, match=rf"{path.name}: the record at position \d+ does not match its CRC"):
        load(spark, tmp_path / "copy", "t").count()
    assert load(spark, tmp_path / "copy", "t", failOnDataLoss="false").count() == 199


def test_it_ships_as_a_zip(log: Path, tmp_path: Path):
    """What --py-files sends: pure Python, on a machine where GoQueue is not installed."""
    from gq_spark.__main__ import pack
    archive = tmp_path / "goqueue.zip"
    pack(archive)
    assert not [name for name in zipfile.ZipFile(archive).namelist() if name.endswith((".so", ".pyx", ".c"))]
    site = Path(sys.modules["pyspark"].__file__).parents[1]
    code = ("import gq_proto, gq_proto.codec, gq_spark.source as s\n"
            "assert '.zip' in gq_proto.__file__ and gq_proto.codec.NAME == 'pure'\n"
            f"r = s.GoQueue({{'path': {str(log)!r}}}).reader(s.SCHEMA)\n"
            "print(sum(batch.num_rows for split in r.partitions() for batch in r.read(split)))")
    # -S: no .pth file leads to this checkout
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=100, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(archive), str(site)]), "GOQUEUE_CODEC": ""})
    assert done.stdout == "200\n", done.stderr
    assert ROOT not in tmp_path.parents

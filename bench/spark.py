"""Spark over the segment files: one JSON object a row. All rows of a run read the same messages, on local[2], in one session.

    python -m bench.spark                      all of them (2M x 1 KB, about five minutes and 8 GB of disk)
    python -m bench.spark --messages 200000 scan ready

    scan        count, sum(length(value)), max(offset) over the log, through format("goqueue")
    ready       the same from a data source that yields one ready-made Arrow batch of that size again and again: what PySpark takes
    parquet     the same from Parquet files that hold the same rows
    json        and from JSON lines (values in base64)
    pulled      and from a consumer in each task that pulls the messages through logd and hands Spark row by row (a tenth of them)
    filter      scan with a timestamp filter that keeps the last 1%, pushed down: seconds, and the bytes read and segments opened
                beside those of a whole scan

`of_scan` is a row's rate over that of the scan.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThanOrEqual, InputPartition
from pyspark.sql.types import StructType

import gq_spark
from bench import ground
from gq_spark.options import parse
from gq_spark.source import SCHEMA, Reader
from tests.system.harness import ROOT, Node, until

TOPIC = "bench"
PARTITIONS = 4
PULLED_SHARE = 10
PUSHING = "spark.sql.python.filterPushdown.enabled"


class Ready(DataSource):
    """`like`: a data directory to take a batch of; `rows`: how many in all."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ReadyReader(self.options["like"], int(self.options["rows"]))


class _ReadyReader(DataSourceReader):
    def __init__(self, like: str, rows: int) -> None:
        self.like, self.rows = like, rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(4 * PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        reader = whole(self.like)
        batch = next(reader.read(reader.partitions()[0]))
        left = self.rows // (4 * PARTITIONS)
        while left > 0:
            yield batch[:left]
            left -= len(batch)


class Pulled(DataSource):
    """`data`: a node's data directory; `rows`: about how many."""

    @classmethod
    def name(cls) -> str:
        return "pulled"

    def schema(self) -> str:
        return "partition int, offset bigint, timestamp bigint, key binary, value binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _PulledReader(self.options["data"], int(self.options["rows"]))


class _PulledReader(DataSourceReader):
    def __init__(self, data: str, rows: int) -> None:
        self.data, self.rows = data, rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        import gq_client
        left = self.rows // PARTITIONS
        with gq_client.Client(data_dir=self.data) as client, client.reader(TOPIC, partition.value, stop_at_end=True) as reader:
            for message in reader:
                yield partition.value, message.offset, message.timestamp, message.key, message.value
                left -= 1
                if not left:
                    return


def whole(data: str, **options: str) -> Reader:
    return Reader(parse({"path": data, "topic": TOPIC, **options}), SCHEMA)


class Bench:
    def __init__(self, args: argparse.Namespace, spark: SparkSession, node: Node) -> None:
        self.args, self.spark, self.node = args, spark, node
        self.data = str(node.data)
        self.scan_rate = 0.0

    def fill(self) -> None:
        self.node.client().create_topic(TOPIC, partitions=PARTITIONS)
        ground.apart(ground.fill, self.data, TOPIC, self.args.size, self.args.messages)
        until(lambda: self.rows(self.load()) >= self.args.messages, "the checkpoints vouch for all of it", every=1.0)

    def load(self, **options: str) -> DataFrame:
        return self.spark.read.format("goqueue").options(topic=TOPIC, **options).load(self.data)

    def rows(self, frame: DataFrame) -> int:
        return int(frame.agg(F.count("*"), F.sum(F.length("value")), F.max("offset")).collect()[0][0])

    def timed(self, make: Callable[[], DataFrame], least: int) -> dict[str, Any]:
        """The median of `repeat` runs, each of a DataFrame of its own."""
        took, count = [], 0
        for _ in range(self.args.repeat):
            start = time.perf_counter()
            count = self.rows(make())
            took.append(time.perf_counter() - start)
        assert count >= least, f"{count} of {least} rows"
        seconds = statistics.median(took)
        figures = {"msgs_per_s": round(count / seconds), "seconds": round(seconds, 2), "count": count}
        return figures | ({"of_scan": round(figures["msgs_per_s"] / self.scan_rate, 3)} if self.scan_rate else {})

    # -- rows --------------------------------------------------------------------------------

    def scan(self) -> dict[str, Any]:
        figures = self.timed(self.load, self.args.messages)
        self.scan_rate = figures["msgs_per_s"]
        return figures

    def ready(self) -> dict[str, Any]:
        return self.timed(lambda: self.spark.read.format("ready").options(like=self.data, rows=self.args.messages).load(),
                          self.args.messages * 9 // 10)

    def parquet(self) -> dict[str, Any]:
        path = str(self.node.folder / "parquet")
        self.load().write.parquet(path)
        return self.timed(lambda: self.spark.read.parquet(path), self.args.messages)

    def json(self) -> dict[str, Any]:
        path = str(self.node.folder / "json")
        self.load().withColumn("value", F.base64("value")).withColumn("key", F.base64("key")).write.json(path)
        schema = "topic string, partition int, offset bigint, timestamp timestamp, key string, value string"
        figures = self.timed(lambda: self.spark.read.schema(schema).json(path), self.args.messages)
        shutil.rmtree(path)
        return figures

    def pulled(self) -> dict[str, Any]:
        rows = self.args.messages // PULLED_SHARE
        return self.timed(lambda: self.spark.read.format("pulled").options(data=self.data, rows=rows).load(), rows * 9 // 10)

    def filter(self) -> dict[str, Any]:
        every = whole(self.data)
        times = sorted(us for split in every.partitions() for batch in every.read(split)
                       for us in batch.column("timestamp").cast("int64").to_pylist())
        since = times[len(times) * 99 // 100]
        kept = whole(self.data, pushFilters="true")
        kept.pushFilters([GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since))])
        read = sum(len(batch) for split in kept.partitions() for batch in kept.read(split))
        self.spark.conf.set(PUSHING, "true")
        figures = self.timed(lambda: self.load(pushFilters="true").where(f"timestamp >= timestamp_micros({since})"), 1)
        self.spark.conf.set(PUSHING, "false")
        return {"seconds": figures["seconds"], "kept": figures["count"], "rows_read": read,
                "bytes_read": kept.disk.bytes_read, "bytes_of_all": every.disk.bytes_read,
                "times_less": round(every.disk.bytes_read / kept.disk.bytes_read, 1),
                "segments_opened": kept.disk.logs_opened, "segments": every.disk.logs_opened}


ROWS = ("scan", "ready", "parquet", "json", "pulled", "filter")


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "spark")))
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "2g"}
    made: SparkSession = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    gq_spark.register(made)
    for source in (Ready, Pulled):
        made.dataSource.register(source)
    return made


def main() -> None:
    parser = ground.parser("spark", __doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.set_defaults(repeat=3)
    args = parser.parse_args()
    unknown = set(args.rows) - set(ROWS)
    if unknown:
        parser.error(f"unknown row {min(unknown)}: use {', '.join(ROWS)}")
    spark = session()
    try:
        with ground.node(args.dir) as node:
            bench = Bench(args, spark, node)
            bench.fill()
            for row in args.rows or ROWS:
                print(json.dumps({"row": row, **getattr(bench, row)()}), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

"""Spark over the segment files: one JSON object a row. All rows of a run read the same messages, on local[2], in one session.

    python -m bench.spark                      all of them (2M x 1 KB, about five minutes and 8 GB of disk)
    python -m bench.spark --messages 200000 scan ready

    scan        count, sum(length(value)), max(offset) over the log, through format("goqueue")
    ready       the same from a data source that yields one ready-made Arrow batch of that size again and again: what PySpark takes
    parquet     the same from Parquet files that hold the same rows
    json        and from JSON lines (values in base64)
    pulled      and from a consumer in each task that pulls the messages through logd and hands Spark row by row (a tenth of them)
    filter      the same over a log of a day, with a timestamp filter that keeps the last 1%: seconds with the filter pushed down
                and not, and bytes read and segments opened beside those of the whole

`of_scan` is a row's rate over that of the scan. Rows are measured in turns.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThanOrEqual, InputPartition
from pyspark.sql.types import StructType

import gq_spark
from bench import ground
from gq_proto import codec
from gq_spark.options import parse
from gq_spark.source import SCHEMA, Reader
from tests.system.harness import ROOT, Node, until
from tests.unit.gq_logd.world import World

TOPIC, DAY = "bench", "t"
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

    def fill(self) -> None:
        self.node.client().create_topic(TOPIC, partitions=PARTITIONS)
        ground.apart(ground.fill, self.data, TOPIC, self.args.size, self.args.messages)
        until(lambda: self.rows(self.load()) >= self.args.messages, "the checkpoints vouch for all of it", every=1.0)

    def load(self, **options: str) -> DataFrame:
        return self.spark.read.format("goqueue").options(topic=TOPIC, **options).load(self.data)

    def rows(self, frame: DataFrame) -> int:
        return int(frame.agg(F.count("*"), F.sum(F.length("value")), F.max("offset")).collect()[0][0])

    def timed(self, makers: Mapping[str, Callable[[], DataFrame]]) -> dict[str, dict[str, Any]]:
        """Medians of `repeat` rounds in which each has its turn, so that what else the machine does is the same for all. Each turn
        has a DataFrame of its own: Spark would not plan the second query of one."""
        took: dict[str, list[float]] = {name: [] for name in makers}
        counts: dict[str, int] = {}
        for number in range(self.args.repeat + 1):       # the first round warms up
            for name, make in makers.items():
                start = time.perf_counter()
                counts[name] = self.rows(make())
                took[name] += [time.perf_counter() - start] if number else []
        medians = {name: statistics.median(seconds) for name, seconds in took.items()}
        return {name: {"msgs_per_s": round(counts[name] / seconds), "seconds": round(seconds, 2), "count": counts[name]}
                for name, seconds in medians.items()}

    # -- rows --------------------------------------------------------------------------------

    def scans(self, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Those of `names` that go over all messages, each beside the scan."""
        makers = {"scan": self.load, **{name: getattr(self, name)() for name in names if name not in ("scan", "filter")}}
        figures = self.timed(makers)
        for name, row in figures.items():
            yield name, row | {"of_scan": round(row["msgs_per_s"] / figures["scan"]["msgs_per_s"], 3)}

    def ready(self) -> Callable[[], DataFrame]:
        return lambda: self.spark.read.format("ready").options(like=self.data, rows=self.args.messages).load()

    def parquet(self) -> Callable[[], DataFrame]:
        path = str(self.node.folder / "parquet")
        self.load().write.parquet(path)
        return lambda: self.spark.read.parquet(path)

    def json(self) -> Callable[[], DataFrame]:
        path = str(self.node.folder / "json")
        self.load().withColumn("value", F.base64("value")).withColumn("key", F.base64("key")).write.json(path)
        schema = "topic string, partition int, offset bigint, timestamp timestamp, key string, value string"
        return lambda: self.spark.read.schema(schema).json(path)

    def pulled(self) -> Callable[[], DataFrame]:
        rows = self.args.messages // PULLED_SHARE
        return lambda: self.spark.read.format("pulled").options(data=self.data, rows=rows).load()

    def filter(self) -> dict[str, Any]:
        data = str(self.node.folder / "day")
        since = day(data, self.args.messages, self.args.size)
        every, kept = whole(data, topic=DAY), whole(data, topic=DAY, pushFilters="true")
        kept.pushFilters([GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since))])
        rows, all_rows = (sum(len(batch) for split in one.partitions() for batch in one.read(split)) for one in (kept, every))
        sources = {"all": {}, "filter": {"pushFilters": "true"}}

        def frame(name: str) -> DataFrame:
            read = self.spark.read.format("goqueue").options(topic=DAY, **sources[name]).load(data)
            return read.where(f"timestamp >= timestamp_micros({since})")
        self.spark.conf.set(PUSHING, "true")
        figures = self.timed({name: partial(frame, name) for name in sources})
        self.spark.conf.set(PUSHING, "false")
        return {"count": figures["filter"]["count"], "of": all_rows, "rows_read": rows,
                "seconds": figures["filter"]["seconds"], "seconds_unpushed": figures["all"]["seconds"],
                "bytes_read": kept.disk.bytes_read, "bytes_of_all": every.disk.bytes_read,
                "times_less": round(every.disk.bytes_read / kept.disk.bytes_read, 1),
                "segments_opened": kept.disk.logs_opened, "segments": every.disk.logs_opened}


def day(folder: str, messages: int, size: int) -> int:
    """A log of one day, evenly filled, as logd's core writes it; the moment, in microseconds, behind which the last 1% lies."""
    world = World(folder, partitions=PARTITIONS)
    values, batches = ground.bodies(size), max(messages // 1000, 1)
    since = world.wall_us
    for number in range(batches):
        batch = codec.BatchBuilder()
        for i in range(1000):
            batch.add(ground.KEYS[i], values[i])
        since = world.wall_us if number <= batches * 99 // 100 else since
        world.publish(batch.seal(), partition=number % PARTITIONS)
        world.tick(86_400 / batches)
    world.tick(3)
    world.stop()
    return since


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
            names = args.rows or list(ROWS)
            for row, figures in bench.scans(names) if set(names) - {"filter"} else ():
                print(json.dumps({"row": row, **figures}), flush=True)
            if "filter" in names:
                print(json.dumps({"row": "filter", **bench.filter()}), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

"""Streams: from a live topic into Parquet, exactly once, also when the driver is killed; partitions that appear; rate limits."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.harness import Node, until
from tests.unit.gq_logd.world import World, batch_of
from tests.unit.gq_spark.reads import reader, rows_of

DRIVER = """
import sys
from pyspark.sql import SparkSession
import gq_spark
data, topic, out, checkpoint = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
gq_spark.register(spark)
source = spark.readStream.format("goqueue").options(topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=200)
sink = source.load(data).writeStream.format("parquet").option("checkpointLocation", checkpoint)
sink.trigger(processingTime="0 seconds").start(out).awaitTermination()
"""


def stream(spark: Any, path: object, topic: str, **options: object) -> Any:
    return spark.readStream.format("goqueue").options(topic=topic, startingOffsets="earliest", **options).load(str(path))


def run(frame: Any, folder: Path) -> list[Any]:
    """All there is now, into Parquet; the progress of each micro-batch."""
    query = (frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
             .trigger(availableNow=True).start(str(folder / "out")))
    try:
        query.awaitTermination(120)
        assert not query.isActive and query.exception() is None, query.exception()
        return [progress for progress in query.recentProgress if progress.numInputRows]
    finally:
        query.stop()


def written(spark: Any, folder: Path) -> list[tuple[int, int, bytes]]:
    return sorted((row.partition, row.offset, row.value) for row in spark.read.parquet(str(folder / "out")).collect())


def there(path: object, topic: str) -> list[tuple[int, int, bytes]]:
    return sorted((row["partition"], row["offset"], row["value"]) for row in rows_of(reader(path, topic=topic)))


class Publishing(threading.Thread):
    """Publishes to topic `live`, a tenth with a delay, until it is ended; `sent` so many."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client, self._stop_now, self.sent = client, threading.Event(), 0

    def run(self) -> None:
        with self._client.producer() as out:
            for number in itertools.count():
                if self._stop_now.wait(0.005):
                    return
                for part in range(3):
                    out.send("live", b"%d" % number, partition=part, delay=0.5 if number % 10 == 0 else None)
                    self.sent += 1

    def end(self) -> None:
        self._stop_now.set()
        self.join()


@pytest.fixture
def publishing(shared_node: Node) -> Iterator[Publishing]:
    client = shared_node.client()
    client.create_topic("live", partitions=3)
    made = Publishing(client)
    made.start()
    yield made
    made.end()


def test_a_driver_killed_in_the_middle(spark, shared_node: Node, publishing: Publishing, tmp_path: Path):
    arguments = [str(shared_node.data), "live", str(tmp_path / "out"), str(tmp_path / "checkpoint")]
    with (tmp_path / "driver.log").open("wb") as said:
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, *arguments], stdout=said, stderr=said, start_new_session=True,
                                  stdin=subprocess.DEVNULL, env={**os.environ, "PYSPARK_PYTHON": sys.executable})
    commits = tmp_path / "checkpoint/commits"
    try:
        until(lambda: driver.poll() is not None or len(list(commits.glob("[0-9]*"))) >= 3, "some batches are done", timeout=90)
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        os.killpg(driver.pid, signal.SIGKILL)       # the session's: the JVM and Python
        driver.wait()
    done = len(list(commits.glob("[0-9]*")))
    publishing.end()
    late = shared_node.client().publish("live", b"late", partition=0, delay=300)
    until(lambda: len(there(shared_node.data, "live")) == publishing.sent, "all is there, and all but one is due", every=0.3)
    run(stream(spark, shared_node.data, "live", maxOffsetsPerTrigger=100_000), tmp_path)
    assert len(list(commits.glob("[0-9]*"))) > done >= 3
    rows, expected = written(spark, tmp_path), there(shared_node.data, "live")
    assert rows == expected and len(rows) == publishing.sent > 100
    assert len({place[:2] for place in rows}) == len(rows), "nothing twice"
    assert (0, late.offset, b"late") not in rows


def test_available_now_rate_limits_and_what_appears(spark, tmp_path: Path):
    world = World(tmp_path / "log", settings={"segment_bytes": 5_000}, partitions=2)
    for number in range(40):
        world.publish(batch_of(b"%d" % number + bytes(200)), partition=number % 2)
    world.tick(3)
    first = run(stream(spark, tmp_path / "log", "t", maxOffsetsPerTrigger=16), tmp_path)
    assert len(first) == 3 and all(progress.numInputRows <= 17 for progress in first)
    assert written(spark, tmp_path) == there(tmp_path / "log", "t")
    assert run(stream(spark, tmp_path / "log", "t"), tmp_path) == [], "there is nothing new"
    world.count = 4
    world.lead()
    for number in range(30):
        world.publish(batch_of(b"%d" % number + bytes(200)), partition=number % 4)
    world.tick(3)
    [second] = run(stream(spark, tmp_path / "log", "t"), tmp_path)
    assert second.numInputRows == 30 and len(written(spark, tmp_path)) == 70
    assert written(spark, tmp_path) == there(tmp_path / "log", "t")
    world.stop()

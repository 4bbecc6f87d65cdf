"""dlq: what groups gave up on, and why, per window of time.

Counts every letter that lies in the dead letter queues of the topics, those that were redriven since as well. The time is that
of the last failure. Letters are found by walking the segments record by record, one task a segment.
"""

import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gq_client.letters import letter_of
from gq_ctl.records import records
from gq_ctl.verify import Place, places
from gq_proto import files
from gq_proto.names import is_dlq, topic_of_dlq
from gq_spark.jobs import job

COLUMNS: Final = "time_us long, topic string, `group` string, reason string"


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row for each topic, group, reason and window, by time."""
    parser = job.Parser(__doc__, "*")
    parser.add_argument("--window", type=job.duration, default="1h", metavar="DURATION", help="length of a window (default: 1h)")
    args = parser.parse_args(argv)
    work = [(place, segment) for path in args.path.split(",") for place in places(Path(path)) if _meant(place, args.topic)
            for segment in place.segments]
    from pyspark.sql import functions as F
    spark, window_us = job.session(), args.window * 1000
    letters = spark.createDataFrame(spark.sparkContext.parallelize(work, max(1, len(work))).flatMap(_letters), COLUMNS)
    found = (letters.groupBy((F.col("time_us") - F.col("time_us") % window_us).alias("start_us"), "topic", "group", "reason")
             .agg(F.count("*").alias("letters")).orderBy("start_us", "topic", "group", "reason"))
    job.show(args, [row.asDict() for row in found.collect()], "letters", "no dead letters")


def _meant(place: Place, topics: str) -> bool:
    return is_dlq(place.topic) and any(fnmatch.fnmatchcase(topic_of_dlq(place.topic), one.strip()) for one in topics.split(","))


def _letters(one: tuple[Place, Path]) -> Iterator[tuple[Any, ...]]:
    """(time, topic, group, reason) of each letter in a segment, from the log's start on."""
    place, segment = one
    for entry in records(segment, place, _start(segment.parent)):
        if entry.problem is None and not entry.control:
            letter = letter_of(entry.message)
            yield letter.time_us, topic_of_dlq(place.topic), letter.group, letter.reason


def _start(folder: Path) -> int:
    """Letters below it were purged or have expired."""
    try:
        return files.decode_checkpoint((folder / files.CHECKPOINT).read_bytes()).log_start
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    job.run(main)

"""keys: the heaviest keys, and how even a topic's partitions are.

First a row for each of the heaviest keys, then one for each partition. `share` is that of the topic's messages.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gq_ctl.message import shown
from gq_spark.jobs import job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(argv: Sequence[str] | None = None) -> None:
    """Print both kinds of rows, the heaviest first."""
    parser = job.Parser(__doc__, "*").times()
    parser.add_argument("--top", type=int, default=10, metavar="N", help="so many keys of each topic (default: 10)")
    args = parser.parse_args(argv)
    rows = job.read(args)
    heavy = [row.asDict() | {"key": shown(row.key)} for row in _shares(rows, "key", args.top).collect()]
    job.show(args, heavy, "key", "no messages")
    if args.output != "value":
        job.show(args, [row.asDict() for row in _shares(rows, "partition").collect()], "partition", "")


def _shares(rows: "DataFrame", by: str, top: int = 0) -> "DataFrame":
    """Messages and bytes of each topic by one column, the heaviest `top` (0: all) of each topic."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F
    topic = Window.partitionBy("topic")
    counted = rows.groupBy("topic", by).agg(F.count("*").alias("messages"), F.sum(job.size_of_row()).alias("bytes"))
    ranked = counted.select("*", (F.col("messages") / F.sum("messages").over(topic)).alias("share"),
                            F.row_number().over(topic.orderBy(F.desc("messages"), by)).alias("rank"))
    return ranked.where(F.col("rank") <= top if top else F.lit(True)).orderBy("topic", "rank").drop("rank")


if __name__ == "__main__":
    job.run(main)

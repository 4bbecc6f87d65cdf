"""export: messages to Parquet by date and topic, each of them once.

Run it again and it goes on where it stopped, also after a kill in the middle: the checkpoint knows what was written. Read the
result with spark.read.parquet(DIR), which passes over files that a run did not finish. Dates are UTC; the other columns are those
of the source.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from gq_spark.jobs import job

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STEPS_MAX: Final = 100_000      # of one run, whose messages are counted


def main(argv: Sequence[str] | None = None) -> None:
    """Write what is new, print how many messages that were, and end."""
    parser = job.Parser(__doc__, job.REQUIRED)
    parser.add_argument("--to", required=True, metavar="DIR", help="folder of the Parquet files; made if need be")
    parser.add_argument("--checkpoint", metavar="DIR", help="what was exported already (default: _checkpoint in the folder)")
    parser.add_argument("--batch", type=int, default=5_000_000, metavar="N", help="messages in one step (default: %(default)s)")
    args = parser.parse_args(argv)
    query = start(args)
    query.awaitTermination()
    job.show(args, [{"to": args.to, "messages": sum(batch["numInputRows"] for batch in query.recentProgress)}], "messages", "")


def start(args: Any) -> "StreamingQuery":
    """The query that ends when all that is there now is written."""
    from pyspark.sql import functions as F
    spark = job.session()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(STEPS_MAX))
    rows = (spark.readStream.format("goqueue")
            .options(topic=args.topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(args.batch)).load(args.path))
    date = F.expr("date_from_unix_date(CAST(unix_micros(timestamp) DIV 86400000000 AS INT))")     # in whatever zone the session is
    return (rows.withColumn("date", date).writeStream.format("parquet").partitionBy("date", "topic")
            .option("checkpointLocation", args.checkpoint or f"{args.to.rstrip('/')}/_checkpoint")
            .trigger(availableNow=True).start(args.to))


if __name__ == "__main__":
    job.run(main)

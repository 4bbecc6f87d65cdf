"""traffic: messages, bytes and keys of each topic per window of time.

Bytes are those of keys and values; distinct keys are an estimate (2 % off). Windows begin at whole multiples of their length, UTC.
"""

from collections.abc import Sequence

from gq_spark.jobs import job


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row for each topic and window that has messages, by time."""
    parser = job.Parser(__doc__, "*").times()
    parser.add_argument("--window", type=job.duration, default="1h", metavar="DURATION", help="length of a window (default: 1h)")
    args = parser.parse_args(argv)
    from pyspark.sql import functions as F
    found = (job.read(args).groupBy(F.window("timestamp", f"{args.window} milliseconds").start.alias("start"), "topic")
             .agg(F.count("*").alias("messages"), F.sum(job.size_of_row()).alias("bytes"),
                  F.approx_count_distinct("key", 0.02).alias("keys"))
             .select(F.unix_micros("start").alias("start_us"), "topic", "messages", "bytes", "keys").orderBy("start_us", "topic"))
    job.show(args, [row.asDict() for row in found.collect()], "messages", "no messages")


if __name__ == "__main__":
    job.run(main)

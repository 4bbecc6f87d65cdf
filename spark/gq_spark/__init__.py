"""GoQueue for Spark: a data source over the segment files, `goqueue`, in batch and streaming, and a sink that publishes.

    import gq_spark
    gq_spark.register(spark)
    spark.read.format("goqueue").option("topic", "orders").load("/var/lib/goqueue").groupBy("key").count().show()

Owns what is read of a data directory and how it is cut into tasks. The source imports gq_proto only, asks no daemon and writes
nothing: a log that is being written is read up to what its checkpoint vouches for. The sink alone knows gq_client.

`options` what was asked for · `layout` which partitions lie where · `log` one partition: its segments and what their index files
say · `decided` what became of delayed, cancelled and aborted messages · `bounds` from where to where · `pruning` what a query's
filters leave · `planning` splits · `reading` a split as columns, `arrow` as record batches · `source` what Spark calls, `stream`
and `rates` its streaming half.

Invariants: a row is read once or not at all, whatever is appended, rolled or removed meanwhile; what is lost is an error that names
the file, or with failOnDataLoss=false a warning; no message costs Python of its own unless it is compressed.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make format("goqueue") known to a SparkSession."""
    from gq_spark.source import GoQueue
    spark.dataSource.register(GoQueue)

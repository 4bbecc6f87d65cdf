"""replay: what fits a SQL expression, published to another topic.

    gqctl spark replay --topic orders --to-topic orders.fixed --where "priority = 0 AND string(value) LIKE '%EUR%'"

The expression sees the source's columns: topic, partition, offset, timestamp, key, value (binary: string(value)), headers,
priority, flags. Key, value, headers and priority are the copy's, too; a copy is never delayed. At least once: see gq_spark.sink
on how copies that are there twice are told.
"""

from collections.abc import Sequence

from gq_client import admin
from gq_proto.errors import BadRequest
from gq_spark.jobs import job


def main(argv: Sequence[str] | None = None) -> None:
    """Publish, and print how many."""
    parser = job.Parser(__doc__, job.REQUIRED).times()
    parser.add_argument("--to-topic", required=True, metavar="TOPIC", help="where the copies go; made if need be")
    parser.add_argument("--where", default="true", metavar="SQL", help="which messages (default: all)")
    parser.add_argument("--server", metavar="HOST:PORT", help="the node they go to (default: that of --path)")
    args = parser.parse_args(argv)
    from gq_spark import sink
    node = target(args.server, args.path)
    with sink.target_of(node).client() as client:      # Spark takes its time: who can't be reached is told before
        client.run(admin.topics(client.routes))
    from pyspark.sql import Observation
    from pyspark.sql import functions as F
    count = Observation()
    rows = job.read(args, pushFilters="true").where(args.where).select("key", "value", "headers", "priority")
    (rows.observe(count, F.count("*").alias("messages")).write.format("goqueue")
     .options(topic=args.to_topic, **node).mode("append").save())
    job.show(args, [{"topic": args.topic, "to_topic": args.to_topic, **count.get}], "messages", "")


def target(server: str | None, path: str) -> dict[str, str]:
    """The sink's option that names the node. BadRequest when the path names several."""
    if not server and "," in path:
        raise BadRequest("--path names several data directories: say with --server to which node the copies go")
    return {"server": server} if server else {"dataDir": path}


if __name__ == "__main__":
    job.run(main)

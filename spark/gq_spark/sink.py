"""The sink: `df.write.format("goqueue")` and `writeStream` publish rows through a node's daemons, as any producer does.

    df.select("key", "value").write.format("goqueue").option("topic", "orders").mode("append").save()

Columns are those of gq_spark.rows. At least once: a task that fails half-way has published some of its rows, Spark runs it again,
and they are there twice; nothing is taken back. So that copies can be told, each message has the header `spark-row` (one that its
row brought along gives way):

    {write id}/{batch}/{partition}/{row}

the write (a streaming query's id, which outlives restarts; else the option `writeId`; else one made for this write), the
micro-batch (0 in a batch write), the task's partition, and the row's position in it from 0. Two messages with one such header are
copies of one row, if the rows of a task come in the same order each time: they do when they are read from files or from a log,
not behind an unsorted shuffle or a random number.

Options: `server` (host:port of a metad, several by commas) or `dataDir`, else what the environment of the executors says; `topic`;
`acks` (none, leader, all), `compress` (zstd), `timeout` (seconds until a message fails), `apiKey`, `curveServerKey`, `writeId`.
A task keeps one batching producer and waits for all its messages once, at its end.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from gq_proto.errors import BadConfig, BadRequest, CallerFault
from gq_spark.rows import check_schema, located, rows_of

if TYPE_CHECKING:
    from gq_client import Client

OPTIONS: Final = ("server", "dataDir", "topic", "acks", "compress", "timeout", "apiKey", "curveServerKey", "writeId")
SPARKS: Final = ("path", "checkpointLocation", "queryName")     # a stream has them, too; save("DIR") means dataDir
POSITION_HEADER: Final = "spark-row"
QUERY_ID: Final = "sql.streaming.queryId"        # Spark's own names for a task's local properties
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class Target:
    """Where and how to publish. Empty: as gq_client finds it on the executor."""

    server: str = ""
    data_dir: str = ""
    topic: str = ""
    acks: str = "leader"
    compress: str = ""
    timeout: float = 30.0
    api_key: str = ""
    curve_server_key: str = ""
    write_id: str = ""

    def client(self) -> "Client":
        from gq_client import Client
        return Client(self.server or None, data_dir=self.data_dir or None, key=self.api_key or None,
                      curve_server_key=self.curve_server_key or None, timeout=self.timeout)


def target_of(options: Mapping[str, str]) -> Target:
    """BadConfig for what can't be meant."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in (*OPTIONS, *SPARKS)}
    for name in given:
        if name not in known:
            raise BadConfig(f"option {name} is unknown: there are {', '.join(OPTIONS)}")
    data_dir = given.get("datadir") or given.get("path", "")
    if given.get("server") and data_dir:
        raise BadConfig("the options 'server' and 'dataDir' both name a node: give one")
    acks, compress = given.get("acks", "leader"), given.get("compress", "")
    if acks not in ("none", "leader", "all"):
        raise BadConfig(f"acks={acks!r}: use none, leader or all")
    if compress not in ("", "none", "zstd"):
        raise BadConfig(f"compress={compress!r}: use zstd or none")
    return Target(given.get("server", ""), data_dir, given.get("topic", ""), acks, compress, _seconds(given.get("timeout", "30")),
                  given.get("apikey", ""), given.get("curveserverkey", ""), given.get("writeid", ""))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise BadConfig(f"timeout={text!r}: give a number of seconds above 0")
    return seconds


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int


class _Publishing:
    """What both writers do. Made on the driver, pickled, run by each task."""

    def __init__(self, target: Target, write_id: str) -> None:
        self.target, self.write_id = target, write_id

    def write(self, iterator: Iterator[Any]) -> Written:
        """Publish one task's rows and wait until all are written; the first error of any is raised."""
        target, rows, prefix = self.target, 0, _position(self.write_id)
        with target.client() as client, client.producer(acks=target.acks, compress=target.compress or None) as producer:
            for batch in iterator:
                rows = _send(batch, target.topic, producer.send, prefix, rows)
            producer.flush()
        return Written(rows)


def _send(batch: Any, topic: str, send: Callable[..., Any], prefix: str, row: int) -> int:
    """Hand over a batch whose first row is number `row`; the number behind its last."""
    try:
        for message in rows_of(batch, topic):
            headers = [pair for pair in message.headers if pair[0] != POSITION_HEADER]     # a copy is of this write alone
            headers.append((POSITION_HEADER, f"{prefix}{row}".encode()))
            send(message.topic, message.value, message.key, headers, message.priority, message.delay)
            row += 1
    except CallerFault as error:
        raise located(error, f"{prefix}{row}") from None
    return row


def _position(write_id: str) -> str:
    """What stands before the row's number in the header."""
    task = TaskContext.get()
    assert task is not None, "a writer runs in a task"
    return f"{task.getLocalProperty(QUERY_ID) or write_id}/{task.getLocalProperty(BATCH_ID) or 0}/{task.partitionId()}/"


class Writer(_Publishing, DataSourceArrowWriter):
    """Of a batch write."""


class StreamWriter(_Publishing, DataSourceStreamArrowWriter):
    """Of one micro-batch."""


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Writer:
    """For DataSource.writer. BadRequest for rows that can be no messages, BadConfig for bad options."""
    return Writer(*_checked(options, schema, overwrite))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """For DataSource.streamWriter; as `writer`."""
    return StreamWriter(*_checked(options, schema, overwrite))


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> tuple[Target, str]:
    target = target_of(options)
    if overwrite:
        raise BadRequest("a log is only appended to: use mode('append'), in a stream outputMode('append')")
    check_schema(schema, target.topic)
    return target, target.write_id or uuid.uuid4().hex

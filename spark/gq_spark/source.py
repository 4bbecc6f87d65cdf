"""What Spark calls: the data source `goqueue` and its batch reader. Streams are `stream`'s.

Objects of these classes are pickled: planned in a process of the driver's, read in the executors' workers. PySpark refuses a
reader that has pushFilters while spark.sql.python.filterPushdown.enabled is off; this one shows it to those only who call it.

Spark 4.3 plans the first query of a load() and keeps the splits for all later ones. So a load() is a snapshot: of a log that grows,
load() again. And what was planned for pushed filters serves a later query that has others or none, or the other half of a union,
which would miss rows: filters choose what is read only where the option pushFilters says that this load() is for one query.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from gq_proto.errors import BadRequest
from gq_proto.memory import keep_freed_memory
from gq_spark import bounds, layout, planning
from gq_spark.arrow import Shape
from gq_spark.disk import Disk
from gq_spark.log import Log
from gq_spark.options import Options, parse
from gq_spark.planning import Piece, Stretch
from gq_spark.pruning import Window, window_of
from gq_spark.reading import Pieces

if TYPE_CHECKING:
    import pyarrow as pa


CORES = os.cpu_count() or 1      # the driver's: right for a local master, and a cluster's data is large anyway
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType([
    StructField("topic", StringType()), StructField("partition", IntegerType()), StructField("offset", LongType()),
    StructField("timestamp", TimestampType()), StructField("key", BinaryType()), StructField("value", BinaryType()),
    StructField("headers", ArrayType(HEADER)), StructField("priority", ByteType()), StructField("flags", ByteType()),
])


class GoQueue(DataSource):
    """format("goqueue")"""

    @classmethod
    def name(cls) -> str:
        return "goqueue"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> "Reader":
        return Reader(parse(self.options), checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from gq_spark.stream import StreamReader
        return StreamReader(parse(self.options, streaming=True), checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from gq_spark import sink  # it knows gq_client, which a reader must not need
        return sink.writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from gq_spark import sink
        return sink.stream_writer(self.options, schema, overwrite)


def checked(schema: StructType) -> StructType:
    """A reader's schema: the source's, or some of its columns in any order."""
    known = {field.name: field.dataType for field in SCHEMA}
    for field in schema:
        if known.get(field.name) != field.dataType:
            raise BadRequest(f"column {field.name} {field.dataType.simpleString()}: format goqueue has {SCHEMA.simpleString()}")
    return schema


class Split(InputPartition):
    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces


class _Pushed:
    """A reader's pushFilters that PySpark's check takes for the one that does nothing."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[Iterable[Any]], Iterable[Any]]) -> None:
        self._push = push

    def __call__(self, filters: Iterable[Any]) -> Iterable[Any]:
        return self._push(filters)


class Reader(DataSourceReader):
    """A batch. `disk` tells what was opened and read, in the process it is used in."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options, self._schema = options, schema
        self.window = Window()
        self.disk = Disk()

    @property
    def pushFilters(self) -> _Pushed:
        return _Pushed(self._push)

    def _push(self, filters: Iterable[Any]) -> Iterable[Any]:
        """All of them are left to Spark, too."""
        known = list(filters)
        if self.options.push_filters:
            self.window = window_of(known)
        return known

    def partitions(self) -> list[Split]:
        places = layout.find(self.disk, self.options.paths, self.options.topics, self.options.fail_on_data_loss)
        bounds.check_named(self.options, [(place.topic, place.number) for place in places])
        stretches = [self._stretch(Log(self.disk, place)) for place in places if self.window.holds(place.topic, place.number)]
        return [Split(pieces) for pieces in planning.plan(stretches, self.options, self.window, CORES)] or [Split([])]

    def _stretch(self, log: Log) -> Stretch:
        end = bounds.end_of(log, self.options.committed)
        return Stretch(log, bounds.start_in(log, self.options, end), bounds.end_in(log, self.options, end))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, Split)
        return batches(self.disk, self.options, self._schema, partition)


def batches(disk: Disk, options: Options, schema: StructType, split: Split) -> Iterator["pa.RecordBatch"]:
    """All rows of a split."""
    keep_freed_memory()
    shape, pieces = Shape(to_arrow_schema(schema, timezone="UTC"), options.fail_on_data_loss), Pieces(disk, options)
    for piece in split.pieces:
        for found in pieces.read(piece):
            yield from shape.batches(piece.topic, piece.partition, found)

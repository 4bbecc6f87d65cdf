"""What the sink takes: the columns of a row, their types, and how Arrow batches of rows become messages.

    value      binary or string; the one column that must be there. null is a null value
    topic      string; may be missing when the option `topic` names one, which then holds for every row
    key        binary or string; null: no key
    headers    array<struct<key: string, value: binary or string>> as the source has it, or map<string, binary or string>
    priority   0..4 or a name; null: normal
    delay      seconds (any number) or a day-time interval; null: none

The source's other columns (partition, offset, timestamp, flags) may be there and are left aside: the node gives new ones. Any
other column is refused, because a mistyped name would be a message without its key. Pure: knows no socket and no Spark session.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

from gq_proto.errors import BadRecord, BadRequest, GoQueueError

LEFT_ASIDE: Final = frozenset(("partition", "offset", "timestamp", "flags"))
BYTES: Final = (BinaryType, StringType)


class Row(NamedTuple):
    """One message, as a producer takes it. priority: number, name or None; delay: seconds or None."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None
    headers: list[tuple[str, bytes | str]]
    priority: int | str | None
    delay: Any


# -- which columns ------------------------------------------------------------------------------

def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, BYTES)
    pair = kind.elementType if isinstance(kind, ArrayType) else None
    return (isinstance(pair, StructType) and pair.names == ["key", "value"] and isinstance(pair["key"].dataType, StringType)
            and isinstance(pair["value"].dataType, BYTES))


COLUMNS: Final[dict[str, tuple[str, Callable[[DataType], bool]]]] = {
    "topic": ("string", lambda kind: isinstance(kind, StringType)),
    "value": ("binary or string", lambda kind: isinstance(kind, BYTES)),
    "key": ("binary or string", lambda kind: isinstance(kind, BYTES)),
    "headers": ("array<struct<key:string,value:binary>> or map<string,binary>", _is_headers),
    "priority": ("an integer or a string", lambda kind: isinstance(kind, IntegralType | StringType)),
    "delay": ("a number of seconds or an interval", lambda kind: isinstance(kind, NumericType | DayTimeIntervalType)),
}


def check_schema(schema: StructType, topic: str) -> None:
    """BadRequest for rows that can be no messages. `topic`: the option, "" when there is none."""
    for field in schema.fields:
        if field.name in LEFT_ASIDE:
            continue
        if field.name not in COLUMNS:
            raise BadRequest(f"column {field.name!r} means nothing to a message: use {', '.join(COLUMNS)}")
        wanted, fits = COLUMNS[field.name]
        if not fits(field.dataType):
            raise BadRequest(f"column {field.name!r} is {field.dataType.simpleString()}: cast it to {wanted}")
    if "value" not in schema.names:
        raise BadRequest(f"there is no column 'value' among {', '.join(schema.names)}: rename or make one")
    if not topic and "topic" not in schema.names:
        raise BadRequest("no topic: name one with the option 'topic', or have a column 'topic'")


# -- what is in them ----------------------------------------------------------------------------

def rows_of(batch: Any, topic: str) -> Iterator[Row]:
    """The messages of a pyarrow RecordBatch, in order. BadRecord where a topic or a header is null."""
    columns = dict(zip(batch.schema.names, batch.columns))
    nothing = [None] * batch.num_rows
    topics, values, keys, headers, priorities, delays = (columns[column].to_pylist() if column in columns else nothing
                                                         for column in Row._fields)
    if topic:
        topics = [topic] * batch.num_rows
    for name, value, key, pairs, priority, delay in zip(topics, values, keys, headers, priorities, delays):
        if name is None:
            raise BadRecord("the topic is null: filter such rows out, or name a topic with the option 'topic'")
        yield Row(name, value, key, _pairs(pairs) if pairs else [], priority,
                  delay.total_seconds() if isinstance(delay, timedelta) else delay)


def _pairs(headers: list[Any]) -> list[tuple[str, bytes | str]]:
    """Arrow gives a map as pairs, an array of structs as dicts."""
    found = [(pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in headers if pair is not None]
    for name, value in found:
        if name is None or value is None:
            raise BadRecord(f"header {name!r} is null: a header has a name and a value, which may be empty")
    return found


def located(error: GoQueueError, place: str) -> GoQueueError:
    """The same error, which says of which row."""
    return type(error)(f"row {place}: {error.message}")

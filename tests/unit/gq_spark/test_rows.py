from datetime import timedelta

import pytest

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

from gq_proto.errors import BadRecord, BadRequest  # noqa: E402
from gq_spark import rows  # noqa: E402

TYPES = {"string": types.StringType(), "binary": types.BinaryType(), "int": types.IntegerType(), "long": types.LongType(),
         "byte": types.ByteType(), "double": types.DoubleType(), "decimal": types.DecimalType(10, 3),
         "interval": types.DayTimeIntervalType(), "time": types.TimestampType()}


def kind(text):
    """pairs(a, b): a list of structs; map(a, b); else a name of TYPES."""
    shape, _, rest = text.rstrip(")").partition("(")
    parts = [part.partition(":") for part in rest.split("; ")]
    if shape == "pairs":
        return types.ArrayType(types.StructType([types.StructField(name, kind(of)) for name, _, of in parts]))
    return types.MapType(*(kind(of) for of, _, _ in parts)) if shape == "map" else TYPES[shape]


def schema(text):
    """Columns as "name type, name type"."""
    columns = (column.split(" ", 1) for column in text.split(", "))
    return types.StructType([types.StructField(name, kind(of)) for name, of in columns])


def one(option="", /, **columns):
    [row] = rows.rows_of(pa.RecordBatch.from_pydict({name: pa.array([value]) for name, value in columns.items()}), option)
    return row


@pytest.mark.parametrize("text", [
    "topic string, value binary", "topic string, value string, key string", "topic string, value binary, key binary",
    "topic string, value binary, headers pairs(key:string; value:binary)", "topic string, value binary, priority byte",
    "topic string, value binary, headers map(string; string)", "topic string, value binary, priority string",
    "topic string, value binary, delay double", "topic string, value binary, delay decimal",
    "topic string, value binary, delay interval",
    "topic string, partition int, offset long, timestamp time, key binary, value binary, flags byte",
])
def test_rows_that_are_messages(text):
    rows.check_schema(schema(text), "")
    rows.check_schema(schema(text.removeprefix("topic string, ")), "orders")


@pytest.mark.parametrize("text, said", [
    ("key binary", "no column 'value' among key"),
    ("value binary, body binary", "column 'body' means nothing"),
    ("value int", "column 'value' is int: cast it to binary or string"),
    ("value binary, key long", "column 'key' is bigint"),
    ("value binary, headers string", "cast it to array<struct"),
    ("value binary, headers map(string; int)", "cast it to array<struct"),
    ("value binary, headers pairs(name:string; value:binary)", "cast it to array<struct<key:string,value:binary>>"),
    ("value binary, priority double", "column 'priority' is double"),
    ("value binary, delay string", "column 'delay' is string"),
    ("value binary, topic int", "column 'topic' is int"),
])
def test_rows_that_are_none(text, said):
    with pytest.raises(BadRequest, match=said):
        rows.check_schema(schema(text), "orders")


def test_there_must_be_a_topic():
    with pytest.raises(BadRequest, match="no topic"):
        rows.check_schema(schema("value binary"), "")


def test_what_is_not_said_is_none():
    assert one("t", value=b"v") == ("t", b"v", None, [], None, None)


def test_all_columns_and_their_nulls():
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": b""}]
    assert one(topic="t", value="v", key=b"", headers=headers, priority="low", delay=1.5) == (
        "t", "v", b"", [("a", b"1"), ("a", b"")], "low", 1.5)
    assert one("t", value=None, key=None, headers=None, priority=None, delay=None) == ("t", None, None, [], None, None)


def test_the_option_wins_over_the_column_and_intervals_are_seconds():
    assert one("mine", topic="theirs", value=b"v").topic == "mine"
    assert one("t", value=b"v", delay=timedelta(minutes=1, milliseconds=5)).delay == 60.005


def test_headers_from_a_map_keep_their_order():
    headers = pa.array([[("b", b"2"), ("a", b"1")]], pa.map_(pa.string(), pa.binary()))
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), headers], ["value", "headers"])
    assert next(rows.rows_of(batch, "t")).headers == [("b", b"2"), ("a", b"1")]


def test_null_topics_and_null_headers_are_refused():
    with pytest.raises(BadRecord, match="the topic is null"):
        one(value=b"v", topic=None)
    with pytest.raises(BadRecord, match="header 'a' is null"):
        one("t", value=b"v", headers=[{"key": "a", "value": None}])


def test_order_is_kept():
    batch = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(1000)]})
    assert [int(row.value) for row in rows.rows_of(batch, "t")] == list(range(1000))

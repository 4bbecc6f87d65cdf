"""The codec's columns as Arrow record batches, without a copy: the rows of format("goqueue") and their schema.

Only compressed values are touched one by one. A reader may ask for some of the columns, in any order: the others are not made.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from gq_proto import codec
from gq_proto import record as r
from gq_proto.errors import BadRecord, TooLarge
from gq_proto.found import Columns
from gq_spark.loss import lost

NAMES: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "priority", "flags")

PLAIN_BYTES: Final = 16 * 1024 * 1024       # a chunk of compressed values may hold a thousand times its size


class Shape:
    """Which columns, as which Arrow types: `schema` is what Spark expects. `fatal`: a value that does not decompress is DataLoss,
    else its row is left out."""

    def __init__(self, schema: pa.Schema, fatal: bool = True) -> None:
        self._schema, self._fatal = schema, fatal
        self._same: dict[tuple[str, Any], pa.Array] = {}

    def batches(self, topic: str, partition: int, found: Columns) -> Iterator[pa.RecordBatch]:
        """One, or of compressed values as many as keep each at PLAIN_BYTES and a value."""
        arrays = [self._constant(field, {"topic": topic, "partition": partition}[field.name], found.count)
                  if field.name in ("topic", "partition") else _MAKERS[field.name](found, field.type) for field in self._schema]
        stored = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        at = self._schema.get_field_index("value")
        if at < 0 or not any(flags & r.COMPRESSED for flags in set(found.flags)):
            yield stored
            return
        for low, values in self._plain(f"{topic}/{partition}", found, stored.column(at)):
            arrays = stored.slice(low, len(values)).columns
            arrays[at] = pa.array(values, self._schema.field(at).type)
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _plain(self, name: str, found: Columns, stored: pa.Array) -> Iterator[tuple[int, list[bytes | None]]]:
        """(number of the first row, values decompressed) of rows that follow one another."""
        values: list[bytes | None] = []
        low, size = 0, 0
        for number, (value, flags) in enumerate(zip(stored, found.flags)):
            try:
                values.append(codec.decompress(value.as_py()) if flags & r.COMPRESSED else value.as_py())
                size += len(values[-1] or b"")
                if size < PLAIN_BYTES:
                    continue
            except (BadRecord, TooLarge) as error:
                lost(self._fatal, f"{name}: offset {memoryview(found.offset).cast('q')[number]}: {error.message}")
            if values:
                yield low, values
            values, low, size = [], number + 1, 0
        if values:
            yield low, values

    def _constant(self, field: pa.Field, value: Any, count: int) -> pa.Array:
        known = self._same.get((field.name, value))
        if known is None or len(known) < count:
            known = self._same[field.name, value] = pa.repeat(pa.scalar(value, field.type), count)
        return known[:count]


def _buffers(*parts: bytes | None) -> list[pa.Buffer | None]:
    return [None if part is None else pa.py_buffer(part) for part in parts]


def _fixed(name: str) -> Callable[[Columns, pa.DataType], pa.Array]:
    return lambda found, type_: pa.Array.from_buffers(type_, found.count, _buffers(None, getattr(found, name)), 0)


def _keys(found: Columns, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, found.count, _buffers(found.key_validity, found.key_offsets, found.key_data))


def _values(found: Columns, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, found.count, _buffers(found.value_validity, found.value_offsets, found.value_data))


def _headers(found: Columns, type_: pa.DataType) -> pa.Array:
    names = pa.Array.from_buffers(pa.string(), found.header_count, _buffers(None, found.name_offsets, found.name_data), 0)
    contents = pa.Array.from_buffers(pa.binary(), found.header_count, _buffers(None, found.content_offsets, found.content_data), 0)
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(type_.value_type))
    return pa.Array.from_buffers(type_, found.count, _buffers(found.header_validity, found.header_offsets), children=[pairs])


_MAKERS: Final[dict[str, Callable[[Columns, pa.DataType], pa.Array]]] = {
    "offset": _fixed("offset"), "timestamp": _fixed("timestamp"), "priority": _fixed("priority"), "flags": _fixed("flags"),
    "key": _keys, "value": _values, "headers": _headers,
}
assert {"topic", "partition", *_MAKERS} == set(NAMES)

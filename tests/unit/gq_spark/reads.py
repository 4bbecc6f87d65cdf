"""The source without Spark: what a reader's splits give in this process, and logs written by logd's own core."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gq_proto import codec, control, messages
from gq_proto import record as r
from gq_proto.control import ControlType, Marker
from gq_proto.headers import delay_header
from gq_proto.messages import Kind
from gq_spark.options import parse
from gq_spark.source import SCHEMA, Reader, Split
from gq_spark.stream import StreamReader
from tests.unit.gq_logd.world import World, batch_of

Row = dict[str, Any]


def reader(path: object, filters: Iterable[Any] = (), schema: Any = SCHEMA, **options: Any) -> Reader:
    given = {"path": str(path), "pushFilters": "true", **{name: str(value) for name, value in options.items()}}
    made = Reader(parse(given), schema)
    made.pushFilters(filters)
    return made


def rows_of(made: Reader, splits: Iterable[Split] | None = None) -> list[Row]:
    """In the order of splits."""
    return [row for split in (made.partitions() if splits is None else splits) for batch in made.read(split)
            for row in batch.to_pylist()]


def rows(path: object, filters: Iterable[Any] = (), **options: Any) -> list[Row]:
    return rows_of(reader(path, filters, **options))


def offsets(found: Iterable[Row]) -> list[int]:
    return [row["offset"] for row in found]


def stream(path: object, **options: Any) -> StreamReader:
    return StreamReader(parse({"path": str(path), **{name: str(value) for name, value in options.items()}}, streaming=True), SCHEMA)


def micro_batch(made: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    return [row for split in made.partitions(start, end) for batch in made.read(split) for row in batch.to_pylist()]


def shown(record: codec.Record, partition: int = 0) -> Row:
    """A record of a simple read as the row it should be."""
    headers = [{"key": name, "value": value} for name, value in record.headers]
    return {"topic": "t", "partition": partition, "offset": record.offset, "key": record.key, "value": record.value,
            "headers": headers or None, "priority": record.priority, "flags": record.flags, "timestamp": record.timestamp}


def plain(row: Row) -> Row:
    """With the timestamp in microseconds, exactly."""
    moment = row["timestamp"]
    return {**row, "timestamp": int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond}


def settle(world: World) -> None:
    """Time for the checkpoint to say what is there."""
    world.tick(3)


def decide(world: World, type_: ControlType, ranges: list[int]) -> int:
    """A ready or cancelled record; its offset."""
    return int(world.ask(Kind.WRITE_MARKER, messages.WriteMarker(type_, control.encode_body(type_, ranges))).offset)


def finish(world: World, type_: ControlType, producer: int) -> int:
    """The end of a producer's transaction; the marker's offset."""
    body = control.encode_body(type_, Marker(producer, 0))
    return int(world.ask(Kind.WRITE_MARKER, messages.WriteMarker(type_, body)).offset)


def delayed(*values: bytes, delay_us: int = 60_000_000) -> bytes:
    return batch_of(*values, flags=r.DELAYED, headers=codec.encode_headers([delay_header(delay_us), ("u", b"1")]))


def segments(world: World) -> list[Path]:
    return sorted(Path(world.folder, "logs/t/0").glob("*.log"))


def without_derived(world: World, names: Sequence[str] = (".index", ".timeindex", ".runs", ".due", ".txnindex")) -> None:
    for path in Path(world.folder, "logs/t/0").iterdir():
        if path.suffix in names:
            os.remove(path)

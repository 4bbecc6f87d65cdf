"""Reading without a group, and what needs it: positions, stretches of a log, replays. Operations, see gq_client.ask.

A page is bounded in messages and in bytes, so that one request costs little whatever lies there.
"""

from collections.abc import Generator
from typing import Annotated, Any, Final, Literal, TypeVar

from msgspec import Meta, Struct

from gq_client import admin
from gq_client.ask import Ask, Asks
from gq_client.cursor import Cursor, Start, locate
from gq_client.routing import Routes
from gq_gateway.call import Call
from gq_gateway.content import OffsetNumber, Partition, StoredMessage, stored
from gq_gateway.moments import Time, unix_seconds
from gq_gateway.problems import Refused
from gq_proto import limits
from gq_proto.errors import BadRequest, NotLeader, Unavailable
from gq_proto.messages import EARLIEST, LATEST, PartitionInfo, TopicMeta

PAGE: Final = 100
PAGE_MAX: Final = 10_000
PAGE_BYTES: Final = 4 * limits.MIB
Force = Annotated[Literal["auto", "utf-8", "base64"],
                  Meta(description="of keys, values and headers: auto by content, base64, or utf-8 (lossy)")]
TRIES_MAX: Final = 3                  # of a partition that moves


class ReadQuery(Struct, forbid_unknown_fields=True):
    partition: Annotated[Partition | None, Meta(description="this one; else all of them, one after the other")] = None
    offset: Annotated[OffsetNumber | None, Meta(description="from here on; needs partition")] = None
    from_time: Annotated[Time | None, Meta(description="from the first message at or after it: Unix seconds or RFC 3339")] = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="messages at most")] = PAGE
    encoding: Force = "auto"
    committed: Annotated[bool, Meta(description="false: what is not committed yet, too")] = True


class PartitionReadQuery(Struct, forbid_unknown_fields=True):
    offset: Annotated[OffsetNumber | None, Meta(description="from here on")] = None
    from_time: Annotated[Time | None, Meta(description="from the first message at or after it: Unix seconds or RFC 3339")] = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="messages at most")] = PAGE
    encoding: Force = "auto"
    committed: Annotated[bool, Meta(description="false: what is not committed yet, too")] = True


class Page(Struct, rename="camel"):
    """Where reading goes on in a partition, and what there is of it."""

    partition: int
    next_offset: int
    log_start: int
    high_watermark: int


class Messages(Struct):
    """Messages, partition by partition; partitions that were not come to are missing in `partitions`."""

    messages: list[StoredMessage]
    partitions: list[Page]


async def read(call: Call) -> Messages:
    query: ReadQuery = call.query
    if query.offset is not None and query.partition is None:
        raise Refused(BadRequest("offset needs partition: offsets are a partition's own"), "offset")
    return await _read(call, query.partition, query)


async def read_partition(call: Call) -> Messages:
    return await _read(call, call.number("partition"), call.query)


async def _read(call: Call, partition: int | None, query: ReadQuery | PartitionReadQuery) -> Messages:
    if query.offset is not None and query.from_time is not None:
        raise Refused(BadRequest("offset and from_time exclude each other: give one"), "from_time")
    start: Start = EARLIEST
    if query.offset is not None:
        start = query.offset
    elif query.from_time is not None:
        start = float(unix_seconds(query.from_time, "from_time"))
    client = call.gateway.client
    records, pages = await client.run(page(client.routes, call.topic, partition, start, query.limit, query.committed))
    return Messages(stored(records, query.encoding), pages)


# -- operations -------------------------------------------------------------------------------

R = TypeVar("R")
Operation = Generator[Ask | Asks, Any, R]


def page(routes: Routes, topic: str, partition: int | None, start: Start, limit: int,
         committed: bool = True) -> Operation[tuple[list[Any], list[Page]]]:
    """Up to `limit` messages and PAGE_BYTES of what lies there now; and where to go on."""
    records: list[Any] = []
    pages: list[Page] = []
    size = 0
    for part in (yield from parts_of(routes, topic, partition)):
        found, offset = yield from locate(routes, topic, part.partition, start)
        cursor = Cursor(found, part.partition, max(offset, part.log_start), stop_at_end=True, committed=committed,
                        max_bytes=_fetch_bytes(limit - len(records)))
        taken = yield from _some(routes, cursor, limit - len(records), PAGE_BYTES - size)
        records += taken
        size += sum(map(_size, taken))
        after = cursor.records[0].offset if cursor.records else cursor.next
        pages.append(Page(part.partition, after, part.log_start, part.high_watermark))
        if len(records) >= limit or size >= PAGE_BYTES:
            break
    return records, pages


def stretch(routes: Routes, topic: TopicMeta, partition: int, low: int, high: int, limit: int) -> Operation[list[Any]]:
    """The first `limit` messages that there are at offsets [low, high), PAGE_BYTES at most (but one, if there is one)."""
    cursor = Cursor(topic, partition, low, stop_at_end=True, max_bytes=_fetch_bytes(limit))
    found = yield from _some(routes, cursor, limit, PAGE_BYTES, high)
    return [record for record in found if record.offset < high]


def _some(routes: Routes, cursor: Cursor, limit: int, most_bytes: int, high: int = 2**63 - 1) -> Operation[list[Any]]:
    tries = 0
    while not cursor.ended and cursor.next < high and len(cursor.records) < limit and sum(map(_size, cursor.records)) < most_bytes:
        body, frames = yield cursor.ask()
        if not cursor.took(body.parts[0], frames[0]):
            tries += 1
            if tries > TRIES_MAX:
                raise NotLeader(f"partition {cursor.partition} of {cursor.topic} moves: ask again")
            yield from admin.refresh(routes)
    return cursor.take(limit)


def parts_of(routes: Routes, topic: str, partition: int | None) -> Operation[list[PartitionInfo]]:
    """The partition that was asked for, or all. UnknownTopic, UnknownPartition; Unavailable while nobody leads one."""
    parts = yield from admin.partitions(routes, topic)
    found = routes.topic(topic)
    wanted = range(len(found.partitions)) if partition is None else [routes.check_partition(found, partition)]
    by_number = {part.partition: part for part in parts}
    for number in wanted:
        if number not in by_number:
            raise Unavailable(f"partition {number} of {topic} has no leader now: ask again")
    return [by_number[number] for number in wanted]


def offsets_at(routes: Routes, topic: str, partition: int | None, where: Start) -> Operation[dict[int, int]]:
    """The offset of a position by partition; a time is the first message at or after it, the end when there is none."""
    found = {}
    for part in (yield from parts_of(routes, topic, partition)):
        if where == EARLIEST:
            offset = part.log_start
        elif where == LATEST:
            offset = part.high_watermark
        else:
            _, offset = yield from locate(routes, topic, part.partition, where)
        found[part.partition] = offset
    return found


def _fetch_bytes(limit: int) -> int:
    """What is fetched at once for so many messages."""
    return min(max(limit * 4 * limits.KIB, 64 * limits.KIB), limits.FETCH_BYTES_DEFAULT)


def _size(record: Any) -> int:
    return limits.RECORD_HEADER + len(record.raw_value or b"") + len(record.key or b"") + len(record.raw_headers)

"""Reading without a group: pages of messages, and positions as offsets.

A page is bounded in messages and in bytes, so that one request costs little whatever lies there.
"""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from gq_client import stretch
from gq_client.admin import Operation
from gq_client.cursor import Cursor, Start, locate
from gq_client.routing import Routes
from gq_client.stretch import parts_of
from gq_gateway.call import Call
from gq_gateway.content import OffsetNumber, Partition, StoredMessage, stored
from gq_gateway.moments import Time, unix_seconds
from gq_gateway.problems import Refused
from gq_proto.errors import BadRequest
from gq_proto.messages import EARLIEST, LATEST

PAGE: Final = 100
PAGE_MAX: Final = 10_000
Force = Annotated[Literal["auto", "utf-8", "base64"],
                  Meta(description="of keys, values and headers: auto by content, base64, or utf-8 (lossy)")]


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

def page(routes: Routes, topic: str, partition: int | None, start: Start, limit: int,
         committed: bool = True) -> Operation[tuple[list[Any], list[Page]]]:
    """Up to `limit` messages and stretch.BYTES_MAX of what lies there now; and where to go on."""
    records: list[Any] = []
    pages: list[Page] = []
    size = 0
    for part in (yield from parts_of(routes, topic, partition)):
        found, offset = yield from locate(routes, topic, part.partition, start)
        cursor = Cursor(found, part.partition, max(offset, part.log_start), stop_at_end=True, committed=committed,
                        max_bytes=stretch.fetch_bytes(limit - len(records)))
        taken = yield from stretch.read(routes, cursor, limit - len(records), stretch.BYTES_MAX - size)
        records += taken
        size += sum(map(stretch.size_of, taken))
        after = cursor.records[0].offset if cursor.records else cursor.next
        pages.append(Page(part.partition, after, part.log_start, part.high_watermark))
        if len(records) >= limit or size >= stretch.BYTES_MAX:
            break
    return records, pages


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

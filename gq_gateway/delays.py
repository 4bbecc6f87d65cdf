"""Delayed messages: what waits, cancelling one, counts."""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from gq_client.delayed import After, cancel_delayed, delay_stats, delayed
from gq_gateway.call import Call
from gq_gateway.content import Encoding, Partition, by_content
from gq_gateway.problems import Refused
from gq_proto import limits
from gq_proto.access import ANY
from gq_proto.errors import BadRequest, GoQueueError, NotFound
from gq_proto.messages import DelayPartition, Fate

FATES: Final = {Fate.CANCELLED: "cancelled", Fate.ALREADY_CANCELLED: "already_cancelled"}


class DelayedQuery(Struct, forbid_unknown_fields=True):
    partition: Annotated[Partition | None, Meta(description="this one only")] = None
    after: Annotated[str, Meta(description="`next` of the page before")] = ""
    limit: Annotated[int, Meta(ge=1, le=limits.DELAYED_PAGE_MAX, description="messages at most")] = limits.DELAYED_PAGE


class Waiting(Struct, rename="camel"):
    """A message that waits for its time. due: Unix microseconds."""

    partition: int
    offset: int
    due: int
    key: str | None
    key_encoding: Encoding | UnsetType = UNSET


class WaitingPage(Struct):
    """Soonest first. next: ask with after=... for what follows; null: nothing does."""

    messages: list[Waiting]
    next: str | None


class Cancelled(Struct):
    """fate: cancelled, or already_cancelled (before this request)."""

    topic: str
    partition: int
    offset: int
    fate: str


class StatsQuery(Struct, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(description="this one only")] = ""


class DelayCounts(Struct, rename="camel"):
    """Messages; ready, cancelled and expired since delayd serves the partition. Lateness: from due to written, microseconds."""

    topic: str
    partition: int
    scheduled: int
    overdue: int
    ready: int
    cancelled: int
    expired: int
    next_due: int | None
    lateness_p50: int | None
    lateness_p99: int | None
    loading: bool


class DelayStats(Struct):
    scheduled: int
    partitions: list[DelayCounts]


async def list_waiting(call: Call) -> WaitingPage:
    client, query = call.gateway.client, call.query
    found = await client.run(delayed(client.routes, call.topic, partition=query.partition, after=_after(query.after),
                                     limit=query.limit))
    messages = [Waiting(row.partition, row.offset, row.due, *by_content(row.key)) for row in found.messages]
    return WaitingPage(messages, ":".join(map(str, found.after)) if found.after else None)


def _after(text: str) -> After | None:
    if not text:
        return None
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise Refused(BadRequest("after: give `next` of the page before"), "after")
    due, partition, offset = map(int, parts)
    return due, partition, offset


async def cancel(call: Call) -> Cancelled:
    client, partition, offset = call.gateway.client, call.number("partition"), call.number("offset")
    [fate] = await client.run(cancel_delayed(client.routes, call.topic, [(partition, offset)]))
    if isinstance(fate, GoQueueError):
        raise fate
    if fate not in FATES:
        why = "it came due before" if fate == Fate.DELIVERED else "no delayed message lies there"
        raise NotFound(f"{call.topic}[{partition}] offset {offset} cannot be cancelled: {why}")
    return Cancelled(call.topic, partition, offset, FATES[fate])


async def stats(call: Call) -> DelayStats:
    client = call.gateway.client
    call.access.need(ANY, call.query.topic)
    rows = [_counts(row) for row in await client.run(delay_stats(client.routes, call.query.topic or None))
            if call.access.sees(row.topic)]
    return DelayStats(sum(row.scheduled for row in rows), rows)


def _counts(row: DelayPartition) -> DelayCounts:
    return DelayCounts(row.topic, row.partition, row.scheduled, row.overdue, row.ready, row.cancelled, row.expired,
                       _or_none(row.next_due_us), _or_none(row.lateness_p50_us), _or_none(row.lateness_p99_us), row.loading)


def _or_none(value: int) -> int | None:
    return None if value < 0 else value

"""`POST /topics/{topic}/replay`: what lies in a log once more, for one group (rewound) or for everybody (published to a topic).

Publishing copies is bounded: COPY_MAX messages a request. `next` then says where to go on, by partition.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from gq_client.stretch import stretch
from gq_gateway.call import Call
from gq_gateway.content import Partition
from gq_gateway.groups import names
from gq_gateway.moments import Position, position
from gq_gateway.problems import Refused
from gq_gateway.reading import offsets_at
from gq_gateway.table import CONSUME, PUBLISH
from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.messages import EARLIEST, LATEST
from gq_proto.names import check_name

COPY: Final = 10_000
COPY_MAX: Final = 100_000
SOME: Final = 2_000


class Replay(Struct, forbid_unknown_fields=True, rename={"from_": "from", "to_topic": "toTopic"}):
    """group: it gets exactly these messages again, attempts from 0. toTopic: copies are published there. One of the two."""

    group: str | UnsetType = UNSET
    to_topic: str | UnsetType = UNSET
    partition: Annotated[Partition | None, Meta(description="this one only")] = None
    from_: Annotated[Position, Meta(description="the first one: an offset, earliest, latest, @UNIXSECONDS, RFC 3339")] = EARLIEST
    to: Annotated[Position, Meta(description="up to here, exclusive")] = LATEST
    limit: Annotated[int, Meta(ge=1, le=COPY_MAX, description="copies at most")] = COPY


class ReplayedPartition(Struct, rename={"from_": "from"}):
    """Messages of [from, to). next: where to go on when the limit was reached."""

    partition: int
    from_: int
    to: int
    messages: int
    next: int | UnsetType = UNSET


class Replayed(Struct):
    topic: str
    messages: int
    partitions: list[ReplayedPartition]


async def replay(call: Call) -> Replayed:
    body: Replay = call.body
    if (body.group is UNSET) == (body.to_topic is UNSET):
        raise Refused(BadRequest("give one of group and toTopic"), "group")
    client = call.gateway.client
    low, high = position(body.from_, "from"), position(body.to, "to")
    lows = await client.run(offsets_at(client.routes, call.topic, body.partition, low))
    highs = await client.run(offsets_at(client.routes, call.topic, body.partition, high))
    ranges = {number: (lows[number], highs[number]) for number in lows if lows[number] < highs[number]}
    if isinstance(body.group, str):
        done = await _rewind(call, body.group, ranges)
    else:
        done = await _copy(call, names("toTopic", [str(body.to_topic)])[0], ranges, body.limit)
    return Replayed(call.topic, sum(part.messages for part in done), done)


async def _rewind(call: Call, group: str, ranges: dict[int, tuple[int, int]]) -> list[ReplayedPartition]:
    try:
        check_name("group", group)
    except GoQueueError as error:
        raise Refused(error, "group") from None
    await call.gateway.authorize(call.request, CONSUME, call.topic, group)
    client = call.gateway.client
    if not ranges:
        await client.describe_group(group)          # UnknownGroup is said although there is nothing to do
    return [ReplayedPartition(number, low, high, await client.rewind(group, call.topic, number, low, high))
            for number, (low, high) in ranges.items()]


async def _copy(call: Call, target: str, ranges: dict[int, tuple[int, int]], limit: int) -> list[ReplayedPartition]:
    await call.gateway.authorize(call.request, PUBLISH, target)
    done = []
    for number, (low, high) in ranges.items():
        copied, after = await _copy_partition(call, target, number, low, high, limit)
        limit -= copied
        done.append(ReplayedPartition(number, low, high, copied, UNSET if after >= high else after))
    return done


async def _copy_partition(call: Call, target: str, number: int, low: int, high: int, limit: int) -> tuple[int, int]:
    """(copied, where to go on)."""
    client, producer = call.gateway.client, call.gateway.producer("leader")
    topic = client.routes.topic(call.topic)
    copied = 0
    while low < high and copied < limit:
        records = await client.run(stretch(client.routes, topic, number, low, high, min(SOME, limit - copied)))
        if not records:
            return copied, high
        sent = [await producer.send(target, record.value, record.key, record.headers, record.priority) for record in records]
        for one in sent:
            await one
        copied, low = copied + len(records), records[-1].offset + 1
    return copied, low

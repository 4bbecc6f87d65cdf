"""Topics: make, list, look at, alter, delete, empty."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gq_client.routing import METAD
from gq_gateway.call import Call
from gq_gateway.content import Partition
from gq_gateway.moments import Position, position
from gq_gateway.reading import offsets_at
from gq_gateway.table import ADMIN
from gq_proto import limits
from gq_proto.messages import LATEST, CreateTopic, Kind, PartitionInfo, TopicConfig, TopicMeta
from gq_proto.names import is_internal

Setting = Annotated[int, Meta(ge=-1, le=2**53 - 1)]
TopicSettings = msgspec.defstruct(
    "TopicSettings", [(field.name, (Setting if field.type is int else field.type) | UnsetType, UNSET)
                      for field in msgspec.structs.fields(TopicConfig)],
    rename="camel", forbid_unknown_fields=True, module=__name__,
    namespace={"__doc__": "Settings of a topic; what is left out is the node's default, or stays as it is. Milliseconds, bytes; "
                          "-1 is unlimited."})

Partitions = Annotated[int, Meta(ge=0, le=limits.PARTITIONS_MAX, description="0: the default, or as it is; never fewer")]


class NewTopic(Struct, forbid_unknown_fields=True, rename="camel"):
    name: Annotated[str, Meta(description="1-196 of A-Z a-z 0-9 . _ -")]
    partitions: Partitions = 0
    replication_factor: Annotated[int, Meta(ge=0, le=100)] = 0
    config: TopicSettings | None = None  # type: ignore[valid-type]
    if_not_exists: Annotated[bool, Meta(description="answer 200 with the topic when there is one of that name")] = False


class TopicChange(Struct, forbid_unknown_fields=True, rename="camel"):
    """What changes."""

    partitions: Partitions = 0
    config: TopicSettings | None = None  # type: ignore[valid-type]


class TopicQuery(Struct, forbid_unknown_fields=True):
    internal: Annotated[bool, Meta(description="the system's own topics too")] = False


class Topic(Struct, rename="camel"):
    """A topic. id: 63 bits, so it is text; createdAt: Unix microseconds."""

    name: str
    id: str
    partitions: int
    replication_factor: int
    created_at: int
    config: TopicConfig


class TopicPartition(Struct, rename="camel"):
    """A partition. Offsets lie in [logStart, highWatermark)."""

    partition: int
    leader: str
    epoch: int
    log_start: int
    high_watermark: int
    last_stable: int
    size_bytes: int
    segments: int
    online: bool
    problem: str


class TopicDetail(Topic, rename="camel"):
    """A topic with its partitions; one whose leader does not answer is missing in partitionDetails."""

    partition_details: list[TopicPartition] = []


class Topics(Struct):
    topics: list[Topic]


class Purge(Struct, forbid_unknown_fields=True):
    """What is removed; nothing said: everything."""

    partition: Annotated[Partition | None, Meta(description="of this one only")] = None
    before: Annotated[Position, Meta(description="up to here: an offset, latest, @UNIXSECONDS, RFC 3339")] = LATEST


class LogStart(Struct, rename="camel"):
    partition: int
    log_start: int


class Purged(Struct):
    """Where each partition begins now."""

    partitions: list[LogStart]


async def create(call: Call) -> Topic:
    body: NewTopic = call.body
    await call.gateway.authorize(call.request, ADMIN, body.name)
    wanted = CreateTopic(body.name, body.partitions, body.replication_factor, _config(body.config), body.if_not_exists)
    reply, _ = await call.gateway.client.call(Kind.CREATE_TOPIC, wanted, to=METAD, safe=body.if_not_exists)
    call.gateway.client.routes.add(reply.topic)
    if not reply.created:
        call.status = 200
    return _shown(reply.topic)


async def list_all(call: Call) -> Topics:
    found = await call.gateway.client.topics()
    shown = [_shown(topic) for topic in found
             if (call.query.internal or not is_internal(topic.name)) and call.access.sees(topic.name)]
    return Topics(sorted(shown, key=lambda topic: topic.name))


async def describe(call: Call) -> TopicDetail:
    client = call.gateway.client
    parts = await client.partitions(call.topic)
    topic = client.routes.topic(call.topic)
    shown = [_partition(part, topic) for part in parts]
    return TopicDetail(*_fields(topic), shown)


async def alter(call: Call) -> Topic:
    body: TopicChange = call.body
    return _shown(await call.gateway.client.alter_topic(call.topic, partitions=body.partitions, config=_config(body.config)))


async def delete(call: Call) -> None:
    await call.gateway.client.delete_topic(call.topic)


async def purge(call: Call) -> Purged:
    body, client = call.body, call.gateway.client
    before = await client.run(offsets_at(client.routes, call.topic, body.partition, position(body.before, "before")))
    return Purged([LogStart(number, await client.delete_before(call.topic, number, offset)) for number, offset in before.items()])


def _config(settings: Any) -> dict[str, Any]:
    """What was said, by its names on the wire."""
    return msgspec.to_builtins(settings) if settings is not None else {}


def _shown(topic: TopicMeta) -> Topic:
    return Topic(*_fields(topic))


def _fields(topic: TopicMeta) -> tuple[str, str, int, int, int, TopicConfig]:
    return topic.name, str(topic.id), len(topic.partitions), topic.replication_factor, topic.created_us, topic.config


def _partition(part: PartitionInfo, topic: TopicMeta) -> TopicPartition:
    return TopicPartition(part.partition, topic.partitions[part.partition].leader, part.epoch, part.log_start, part.high_watermark,
                          part.last_stable, part.size_bytes, part.segments, part.online, part.problem)

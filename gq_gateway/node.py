"""What operators ask: health, the cluster's daemons, figures, and the metrics of all daemons in one text."""

import asyncio
from typing import Annotated, Final

from msgspec import Meta, Struct

from gq_client import admin
from gq_client.letters import count_outstanding
from gq_gateway.call import Call
from gq_gateway.gateway import Gateway
from gq_gateway.scrape import merge, scrape
from gq_gateway.table import Raw
from gq_proto.access import ANY
from gq_proto.errors import GoQueueError
from gq_proto.messages import GroupInfo, GroupPartition, LaneInfo, StatusReply
from gq_proto.names import is_dlq, is_internal, topic_of_dlq
from gq_proto.record import PRIORITY_NAMES
from gq_run.exporter import render

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
STATUS_S: Final = 2.0
GROUPS_MAX: Final = 1_000           # described for one answer


class Health(Struct):
    """live: it answers. ready: metad has registered it and answers. detail: why it is not ready."""

    live: bool
    ready: bool
    detail: str = ""


class DaemonState(Struct, rename="camel"):
    daemon: str
    node: str
    ready: bool
    pid: int | None
    uptime_seconds: float | None
    version: str | None
    codec: str | None
    detail: str


class Cluster(Struct, rename="camel"):
    cluster_id: str
    metadata_version: int
    topics: int
    daemons: list[DaemonState]


class StatsQuery(Struct, forbid_unknown_fields=True):
    group: Annotated[str, Meta(description="this one only")] = ""
    topic: Annotated[str, Meta(description="this one only")] = ""


class LaneCounts(Struct, rename="camel"):
    """One priority of a partition, as a group has it. Counts since groupd began, rates of about the last 10 s;
    lastServedSecondsAgo: null when never."""

    group: str
    topic: str
    partition: int
    priority: str
    ready: int
    in_flight: int
    retrying: int
    enqueued: int
    dequeued: int
    enqueued_per_second: float
    dequeued_per_second: float
    last_served_seconds_ago: float | None


class PriorityStats(Struct):
    lanes: list[LaneCounts]


class Reliability(Struct, rename="camel"):
    """Of one group in one topic. lag: not acked; ready: of these, free to be delivered; retrying: waiting for the next try."""

    group: str
    topic: str
    lag: int
    ready: int
    in_flight: int
    retrying: int
    expired: int
    dead_letters: int


class ReliabilityStats(Struct, rename="camel"):
    """deadLetters: outstanding ones of a topic, whichever group failed them."""

    in_flight: int
    retrying: int
    expired: int
    groups: list[Reliability]


async def health(call: Call) -> Health:
    ready = call.gateway.is_ready()
    if not ready:
        call.status = 503
        return Health(True, False, "metad does not answer: is the node up?")
    return Health(True, True)


async def metrics(call: Call) -> Raw:
    return Raw(METRICS_TYPE, await node_metrics(call.gateway))


async def node_metrics(gateway: Gateway) -> bytes:
    """The metrics of all daemons that serve them, and the gateway's own, as one exposition."""
    own = render(gateway.collect())
    try:
        found = await statuses(gateway)
    except GoQueueError:
        found = []                 # metad is down: that, too, is to be seen in what is left
    addresses = sorted({str(status.facts.get("metrics", "")) for status in found
                        if isinstance(status, StatusReply) and status.pid != gateway.pid} - {""})
    texts = await asyncio.gather(*[scrape(address, gateway.scrape_key) for address in addresses])
    return merge([own, *texts])


async def statuses(gateway: Gateway) -> list[StatusReply | GoQueueError]:
    """What each registered daemon says; who does not answer soon is taken for down."""
    found: list[StatusReply | GoQueueError] = await gateway.client.run(admin.statuses(gateway.client.routes), STATUS_S)
    return found


async def cluster(call: Call) -> Cluster:
    client = call.gateway.client
    answers = await statuses(call.gateway)
    known = [("metad", "")] + [key for key in sorted(client.routes.daemons) if key[0] != "metad"]
    daemons = [_state(daemon, node, answer) for (daemon, node), answer in zip(known, answers)]
    routes = client.routes
    return Cluster(routes.cluster_id, routes.version, len(routes.topics), daemons)


def _state(daemon: str, node: str, answer: StatusReply | GoQueueError) -> DaemonState:
    if isinstance(answer, GoQueueError):
        return DaemonState(daemon, node, False, None, None, None, None, answer.message)
    return DaemonState(answer.daemon, answer.node_id, answer.ready, answer.pid, round(answer.uptime_s, 3), answer.version,
                       answer.codec, answer.detail)


async def priorities(call: Call) -> PriorityStats:
    return PriorityStats([_lane(info.group, part, lane) for info in await _groups(call, lanes=True) for part in info.partitions
                          if call.query.topic in ("", part.topic) and call.access.sees(part.topic) for lane in part.lanes])


def _lane(group: str, part: GroupPartition, lane: LaneInfo) -> LaneCounts:
    return LaneCounts(group, part.topic, part.partition, PRIORITY_NAMES[lane.priority], lane.ready, lane.in_flight, lane.retrying,
                      lane.enqueued, lane.dequeued, lane.enqueued_per_s, lane.dequeued_per_s,
                      lane.served_ms_ago / 1000 if lane.served_ms_ago >= 0 else None)


async def _groups(call: Call, *, lanes: bool = False) -> list[GroupInfo]:
    """The group that is asked for, or all that the key has to do with."""
    client, query, access = call.gateway.client, call.query, call.access
    access.need(ANY, query.topic, query.group)
    names = [query.group] if query.group else [group.group for group in await client.groups()
                                               if not is_internal(group.group) and access.sees_group(group.group)]
    return [await client.describe_group(name, lanes=lanes) for name in names[:GROUPS_MAX]]


async def reliability(call: Call) -> ReliabilityStats:
    query, access = call.query, call.access
    infos = await _groups(call)
    letters = await _letters(call)
    rows = [_row(info, topic, letters) for info in infos
            for topic in sorted({part.topic for part in info.partitions}) if query.topic in ("", topic) and access.sees(topic)]
    return ReliabilityStats(sum(row.in_flight for row in rows), sum(row.retrying for row in rows),
                            sum(row.expired for row in rows), rows)


def _row(info: GroupInfo, topic: str, letters: dict[str, int]) -> Reliability:
    parts = [part for part in info.partitions if part.topic == topic]
    lag, in_flight = sum(part.lag for part in parts), sum(part.in_flight for part in parts)
    retrying = sum(part.retrying for part in parts)
    return Reliability(info.group, topic, lag, max(0, lag - in_flight - retrying), in_flight, retrying,
                       sum(part.expired for part in parts), letters.get(topic, 0))


async def _letters(call: Call) -> dict[str, int]:
    """Outstanding dead letters by topic."""
    client, found = call.gateway.client, dict[str, int]()
    for topic in await client.topics():
        if is_dlq(topic.name):
            origin = topic_of_dlq(topic.name)
            found[origin] = await client.run(count_outstanding(client.routes, origin))
    return found

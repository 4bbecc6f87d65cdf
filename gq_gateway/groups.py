"""Groups but for polling and settling: members, figures, commits, resets."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gq_client.routing import To
from gq_gateway.call import Call
from gq_gateway.content import OffsetNumber, Partition
from gq_gateway.moments import Duration, Position, milliseconds, position
from gq_gateway.problems import Refused
from gq_gateway.reading import offsets_at
from gq_gateway.table import CONSUME
from gq_proto import limits, rights
from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.messages import (
    EARLIEST,
    Assigned,
    GroupInfo,
    GroupPartition,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Kind,
    Leave,
    ListGroupsReply,
    Mark1,
    MemberInfo,
)
from gq_proto.names import check_name, is_internal

SESSION_MIN_S: Final = 10.0           # a waiting poll keeps a session alive, asking groupd every few seconds
CLIENT: Final = "http"
Mode = Annotated[Literal["", "partitioned", "shared"],
                 Meta(description="of a new group: partitioned, or shared (one partition serves many members)")]


class NewMember(Struct, forbid_unknown_fields=True):
    """topics: what it wants. member: its id when it joins again. start: where a new group begins."""

    topics: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    member: str = ""
    mode: Mode = ""
    start: Annotated[str, Meta(description="of a new group: earliest, latest, @UNIXSECONDS or RFC 3339")] = EARLIEST
    session: Annotated[Duration, Meta(description="the member is gone when it is not heard for so long; 10 s at least")] = "30s"
    client: Annotated[str, Meta(max_length=limits.NAME_MAX, description="shown to people")] = CLIENT


class MemberName(Struct, forbid_unknown_fields=True):
    member: str


class Part(Struct):
    topic: str
    partition: int


class Joined(Struct, rename="camel"):
    """heartbeatSeconds: how often to call heartbeat while not polling."""

    group: str
    member: str
    generation: int
    heartbeat_seconds: float
    assignment: list[Part]


class Beat(Struct):
    generation: int
    assignment: list[Part]


class Offset(Struct, forbid_unknown_fields=True):
    topic: str
    partition: Partition
    offset: Annotated[OffsetNumber, Meta(description="everything below it is done")]


class Commit(Struct, forbid_unknown_fields=True):
    offsets: Annotated[list[Offset], Meta(min_length=1, max_length=1000)]


class Committed(Struct):
    """How many messages each offset settled, in order."""

    acked: list[int]


class Reset(Struct, forbid_unknown_fields=True):
    topic: str
    to: Annotated[Position, Meta(description="an offset, or earliest, latest, @UNIXSECONDS, RFC 3339")]
    partition: Annotated[Partition | None, Meta(description="this one only")] = None


class ResetPartition(Struct):
    """acked: done with now; again: will be delivered (again)."""

    topic: str
    partition: int
    offset: int
    acked: int
    again: int


class ResetResult(Struct):
    partitions: list[ResetPartition]


class Member(Struct, rename="camel"):
    member: str
    client: str
    session_seconds: float
    heard_seconds_ago: float
    in_flight: int
    topics: list[str]
    assignment: list[Part]


class Progress(Struct, rename="camel"):
    """lag: deliverable and not acked: ready, in flight or waiting for a retry. skippedTo: where the group went on after retention
    took what it had not read."""

    topic: str
    partition: int
    owner: str | None
    committed: int
    end: int
    log_start: int
    lag: int
    in_flight: int
    retrying: int
    scheduled: int
    expired: int
    acked_ahead: int
    skipped_to: int | None


class Group(Struct, rename="camel"):
    group: str
    mode: str
    state: str
    generation: int
    paused: bool
    topics: list[str]
    lag: int
    members: list[Member]
    partitions: list[Progress]


class GroupSummary(Struct):
    group: str
    mode: str
    members: int
    topics: list[str]
    paused: bool
    lag: int


class Groups(Struct):
    groups: list[GroupSummary]


class PartLag(Struct, rename="camel"):
    topic: str
    partition: int
    committed: int
    end: int
    lag: int
    in_flight: int
    retrying: int


class Lag(Struct):
    group: str
    lag: int
    partitions: list[PartLag]


class GroupsQuery(Struct, forbid_unknown_fields=True):
    internal: Annotated[bool, Meta(description="the system's own groups too")] = False


class LagQuery(Struct, forbid_unknown_fields=True):
    topic: str | UnsetType = UNSET


class DeleteQuery(Struct, forbid_unknown_fields=True):
    force: Annotated[bool, Meta(description="even while it has members")] = False


# -- members -------------------------------------------------------------------------------

async def join(call: Call) -> Joined:
    body: NewMember = call.body
    await may_consume(call, names("topics", body.topics))
    wanted = Join(call.group, body.member, body.topics, body.mode, start_of(body.start),
                  session_ms(body.session), body.client)
    reply: JoinReply
    reply, _ = await call.gateway.client.call(Kind.JOIN, wanted, to=To.group(call.group))
    return Joined(call.group, reply.member, reply.generation, reply.heartbeat_ms / 1000, _parts(reply.assignment))


async def leave(call: Call) -> None:
    await call.gateway.client.call(Kind.LEAVE, Leave(call.group, call.body.member), to=To.group(call.group))


async def heartbeat(call: Call) -> Beat:
    reply: HeartbeatReply
    reply, _ = await call.gateway.client.call(Kind.HEARTBEAT, Heartbeat(call.group, call.body.member, 0), to=To.group(call.group))
    return Beat(reply.generation, _parts(reply.assignment))


async def may_consume(call: Call, topics: Iterable[str]) -> None:
    """What the body names is asked for too, not only the group in the path."""
    for topic in topics:
        await call.gateway.authorize(call.request, CONSUME, topic, call.group)


def names(field: str, topics: list[str]) -> list[str]:
    for topic in topics:
        try:
            check_name("topic", topic)
        except GoQueueError as error:
            raise Refused(error, field) from None
    return topics


def start_of(start: str) -> str:
    """As Join wants it."""
    found = position(start, "start")
    if isinstance(found, int):
        raise Refused(BadRequest("start: a group begins at earliest, latest or a time; reset moves it to offsets"), "start")
    return str(int(found * 1_000_000)) if isinstance(found, float) else str(found)


def session_ms(session: Duration) -> int:
    return max(milliseconds(session, "session", limits.VISIBILITY_MS_MAX), round(SESSION_MIN_S * 1000))


def _parts(assignment: list[Assigned]) -> list[Part]:
    return [Part(part.topic, part.partition) for part in assignment]


# -- figures ---------------------------------------------------------------------------------

async def list_all(call: Call) -> Groups:
    found = rights.shown(call.access, Kind.LIST_GROUPS, ListGroupsReply(await call.gateway.client.groups())).groups
    return Groups([GroupSummary(group.group, group.mode, group.members, group.topics, group.paused, group.lag) for group in found
                   if call.query.internal or not is_internal(group.group)])


async def describe(call: Call) -> Group:
    found = await _info(call)
    return Group(found.group, found.mode, found.state, found.generation, found.paused, found.topics,
                 sum(part.lag for part in found.partitions), [_member(member) for member in found.members],
                 [_progress(part) for part in found.partitions])


async def _info(call: Call) -> GroupInfo:
    """What the caller may see of it."""
    found = await call.gateway.client.describe_group(call.group)
    seen: GroupInfo = rights.shown(call.access, Kind.DESCRIBE_GROUP, found)
    return seen


def _member(member: MemberInfo) -> Member:
    return Member(member.member, member.client, member.session_ms / 1000, member.age_ms / 1000, member.in_flight, member.topics,
                  _parts(member.assignment))


def _progress(part: GroupPartition) -> Progress:
    return Progress(part.topic, part.partition, part.owner or None, part.committed, part.end, part.log_start, part.lag,
                    part.in_flight, part.retrying, part.scheduled, part.expired, sum(part.acked_ahead[1::2]),
                    None if part.skipped_to < 0 else part.skipped_to)


async def lag(call: Call) -> Lag:
    found = await _info(call)
    parts = [PartLag(part.topic, part.partition, part.committed, part.end, part.lag, part.in_flight, part.retrying)
             for part in found.partitions if call.query.topic in (UNSET, part.topic)]
    return Lag(call.group, sum(part.lag for part in parts), parts)


# -- changes ---------------------------------------------------------------------------------

async def commit(call: Call) -> Committed:
    client, marks = call.gateway.client, []
    await may_consume(call, {item.topic for item in call.body.offsets})
    await client.refresh()
    for item in call.body.offsets:
        topic = client.routes.topic(item.topic)
        marks.append(Mark1(topic.id, client.routes.check_partition(topic, item.partition), True, 0, item.offset))
    return Committed(await client.mark(call.group, marks, create=True))


async def reset(call: Call) -> ResetResult:
    client, body = call.gateway.client, call.body
    await may_consume(call, [body.topic])
    offsets = await client.run(offsets_at(client.routes, body.topic, body.partition, position(body.to, "to")))
    done = []
    for number, offset in offsets.items():
        acked, again = await client.reset(call.group, body.topic, number, offset)
        done.append(ResetPartition(body.topic, number, offset, acked, again))
    return ResetResult(done)


async def delete(call: Call) -> None:
    await call.gateway.client.delete_group(call.group, force=call.query.force)


async def pause(call: Call) -> None:
    await call.gateway.client.pause_group(call.group, True)


async def resume(call: Call) -> None:
    await call.gateway.client.pause_group(call.group, False)



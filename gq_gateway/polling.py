"""`GET /groups/{group}/poll`: a long poll over HTTP, see polls.

Without a member the poll is a member of its own: it joins, asks, leaves. Its hold leases stay.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

from msgspec import Meta, Struct

from gq_client.aio import AsyncClient
from gq_client.routing import To
from gq_gateway.call import Call
from gq_gateway.content import StoredMessage, stored
from gq_gateway.groups import CLIENT, Mode, may_consume, names, session_ms, start_of
from gq_gateway.moments import Duration, milliseconds, seconds
from gq_gateway.polls import Question
from gq_gateway.problems import Refused
from gq_gateway.reading import Force
from gq_proto import limits
from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.messages import EARLIEST, Join, Kind, Leave

WAIT_MAX_S: Final = 60.0
ANSWER_BYTES: Final = 8 * limits.MIB       # of messages in one answer; one more may be as large as it is


class PollQuery(Struct, forbid_unknown_fields=True):
    member: Annotated[str, Meta(description="from join; without it this poll joins and leaves by itself")] = ""
    topics: Annotated[list[str], Meta(description="without member: what to consume")] = []
    max: Annotated[int, Meta(ge=1, le=limits.MAX_IN_FLIGHT, description="messages at most")] = limits.POLL_MESSAGES
    wait: Annotated[Duration, Meta(description="for the first message; up to 60 s")] = "30s"
    visibility: Annotated[Duration | None, Meta(description="the messages are yours for so long; else the topic's")] = None
    mode: Mode = ""
    start: Annotated[str, Meta(description="of a new group: earliest, latest, @UNIXSECONDS or RFC 3339")] = EARLIEST
    encoding: Force = "auto"


class Polled(Struct):
    """Messages, each with its receipt: ack it before its visibility timeout ends. paused: the group hands out nothing now."""

    messages: list[StoredMessage]
    paused: bool = False


async def poll(call: Call) -> Polled:
    query: PollQuery = call.query
    wait_s = seconds(query.wait, "wait", WAIT_MAX_S)
    visibility_ms = 0 if query.visibility is None else max(1, milliseconds(query.visibility, "visibility",
                                                                           limits.VISIBILITY_MS_MAX))
    if not query.member and not query.topics:
        raise Refused(BadRequest("give member (from join), or topics to consume"), "topics")
    gateway = call.gateway
    gateway.check_open()
    gone = call.watch()
    try:
        async with _seat(call, query) as member:
            question = Question(call.group, member, query.max, wait_s, visibility_ms, ANSWER_BYTES)
            gateway.waiting += 1
            try:
                found = await gateway.polls.poll(question, lambda topics: may_consume(call, topics), gone)
            finally:
                gateway.waiting -= 1
    finally:
        gone.cancel()
    messages = stored(found.messages, query.encoding)
    for message, leased, receipt in zip(messages, found.messages, found.receipts, strict=True):
        message.delivery, message.receipt = leased.delivery, receipt
    return Polled(messages, found.reply.paused)


@asynccontextmanager
async def _seat(call: Call, query: PollQuery) -> AsyncIterator[str]:
    """The member that polls: the one named, or one for this poll only."""
    if query.member:
        yield query.member
        return
    client, group = call.gateway.client, call.group
    await may_consume(call, names("topics", query.topics))
    join = Join(group, "", query.topics, query.mode, start_of(query.start), session_ms("30s"), CLIENT)
    joined, _ = await client.call(Kind.JOIN, join, to=To.group(group))
    try:
        yield joined.member
    finally:
        call.gateway.afterwards(_leave(client, group, joined.member))


async def _leave(client: AsyncClient, group: str, member: str) -> None:
    try:
        await client.call(Kind.LEAVE, Leave(group, member), to=To.group(group))
    except GoQueueError:
        pass                               # its session ends by itself

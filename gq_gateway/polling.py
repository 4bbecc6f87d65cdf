"""The long poll of a group: leases from groupd, their bytes from logd, messages with receipts for the caller.

Leases are hold leases: they live to their deadline whether or not the member does, and any gateway takes their receipts. Until the
answer is handed to the connection they are ours: whatever ends the poll before (the caller left, the gateway stops, logd does not
answer, the answer is full) gives them back uncounted, at once. A poll that waits asks groupd for a few seconds at a time: that
keeps the member's session alive, and bounds how long a question outlives its caller.

Without a member the poll is a member of its own: it joins, asks, leaves. Its hold leases stay.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gq_client.aio import AsyncClient
from gq_client.routing import To
from gq_gateway.call import Call
from gq_gateway.content import StoredMessage, stored
from gq_gateway.groups import CLIENT, Mode, may_consume, names, session_ms, start_of
from gq_gateway.moments import Duration, milliseconds, seconds
from gq_gateway.problems import Refused
from gq_gateway.reading import Force
from gq_proto import codec, limits
from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.messages import (
    EARLIEST,
    Fetch,
    Fetched,
    FetchPart,
    Join,
    Kind,
    Lease,
    Leave,
    Op,
    Poll,
    PollReply,
    RangeStatus,
    Settle,
    Settle1,
)
from gq_proto.receipt import Receipt, texts

WAIT_S: Final = 30.0
WAIT_MAX_S: Final = 60.0
SLICE_MS: Final = limits.HEARTBEAT_MS      # groupd is asked for so long at a time
GRACE_S: Final = 5.0                       # beyond it, before groupd is taken for lost
TICK_S: Final = 5.0                        # deadlines fall on multiples: one look at them for many polls
ANSWER_BYTES: Final = 8 * limits.MIB       # of messages in one answer; one more may be as large as it is
FETCHES_MAX: Final = 16                    # of one poll
FAR: Final = 2**63 - 1


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


class Held:
    """One lease and what came of it."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.todo = list(lease.ranges)
        self.records: list[Any] = []
        self.settles: list[Settle1] = []

    def give_back(self, ranges: list[int]) -> None:
        if ranges:
            self.settles.append(Settle1(Op.RELEASE, self.lease.lease, ranges))

    def give_back_all(self) -> None:
        """Nothing of it was handed out after all."""
        self.settles.insert(0, Settle1(Op.RELEASE, self.lease.lease, list(self.lease.ranges)))
        self.todo, self.records = [], []


async def poll(call: Call) -> Polled:
    query: PollQuery = call.query
    wait_s = seconds(query.wait, "wait", WAIT_MAX_S)
    visibility_ms = 0 if query.visibility is None else max(1, milliseconds(query.visibility, "visibility",
                                                                           limits.VISIBILITY_MS_MAX))
    if not query.member and not query.topics:
        raise Refused(BadRequest("give member (from join), or topics to consume"), "topics")
    call.gateway.check_open()
    gone = call.watch()
    try:
        async with _seat(call, query) as member:
            return await Polling(call, member, gone).answer(query, visibility_ms, wait_s)
    finally:
        gone.cancel()


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


class Polling:
    """One poll, under way."""

    def __init__(self, call: Call, member: str, gone: "asyncio.Task[None]") -> None:
        self._call, self._gateway, self._client, self._gone = call, call.gateway, call.gateway.client, gone
        self._group, self._member, self._to = call.group, member, To.group(call.group)
        self._groups_partition = self._to.partition

    async def answer(self, query: PollQuery, visibility_ms: int, wait_s: float) -> Polled:
        reply = await self._leases(query.max, visibility_ms, time.monotonic() + wait_s)
        if reply is None or not reply.leases:
            return Polled([], reply.paused if reply else False)
        held = [Held(lease) for lease in reply.leases]
        try:
            await may_consume(self._call, {one.lease.topic for one in held})      # a member may be another key's; keys may end
            await self._fetch(held)
            messages = self._messages(held, reply, query.encoding)
        except BaseException:
            self._return(held)
            raise
        if self._gone.done():
            self._return(held)
            return Polled([])
        self._settle([settle for one in held for settle in one.settles])
        return Polled(messages)

    # -- leases -------------------------------------------------------------------------------

    async def _leases(self, most: int, visibility_ms: int, end: float) -> PollReply | None:
        """None: the caller left, or the gateway stops."""
        draining = asyncio.ensure_future(self._gateway.draining.wait())
        self._gateway.waiting += 1
        try:
            while True:
                left_ms = max(0, int((end - time.monotonic()) * 1000))
                asked = asyncio.ensure_future(self._ask(most, visibility_ms, min(left_ms, SLICE_MS)))
                await asyncio.wait((asked, self._gone, draining), return_when=asyncio.FIRST_COMPLETED)
                if not asked.done():
                    self._gateway.afterwards(self._orphan(asked))
                    return None
                reply = asked.result()
                if reply.leases or time.monotonic() >= end or self._gone.done() or draining.done():
                    return reply
        finally:
            self._gateway.waiting -= 1
            draining.cancel()

    async def _ask(self, most: int, visibility_ms: int, wait_ms: int) -> PollReply:
        now = time.monotonic()
        patience = math.ceil((now + wait_ms / 1000 + GRACE_S) / TICK_S) * TICK_S - now
        body = Poll(self._group, self._member, 0, most, wait_ms, visibility_ms, True)
        reply, _ = await self._client.call(Kind.POLL, body, to=self._to, timeout=patience, safe=False)
        found: PollReply = reply
        return found

    async def _orphan(self, asked: "asyncio.Task[PollReply]") -> None:
        """Nobody waits for this any more: what it brings goes back."""
        try:
            reply = await asked
        except GoQueueError:
            return
        self._return([Held(lease) for lease in reply.leases])

    def _return(self, held: list[Held]) -> None:
        for one in held:
            one.give_back_all()
        self._settle([settle for one in held for settle in one.settles])

    def _settle(self, items: list[Settle1]) -> None:
        if items:
            self._gateway.afterwards(self._settled(items))

    async def _settled(self, items: list[Settle1]) -> None:
        try:
            await self._client.call(Kind.SETTLE, Settle(self._group, self._member, items), to=self._to)
        except GoQueueError:
            pass                           # they come back at their deadline

    # -- bytes ----------------------------------------------------------------------------------

    async def _fetch(self, held: list[Held]) -> None:
        """Their messages, as far as one answer holds them; the rest goes back."""
        size = 0
        for _ in range(FETCHES_MAX):
            missing = [one for one in held if one.todo]
            if not missing or size >= ANSWER_BYTES:
                break
            before = size
            size += await self._fetch_once(missing, ANSWER_BYTES - size)
            if size == before:
                break
        for one in held:
            one.give_back(one.todo)
            one.todo = []

    async def _fetch_once(self, held: list[Held], most: int) -> int:
        by_leader: dict[str, list[Held]] = {}
        for one in held:
            to = To.leader(one.lease.topic_id, one.lease.partition)
            by_leader.setdefault(self._client.routes.endpoint(to) or "", []).append(one)
        sizes = await asyncio.gather(*[self._fetch_from(some, most) for some in by_leader.values()])
        return sum(sizes)

    async def _fetch_from(self, held: list[Held], most: int) -> int:
        parts = [FetchPart(one.lease.topic_id, one.lease.partition, one.lease.epoch, -1, list(one.todo), most) for one in held]
        lease = held[0].lease
        body, frames = await self._client.call(Kind.FETCH, Fetch(parts, most), to=To.leader(lease.topic_id, lease.partition))
        for one, part, frame in zip(held, body.parts, frames):
            take(one, part, frame)
        return sum(len(frame) for frame in frames)

    # -- messages -------------------------------------------------------------------------------

    def _messages(self, held: list[Held], reply: PollReply, encoding: str) -> list[StoredMessage]:
        out = []
        for one in held:
            lease = one.lease
            messages = stored(one.records, encoding)
            receipt = Receipt(lease.topic, lease.partition, 0, lease.delivery, self._groups_partition, reply.group_number,
                              lease.lease, lease.random)
            for message, text in zip(messages, texts(receipt, [record.offset for record in one.records])):
                message.delivery, message.receipt = lease.delivery, text
            out += messages
        return out


def take(held: Held, part: Fetched, frame: Any) -> None:
    """What a fetch brought of a lease. An error, or what cannot be had now, stays in `todo`."""
    if part.error:
        return
    todo, rest = held.todo, list[int]()
    for j in range(len(todo) // 2):
        low, count = todo[2 * j], todo[2 * j + 1]
        status = part.status[j] if j < part.covered and j < len(part.status) else RangeStatus.NOT_YET
        if status == RangeStatus.NOT_YET:
            rest += (low, count)
        elif status == RangeStatus.CORRUPT:
            held.settles.append(Settle1(Op.REJECT, held.lease.lease, [low, count], -1, "corrupt"))
        elif status == RangeStatus.OK and j == part.covered - 1 and low < part.next_offset < low + count:
            rest += (part.next_offset, low + count - part.next_offset)
    lease = held.lease
    held.records += codec.decode(frame, codec.Record, lease.topic, lease.partition, None, lease.delivery, 0, FAR, part.hidden)
    held.todo = rest

"""Join, Poll, Heartbeat, Leave, Commit: membership step by step. A call names all that it is about, so any gateway answers it."""

from typing import Final

from gq_client.routing import To
from gq_gateway import goqueue_pb2 as pb
from gq_gateway.gateway import Gateway
from gq_gateway.polls import Question
from gq_gateway.rpc.convert import add_message, assignments, milliseconds, mode_of, start_of
from gq_gateway.rpc.guard import PATIENCE_S, Caller
from gq_proto import limits
from gq_proto.errors import BadRequest
from gq_proto.messages import Heartbeat, Join, Kind, Leave
from gq_proto.names import check_name

WAIT_MS: Final = 30_000
RESPONSE_BYTES: Final = 3 * limits.MIB      # what callers take by default is 4 MiB
POSITIONS_MAX: Final = 10_000
TOPICS_MAX: Final = 1_000


class Groups:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def join(self, request: pb.JoinRequest, caller: Caller) -> pb.JoinResponse:
        topics = list(dict.fromkeys(request.topics))
        if not 1 <= len(topics) <= TOPICS_MAX:
            raise BadRequest(f"topics: {len(topics)} were named, use 1 to {TOPICS_MAX}")
        await self._authorize(caller, request.group, *topics)
        for topic in topics:
            await self._gateway.client.topic(topic)
        session_ms = milliseconds("session_ms", request.session_ms) or limits.SESSION_MS
        body = Join(request.group, request.member, topics, mode_of(request.mode), start_of(request.start), session_ms,
                    request.client or caller.peer)
        reply, _ = await self._gateway.client.call(Kind.JOIN, body, to=To.group(request.group), timeout=caller.patience(),
                                                   safe=bool(request.member))
        return pb.JoinResponse(member=reply.member, generation=reply.generation, heartbeat_ms=reply.heartbeat_ms,
                               assignment=assignments(reply.assignment))

    async def poll(self, request: pb.PollRequest, caller: Caller) -> pb.PollResponse:
        await self._authorize(caller, request.group)
        check_name("member", request.member)
        most = request.max_messages or limits.POLL_MESSAGES
        if not 1 <= most <= limits.MAX_IN_FLIGHT:
            raise BadRequest(f"max_messages: {most} is out of range, use 1 to {limits.MAX_IN_FLIGHT}")
        wait_ms = milliseconds("wait_ms", request.wait_ms, limits.LONG_POLL_MS_MAX) if request.HasField("wait_ms") else WAIT_MS
        visibility_ms = milliseconds("visibility_ms", request.visibility_ms)
        question = Question(request.group, request.member, most, caller.patience(wait_ms / 1000), visibility_ms, RESPONSE_BYTES)
        found = await self._gateway.polls.poll(question, lambda topics: self._authorize(caller, request.group, *topics))
        response = pb.PollResponse(generation=found.reply.generation, paused=found.reply.paused)
        for message, receipt in zip(found.messages, found.receipts, strict=True):
            add_message(response.messages, message, receipt)
        return response

    async def heartbeat(self, request: pb.HeartbeatRequest, caller: Caller) -> pb.HeartbeatResponse:
        await self._authorize(caller, request.group)
        check_name("member", request.member)
        reply, _ = await self._gateway.client.call(Kind.HEARTBEAT, Heartbeat(request.group, request.member, -1),
                                                   to=To.group(request.group), timeout=caller.patience())
        return pb.HeartbeatResponse(generation=reply.generation, assignment=assignments(reply.assignment))

    async def leave(self, request: pb.LeaveRequest, caller: Caller) -> pb.LeaveResponse:
        await self._authorize(caller, request.group)
        check_name("member", request.member)
        await self._gateway.client.call(Kind.LEAVE, Leave(request.group, request.member), to=To.group(request.group),
                                        timeout=caller.patience())
        return pb.LeaveResponse()

    async def commit(self, request: pb.CommitRequest, caller: Caller) -> pb.CommitResponse:
        positions = list(request.positions)
        if not 1 <= len(positions) <= POSITIONS_MAX:
            raise BadRequest(f"positions: {len(positions)} were given, use 1 to {POSITIONS_MAX}")
        await self._authorize(caller, request.group, *{position.topic for position in positions})
        commit = self._gateway.client.commit
        return pb.CommitResponse(acked=[await commit(request.group, one.topic, one.partition, _offset(one.offset))
                                        for one in positions])

    async def _authorize(self, caller: Caller, group: str, *topics: str) -> None:
        check_name("group", group)
        await self._gateway.authorize(caller, "consume", "", group)
        for topic in topics:
            await self._gateway.authorize(caller, "consume", topic, group)


def _offset(offset: int) -> int:
    if offset < 0:
        raise BadRequest(f"offset: {offset} is below 0")
    return offset


assert PATIENCE_S * 1000 >= WAIT_MS

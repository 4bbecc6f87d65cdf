"""Which bodies go with which kind, and the envelope around them."""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gq_proto import limits
from gq_proto.errors import BadRequest, BadVersion, GoQueueError, error_of
from gq_proto.messages.delayd import (
    CancelDelayed,
    CancelDelayedReply,
    DelayStats,
    DelayStatsReply,
    ListDelayed,
    ListDelayedReply,
)
from gq_proto.messages.groupd import (
    AssignedPush,
    DeleteGroup,
    DescribeGroup,
    GroupInfo,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    ListGroups,
    ListGroupsReply,
    Mark,
    MarkReply,
    Pause,
    Poll,
    PollReply,
    Settle,
    SettleReceipts,
    SettleReply,
)
from gq_proto.messages.kinds import VERSION, Body, Empty, Kind, StatusReply
from gq_proto.messages.logd import (
    DeleteBefore,
    DeleteBeforeReply,
    Due,
    DueReply,
    EndOfEpoch,
    EndOfEpochReply,
    Fetch,
    FetchReply,
    OffsetForTime,
    OffsetForTimeReply,
    Partitions,
    PartitionsReply,
    Produce,
    ProduceReply,
    Runs,
    RunsReply,
    Watch,
    WatchReply,
    WriteMarker,
    WriteMarkerReply,
)
from gq_proto.messages.metad import (
    AlterTopic,
    CheckKey,
    CheckKeyReply,
    CreateKey,
    CreateKeyReply,
    CreateTopic,
    DeleteTopic,
    DeleteTopicReply,
    InitProducer,
    InitProducerReply,
    ListKeys,
    ListKeysReply,
    Metadata,
    MetadataReply,
    Register,
    RegisterReply,
    RevokeKey,
    RevokeKeyReply,
    TopicReply,
)

BODIES: Final[dict[Kind, tuple[type[Body], type[Body]]]] = {
    Kind.STATUS: (Empty, StatusReply),
    Kind.PRODUCE: (Produce, ProduceReply),
    Kind.FETCH: (Fetch, FetchReply),
    Kind.RUNS: (Runs, RunsReply),
    Kind.DUE: (Due, DueReply),
    Kind.OFFSET_FOR_TIME: (OffsetForTime, OffsetForTimeReply),
    Kind.END_OF_EPOCH: (EndOfEpoch, EndOfEpochReply),
    Kind.WRITE_MARKER: (WriteMarker, WriteMarkerReply),
    Kind.DELETE_BEFORE: (DeleteBefore, DeleteBeforeReply),
    Kind.WATCH: (Watch, WatchReply),
    Kind.PARTITIONS: (Partitions, PartitionsReply),
    Kind.METADATA: (Metadata, MetadataReply),
    Kind.CREATE_TOPIC: (CreateTopic, TopicReply),
    Kind.ALTER_TOPIC: (AlterTopic, TopicReply),
    Kind.DELETE_TOPIC: (DeleteTopic, DeleteTopicReply),
    Kind.INIT_PRODUCER: (InitProducer, InitProducerReply),
    Kind.REGISTER: (Register, RegisterReply),
    Kind.CREATE_KEY: (CreateKey, CreateKeyReply),
    Kind.LIST_KEYS: (ListKeys, ListKeysReply),
    Kind.REVOKE_KEY: (RevokeKey, RevokeKeyReply),
    Kind.CHECK_KEY: (CheckKey, CheckKeyReply),
    Kind.JOIN: (Join, JoinReply),
    Kind.LEAVE: (Leave, Empty),
    Kind.HEARTBEAT: (Heartbeat, HeartbeatReply),
    Kind.POLL: (Poll, PollReply),
    Kind.SETTLE: (Settle, SettleReply),
    Kind.SETTLE_RECEIPTS: (SettleReceipts, SettleReply),
    Kind.MARK: (Mark, MarkReply),
    Kind.DESCRIBE_GROUP: (DescribeGroup, GroupInfo),
    Kind.LIST_GROUPS: (ListGroups, ListGroupsReply),
    Kind.DELETE_GROUP: (DeleteGroup, Empty),
    Kind.PAUSE: (Pause, Empty),
    Kind.ASSIGNED: (Empty, AssignedPush),
    Kind.LIST_DELAYED: (ListDelayed, ListDelayedReply),
    Kind.CANCEL_DELAYED: (CancelDelayed, CancelDelayedReply),
    Kind.DELAY_STATS: (DelayStats, DelayStatsReply),
}
REQUEST_KINDS: Final = frozenset(int(kind) for kind in BODIES if kind != Kind.ASSIGNED)


# -- envelopes ---------------------------------------------------------------------------

class Request(Struct, array_like=True, gc=False):
    version: int
    kind: int
    id: int
    deadline_ms: int
    token: bytes
    topic_id: int
    partition: int
    epoch: int
    body: Raw


class Reply(Struct, array_like=True, gc=False):
    version: int
    kind: int
    id: int
    error: int
    message: str
    body: Raw


_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(Request)
_reply_decoder = msgspec.msgpack.Decoder(Reply)
_request_bodies = {int(kind): msgspec.msgpack.Decoder(pair[0]) for kind, pair in BODIES.items()}
_reply_bodies = {int(kind): msgspec.msgpack.Decoder(pair[1]) for kind, pair in BODIES.items()}


def encode_request(kind: int, id: int, body: Body, *, deadline_ms: int = limits.REQUEST_DEADLINE_MS, token: bytes = b"",
                   topic_id: int = 0, partition: int = -1, epoch: int = -1) -> bytes:
    """Frame 0 of a request."""
    return _encoder.encode((VERSION, int(kind), id, deadline_ms, token, topic_id, partition, epoch, body))


def decode_request(frame: bytes | memoryview) -> Request:
    """BadRequest for what is no envelope, BadVersion for another version's. The body is still Raw: see request_body."""
    try:
        request = _request_decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadRequest(f"not a request: {e}") from None
    if request.version != VERSION:
        raise BadVersion(f"protocol version {request.version} is not spoken here, use {VERSION}")
    return request


def request_body(request: Request) -> Any:
    """The typed body of a request; BadRequest names the field that is wrong. UnknownKind is the server's to raise."""
    try:
        return _request_bodies[request.kind].decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadRequest(f"bad body of request kind {request.kind}: {e}") from None


def encode_reply(kind: int, id: int, body: Body) -> bytes:
    """Frame 0 of a reply that succeeded."""
    return _encoder.encode((VERSION, int(kind), id, 0, "", body))


def encode_error(kind: int, id: int, error: GoQueueError) -> bytes:
    """Frame 0 of a reply that failed."""
    return _encoder.encode((VERSION, int(kind), id, error.code, error.message, None))


def decode_reply(frame: bytes | memoryview) -> Reply:
    """BadRequest for what is no reply."""
    try:
        return _reply_decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadRequest(f"not a reply: {e}") from None


def reply_body(reply: Reply) -> Any:
    """The typed body, or the error that the reply carries is raised."""
    if reply.error:
        raise error_of(reply.error, reply.message)
    try:
        return _reply_bodies[reply.kind].decode(reply.body)
    except KeyError:
        raise BadRequest(f"a reply of unknown kind {reply.kind}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadRequest(f"bad body of reply kind {reply.kind}: {e}") from None

from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_CRITICAL: _ClassVar[Priority]
    PRIORITY_HIGH: _ClassVar[Priority]
    PRIORITY_NORMAL: _ClassVar[Priority]
    PRIORITY_LOW: _ClassVar[Priority]
    PRIORITY_BACKGROUND: _ClassVar[Priority]

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_LEADER: _ClassVar[Acks]
    ACKS_ALL: _ClassVar[Acks]
    ACKS_NONE: _ClassVar[Acks]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_AS_IS: _ClassVar[Mode]
    MODE_PARTITIONED: _ClassVar[Mode]
    MODE_SHARED: _ClassVar[Mode]

class Op(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OP_ACK: _ClassVar[Op]
    OP_NACK: _ClassVar[Op]
    OP_REJECT: _ClassVar[Op]
    OP_EXTEND: _ClassVar[Op]
    OP_RELEASE: _ClassVar[Op]
PRIORITY_CRITICAL: Priority
PRIORITY_HIGH: Priority
PRIORITY_NORMAL: Priority
PRIORITY_LOW: Priority
PRIORITY_BACKGROUND: Priority
ACKS_LEADER: Acks
ACKS_ALL: Acks
ACKS_NONE: Acks
MODE_AS_IS: Mode
MODE_PARTITIONED: Mode
MODE_SHARED: Mode
OP_ACK: Op
OP_NACK: Op
OP_REJECT: Op
OP_EXTEND: Op
OP_RELEASE: Op

class Error(_message.Message):
    __slots__ = ("code", "retriable", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    retriable: bool
    message: str
    def __init__(self, code: _Optional[str] = ..., retriable: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class TopicConfig(_message.Message):
    __slots__ = ("retention_ms", "retention_bytes", "segment_bytes", "timestamp_type", "max_message_bytes", "min_insync", "schema", "visibility_ms", "max_retries", "dlq_enabled", "backoff_base_ms", "backoff_max_ms")
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_TYPE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MIN_INSYNC_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    DLQ_ENABLED_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_BASE_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    timestamp_type: str
    max_message_bytes: int
    min_insync: int
    schema: bool
    visibility_ms: int
    max_retries: int
    dlq_enabled: bool
    backoff_base_ms: int
    backoff_max_ms: int
    def __init__(self, retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., timestamp_type: _Optional[str] = ..., max_message_bytes: _Optional[int] = ..., min_insync: _Optional[int] = ..., schema: _Optional[bool] = ..., visibility_ms: _Optional[int] = ..., max_retries: _Optional[int] = ..., dlq_enabled: _Optional[bool] = ..., backoff_base_ms: _Optional[int] = ..., backoff_max_ms: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "config", "created_us")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CREATED_US_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    config: TopicConfig
    created_us: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., config: _Optional[_Union[TopicConfig, _Mapping]] = ..., created_us: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "config", "if_not_exists")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    IF_NOT_EXISTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    config: TopicConfig
    if_not_exists: bool
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., config: _Optional[_Union[TopicConfig, _Mapping]] = ..., if_not_exists: _Optional[bool] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("internal",)
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    internal: bool
    def __init__(self, internal: _Optional[bool] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Draft(_message.Message):
    __slots__ = ("topic", "key", "value", "headers", "priority", "partition", "delay_ms", "deliver_at_us")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_US_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    priority: Priority
    partition: int
    delay_ms: int
    deliver_at_us: int
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., priority: _Optional[_Union[Priority, str]] = ..., partition: _Optional[int] = ..., delay_ms: _Optional[int] = ..., deliver_at_us: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("message", "acks")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    message: Draft
    acks: Acks
    def __init__(self, message: _Optional[_Union[Draft, _Mapping]] = ..., acks: _Optional[_Union[Acks, str]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("partition", "offset", "timestamp_us")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    timestamp_us: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_us: _Optional[int] = ...) -> None: ...

class PublishStreamRequest(_message.Message):
    __slots__ = ("messages", "acks")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Draft]
    acks: Acks
    def __init__(self, messages: _Optional[_Iterable[_Union[Draft, _Mapping]]] = ..., acks: _Optional[_Union[Acks, str]] = ...) -> None: ...

class PublishResult(_message.Message):
    __slots__ = ("partition", "offset", "timestamp_us", "error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    timestamp_us: int
    error: Error
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_us: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class PublishStreamResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PublishResult]
    def __init__(self, results: _Optional[_Iterable[_Union[PublishResult, _Mapping]]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("topic", "partition", "offset", "timestamp_us", "key", "value", "headers", "priority", "delivery", "receipt")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    timestamp_us: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    priority: Priority
    delivery: int
    receipt: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_us: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., priority: _Optional[_Union[Priority, str]] = ..., delivery: _Optional[int] = ..., receipt: _Optional[str] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("earliest", "latest", "time_us")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    earliest: bool
    latest: bool
    time_us: int
    def __init__(self, earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., time_us: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("group", "topics", "mode", "start", "visibility_ms", "max_in_flight", "max_batch", "client")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    mode: Mode
    start: Start
    visibility_ms: int
    max_in_flight: int
    max_batch: int
    client: str
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., mode: _Optional[_Union[Mode, str]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., visibility_ms: _Optional[int] = ..., max_in_flight: _Optional[int] = ..., max_batch: _Optional[int] = ..., client: _Optional[str] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("messages", "member")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    member: str
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., member: _Optional[str] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("receipts", "delay_ms", "reason")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    reason: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class RejectRequest(_message.Message):
    __slots__ = ("receipts", "reason")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("receipts", "for_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    for_ms: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., for_ms: _Optional[int] = ...) -> None: ...

class SettleResult(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: Error
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SettleResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SettleResult, _Mapping]]] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("receipts", "op", "arg_ms", "reason")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    ARG_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    op: Op
    arg_ms: int
    reason: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., op: _Optional[_Union[Op, str]] = ..., arg_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SettleStreamResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SettleResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SettleResult, _Mapping]]] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("group", "positions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, group: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("acked",)
    ACKED_FIELD_NUMBER: _ClassVar[int]
    acked: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, acked: _Optional[_Iterable[int]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("group", "topics", "mode", "start", "session_ms", "member", "client")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    mode: Mode
    start: Start
    session_ms: int
    member: str
    client: str
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., mode: _Optional[_Union[Mode, str]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., session_ms: _Optional[int] = ..., member: _Optional[str] = ..., client: _Optional[str] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("member", "generation", "heartbeat_ms", "assignment")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member: str
    generation: int
    heartbeat_ms: int
    assignment: _containers.RepeatedCompositeFieldContainer[Assignment]
    def __init__(self, member: _Optional[str] = ..., generation: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., assignment: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("group", "member", "max_messages", "wait_ms", "visibility_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    max_messages: int
    wait_ms: int
    visibility_ms: int
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ..., max_messages: _Optional[int] = ..., wait_ms: _Optional[int] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class PollResponse(_message.Message):
    __slots__ = ("messages", "generation", "paused")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    generation: int
    paused: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., generation: _Optional[int] = ..., paused: _Optional[bool] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("group", "member")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("generation", "assignment")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    generation: int
    assignment: _containers.RepeatedCompositeFieldContainer[Assignment]
    def __init__(self, generation: _Optional[int] = ..., assignment: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("group", "member")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

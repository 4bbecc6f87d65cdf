"""Every message between daemons and clients, declared once: kind, request body, reply body.

A message is ZeroMQ frames. Frame 0 is the envelope, msgpack; frames 1.. carry record batches, one per partition named
in the body and in that order, so payloads are never copied into an envelope.

    request  [version, kind, id, deadline_ms, token, topic_id, partition, epoch, body]
    reply    [version, kind, id, error, message, body]        error 0 = ok, else a code of gq_proto.errors, body nil

Bodies are msgpack arrays in the order of the fields below. A field may be appended with a default; none is ever removed,
reordered or given another meaning. Unknown trailing fields are ignored, so old and new daemons understand each other.
An id is chosen by the caller and comes back; id 0 marks a push, which no request asked for. deadline_ms is what is left
of the caller's patience: a request whose deadline has passed is dropped, nobody waits for it. topic_id, partition and
epoch of the envelope are those of the one partition a request is about (0, -1, -1 otherwise); requests about several
carry them per part. epoch -1 means "whatever yours is"; another epoch than the leader's answers NotLeader.

Ranges travel flattened: [low, count, low, count, ...]; runs: [offset, count, kind, ...]. Offsets and counts are in messages,
sizes in bytes, times in the unit of their suffix.

A request with `answers` above 1 (FETCH, WATCH, POLL) may be answered so many times, each time with its id: as long as a reply says
`open`, more follow; the last one, at the latest when max_wait_ms is over, does not. A stream of news so costs one message an item.
"""

from enum import IntEnum
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gq_proto import limits
from gq_proto.errors import BadRequest, BadVersion, GoQueueError, error_of

VERSION: Final = 1

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


class Kind(IntEnum):
    """What a request asks. 1-9 every daemon, 10.. logd, 40.. metad, 70.. groupd, 100.. delayd, 120.. txnd, 140.. traced."""

    STATUS = 1

    PRODUCE = 10
    FETCH = 11
    RUNS = 12
    DUE = 13
    OFFSET_FOR_TIME = 14
    END_OF_EPOCH = 15
    WRITE_MARKER = 16
    DELETE_BEFORE = 17
    WATCH = 18
    PARTITIONS = 19
    REPLICA_FETCH = 20

    METADATA = 40
    CREATE_TOPIC = 41
    ALTER_TOPIC = 42
    DELETE_TOPIC = 43
    INIT_PRODUCER = 44
    REGISTER = 45
    CREATE_KEY = 46
    LIST_KEYS = 47
    REVOKE_KEY = 48
    CHECK_KEY = 49

    JOIN = 70
    LEAVE = 71
    HEARTBEAT = 72
    POLL = 73
    SETTLE = 74
    SETTLE_RECEIPTS = 75
    MARK = 76
    DESCRIBE_GROUP = 77
    LIST_GROUPS = 78
    DELETE_GROUP = 79
    PAUSE = 80
    ASSIGNED = 81      # push

    LIST_DELAYED = 100
    CANCEL_DELAYED = 101
    DELAY_STATS = 102


class Acks(IntEnum):
    NONE = 0
    LEADER = 1
    ALL = 2


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Op(IntEnum):
    """What becomes of leased messages."""

    ACK = 0
    NACK = 1       # counted; comes back after arg ms, or the backoff when arg is -1
    REJECT = 2     # to the DLQ at once; reason
    EXTEND = 3     # visible again arg ms from now
    RELEASE = 4    # uncounted; comes back at once


class RangeStatus(IntEnum):
    """Per range of a Fetch by ranges."""

    OK = 0
    GONE = 1        # below the log start
    NOT_YET = 2     # at or above the high watermark (or last stable offset)
    CORRUPT = 3


class Fate(IntEnum):
    """Of one offset in a CancelDelayed."""

    CANCELLED = 0           # by this request
    DELIVERED = 1           # it came due before
    ALREADY_CANCELLED = 2
    NONE = 3                # no delayed message lies there: never was one, or retention took it


class Body(Struct, array_like=True, gc=False):
    """Base of every request and reply body."""


class Empty(Body):
    """No content."""


# -- every daemon ---------------------------------------------------------------

class StatusReply(Body):
    daemon: str
    node_id: str
    version: str
    codec: str           # "compiled" or "pure"
    pid: int
    uptime_s: float
    ready: bool
    detail: str = ""     # why it is not ready, or what is wrong; one line
    facts: dict[str, Any] = {}


# -- logd -------------------------------------------------------------------------

class ProducePart(Body):
    topic_id: int
    partition: int
    epoch: int = -1


class Produce(Body):
    """One frame a part: a batch as gq_proto.codec seals it. Acks.NONE: no reply comes."""

    parts: list[ProducePart]
    acks: int = Acks.LEADER
    internal: bool = False      # a daemon's: system headers, internal topics and the disk reserve are open to it


class Produced(Body):
    """error 0: the batch lies at base_offset.. ; a duplicate answers with the offset and timestamp it got first."""

    error: int
    message: str = ""
    base_offset: int = -1
    timestamp_us: int = 0
    log_start: int = 0
    duplicate: bool = False


class ProduceReply(Body):
    parts: list[Produced]


class FetchPart(Body):
    """From `offset` on, or exactly `ranges` (then offset is -1)."""

    topic_id: int
    partition: int
    epoch: int = -1
    offset: int = -1
    ranges: list[int] = []
    max_bytes: int = limits.FETCH_BYTES_DEFAULT
    lane: int = -1               # from `offset` on: of this priority alone, neither control nor delayed records; -1: all


class Fetch(Body):
    """Long-poll: waits until min_bytes are there in any part, max_wait_ms at most; a fetch by ranges never waits.
    At least one record is returned where there is one, however large."""

    parts: list[FetchPart]
    max_bytes: int = limits.FETCH_BYTES_MAX
    min_bytes: int = 1
    max_wait_ms: int = 0
    isolation: int = Isolation.READ_COMMITTED
    include_delayed: bool = False
    answers: int = 1             # of a fetch of one part by offset: goes on while the end is reached; max_bytes is for all of them


class Fetched(Body):
    """One frame a part (empty when there is nothing). `next_offset` is where a reader goes on: it skips control records
    and may pass hidden ones. `hidden` ranges lie in the frame but are not for the app. `status`: one RangeStatus a range
    asked for; `covered`: how many of the ranges were answered within max_bytes, the last perhaps in part up to next_offset."""

    error: int
    message: str = ""
    epoch: int = -1
    log_start: int = 0
    high_watermark: int = 0
    last_stable: int = 0
    next_offset: int = 0
    hidden: list[int] = []
    status: list[int] = []
    covered: int = 0


class FetchReply(Body):
    parts: list[Fetched]
    open: bool = False


class Runs(Body):
    """The run index of the envelope's partition from `offset` up to min(high watermark, last stable offset)."""

    offset: int
    lane: int = -1               # a priority; -1 all; -2 all, joined whatever their priority (kind & 0x30). Control runs always
    limit: int = limits.RUNS_MAX  # runs


class Control(Body):
    offset: int
    type: int
    body: bytes                  # as gq_proto.record encodes it
    lanes: list[int] = []        # of a delay-ready record in a reply about runs: [low, count, priority, ...] of what it names


class RunsReply(Body):
    """Runs lie in [offset asked, next_offset); nothing of the lane lies between them there. `hidden`: aborted ranges."""

    runs: list[int]              # offset, count, kind, ...
    next_offset: int
    log_start: int
    high_watermark: int
    last_stable: int
    epoch: int
    controls: list[Control] = []
    hidden: list[int] = []
    counts: list[int] = []       # lane -2: messages of each priority in that stretch, hidden ones too, delayed ones not


class Due(Body):
    offset: int
    limit: int = 100_000


class DueReply(Body):
    due: list[int]               # offset, due_us, offset, due_us, ...
    next_offset: int
    controls: list[Control] = [] # delay-ready and delay-cancelled records in the same stretch
    epoch: int = -1


class OffsetForTime(Body):
    timestamp_us: int


class OffsetForTimeReply(Body):
    """The first offset whose timestamp is at or after the time asked; the log end when there is none (timestamp 0)."""

    offset: int
    timestamp_us: int


class EndOfEpoch(Body):
    """The envelope's epoch is the leader's or -1; `of` is the epoch asked about."""

    of: int


class EndOfEpochReply(Body):
    """The largest known epoch <= `of` and the first offset after it (the log end if it is the current one)."""

    epoch: int
    end_offset: int


class WriteMarker(Body):
    """A control record. Of ready and cancelled ranges logd drops what was decided before and says what was taken."""

    type: int
    body: bytes


class WriteMarkerReply(Body):
    offset: int                  # -1: nothing was left to write
    taken: list[int] = []        # ranges


class DeleteBefore(Body):
    """Move the log start to `offset` (-1: the end). Whole segments below it are removed."""

    offset: int


class DeleteBeforeReply(Body):
    log_start: int


class WatchPart(Body):
    topic_id: int
    partition: int
    end: int = 0                 # what the watcher knows: min(high watermark, last stable)
    epoch: int = -1
    log_start: int = -1          # -1: it does not know, or does not care


class Watch(Body):
    """Replaces what this connection watches. The reply comes when any part differs from what is known, max_wait_ms at most."""

    parts: list[WatchPart]
    max_wait_ms: int = 1_000
    answers: int = 1             # after each, what it told is known


class Watched(Body):
    topic_id: int
    partition: int
    epoch: int
    log_start: int
    end: int
    runs: list[int] = []         # of [known end, end) when few; empty: ask with Runs
    error: int = 0               # UnknownTopicId and the like
    controls: list[Control] = []


class WatchReply(Body):
    parts: list[Watched]
    open: bool = False


class Partitions(Body):
    """Sizes of what this logd holds; an empty list asks for everything."""

    topic_ids: list[int] = []


class PartitionInfo(Body):
    topic_id: int
    topic: str
    partition: int
    epoch: int
    leader: bool
    online: bool
    log_start: int
    high_watermark: int
    last_stable: int
    size_bytes: int
    segments: int
    problem: str = ""            # offline or damaged: one line


class PartitionsReply(Body):
    partitions: list[PartitionInfo]


# -- metad --------------------------------------------------------------------------

class TopicConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of one topic, all resolved. Sizes in bytes, -1 = unlimited."""

    retention_ms: int = 168 * 3600 * 1000
    retention_bytes: int = -1
    segment_bytes: int = limits.SEGMENT_BYTES
    timestamp_type: str = "append"
    max_message_bytes: int = limits.VALUE_MAX
    min_insync: int = 1
    schema: bool = False
    visibility_ms: int = limits.VISIBILITY_MS
    max_retries: int = limits.MAX_RETRIES
    dlq_enabled: bool = True
    backoff_base_ms: int = limits.BACKOFF_BASE_MS
    backoff_max_ms: int = limits.BACKOFF_MAX_MS


class PartitionMeta(Body):
    leader: str                  # node id, "" while there is none
    epoch: int
    replicas: list[str] = []
    isr: list[str] = []


class TopicMeta(Body):
    name: str
    id: int                      # 63 random bits, never 0, never reused
    config: TopicConfig
    partitions: list[PartitionMeta]
    replication_factor: int = 1
    created_us: int = 0
    version: int = 0             # metadata version of its last change


class DaemonMeta(Body):
    node_id: str
    daemon: str                  # "logd", "groupd", ...
    endpoints: list[str]         # ZeroMQ endpoints, ipc first
    incarnation: int             # grows with every registration
    curve: str = ""              # public CURVE key (z85) of its tcp endpoint; "": that one is plain, or there is none


class Scope(Body):
    """What a key may do: a verb of gq_proto.access on topics and groups whose names match the patterns ("*": any characters)."""

    verb: str
    topics: str = "*"
    groups: str = ""


class KeyMeta(Body):
    """A key as metad keeps it: never its secret. salt and hash are those of an API key, and left out of what is listed."""

    id: str
    name: str
    scopes: list[Scope]
    created_us: int
    expires_us: int = 0          # 0: never
    curve: str = ""              # public CURVE key (z85) of who is known by it instead of a secret
    node: bool = False           # a node of this cluster: its daemons may do anything
    salt: bytes = b""
    hash: bytes = b""


class Metadata(Body):
    """Everything that changed after `known_version` (0: all). Waits max_wait_ms for a change when there is none.
    `applied_by`: a logd says with its node id that it has applied known_version. `keys` and `follower` are for daemons alone."""

    known_version: int = 0
    max_wait_ms: int = 0
    topics: list[str] | None = None   # only these names; None: all
    applied_by: str = ""
    keys: bool = False           # the keys, too, with what they are checked by
    follower: str = ""           # "logd/n1": which registered daemon asks, and has known_version in force


class MetadataReply(Body):
    version: int
    topics: list[TopicMeta]
    deleted: list[int]           # topic ids deleted after known_version: the only reason to remove a folder
    daemons: list[DaemonMeta]    # all of them
    cluster_id: str = ""
    full: bool = False           # every topic (asked for) is here: others the asker knows are gone, but keep their folders
    keys: list[KeyMeta] | None = None   # all of them, when asked for and any changed after known_version


class CreateTopic(Body):
    """Answers once the leaders have it. config: only what differs from the defaults, camelCase keys. partitions 0: default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    config: dict[str, Any] = {}
    if_not_exists: bool = False
    internal: bool = False
    auto: bool = False           # a publish makes it on the way: refused where autoCreateTopics is off


class TopicReply(Body):
    topic: TopicMeta
    version: int
    created: bool = False


class AlterTopic(Body):
    """partitions 0: as it is; never fewer. config: what changes."""

    name: str
    partitions: int = 0
    config: dict[str, Any] = {}
    internal: bool = False


class DeleteTopic(Body):
    name: str
    internal: bool = False


class DeleteTopicReply(Body):
    topic_id: int
    version: int


class InitProducer(Body):
    """A new producer id (-1), or the next epoch of a known one, which fences its older incarnation."""

    producer_id: int = -1
    epoch: int = -1


class InitProducerReply(Body):
    producer_id: int
    epoch: int


class Register(Body):
    """A daemon is up at these endpoints. A logd's registration gives every partition it leads a new epoch."""

    node_id: str
    daemon: str
    endpoints: list[str]
    curve: str = ""              # as in DaemonMeta


class RegisterReply(Body):
    incarnation: int
    version: int                 # metadata version that contains the registration
    cluster_id: str


class CreateKey(Body):
    """An API key, whose secret the reply shows once; with `curve`, who has that CURVE key needs no secret; with `node`, that is a
    node of this cluster. Answers when the daemons know it. AlreadyExists: a name is used once among the keys there are."""

    name: str
    scopes: list[Scope]
    expires_us: int = 0
    curve: str = ""
    node: bool = False


class CreateKeyReply(Body):
    key: KeyMeta
    token: str = ""              # what a caller gives with each request: "gq_{id}_{secret}"; "" for a CURVE key
    unconfirmed: list[str] = []  # daemons ("logd/n1") that have not said in time that they know of it


class ListKeys(Body):
    """All keys."""


class ListKeysReply(Body):
    keys: list[KeyMeta]


class RevokeKey(Body):
    key: str                     # its id or name


class RevokeKeyReply(Body):
    """A daemon that is in `unconfirmed` and still runs may take the key until it hears of it."""

    key: KeyMeta
    unconfirmed: list[str] = []


class CheckKey(Body):
    """Whose token is this? For daemons that check callers of their own, as the gateway does. Unauthorized: nobody's."""

    token: bytes


class CheckKeyReply(Body):
    key: KeyMeta


# -- groupd ---------------------------------------------------------------------------

class Join(Body):
    """Become a member (member "" : a new one) or change what one subscribes to. start and mode count for a new group only
    (start: "earliest", "latest" or Unix microseconds as text); an existing group in the other mode answers ModeMismatch."""

    group: str
    member: str = ""
    topics: list[str] = []
    mode: str = ""               # "partitioned", "shared", "" = as it is (new: partitioned)
    start: str = EARLIEST
    session_ms: int = 0          # 0: as the node is configured
    client: str = ""             # host:pid, for people


class Assigned(Body):
    """A partition that the member may lease from."""

    topic_id: int
    topic: str
    partition: int
    epoch: int


class JoinReply(Body):
    member: str
    generation: int
    assignment: list[Assigned]
    heartbeat_ms: int
    group_number: int = 0
    session_ms: int = limits.SESSION_MS


class AssignedPush(Body):
    """Kind.ASSIGNED, id 0: the target changed. revoked partitions lose what is unstarted at once (their leases are named)."""

    group: str
    member: str
    generation: int
    assignment: list[Assigned]
    revoked_leases: list[int] = []


class Leave(Body):
    """What is started and unsettled returns uncounted, hold leases stay to their deadline."""

    group: str
    member: str


class Progress(Body):
    """The app has been handed the first `started` messages of the lease (in its order), the last of them ago_ms ago."""

    lease: int
    started: int
    ago_ms: int = 0


class Settle1(Body):
    """One op on messages of one lease. ranges are offsets; arg and reason as Op says."""

    op: int
    lease: int
    ranges: list[int]
    arg_ms: int = -1
    reason: str = ""


class Heartbeat(Body):
    """Names every lease held: others of this member return uncounted after UNNAMED_LEASE_MS."""

    group: str
    member: str
    generation: int
    leases: list[int] = []
    progress: list[Progress] = []


class HeartbeatReply(Body):
    generation: int
    assignment: list[Assigned]
    lost: list[int] = []         # leases named that groupd does not have (expired, revoked, void)


class Poll(Body):
    """Ask for leases; waits up to wait_ms for the first. Settles and progress ride along and are applied first."""

    group: str
    member: str
    generation: int
    max_messages: int = limits.POLL_MESSAGES
    max_wait_ms: int = 0
    visibility_ms: int = 0       # 0: the topic's
    hold: bool = False           # leases live to their deadline whether or not the member stays
    settle: list[Settle1] = []
    progress: list[Progress] = []
    answers: int = 1             # max_messages is for all of them


class Lease(Body):
    """Messages of one partition, in the order to serve them. All have the same delivery count.
    receipt nonce = (groups partition u16, group number u32, lease u64, random u32)."""

    lease: int
    random: int
    topic_id: int
    topic: str
    partition: int
    epoch: int
    delivery: int                # 1 = first
    ranges: list[int]
    deadline_ms: int             # of each message, from when the app starts it (hold: from now)
    lane: int = -1               # their priority, where a group sees more than one; -2: delayed ones, they do not lie in order


class SettleResult(Body):
    """error 0, or StaleReceipt and the ranges it is about (the rest was taken)."""

    error: int = 0
    message: str = ""
    stale: list[int] = []


class PollReply(Body):
    leases: list[Lease]
    settled: list[SettleResult] = []
    generation: int = 0
    paused: bool = False
    open: bool = False
    group_number: int = 0        # for receipts: who polls need not be who joined


class Settle(Body):
    """Answers when durable in the configured fsync mode."""

    group: str
    member: str
    items: list[Settle1]
    progress: list[Progress] = []


class SettleReply(Body):
    settled: list[SettleResult]


class Receipt1(Body):
    """One op by receipt: all of the message is named by it."""

    op: int
    topic: str
    partition: int
    offset: int
    delivery: int
    group_number: int
    lease: int
    random: int
    arg_ms: int = -1
    reason: str = ""


class SettleReceipts(Body):
    """All of one __groups partition (envelope's partition)."""

    items: list[Receipt1]


class Mark1(Body):
    """ack: [low, high) is done with. unack: [low, high) comes again, attempts 0, leases there void. high -1: the end."""

    topic_id: int
    partition: int
    ack: bool
    low: int
    high: int


class Mark(Body):
    """Administrative: commit N = ack [0, N); reset to N = ack [0, N) + unack [N, -1); replay = unack [from, to);
    redrive = unack [o, o + 1). create: make the group (mode partitioned) if it is not there."""

    group: str
    items: list[Mark1]
    create: bool = False


class MarkReply(Body):
    changed: list[int]           # messages, per item


class DescribeGroup(Body):
    group: str
    lanes: bool = False          # also per priority


class MemberInfo(Body):
    member: str
    client: str
    session_ms: int
    age_ms: int                  # since it was last heard
    topics: list[str]
    assignment: list[Assigned]
    in_flight: int


class LaneInfo(Body):
    """One priority of a partition, as a group has it. Counters begin with groupd; rates are of about the last 10 s."""

    priority: int
    ready: int
    in_flight: int
    retrying: int
    enqueued: int
    dequeued: int                # acked, or gone to the dead letters
    enqueued_per_s: float
    dequeued_per_s: float
    served_ms_ago: int = -1      # since one was handed out; -1: never


class GroupPartition(Body):
    topic: str
    topic_id: int
    partition: int
    owner: str                   # member, "" = none (or shared)
    committed: int               # first unacked offset
    end: int
    log_start: int
    lag: int                     # deliverable and not acked: ready + in flight + waiting for a retry
    in_flight: int
    retrying: int
    acked_ahead: list[int]       # ranges above committed
    scheduled: int = 0
    expired: int = 0             # lost to retention before they were acked
    skipped_to: int = -1         # where the group went on after its offset fell off the log; -1: never
    lanes: list[LaneInfo] = []   # priorities that there is anything to say of, when asked for


class GroupInfo(Body):
    group: str
    number: int
    mode: str
    generation: int
    paused: bool
    members: list[MemberInfo]
    partitions: list[GroupPartition]
    topics: list[str] = []
    state: str = ""              # "empty", "stable", "rebalancing"


class ListGroups(Body):
    """All groups of this groupd."""


class GroupSummary(Body):
    group: str
    mode: str
    members: int
    topics: list[str]
    paused: bool
    lag: int


class ListGroupsReply(Body):
    groups: list[GroupSummary]


class DeleteGroup(Body):
    """GroupNotEmpty while it has members, unless force."""

    group: str
    force: bool = False


class Pause(Body):
    group: str
    paused: bool


# -- delayd ---------------------------------------------------------------------------

class ListDelayed(Body):
    """Messages of the envelope's topic that wait for their time: of its partition, or with partition -1 of all whose leader this
    daemon is beside. In order of (due, partition, offset); `after` is such a triple, the last one of the page before, [] at first.
    NotCoordinator while a partition asked for is still being read, or is another delayd's."""

    after: list[int] = []
    limit: int = limits.DELAYED_PAGE


class ListDelayedReply(Body):
    delayed: list[int]           # partition, offset, due_us, ...
    more: bool = False           # there are further ones: ask with `after`
    partitions: list[int] = []   # which the answer is about


class CancelDelayed(Body):
    """Of the envelope's partition. Answers when the log has confirmed all of it; on any error a part may have been cancelled:
    asking again tells what became of each. DiskFull, NotCoordinator, UnknownTopicId, BadRequest."""

    ranges: list[int]            # ascending, DELAYED_RANGES_MAX at most


class CancelDelayedReply(Body):
    fates: list[int]             # low, count, Fate, ...: ascending, together exactly the ranges asked


class DelayStats(Body):
    """Of the envelope's partition, of all of its topic here (partition -1), of all topics here (topic_id 0)."""


class DelayPartition(Body):
    """Counts of messages; ready, cancelled and expired since this delayd serves the partition. Lateness: from due to the log's
    word that the ready record is written; -1 while nothing came due."""

    topic_id: int
    topic: str
    partition: int
    scheduled: int               # wait for their time, or (overdue) for their ready record to be written
    overdue: int
    ready: int
    cancelled: int
    expired: int                 # retention took them before their time
    next_due_us: int             # -1: nothing is scheduled
    lateness_p50_us: int = -1
    lateness_p99_us: int = -1
    loading: bool = False        # the log is still being read: the counts are not whole


class DelayStatsReply(Body):
    partitions: list[DelayPartition]


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

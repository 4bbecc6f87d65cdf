"""What groupd is asked and answers: members, leases, what became of messages, positions."""

from gq_proto import limits
from gq_proto.messages.kinds import EARLIEST, Body


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
    """One op on messages of one lease. ranges are offsets; arg and reason as Op says. whole: the lease's random number makes an ack
    one of all its messages, with no ranges: there may be hundreds."""

    op: int
    lease: int
    ranges: list[int]
    arg_ms: int = -1
    reason: str = ""
    whole: int = 0


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
    packed: bool = False         # leases of many ranges have them as `packed`


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
    packed: bytes = b""          # the ranges, see gq_proto.ranges.pack; `ranges` is empty then


class SettleResult(Body):
    """error 0, or StaleReceipt and the ranges it is about: none of them, all that was asked for; else the rest was taken."""

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
    """whole: Settle1.whole is understood. Who does not say so took such an ack for one of nothing."""

    settled: list[SettleResult]
    whole: bool = False


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

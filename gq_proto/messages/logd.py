"""What logd is asked and answers: the log of a partition."""

from gq_proto import limits
from gq_proto.messages.kinds import Acks, Body, Isolation


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
    packed: bool = False         # lane 0-4: its messages as `ranges`


class Control(Body):
    offset: int
    type: int
    body: bytes                  # as gq_proto.record encodes it
    lanes: list[int] = []        # of a delay-ready record in a reply about runs: [low, count, priority, ...] of what it names


class RunsReply(Body):
    """Runs and ranges lie in [offset asked, next_offset); nothing of the lane lies between them there. `hidden`: aborted ranges."""

    runs: list[int]              # offset, count, kind, ...
    next_offset: int
    log_start: int
    high_watermark: int
    last_stable: int
    epoch: int
    controls: list[Control] = []
    hidden: list[int] = []
    counts: list[int] = []       # lane -2: messages of each priority in that stretch, hidden ones too, delayed ones not
    ranges: bytes = b""          # packed: the lane's messages as they lie, see gq_proto.ranges.pack; `runs` are control runs then


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

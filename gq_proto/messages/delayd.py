"""What delayd is asked and answers: messages that are not due yet."""

from gq_proto import limits
from gq_proto.messages.kinds import Body


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

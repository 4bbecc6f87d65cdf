"""Kinds of messages, the small vocabularies their fields use, and what every daemon answers."""

from enum import IntEnum
from typing import Any, Final

from msgspec import Struct

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

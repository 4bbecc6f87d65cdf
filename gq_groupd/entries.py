"""The journal: what a group's partition of `__groups` holds. Key: the group's name. Value: one Entry, msgpack, tagged.

Every entry is a decision that was taken; applying them in order gives the state. A field may be appended with a default; no tag is
used twice. Entries about a group or a partition that is not known are skipped at replay: they lie before its last snapshot, in a
journal that was trimmed.

Ranges are flat, many of them packed (gq_proto.bitmaps.tell). `topic_id`, `partition` name the part; wall-clock times only serve
restarts.
"""

from enum import IntEnum
from typing import Final

import msgspec
from msgspec import Struct

from gq_proto.bitmaps import Told
from gq_proto.limits import PRIORITY_DEFAULT


class How(IntEnum):
    """What a delivery came to, for counters."""

    ACKED = 0           # by its holder
    DEAD_LETTERED = 1
    EXPIRED = 2         # gone from the log before it could be copied
    NACKED = 3
    TIMED_OUT = 4       # visibility
    LOST = 5            # its consumer
    REJECTED = 6
    ANCHOR = 7          # a ready record, all of whose messages are acked


class Entry(Struct, array_like=True, gc=False):
    number: int         # of the group


class PartEntry(Entry):
    topic_id: int
    partition: int


# -- groups and members ----------------------------------------------------------------

class GroupMade(Entry, tag=1):
    mode: str
    start: str
    wall_us: int


class GroupDropped(Entry, tag=2):
    pass


class Paused(Entry, tag=3):
    paused: bool


class Joined(Entry, tag=4):
    """Also a change of topics. `absent`: topics that do not exist yet, so all of their messages will be new."""

    member: str
    topics: list[str]
    client: str
    session_ms: int
    absent: list[str] = []


class Left(Entry, tag=5):
    member: str
    wall_us: int


class Moved(Entry, tag=6):
    """Partitions have new owners ("": none)."""

    generation: int
    moves: list[tuple[int, int, str]]


# -- parts -------------------------------------------------------------------------------

class PartMade(PartEntry, tag=10):
    topic: str
    start: int


class TopicDropped(Entry, tag=11):
    topic_id: int


class EpochMoved(PartEntry, tag=12):
    """The leader's epoch is `epoch` now; the last one known ended at `end` (-1: none was known)."""

    epoch: int
    end: int


class Gone(PartEntry, tag=13):
    """Below log_start nothing is left; `expired` messages were not acked yet."""

    log_start: int
    expired: int


class Granted(PartEntry, tag=20):
    lease: int
    random: int
    member: str
    epoch: int
    delivery: int
    ranges: Told
    visibility_ms: int
    deadline_us: int = 0
    hold: bool = False
    anchor: int = -1
    lane: int = PRIORITY_DEFAULT


class Acked(PartEntry, tag=21):
    lease: int
    ranges: Told
    how: int = How.ACKED
    anchor: int = -1


class Failed(PartEntry, tag=22):
    """A counted failure, the count-th. `dead`: no more tries, it goes to the dead letters."""

    lease: int
    ranges: list[int]
    count: int
    delay_ms: int
    at_us: int
    how: int
    dead: bool = False
    reason: str = ""


class Returned(PartEntry, tag=23):
    """Uncounted."""

    lease: int
    ranges: list[int]


class Extended(PartEntry, tag=24):
    """Until deadline_us, which was for_ms away."""

    lease: int
    ranges: list[int]
    deadline_us: int
    for_ms: int


class Started(PartEntry, tag=25):
    lease: int
    started: int


class Marked(PartEntry, tag=30):
    """ack: [low, high) is done with; else it is open again, attempts 0, leases there void."""

    ack: bool
    low: int
    high: int


class Intent(PartEntry, tag=31):
    """These dead messages are about to be copied; whatever was copied lies at dlq_end or above in the same partition there."""

    ranges: list[int]
    dlq_topic_id: int
    dlq_end: int


# -- snapshots -----------------------------------------------------------------------------

class GroupSnapshot(Entry, tag=40):
    """All of a group but its parts."""

    mode: str
    start: str
    paused: bool
    generation: int
    members: list[tuple[str, list[str], str, int]]
    owners: list[tuple[int, int, str]]
    seen: list[str]
    empty_since_us: int


class PartSnapshot(PartEntry, tag=41):
    """Piece `chunk` of `chunks` of a part's state, see snapshot.py. The last one makes it count."""

    chunk: int
    chunks: int
    data: bytes


AnyEntry = (GroupMade | GroupDropped | Paused | Joined | Left | Moved | PartMade | TopicDropped | EpochMoved | Gone | Granted
            | Acked | Failed | Returned | Extended | Started | Marked | Intent | GroupSnapshot | PartSnapshot)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(AnyEntry)
encode = _encoder.encode


def decode(value: bytes) -> AnyEntry:
    """msgspec.DecodeError or UnicodeDecodeError for what no release wrote: the journal is not ours, or newer."""
    entry: AnyEntry = _decoder.decode(value)
    return entry

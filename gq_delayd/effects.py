"""What the Core wants done, and the answers it gets: the whole face between the pure core and its shell.

An *ask* is answered once, by Core.answer(ask, reply, error) with the very same object; exactly one of reply and error is given. The
core asks again by itself: the shell retries nothing. `id` names an incarnation of a part: answers to an earlier one are dropped.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from gq_proto.errors import GoQueueError
from gq_proto.messages import Body

Key = tuple[int, int]                # topic id, partition


class Call(Protocol):
    """A request; gq_run.server.Incoming is one. `deadline` is monotonic seconds."""

    kind: int
    topic_id: int
    partition: int
    body: Any
    deadline: float


@dataclass(frozen=True, slots=True)
class Reply:
    call: Call
    body: Body


@dataclass(frozen=True, slots=True)
class Fail:
    call: Call
    error: GoQueueError


# -- logd ----------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class WatchSet:
    """All partitions to be watched; every Watched goes to Core.watched."""

    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class AskEndOfEpoch:
    """EndOfEpoch(of), envelope epoch -1 -> EndOfEpochReply."""

    key: Key
    id: int
    number: int
    of: int


@dataclass(frozen=True, slots=True)
class AskDue:
    """Due(offset, limit), envelope epoch -1 -> DueReply."""

    key: Key
    id: int
    number: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class AskMarker:
    """WriteMarker of these ranges in this epoch -> WriteMarkerReply. In the order of asking. A failed one may have been written."""

    key: Key
    id: int
    number: int
    epoch: int
    type: int
    ranges: list[int]


# -- the index ---------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class AskIndex:
    """The bytes of the part's index file -> bytes, b"" when there is none (or it cannot be read)."""

    key: Key
    id: int
    topic: str


@dataclass(frozen=True, slots=True)
class IndexWrite:
    """Put `data` at `position` of the part's index file and end it there; `fresh`: of the file that is to replace it.
    Failures: Core.index_failed(key, id)."""

    key: Key
    id: int
    topic: str
    position: int
    data: bytes
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class IndexReplace:
    """The fresh file takes the place of the part's index."""

    key: Key
    id: int
    topic: str


@dataclass(frozen=True, slots=True)
class IndexRemove:
    """The topic is gone: remove its folder."""

    topic: str


@dataclass(frozen=True, slots=True)
class Note:
    """For the log."""

    level: str
    text: str
    fields: dict[str, Any]


Ask = AskEndOfEpoch | AskDue | AskMarker | AskIndex
Effect = Reply | Fail | WatchSet | Ask | IndexWrite | IndexReplace | IndexRemove | Note

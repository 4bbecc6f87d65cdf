"""What metad's core wants done, as data, in order: an answer leaves once every Append before it is on the disk."""

from dataclasses import dataclass
from typing import Any, Protocol

from gq_metad.entries import AnyEntry
from gq_proto.access import Access
from gq_proto.errors import GoQueueError
from gq_proto.messages import Body


class Call(Protocol):
    """What the core sees of a request; gq_run.server.Incoming is one. The core never calls its methods."""

    kind: int
    body: Any
    peer: bytes
    deadline: float          # monotonic seconds
    access: Access | None    # of a caller with a key; None: trusted


@dataclass(frozen=True)
class Append:
    entry: AnyEntry


@dataclass(frozen=True)
class Reply:
    call: Call
    body: Body


@dataclass(frozen=True)
class Fail:
    call: Call
    error: GoQueueError


Effect = Append | Reply | Fail

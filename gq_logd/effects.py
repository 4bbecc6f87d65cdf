"""What the core wants done: the shell (or the simulation) does it, in order.

Call is what the core sees of a request; gq_run.server.Incoming is one. The core never calls its methods: it returns Reply and
Fail. Sync and Remove are slow: the shell runs them on threads and hands the outcome of a Sync back with LogCore.synced().
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gq_proto.errors import GoQueueError
from gq_proto.messages import Body
from gq_run.disk import File

Frame = bytes | bytearray | memoryview


class Call(Protocol):
    """A request. `frames[i].buffer` is a writable memoryview; `deadline` is monotonic seconds."""

    peer: bytes
    kind: int
    topic_id: int
    partition: int
    epoch: int
    body: Any
    frames: Any
    deadline: float


@dataclass(frozen=True, slots=True)
class Reply:
    call: Call
    body: Body
    frames: Sequence[Frame] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    call: Call
    error: GoQueueError


@dataclass(frozen=True, slots=True)
class Sync:
    """fdatasync each file, then fsync each folder; then synced(job, None), or synced(job, the first OSError)."""

    job: int
    files: tuple[File, ...]
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remove:
    """A file or a whole folder that nothing refers to any more."""

    path: str


Effect = Reply | Fail | Sync | Remove

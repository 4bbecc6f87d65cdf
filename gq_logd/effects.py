"""What the core wants done: the shell (or the simulation) does it, in order.

Call is what the core sees of a request; gq_run.server.Incoming is one. The core never calls its methods: it returns Reply and
Fail. Sync and Remove are slow: the shell runs them on threads and hands the outcome of a Sync back with LogCore.synced().
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gq_proto.errors import GoQueueError
from gq_proto.messages import Body
from gq_run.disk import Disk, File

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
class Write:
    """A small file, replaced as a whole."""

    path: str
    data: bytes
    durable: bool


@dataclass(frozen=True, slots=True)
class Sync:
    """fdatasync each file, fsync each folder, then replace the small files: in that order, for what they say must be true.

    synced(job, error, now, write_error) follows."""

    job: int
    files: tuple[File, ...]
    folders: tuple[str, ...] = ()
    writes: tuple[Write, ...] = ()

    def carry_out(self, disk: Disk) -> tuple[OSError | None, OSError | None]:
        """(error, write_error); blocks."""
        try:
            for file in self.files:
                file.sync()
            for folder in self.folders:
                disk.sync_dir(folder)
        except OSError as e:
            return e, None
        try:
            for write in self.writes:
                disk.write_atomic(write.path, write.data, durable=write.durable)
        except OSError as e:
            return None, e
        return None, None


@dataclass(frozen=True, slots=True)
class Remove:
    """A file or a whole folder that nothing refers to any more."""

    path: str


Effect = Reply | Fail | Sync | Remove

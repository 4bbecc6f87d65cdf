"""LogCore without a daemon: a folder, a hand-driven clock, effects carried out on the spot; and a disk that fails when told to."""

import errno
import os
import types
from collections.abc import Callable, Sequence
from typing import Any

from gq_logd.config import LogConfig
from gq_logd.core import LogCore
from gq_logd.effects import Effect, Fail, Remove, Reply, Sync
from gq_logd.partition import Partition
from gq_proto import codec, messages
from gq_proto.messages import Kind
from gq_run.disk import Bytes, Disk, File

NODE = "n1"
TOPIC = 77
START_US = 1_700_000_000_000_000


class Call:
    """A request; `reply` and `frames_back`, or `error`, once it is answered."""

    def __init__(self, kind: int, body: Any, frames: Sequence[bytes] = (), partition: int = 0, epoch: int = -1, peer: bytes = b"p",
                 topic_id: int = TOPIC, deadline: float = 1e9) -> None:
        self.kind, self.body, self.peer, self.topic_id, self.partition, self.epoch = kind, body, peer, topic_id, partition, epoch
        self.frames = [types.SimpleNamespace(buffer=memoryview(bytearray(frame))) for frame in frames]
        self.deadline = deadline
        self.reply: Any = None
        self.frames_back: list[bytes] = []
        self.error: Any = None

    @property
    def done(self) -> bool:
        """Answered for the last time."""
        return (self.reply is not None and not getattr(self.reply, "open", False)) or self.error is not None


class QuickDisk(Disk):
    """Does not wait for the medium: a test that kills processes, not machines, cannot tell."""

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return QuickFile(path, os.open(path, flags, 0o640))

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        super().write_atomic(path, data, durable=False)

    def sync_dir(self, path: str) -> None:
        pass


class QuickFile(File):
    __slots__ = ()

    def sync(self) -> None:
        pass


class World:
    """A core on `folder`; `epoch` counts its starts, as metad would."""

    def __init__(self, folder: os.PathLike[str], disk: Disk | None = None, config: LogConfig | None = None,
                 settings: dict[str, Any] | None = None, partitions: int = 1, lead: bool = True, **options: Any) -> None:
        self.folder, self.disk = str(folder), disk or QuickDisk()
        self.config = config or LogConfig(**options)
        self.settings = messages.TopicConfig(**(settings or {}))
        self.now, self.wall_us, self.epoch, self.count = 100.0, START_US, 0, partitions
        self.hold_syncs = False
        self.held: list[Sync] = []
        self.removed: list[str] = []
        self.start(lead)

    def start(self, lead: bool = True) -> None:
        self.core = LogCore(self.disk, self.folder, NODE, self.config)
        while self.core.recover(self.now):
            pass
        self.notes = [text for _, text in self.core.catalog.notes]
        if lead:
            self.lead()

    def lead(self, **settings: Any) -> None:
        """metad's word: this topic, we lead, a new epoch."""
        self.epoch += 1
        if settings:
            self.settings = messages.TopicConfig(**settings)
        meta = messages.TopicMeta("t", TOPIC, self.settings, [messages.PartitionMeta(NODE, self.epoch) for _ in range(self.count)])
        self.apply(topics=[meta])

    def apply(self, topics: Sequence[messages.TopicMeta] = (), deleted: Sequence[int] = (), full: bool = False) -> None:
        reply = messages.MetadataReply(self.epoch, list(topics), list(deleted), [], full=full)
        self.core.apply(reply, self.now, self.wall_us)
        self.turn()

    def crash(self, lead: bool = True) -> None:
        """kill -9 and a new start: what was written stays."""
        self.core.files.pool.close()
        self.held.clear()
        self.start(lead)

    def stop(self) -> None:
        self.core.close(self.now)

    # -- driving -----------------------------------------------------------------------

    def turn(self) -> None:
        self.carry_out(self.core.turn(self.now, self.wall_us))
        if self.held and not self.hold_syncs:
            self.sync()

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                call: Any = effect.call
                assert not call.done
                call.reply, call.frames_back = effect.body, [bytes(frame) for frame in effect.frames]
            elif isinstance(effect, Fail):
                call = effect.call
                assert not call.done
                call.error = effect.error
            elif isinstance(effect, Sync):
                self.held.append(effect)
            else:
                assert isinstance(effect, Remove)
                self.removed.append(effect.path)
                (self.disk.remove_tree if os.path.isdir(effect.path) else self.disk.remove)(effect.path)

    def sync(self) -> None:
        """Carry out the syncs that are held."""
        held, self.held = self.held, []
        for effect in held:
            error, write_error = effect.carry_out(self.disk)
            self.core.synced(effect.job, error, self.now, write_error)
        self.turn()

    def tick(self, seconds: float) -> None:
        """Time passes; everything that falls due happens."""
        end = self.now + seconds
        while (when := self.core.next_deadline(self.now, self.wall_us)) is not None and when <= end:
            step = max(when - self.now, 0.0001)
            self.now += step
            self.wall_us += int(step * 1e6) + 1
            self.turn()
        self.wall_us += int(max(end - self.now, 0) * 1e6)
        self.now = max(self.now, end)
        self.turn()

    def handle(self, call: Call) -> None:
        """Hand it in; what can be answered at once is."""
        self.core.handle(call, self.now)
        self.carry_out(self.core.effects())

    def send(self, *calls: Call) -> Any:
        """In one turn; the reply of the last one (None while it waits), or its error is raised."""
        for call in calls:
            self.handle(call)
        self.turn()
        if calls[-1].error:
            raise calls[-1].error
        return calls[-1].reply

    # -- words -------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        return self.core.catalog.partitions[(TOPIC, 0)]

    def publish(self, *batches: bytes, internal: bool = False, partition: int = 0) -> list[messages.Produced]:
        """Each batch in a request of its own, all in one turn."""
        calls = [produce(batch, internal=internal, partition=partition) for batch in batches]
        self.send(*calls)
        return [call.reply.parts[0] for call in calls]

    def fetch(self, offset: int, partition: int = 0, **kw: Any) -> tuple[messages.Fetched, list[codec.Record]]:
        """What a plain read gets: hidden and control records left out."""
        part = messages.FetchPart(TOPIC, partition, offset=offset, max_bytes=kw.pop("max_bytes", 1 << 20))
        call = Call(Kind.FETCH, messages.Fetch([part], **kw))
        self.send(call)
        fetched = call.reply.parts[0]
        return fetched, codec.decode(call.frames_back[0], skip=fetched.hidden) if call.frames_back[0] else []

    def read_all(self, offset: int = 0, partition: int = 0, **kw: Any) -> list[codec.Record]:
        """From `offset` to the end; damage is stepped over."""
        found: list[codec.Record] = []
        while True:
            fetched, records = self.fetch(offset, partition, **kw)
            if fetched.error and not fetched.next_offset:
                raise AssertionError(fetched.message)
            found += records
            if fetched.next_offset <= offset:
                return found
            offset = fetched.next_offset

    def ask(self, kind: Kind, body: Any, **kw: Any) -> Any:
        return self.send(Call(kind, body, **kw))

    def log_path(self, base: int = 0, suffix: str = ".log") -> str:
        return f"{self.folder}/logs/t/0/{base:020d}{suffix}"


def produce(batch: bytes, internal: bool = False, partition: int = 0, acks: int = 1, epoch: int = -1) -> Call:
    return Call(Kind.PRODUCE, messages.Produce([messages.ProducePart(TOPIC, partition, epoch)], acks, internal), [batch])


def batch_of(*values: bytes | None, producer: int = -1, sequence: int = 0, epoch: int = 0, flags: int = 0, headers: bytes = b"",
             priorities: Sequence[int] = (2,), timestamp: int = 0) -> bytes:
    builder = codec.BatchBuilder()
    for number, value in enumerate(values):
        builder.add(b"k%d" % number, value, headers=headers, flags=flags, priority=priorities[number % len(priorities)],
                    timestamp=timestamp)
    return builder.seal(producer, epoch, sequence) if producer >= 0 else builder.seal()


def values(records: Sequence[codec.Record]) -> list[bytes | None]:
    return [record.value for record in records]


class FaultyFile(QuickFile):
    __slots__ = ("disk",)
    disk: "FaultyDisk"

    def append(self, buffers: Sequence[Bytes]) -> None:
        error, share = self.disk.write_fault(self.path)
        if error:
            data = b"".join(buffers)
            before = self.size
            super().append([data[:int(len(data) * share)]])
            self.size = before
            raise OSError(error, os.strerror(error), self.path)
        super().append(buffers)

    def sync(self) -> None:
        if self.disk.fail_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        self.disk.synced.append(self.path)
        super().sync()

    def truncate(self, size: int) -> None:
        if self.disk.fail_truncate:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        super().truncate(size)


class FaultyDisk(QuickDisk):
    """`fail_at`: the number of the write that fails (and with `stay` all after it); a share of it gets through."""

    def __init__(self) -> None:
        self.writes = 0
        self.fail_at: int | None = None
        self.stay = False
        self.error = errno.ENOSPC
        self.share = 0.5
        self.fail_sync = False
        self.fail_truncate = False
        self.synced: list[str] = []
        self.free: int | None = None
        self.only: Callable[[str], bool] = lambda path: True

    def write_fault(self, path: str) -> tuple[int, float]:
        if not self.only(path):
            return 0, 0.0
        self.writes += 1
        hit = self.fail_at is not None and (self.writes == self.fail_at or (self.stay and self.writes > self.fail_at))
        return (self.error, self.share) if hit else (0, 0.0)

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        file = FaultyFile(path, os.open(path, flags, 0o640))
        file.disk = self
        return file

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        error, _ = self.write_fault(path)
        if error:
            raise OSError(error, os.strerror(error), path)
        super().write_atomic(path, data, durable=durable)

    def free_bytes(self, path: str) -> int:
        return super().free_bytes(path) if self.free is None else self.free

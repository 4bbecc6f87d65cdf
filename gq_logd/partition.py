"""One partition: its log and all that is decided from it.

Owns epochs, producers, transactions, delays, the high watermark and what is visible. Everything is appended in turns (see
`turn`): what one loop turn brought is stamped in order of arrival and written at once; memory follows only after a complete
write. An I/O error takes the partition offline until restart: it answers PartitionOffline and writes nothing more.

Visible is what lies below the high watermark: the log end, or with fsync=every the end of what is synced.
"""

import errno
from collections.abc import Iterator, Sequence
from typing import Final

from gq_logd.config import LogConfig
from gq_logd.delays import Delays
from gq_logd.effects import Sync, Write
from gq_logd.epochs import Epochs
from gq_logd.files import Files
from gq_logd.log import SAVE_BYTES, Log
from gq_logd.producers import Producers
from gq_logd.segments import HIDING, Segment
from gq_logd.stats import PartitionStats
from gq_logd.transactions import Transactions
from gq_proto import codec, control, segment
from gq_proto import files as small
from gq_proto import ranges as rng
from gq_proto import record as rec
from gq_proto.errors import Busy, Corrupt, DiskFull, GoQueueError, NotLeader, OffsetOutOfRange, PartitionOffline
from gq_proto.found import FoundControl
from gq_proto.messages import Control, Isolation, TopicConfig
from gq_proto.runs import NO_LANES, triples
from gq_proto.segment import Derived

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CROWDED: Final = (errno.EMFILE, errno.ENFILE)        # told before anything is read or written
CONTROLS_KEPT: Final = 64        # latest control records in memory, for watchers


class Partition:
    def __init__(self, config: LogConfig, files: Files, topic_id: int, topic: str, number: int, log: Log) -> None:
        self.config, self.files, self.log = config, files, log
        self.topic_id, self.topic, self.number = topic_id, topic, number
        self.settings = TopicConfig()
        self.epoch = -1                  # of the leader, that is us; -1 while metad has not said
        self.leader = False
        self.epochs = Epochs()
        self.written_epoch = -1          # the newest that has a leader-change record
        self.producers = Producers()
        self.transactions = Transactions()
        self.high_watermark = log.end
        self.synced_end = log.end        # everything below is on the disk
        self.problem = ""                # why it is offline, one line
        self.online = True
        self.stats = PartitionStats()
        self.controls: list[Control] = []
        self.controls_from = log.end     # from here on all of them are in memory
        self.rolled = False              # since the core looked
        self.changed = False             # since the last checkpoint
        self.saved_at = -1e9             # monotonic, of the last checkpoint
        self._delays: Delays | None = None
        self._sync_end = log.end
        self.working = False             # a job runs
        self.start_wanted = log.start    # where the log shall begin
        self.start_saved = log.start     # where the checkpoint says that it does
        self.birth: Write | None = None  # partition.meta, until it and the folders above are on the disk
        self._epochs_changed = False     # since they were last saved

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.number}"

    @property
    def folder(self) -> str:
        return self.log.folder

    # -- who may ask what ------------------------------------------------------------

    def check_epoch(self, epoch: int) -> None:
        """NotLeader unless we lead and the caller means our epoch (-1: any); PartitionOffline after an I/O error."""
        if not self.leader:
            raise NotLeader(f"{self.name} is not led here: refresh metadata")
        if epoch not in (-1, self.epoch):
            raise NotLeader(f"{self.name} is at leader epoch {self.epoch}, not {epoch}: refresh metadata")
        if not self.online:
            raise self.offline_error()

    def lead(self, epoch: int) -> None:
        """metad made us its leader in this epoch."""
        self.leader = True
        if epoch > self.epoch:
            self.epoch = epoch
            if epoch > self.epochs.latest:
                self.epochs.begin(epoch, self.log.end)

    def go_offline(self, error: OSError) -> None:
        """It may have lost what it wrote: never act on it again until recovery has looked."""
        self.online = False
        self.problem = f"{error.strerror or error} ({error.filename or self.folder}): restart gq_logd when the disk is well"

    def judge(self, error: OSError) -> GoQueueError:
        """Full disks are waited for, too many open files pass; anything else ends the partition until restart."""
        if error.errno in FULL:
            return DiskFull(f"no space for {self.name}: {error.strerror}; free some, publishing goes on by itself")
        if error.errno in CROWDED:
            return Busy(f"gq_logd has too many files open: {error.strerror}; raise its limit")
        self.go_offline(error)
        return self.offline_error()

    def offline_error(self) -> PartitionOffline:
        return PartitionOffline(f"{self.name} is offline: {self.problem}")

    # -- what is visible ---------------------------------------------------------------

    @property
    def last_stable(self) -> int:
        return self.transactions.last_stable(self.high_watermark)

    def limit(self, isolation: int) -> int:
        return self.last_stable if isolation == Isolation.READ_COMMITTED else self.high_watermark

    def check_offset(self, offset: int) -> None:
        if not self.log.start <= offset <= self.log.end:
            raise OffsetOutOfRange(f"{self.name} holds offsets {self.log.start} to {self.log.end}, not {offset}")

    def hidden(self, low: int, high: int, isolation: int, include_delayed: bool) -> list[int]:
        """Ranges in [low, high) that an app must not see."""
        hidden = self.transactions.aborted_within(low, high) if isolation == Isolation.READ_COMMITTED else []
        delayed = self.delayed_within(low, high)
        if delayed:
            hidden = rng.union(hidden, self.delays().hidden(delayed, include_delayed))
        return hidden

    def delayed_within(self, low: int, high: int) -> list[int]:
        """Ranges of delayed records."""
        found: list[int] = []
        for part in self.log.walk(low, high):
            if part.flags & rec.DELAYED:
                for offset, count, kind in self.runs_of(part, low, high):
                    if rec.kind_flags(kind) & rec.DELAYED:
                        found += (offset, count)
        return found

    def may_hide(self, low: int, high: int) -> bool:
        return any(part.flags & HIDING for part in self.log.walk(low, high))

    def runs_of(self, part: Segment, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """(offset, count, kind) of the records of one segment in [low, high), clipped to it, whatever their priorities."""
        return triples(part.runs(low, high, NO_LANES)[0])

    def delays(self) -> Delays:
        """What is decided about delayed records; read from the log the first time."""
        if self._delays is None:
            self._delays = Delays()
            for found in self.controls_within(self.log.start, self.log.end):
                self.decide(found.type, found.body)
        return self._delays

    def decide(self, type_: int, body: bytes) -> None:
        if type_ in (control.ControlType.DELAY_READY, control.ControlType.DELAY_CANCELLED) and self._delays is not None:
            decided = control.decode_body(type_, body)
            assert isinstance(decided, list)
            self._delays.apply(type_, decided)

    def controls_within(self, low: int, high: int) -> list[Control]:
        """Control records in [low, high), read from the log."""
        wanted: list[int] = []
        for part in self.log.walk(low, high):
            if part.flags & rec.CONTROL:
                for offset, count, kind in self.runs_of(part, low, high):
                    if rec.kind_flags(kind) & rec.CONTROL:
                        wanted += (offset, count)
        return self.read_controls(wanted)

    def read_controls(self, wanted: Sequence[int]) -> list[Control]:
        """The control records at these offsets, as far as they are not damaged."""
        found: list[Control] = []
        for part in self.log.walk(wanted[0], wanted[-2] + wanted[-1]) if wanted else ():
            inside = rng.clip(wanted, part.base, part.next_offset)
            if inside:
                data, _, _ = part.gather(inside, 2**40)
                found += [Control(c.offset, c.type, c.body) for c in controls_of(data)]
        return found

    def recent_controls(self, low: int, high: int) -> list[Control] | None:
        """Control records in [low, high) if all of them are still in memory, else None."""
        return [c for c in self.controls if low <= c.offset < high] if low >= self.controls_from else None

    def timestamp_at(self, offset: int) -> int:
        """Of a record below the log end; 0 when it is damaged or gone."""
        if offset < self.log.start:
            return 0
        try:
            return rec.timestamp_of(self.log.find(offset).read(offset, offset + 1, 1)[0])
        except Corrupt:
            return 0

    # -- what became true --------------------------------------------------------------

    def wrote_control(self, offset: int, type_: int, body: bytes, part: Segment) -> None:
        """A control record lies in the log now, live or in recovery."""
        self.controls.append(Control(offset, type_, body))
        if len(self.controls) > CONTROLS_KEPT:
            del self.controls[:-CONTROLS_KEPT]
            self.controls_from = self.controls[0].offset
        said = control.decode_body(type_, body)
        if isinstance(said, control.Marker):
            aborted = self.transactions.finish(said.producer_id, type_ == control.ControlType.COMMIT)
            self.producers.fence(said.producer_id, said.epoch)
            if aborted and not part.closed:
                part.growing(Derived.TXNINDEX).packed += segment.pack_ranges(aborted)
        elif isinstance(said, control.LeaderChange):
            self.written_epoch = max(self.written_epoch, said.epoch)
            self._epochs_changed = True
        else:
            self.decide(type_, body)

    def advance(self) -> bool:
        """Raise the high watermark to what may be seen now; True when it moved."""
        mark = self.synced_end if self.config.fsync == "every" else self.log.end
        moved = mark > self.high_watermark
        self.high_watermark = max(self.high_watermark, mark)
        return moved

    # -- syncing and checkpoints -----------------------------------------------------------

    def job_begins(self, now: float, job: int, *, save: bool = False, durable: bool = True, least_bytes: int = SAVE_BYTES) -> Sync:
        """What to sync, and with it (once a second, or now with `save`) what a restart needs so that it reads only what came after.

        job_ended() follows. What is saved speaks of this moment, for it is written after everything up to here is synced: a
        snapshot of later would take batches for duplicates that a power loss has eaten. OSError: nothing began."""
        writes: tuple[Write, ...] = ()
        if save or now - self.saved_at >= self.config.checkpoint_interval_s:
            self.saved_at = now
            writes = self._save(save and durable, least_bytes)
        files, folders = ((), ()) if self.config.fsync == "none" and not self.log.unclosed else self.log.sync_begins()
        if self.birth and self.config.fsync != "none":
            topic_folder = self.folder.rpartition("/")[0]
            writes, folders = (self.birth, *writes), (*folders, topic_folder, topic_folder.rpartition("/")[0])
        self._sync_end = self.log.end
        self.working = True
        return Sync(job, files, folders, writes)

    def _save(self, durable: bool, least_bytes: int) -> tuple[Write, ...]:
        """The checkpoint and what it relies on; nothing while there is no room for it: a sync must not wait for that."""
        try:
            self.log.save(least_bytes)
        except OSError as e:
            if durable or e.errno not in FULL + CROWDED:
                raise
            return ()
        return self._writes(durable)

    def job_ended(self, error: OSError | None, write_error: OSError | None) -> None:
        """A failed sync takes it offline, whatever the error: the kernel may have dropped what it could not write."""
        self.working = False
        self.log.sync_ended()
        if error:
            self.go_offline(error)
            return
        if not write_error:
            self.birth = None
        if self.config.fsync != "none" or not self.log.unsynced:
            self.synced_end = max(self.synced_end, self._sync_end)
        if write_error:
            self.judge(write_error)
            self.changed = self.producers.changed = self._epochs_changed = True

    def _writes(self, durable: bool) -> tuple[Write, ...]:
        """The small files that changed; the epochs before the checkpoint that makes recovery rely on them."""
        found = []
        if self._epochs_changed:
            self._epochs_changed = False
            self.epochs.trim(self.log.start)
            entries = [small.LeaderEpoch(*entry) for entry in self.epochs.entries]
            found.append(self._write(small.LEADER_EPOCHS, small.encode_leader_epochs(entries), True))
        if self.producers.changed:
            self.producers.changed = False
            found.append(self._write(small.PRODUCERS, self._snapshot(), durable))
        self.changed = False
        self.start_saved = max(self.log.start, self.start_wanted)
        return (*found, self._write(small.CHECKPOINT, small.encode_checkpoint(
            small.Checkpoint(self.start_saved, self.log.end, self.high_watermark, self.last_stable)), durable))

    def _snapshot(self) -> bytes:
        entries = (small.ProducerEntry(id, state.epoch, 0, tuple(small.BatchEntry(*batch) for batch in state.batches))
                   for id, state in self.producers.states())
        return small.encode_producers(small.ProducersSnapshot(self.log.end, 0, tuple(entries)))

    def _write(self, name: str, data: bytes, durable: bool) -> Write:
        return Write(f"{self.folder}/{name}", data, durable)

    # -- the start of the log ----------------------------------------------------------------

    def drop_below(self, offset: int) -> Sequence[str]:
        """Forget whole segments below `offset`; the paths to remove."""
        paths = self.log.drop_below(offset)
        self.trim()
        return paths

    def trim(self) -> None:
        self.transactions.trim(self.log.start)
        self.epochs.trim(self.log.start)
        if self._delays is not None:
            self._delays.trim(self.log.start)
        self.changed = True


def controls_of(data: bytes) -> Iterator[FoundControl]:
    """The control records among valid records, whose offsets ascend but may have gaps."""
    at = 0
    while at < len(data):
        scan = codec.scan(data, at)
        yield from scan.controls
        if scan.position == at:
            return
        at = scan.position

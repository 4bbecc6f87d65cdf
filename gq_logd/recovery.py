"""From a partition's folder to a Partition, after whatever happened to the process or the machine.

Owns the order of belief: the checkpoint says up to where the log was synced; below that derived files are taken as they are,
above it every record is scanned. The tail is torn only if nothing valid follows the bad point: then it is cut, together with an
idempotent batch that lacks its rest; but one that begins below the recovery point was whole once, and answered: what is left of it
stays. Otherwise it is damage: nothing is cut, the segment is sealed, and the log goes on in a new
one. Offsets that were known to be used (recovery point, high watermark) are never given out again: if the log ends before
them, the new segment begins there, and what lies between is lost.

Never removes a record that is valid. Leaves the partition not led: metad says who leads.
"""

from collections.abc import Iterable
from itertools import pairwise

from gq_logd import rebuild
from gq_logd.config import LogConfig
from gq_logd.epochs import Epochs
from gq_logd.files import Files
from gq_logd.log import Log
from gq_logd.partition import Partition
from gq_logd.producers import State, Window
from gq_logd.segments import Segment
from gq_proto import codec, control, segment
from gq_proto import files as small
from gq_proto import ranges as rng
from gq_proto import record as rec
from gq_proto.errors import Corrupt
from gq_proto.found import FoundBatch, FoundControl, Scan
from gq_proto.segment import Derived

Fact = tuple[int, FoundBatch | FoundControl, bool]      # offset, what, whether it is transactional


class Recovery:
    """One partition's. `notes`: what an operator should know: level and line."""

    def __init__(self, files: Files, config: LogConfig, folder: str) -> None:
        self._files, self._config, self._folder = files, config, folder
        self.notes: list[tuple[str, str]] = []
        self._facts: list[Fact] = []
        self._scanned = False
        self._made = False               # a segment, whose name is not on the disk yet
        self._from = 0                   # facts of what lies below were not met by the scan

    def run(self, topic_id: int, topic: str, number: int) -> Partition:
        """Corrupt (of a small file) is handled; OSError is not."""
        mark = self._checkpoint()
        log = self._log(mark)
        partition = Partition(self._config, self._files, topic_id, topic, number, log)
        self._restore_epochs(partition)
        self._restore_facts(partition, mark)
        partition.epochs.cut(log.end)
        if self._scanned or mark.recovery_point == 0:
            self._settle(partition, mark)
        return partition

    # -- the log -----------------------------------------------------------------------

    def _checkpoint(self) -> small.Checkpoint:
        try:
            raw = self._files.read(f"{self._folder}/{small.CHECKPOINT}")
            if raw:
                return small.decode_checkpoint(raw)
        except Corrupt as e:
            self._note(f"{e.message}: the whole log is scanned")
        return small.Checkpoint(0, 0, 0, 0)

    def _log(self, mark: small.Checkpoint) -> Log:
        self._tidy()
        used = max(mark.log_start, mark.recovery_point, mark.high_watermark)
        bases = self._bases()
        if not bases:
            segments = [self._new(used)]
            self._from = used
        else:
            segments = [self._sealed(base, following, mark) for base, following in pairwise(bases)]
            segments.append(self._live(bases[-1], segments[-1] if segments else None, mark.recovery_point))
            self._go_on(segments, used)
        return Log(self._files, self._folder, segments, max(mark.log_start, segments[0].base), self._made or self._scanned)

    def _bases(self) -> list[int]:
        names = self._files.disk.list_dir(self._folder)
        return sorted(base for base in map(segment.base_offset_of, names) if base is not None)

    def _tidy(self) -> None:
        """Leftovers of a crash: half-written small files, derived files whose log is gone."""
        names = self._files.disk.list_dir(self._folder)
        bases = set(self._bases())
        for name in names:
            derived = [segment.base_offset_of(name, kind.value) for kind in Derived]
            if name.endswith(".tmp") or any(base is not None and base not in bases for base in derived):
                self._files.disk.remove(f"{self._folder}/{name}")

    def _new(self, base: int) -> Segment:
        part = Segment(self._files, self._folder, base, 0, base, live=True)
        self._files.pool.get(part.path(), create=True)
        self._made = True
        return part

    def _sealed(self, base: int, following: int, mark: small.Checkpoint) -> Segment:
        part = Segment(self._files, self._folder, base, 0, following, live=False)
        part.size = self._files.disk.size(part.path())
        if following > mark.recovery_point:
            rebuild.make_ready(self._files, part)
            self._note_damage(part)
            if part.next_offset < following:
                self._note(f"{part.path()}: offsets {part.next_offset}-{following - 1} are lost", "error")
        return part

    def _live(self, base: int, before: Segment | None, point: int) -> Segment:
        """The last segment, with all that is valid in it; a torn tail is cut."""
        while True:
            part = Segment(self._files, self._folder, base, 0, base, live=True)
            part.max_timestamp = self._timestamp_before(before)
            size = self._files.disk.size(part.path())
            rebuild.load(self._files, part, point, size)
            self._facts.clear()
            self._scanned = size > part.size
            self._from = part.next_offset
            tail = rebuild.scan_on(self._files, part, size, self._keep_facts)
            self._note_damage(part)
            if tail.open_batch and not part.damage and tail.open_batch.offset >= point:
                torn = tail.open_batch
                self._note(f"{part.path()}: cut at position {torn.position}: {torn.present} of a batch of {torn.count} records")
                point = min(point, torn.offset)
                self._files.pool.get(part.path()).truncate(torn.position)
                continue
            if tail.torn and not part.damage:
                self._note(f"{part.path()}: cut at position {tail.position}, {tail.torn} bytes: {tail.detail}")
                self._files.pool.get(part.path()).truncate(tail.position)
            return part

    def _timestamp_before(self, before: Segment | None) -> int:
        if not before:
            return 0
        if before.max_timestamp:
            return before.max_timestamp
        found = segment.read_derived(self._files.read(before.path(Derived.TIMEINDEX.value)), Derived.TIMEINDEX, before.base)
        footer = segment.unpack_max_timestamp(found.footer) if found.footer is not None else None
        if footer is None:
            rebuild.make_ready(self._files, before)
            return before.max_timestamp
        return footer

    def _go_on(self, segments: list[Segment], used: int) -> None:
        """After damage, or when used offsets are lost, the log goes on in a new segment."""
        last = segments[-1]
        following = max(used, last.next_offset)
        if following > last.next_offset:
            self._note(f"{last.path()}: offsets {last.next_offset}-{following - 1} are lost; the log goes on at {following}",
                       "error")
        elif not last.damage:
            return
        if last.size:
            last.live = False
            new = self._new(following)
            new.max_timestamp = last.max_timestamp
            segments.append(new)
        else:
            for path in last.paths():
                self._files.pool.forget(path)
                self._files.disk.remove(path)
            segments[-1] = self._new(following)

    def _note_damage(self, part: Segment) -> None:
        for damage in part.damage:
            lost = f"offsets {damage.low}-{damage.high - 1} are lost" if damage.low < damage.high else "no record follows"
            self._note(f"{part.path()} is damaged at position {damage.position}: {lost}", "error")

    def _note(self, text: str, level: str = "warning") -> None:
        if (level, text) not in self.notes:
            self.notes.append((level, text))

    # -- what the log says -----------------------------------------------------------------

    def _keep_facts(self, scan: Scan) -> None:
        self._facts += facts_of(scan)

    def _aborted(self, log: Log) -> tuple[list[int], dict[int, int]] | None:
        """Ranges that transactions aborted, and per segment (base) up to which offset it says so; None when a file is bad."""
        names = set(self._files.disk.list_dir(self._folder))
        found: list[int] = []
        covered: dict[int, int] = {}
        for part in log.segments:
            if segment.segment_name(part.base, Derived.TXNINDEX.value) in names:
                try:
                    aborted, covered[part.base] = rebuild.aborted_of(self._files, part)
                    found = rng.union(found, aborted)
                except Corrupt as e:
                    self._note(f"{e.message}: transactions are read from the whole log")
                    return None
        return found, covered

    def _restore_epochs(self, partition: Partition) -> None:
        entries: list[tuple[int, int]] = []
        try:
            raw = self._files.read(f"{self._folder}/{small.LEADER_EPOCHS}")
            entries = [(entry.epoch, entry.start_offset) for entry in small.decode_leader_epochs(raw)] if raw else []
            known = bool(raw)
        except Corrupt as e:
            self._note(f"{e.message}: read from the log")
            known = False
        if not known:
            for found in partition.controls_within(partition.log.start, partition.log.end):
                said = control.decode_body(found.type, found.body)
                if isinstance(said, control.LeaderChange) and (not entries or entries[-1][0] < said.epoch):
                    entries.append((said.epoch, said.start_offset))
        partition.epochs = Epochs(entries)
        partition.written_epoch = partition.epochs.latest

    def _restore_facts(self, partition: Partition, mark: small.Checkpoint) -> None:
        """Producers, transactions and the latest control records, from the small files and from what lies behind them."""
        log = partition.log
        batches_from = self._restore_producers(partition, mark.recovery_point)
        known = self._aborted(log)
        start = max(min(batches_from, mark.last_stable, self._from), log.start)
        facts = [*self._replayed(log, start, self._from), *self._facts]
        if known is None or _unexplained(facts, log, known[1]):
            facts = [*self._replayed(log, log.start, self._from), *self._facts]
            known, start = None, log.start
        partition.controls_from = start
        partition.transactions.aborted = known[0] if known else []
        for offset, what, transactional in facts:
            if isinstance(what, FoundControl):
                _learn_epoch(partition, what)
                partition.wrote_control(what.offset, what.type, what.body, log.segments[log.number_of(offset)])
                continue
            if offset >= batches_from and _whole(what, log.segments[log.number_of(offset)]):
                partition.producers.replay(what.producer_id, what.epoch, what.base_sequence, what.count, offset)
            if transactional:
                partition.transactions.wrote(what.producer_id, offset, what.count)

    def _restore_producers(self, partition: Partition, point: int) -> int:
        """From which offset on batches have to be read from the log."""
        try:
            raw = self._files.read(f"{self._folder}/{small.PRODUCERS}")
            snapshot = small.decode_producers(raw) if raw else None
        except Corrupt as e:
            self._note(f"{e.message}: producers are read from the whole log")
            snapshot = None
        if not snapshot or snapshot.next_offset > partition.log.end:
            return partition.log.start
        partition.producers.apply({
            producer.producer_id: State(producer.epoch, next_sequence(producer), tuple(
                Window(batch.base_sequence, batch.count, batch.base_offset) for batch in producer.batches))
            for producer in snapshot.producers})
        partition.producers.changed = False
        return max(snapshot.next_offset, point)

    def _replayed(self, log: Log, low: int, high: int) -> Iterable[Fact]:
        """Batches and control records in [low, high), read from the log."""
        offset = low
        while offset < high:
            part = log.find(offset)
            if offset >= part.next_offset:
                if part is log.live:
                    return
                offset = log.behind(part)
                continue
            try:
                data, following = part.read(offset, high, rebuild.CHUNK_BYTES)
            except Corrupt:
                following = part.corrupt(part.floor(offset), offset).next_offset
                data = memoryview(b"")
            yield from facts_of(codec.scan(data))
            offset = following

    def _settle(self, partition: Partition, mark: small.Checkpoint) -> None:
        """What was scanned may not be on the disk yet."""
        partition.synced_end = min(mark.recovery_point, partition.log.end)
        if self._config.fsync == "every":
            for part in partition.log.segments:
                if part.next_offset > mark.recovery_point:
                    self._files.pool.get(part.path()).sync()
            partition.synced_end = partition.log.end
        partition.log.touch(mark.recovery_point)
        partition.changed = True


def next_sequence(producer: small.ProducerEntry) -> int:
    if not producer.batches:
        return 0
    last = producer.batches[-1]
    return (last.base_sequence + last.count) % 2**31


def _whole(batch: FoundBatch, part: Segment) -> bool:
    """All its records are there. A producer that sends one again that is not must not hear that it is known."""
    end = batch.offset + batch.count
    return end <= part.next_offset and not any(damage.low < end and damage.high > batch.offset for damage in part.damage)


def _learn_epoch(partition: Partition, found: FoundControl) -> None:
    """A leader change that `leader-epochs` does not know yet."""
    said = control.decode_body(found.type, found.body)
    if isinstance(said, control.LeaderChange) and said.epoch > partition.epochs.latest:
        partition.epochs.begin(said.epoch, said.start_offset)


def _unexplained(facts: list[Fact], log: Log, covered: dict[int, int]) -> bool:
    """An abort is among them whose transaction is not, and no `.txnindex` reaches as far: what it aborted lies further back."""
    began: set[int] = set()
    for offset, what, transactional in facts:
        if isinstance(what, FoundBatch):
            if transactional:
                began.add(what.producer_id)
        elif what.type in (control.ControlType.ABORT, control.ControlType.COMMIT):
            said = control.decode_body(what.type, what.body)
            assert isinstance(said, control.Marker)
            base = log.segments[log.number_of(offset)].base
            if what.type == control.ControlType.ABORT and said.producer_id not in began and offset >= covered.get(base, 0):
                return True
            began.discard(said.producer_id)
    return False


def facts_of(scan: Scan) -> list[Fact]:
    """Batches and control records of a scan, in order."""
    found: list[Fact] = [(control_.offset, control_, False) for control_ in scan.controls]
    transactional = scan.flags & rec.TRANSACTIONAL
    for batch in scan.batches:
        found.append((batch.offset, batch, bool(transactional) and _is_transactional(scan.runs, batch.offset)))
    return sorted(found, key=lambda fact: fact[0])


def _is_transactional(runs: list[int], offset: int) -> bool:
    return any(runs[at] <= offset < runs[at] + runs[at + 1] and rec.kind_flags(runs[at + 2]) & rec.TRANSACTIONAL
               for at in range(0, len(runs), 3))

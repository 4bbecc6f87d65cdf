"""LogCore: requests and time in, effects out. All that gq_logd decides; a Disk is its only way out.

    core = LogCore(disk, data_dir, node_id, config)
    while core.recover(now): ...              one partition a call
    core.apply(metadata reply, now, wall_us)
    core.handle(call, now)                    any number, each followed by
    core.effects() -> effects                 what is answered at once; then
    core.turn(now, wall_us) -> effects        once: one write per partition, then the other answers
    core.synced(job, error, now, write_error) the outcome of a Sync effect, followed by a turn
    core.next_deadline(now, wall_us)          when the next turn is due though nothing came

Owns the parts and their order within a turn: syncs and checkpoints that are due, expiry, retention, writes, what the writes moved
(long polls, watches), deadlines.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from gq_logd import queries, retention
from gq_logd.appends import Appends
from gq_logd.catalog import Catalog
from gq_logd.config import LogConfig
from gq_logd.effects import Call, Effect, Fail, Remove, Reply
from gq_logd.files import Files
from gq_logd.partition import Partition
from gq_logd.space import Space
from gq_logd.syncs import Syncs
from gq_logd.waiting import Fetches
from gq_logd.watch import Watches
from gq_proto.errors import BadRequest, GoQueueError, Unavailable, UnknownKind
from gq_proto.messages import Body, DeleteBeforeReply, Kind, MetadataReply, PartitionsReply
from gq_run.disk import Disk

RETENTION_RETRY_US: Final = 1_000_000
REMAKE_S: Final = 1.0            # between tries to make a partition that could not be made
QUERIES: Final[dict[int, Callable[[Partition, Any], Body]]] = {
    Kind.RUNS: queries.runs, Kind.DUE: queries.due, Kind.OFFSET_FOR_TIME: queries.offset_for_time,
    Kind.END_OF_EPOCH: queries.end_of_epoch,
}


class LogCore:
    """`clock` is for latencies that are only counted, never for a decision."""

    def __init__(self, disk: Disk, data_dir: str, node_id: str, config: LogConfig,
                 clock: Callable[[], float] = lambda: 0.0) -> None:
        self.config = config
        self._effects: list[Effect] = []
        self.files = Files(disk, config.open_files_max)
        self.catalog = Catalog(self.files, config, data_dir, node_id, self._effects)
        self._space = Space(disk, data_dir, config.reserve_bytes)
        self.appends = Appends(config, clock, self._effects)
        self._fetches = Fetches(self._effects, self.catalog.get)
        self._watches = Watches(self._effects, self.catalog.partitions)
        self._syncs = Syncs(config, self._effects, self._sync_ended)
        self._retention = retention.Retention()
        self._to_recover: Iterator[Any] | None = None
        self._purges: dict[Partition, list[tuple[Call, int]]] = {}    # whose log start is moving, and who asked
        self._now = 0.0
        self._wall_us = 0
        self._remake_at = 0.0
        self.recovered = False

    # -- start and end -------------------------------------------------------------------

    def recover(self, now: float) -> bool:
        """Recover the next partition; False when all are."""
        if self._to_recover is None:
            self._to_recover = self.catalog.found()
        found = next(self._to_recover, None)
        if found is None:
            self.recovered = True
            return False
        partition = self.catalog.open(*found)
        if partition:
            self._syncs.recovered(partition, now)
        return True

    def halt(self) -> None:
        """Start no more jobs: the end is near. close() follows when those that run are done."""
        self._syncs.halted = True

    def close(self, now: float) -> None:
        """An orderly end: everything is synced and saved, so that a start has nothing to scan."""
        for partition in self.catalog.partitions.values():
            if partition.online and not partition.working and (partition.changed or partition.log.unsaved):
                try:
                    job = partition.job_begins(now, 0, save=True, durable=False, least_bytes=1)
                except OSError as e:
                    partition.judge(e)
                    continue
                partition.job_ended(*job.carry_out(self.files.disk))
                self._close_sealed(partition)
        self.files.pool.close()

    def _close_sealed(self, partition: Partition) -> None:
        try:
            if partition.online:
                partition.log.save(1)
        except OSError as e:
            partition.judge(e)

    def apply(self, reply: MetadataReply, now: float, wall_us: int) -> None:
        """What metad says. It is in force when this returns."""
        self._now, self._wall_us = now, wall_us
        gone = set(reply.deleted)
        keys = [key for key in self.catalog.partitions if key[0] in gone]
        self._changed(self.catalog.apply(reply), wall_us)
        for key in keys:
            self._watches.moved(key, always=True)

    def _changed(self, partitions: Iterable[Partition], wall_us: int) -> None:
        for partition in partitions:
            key = (partition.topic_id, partition.number)
            self._fetches.moved(partition)
            if self.catalog.partitions.get(key) is partition:
                self._watches.moved(key)
                self._retain(partition, wall_us)
                self._syncs.wrote(partition, self._now)
            else:
                self.appends.forget(partition, self._now)
                self._syncs.forget(partition)
                self._retention.forget(partition)

    def synced(self, job: int, error: OSError | None, now: float, write_error: OSError | None = None) -> None:
        self._now = now
        self._syncs.synced(job, error, write_error, now)

    # -- requests ------------------------------------------------------------------------

    def handle(self, call: Call, now: float) -> None:
        """One request; refusals become effects."""
        try:
            if not self.recovered:
                raise Unavailable("gq_logd is still recovering its partitions")
            self._dispatch(call, now)
        except GoQueueError as e:
            self._effects.append(Fail(call, e))

    def _dispatch(self, call: Call, now: float) -> None:
        kind = call.kind
        if kind == Kind.PRODUCE:
            self.appends.produce(call, now, self._find)
        elif kind == Kind.FETCH:
            self._fetches.fetch(call, now)
        elif kind == Kind.WATCH:
            self._watches.watch(call, now)
        elif kind == Kind.PARTITIONS:
            self._effects.append(Reply(call, self._partitions(call.body.topic_ids)))
        elif kind == Kind.WRITE_MARKER:
            self.appends.marker(call, now, self._partition_of(call))
        elif kind == Kind.DELETE_BEFORE:
            self._delete_before(call, self._partition_of(call), now)
        elif kind in QUERIES:
            self._effects.append(Reply(call, self._answer(QUERIES[kind], self._partition_of(call), call.body)))
        else:
            raise UnknownKind(f"gq_logd does not serve request kind {kind}")

    def _partition_of(self, call: Call) -> Partition:
        return self._find(call.topic_id, call.partition, call.epoch)

    def _answer(self, query: Callable[[Partition, Any], Body], partition: Partition, body: Any) -> Body:
        try:
            return query(partition, body)
        except OSError as e:
            raise partition.judge(e) from None

    def _find(self, topic_id: int, number: int, epoch: int) -> Partition:
        partition = self.catalog.get(topic_id, number)
        partition.check_epoch(epoch)
        return partition

    def _partitions(self, topic_ids: list[int]) -> PartitionsReply:
        wanted = set(topic_ids)
        return PartitionsReply([queries.info(partition) for key, partition in sorted(self.catalog.partitions.items())
                                if not wanted or key[0] in wanted])

    def _delete_before(self, call: Call, partition: Partition, now: float) -> None:
        """The log start moves for good before any file goes, and before the answer."""
        log, offset = partition.log, call.body.offset
        if offset > partition.high_watermark or offset < -1:
            raise BadRequest(f"{partition.name} ends at {partition.high_watermark}: its start cannot become {offset}")
        offset = partition.high_watermark if offset < 0 else offset
        if offset <= log.start and partition not in self._purges:
            self._effects.append(Reply(call, DeleteBeforeReply(log.start)))
            return
        if offset == log.end and log.live.size:
            try:
                log.roll(log.end)
            except OSError as e:
                raise partition.judge(e) from None
        self._move_start(partition, offset, now, call)

    def _move_start(self, partition: Partition, offset: int, now: float, call: Call | None = None) -> None:
        """By way of a durable checkpoint: what was gone once must not come back after a power loss."""
        partition.start_wanted = max(partition.start_wanted, offset)
        under_way = partition in self._purges
        waiting = self._purges.setdefault(partition, [])
        if call:
            waiting.append((call, partition.start_wanted))
        if not under_way:
            self._syncs.save(partition, now, lambda error: self._start_moved(partition, error))

    def _start_moved(self, partition: Partition, error: OSError | None) -> None:
        """A durable checkpoint has the log start that was wanted when it was made."""
        calls = self._purges.pop(partition)
        start = partition.start_saved
        late = [(call, wanted) for call, wanted in calls if wanted > start]
        if error:
            problem = partition.judge(error)
            self._effects += [Fail(call, problem) for call, _ in calls]
            partition.start_wanted = partition.log.start
            self._retention.put_off(partition, self._wall_us + RETENTION_RETRY_US)
            return
        if start > partition.log.start:
            partition.log.start = start
            self._effects += [Remove(path) for path in partition.drop_below(start)]
            self._moved(partition, always=True)
        self._retain(partition, self._wall_us)       # more may have become too much meanwhile
        self._effects += [Reply(call, DeleteBeforeReply(start)) for call, wanted in calls if wanted <= start]
        for call, wanted in late:
            self._move_start(partition, wanted, self._now, call)

    # -- turns ---------------------------------------------------------------------------

    def turn(self, now: float, wall_us: int) -> list[Effect]:
        """Everything that is due and everything that was handed in; what the shell has to do for it."""
        self._now, self._wall_us = now, wall_us
        if self.appends.waiting:
            self._space.look(now)
            for partition in self.appends.write(wall_us, self._space):
                if partition.advance():
                    self._moved(partition)
                self._syncs.wrote(partition, now)
                if partition.rolled:
                    partition.rolled = False
                    self._retain(partition, wall_us)
                else:
                    self._retention.wrote(partition)
        self._syncs.start_due(now)
        while (expired := self._retention.expired(wall_us)) is not None:
            self._retain(expired, wall_us)
        self._fetches.answer_moved()
        self._watches.answer_moved()
        self._fetches.expire(now)
        self._watches.expire(now)
        if self.catalog.broken and now >= self._remake_at:
            self._remake_at = now + REMAKE_S
            self._changed(self.catalog.retry(), wall_us)
        return self.effects()

    def effects(self) -> list[Effect]:
        """What the shell has to do so far."""
        effects = list(self._effects)
        self._effects.clear()
        return effects

    def _moved(self, partition: Partition, always: bool = False) -> None:
        self._fetches.moved(partition)
        self._watches.moved((partition.topic_id, partition.number), always)

    def _sync_ended(self, partition: Partition) -> None:
        self.appends.synced(partition, self._now)
        if partition.advance() or not partition.online:
            self._moved(partition)

    def _retain(self, partition: Partition, wall_us: int) -> None:
        """Retention, and when to look again."""
        if not partition.online:
            return
        try:
            keep_from = retention.drop_to(partition, wall_us)
            if keep_from > partition.log.segments[0].base:
                self._move_start(partition, keep_from, self._now)
            else:
                self._retention.schedule(partition)
        except OSError as e:
            partition.judge(e)

    def next_deadline(self, now: float, wall_us: int) -> float | None:
        """Monotonic seconds; None when nothing is due by itself."""
        found = [when for when in (self._syncs.next_deadline(), self._fetches.next_deadline(), self._watches.next_deadline())
                 if when is not None]
        expiry = self._retention.next_wall_us()
        if expiry is not None:
            found.append(now + max(expiry - wall_us, 0) / 1e6)
        if self.catalog.broken:
            found.append(self._remake_at)
        return min(found, default=None)

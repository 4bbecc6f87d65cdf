"""gq_logd's shell: sockets, clock and threads around LogCore.

Owns nothing that matters. Every loop turn ends with one turn of the core, whose effects are carried out in order.
"""

import time
from collections.abc import Iterator

from gq_logd.core import LogCore
from gq_logd.effects import Effect, Remove, Reply, Sync
from gq_logd.options import log_config
from gq_logd.syncing import Workers
from gq_proto.messages import MetadataReply
from gq_run import logs, metrics
from gq_run.daemon import Daemon
from gq_run.directory import Directory
from gq_run.disk import Disk
from gq_run.loop import Timer
from gq_run.server import Incoming


class LogDaemon:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._loop = daemon, daemon.loop
        config = log_config(daemon.config)
        disk = Disk()
        self.core = LogCore(disk, daemon.data_dir, daemon.node_id, config, time.monotonic)
        self._workers = Workers(self._loop, disk, self._synced, self._not_removed, config.syncs_max)
        self._directory = Directory(daemon, self._metadata, applies=True)
        self._timer: Timer | None = None
        self._started = self._loop.now()
        daemon.metrics.add(self.samples)
        daemon.facts = self._facts

    def start(self) -> None:
        self._loop.each_turn(self._turn)
        self._recover()

    def _recover(self) -> None:
        """One partition a loop turn, so that STATUS is answered meanwhile."""
        more = self.core.recover(self._loop.now())
        self._note()
        if more:
            self._daemon.detail = f"recovering, {len(self.core.catalog.partitions)} partitions done"
            self._loop.post(self._recover)
            return
        self._daemon.detail = "waiting for gq_metad"
        self._daemon.log.info("recovered", extra=logs.fields(
            partitions=len(self.core.catalog.partitions), after_s=round(self._loop.now() - self._started, 3)))
        self._directory.start()

    def _metadata(self, reply: MetadataReply) -> None:
        self.core.apply(reply, self._loop.now(), self._loop.wall_us())
        self._note()
        self._daemon.ready()

    def handle(self, incoming: Incoming) -> None:
        """What is answered at once leaves at once: it does not wait for what others of this turn ask for to be read."""
        self.core.handle(incoming, self._loop.now())
        for effect in self.core.effects():
            self._do(effect)

    def stop(self) -> None:
        self._directory.close()
        self.core.halt()
        self._turn()
        self._workers.stop()
        self._loop.turn()                # what the workers had to say
        self.core.close(self._loop.now())

    # -- turns ---------------------------------------------------------------------------

    def _turn(self) -> None:
        now = self._loop.now()
        for effect in self.core.turn(now, self._loop.wall_us()):
            self._do(effect)
        self._schedule(now)

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Sync | Remove):
            self._workers.put(effect)
            return
        assert isinstance(effect.call, Incoming)
        if isinstance(effect, Reply):
            effect.call.reply(effect.body, effect.frames)
        else:
            effect.call.fail(effect.error)

    def _schedule(self, now: float) -> None:
        """One timer for the core's next deadline; an earlier one that is set already will do, it looks again."""
        when = self.core.next_deadline(now, self._loop.wall_us())
        if when is None or (self._timer and self._timer.call and self._timer.when <= when):
            return
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(max(when, self._loop.now()), self._due)

    def _due(self) -> None:
        self._timer = None
        self._turn()

    def _synced(self, job: int, error: OSError | None, write_error: OSError | None) -> None:
        if error:
            self._daemon.log.error("a sync failed, the partition is offline", extra=logs.fields(error=str(error)))
        if write_error:
            self._daemon.log.error("a checkpoint cannot be saved", extra=logs.fields(error=str(write_error)))
        self.core.synced(job, error, self._loop.now(), write_error)

    def _not_removed(self, path: str, error: OSError) -> None:
        self._daemon.log.error("cannot be removed", extra=logs.fields(path=path, error=str(error)))

    def _note(self) -> None:
        for level, text in self.core.catalog.notes:
            getattr(self._daemon.log, level)(text)
        self.core.catalog.notes.clear()

    # -- what it tells -----------------------------------------------------------------------

    def _facts(self) -> dict[str, object]:
        """What cannot be read or written is said where it is looked at first."""
        partitions = self.core.catalog.partitions.values()
        offline = sum(not partition.online for partition in partitions) + len(self.core.catalog.broken)
        if self._daemon.is_ready:
            self._daemon.detail = f"{offline} partitions are offline, see the log" if offline else ""
        return {"partitions": len(partitions), "offline": offline,
                "bytes": sum(partition.log.size_bytes for partition in partitions)}

    def samples(self) -> Iterator[metrics.Sample]:
        """Metrics: plain numbers the core counts."""
        totals: dict[str, list[int]] = {}
        for partition in self.core.catalog.partitions.values():
            labels = (partition.topic, str(partition.number))
            stats = partition.stats
            yield metrics.LOG_SIZE_BYTES, labels, partition.log.size_bytes
            yield metrics.LOG_SEGMENTS, labels, len(partition.log.segments)
            yield metrics.LOG_APPEND_LATENCY, labels, stats.append_latency
            yield metrics.PARTITION_LEADER, (*labels, self._daemon.node_id), int(partition.leader)
            total = totals.setdefault(partition.topic, [0, 0, 0])
            total[0] += stats.messages_produced
            total[1] += stats.bytes_produced
            total[2] += stats.bytes_consumed
        for topic, (messages, produced, consumed) in totals.items():
            yield metrics.MESSAGES_PRODUCED, (topic,), messages
            yield metrics.BYTES_PRODUCED, (topic,), produced
            yield metrics.BYTES_CONSUMED, (topic,), consumed
        for topic, topic_stats in self.core.appends.topics.items():
            yield metrics.PRODUCE_LATENCY, (topic,), topic_stats.produce_latency
            for error, count in topic_stats.errors.items():
                yield metrics.PRODUCE_ERRORS, (topic, error), count

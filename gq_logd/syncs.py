"""When what is written gets to the disk, and when a restart's checkpoint is saved: the policy of the three fsync modes.

    every     at once; one job a partition at a time, so what comes meanwhile shares the next one
    interval  fsync_interval_s after a partition's first unsynced write
    none      no syncs but before a sealed segment is closed; the kernel writes back when it likes

Owns who waits for a job, and which jobs run (syncs_max at most, on threads of the shell). A job syncs, and once a second and
partition it also saves the checkpoint. When nothing changes there is nothing to do and no deadline.
"""

from collections.abc import Callable
from typing import Final

from gq_logd.config import LogConfig
from gq_logd.effects import Effect
from gq_logd.partition import Partition

RETRY_S: Final = 1.0


class Syncs:
    """`ended(partition)` is called when a job is over, whatever came of it."""

    def __init__(self, config: LogConfig, effects: list[Effect], ended: Callable[[Partition], None]) -> None:
        self._config, self._effects, self._ended = config, effects, ended
        self._dirty: dict[Partition, float] = {}     # when to sync, in that order
        self._stale: dict[Partition, float] = {}     # when to save a checkpoint
        self._saves: dict[Partition, Callable[[OSError | None], None]] = {}      # to be saved at once, durably
        self._jobs: dict[int, tuple[Partition, Callable[[OSError | None], None] | None]] = {}
        self._next_job = 1
        self._delay = {"every": 0.0, "interval": config.fsync_interval_s, "none": 0.0}[config.fsync]
        self.halted = False              # no job is started any more

    def recovered(self, partition: Partition, now: float) -> None:
        """What may not be on the disk has waited for long enough."""
        if partition.log.unsynced and self._config.fsync != "none":
            self._dirty[partition] = now
        else:
            self.wrote(partition, now)

    def wrote(self, partition: Partition, now: float) -> None:
        """Something was written."""
        log = partition.log
        if log.unsynced and (self._config.fsync != "none" or log.unclosed):
            if partition not in self._dirty and not partition.working:
                self._dirty[partition] = now + self._delay
        elif partition.changed:
            self.checkpoint_soon(partition, now)

    def checkpoint_soon(self, partition: Partition, now: float) -> None:
        if partition not in self._stale:
            self._stale[partition] = max(now, partition.saved_at + self._config.checkpoint_interval_s)

    def save(self, partition: Partition, now: float, done: Callable[[OSError | None], None]) -> None:
        """A durable checkpoint as soon as the job that runs is over; then done(error). One at a time."""
        assert partition not in self._saves
        self._saves[partition] = done
        self._start_save(partition, now)

    def _start_save(self, partition: Partition, now: float) -> None:
        if not partition.working:
            done = self._saves.pop(partition)
            self._start(partition, now, done)

    def forget(self, partition: Partition) -> None:
        """It is being deleted."""
        self._dirty.pop(partition, None)
        self._stale.pop(partition, None)

    def next_deadline(self) -> float | None:
        """None while all threads are busy: the end of a job is what starts the next."""
        if self.halted or len(self._jobs) >= self._config.syncs_max:
            return None
        return min([next(iter(queue.values())) for queue in (self._dirty, self._stale) if queue], default=None)

    def start_due(self, now: float) -> None:
        """Start the jobs that are due."""
        for queue in (self._dirty, self._stale):
            while queue and len(self._jobs) < self._config.syncs_max and not self.halted:
                partition, when = next(iter(queue.items()))
                if when > now:
                    break
                del queue[partition]
                wanted = queue is self._dirty or partition.changed
                if wanted and partition.online and not partition.working:
                    self._start(partition, now, None)

    def _start(self, partition: Partition, now: float, done: Callable[[OSError | None], None] | None) -> None:
        job, self._next_job = self._next_job, self._next_job + 1
        try:
            self._effects.append(partition.job_begins(now, job, save=done is not None))
        except OSError as e:
            self._could_not(partition, now, e)
            if done:
                done(e)
            return
        self._jobs[job] = (partition, done)

    def _could_not(self, partition: Partition, now: float, error: OSError) -> None:
        partition.judge(error)
        if partition.online:
            partition.saved_at = now
            self._dirty.pop(partition, None)
            self._dirty[partition] = now + RETRY_S
        self._ended(partition)

    def synced(self, job: int, error: OSError | None, write_error: OSError | None, now: float) -> None:
        """The shell did it. A failed sync is final: what the kernel has dropped is not to be had by trying again."""
        partition, done = self._jobs.pop(job)
        partition.job_ended(error, write_error)
        self._ended(partition)
        if done:
            done(error or write_error)
        if partition in self._saves:
            self._start_save(partition, now)
        if partition.online and not partition.working:
            self.wrote(partition, now)
            if partition.changed:
                self.checkpoint_soon(partition, now)

"""When what is written gets to the disk, and when a restart's checkpoint is saved: the policy of the three fsync modes.

    every     at once; one sync a partition at a time, so what comes meanwhile shares the next one
    interval  fsync_interval_s after a partition's first unsynced write
    none      only before a sealed segment is closed; the kernel writes back when it likes

Owns who waits for a sync, which jobs run (syncs_max at most, on threads of the shell), and who waits for a checkpoint (at most one
a second and partition, a few a turn, so that no turn takes long). When nothing changes there is nothing to do and no deadline.
"""

from collections.abc import Callable
from typing import Final

from gq_logd.config import LogConfig
from gq_logd.effects import Effect, Sync
from gq_logd.partition import CROWDED, FULL, Partition

CHECKPOINTS_A_TURN: Final = 8
RETRY_S: Final = 1.0


class Syncs:
    """`ended(partition)` is called when a sync is over, whatever came of it."""

    def __init__(self, config: LogConfig, effects: list[Effect], ended: Callable[[Partition], None]) -> None:
        self._config, self._effects, self._ended = config, effects, ended
        self._dirty: dict[Partition, float] = {}     # when to sync, in that order
        self._stale: dict[Partition, float] = {}     # when to save a checkpoint
        self._jobs: dict[int, Partition] = {}
        self._next_job = 1
        self._delay = {"every": 0.0, "interval": config.fsync_interval_s, "none": 0.0}[config.fsync]

    def wrote(self, partition: Partition, now: float) -> None:
        """Something was written, or recovery found something that may not be on the disk."""
        if self._config.fsync == "none" and not partition.log.unclosed:
            self.checkpoint_soon(partition, now)
        elif partition not in self._dirty and not partition.log.syncing and partition.log.unsynced:
            self._dirty[partition] = now + self._delay

    def checkpoint_soon(self, partition: Partition, now: float) -> None:
        if partition not in self._stale:
            self._stale[partition] = max(now, partition.saved_at + self._config.checkpoint_interval_s)

    def forget(self, partition: Partition) -> None:
        """It is being deleted."""
        self._dirty.pop(partition, None)
        self._stale.pop(partition, None)

    def next_deadline(self) -> float | None:
        heads = []
        if self._dirty and len(self._jobs) < self._config.syncs_max:
            heads.append(next(iter(self._dirty.values())))
        if self._stale:
            heads.append(next(iter(self._stale.values())))
        return min(heads, default=None)

    def start_due(self, now: float) -> None:
        """Start syncs and save checkpoints that are due."""
        while self._dirty and len(self._jobs) < self._config.syncs_max:
            partition, when = next(iter(self._dirty.items()))
            if when > now:
                break
            del self._dirty[partition]
            if partition.online:
                self._start(partition, now)
        for _ in range(CHECKPOINTS_A_TURN):
            if not self._stale or next(iter(self._stale.values())) > now:
                break
            partition = next(iter(self._stale))
            del self._stale[partition]
            self._save_stale(partition, now)

    def _start(self, partition: Partition, now: float) -> None:
        job, self._next_job = self._next_job, self._next_job + 1
        try:
            files, folders = partition.sync_begins(now)
        except OSError as e:
            partition.judge(e)
            self._ended(partition)
            return
        self._jobs[job] = partition
        self._effects.append(Sync(job, files, folders))

    def synced(self, job: int, error: OSError | None, now: float) -> None:
        """The shell did it. A failed sync is final: what the kernel has dropped is not to be had by trying again."""
        partition = self._jobs.pop(job)
        partition.sync_ended(error)
        self._ended(partition)
        if not partition.online:
            return
        if partition.fresh:
            self._save(partition, now)
        elif partition.changed:
            self.checkpoint_soon(partition, now)
        self.wrote(partition, now)

    def _save_stale(self, partition: Partition, now: float) -> None:
        if not partition.online or not partition.changed:
            return
        if self._config.fsync != "none" and (partition.log.unsynced or partition.log.syncing):
            return                       # the sync that is to come saves it
        partition.prepare()
        self._save(partition, now)

    def _save(self, partition: Partition, now: float) -> None:
        try:
            partition.checkpoint(now)
        except OSError as e:
            if e.errno in FULL or e.errno in CROWDED:
                partition.saved_at = now
                self._stale[partition] = now + RETRY_S
            else:
                partition.judge(e)

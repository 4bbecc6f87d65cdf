"""A few threads for what blocks in the kernel: fdatasync, fsync of folders, replacing and removing files.

Owns the threads and their queue. Never touches the core: outcomes are posted to the loop. stop() finishes what was handed in.
"""

import queue
import threading
from collections.abc import Callable

from gq_logd.effects import Remove, Sync
from gq_run.disk import Disk
from gq_run.loop import Loop

Done = Callable[[int, OSError | None, OSError | None], None]


class Workers:
    def __init__(self, loop: Loop, disk: Disk, done: Done, failed: Callable[[str, OSError], None], threads: int) -> None:
        self._loop, self._disk, self._done, self._failed = loop, disk, done, failed
        self._queue: queue.SimpleQueue[Sync | Remove | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"disk-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def put(self, effect: Sync | Remove) -> None:
        self._queue.put(effect)

    def stop(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (effect := self._queue.get()) is not None:
            if isinstance(effect, Sync):
                self._sync(effect)
            else:
                self._remove(effect)

    def _sync(self, effect: Sync) -> None:
        error, write_error = effect.carry_out(self._disk)
        self._loop.post(lambda: self._done(effect.job, error, write_error))

    def _remove(self, effect: Remove) -> None:
        try:
            self._disk.remove_tree(effect.path)
        except NotADirectoryError:
            self._disk.remove(effect.path)
        except OSError as e:
            error = e
            self._loop.post(lambda: self._failed(effect.path, error))

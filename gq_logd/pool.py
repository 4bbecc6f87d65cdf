"""Open files, few at a time: a log has many segments and the process few descriptors.

Owns every open File of the logs. A file is opened when somebody asks and closed when `limit` is passed, the least recently used
first, but never while it is pinned (a sync is running on it, or written bytes wait for one: an error of the kernel's
write-back is only told to descriptors that were open then).
"""

from collections import OrderedDict

from gq_run.disk import Disk, File


class FilePool:
    def __init__(self, disk: Disk, limit: int) -> None:
        self.disk = disk
        self._limit = limit
        self._files: OrderedDict[str, File] = OrderedDict()
        self._pins: dict[str, int] = {}
        self._doomed: dict[str, File] = {}   # forgotten while pinned

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file; valid until the next call. OSError as Disk.open."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self.disk.open(path, create=create)
        self._files[path] = file
        if len(self._files) > self._limit:
            self._shrink(path)
        return file

    def pin(self, path: str) -> None:
        self._pins[path] = self._pins.get(path, 0) + 1

    def unpin(self, path: str) -> None:
        left = self._pins.get(path, 0) - 1
        if left > 0:
            self._pins[path] = left
        else:
            self._pins.pop(path, None)
            file = self._doomed.pop(path, None)
            if file:
                file.close()

    def forget(self, path: str) -> None:
        """The file is about to be removed or replaced: close it, as soon as it is not pinned."""
        file = self._files.pop(path, None)
        if file and path in self._pins:
            self._doomed[path] = file
        elif file:
            file.close()

    def close(self) -> None:
        for file in [*self._files.values(), *self._doomed.values()]:
            file.close()
        self._files.clear()
        self._doomed.clear()
        self._pins.clear()

    def _shrink(self, keep: str) -> None:
        victims = (path for path in self._files if path not in self._pins and path != keep)
        victim = next(victims, None)
        if victim:
            self._files.pop(victim).close()

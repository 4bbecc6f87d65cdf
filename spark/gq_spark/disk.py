"""The files a reader opens, and what it has read of them: `opened` and `bytes_read` are for tests and the benchmark to see.

Reads, never maps: a file that is cut while it is mapped would kill the process, and data directories may be mounted from afar.
"""

import os
from typing import Final, NamedTuple

LOG_SUFFIX: Final = ".log"


class Entry(NamedTuple):
    """A file or folder; `size` is 0 for a folder."""

    name: str
    folder: bool
    size: int


class Disk:
    def __init__(self) -> None:
        self.opened: list[str] = []
        self.bytes_read = 0

    def __reduce__(self) -> tuple[type["Disk"], tuple[()]]:
        """It goes to executors as new: what planning opened is none of theirs."""
        return Disk, ()

    def list_dir(self, path: str) -> list[Entry]:
        """Sorted by name; [] when it is not there, or no folder."""
        found = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    try:
                        found.append(Entry(entry.name, entry.is_dir(), entry.stat().st_size))
                    except FileNotFoundError:
                        continue            # retention was quicker
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def read(self, path: str) -> bytes:
        """A small file whole; b"" when it is not there, or a folder."""
        try:
            with open(path, "rb") as file:
                data = file.read()
        except (FileNotFoundError, IsADirectoryError):
            return b""
        self._note(path, len(data))
        return data

    def size(self, path: str) -> int:
        """0 when it is not there."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0

    def modified(self, path: str) -> int:
        """When, in nanoseconds; 0 when it is not there."""
        try:
            return os.stat(path).st_mtime_ns
        except FileNotFoundError:
            return 0

    def open(self, path: str) -> "File":
        """FileNotFoundError."""
        file = File(self, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._note(path, 0)
        return file

    def open_if_there(self, path: str) -> "File":
        """What is not there is empty."""
        try:
            return self.open(path)
        except FileNotFoundError:
            return File(self, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _note(self, path: str, size: int) -> None:
        self.opened.append(path)
        self.bytes_read += size

    @property
    def logs_opened(self) -> int:
        """How many segments, each counted once."""
        return len({path for path in self.opened if path.endswith(LOG_SUFFIX)})


class File:
    """An open file, to be used with `with`. `fd` is for codec.gather: count what that reads with `note`."""

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk, self.fd = disk, fd

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def note(self, size: int) -> None:
        self._disk.bytes_read += size

    def read_into(self, room: bytearray, position: int, size: int) -> memoryview:
        """At most `size` bytes from `position`, fewer at the file's end only. Good until `room` is read into again."""
        view, have = memoryview(room)[:size], 0
        while have < size and (got := os.preadv(self.fd, [view[have:]], position + have)):
            have += got
        self.note(have)
        return view[:have]

"""Files and folders, as the logs need them: the one place that touches them, so that a fake can stand in.

Owns nothing but open files. Never decides: an OSError goes to the caller as it came (ENOSPC, EIO ... are its to judge).
Cores take a Disk as an argument. The simulation's fake has the same methods and may, on a simulated power loss, drop or tear
whatever was not synced: bytes appended since the last File.sync(), and names made or changed since the last sync_dir().

Invariants a fake has to keep as well:
- append() writes at `size`, whatever lies behind it in the file; `size` grows only when all of it is written. After an
  OSError the file may be longer than `size`: truncate(size) makes it right again.
- fileno() is a real descriptor that os.pread works on (codec.gather reads through it); a fake can use os.memfd_create.
- sync() may run on another thread than append(); it covers what was appended before it began. Nobody closes a File meanwhile.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from typing import Final

Bytes = bytes | bytearray | memoryview
IOV_MAX: Final = 1024            # Linux; POSIX promises 16, sysconf says which


class File:
    """An open file that grows at its end."""

    __slots__ = ("_fd", "path", "size")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def fileno(self) -> int:
        return self._fd

    def append(self, buffers: Sequence[Bytes]) -> None:
        """Write all of them at `size`. On OSError an unknown part of them lies behind `size`."""
        position = self.size
        for start in range(0, len(buffers), IOV_MAX):
            position = self._write(list(buffers[start:start + IOV_MAX]), position)
        self.size = position

    def _write(self, buffers: list[Bytes], position: int) -> int:
        while buffers:
            written = os.pwritev(self._fd, buffers, position)
            if written == 0 and any(len(b) for b in buffers):
                raise OSError(errno.EIO, "wrote nothing", self.path)
            position += written
            buffers = _rest(buffers, written)
        return position

    def pread(self, position: int, length: int) -> bytes:
        """`length` bytes from `position`, fewer only at the end of the file."""
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:
            data = os.pread(self._fd, length - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        """Cut to `size`; what comes next is appended there."""
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        """Data and size are on the medium afterwards."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _rest(buffers: list[Bytes], written: int) -> list[Bytes]:
    """What a write of `written` bytes has left over."""
    for i, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[i + 1:]]
        written -= len(buffer)
    return []


class Disk:
    """The real one."""

    def open(self, path: str, *, create: bool = False) -> File:
        """For reading and appending; FileNotFoundError unless `create`. sync_dir() makes a new name last."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return File(path, os.open(path, flags, 0o640))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as f:
            return f.read()

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replace `path` by `data`, whole or not at all. Not durable: a power loss may bring the old one back, or an empty one."""
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view):]
            if durable:
                os.fsync(fd)
        except OSError:
            self.remove(temporary)
            raise
        finally:
            os.close(fd)
        os.replace(temporary, path)
        if durable:
            self.sync_dir(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """No error when it is not there."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        """A folder and all in it; no error when it is not there."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass

    def list_dir(self, path: str) -> list[str]:
        """Names, sorted; empty when there is no such folder."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, mode=0o750, exist_ok=True)

    def sync_dir(self, path: str) -> None:
        """Names made, renamed or removed in the folder last from here on."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        """FileNotFoundError when it is not there."""
        return os.stat(path).st_size

    def free_bytes(self, path: str) -> int:
        """What an unprivileged process may still write on the file system of `path`."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        """The size of the file system of `path`."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize

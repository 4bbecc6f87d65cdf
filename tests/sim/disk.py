"""A disk that forgets, with the interface of gq_run.disk: bytes appended since the last sync and names changed since the last
sync_dir may be gone, or torn, after power_loss(). Killing a process alone loses nothing.

Files live in memfds, because codec.gather reads descriptors. What a power loss leaves of a file: at least what was synced; of the
rest a prefix of any length, whose last bytes may be garbage. Of each folder's name changes: those before the last sync_dir,
and a prefix of the others.
"""

import os
import random
from collections.abc import Callable, Sequence
from itertools import count

Tree = tuple[dict[str, "Inode"], set[str]]
Operation = Callable[[dict[str, "Inode"], set[str]], None]


class Inode:
    def __init__(self) -> None:
        self.fd = os.memfd_create("sim")
        self.synced = 0
        self.size = 0

    def close(self) -> None:
        os.close(self.fd)


class FakeFile:
    def __init__(self, disk: "FakeDisk", path: str, inode: Inode) -> None:
        self._disk, self.path, self.inode = disk, path, inode
        self.size = os.fstat(inode.fd).st_size

    def fileno(self) -> int:
        return self.inode.fd

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        data = b"".join(bytes(buffer) for buffer in buffers)
        os.pwrite(self.inode.fd, data, self.size)
        self.inode.synced = min(self.inode.synced, self.size)
        self.size += len(data)

    def pread(self, position: int, length: int) -> bytes:
        return os.pread(self.inode.fd, length, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.inode.fd, size)
        self.inode.synced = min(self.inode.synced, size)
        self.size = size

    def sync(self) -> None:
        self.inode.synced = os.fstat(self.inode.fd).st_size

    def close(self) -> None:
        pass


class FakeDisk:
    """`forge`: garbage that a power loss leaves carries valid CRCs, as if nobody checked them (a canary)."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self._live: Tree = ({}, {"/"})
        self._durable: Tree = ({}, {"/"})
        self._pending: dict[str, list[Operation]] = {}
        self._boots = count(1)
        self._boot = next(self._boots)
        self._inodes: list[Inode] = []
        self.garble: Callable[[bytes], bytes] | None = None

    # -- names ----------------------------------------------------------------------------------

    def _do(self, folder: str, operation: Operation) -> None:
        operation(*self._live)
        self._pending.setdefault(folder, []).append(operation)

    def sync_dir(self, path: str) -> None:
        for operation in self._pending.pop(path, ()):
            operation(*self._durable)

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        files, folders = self._live
        inode = files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(path)
            if os.path.dirname(path) not in folders:
                raise FileNotFoundError(path)
            inode = self._inode()
            self._do(os.path.dirname(path), _link(path, inode))
        return FakeFile(self, path, inode)

    def _inode(self) -> Inode:
        inode = Inode()
        self._inodes.append(inode)
        return inode

    def read(self, path: str) -> bytes:
        inode = self._live[0].get(path)
        if inode is None:
            raise FileNotFoundError(path)
        return os.pread(inode.fd, os.fstat(inode.fd).st_size, 0)

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        inode = self._inode()
        os.pwrite(inode.fd, data, 0)
        self._do(os.path.dirname(path), _link(path, inode))
        if durable:
            inode.synced = len(data)
            self.sync_dir(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        if old not in self._live[0] and old not in self._live[1]:
            raise FileNotFoundError(old)
        for folder in [folder for folder in self._pending if folder == old or folder.startswith(old + "/")]:
            del self._pending[folder]        # they go with the folder, not with its name, which the next one may get
        self._do(os.path.dirname(new), _rename(old, new))

    def remove(self, path: str) -> None:
        self._do(os.path.dirname(path), lambda files, folders: files.pop(path, None) and None)

    def remove_tree(self, path: str) -> None:
        if path in self._live[0]:
            raise NotADirectoryError(path)
        self._do(os.path.dirname(path), _remove_tree(path))

    def list_dir(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        names = {name[len(prefix):].split("/")[0] for tree in self._live for name in tree if name.startswith(prefix)}
        return sorted(names - {""})

    def make_dirs(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for n in range(1, len(parts) + 1):
            folder = "/" + "/".join(parts[:n])
            if folder not in self._live[1]:
                self._do(os.path.dirname(folder), lambda files, folders, folder=folder: folders.add(folder))  # type: ignore[misc]

    def exists(self, path: str) -> bool:
        return path in self._live[0] or path in self._live[1]

    def size(self, path: str) -> int:
        inode = self._live[0].get(path)
        if inode is None:
            raise FileNotFoundError(path)
        return os.fstat(inode.fd).st_size

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def total_bytes(self, path: str) -> int:
        return 1 << 41

    def boot_id(self) -> str:
        return f"boot-{self._boot}"

    # -- the end of a life -------------------------------------------------------------------------

    def power_loss(self) -> None:
        self._boot = next(self._boots)
        files, folders = self._durable
        for operations in self._pending.values():
            for operation in operations[:self._random.randint(0, len(operations))]:
                operation(files, folders)
        self._pending.clear()
        for path in [path for path in files if os.path.dirname(path) not in folders]:
            del files[path]
        for inode in dict.fromkeys(files.values()):
            self._tear(inode)
        self._live = dict(files), set(folders)
        kept = set(files.values())
        for inode in [inode for inode in self._inodes if inode not in kept]:
            inode.close()
            self._inodes.remove(inode)

    def _tear(self, inode: Inode) -> None:
        size = os.fstat(inode.fd).st_size
        if size > inode.synced:
            kept = self._random.randint(inode.synced, size)
            os.ftruncate(inode.fd, kept)
            if kept > inode.synced and self._random.random() < 0.5:
                low = self._random.randint(max(inode.synced, kept - 4_096), kept - 1)
                tail = os.pread(inode.fd, kept - low, low)
                os.pwrite(inode.fd, self.garble(tail) if self.garble else self._random.randbytes(len(tail)), low)
        inode.synced = os.fstat(inode.fd).st_size

    def close(self) -> None:
        for inode in self._inodes:
            inode.close()
        self._inodes.clear()


def _link(path: str, inode: Inode) -> Operation:
    def operation(files: dict[str, Inode], folders: set[str]) -> None:
        files[path] = inode
    return operation


def _rename(old: str, new: str) -> Operation:
    def operation(files: dict[str, Inode], folders: set[str]) -> None:
        if old in files:
            files[new] = files.pop(old)
            return
        for path in [path for path in files if path.startswith(old + "/")]:
            files[new + path[len(old):]] = files.pop(path)
        for folder in [folder for folder in folders if folder == old or folder.startswith(old + "/")]:
            folders.remove(folder)
            folders.add(new + folder[len(old):])
    return operation


def _remove_tree(path: str) -> Operation:
    def operation(files: dict[str, Inode], folders: set[str]) -> None:
        for file in [file for file in files if file.startswith(path + "/")]:
            del files[file]
        for folder in [folder for folder in folders if folder == path or folder.startswith(path + "/")]:
            folders.remove(folder)
    return operation

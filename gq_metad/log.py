"""metad's own log and snapshot in `{data}/meta/`: what is acknowledged is in one of them.

    log       8 bytes "GQMETA" 0x00 0x01, then frames; big-endian
        at  size
        0   4    payload length
        4   4    CRC-32C over bytes 0..3, then 8..end
        8   8    term, 0 while there is one voter
        16  8    index of the payload's first entry; consecutive, from 1
        24       payload: msgpack array of entries (entries.py)
    snapshot  8 bytes "GQMETA" 0x01 0x01, then one frame: index is that of the last entry it contains

One append is one frame and one sync, so a power loss tears at most the last frame. A bad frame with a good one behind it is damage
and never cut: opening fails and names the place. A snapshot replaces `snapshot` by rename, then `log` by an empty one; entries
that are in both are read from the snapshot. So beside a snapshot there is always a log: one that is gone took entries with it, and
opening fails. Another version byte is refused.
"""

import errno
import os
import struct
from dataclasses import dataclass
from typing import Final

from gq_proto.codec import crc32c
from gq_proto.errors import Corrupt, DiskFull
from gq_run.disk import Disk, File

LOG_MAGIC: Final = b"GQMETA\x00\x01"
SNAPSHOT_MAGIC: Final = b"GQMETA\x01\x01"
_HEAD: Final = struct.Struct(">IIQQ")
_COUNT_MAX: Final = 1_000_000      # entries that one frame may be ahead: what a search for good frames believes
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Frame:
    term: int
    index: int
    payload: bytes
    end: int                       # position behind it


@dataclass(frozen=True)
class Recovered:
    """`snapshot` is "" of bytes when there is none; `frames` follow on it, oldest first; `cut` bytes were a torn tail."""

    snapshot: bytes
    snapshot_index: int
    frames: list[Frame]
    cut: int


class MetaLog:
    """open() first. `index` is that of the last entry on the disk."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk, self._folder = disk, folder
        self._path = os.path.join(folder, "log")
        self._snapshot_path = os.path.join(folder, "snapshot")
        self._file: File | None = None
        self.term = 0
        self.index = 0

    @property
    def size(self) -> int:
        return self._file.size if self._file else 0

    def open(self) -> Recovered:
        """What was acknowledged. Corrupt when it can't be read."""
        self._disk.make_dirs(self._folder)
        snapshot, snapshot_index = self._read_snapshot()
        self._file = self._open_file(fresh=not snapshot_index)
        data = self._file.pread(0, self._file.size)
        frames, end = self._scan(data)
        if end < len(data):
            self._file.truncate(end)
            self._file.sync()
        later = [f for f in frames if f.index > snapshot_index]
        if later and later[0].index != snapshot_index + 1:
            raise Corrupt(f"{self._path} begins at entry {later[0].index}, but the snapshot ends at {snapshot_index}")
        self.index = snapshot_index
        return Recovered(snapshot, snapshot_index, later, len(data) - end)

    def took(self, count: int) -> None:
        """While recovering: a frame held so many entries."""
        self.index += count

    def append(self, payload: bytes, count: int) -> None:
        """`count` entries, on the disk when it returns. DiskFull leaves the log as it was; any other OSError is the end."""
        assert count > 0
        if self._file is None:
            self._file = self._disk.open(self._path)
        size = self._file.size
        try:
            self._file.append([frame(self.term, self.index + 1, payload)])
        except OSError as e:
            self._file.truncate(size)
            if e.errno not in _FULL:
                raise
            raise DiskFull("the disk is full: free some space, then try again") from None
        self._file.sync()
        self.index += count

    def snapshot(self, payload: bytes) -> None:
        """`payload` stands for everything up to `index`. An OSError leaves what was."""
        self._disk.write_atomic(self._snapshot_path, SNAPSHOT_MAGIC + frame(self.term, self.index, payload))
        self.close()                           # whatever goes wrong now, what is at the path counts
        try:
            self._disk.write_atomic(self._path, LOG_MAGIC)
        finally:
            self._file = self._disk.open(self._path)

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def _open_file(self, fresh: bool) -> File:
        if not fresh and not (self._disk.exists(self._path) and self._disk.size(self._path) >= len(LOG_MAGIC)):
            raise Corrupt(f"{self._path} is gone or empty, but there is a snapshot: restore both from one copy of this node")
        file = self._disk.open(self._path, create=True)
        if file.size < len(LOG_MAGIC):         # new, or torn when it was
            file.truncate(0)
            file.append([LOG_MAGIC])
            file.sync()
            self._disk.sync_dir(self._folder)
        return file

    def _read_snapshot(self) -> tuple[bytes, int]:
        if not self._disk.exists(self._snapshot_path):
            return b"", 0
        data = self._disk.read(self._snapshot_path)
        found = read_frame(data, len(SNAPSHOT_MAGIC)) if data.startswith(SNAPSHOT_MAGIC) else None
        if found is None or found.end != len(data):
            raise Corrupt(f"{self._snapshot_path} is damaged or of another version: restore it from a copy of this node")
        self.term = found.term
        return found.payload, found.index

    def _scan(self, data: bytes) -> tuple[list[Frame], int]:
        """The good frames, and where they end; Corrupt when more of them follow a bad one."""
        if not data.startswith(LOG_MAGIC):
            raise Corrupt(f"{self._path} is no metadata log of this version")
        frames: list[Frame] = []
        end = len(LOG_MAGIC)
        while found := read_frame(data, end):
            if frames and found.index <= frames[-1].index:
                break
            frames.append(found)
            end = found.end
        after = frames[-1].index if frames else 0
        for position in range(end + 1, len(data) - _HEAD.size + 1):
            behind = read_frame(data, position)
            if behind and after < behind.index <= after + _COUNT_MAX:
                raise Corrupt(f"{self._path} is damaged at {end}, good entries follow at {position}: restore it from a copy")
        if frames:
            self.term = frames[-1].term
        return frames, end


def frame(term: int, index: int, payload: bytes) -> bytes:
    head = _HEAD.pack(len(payload), 0, term, index)
    crc = crc32c(payload, crc32c(head[8:], crc32c(head[:4])))
    return _HEAD.pack(len(payload), crc, term, index) + payload


def read_frame(data: bytes, position: int) -> Frame | None:
    """The frame at `position` if there is a whole and good one."""
    if position + _HEAD.size > len(data):
        return None
    length, crc, term, index = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    if index == 0 or start + length > len(data):
        return None
    payload = data[start:start + length]
    head = data[position:start]
    if crc32c(payload, crc32c(head[8:], crc32c(head[:4]))) != crc:
        return None
    return Frame(term, index, payload, start + length)

"""What all partitions of a process share to reach their files: the disk, open files, cached entries of sealed segments."""

from gq_logd.derived import PayloadCache
from gq_logd.pool import FilePool
from gq_run.disk import Disk


class Files:
    __slots__ = ("disk", "payloads", "pool")

    def __init__(self, disk: Disk, open_files_max: int) -> None:
        self.disk = disk
        self.pool = FilePool(disk, open_files_max)
        self.payloads = PayloadCache()

    def read(self, path: str) -> bytes:
        """A whole file; b"" when it is not there."""
        try:
            return self.disk.read(path)
        except FileNotFoundError:
            return b""

"""The delay index on disk: delays/{topic}/{partition}.index, and .fresh beside it while it is written anew.

Owns paths and nothing else: what is in them is `index`'s. Only a cache, so nothing is synced; a file that cannot be read is none.
"""

from collections.abc import Iterable

from gq_delayd.effects import IndexReplace, IndexWrite
from gq_run.disk import Disk


class Files:
    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk, self._folder = disk, f"{data_dir}/delays"

    def read(self, topic: str, partition: int) -> bytes:
        """b"" when there is none."""
        try:
            return self._disk.read(self._path(topic, partition))
        except OSError:
            return b""

    def write(self, effect: IndexWrite) -> None:
        """OSError: what is in the file is right as far as it was written."""
        self._disk.make_dirs(f"{self._folder}/{effect.topic}")
        file = self._disk.open(self._path(effect.topic, effect.key[1], effect.fresh), create=True)
        try:
            if file.size != effect.position:
                file.truncate(effect.position)
            file.append([effect.data])
        finally:
            file.close()

    def replace(self, effect: IndexReplace) -> None:
        self._disk.rename(self._path(effect.topic, effect.key[1], True), self._path(effect.topic, effect.key[1]))

    def remove(self, topic: str) -> None:
        self._disk.remove_tree(f"{self._folder}/{topic}")

    def tidy(self, topics: Iterable[str]) -> None:
        """Remove those of all other topics."""
        for name in set(self._disk.list_dir(self._folder)) - set(topics):
            self.remove(name)

    def _path(self, topic: str, partition: int, fresh: bool = False) -> str:
        return f"{self._folder}/{topic}/{partition}.{'fresh' if fresh else 'index'}"

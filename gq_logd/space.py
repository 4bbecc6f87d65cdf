"""Free disk space, and whether it suffices for publishes: below the reserve only acks, markers and internal topics go on.

Asked at most every CHECK_S while there is enough, and every time while there is not. On a small file system the reserve is a
tenth of it.
"""

from typing import Final

from gq_logd.config import RESERVE_SHARE_MAX
from gq_run.disk import Disk

CHECK_S: Final = 0.25


class Space:
    def __init__(self, disk: Disk, path: str, reserve_bytes: int) -> None:
        self._disk, self._path, self._wanted = disk, path, reserve_bytes
        self._reserve = -1               # of this file system; known when first asked
        self._checked = -1e9
        self.short = False

    def may_publish(self, now: float) -> bool:
        if self.short or now - self._checked >= CHECK_S:
            self._checked = now
            try:
                if self._reserve < 0:
                    self._reserve = min(self._wanted, int(self._disk.total_bytes(self._path) * RESERVE_SHARE_MAX))
                self.short = self._disk.free_bytes(self._path) < self._reserve
            except OSError:
                self.short = False       # a write will tell
        return not self.short

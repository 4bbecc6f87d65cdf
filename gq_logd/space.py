"""Free disk space, and whether it suffices for publishes: below the reserve only acks, markers and internal topics go on.

The file system is asked once a turn when it is nearly full, a few times a second when there is plenty. Within a turn what publishes
take is counted. On a small file system the reserve is a tenth of it.
"""

from typing import Final

from gq_logd.config import RESERVE_SHARE_MAX
from gq_run.disk import Disk

CHECK_S: Final = 0.25
PLENTY_BYTES: Final = 4 << 30    # more than can be written between two looks


class Space:
    def __init__(self, disk: Disk, path: str, reserve_bytes: int) -> None:
        self._disk, self._path, self._wanted = disk, path, reserve_bytes
        self._reserve = -1               # of this file system; known when first asked
        self._checked = -1e9
        self._left = 0                   # for publishes, until the next look

    def look(self, now: float) -> None:
        """Before the writes of a turn."""
        if self._left > PLENTY_BYTES and now - self._checked < CHECK_S:
            return
        self._checked = now
        try:
            if self._reserve < 0:
                self._reserve = min(self._wanted, int(self._disk.total_bytes(self._path) * RESERVE_SHARE_MAX))
            self._left = self._disk.free_bytes(self._path) - self._reserve
        except OSError:
            self._left = PLENTY_BYTES    # a write will tell

    def take(self, size: int) -> bool:
        """A publish wants to write so much. False: it must not."""
        if self._left < size:
            return False
        self._left -= size
        return True

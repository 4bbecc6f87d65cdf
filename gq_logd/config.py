"""What an operator may choose about the logs, resolved. The options module reads it from file and environment."""

from dataclasses import dataclass
from typing import Literal

from gq_proto import limits

FsyncMode = Literal["none", "interval", "every"]
FSYNC_MODES: tuple[FsyncMode, ...] = ("none", "interval", "every")
RESERVE_SHARE_MAX = 0.1      # of a file system that is small


@dataclass(frozen=True)
class LogConfig:
    fsync: FsyncMode = "interval"
    fsync_interval_s: float = 1.0
    checkpoint_interval_s: float = 1.0
    reserve_bytes: int = limits.RESERVE_BYTES
    index_interval_bytes: int = limits.INDEX_INTERVAL_BYTES
    time_interval_us: int = limits.TIME_INDEX_INTERVAL_MS * 1000
    open_files_max: int = 512
    syncs_max: int = 4           # at the same time


assert LogConfig().fsync in FSYNC_MODES

"""What only gq_logd reads from the config, and how its LogConfig comes out of it."""

import resource
from typing import Final

from gq_logd.config import FSYNC_MODES, LogConfig
from gq_run.options import INT, Config, Option

OPTIONS: Final = (
    Option("logd.openFiles", 4096, INT, "segment files kept open at most; less where the system's limit is lower", 64, 1_000_000),
    Option("logd.syncThreads", 4, INT, "partitions that are forced to the disk at the same time", 1, 64),
)
FILES_LEFT: Final = 256          # descriptors for sockets and the rest


def log_config(config: Config) -> LogConfig:
    mode = config.text("storage.fsync.mode")
    fsync = next(known for known in FSYNC_MODES if known == mode)
    return LogConfig(
        fsync=fsync,
        fsync_interval_s=config.number("storage.fsync.intervalMs") / 1000,
        reserve_bytes=config.number("storage.reserveBytes"),
        index_interval_bytes=config.number("storage.indexIntervalBytes"),
        time_interval_us=config.number("storage.timeIndexIntervalMs") * 1000,
        open_files_max=min(config.number("logd.openFiles"), max(raise_file_limit() - FILES_LEFT, 64)),
        syncs_max=config.number("logd.syncThreads"))


def raise_file_limit() -> int:
    """The soft limit of open files as high as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1_000_000

"""groupd's own options, and the core's settings made of them."""

import re
from typing import Final

from gq_groupd.core import Settings
from gq_proto import limits
from gq_proto.errors import BadConfig
from gq_run.options import BYTES, DURATION, INT, Config, Option

DAY_MS: Final = 86_400_000

OPTIONS: Final = (
    Option("groupd.unnamedLease", limits.UNNAMED_LEASE_MS, DURATION,
           "a lease that its consumer's heartbeats do not name for this long returns", 200, 600_000),
    Option("groupd.rebalanceGrace", limits.REBALANCE_GRACE_MS, DURATION,
           "how long a partition's old owner may take to give back what it has not started", 0, 60_000),
    Option("groupd.groupExpiry", limits.GROUP_EXPIRY_MS, DURATION, "a group without members is forgotten after this long",
           1_000, 3650 * DAY_MS),
    Option("groupd.snapshotRecords", 50_000, INT, "the journal is cut when it holds more records than this", 100, 100_000_000),
    Option("groupd.snapshotBytes", 64 * limits.MIB, BYTES, "... or more bytes than this", limits.MIB),
)


def weights_of(text: str) -> tuple[int, ...]:
    """Of "50/25/15/7/3"; BadConfig for anything else."""
    weights = text.split("/")
    if len(weights) != limits.PRIORITIES or not all(re.fullmatch("[0-9]{1,4}", weight) and int(weight) for weight in weights):
        raise BadConfig(f"priority.weights: {text!r:.60} is not {limits.PRIORITIES} numbers of 1 to 9999 like 50/25/15/7/3")
    return tuple(map(int, weights))


def settings_of(config: Config) -> Settings:
    """BadConfig when two options contradict each other."""
    heartbeat_ms, unnamed_ms = config.number("consumer.heartbeatInterval"), config.number("groupd.unnamedLease")
    if unnamed_ms < 2 * heartbeat_ms:
        raise BadConfig("groupd.unnamedLease: use at least twice consumer.heartbeatInterval, or each late heartbeat loses leases")
    return Settings(
        max_in_flight=config.number("consumer.maxInFlight"),
        unnamed_lease_ms=unnamed_ms,
        rebalance_grace_ms=config.number("groupd.rebalanceGrace"),
        group_expiry_ms=config.number("groupd.groupExpiry"),
        heartbeat_ms=heartbeat_ms,
        session_ms=config.number("consumer.sessionTimeout"),
        weights=weights_of(config.text("priority.weights")),
        starvation_ms=config.number("priority.starvationTimeout"),
        snapshot_records=config.number("groupd.snapshotRecords"),
        snapshot_bytes=config.number("groupd.snapshotBytes"),
    )

"""What options change of a core. A topic's own delivery settings come with its metadata."""

from dataclasses import dataclass

from gq_proto import limits


@dataclass(frozen=True, slots=True)
class Settings:
    max_in_flight: int = limits.MAX_IN_FLIGHT
    unnamed_lease_ms: int = limits.UNNAMED_LEASE_MS
    rebalance_grace_ms: int = limits.REBALANCE_GRACE_MS
    group_expiry_ms: int = limits.GROUP_EXPIRY_MS
    heartbeat_ms: int = limits.HEARTBEAT_MS
    session_ms: int = limits.SESSION_MS     # of members that ask for none
    weights: tuple[int, ...] = limits.LANE_WEIGHTS
    starvation_ms: int = limits.STARVATION_MS
    snapshot_records: int = 50_000          # the journal is trimmed when it holds more records
    snapshot_bytes: int = 64 * limits.MIB   # ... or more bytes than this

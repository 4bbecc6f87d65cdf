"""Every bound of the formats and the protocol, once. Fixed ones are marked; the others are defaults that options change.

Relations between them are asserted at the end, at import: a change that breaks one does not start.
Sizes are bytes, times are what their suffix says.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Names (fixed)
NAME_MAX: Final = 196

# Records (fixed, but for the value)
RECORD_HEADER: Final = 34
KEY_MAX: Final = 65_534
VALUE_MAX: Final = 1 * MIB              # default; a topic may raise it to VALUE_CEILING
VALUE_CEILING: Final = 64 * MIB
USER_HEADERS_MAX: Final = 61_440        # encoded
SYSTEM_HEADERS_MAX: Final = 4_096       # what the system may add to them
HEADERS_MAX: Final = 65_535             # a u16 on disk
HEADER_COUNT_MAX: Final = 65_535
PRIORITIES: Final = 5
PRIORITY_DEFAULT: Final = 2
DELAY_MS_MAX: Final = 671_088_640       # what four levels of the wheel hold
TIMESTAMP_SKEW_US_MAX: Final = 3600 * 1_000_000   # timestampType=create: refused beyond

# Batches and frames
BATCH_MESSAGES_MAX: Final = 65_536
BATCH_BYTES_MAX: Final = 16 * MIB       # one frame; a single larger record travels alone
FRAME_MAX: Final = VALUE_CEILING + MIB
REQUEST_FRAMES_MAX: Final = 1_024       # partitions in one Produce or Fetch
PRODUCER_WINDOW: Final = 5              # batches remembered per (producer, partition) for deduplication
IN_FLIGHT_BATCHES_MAX: Final = 5        # batches a producer keeps unanswered per partition
PRODUCERS_PER_PARTITION_MAX: Final = 10_000   # the least recently used is forgotten

# Log
SEGMENT_BYTES: Final = 64 * MIB
SEGMENT_BYTES_MIN: Final = 64 * KIB
SEGMENT_BYTES_MAX: Final = 1024 * MIB   # positions and relative offsets are u32
INDEX_INTERVAL_BYTES: Final = 4_096
TIME_INDEX_INTERVAL_MS: Final = 1_000
FETCH_BYTES_DEFAULT: Final = 1 * MIB
FETCH_BYTES_MAX: Final = 64 * MIB
SPAN_BYTES_MAX: Final = 1 * MIB         # one read of a gather
RUNS_MAX: Final = 4_096                 # runs in one reply
RESERVE_BYTES: Final = 256 * MIB        # free space that user publishes leave alone
PARTITIONS_MAX: Final = 1_000           # of one topic: made in one go, about half a millisecond each

# Metadata
TOPICS_MAX: Final = 10_000
PARTITIONS_TOTAL_MAX: Final = 100_000
DAEMONS_MAX: Final = 1_000
TOMBSTONES_MAX: Final = 10_000          # deleted topics that metad still names; who was away for longer gets everything anew
PRODUCER_EPOCHS_MAX: Final = 100_000    # producer ids beyond their first epoch; the longest unused is forgotten, and so fenced
PRODUCER_IDS_BLOCK: Final = 1_000       # reserved at once; what is left of it is lost at a restart
KEYS_MAX: Final = 10_000
KEY_SCOPES_MAX: Final = 100               # of one key
METADATA_WAITERS_MAX: Final = 10_000    # long polls and unconfirmed topic changes

# Groups
GROUPS_PARTITIONS: Final = 16           # of __groups, fixed for ever
SESSION_MS: Final = 30_000
HEARTBEAT_MS: Final = 3_000
UNNAMED_LEASE_MS: Final = 6_000         # a lease its holder no longer names returns
VISIBILITY_MS: Final = 30_000
VISIBILITY_MS_MAX: Final = 12 * 3600 * 1000
POLL_MESSAGES: Final = 500
MAX_IN_FLIGHT: Final = 1_000
BUFFERED_RUNS: Final = 4_096            # per (group, partition, lane), 16 bytes each, up to twice that while it drains
MAX_RETRIES: Final = 3
BACKOFF_BASE_MS: Final = 1_000
BACKOFF_MAX_MS: Final = 60_000
REBALANCE_GRACE_MS: Final = 500
GROUP_EXPIRY_MS: Final = 7 * 24 * 3600 * 1000
GROUP_MEMBERS_MAX: Final = 10_000
EXPORT_INTERVAL_MS: Final = 5_000      # JSON exports of a changed group
STARVATION_MS: Final = 30_000
LANE_WEIGHTS: Final = (50, 25, 15, 7, 3)

# Delays
DELAYED_PAGE: Final = 500               # messages in one answer of a listing
DELAYED_PAGE_MAX: Final = 10_000
DELAYED_RANGES_MAX: Final = 10_000      # ranges in one request to cancel

# Sockets
SOCKET_PATH_MAX: Final = 107            # sun_path
BACKLOG: Final = 1_024                  # connections that arrive at once; one more waits a second for its next try
HIGH_WATER_MARK: Final = 1_000          # messages a socket queues per peer
GUARDED_HIGH_WATER_MARK: Final = 100    # messages taken in advance from a peer whose key was not seen yet
UNANSWERED_MAX: Final = 500             # requests on one connection without a reply, long polls aside, before more are sent
LINGER_MS: Final = 1_000
UNREAD_BYTES_MAX: Final = 64 * MIB      # large replies a peer leaves unread; one more may be as large as FETCH_BYTES_MAX
REQUEST_DEADLINE_MS: Final = 30_000
LONG_POLL_MS_MAX: Final = 60_000

assert FRAME_MAX >= RECORD_HEADER + KEY_MAX + VALUE_CEILING + HEADERS_MAX
assert USER_HEADERS_MAX + SYSTEM_HEADERS_MAX <= HEADERS_MAX + 1
assert IN_FLIGHT_BATCHES_MAX <= PRODUCER_WINDOW
assert BATCH_BYTES_MAX >= RECORD_HEADER + KEY_MAX + VALUE_MAX + HEADERS_MAX
assert SEGMENT_BYTES_MIN <= SEGMENT_BYTES <= SEGMENT_BYTES_MAX < 2**32 - FRAME_MAX
assert SESSION_MS > 3 * HEARTBEAT_MS
assert VISIBILITY_MS > 3 * HEARTBEAT_MS
assert UNNAMED_LEASE_MS >= 2 * HEARTBEAT_MS
assert UNANSWERED_MAX <= HIGH_WATER_MARK // 2
assert MAX_IN_FLIGHT >= POLL_MESSAGES
assert BUFFERED_RUNS <= RUNS_MAX
assert PRIORITY_DEFAULT < PRIORITIES == len(LANE_WEIGHTS)

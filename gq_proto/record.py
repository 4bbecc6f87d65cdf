"""One record: its layout, its flags, and what is wrong with bytes that are not one.

    at  size  field
     0     2  magic "GQ"
     2     1  version, 1
     3     1  flags
     4     4  crc: CRC-32C over bytes 24..end, then 0..3, then 16..23, then 8..15
     8     8  offset, signed, >= 0; producers send 0, the leader stamps it
    16     8  timestamp, Unix microseconds, 0 <= t < 2**62
    24     1  priority, 0..4
    25     1  codec: low 3 bits the value's compression (0 none, 1 zstd; 2 lz4 and 3 gzip are reserved), the rest 0
    26     2  key length, 0xFFFF = null
    28     4  value length, 0xFFFFFFFF = null
    32     2  headers length, 0 = none
    34        key, value, headers

All numbers are big-endian. The CRC's order lets the leader validate a record and then stamp timestamp and offset from the
saved state: two 8-byte steps, no second pass. A new meaning takes a free flag bit only if old readers may ignore the
record's other bytes; anything else takes a new version. A version or flag that is not known is refused, never guessed.

Owns constants and the words for every violation. Never walks buffers: `codec` does.
"""

import struct
from typing import Final

from gq_proto.errors import BadRecord, GoQueueError, TimestampSkew, TooLarge

MAGIC: Final = b"GQ"
VERSION: Final = 1
HEADER: Final = struct.Struct(">2sBBIqqBBHIH")
HEADER_SIZE: Final = HEADER.size
assert HEADER_SIZE == 34

COMPRESSED: Final = 0x01
TRANSACTIONAL: Final = 0x02
DELAYED: Final = 0x04
CONTROL: Final = 0x08
COMMIT: Final = 0x10        # only with CONTROL
BATCH: Final = 0x20         # first record of an idempotent batch
FLAGS_KNOWN: Final = 0x3F
KIND_FLAGS: Final = 0x1E    # what splits runs: batch and compression do not

CODEC_NONE: Final = 0
CODEC_ZSTD: Final = 1

KEY_NULL: Final = 0xFFFF
VALUE_NULL: Final = 0xFFFF_FFFF
OFFSET_MAX: Final = 2**63 - 2        # what follows is a number of 63 bits too
TIMESTAMP_MAX: Final = 2**62 - 1

FLAG_NAMES: Final = {COMPRESSED: "compressed", TRANSACTIONAL: "transactional", DELAYED: "delayed", CONTROL: "control",
                     COMMIT: "commit", BATCH: "batch"}
PRIORITY_NAMES: Final = ("critical", "high", "normal", "low", "background")

# System headers, in the order in which they stand before all others
SYSTEM_PREFIX: Final = "gq-"
BATCH_HEADER: Final = "gq-batch"            # producer id i64, epoch i16, base sequence i32, count u32
DELIVER_AT_HEADER: Final = "gq-deliver-at"  # Unix microseconds u64
DELAY_HEADER: Final = "gq-delay"            # microseconds u64 after the record's stamped timestamp
BATCH_VALUE: Final = struct.Struct(">qhiI")
DELAY_VALUE: Final = struct.Struct(">Q")
BATCH_ENTRY_SIZE: Final = 2 + len(BATCH_HEADER) + 2 + BATCH_VALUE.size
assert BATCH_ENTRY_SIZE == 30

# What can be wrong with a record. Both codecs report these numbers; WHY has the words.
OK: Final = 0
SHORT: Final = 1
BAD_MAGIC: Final = 2
BAD_VERSION: Final = 3
BAD_FLAGS: Final = 4
BAD_PRIORITY: Final = 5
BAD_CODEC: Final = 6
BAD_LENGTH: Final = 7
BAD_TIMESTAMP: Final = 8
BAD_CRC: Final = 9
BAD_OFFSET: Final = 10
BAD_HEADERS: Final = 11
BAD_ORDER: Final = 12
BAD_BATCH: Final = 13
BAD_DELAY: Final = 14
FORBIDDEN_CONTROL: Final = 15
FORBIDDEN_HEADER: Final = 16
LONG_VALUE: Final = 17
LONG_HEADERS: Final = 18
LONG_BATCH: Final = 19
SKEWED: Final = 20
LONG_DELAY: Final = 21
EMPTY: Final = 22

WHY: Final = (
    "ok",
    "is cut short",
    "does not begin with the magic",
    "has a version this release does not know",
    "has unknown flags or flags that exclude each other",
    "has a priority above 4",
    "has an unknown compression, or one that its flags do not name",
    "has an impossible key, value or headers length",
    "has a timestamp out of range",
    "does not match its CRC",
    "does not have the next offset",
    "has malformed headers",
    "has a system header behind another's place: gq-batch, then gq-deliver-at or gq-delay, then other gq-*, then yours",
    "has a missing or wrong gq-batch header: it belongs on the first record and counts all of them",
    "has a missing or wrong gq-deliver-at or gq-delay header",
    "is a control record: only daemons write those",
    "has a gq- header: those names are the system's",
    "has a value above the topic's limit",
    "has headers above the limit",
    "stands in a batch above the limit of messages or bytes: send smaller batches",
    "has a timestamp more than an hour off the broker's clock",
    "has a delay above the maximum",
    "is missing: the batch is empty",
)
assert len(WHY) == EMPTY + 1

_TOO_LARGE: Final = frozenset((LONG_VALUE, LONG_HEADERS, LONG_BATCH))


def violation(why: int, index: int, position: int) -> GoQueueError:
    """The error for record number `index` of a frame, at byte `position` of it."""
    error = TooLarge if why in _TOO_LARGE else TimestampSkew if why == SKEWED else BadRecord
    return error(f"record {index} at byte {position} {WHY[why]}")


def kind_of(flags: int, priority: int) -> int:
    """The u8 by which runs are split: flags & 0x1E and the priority lane."""
    return ((flags & KIND_FLAGS) << 2) | priority


def kind_flags(kind: int) -> int:
    """The record flags in a run's kind."""
    return (kind >> 2) & KIND_FLAGS


def kind_lane(kind: int) -> int:
    """The priority lane in a run's kind."""
    return kind & 7


def timestamp_of(record: bytes | bytearray | memoryview) -> int:
    """The timestamp of a valid record, or of the first of a batch."""
    return int.from_bytes(record[16:24])


def flag_names(flags: int) -> list[str]:
    """For people: the names of the flags that are set, unknown ones in hex."""
    names = [name for bit, name in FLAG_NAMES.items() if flags & bit]
    rest = flags & ~FLAGS_KNOWN
    return [*names, f"{rest:#x}"] if rest else names

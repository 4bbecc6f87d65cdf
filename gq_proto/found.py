"""What a walk over records found: the result types both codecs share.

A *run* is a maximal range of consecutive offsets of one kind; runs travel flat: [offset, count, kind, offset, count, kind ...].
*Ranges* are flat too: [low, count, low, count ...], sorted, not overlapping. `due` is [offset, due us, ...]. `times` is
[timestamp, offset, ...], points for `.timeindex`: the running maximum of timestamps first reached `timestamp` at `offset`.
`index` is ready to append to `.index`: packed >II (offset - segment base, position).
"""

from collections.abc import Sequence

from msgspec import Struct


class Batch(Struct, frozen=True, gc=False):
    """The gq-batch header of a frame."""

    producer_id: int
    epoch: int
    base_sequence: int
    count: int


class FoundBatch(Struct, frozen=True, gc=False):
    """A gq-batch header met by a scan, with the offset of the record that carries it."""

    offset: int
    producer_id: int
    epoch: int
    base_sequence: int
    count: int


class FoundControl(Struct, frozen=True, gc=False):
    """A control record: `type` as in `control`, `body` still encoded."""

    offset: int
    type: int
    body: bytes


class OpenBatch(Struct, frozen=True, gc=False):
    """An idempotent batch whose last records are not there. Recovery of a torn tail cuts at `position`, for batches are atomic."""

    position: int
    offset: int
    present: int
    count: int


class Stamped(Struct, frozen=True, gc=False):
    """A frame that was found valid and stamped in place."""

    count: int
    size: int
    first_offset: int
    next_offset: int
    max_timestamp: int          # running: never below the last_timestamp that was handed in
    flags: int                  # of all records, or-ed
    runs: list[int]
    due: list[int]
    index: bytes
    times: list[int]
    batch: Batch | None
    controls: list[FoundControl]
    last_index_position: int    # hand both in again with the next frame
    last_time_point: int


class Scan(Struct, frozen=True, gc=False):
    """The valid records from where a scan began, and why it stopped.

    `reason`: "end" (the buffer is used up), "short" (a record goes on behind the buffer's end), "crc", "header", "offset".
    `detail` is the sentence for people, "" for "end". `position` is that of the first byte that was not accepted.
    """

    count: int
    position: int
    first_offset: int           # -1 when nothing was found
    next_offset: int
    max_timestamp: int
    flags: int
    runs: list[int]
    due: list[int]
    index: bytes
    times: list[int]
    batches: list[FoundBatch]
    controls: list[FoundControl]
    last_index_position: int
    last_time_point: int
    reason: str
    detail: str
    open_batch: OpenBatch | None


class Gathered(Struct, frozen=True, gc=False):
    """Records by offset ranges. `bad` is the file position of a damaged record that ended the walk, else -1."""

    data: bytes
    found: Sequence[int]
    bad: int


class Columns(Struct, frozen=True, gc=False):
    """Arrow-ready buffers of `count` records, native byte order; `*_offsets` are int32 (one more than entries), validity is an LSB
    bitmap. `header_offsets` are the records' lists in the entries that `name_*` and `content_*` hold; a record without headers
    of its own is null there. The walk went over `size` bytes; `next_offset` is behind its last record, 0 if there was none."""

    size: int
    next_offset: int
    count: int
    header_count: int
    offset: bytes
    timestamp: bytes
    priority: bytes
    flags: bytes
    key_offsets: bytes
    key_data: bytes
    key_validity: bytes
    value_offsets: bytes
    value_data: bytes
    value_validity: bytes
    header_offsets: bytes
    header_validity: bytes
    name_offsets: bytes
    name_data: bytes
    content_offsets: bytes
    content_data: bytes

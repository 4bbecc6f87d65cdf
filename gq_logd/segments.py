"""One segment: a log file, what is derived from it, and how records are found in it.

Owns size, offsets and positions of one `{base}.log`. The last segment of a partition is live: its derived entries grow in memory
and are saved now and then. All others are sealed: `ready()` checks their derived files when they are first needed, and rebuilds
them when they are missing or bad. Never decides when to roll, what is visible, or what may be removed.

Invariant: `size` and `next_offset` speak of complete, successfully written batches only; bytes behind `size` do not count.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gq_logd.derived import ALWAYS, Growing
from gq_logd.files import Files
from gq_proto import codec, ranges, segment
from gq_proto import record as rec
from gq_proto.errors import Corrupt
from gq_proto.found import Scan, Stamped
from gq_proto.segment import Derived

READ_MIN: Final = 64 * 1024
FLAGS_OF_KIND: Final = tuple(rec.kind_flags(kind) for kind in range(256))
HIDING: Final = rec.DELAYED | rec.TRANSACTIONAL     # records that some readers must not see


class Damaged(Corrupt):
    """Corrupt, and where valid records go on."""

    def __init__(self, message: str, next_offset: int) -> None:
        super().__init__(message)
        self.next_offset = next_offset


class Damage:
    """A stretch of a segment without valid records: [position, end_position), offsets [low, high)."""

    __slots__ = ("end_position", "high", "low", "position")

    def __init__(self, position: int, end_position: int, low: int, high: int) -> None:
        self.position, self.end_position, self.low, self.high = position, end_position, low, high


class Segment:
    __slots__ = ("_files", "_growing", "_hint", "_path", "base", "checked", "damage", "first_timestamp", "flags", "folder",
                 "last_index_position", "last_time_point", "live", "max_timestamp", "newest_us", "next_offset", "size")

    def __init__(self, files: Files, folder: str, base: int, size: int, next_offset: int, live: bool) -> None:
        self._files, self.folder, self.base, self.size, self.next_offset = files, folder, base, size, next_offset
        self._path = f"{folder}/{segment.segment_name(base)}"
        self.live = live
        self.checked = live              # its derived files are known to be good
        self.flags = 0                   # of all records, or-ed; known when checked
        self.newest_us = -1              # the largest max(timestamp, due); likewise
        self.max_timestamp = 0           # running, also over the segments before
        self.first_timestamp = -1        # of a live segment
        self.last_index_position = 0
        self.last_time_point = 0
        self.damage: list[Damage] = []
        self._hint = (base, 0)           # an offset and its position: where the last read ended
        self._growing: dict[Derived, Growing] = {kind: Growing(kind, base) for kind in ALWAYS} if live else {}

    def path(self, suffix: str = "") -> str:
        """Of the log, or of a derived file."""
        return f"{self.folder}/{segment.segment_name(self.base, suffix)}" if suffix else self._path

    def paths(self) -> list[str]:
        """All files it may have."""
        return [self.path(), *(self.path(kind.value) for kind in Derived)]

    # -- derived ---------------------------------------------------------------------

    def packed(self, kind: Derived) -> bytes | bytearray:
        """The derived entries of one kind."""
        growing = self._growing.get(kind)
        if growing:
            return growing.packed
        if self.live:
            return b""
        path = self.path(kind.value)
        found = self._files.payloads.get(path)
        if found is None:
            found = segment.read_derived(self._files.read(path), kind, self.base).payload
            self._files.payloads.put(path, found)
        return found

    def growing(self, kind: Derived) -> Growing:
        """The entries of a segment that is not closed."""
        found = self._growing.get(kind)
        if not found:
            assert self._growing, "the segment is closed"
            found = self._growing[kind] = Growing(kind, self.base)
        return found

    def adopt(self, growing: dict[Derived, Growing]) -> None:
        """Recovery hands over what it loaded or rebuilt."""
        self._growing = growing

    @property
    def closed(self) -> bool:
        return not self._growing

    def take(self, found: Stamped | Scan, size: int) -> None:
        """Records that lie at `size` now, with all that a walk over them collected."""
        growing = self._growing
        if self.first_timestamp < 0:
            self.first_timestamp = found.max_timestamp
        self.size += size
        self.next_offset = found.next_offset
        self.flags |= found.flags
        self.max_timestamp = found.max_timestamp
        self.newest_us = max(self.newest_us, found.max_timestamp)
        self.last_index_position, self.last_time_point = found.last_index_position, found.last_time_point
        if found.index:
            growing[Derived.INDEX].packed += found.index
        growing[Derived.RUNS].extend_runs(found.runs)
        if found.times:
            growing[Derived.TIMEINDEX].packed += segment.pack_times(found.times, self.base)
        if found.due:
            self.newest_us = max(self.newest_us, *found.due[1::2])
            self.growing(Derived.DUE).packed += segment.pack_due(found.due)

    @property
    def lags(self) -> bool:
        """Derived files lack something."""
        return any(growing.covered < self.size for growing in self._growing.values())

    def save(self, least_bytes: int = 1) -> None:
        """Derived entries into their files, of those that lag behind the log by `least_bytes`. What was aborted is always saved: a
        checkpoint says that it need not be looked for. OSError."""
        for kind, growing in self._growing.items():
            if self.size - growing.covered >= (1 if kind is Derived.TXNINDEX and growing.unsaved else least_bytes):
                growing.flush(self._files.pool, self.path(kind.value), self.size, self.next_offset)

    def close(self) -> None:
        """A sealed segment's files get their footers; its entries leave memory. OSError: try again."""
        assert not self.live
        for kind in list(self._growing):
            footer = b""
            if kind is Derived.RUNS:
                footer = segment.pack_lanes(lanes_of(self.packed(kind), self.base), self.base)
            elif kind is Derived.TIMEINDEX:
                footer = segment.pack_max_timestamp(self.max_timestamp)
            self._growing[kind].flush(self._files.pool, self.path(kind.value), self.size, self.next_offset, footer)
        for kind in list(self._growing):
            self._files.pool.forget(self.path(kind.value))
            self._files.payloads.drop(self.path(kind.value))
        self._growing = {}

    # -- finding ---------------------------------------------------------------------

    def floor(self, offset: int) -> int:
        """The position of a record at or before `offset`, near it: the index point below, or where the last read ended."""
        hint_offset, hint_position = self._hint
        if hint_offset == offset:
            return hint_position
        position = self._point(offset - self.base)[0]
        if hint_offset < offset:
            position = max(position, hint_position)
        for damage in self.damage:
            if damage.high <= offset:
                position = max(position, damage.end_position)
        return position

    def _point(self, relative: int) -> tuple[int, int]:
        """(position, offset) of the last index point at or below the relative offset; the segment's start if there is none."""
        packed = self.packed(Derived.INDEX)
        number = bisect_right(range(len(packed) // 8), relative, key=lambda n: int.from_bytes(packed[n * 8:n * 8 + 4])) - 1
        if number < 0:
            return 0, self.base
        offset, position = segment.INDEX_ENTRY.unpack_from(packed, number * 8)
        return position, self.base + offset

    def read(self, offset: int, limit: int, max_bytes: int) -> tuple[memoryview, int]:
        """Whole valid records [offset, limit) within max_bytes, but one at least; and the offset behind the last.

        `offset` lies in this segment. Damaged when its record is; damage behind it ends the read before it."""
        for damage in self.damage:
            if damage.low <= offset < damage.high:
                raise self.corrupt(damage.position, offset)
        start, want = self.floor(offset), max(max_bytes, READ_MIN)
        while True:
            data = memoryview(self._files.pool.get(self.path()).pread(start, min(want, self.size - start)))
            at = codec.locate(data, 0, offset)
            if at >= 0:
                valid, count, first, following = codec.check(data[at:at + max_bytes])
                if not count:
                    valid, count, first, following = codec.check(data[at:at + record_size(data[at:])])
                if count and first == offset:
                    return self._cut(data, start, at, valid, following, limit)
                if count or record_size(data[at:]) <= len(data) - at:
                    raise self.corrupt(start, offset)
            if want >= self.size - start:
                raise self.corrupt(start, offset)
            want *= 4

    def _cut(self, data: memoryview, start: int, at: int, valid: int, following: int, limit: int) -> tuple[memoryview, int]:
        end = at + valid
        if following > limit:
            end, following = codec.locate(data, at, limit), limit
        self._hint = (following, start + end)
        return data[at:end], following

    def gather(self, wanted: Sequence[int], max_bytes: int) -> tuple[bytes, Sequence[int], list[int]]:
        """Records of sorted ranges that lie in this segment: (bytes, ranges found, ranges damaged)."""
        pieces: list[bytes] = []
        found: Sequence[int] = []
        damaged: list[int] = []
        left, index, high = wanted, bytes(self.packed(Derived.INDEX)), wanted[-2] + wanted[-1]
        while left and max_bytes > 0:
            got = codec.gather(self._files.pool.get(self.path()).fileno(), self.floor(left[0]), self.size, left, index,
                               self.base, max_bytes)
            pieces.append(got.data)
            max_bytes -= len(got.data)
            found = ranges.union(found, got.found) if found else got.found
            if got.bad < 0:
                break
            damage = self.damage_at(got.bad)
            damaged = ranges.union(damaged, ranges.clip(left, damage.low, damage.high))
            behind = max(damage.high, got.found[-2] + got.found[-1] if got.found else 0)
            left = ranges.clip(left, behind, high)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), found, damaged

    def runs(self, low: int, high: int, lane: int = -1, limit: int = 2**62) -> tuple[list[int], int]:
        """(runs in [low, high), where to go on), as codec.select_runs."""
        return codec.select_runs(self.packed(Derived.RUNS), self.base, low, high, lane, limit)

    def lane(self, low: int, high: int, lane: int, limit: int) -> tuple["array[int]", int]:
        """(ranges of a priority's records in [low, high) that are as they lie, where to go on), as codec.lane_ranges."""
        return codec.lane_ranges(self.packed(Derived.RUNS), self.base, low, high, lane, limit)

    def first_at(self, timestamp_us: int, low: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record from `low` on at or after a time; None when all are older."""
        entries = list(segment.TIME_ENTRY.iter_unpack(self.packed(Derived.TIMEINDEX)))
        number = bisect_right(entries, timestamp_us - 1, key=lambda entry: int(entry[0])) - 1
        offset = max(self.base + entries[number][1] if number >= 0 else self.base, low)
        while offset < self.next_offset:
            try:
                data, following = self.read(offset, self.next_offset, 4 * READ_MIN)
            except Damaged as e:
                offset = e.next_offset
                continue
            for record_offset, timestamp in timestamps_of(data):
                if timestamp >= timestamp_us:
                    return record_offset, timestamp
            offset = following
        return None

    # -- damage ----------------------------------------------------------------------

    def corrupt(self, position: int, offset: int) -> Damaged:
        """What a reader of `offset` is told, whose record is damaged; a valid record or damage before it is at `position`."""
        damage = self.damage_at(position)
        while damage.high <= offset < self.next_offset:
            damage = self.damage_at(damage.end_position)
        return Damaged(f"{self.path()} is damaged at position {damage.position}: offsets {damage.low}-{damage.high - 1} are lost",
                       damage.high)

    def damage_at(self, position: int) -> Damage:
        """The damage that covers or follows `position`; found out and noted when it is new."""
        for damage in self.damage:
            if damage.position <= position < damage.end_position:
                return damage
        start, low = self._valid_before(position)
        data = self._files.pool.get(self.path()).pread(start, self.size - start)
        scan = codec.scan(data, 0, -1, base_position=start)
        low = scan.next_offset if scan.count else low
        bad = scan.position - start
        found = codec.find_valid(data, bad + 1, low + 1, self.next_offset - 1)
        if found < 0:
            damage = Damage(scan.position, self.size, low, self.next_offset)
        else:
            damage = Damage(scan.position, start + found, low, int.from_bytes(data[found + 8:found + 16]))
        if damage.position < self.size:
            self.damage.append(damage)
        self.damage.sort(key=lambda d: d.position)
        return damage

    def _valid_before(self, position: int) -> tuple[int, int]:
        """(position, offset) of a record to begin a scan at: the last index point at or before `position`, behind damage known."""
        start, offset = 0, self.base
        for relative, point in segment.INDEX_ENTRY.iter_unpack(self.packed(Derived.INDEX)):
            if point > position:
                break
            start, offset = point, self.base + relative
        for damage in self.damage:
            if start < damage.end_position <= position:
                start, offset = damage.end_position, damage.high
        return start, offset


def record_size(data: Any) -> int:
    """Size of the record whose header `data` begins with, by its lengths alone; the header's when it is not all there."""
    if len(data) < rec.HEADER_SIZE:
        return rec.HEADER_SIZE
    key, value, headers = rec.HEADER.unpack_from(data)[8:11]
    return rec.HEADER_SIZE + (0 if key == rec.KEY_NULL else key) + (0 if value == rec.VALUE_NULL else value) + int(headers)


def timestamps_of(data: memoryview) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record of valid bytes."""
    at = 0
    while at < len(data):
        head = rec.HEADER.unpack_from(data, at)
        yield head[4], head[5]
        at += record_size(data[at:at + rec.HEADER_SIZE])


def flags_of(packed: bytes | bytearray) -> int:
    """Record flags of all runs, or-ed."""
    flags = 0
    for kind in set(packed[8::9]):
        flags |= FLAGS_OF_KIND[kind]
    return flags


def lanes_of(packed: bytes | bytearray, base: int) -> list[segment.Lane]:
    """Per priority: records and first offset, control records left out: the footer of `.runs`."""
    return [segment.Lane(count, base + first if count else -1) for count, first in codec.lane_totals(packed)]

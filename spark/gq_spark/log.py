"""One partition: its segments, and what their index files say of them.

A derived file is believed as far as it is whole; what it does not cover (the end of a live segment, or all of one whose files are
missing or bad) is scanned, damage stepped over. Facts are kept per segment, so a Log is good for one planning: what is appended
later it does not see, and a segment that is removed meanwhile is empty: who reads it finds out. Offsets are positions in the log
here; where a message is delivered is `decided`'s.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gq_proto import codec, segment
from gq_proto import record as r
from gq_proto.limits import INDEX_INTERVAL_BYTES
from gq_proto.runs import EVERY
from gq_proto.segment import INDEX_ENTRY, TIME_ENTRY, Derived
from gq_spark.disk import Disk
from gq_spark.layout import Place, Segment

_WALK: Final = (Derived.INDEX, Derived.TIMEINDEX, Derived.RUNS)
_CHUNK: Final = 4 * 1024 * 1024
_FAR: Final = 2**61
_NO_LANE: Final = 7         # control runs are told with any lane


@dataclass(frozen=True)
class Facts:
    """Of one segment: entries as its files pack them. The valid records end at byte `position`, before `next_offset`."""

    index: bytes
    times: bytes
    runs: bytes
    position: int
    next_offset: int
    newest_us: int      # no record is newer


Kept = dict[tuple[int, Segment], list[int]]     # topic id, sealed segment -> its control runs: a stream asks again and again


class Log:
    """`start`: the first offset that is still there."""

    def __init__(self, disk: Disk, place: Place, kept: Kept | None = None) -> None:
        self.disk, self.place = disk, place
        self._facts: dict[int, Facts] = {}
        self._one: dict[tuple[int, Derived], Facts] = {}
        self._kept: Kept = {} if kept is None else kept
        self.segments = place.segments
        first = place.segments[0].base if place.segments else 0
        self.start = max(place.mark.log_start if place.mark else 0, first)

    def facts(self, part: Segment, kind: Derived | None = None) -> Facts:
        """`kind`: its entries are enough. Of a sealed segment that is one file then."""
        if part.base in self._facts:
            return self._facts[part.base]
        if kind and part.following >= 0:
            found = self._one.get((part.base, kind)) or _load_one(self.disk, part, kind)
            if found:
                self._one[part.base, kind] = found
                return found
        self._facts[part.base] = _load(self.disk, part)
        return self._facts[part.base]

    @property
    def valid_end(self) -> int:
        """Behind the last complete valid record."""
        return self.facts(self.segments[-1]).next_offset if self.segments else self.start

    def within(self, low: int, high: int) -> Iterator[Segment]:
        """Segments that may hold something of [low, high)."""
        for part in self.segments:
            if part.base < high and (part.following < 0 or part.following > low):
                yield part

    def controls(self, part: Segment) -> list[int]:
        """Flat runs of control records."""
        sealed = self.place.topic_id, part      # a topic made anew, or a log cut back, may have another one in its place
        if sealed in self._kept:
            return self._kept[sealed]
        found, _ = codec.select_runs(self.facts(part, Derived.RUNS).runs, part.base, part.base, EVERY, _NO_LANE)
        if part.following >= 0:
            self._kept[sealed] = found
        return found

    # -- by time ---------------------------------------------------------------------------

    def not_before(self, timestamp: int, end: int) -> int:
        """No record below this offset is as new as `timestamp`; at most `end`."""
        for part in self.within(self.start, end):
            facts = self.facts(part, Derived.TIMEINDEX)
            if facts.newest_us >= timestamp:
                number = bisect_left(_Times(facts.times), timestamp)
                known = part.base + _offset_at(facts.times, number - 1) if number else part.base
                return min(max(known, self.start), end)
        return end

    def all_after(self, timestamp: int, end: int) -> int:
        """From this offset on the running maximum of timestamps is at least `timestamp`; at most `end`."""
        for part in self.within(self.start, end):
            facts = self.facts(part, Derived.TIMEINDEX)
            number = bisect_left(_Times(facts.times), timestamp)
            if number < len(facts.times) // TIME_ENTRY.size:
                return min(max(part.base + _offset_at(facts.times, number), self.start), end)
        return end

    def first_at(self, timestamp: int, end: int) -> int:
        """The first offset whose record is as new as `timestamp`, exactly; `end` when there is none before it."""
        low = self.not_before(timestamp, end)
        for part in self.within(low, end):
            facts = self.facts(part, Derived.INDEX)
            found = _first_in(self.disk, part, position_before(facts.index, part.base, low), facts.position, timestamp)
            if found >= 0:
                return max(min(found, end), self.start)
        return end


class _Times:
    """Timestamps of packed `.timeindex` entries, for bisect."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return len(self._packed) // TIME_ENTRY.size

    def __getitem__(self, number: int) -> int:
        return int.from_bytes(self._packed[number * TIME_ENTRY.size : number * TIME_ENTRY.size + 8])


def _offset_at(times: bytes, number: int) -> int:
    """Relative to the segment's base."""
    return int(TIME_ENTRY.unpack_from(times, number * TIME_ENTRY.size)[1])


def _first_in(disk: Disk, part: Segment, position: int, end: int, timestamp: int) -> int:
    """The first record between two positions that is as new; -1. Ends at damage, too."""
    with disk.open_if_there(part.path()) as file:
        room, want = bytearray(_CHUNK), _CHUNK
        while position < end:
            if want > len(room):
                room = bytearray(want)
            data = file.read_into(room, position, min(want, end - position))
            found = codec.scan(data, last_timestamp=timestamp - 1, last_time_point=timestamp - _FAR, time_interval_us=_FAR)
            if found.times:
                return found.times[1]
            if found.reason not in ("end", "short") or (not found.count and len(data) < want):
                return -1
            position += found.position
            want = want if found.count else want * 2
    return -1


# -- positions ---------------------------------------------------------------------------------

def position_before(index: bytes, base: int, offset: int) -> int:
    """Of a record at or below `offset`."""
    number = bisect_right(range(len(index) // 8), offset - base, key=lambda n: int.from_bytes(index[8 * n : 8 * n + 4])) - 1
    return int(INDEX_ENTRY.unpack_from(index, 8 * number)[1]) if number >= 0 else 0


def position_behind(index: bytes, base: int, offset: int, end: int) -> int:
    """Of a record at or above `offset`; `end` when the index knows none."""
    number = bisect_left(range(len(index) // 8), offset - base, key=lambda n: int.from_bytes(index[8 * n : 8 * n + 4]))
    return int(INDEX_ENTRY.unpack_from(index, 8 * number)[1]) if number < len(index) // 8 else end


# -- loading -----------------------------------------------------------------------------------

def _load_one(disk: Disk, part: Segment, kind: Derived) -> Facts | None:
    """Of a sealed segment one derived file, if it covers all of it."""
    found = segment.read_derived(disk.read(part.path(kind.value)), kind, part.base)
    newest = 0 if kind is not Derived.TIMEINDEX else segment.unpack_max_timestamp(found.footer or b"")
    if found.footer is None or found.position != part.size or newest is None:
        return None
    index, times, runs = (found.payload if kind is one else b"" for one in _WALK)
    return Facts(index, times, runs, found.position, found.next_offset, newest)


def _load(disk: Disk, part: Segment) -> Facts:
    found = [segment.read_derived(disk.read(part.path(kind.value)), kind, part.base) for kind in _WALK]
    index, times, runs = found
    size = disk.size(part.path())           # after them: it is no shorter than what they tell of
    agree = len({(file.position, file.next_offset) for file in found}) == 1 and index.position <= size
    newest = segment.unpack_max_timestamp(times.footer) if times.footer is not None else None
    if agree and part.following >= 0 and newest is not None and index.position == size:
        return Facts(index.payload, times.payload, runs.payload, size, index.next_offset, newest)
    if not agree or not index.position:
        return _scanned(disk, part, size, Facts(b"", b"", b"", 0, part.base, 0))
    last = TIME_ENTRY.unpack_from(times.payload, len(times.payload) - TIME_ENTRY.size)[0] if times.payload else 0
    known = Facts(index.payload, times.payload, runs.payload, index.position, index.next_offset, last)
    return replace(_scanned(disk, part, size, known), newest_us=_FAR)      # how new its last records are was not looked at


def _scanned(disk: Disk, part: Segment, size: int, known: Facts) -> Facts:
    """With all valid records behind what is known."""
    if known.position >= size:
        return known
    index, times, runs = bytearray(known.index), bytearray(known.times), bytearray(known.runs)
    with disk.open_if_there(part.path()) as file:
        data = file.read_into(bytearray(size - known.position), known.position, size - known.position)
    last_point = int(INDEX_ENTRY.unpack_from(index, len(index) - 8)[1]) if index else 0
    at, expected, newest, next_offset = 0, known.next_offset, known.newest_us, known.next_offset
    while True:
        scan = codec.scan(data, at, expected, base_position=known.position, segment_base=part.base, last_index_position=last_point,
                          last_timestamp=newest, last_time_point=newest)
        if scan.count:
            index += scan.index
            times += segment.pack_times(scan.times, part.base)
            codec.extend_runs(runs, part.base, scan.runs)
            newest, next_offset, last_point = scan.max_timestamp, scan.next_offset, scan.last_index_position
        end = scan.position - known.position
        most = next_offset + len(data) // r.HEADER_SIZE
        resume = -1 if scan.reason == "end" else codec.find_valid(data, end + 1, next_offset, most)
        if resume < 0:
            return Facts(bytes(index), bytes(times), bytes(runs), scan.position, next_offset, newest)
        at, expected, last_point = resume, -1, -INDEX_INTERVAL_BYTES

"""A segment's derived state out of its log: the scan that recovery and a missing or bad derived file share.

Owns no state. A scan walks all records behind a position, steps over damage where valid records follow it, and tells a torn tail
(nothing valid follows) from damage. It changes no log file.
"""

from collections.abc import Callable
from typing import Final

from gq_logd.derived import ALWAYS, Growing
from gq_logd.files import Files
from gq_logd.segments import FLAGS_OF_KIND, Damage, Segment, flags_of, record_size
from gq_proto import codec, segment
from gq_proto import record as rec
from gq_proto.errors import Corrupt
from gq_proto.found import OpenBatch, Scan
from gq_proto.segment import Derived, DerivedFile

ABORT: Final = rec.CONTROL | rec.TRANSACTIONAL
CHUNK_BYTES: Final = 32 * 1024 * 1024
Note = Callable[[Scan], None]


class Tail:
    """How a scan ended: everything valid lies below `position`; `torn` bytes follow it; an `open_batch` lacks its rest."""

    __slots__ = ("detail", "open_batch", "position", "torn")

    def __init__(self, position: int, torn: int, detail: str, open_batch: OpenBatch | None) -> None:
        self.position, self.torn, self.detail, self.open_batch = position, torn, detail, open_batch


def scan_on(files: Files, part: Segment, file_size: int, note: Note) -> Tail:
    """Take all records behind part.size into `part`, up to file_size. Damage is noted in part.damage and stepped over."""
    expected = part.next_offset
    while True:
        data, scan = _next_scan(files, part, file_size, expected)
        start = part.size
        if scan.count:
            note(scan)
            part.take(scan, scan.position - start)
        if scan.reason == "end" and scan.position >= file_size:
            return Tail(part.size, 0, "", scan.open_batch)
        if scan.count and scan.position - start < len(data) and scan.reason == "short" and start + len(data) < file_size:
            expected = scan.next_offset
            continue
        if scan.reason == "end":
            expected = scan.next_offset
            continue
        if not _step_over(files, part, file_size):
            return Tail(part.size, file_size - part.size, scan.detail, scan.open_batch)
        expected = -1


def _next_scan(files: Files, part: Segment, file_size: int, expected: int) -> tuple[bytes, Scan]:
    """The next chunk, at least one record long if there is one."""
    want = CHUNK_BYTES
    while True:
        data = files.pool.get(part.path()).pread(part.size, min(want, file_size - part.size))
        index_position = part.last_index_position if expected >= 0 else -rec.HEADER_SIZE - 2**40
        scan = _scan(part, data, expected, index_position)
        if scan.open_batch and scan.open_batch.position > part.size and part.size + len(data) < file_size:
            data = data[:scan.open_batch.position - part.size]       # a batch that two chunks share is for the next one
            scan = _scan(part, data, expected, index_position)
        if scan.count or scan.reason != "short" or part.size + len(data) >= file_size:
            return data, scan
        want = max(want * 2, record_size(data))


def _scan(part: Segment, data: bytes, expected: int, index_position: int) -> Scan:
    return codec.scan(data, 0, expected, base_position=part.size, segment_base=part.base, last_index_position=index_position,
                      last_timestamp=part.max_timestamp, last_time_point=part.last_time_point)


def _step_over(files: Files, part: Segment, file_size: int) -> bool:
    """Note the damage at part.size and go on behind it; False when nothing valid follows: then the tail is torn."""
    data = files.pool.get(part.path()).pread(part.size, file_size - part.size)
    low = part.next_offset
    found = codec.find_valid(data, 1, low, low + len(data) // rec.HEADER_SIZE)
    if found < 0:
        return False
    high = int.from_bytes(data[found + 8:found + 16])
    part.damage.append(Damage(part.size, part.size + found, low, high))
    part.size += found
    part.next_offset = high
    return True


# -- sealed segments --------------------------------------------------------------------

def make_ready(files: Files, part: Segment) -> None:
    """Check a sealed segment's derived files, and rebuild them when they are missing or bad."""
    size = files.disk.size(part.path())
    found = {kind: segment.read_derived(files.read(part.path(kind.value)), kind, part.base) for kind in Derived}
    newest = _newest(found[Derived.TIMEINDEX], found[Derived.DUE])
    if newest < 0 or not all(_complete(found[kind], kind, size) for kind in needed(found[Derived.RUNS].payload)):
        rebuild(files, part, size, found[Derived.TXNINDEX])
    else:
        runs = found[Derived.RUNS]
        part.size, part.next_offset = runs.position, runs.next_offset
        part.flags, part.newest_us = flags_of(runs.payload), newest
        for kind, file in found.items():
            files.payloads.put(part.path(kind.value), file.payload)
    part.checked = True


def needed(runs: bytes | bytearray) -> list[Derived]:
    """The derived files that records of these runs call for."""
    needed = list(ALWAYS)
    if flags_of(runs) & rec.DELAYED:
        needed.append(Derived.DUE)
    if any(FLAGS_OF_KIND[kind] == ABORT for kind in set(runs[8::9])):
        needed.append(Derived.TXNINDEX)
    return needed


def _complete(found: DerivedFile, kind: Derived, size: int) -> bool:
    if found.footer is None or found.damaged or found.position > size:
        return False
    return kind is not Derived.RUNS or segment.unpack_lanes(found.footer, 0) is not None


def _newest(times: DerivedFile, due: DerivedFile) -> int:
    """The largest timestamp or due time; -1 when the file does not say."""
    newest = segment.unpack_max_timestamp(times.footer) if times.footer is not None else None
    return -1 if newest is None else max([newest, *segment.unpack_due(due.payload)[1::2]])


def rebuild(files: Files, part: Segment, size: int, aborted: DerivedFile) -> None:
    """Derive everything anew and close the files. What `.txnindex` says needs other segments: it is kept as far as it is good."""
    part.adopt({kind: Growing(kind, part.base) for kind in ALWAYS})
    part.size, part.next_offset, part.flags, part.newest_us, part.max_timestamp = 0, part.base, 0, -1, 0
    part.damage.clear()
    tail = scan_on(files, part, size, lambda scan: None)
    if tail.torn:
        part.damage.append(Damage(tail.position, size, part.next_offset, part.next_offset))
    if aborted.payload:
        part.growing(Derived.TXNINDEX).packed += aborted.payload
    for kind in Derived:
        files.pool.forget(part.path(kind.value))
        files.disk.remove(part.path(kind.value))
    files.pool.get(part.path()).sync()       # a derived file that is closed vouches for its log
    part.close()


# -- the live segment ---------------------------------------------------------------------

def load(files: Files, part: Segment, recovery_point: int, file_size: int) -> None:
    """What the live segment's derived files are good for: `part` then stands at the offset and position where the scan goes on.

    Nothing at or above `recovery_point` is believed. Files that lag or say too much are written anew later."""
    found = {kind: segment.read_derived(files.read(part.path(kind.value)), kind, part.base) for kind in Derived}
    covering = needed(found[Derived.RUNS].payload)
    point = min([recovery_point, *(found[kind].next_offset for kind in covering)])
    if point <= part.base or any(found[kind].position > file_size for kind in covering):
        _begin_anew(part, found[Derived.TXNINDEX])
        return
    growing = {}
    for kind in (*ALWAYS, *(kind for kind in Derived if kind not in ALWAYS and found[kind].payload)):
        growing[kind] = Growing(kind, part.base)
        if found[kind].next_offset == point and not found[kind].damaged:
            growing[kind].adopt(found[kind])
        elif kind is Derived.TXNINDEX:       # what it says is true as long as the log reaches as far: see aborted_of
            growing[kind].packed = bytearray(found[kind].payload)
        else:
            growing[kind].keep_below(found[kind], point)
    part.adopt(growing)
    position = _position_of(files, part, found, point, file_size)
    if position < 0:
        _begin_anew(part, found[Derived.TXNINDEX])
        return
    part.size, part.next_offset = position, point
    part.flags = flags_of(growing[Derived.RUNS].packed)


def _begin_anew(part: Segment, aborted: DerivedFile) -> None:
    """Nothing is derived yet but what was aborted: recovery knows it from the file, and does not find it once more."""
    part.adopt({kind: Growing(kind, part.base) for kind in ALWAYS})
    if aborted.payload:
        part.growing(Derived.TXNINDEX).packed += aborted.payload


def _position_of(files: Files, part: Segment, found: dict[Derived, DerivedFile], point: int, file_size: int) -> int:
    """Where in the log the record `point` begins or would; the walk there gives the running maximum of the last timestamps.

    -1 when the log does not agree with what was derived from it."""
    index = segment.INDEX_ENTRY
    packed = part.packed(Derived.INDEX)
    relative, start = index.unpack_from(packed, len(packed) - index.size) if packed else (0, 0)
    times = part.packed(Derived.TIMEINDEX)
    if times:
        first, last = segment.TIME_ENTRY.unpack_from(times), segment.TIME_ENTRY.unpack_from(times, len(times) - 12)
        part.first_timestamp, part.last_time_point = first[0], last[0]
        part.max_timestamp = max(part.max_timestamp, last[0])
    end = max((file.position for file in found.values() if file.next_offset == point), default=file_size)
    data = memoryview(files.pool.get(part.path()).pread(start, end - start))
    position = codec.locate(data, 0, point)
    scan = codec.scan(data[:position] if position >= 0 else data, 0, part.base + relative, last_timestamp=part.max_timestamp)
    if scan.next_offset != point or scan.reason != "end":
        return -1
    part.max_timestamp = scan.max_timestamp
    part.newest_us = max([scan.max_timestamp, *segment.unpack_due(bytes(part.packed(Derived.DUE)))[1::2]])
    part.last_index_position = start
    return int(start + scan.position)


def aborted_of(files: Files, part: Segment) -> tuple[list[int], int]:
    """The ranges `.txnindex` names, and the offset up to which it does; Corrupt when it says what the log does not."""
    found = segment.read_derived(files.read(part.path(Derived.TXNINDEX.value)), Derived.TXNINDEX, part.base)
    if found.damaged or found.next_offset > part.next_offset:
        if not part.closed:
            part.growing(Derived.TXNINDEX).packed.clear()
        raise Corrupt(f"{part.path(Derived.TXNINDEX.value)} is damaged")
    return segment.unpack_ranges(found.payload), found.next_offset

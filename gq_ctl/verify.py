"""Log files without a daemon: which there are below a path, what is in them, and what is wrong with them.

Owns the walk over folders and segments. A segment's records are checked as recovery checks them (CRC, consecutive offsets), and
the walk goes on behind damage, so that every bad place is named, with file and position. What is cut short at the very end of
a partition's last segment is a torn tail (a crash, or a daemon that is writing just now): a note, no damage, the daemon cuts it.
Never writes. Only reads files; the codec judges the bytes.
"""

import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from gq_ctl import derived
from gq_proto import codec, files
from gq_proto.errors import Corrupt
from gq_proto.found import Scan
from gq_proto.limits import RECORD_HEADER
from gq_proto.record import CONTROL, kind_flags

SEGMENT: Final = re.compile(r"\d{20}\.log")
DELETED: Final = ".deleted"
SMALL_FILES: Final[dict[str, Callable[[bytes], object]]] = {
    files.PARTITION_META: files.decode_partition_meta, files.CHECKPOINT: files.decode_checkpoint,
    files.LEADER_EPOCHS: files.decode_leader_epochs, files.PRODUCERS: files.decode_producers,
}


class Problem(NamedTuple):
    """`offset`: the first one that is lost or doubtful; -1 where that makes no sense."""

    path: Path
    position: int
    offset: int
    detail: str

    def __str__(self) -> str:
        where = f"{self.path}: position {self.position}" if self.position >= 0 else str(self.path)
        return f"{where}: {f'offset {self.offset}: ' if self.offset >= 0 else ''}{self.detail}"


@dataclass
class Found:
    """What a segment or a partition holds."""

    messages: int = 0
    control: int = 0
    first_offset: int = -1
    next_offset: int = -1
    size: int = 0
    segments: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        self.messages += other.messages
        self.control += other.control
        self.size += other.size
        self.segments += other.segments
        self.problems += other.problems
        self.notes += other.notes
        self.first_offset = other.first_offset if self.first_offset < 0 else self.first_offset
        self.next_offset = max(self.next_offset, other.next_offset)


class Place(NamedTuple):
    """A partition's segments, in order: all of them if `whole`. topic and partition are "" and -1 where the folders do not say."""

    topic: str
    partition: int
    segments: list[Path]
    whole: bool = False


# -- which files -------------------------------------------------------------------------------

def places(path: Path) -> Iterator[Place]:
    """Partitions below `path`: a segment, a partition's folder, a topic's, or a data directory. Sorted."""
    if path.is_file():
        yield _place(path.parent, [path])._replace(whole=False)
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted((name for name in folders if not name.endswith(DELETED)), key=_natural)
        segments = sorted(name for name in names if SEGMENT.fullmatch(name))
        if segments:
            yield _place(Path(folder), [Path(folder, name) for name in segments])


def _natural(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isascii() and name.isdigit() else (-1, name)


def _place(folder: Path, segments: list[Path]) -> Place:
    folder = folder.resolve()
    if folder.name.isascii() and folder.name.isdigit():
        return Place(folder.parent.name, int(folder.name), segments, True)
    return Place("", -1, segments, True)


def base_of(segment: Path) -> int:
    """The base offset in a segment's name; -1 for another file."""
    return int(segment.stem) if SEGMENT.fullmatch(segment.name) else -1


# -- what is in them ---------------------------------------------------------------------------

Watch = Callable[[int], None]


def verify_place(place: Place, watch: Watch = lambda count: None) -> Found:
    """Everything about one partition; `watch` is told the records seen so far."""
    small = small_files(place)           # first: a daemon may be appending
    return joined(place, small, (verify_segment(path, path == place.segments[-1]) for path in place.segments), watch)


def joined(place: Place, small: tuple[Found, int], segments: Iterable[Found], watch: Watch = lambda count: None) -> Found:
    """What verify_segment found of each segment of the partition, in order, held together: is anything missing between them?"""
    whole, synced = small
    for number, (segment, found) in enumerate(zip(place.segments, segments)):
        base = base_of(segment)
        damaged = bool(whole.problems and whole.problems[-1].path == place.segments[number - 1])
        if number and base != whole.next_offset and not (damaged and base > whole.next_offset):
            whole.problems.append(Problem(segment, 0, whole.next_offset,
                                          f"the segment begins at offset {base}, the one before it ends at {whole.next_offset}"))
        whole.add(found)
        watch(whole.messages + whole.control)
    if whole.next_offset < synced:
        whole.problems.append(Problem(place.segments[-1], whole.size, whole.next_offset,
                                      f"the log ends here, but was synced up to offset {synced}"))
    return whole


def small_files(place: Place) -> tuple[Found, int]:
    """What is wrong with the partition's authoritative files; and the offset below which its log must be there, else -1."""
    found, synced = Found(), -1
    for name, decode in SMALL_FILES.items() if place.whole else ():
        path = place.segments[0].parent / name
        try:
            decoded = decode(path.read_bytes())
        except FileNotFoundError:
            continue
        except Corrupt as e:
            found.problems.append(Problem(path, -1, -1, e.message))
            continue
        if isinstance(decoded, files.Checkpoint):
            synced = decoded.recovery_point
    return found, synced


def verify_segment(path: Path, last: bool) -> Found:
    """One segment; `last`: it may have a torn tail."""
    base = base_of(path)
    raws = derived.read(path) if base >= 0 else {}
    with mapped(path) as data:
        found, scan = _walk(path, data, base, last)
        for remark in derived.check(path, base, raws, data, scan) if not found.problems else []:
            listed = found.notes if remark.torn and last else found.problems
            listed.append(Problem(remark.path, -1, -1, f"{remark.detail}: logd makes it anew when it is deleted while it is down"))
    return found


def _walk(path: Path, data: "mmap.mmap | bytes", base: int, last: bool) -> tuple[Found, Scan]:
    """What is in the segment, and the scan that reached its end (of all of it when nothing is wrong)."""
    found = Found(size=len(data), segments=1, next_offset=base, first_offset=-1)
    position, expected = 0, base
    while True:
        scan = codec.scan(data, position, expected, segment_base=max(base, 0))
        control = sum(count for count, kind in zip(scan.runs[1::3], scan.runs[2::3]) if kind_flags(kind) & CONTROL)
        found.messages += scan.count - control
        found.control += control
        if scan.count:
            found.first_offset = scan.first_offset if found.first_offset < 0 else found.first_offset
            found.next_offset = scan.next_offset
        if scan.reason == "end":
            if scan.open_batch:
                _incomplete(found, path, scan.open_batch.position, scan.open_batch.offset, last)
            return found, scan
        room = (len(data) - scan.position) // RECORD_HEADER
        resume = codec.find_valid(data, scan.position + 1, max(found.next_offset, 0), max(found.next_offset, 0) + room)
        problem = Problem(path, scan.position, found.next_offset, _detail(scan.detail, scan.position, resume))
        if resume < 0:
            (found.notes if last and scan.reason == "short" else found.problems).append(problem)
            return found, scan
        found.problems.append(problem)
        position, expected = resume, -1


def _detail(detail: str, position: int, resume: int) -> str:
    """Without the position, which stands in front of it already."""
    detail = detail.replace(f" at position {position}", "")
    return f"{detail}; the next good record is at position {resume}" if resume >= 0 else detail


def _incomplete(found: Found, path: Path, position: int, offset: int, last: bool) -> None:
    problem = Problem(path, position, offset, "the last batch is cut short: its last records are missing")
    (found.notes if last else found.problems).append(problem)


class mapped:
    """A file's bytes without reading them all at once; b"" for an empty file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | None = None

    def __enter__(self) -> "mmap.mmap | bytes":
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return b"" if self._map is None else self._map

    def __exit__(self, *_: object) -> None:
        if self._map is not None:
            self._map.close()

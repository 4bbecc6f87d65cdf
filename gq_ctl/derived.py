"""The files derived from a segment, held against its log: `.index .timeindex .runs .due`, as far as each says it reaches.

They hold nothing that the log does not, and logd makes missing or damaged ones anew. One that is whole and says something else than
the log is worse: it would be believed. Knows no folders; never writes. `.txnindex` needs the producers' open transactions
to be judged and is only checked for being whole.
"""

from bisect import bisect_right
from pathlib import Path
from typing import Any, NamedTuple

from gq_proto import codec
from gq_proto import segment as s
from gq_proto.found import Scan
from gq_proto.segment import Derived, DerivedFile


class Remark(NamedTuple):
    """`torn`: the end of the file is no whole block, or it reaches behind the log's end: a crash may leave it so. Otherwise it
    contradicts the log."""

    path: Path
    torn: bool
    detail: str


def read(segment: Path) -> dict[Derived, bytes]:
    """Those that are there. Read them before the log: a daemon may be appending, and they never run ahead of it."""
    found = {}
    for kind in Derived:
        try:
            found[kind] = segment.with_suffix(kind.value).read_bytes()
        except FileNotFoundError:
            continue
    return found


def check(segment: Path, base: int, raws: dict[Derived, bytes], data: Any, scan: Scan) -> list[Remark]:
    """What is wrong with them, given the whole log `data` of a good segment and the scan of it."""
    remarks, index = [], _index(raws.get(Derived.INDEX, b""), base)
    for kind, raw in raws.items():
        found = s.read_derived(raw, kind, base)
        path = segment.with_suffix(kind.value)
        if found.damaged:
            remarks.append(Remark(path, True, f"is damaged at position {found.size}"))
        if found.position > len(data):
            remarks.append(Remark(path, True, f"reaches to position {found.position} of a log of {len(data)} bytes"))
        elif detail := _reach(found, data) or _contents(kind, found, base, data, scan, index):
            remarks.append(Remark(path, False, detail))
    return remarks


def _index(raw: bytes, base: int) -> list[tuple[int, int]]:
    """(offset, position) points."""
    payload = s.read_derived(raw, Derived.INDEX, base).payload
    return [(base + relative, position) for relative, position in s.INDEX_ENTRY.iter_unpack(payload)]


def _reach(found: DerivedFile, data: Any) -> str:
    if found.position < len(data) and _offset_at(data, found.position) != found.next_offset:
        return f"says that offset {found.next_offset} begins at position {found.position}"
    return ""


def _offset_at(data: Any, position: int) -> int:
    return int.from_bytes(data[position + 8 : position + 16])


def _contents(kind: Derived, found: DerivedFile, base: int, data: Any, scan: Scan, index: list[tuple[int, int]]) -> str:
    if kind is Derived.RUNS:
        told = _joined([n for relative, count, k in s.RUN_ENTRY.iter_unpack(found.payload) for n in (base + relative, count, k)])
        return "" if told == cut(scan.runs, found.next_offset) else "tells of other runs than the log"
    if kind is Derived.INDEX:
        wrong = next((point for point in index if _offset_at(data, point[1]) != point[0]), None)
        return f"says that offset {wrong[0]} begins at position {wrong[1]}" if wrong else ""
    if kind is Derived.TIMEINDEX:
        return _times(s.unpack_times(found.payload, base), data, index)
    if kind is Derived.DUE:
        due = list(scan.due)
        told = s.unpack_due(found.payload)
        return "" if told == due[: len(told)] and all(o >= found.next_offset for o in due[len(told) :: 2]) else \
            "tells of other delays than the log"
    return ""


def _times(times: list[int], data: Any, index: list[tuple[int, int]]) -> str:
    """Each point is a record's, and points ascend."""
    last = (-1, -1)
    for point in zip(times[::2], times[1::2]):
        timestamp, offset = point
        at = bisect_right(index, (offset, len(data)))
        position = codec.locate(data, index[at - 1][1] if at else 0, offset)
        if point <= last or position < 0 or _offset_at(data, position) != offset or \
                int.from_bytes(data[position + 16 : position + 24]) != timestamp:
            return f"gives offset {offset} another time than the log"
        last = point
    return ""


def _joined(runs: list[int]) -> list[int]:
    """A run that the end of a block cut in two goes on in the next one."""
    joined: list[int] = []
    for offset, count, kind in zip(runs[::3], runs[1::3], runs[2::3]):
        if joined and joined[-1] == kind and joined[-3] + joined[-2] == offset:
            joined[-2] += count
        else:
            joined += (offset, count, kind)
    return joined


def cut(runs: list[int], end: int) -> list[int]:
    """Flat runs below offset `end`."""
    below: list[int] = []
    for offset, count, kind in zip(runs[::3], runs[1::3], runs[2::3]):
        if offset < end:
            below += (offset, min(count, end - offset), kind)
    return below

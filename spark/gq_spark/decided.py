"""What became of messages whose fate the log tells later: of delayed ones, cancelled ones, and those of aborted transactions.

A delayed message is delivered at the ready record that names it, a control record in the same partition; one that is named by none
is still pending or was cancelled, and is not delivered. logd lets only the first control record that names a message into the log,
so each is named once. Aborted ranges stand in `.txnindex` of the segment that holds the abort marker; where that file is missing,
transactions are read from the whole log, as recovery does.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gq_proto import codec, control, segment
from gq_proto import ranges as rng
from gq_proto import record as r
from gq_proto.control import ControlType
from gq_proto.found import FoundControl, Scan
from gq_proto.runs import triples
from gq_proto.segment import Derived
from gq_spark.disk import Disk
from gq_spark.layout import Segment
from gq_spark.log import Log

ABORT: Final = r.CONTROL | r.TRANSACTIONAL
_CHUNK: Final = 8 * 1024 * 1024


class Fates(NamedTuple):
    """Of transactions, as flat ranges: what was aborted, and the first offset of one that is open, -1."""

    aborted: list[int]
    open_from: int


def deciding(runs: Iterable[int]) -> list[int]:
    """Of control runs those that may name delayed messages, as flat ranges."""
    return [number for offset, count, kind in triples(list(runs)) if not r.kind_flags(kind) & r.TRANSACTIONAL
            for number in (offset, count)]


def aborted(log: Log, high: int) -> list[int]:
    """Flat ranges of what transactions aborted, as far as a marker below `high` says so."""
    found: list[int] = []
    for part in log.within(log.start, high):
        markers = [offset + count for offset, count, kind in triples(log.controls(part))
                   if r.kind_flags(kind) == ABORT and offset < high]
        if markers:
            index = segment.read_derived(log.disk.read(part.path(Derived.TXNINDEX.value)), Derived.TXNINDEX, part.base)
            if index.next_offset < markers[-1]:
                return replayed(log, high).aborted
            found = rng.union(found, segment.unpack_ranges(index.payload))
    return found


def replayed(log: Log, high: int) -> Fates:
    """From all batches and markers below `high`."""
    written: dict[int, list[int]] = {}
    gone: list[int] = []
    for part in log.within(log.start, high):
        for scan in _scans(log.disk, part, log.facts(part).position):
            facts: list[tuple[int, FoundControl | None, int, int]] = [(found.offset, found, 0, 0) for found in scan.controls]
            facts += [(batch.offset, None, batch.producer_id, batch.count) for batch in scan.batches
                      if _transactional(scan.runs, batch.offset)]
            for offset, marker, producer, count in sorted(facts, key=lambda fact: fact[0]):
                if offset >= high:
                    break
                if marker is None:
                    written[producer] = rng.union(written.get(producer, []), [offset, count])
                elif marker.type in (ControlType.ABORT, ControlType.COMMIT):
                    said = control.decode_body(marker.type, marker.body)
                    assert isinstance(said, control.Marker)
                    ranges = written.pop(said.producer_id, [])
                    gone = rng.union(gone, ranges) if marker.type == ControlType.ABORT else gone
    return Fates(gone, min((ranges[0] for ranges in written.values()), default=-1))


def _transactional(runs: list[int], offset: int) -> bool:
    return any(low <= offset < low + count and r.kind_flags(kind) & r.TRANSACTIONAL for low, count, kind in triples(runs))


def _scans(disk: Disk, part: Segment, end: int) -> Iterator[Scan]:
    """All of a segment's records, chunk by chunk; damage is stepped over."""
    position, want = 0, _CHUNK
    with disk.open_if_there(part.path()) as file:
        while position < end:
            data = file.read_into(bytearray(min(want, end - position)), position, min(want, end - position))
            scan = codec.scan(data)
            yield scan
            position += scan.position
            if scan.count or scan.reason == "end":
                want = _CHUNK
            elif scan.reason == "short" and len(data) == want:
                want *= 2
            else:
                resume = codec.find_valid(data, 1, 0, 2**62)
                position += resume if resume > 0 else len(data)


def cancelled(log: Log, low: int, high: int) -> list[int]:
    """Flat ranges of the delayed messages that a record in [low, high) cancels."""
    found: list[int] = []
    for part in log.within(low, high):
        wanted = rng.clip(deciding(log.controls(part)), low, high)
        if wanted:
            facts = log.facts(part, Derived.INDEX)
            with log.disk.open_if_there(part.path()) as file:
                data = codec.gather(file.fd, 0, facts.position, wanted, facts.index, part.base).data
                file.note(len(data))
            found = rng.union(found, named(data, ControlType.DELAY_CANCELLED))
    return found


def named(data: bytes, type_: ControlType) -> list[int]:
    """The messages that control records of this type name, as flat ranges."""
    found: list[int] = []
    at = 0
    while at < len(data):
        scan = codec.scan(data, at)         # gathered ones need not be consecutive
        for met in scan.controls:
            said = control.decode_body(met.type, met.body)
            if met.type == type_ and isinstance(said, list):
                found = rng.union(found, said)
        if scan.position <= at:
            break
        at = scan.position
    return found

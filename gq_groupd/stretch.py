"""What a stretch of a log's runs is to a group: ranges of messages, each with its lane, by position.

A message's position is where it lies, that of a delayed one where the ready record lies that named it: it is told with that record,
as (lane, low, high, anchor), anchor being the record's offset, -1 for what is as it lies. Knows no state.
"""

from operator import attrgetter

from pyroaring import BitMap64

from gq_proto import control
from gq_proto.bitmaps import bitmap_between, ranges_of, union_of
from gq_proto.limits import PRIORITIES, PRIORITY_DEFAULT
from gq_proto.messages import Control
from gq_proto.runs import CONTROL_KIND, DELAYED_KIND, UNDELIVERABLE, triples

Piece = tuple[int, int, int, int]


def pieces_of(runs: list[int], controls: list[Control], hidden: list[int]) -> list[Piece]:
    """hidden: ranges of aborted messages; controls: those among the runs, with their bodies."""
    if not controls and not hidden:
        return [(kind & 7, low, low + n, -1) for low, n, kind in triples(runs) if not kind & UNDELIVERABLE]
    found: list[Piece] = []
    ready = sorted([c for c in controls if c.type == control.ControlType.DELAY_READY], key=attrgetter("offset"))
    concealed = union_of(bitmap_between(low, low + n) for low, n in zip(hidden[::2], hidden[1::2]))
    for low, n, kind in triples(runs):
        if kind & CONTROL_KIND:
            for record in ready:
                if low <= record.offset < low + n:
                    found += _named(record)
        elif kind & DELAYED_KIND:
            continue
        elif concealed and concealed.range_cardinality(low, low + n):
            left = ranges_of(bitmap_between(low, low + n) - concealed)
            found += [(kind & 7, a, a + count, -1) for a, count in zip(left[::2], left[1::2])]
        else:
            found.append((kind & 7, low, low + n, -1))
    return found


def _named(record: Control) -> list[Piece]:
    """What a ready record names, in offset order."""
    if record.lanes:
        return [(lane, low, low + n, record.offset) for low, n, lane in triples(record.lanes)]
    named = control.decode_body(control.ControlType.DELAY_READY, record.body)
    assert isinstance(named, list)
    return [(PRIORITY_DEFAULT, low, low + n, record.offset) for low, n in sorted(zip(named[::2], named[1::2]))]


def joined(found: list[Piece]) -> list[int]:
    """The pieces that are as they lie, whatever their lanes, as flat ranges."""
    ranges: list[int] = []
    end = -1
    for _, low, high, anchor in found:
        if anchor >= 0:
            continue
        if low == end:
            ranges[-1] += high - low
        else:
            ranges += (low, high - low)
        end = high
    return ranges


def below(found: list[Piece], end: int) -> list[Piece]:
    """What has its position below `end`."""
    if not found or max(found[-1][2:]) < end:
        return found
    return [(lane, low, high if anchor >= 0 else min(high, end), anchor)
            for lane, low, high, anchor in found if (low if anchor < 0 else anchor) < end]


def count_by_lane(found: list[Piece], low: int, high: int, anchored: bool = False) -> list[int]:
    """Messages of [low, high) that are as they lie; anchored: also those whose ready record lies there."""
    counts = [0] * PRIORITIES
    for lane, first, end, anchor in found:
        if anchor < 0:
            counts[lane] += max(0, min(end, high) - max(first, low))
        elif anchored and low <= anchor < high:
            counts[lane] += end - first
    return counts


def open_by_lane(found: list[Piece], opened: BitMap64, low: int, high: int) -> list[int]:
    """Those of them that are in `opened`."""
    counts = [0] * PRIORITIES
    for lane, first, end, anchor in found:
        first, end = max(first, low), min(end, high)
        if anchor < 0 and first < end:
            counts[lane] += opened.range_cardinality(first, end)
    return counts

"""What a stretch of a log's runs is to a group: ranges of messages, all together and per lane, and what ready records name.

A message's position is where it lies, that of a delayed one where the ready record lies that named it. Knows no state. Cost is in
compiled code where there are very many runs.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from pyroaring import BitMap64

from gq_proto import codec, control
from gq_proto import ranges as rng
from gq_proto.bitmaps import bitmap_of
from gq_proto.limits import PRIORITIES, PRIORITY_DEFAULT
from gq_proto.messages import Control
from gq_proto.runs import CONTROL_KIND, triples


class Stretch(NamedTuple):
    """`plain`: ranges of the messages that are as they lie, `lanes` the same per priority; `named`: (ready record, ranges per
    priority of what it names), by position. Everything ascends."""

    plain: list[int]
    lanes: list[Sequence[int]]
    named: list[tuple[int, list[list[int]]]]

    def counts(self, low: int, high: int, named: bool = False) -> list[int]:
        """Messages of [low, high) per lane; named: also those whose ready record lies there."""
        counts = [rng.count(rng.inside(ranges, low, high)) for ranges in self.lanes]
        for anchor, lanes in self.named if named else ():
            if low <= anchor < high:
                counts = [count + rng.count(ranges) for count, ranges in zip(counts, lanes)]
        return counts

    def counts_open(self, opened: BitMap64, low: int, high: int) -> list[int]:
        """Those of them that are in `opened`."""
        return [opened.intersection_cardinality(bitmap_of(list(rng.inside(ranges, low, high)))) for ranges in self.lanes]


def stretch_of(runs: list[int], controls: list[Control], hidden: list[int]) -> Stretch:
    """hidden: ranges of aborted messages; controls: those among the runs, with their bodies."""
    plain, by_lane = codec.runs_by_lane(runs)
    lanes: list[Sequence[int]] = [*by_lane]
    if hidden:
        plain, lanes = rng.subtract(plain, hidden), [rng.subtract(ranges, hidden) for ranges in lanes]
    return _with_named(Stretch(plain, lanes, []), runs, controls)


def lane_of(lane: int, ranges: Sequence[int], runs: list[int], controls: list[Control], hidden: list[int]) -> Stretch:
    """The same where all of one priority's messages that are as they lie are told by their ranges; `plain` is left out."""
    lanes: list[Sequence[int]] = [[] for _ in range(PRIORITIES)]
    lanes[lane] = rng.subtract(ranges, hidden) if hidden else ranges
    return _with_named(Stretch([], lanes, []), runs, controls)


def _with_named(stretch: Stretch, runs: list[int], controls: list[Control]) -> Stretch:
    ready = [record for record in controls if record.type == control.ControlType.DELAY_READY]
    if not ready:
        return stretch
    told = [number for low, n, kind in triples(runs) if kind & CONTROL_KIND for number in (low, n)]
    return stretch._replace(named=[(record.offset, _named(record)) for record in sorted(ready, key=attrgetter("offset"))
                                   if rng.contains(told, record.offset)])


def _named(record: Control) -> list[list[int]]:
    """What a ready record names, per lane."""
    if record.lanes:
        pieces = list(triples(record.lanes))
    else:
        named = control.decode_body(control.ControlType.DELAY_READY, record.body)
        assert isinstance(named, list)
        pieces = [(low, n, PRIORITY_DEFAULT) for low, n in zip(named[::2], named[1::2])]
    return [rng.normal((low, low + n) for low, n, lane in pieces if lane == number) for number in range(PRIORITIES)]

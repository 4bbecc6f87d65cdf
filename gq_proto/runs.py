"""Runs: what lies in a partition by kind, without the bytes. Flat lists [offset, count, kind, ...].

A run is a maximal range of consecutive records of one kind (record flags & 0x1E, priority). Control runs count for no lane and are
never deliverable; delayed ones are not where they lie but where their ready record lies. `select_runs` and `extend_runs` (the two
that meet millions of runs when priorities are random) are the codec's.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gq_proto import record as r
from gq_proto.ranges import Ranges, subtract

Runs = list[int]

CONTROL_KIND: Final = r.kind_of(r.CONTROL, 0)
DELAYED_KIND: Final = r.kind_of(r.DELAYED, 0)
UNDELIVERABLE: Final = CONTROL_KIND | DELAYED_KIND
ALL_LANES: Final = -1
NO_LANES: Final = -2         # all runs, those joined that differ in priority alone
EVERY: Final = 2**62


def triples(runs: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(offset, count, kind) of each run."""
    return zip(runs[::3], runs[1::3], runs[2::3])


def append_run(runs: Runs, offset: int, count: int, kind: int) -> None:
    """Append in place; joins the last run when it follows on and is of its kind."""
    if runs and runs[-1] == kind and runs[-3] + runs[-2] == offset:
        runs[-2] += count
    else:
        runs += (offset, count, kind)


def extend(runs: Runs, more: Sequence[int]) -> None:
    """Append many in place."""
    if len(more) >= 3:
        append_run(runs, more[0], more[1], more[2])
        runs += more[3:]


def clip(runs: Sequence[int], low: int, high: int) -> Runs:
    """The part in [low, high)."""
    out: Runs = []
    for offset, count, kind in triples(runs):
        start, end = max(offset, low), min(offset + count, high)
        if start < end:
            out += (start, end - start, kind)
    return out


def count(runs: Sequence[int]) -> int:
    """Records in all."""
    return sum(runs[1::3])


def deliverable(runs: Sequence[int], lane: int = ALL_LANES, without: Sequence[int] = ()) -> Ranges:
    """Ranges a consumer of `lane` gets as they lie: no control records, none that are delayed, none in the ranges `without`."""
    out: Ranges = []
    for offset, length, kind in triples(runs):
        if kind & UNDELIVERABLE or (lane != ALL_LANES and kind & 7 != lane):
            continue
        if out and out[-2] + out[-1] == offset:
            out[-1] += length
        else:
            out += (offset, length)
    return subtract(out, without) if without else out


def count_deliverable(runs: Sequence[int], lane: int = ALL_LANES) -> int:
    """How many records `deliverable` would name."""
    return sum(length for _, length, kind in triples(runs)
               if not kind & UNDELIVERABLE and (lane == ALL_LANES or kind & 7 == lane))


def controls(runs: Sequence[int]) -> Ranges:
    """Ranges of control records."""
    return [number for offset, length, kind in triples(runs) if kind & CONTROL_KIND for number in (offset, length)]

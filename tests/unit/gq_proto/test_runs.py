"""Run lists against a plain map from offset to kind."""

from hypothesis import given
from hypothesis import strategies as st

from gq_proto import codec
from gq_proto import runs as rn
from gq_proto.record import CONTROL, DELAYED, kind_flags, kind_lane, kind_of

KINDS = [kind_of(0, 2), kind_of(0, 0), kind_of(CONTROL, 2), kind_of(DELAYED, 2), kind_of(0, 4)]
pieces = st.lists(st.tuples(st.integers(1, 5), st.sampled_from(KINDS)), max_size=25)


def flat(pieces, base=100):
    out, offset = [], base
    for count, kind in pieces:
        rn.append_run(out, offset, count, kind)
        offset += count
    return out


def spread(runs):
    return {offset + n: kind for offset, count, kind in rn.triples(runs) for n in range(count)}


def spread_ranges(ranges):
    return {low + n for low, count in zip(ranges[::2], ranges[1::2]) for n in range(count)}


def test_kinds():
    kind = kind_of(CONTROL | 0x21, 3)
    assert (kind, kind_flags(kind), kind_lane(kind)) == (0x23, CONTROL, 3)
    assert rn.CONTROL_KIND == 0x20 and rn.DELAYED_KIND == 0x10


@given(pieces, pieces)
def test_lists(one, more):
    runs = flat(one)
    wanted = spread(runs)
    rest = flat(more, 100 + rn.count(runs))
    rn.extend(runs, rest)
    wanted |= spread(rest)
    assert spread(runs) == wanted and rn.count(runs) == len(wanted)
    assert all(a[2] != b[2] for a, b in zip(list(rn.triples(runs)), list(rn.triples(runs))[1:]))
    assert spread(rn.clip(runs, 103, 110)) == {offset: kind for offset, kind in wanted.items() if 103 <= offset < 110}
    assert spread_ranges(rn.controls(runs)) == {offset for offset, kind in wanted.items() if kind & 0x20}


@given(pieces, st.sampled_from([-1, 0, 2]))
def test_deliverable(one, lane):
    runs = flat(one)
    wanted = {offset for offset, kind in spread(runs).items() if not kind & 0x30 and lane in (-1, kind & 7)}
    assert spread_ranges(rn.deliverable(runs, lane)) == wanted
    assert rn.count_deliverable(runs, lane) == len(wanted)
    assert spread_ranges(rn.deliverable(runs, lane, [102, 5])) == {offset for offset in wanted if not 102 <= offset < 107}


def test_paging_by_limit_meets_every_run_once():
    packed = bytearray()
    codec.extend_runs(packed, 0, [number for offset in range(300) for number in (offset, 1, offset % 3)])
    seen, at = [], 0
    while at < 300:
        found, at = codec.select_runs(packed, 0, at, rn.EVERY, 1, 7)
        assert len(found) <= 21
        seen += found
        if not found:
            break
    assert seen[::3] == list(range(1, 300, 3))

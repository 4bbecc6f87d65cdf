"""Run lists and the run index against a plain map from offset to kind."""

from hypothesis import given
from hypothesis import strategies as st

from gq_proto import runs as rn
from gq_proto.record import CONTROL, DELAYED, kind_flags, kind_lane, kind_of
from gq_proto.segment import RUN_ENTRY, Lane

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


@given(st.lists(pieces, max_size=6), st.integers(100, 160))
def test_index_saved_in_blocks_and_read_again(batches, cut):
    index, saved, offset, wanted = rn.RunIndex(100), b"", 100, {}
    for number, batch in enumerate(batches):
        runs = flat(batch, offset)
        index.extend(runs)
        wanted |= spread(runs)
        offset += rn.count(runs)
        if number % 2:
            saved += index.unsaved()
            index.saved()
            assert index.unsaved() == b""
    saved += index.unsaved()
    assert len(index) == len(index.packed) // RUN_ENTRY.size and index.next_offset == offset
    again = rn.RunIndex(100, saved, offset)
    assert spread(again.select(0)[0]) == spread(index.select(0)[0]) == wanted
    assert again.select(0) == index.select(0)
    assert again.unsaved() == b"" and again.next_offset == offset
    assert again.lanes() == index.lanes()
    assert [lane.count for lane in index.lanes()] == [
        sum(1 for kind in wanted.values() if kind & 7 == lane and not kind & 0x20) for lane in range(5)]
    index.truncate(cut)
    assert spread(index.select(0)[0]) == {offset: kind for offset, kind in wanted.items() if offset < cut}


def test_paging_by_limit_meets_every_run_once():
    index = rn.RunIndex(0)
    index.extend([number for offset in range(300) for number in (offset, 1, offset % 3)])
    seen, at = [], 0
    while at < 300:
        found, at = index.select(at, lane=1, limit=7)
        assert len(found) <= 21
        seen += found
        if not found:
            break
    assert seen[::3] == list(range(1, 300, 3))


def test_lanes_of_an_empty_index():
    assert rn.RunIndex(5).lanes() == [Lane(0, -1)] * 5
    assert rn.RunIndex(5).next_offset == 5 and rn.RunIndex(5).select(7) == ([], 7)

"""The run index of a live segment: saved in blocks, closed with a footer, read again."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gq_logd.derived import Growing, runs_from
from gq_logd.pool import FilePool
from gq_logd.segments import lanes_of
from gq_proto import codec
from gq_proto import runs as rn
from gq_proto.record import CONTROL, DELAYED, kind_of
from gq_proto.segment import Derived, Lane, pack_lanes, read_derived, unpack_lanes
from gq_run.disk import Disk

BASE = 100
KINDS = [kind_of(0, 2), kind_of(0, 0), kind_of(CONTROL, 2), kind_of(DELAYED, 2), kind_of(0, 4)]
pieces = st.lists(st.tuples(st.integers(1, 5), st.sampled_from(KINDS)), max_size=25)


def flat(pieces: list[tuple[int, int]], offset: int) -> list[int]:
    out: list[int] = []
    for count, kind in pieces:
        rn.append_run(out, offset, count, kind)
        offset += count
    return out


def spread(packed: bytes | bytearray) -> dict[int, int]:
    runs = codec.select_runs(packed, BASE, 0, 2**62)[0]
    return {offset + n: kind for offset, count, kind in rn.triples(runs) for n in range(count)}


@given(st.lists(pieces, max_size=6), st.sets(st.integers(0, 5)))
def test_saved_in_blocks_and_read_again(tmp_path_factory, batches, saved_after):
    path = str(tmp_path_factory.mktemp("runs") / "0.runs")
    pool, growing, offset, wanted = FilePool(Disk(), 2), Growing(Derived.RUNS, BASE), BASE, {}
    for number, batch in enumerate(batches):
        runs = flat(batch, offset)
        growing.extend_runs(runs)
        wanted |= {low + n: kind for low, count, kind in rn.triples(runs) for n in range(count)}
        offset += rn.count(runs)
        if number in saved_after:
            growing.flush(pool, path, offset, offset)
    lanes = lanes_of(growing.packed, BASE)
    growing.flush(pool, path, offset, offset, pack_lanes(lanes, BASE))
    found = read_derived(Path(path).read_bytes(), Derived.RUNS, BASE)
    assert spread(found.payload) == spread(growing.packed) == wanted
    assert found.next_offset == offset and not found.damaged and unpack_lanes(found.footer or b"", BASE) == lanes
    mine = [[o for o, kind in wanted.items() if kind & 7 == lane and not kind & 0x20] for lane in range(5)]
    assert lanes == [Lane(len(offsets), min(offsets, default=-1)) for offsets in mine]


@given(pieces, st.integers(BASE, BASE + 140))
def test_entries_from_an_offset_on(pieces, offset):
    packed = bytearray()
    codec.extend_runs(packed, BASE, flat(pieces, BASE))
    whole = spread(packed)
    assert spread(runs_from(packed, BASE, offset)) == {o: kind for o, kind in whole.items() if o >= offset}


def test_entries_behind_a_hole():
    packed = bytearray()
    codec.extend_runs(packed, BASE, [100, 3, 2, 110, 4, 2])
    assert [spread(runs_from(packed, BASE, offset)) for offset in (102, 105, 112)] == [
        {102: 2, 110: 2, 111: 2, 112: 2, 113: 2}, {110: 2, 111: 2, 112: 2, 113: 2}, {112: 2, 113: 2}]


def test_nothing_yet():
    assert lanes_of(b"", BASE) == [Lane(0, -1)] * 5 and runs_from(b"", BASE, BASE) == b""

"""Names and derived files: blocks survive a torn tail, everything else is found out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_proto import segment as s
from gq_proto.segment import Derived

KINDS = list(Derived)


def a_file(kind, base=40, blocks=((2, 100, 42), (3, 250, 45)), footer=None):
    raw, crc = s.derived_header(kind, base)
    payload = bytes(range(200))
    for entries, position, following in blocks:
        block, crc = s.derived_block(crc, payload[: entries * kind.entry.size], position, following)
        raw += block
    if footer is not None:
        block, crc = s.derived_block(crc, footer, 300, 50, footer=True)
        raw += block
    return raw


def test_names():
    assert s.segment_name(42) == "00000000000000000042.log"
    assert s.segment_name(42, ".index") == "00000000000000000042.index"
    assert s.base_offset_of(s.segment_name(2**63 - 1)) == 2**63 - 1
    for name in ("42.log", "0000000000000000004x.log", "00000000000000000042.index", "00000000000000000042",
                 "99999999999999999999.log",
                 "0000000000000000004\u0664.log", "", ".log"):
        assert s.base_offset_of(name) is None
    assert s.base_offset_of("00000000000000000042.runs", ".runs") == 42


@pytest.mark.parametrize("kind", KINDS)
def test_cut_at_each_position_keeps_whole_blocks(kind):
    raw = a_file(kind)
    sizes = [16, 16 + 28 + 2 * kind.entry.size, len(raw)]
    for cut in range(len(raw) + 1):
        got = s.read_derived(raw[:cut], kind, 40)
        whole = [size for size in sizes if size <= cut]
        assert got.size == (whole[-1] if whole else 0)
        assert (got.position, got.next_offset) == [(0, 40), (0, 40), (100, 42), (250, 45)][len(whole)]
        assert got.damaged == (cut not in (0, *sizes))
        assert got.payload == bytes(range(200))[: 2 * kind.entry.size] * (len(whole) > 1) + bytes(range(200))[
            : 3 * kind.entry.size] * (len(whole) > 2)


@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_bit_is_found(kind):
    raw = a_file(kind, footer=b"end")
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        got = s.read_derived(bytes(damaged), kind, 40)
        assert got.damaged and got.size <= bit // 8 and got.footer is None


def test_after_a_torn_tail_the_file_goes_on():
    whole, torn = a_file(Derived.INDEX), a_file(Derived.INDEX)[:-1]
    got = s.read_derived(torn, Derived.INDEX, 40)
    block, _ = s.derived_block(got.crc, bytes(range(24)), 250, 45)
    assert torn[: got.size] + block == whole
    fresh = s.read_derived(b"", Derived.INDEX, 40)
    assert (fresh.size, fresh.crc, fresh.damaged) == (0, s.derived_header(Derived.INDEX, 40)[1], False)


def test_another_files_bytes_are_not_taken():
    raw = a_file(Derived.INDEX)
    assert s.read_derived(raw, Derived.INDEX, 41).size == 0
    assert s.read_derived(raw, Derived.TIMEINDEX, 40).size == 0
    other = a_file(Derived.INDEX, base=7)
    spliced = raw[:16] + other[16:]
    assert s.read_derived(spliced, Derived.INDEX, 40).size == 16
    first, second = raw[16:60], raw[60:]
    assert s.read_derived(raw[:16] + second + first, Derived.INDEX, 40).size == 16


def test_a_footer_ends_the_file():
    raw = a_file(Derived.RUNS, footer=b"f" * 40)
    got = s.read_derived(raw, Derived.RUNS, 40)
    assert (got.footer, got.position, got.next_offset, got.damaged) == (b"f" * 40, 300, 50, False)
    assert s.read_derived(raw + b"x", Derived.RUNS, 40).damaged


def test_blocks_must_not_go_back():
    assert s.read_derived(a_file(Derived.DUE, blocks=((1, 100, 42), (1, 99, 43))), Derived.DUE, 40).position == 100
    assert s.read_derived(a_file(Derived.DUE, blocks=((1, 100, 42), (1, 101, 41))), Derived.DUE, 40).position == 100


@given(st.sampled_from(KINDS), st.binary(max_size=300), st.integers(0, 100))
def test_any_bytes(kind, junk, cut):
    got = s.read_derived(a_file(kind)[:cut] + junk, kind, 40)
    assert got.size <= cut + len(junk) and len(got.payload) % kind.entry.size == 0


numbers = st.integers(0, 2**62)


@given(st.sets(st.integers(0, 40)), st.integers(0, 42), st.integers(0, 42), st.integers(0, 9))
def test_due_entries_are_found_by_offset(offsets, low, high, limit):
    payload = s.pack_due([number for offset in sorted(offsets) for number in (offset, 1000 - offset)])
    expected = [offset for offset in sorted(offsets) if low <= offset < high][:limit]
    assert s.due_within(payload, low, high, limit) == [number for offset in expected for number in (offset, 1000 - offset)]


@given(st.lists(numbers), st.lists(st.tuples(numbers, st.integers(0, 2**32 - 1))))
def test_entries(due, pairs):
    due = due[: len(due) // 2 * 2]
    assert s.unpack_due(s.pack_due(due)) == due
    times = [number for timestamp, relative in pairs for number in (timestamp, relative + 40)]
    assert s.unpack_times(s.pack_times(times, 40), 40) == times
    ranges = [number for pair in pairs for number in pair]
    assert s.unpack_ranges(s.pack_ranges(ranges)) == ranges


def test_footers():
    lanes = [s.Lane(0, -1), s.Lane(3, 40), s.Lane(1, 45), s.Lane(0, -1), s.Lane(2**32 - 1, 41)]
    assert s.unpack_lanes(s.pack_lanes(lanes, 40), 40) == lanes
    assert s.unpack_lanes(b"x", 40) is None
    assert s.unpack_max_timestamp(s.pack_max_timestamp(5)) == 5
    assert s.unpack_max_timestamp(b"") is None

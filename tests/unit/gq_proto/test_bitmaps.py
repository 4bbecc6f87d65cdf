from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from gq_groupd.acks import Acked
from gq_proto import bitmaps

OFFSETS = st.sets(st.integers(0, 300))
RANGE = st.tuples(st.integers(0, 300), st.integers(0, 60)).map(lambda r: (r[0], r[0] + r[1]))


def flat(offsets: set[int]) -> list[int]:
    ranges: list[int] = []
    for offset in sorted(offsets):
        if ranges and ranges[-2] + ranges[-1] == offset:
            ranges[-1] += 1
        else:
            ranges += (offset, 1)
    return ranges


@given(OFFSETS)
def test_ranges_of_a_bitmap_and_back(offsets: set[int]) -> None:
    ranges = bitmaps.ranges_of(BitMap64(offsets))
    assert ranges == flat(offsets)
    assert set(bitmaps.bitmap_of(ranges)) == offsets


@given(OFFSETS)
def test_long_bitmaps_are_walked_by_runs_with_the_same_answer(offsets: set[int]) -> None:
    if offsets:
        assert bitmaps._long_ranges(BitMap64(offsets), min(offsets), 10**6) == flat(offsets)


@given(OFFSETS)
def test_what_is_told_is_heard(offsets: set[int]) -> None:
    ranges = flat(offsets)
    for given_ in (ranges, array("q", ranges)):
        told = bitmaps.tell(given_)
        assert isinstance(told, bytes) == (len(ranges) > 8)
        heard, bitmap = bitmaps.heard(told)
        assert heard == ranges and set(bitmap) == offsets
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=bitmaps.Told) == told


def test_what_does_not_ascend_is_told_number_by_number() -> None:
    ranges = [x for low in range(40, 0, -2) for x in (low, 1)]
    assert bitmaps.tell(ranges) == ranges == bitmaps.tell(array("q", ranges))
    assert bitmaps.heard(ranges)[1] == BitMap64(range(2, 41, 2))
    with pytest.raises(ValueError):
        bitmaps.heard(b"nobody told this")


def test_only_the_lowest_ranges_when_limited() -> None:
    assert bitmaps.ranges_of(BitMap64([1, 3, 5, 6]), 2) == [1, 1, 3, 1]


@given(OFFSETS, st.integers(0, 320))
def test_next_and_end_of_run(offsets: set[int], low: int) -> None:
    bitmap = BitMap64(offsets)
    assert bitmaps.next_in(bitmap, low) == min((o for o in offsets if o >= low), default=None)
    end = low
    while end in offsets:
        end += 1
    assert bitmaps.run_end(bitmap, low) == end


@given(st.lists(RANGE, max_size=6), RANGE)
def test_clipping_splits_into_inside_and_outside(pairs: list[tuple[int, int]], span: tuple[int, int]) -> None:
    ranges = [x for low, high in pairs if low < high for x in (low, high - low)]
    wanted = {o for low, high in pairs for o in range(low, high)}
    inside, outside = bitmaps.clipped(ranges, *span)
    assert set(inside) == {o for o in wanted if span[0] <= o < span[1]}
    assert set(bitmaps.bitmap_of(outside)) == {o for o in wanted if not span[0] <= o < span[1]}


def test_clipping_never_fills_a_hostile_range() -> None:
    inside, outside = bitmaps.clipped([0, 2**61], 10, 20)
    assert list(inside) == list(range(10, 20)) and outside == [0, 10, 20, 2**61 - 20]


@given(st.lists(RANGE, max_size=4), st.integers(0, 100))
def test_first_of_ranges(pairs: list[tuple[int, int]], n: int) -> None:
    ranges = [x for low, high in pairs if low < high for x in (low, high - low)]
    order = [o for low, high in pairs for o in range(low, high)]
    got = bitmaps.first_of(ranges, n)
    assert [o for low, c in zip(got[::2], got[1::2]) for o in range(low, low + c)] == order[:n]


OPS = st.lists(st.tuples(st.sampled_from(["add", "update", "remove", "cut", "settle"]), RANGE), max_size=25)


@given(st.integers(0, 50), OPS)
def test_acked_against_a_plain_set(start: int, ops: list[tuple[str, tuple[int, int]]]) -> None:
    acked, twin = Acked(start), set(range(start))
    for op, (low, high) in ops:
        if op == "add" and low < high:
            acked.add(low, high)
            twin |= set(range(low, high))
        elif op == "update" and low < high:
            acked.update(bitmaps.bitmap_between(low, high))
            twin |= set(range(low, high))
        elif op == "remove":
            acked.remove(low, high)
            twin -= set(range(low, high))
        elif op == "cut":
            acked.cut(low)
            twin = {o for o in twin if o < low}
        elif op == "settle":
            acked.settle_below(low)
            twin |= set(range(low))
        assert {o for o in range(400) if o in acked} == twin
        assert acked.below not in acked.ahead and not (acked.ahead and acked.ahead.min() < acked.below)
        left = acked.open_in(low, high)
        assert (set(range(max(low, acked.below), high)) if left is None else set(left)) == set(range(low, high)) - twin


def test_state_grows_with_holes_not_with_backlog() -> None:
    acked = Acked()
    for low in range(0, 2_000_000, 500):
        acked.add(low, low + 500)
    assert acked.below == 2_000_000 and not acked.ahead
    acked.add(3_000_000, 5_000_000)
    acked.ahead.run_optimize()
    assert len(acked.ahead.serialize()) < 1_000

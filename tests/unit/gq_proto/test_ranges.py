"""Ranges against plain sets of offsets."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_proto import ranges as g
from gq_proto.errors import BadRequest

sets = st.sets(st.integers(0, 40))


def test_examples():
    assert g.of_offsets([3, 1, 2, 9]) == [1, 3, 9, 1]
    assert g.subtract([0, 10], [2, 3, 20, 1]) == [0, 2, 5, 5]
    assert g.normal([(5, 7), (1, 5), (9, 9)]) == [1, 6]
    assert list(g.pairs([1, 2, 5, 1])) == [(1, 3), (5, 6)]


@given(sets, sets)
def test_as_sets(a, b):
    one, other = g.of_offsets(a), g.of_offsets(b)
    assert g.union(one, other) == g.of_offsets(a | b)
    assert g.intersect(one, other) == g.of_offsets(a & b)
    assert g.subtract(one, other) == g.of_offsets(a - b)
    assert g.count(one) == len(a)
    assert {offset for offset in range(-1, 42) if g.contains(one, offset)} == a
    g.check_ranges(one)


@given(sets, st.integers(-3, 45), st.integers(-3, 45))
def test_clip(a, low, high):
    assert g.clip(g.of_offsets(a), low, high) == g.of_offsets(offset for offset in a if low <= offset < high)


@pytest.mark.parametrize("bad", [[1], [1, 0], [1, -1], [-1, 1], [5, 2, 6, 1], [5, 1, 1, 1], [2**63 - 1, 1]])
def test_lists_from_outside(bad):
    with pytest.raises(BadRequest):
        g.check_ranges(bad)


@given(sets)
def test_packed(a):
    ranges = array("q", g.of_offsets(a))
    assert g.unpack(g.pack(ranges)) == ranges and len(g.pack(ranges)) == 8 * len(ranges)
    with pytest.raises(ValueError):
        g.unpack(g.pack(ranges) + b"\0")


def test_packed_bytes():
    assert g.pack(array("q", [258, 1])) == bytes([2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])

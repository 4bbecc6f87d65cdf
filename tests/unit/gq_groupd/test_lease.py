"""Places in a lease against walking its messages one by one, in ranges that ascend and in others."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from gq_groupd.lease import Lease
from gq_proto.bitmaps import tell

PART: Any = None        # of no matter here


@st.composite
def leases(draw: st.DrawFn) -> Lease:
    pieces = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=6))     # gap, count
    at, ranges = 0, list[tuple[int, int]]()
    for gap, count in pieces:
        ranges.append((at + gap, count))
        at += gap + count
    order = ranges if draw(st.booleans()) else draw(st.permutations(ranges))
    return Lease(1, 2, PART, "m", 1, 1, [number for low, count in order for number in (low, count)], -1, False, 1_000, 0)


def offsets(lease: Lease) -> list[int]:
    """In the order of serving."""
    return [offset for low, count in zip(lease.ranges[::2], lease.ranges[1::2]) for offset in range(low, low + count)]


@given(leases(), st.data())
def test_how_far_some_of_its_messages_reach(lease: Lease, data: st.DataObject) -> None:
    served = offsets(lease)
    some = data.draw(st.one_of(st.just(served), st.lists(st.sampled_from(served), min_size=1)))
    assert lease.total == len(served)
    assert lease.reach_of(BitMap64(some)) == 1 + max(served.index(offset) for offset in some)


@given(leases(), st.data())
def test_where_its_first_open_message_stands(lease: Lease, data: st.DataObject) -> None:
    served = offsets(lease)
    some = data.draw(st.lists(st.sampled_from(served)))
    lease.open = BitMap64(some)
    assert lease.first_open() == min((served.index(offset) for offset in some), default=lease.total)


@given(leases(), st.integers(0, 35))
def test_its_first_messages_and_what_is_not_started(lease: Lease, n: int) -> None:
    served = offsets(lease)
    assert sorted(served[:n]) == list(lease.first(n))
    lease.progress(n, 5)
    assert sorted(served[n:]) == list(lease.unstarted())


@given(leases(), st.data())
def test_what_it_sheds_when_all_of_it_is_acked_is_made_again_when_somebody_asks(lease: Lease, data: st.DataObject) -> None:
    served, ranges = offsets(lease), list(lease.ranges)
    lease.told = tell(ranges)
    some = data.draw(st.one_of(st.just(served), st.lists(st.sampled_from(served))))
    lease.acked |= BitMap64(some)
    held = lease.acked
    lease.shed()
    assert (lease.acked is held) == (len(set(some)) < lease.total), "kept while an ack may still come"
    assert list(lease.ranges) == ranges and set(lease.acked) == set(some)
    lease.acked |= BitMap64(served[:1])
    assert set(lease.acked) == {*some, *served[:1]}


def test_a_lease_of_which_the_journal_is_not_at_hand_sheds_nothing() -> None:
    lease = Lease(1, 2, PART, "m", 1, 1, [5, 3], -1, False, 1_000, 0)
    lease.acked |= lease.open
    lease.shed()
    assert lease.ranges == [5, 3] and set(lease.acked) == {5, 6, 7}

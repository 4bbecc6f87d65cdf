"""Range arithmetic of leases against sets, and what a held lease says of itself."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gq_client.consumer_lease import (
    HeldLease,
    count,
    intersect,
    is_ascending,
    joined,
    position_of,
    skip,
    sorted_ranges,
    subtract,
    to_ranges,
)
from gq_proto.messages import Lease, Op, Settle1

OFFSETS = st.lists(st.integers(0, 60), max_size=40)


class Hub:
    asleep = False


def held(*ranges: int, partition: int = 0, lane: int = -1) -> HeldLease:
    return HeldLease(Lease(1, 2, 3, "t", partition, 5, 1, list(ranges), 1000, lane), Hub(), 0, 9)  # type: ignore[arg-type]


def expand(ranges: list[int]) -> list[int]:
    return [o for low, n in zip(ranges[::2], ranges[1::2], strict=True) for o in range(low, low + n)]


@given(OFFSETS.filter(bool))
def test_to_ranges(offsets: list[int]) -> None:
    ranges = to_ranges(offsets)
    assert expand(ranges) == sorted(set(offsets))
    assert len(ranges) == len(to_ranges(sorted(set(offsets)))), "neighbours are joined"


@given(OFFSETS, st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12))
def test_subtract_and_intersect(offsets: list[int], other: list[tuple[int, int]]) -> None:
    ranges = to_ranges(offsets) if offsets else []
    flat = [x for pair in other for x in pair]
    assert expand(subtract(ranges, flat)) == sorted(set(offsets) - set(expand(flat)))
    joined_other = to_ranges(expand(flat)) if flat else []
    assert expand(intersect(ranges, joined_other)) == sorted(set(offsets) & set(expand(flat)))


@given(OFFSETS.filter(bool), st.integers(0, 50), st.randoms())
def test_order_of_a_lease(offsets: list[int], n: int, rng: Any) -> None:
    ranges = to_ranges(offsets)
    shuffled = [x for pair in sorted(zip(ranges[::2], ranges[1::2], strict=True), key=lambda _: rng.random()) for x in pair]
    order = expand(shuffled)
    assert expand(skip(shuffled, n)) == order[n:]
    assert [position_of(shuffled, o) for o in order] == list(range(len(order)))
    assert position_of(shuffled, 1000) == -1
    assert sorted_ranges(shuffled) == ranges and is_ascending(ranges)
    lease = held(*shuffled)
    assert (lease.low, lease.high, lease.count) == (min(order), max(order) + 1, len(order)) and count(shuffled) == len(order)


@given(OFFSETS.filter(bool), OFFSETS.filter(bool), st.tuples(st.integers(-2, 1), st.integers(-2, 1)))
def test_leases_overlap_where_they_hold_the_same_messages(one: list[int], other: list[int], lanes: tuple[int, int]) -> None:
    older, newer = held(*to_ranges(one), lane=lanes[0]), held(*to_ranges(other), lane=lanes[1])
    apart = lanes[0] != lanes[1] and min(lanes) >= 0
    assert older.overlaps(newer) == newer.overlaps(older) == (bool({*one} & {*other}) and not apart)
    assert not older.overlaps(held(*to_ranges(one), partition=1))


def test_ops_are_joined_where_they_are_the_same() -> None:
    ops = [Settle1(Op.NACK, 1, [3, 1], 5), Settle1(Op.NACK, 1, [4, 1], 5), Settle1(Op.NACK, 1, [5, 1], 6),
           Settle1(Op.ACK, 1, [6, 1])]
    assert [(op.op, op.ranges, op.arg_ms) for op in joined(ops)] == [
        (Op.NACK, [3, 1, 4, 1], 5), (Op.NACK, [5, 1], 6), (Op.ACK, [6, 1], -1)]
    assert ops[0].ranges == [3, 1], "the originals stay as they are"


def test_acking_twice_counts_once() -> None:
    lease = held(0, 4)
    lease.acked += [0, 1]
    assert [op.ranges for op in lease.take_ops()] == [[0, 2]]
    lease.acked += [1, 1, 2]
    lease.take_ops()
    assert lease.open == [3, 1]


def test_extending_leaves_it_open() -> None:
    lease = held(0, 2)
    lease.record(Op.EXTEND, 0, 1000, "", False)
    lease.record(Op.NACK, 1, -1, "", False)
    assert [op.op for op in lease.take_ops()] == [Op.EXTEND, Op.NACK]
    assert lease.open == [0, 1] and lease.decided == {1}

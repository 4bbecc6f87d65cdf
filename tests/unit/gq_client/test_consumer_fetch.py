"""Which stream a lease's bytes come from, and what is asked for."""

from typing import Any

from gq_client.consumer_ask import Ask
from gq_client.consumer_fetch import Fetcher
from gq_client.consumer_lease import HeldLease
from gq_proto.messages import Fetched, FetchReply, Kind, Lease
from tests.unit.gq_client.test_consumer_ahead import Hub, handed_out, records


class Owner:
    def __init__(self) -> None:
        self.asks: list[Ask] = []

    def send(self, ask: Ask) -> None:
        self.asks.append(ask)

    def give_back(self, held: HeldLease, now: float) -> None:
        raise AssertionError

    def drop(self, held: HeldLease) -> None:
        raise AssertionError

    def parts(self) -> list[tuple[int, int, list[int]]]:
        """(lane, offset, ranges) of what was asked since."""
        asks, self.asks = self.asks, []
        assert all(ask.kind == Kind.FETCH for ask in asks)
        return [(part.lane, part.offset, part.ranges) for ask in asks for part in ask.body.parts]


def lease(number: int, lane: int, *ranges: int) -> HeldLease:
    return HeldLease(Lease(number, 2, 3, "t", 0, 1, 1, list(ranges), 1, lane), Hub(), 0, 9)  # type: ignore[arg-type]


def fetcher(*leases: HeldLease) -> tuple[Fetcher, Owner, list[HeldLease]]:
    owner, queue = Owner(), list(leases)
    made = Fetcher(owner, queue, True)
    for held in leases:
        made.add(held, 0.0)
    return made, owner, queue


def answer(ask: Ask, data: bytes, next_offset: int) -> None:
    status = [0] * (len(ask.body.parts[0].ranges) // 2)
    reply = Fetched(0, "", 1, 0, 10**6, 10**6, next_offset, [], status, len(status))
    ask.then(0.0, FetchReply([reply]), [memoryview(data)], None)


def test_each_lane_is_read_ahead_by_itself() -> None:
    high, low = lease(1, 1, 5, 1, 9, 1), lease(2, 4, 0, 3)
    made, owner, queue = fetcher(high, low)
    made.pump(0.0)
    assert owner.parts() == [(-1, -1, [5, 1, 9, 1]), (-1, -1, [0, 3]), (1, 10, []), (4, 3, [])], "what is wanted now comes first"
    next_high: Any = lease(3, 1, 14, 1, 70, 2)
    queue.append(next_high)
    made.add(next_high, 0.0)
    assert next_high.streaming
    made.pump(0.0)
    assert not owner.parts(), "it comes with what is asked for already"


def test_bytes_that_are_there_before_the_lease_are_handed_out_at_once() -> None:
    first = lease(1, 1, 5, 1)
    made, owner, queue = fetcher(first)
    made.pump(0.0)
    [ahead] = [ask for ask in owner.asks if ask.body.parts[0].lane == 1]
    answer(ahead, records([8, 11, 40]), 50)
    held = lease(2, 1, 8, 1, 40, 1)
    queue.append(held)
    made.add(held, 0.0)
    made.pump(0.0)
    assert not held.todo and handed_out(held) == [8, 40]


def test_delayed_ones_are_fetched_by_ranges_and_disturb_no_stream() -> None:
    made, owner, queue = fetcher(lease(1, 0, 50, 1))
    made.pump(0.0)
    owner.parts()
    late = lease(2, -2, 3, 1, 60, 1)
    queue.append(late)
    made.add(late, 0.0)
    made.pump(0.0)
    assert owner.parts() == [(-1, -1, [3, 1, 60, 1])] and set(made.streams) == {(3, 0, 0)}


def test_when_priorities_begin_or_end_to_be_mixed_the_other_streams_go() -> None:
    made, _, _ = fetcher(lease(1, -1, 0, 5))
    assert set(made.streams) == {(3, 0, -1)}
    made.add(lease(2, 2, 5, 1), 0.0)
    made.add(lease(3, 0, 6, 1), 0.0)
    assert set(made.streams) == {(3, 0, 2), (3, 0, 0)}
    made.add(lease(4, -1, 7, 5), 0.0)
    assert set(made.streams) == {(3, 0, -1)}
    made.keep(set())
    assert not made.streams

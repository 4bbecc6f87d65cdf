"""The compiled accumulator against the pure one: same tickets, same calls to the owner, same bytes, same errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_proto import accumulator as a
from gq_proto import codec
from gq_proto.errors import BadRecord, Busy, GoQueueError, TooLarge, UnknownPartition

BOTH = [pytest.param((a.PureAccumulator, a.PureTicket), id="pure"), pytest.param((a.Accumulator, a.Ticket), id="selected")]


class Owner:
    """Seals what is full at once and notes everything."""

    def __init__(self, kind: tuple[Any, Any], partitions: int, batch_bytes: int, batch_messages: int) -> None:
        make, ticket = kind
        self.ticket = type("Mine", (ticket,), {"__slots__": ()})
        self.calls: list[Any] = []
        self.sealed: list[Any] = []
        self.names = iter(range(10**9))
        self.numbers = (7, 1)
        names = [next(self.names) for _ in range(partitions)]
        self.accumulator = make(self, self.ticket, names, batch_bytes, batch_messages, 1000)

    def wait(self) -> None:
        raise Busy("no room")

    def opened(self, partition: int) -> None:
        self.calls.append(("opened", partition))

    def full(self, partition: int) -> None:
        self.calls.append(("full", partition))
        self.seal(partition)

    def seal(self, partition: int) -> None:
        sealed = self.accumulator.seal(partition, next(self.names), *self.numbers, 5)
        if sealed:
            self.sealed.append((partition, *sealed))

    def add(self, *args: Any) -> Any:
        try:
            ticket = self.accumulator.add(*args)
        except GoQueueError as error:
            return type(error), str(error)
        assert type(ticket) is self.ticket
        return ticket.batch, ticket.index


keys = st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=10), st.just(memoryview(b"view")), st.just(b"k" * 65_535))
values = st.one_of(st.none(), st.binary(max_size=200), st.text(max_size=20), st.just(bytearray(b"array")), st.just(b"v" * 1001))
adds = st.tuples(st.just("add"), keys, values, st.integers(-2, 4), st.sampled_from([b"", codec.encode_headers([("a", b"1")])]),
                 st.integers(0, 5))
steps = st.lists(st.one_of(adds, st.tuples(st.just("seal"), st.integers(0, 3)), st.just(("grow",)), st.just(("gate", True)),
                           st.just(("gate", False))), max_size=60)


@given(steps, st.sampled_from([200, 500, 3000]), st.integers(1, 8))
def test_both_do_the_same(steps: list[Any], batch_bytes: int, batch_messages: int) -> None:
    pure, selected = (Owner(kind.values[0], 4, batch_bytes, batch_messages) for kind in BOTH)
    for what, *args in steps:
        for owner in (pure, selected):
            if what == "seal":
                owner.seal(*args)
            elif what == "grow":
                owner.accumulator.grow([next(owner.names)])
            elif what == "gate":
                owner.accumulator.gate = args[0]
        if what == "add":
            assert pure.add(*args) == selected.add(*args)
        assert pure.accumulator.size == selected.accumulator.size
        assert pure.accumulator.partitions == selected.accumulator.partitions
    assert pure.calls == selected.calls
    assert pure.sealed == selected.sealed


@pytest.mark.parametrize("kind", BOTH)
def test_a_batch_never_outgrows_its_limits_but_for_one_message(kind: Any) -> None:
    owner = Owner(kind, 1, 400, 4)
    for size in [10, 100, 100, 100, 100, 900, 1, 1, 1, 1, 1]:
        owner.add(b"k", b"v" * size)
    owner.seal(0)
    for _, _, data, count in owner.sealed:
        assert count == 1 or (len(data) <= 400 and count <= 4)
    assert sum(count for *_, count in owner.sealed) == 11
    assert [count for *_, count in owner.sealed] == [3, 2, 1, 4, 1]


@pytest.mark.parametrize("kind", BOTH)
def test_null_keys_take_turns_by_batch_and_keys_stay(kind: Any) -> None:
    owner = Owner(kind, 3, 10_000, 2)
    for _ in range(12):
        owner.add(None, b"")
    assert [partition for partition, *_ in owner.sealed] == [0, 1, 2, 0, 1, 2]
    for number in range(50):
        key = b"key-%d" % number
        batch, _ = owner.add(key, b"")
        owner.seal(codec.partition_of(key, 3))
        assert owner.sealed[-1][1] == batch


@pytest.mark.parametrize("kind", BOTH)
def test_errors_leave_everything_as_it_was(kind: Any) -> None:
    owner = Owner(kind, 2, 10_000, 100)
    owner.add(b"k", b"v", 1)
    before = owner.accumulator.size, owner.accumulator.count(1), len(owner.calls)
    for args, error in [((b"k" * 65_535, b""), TooLarge), ((b"", b"v" * 1001), TooLarge), ((b"", b"", 2), UnknownPartition),
                        ((b"", b"", -2), UnknownPartition), ((b"", b"", 0, b"", 5), BadRecord), ((1.5, b""), BadRecord),
                        ((b"", object()), BadRecord), (("\ud800", b""), BadRecord)]:
        assert owner.add(*args)[0] is error, args
    owner.accumulator.gate = True
    assert owner.add(b"k", b"v")[0] is Busy
    assert (owner.accumulator.size, owner.accumulator.count(1), len(owner.calls)) == before

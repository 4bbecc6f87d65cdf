"""A producer's batches against a model of logd: order, exactly once, and what happens when neither can be had."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gq_client.batch import Lane, ProducerOptions, renumbered
from gq_client.batches import ATTEMPT_S, SEQUENCES, Batcher, _distance
from gq_client.delivery import Delivery
from gq_proto import codec, limits
from gq_proto import messages as m
from gq_proto.errors import (
    BadConfig,
    BadRecord,
    Busy,
    Closed,
    DiskFull,
    Fenced,
    GoQueueError,
    NotLeader,
    SequenceGap,
    TimedOut,
    UnknownTopicId,
    error_of,
)
from gq_proto.messages import Kind
from tests.unit.gq_client.wire_fakes import LOGD, Line, news, topic


class Log:
    """One partition of logd: strict about sequences, remembers five batches a producer."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}

    def append(self, frame: bytes) -> m.Produced:
        data = bytearray(frame)
        stamped = codec.stamp(data, len(self.values), 1_000_000)
        batch, base = stamped.batch, len(self.values)
        if batch:
            following, window = self.producers.get(batch.producer_id, (0, []))
            for sequence, count, offset in window:
                if (sequence, count) == (batch.base_sequence, batch.count):
                    return m.Produced(0, "", offset, 1_000_000, 0, True)
            if batch.base_sequence != following:
                return m.Produced(SequenceGap.code, f"expected {following}, got {batch.base_sequence}")
            window = [*window[-4:], (batch.base_sequence, batch.count, base)]
            self.producers[batch.producer_id] = (following + batch.count) % SEQUENCES, window
        self.values += [record.value for record in codec.decode(bytes(data))]
        return m.Produced(0, "", base, 1_000_000)


class World:
    """A batcher over a hand-driven line, and the logs it writes to."""

    def __init__(self, partitions: int = 2, idempotent: bool = True, **options: Any) -> None:
        self.line = Line(topic(partitions=partitions), chance=0.5)
        self.options = ProducerOptions(**{"linger": 0.005, **options})
        self.batcher = Batcher(self.line.session, self, self.options, Delivery, 1 if idempotent else -1, 0 if idempotent else -1)
        self.lane = self.batcher.lane(self.line.routes.topic("t"))
        self.logs = {number: Log() for number in range(partitions)}
        self.ids = 100
        self.sent: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        self.tickets: list[tuple[int, Delivery]] = []
        self.full_calls = 0

    # the shell
    def wait(self) -> None:
        raise Busy("full")

    def opened(self, lane: Lane, partition: int) -> None:
        self.batcher.opened(self.line.now, lane, partition)

    def full(self, lane: Lane, partition: int) -> None:
        self.full_calls += 1
        self.batcher.seal(self.line.now, lane, partition)

    def await_batch(self, batch: Any, timeout: float | None = None) -> None:
        raise AssertionError("nothing waits here")

    def tell(self, batch: Any, call: Callable[[], Any]) -> None:
        raise AssertionError("nobody asks here")

    # the app
    def add(self, partition: int, value: bytes | None = None) -> Delivery:
        value = b"%d" % len(self.tickets) if value is None else value
        ticket: Delivery = self.lane.add(None, value, partition)
        self.sent[partition].append(value)
        self.tickets.append((partition, ticket))
        return ticket

    def batch(self, partition: int, count: int = 1) -> Delivery:
        """A sealed batch of `count` messages; the first one's delivery."""
        first, *_ = [self.add(partition) for _ in range(count)]
        self.batcher.seal(self.line.now, self.lane, partition)
        return first

    def step(self) -> None:
        self.batcher.step(self.line.now)
        self.line.run()

    def sleep(self, seconds: float) -> None:
        end = self.line.now + seconds
        while True:
            due = min(self.batcher.next_due, self.line.session.next_due)
            if due > end:
                break
            self.line.now = max(self.line.now, due)
            self.line.session.due(self.line.now)
            self.step()
            if due <= self.line.now and min(self.batcher.next_due, self.line.session.next_due) <= self.line.now:
                self.line.now += 0.001
        self.line.now = end

    # the daemons
    def answer(self, error: GoQueueError | None = None, lose: bool = False) -> Kind:
        """Serve the oldest request; `error` instead of serving it; `lose` the reply."""
        _, request, body, frames = self.line.sent[0]
        kind = Kind(request.kind)
        if kind == Kind.INIT_PRODUCER:
            self.ids += 1
            self.line.answer(m.InitProducerReply(self.ids, 0))
        elif kind == Kind.METADATA:
            self.line.answer(news(*self.line.routes.topics.values()))
        elif error:
            self.line.answer(m.ProduceReply([m.Produced(error.code, error.message) for _ in body.parts]))
        else:
            parts = [self.logs[part.partition].append(frame) for part, frame in zip(body.parts, frames, strict=True)]
            if lose:
                self.line.take()
            else:
                self.line.answer(m.ProduceReply(parts))
        self.step()
        return kind

    def settle(self) -> None:
        """Everything works from here on: until nothing is under way."""
        self.batcher.seal_all(self.line.now)
        self.step()
        for _ in range(2000):
            if self.line.sent:
                self.answer()
            elif self.batcher.bytes:
                self.sleep(0.5)
            else:
                return
        raise AssertionError("it does not come to rest")

    def check(self) -> None:
        """Exactly once, in order, and every delivery names the place."""
        for partition, log in self.logs.items():
            assert log.values == self.sent[partition]
        for partition, ticket in self.tickets:
            where = ticket.result()
            assert where.partition == partition
            assert self.logs[partition].values[where.offset] == self.sent[partition][where.offset]
        places = [(partition, ticket.result().offset) for partition, ticket in self.tickets]
        assert len(set(places)) == len(places)
        assert self.batcher.bytes == self.batcher.unfinished == 0


def test_lingering_batches_of_one_leader_travel_together() -> None:
    world = World()
    for partition in (0, 1, 0):
        world.add(partition)
    world.step()
    assert not world.line.sent
    world.sleep(0.006)
    assert len(world.line.sent) == 1
    _, _, body, frames = world.line.sent[0]
    assert [part.partition for part in body.parts] == [0, 1] and len(frames) == 2 and body.acks == m.Acks.LEADER
    world.settle()
    world.check()


def test_at_most_five_are_under_way_per_partition() -> None:
    world = World()
    for _ in range(9):
        world.batch(0)
    world.batch(1)
    world.step()
    parts = [part.partition for _, _, body, _ in world.line.sent for part in body.parts]
    assert parts.count(0) == limits.IN_FLIGHT_BATCHES_MAX and parts.count(1) == 1
    world.answer()
    parts = [part.partition for _, _, body, _ in world.line.sent for part in body.parts]
    assert parts.count(0) == limits.IN_FLIGHT_BATCHES_MAX
    world.settle()
    world.check()


def test_a_lost_reply_the_same_bytes_again_and_the_first_offset() -> None:
    world = World()
    world.batch(0, 3)
    world.step()
    first = world.line.sent[0][3][0]
    world.answer(lose=True)
    world.line.break_line(LOGD)
    world.answer()
    world.sleep(0.1)
    assert world.line.sent[0][3][0] == first
    world.settle()
    world.check()


def test_a_reply_that_never_comes_is_not_waited_for_longer_than_an_attempt() -> None:
    world = World()
    world.batch(0)
    world.step()
    world.answer(lose=True)
    world.sleep(ATTEMPT_S + 0.1)
    assert world.line.kinds() == [Kind.PRODUCE]
    world.settle()
    world.check()


@pytest.mark.parametrize("error", [Busy("b"), DiskFull("d"), NotLeader("n")])
def test_after_a_refusal_the_order_stays(error: GoQueueError) -> None:
    world = World()
    for _ in range(4):
        world.batch(0, 2)
    world.step()
    world.answer(error)
    assert [part.partition for _, _, body, _ in world.line.sent for part in getattr(body, "parts", [])] == [0, 0, 0]
    world.settle()
    world.check()


def test_nothing_is_sent_behind_a_failure_until_all_is_answered() -> None:
    world = World()
    for _ in range(8):
        world.batch(0)
    world.step()
    world.answer(Busy("b"))
    for left in (3, 2, 1):
        world.answer()                       # gaps
        assert len(world.line.sent) == left
    assert not world.logs[0].values
    world.settle()
    world.check()


def test_another_partition_goes_on_meanwhile() -> None:
    world = World()
    world.batch(0)
    world.step()
    world.answer(DiskFull("d"))
    world.batch(1)
    world.step()
    world.answer()
    assert world.logs[1].values and not world.logs[0].values


def test_a_batch_refused_for_good_gives_its_numbers_to_the_next() -> None:
    world = World()
    bad = world.batch(0, 2)
    good = [world.batch(0, 3) for _ in range(3)]
    world.step()
    world.answer(BadRecord("no"))
    world.settle()
    assert isinstance(bad.exception(), BadRecord) and bad.done()
    assert [ticket.result().offset for ticket in good] == [0, 3, 6]
    assert world.logs[0].producers.keys() == {1}


def test_out_of_time_before_it_was_written_fails_and_gives_its_numbers_to_the_next() -> None:
    world = World(timeout=2.0)
    late = world.batch(0)
    world.step()
    end = world.line.now + 2.0
    while world.line.now < end:
        if world.line.sent:
            world.answer(DiskFull("full"))
        world.sleep(0.05)
    assert isinstance(late.exception(), DiskFull)
    fresh = world.batch(0)
    world.settle()
    assert fresh.result().offset == 0 and world.logs[0].producers.keys() == {1}


def test_out_of_time_with_unknown_fate_is_timed_out_and_still_made_known() -> None:
    world = World(timeout=3.0)
    late = world.batch(0)
    world.step()
    world.answer(lose=True)                  # it was written
    world.sleep(ATTEMPT_S + 1)
    assert isinstance(late.exception(), TimedOut) and world.batcher.unfinished == 0
    assert world.batcher.bytes
    fresh = world.batch(0)
    world.settle()
    assert fresh.result().offset == 1 and len(world.logs[0].values) == 2
    assert world.batcher.bytes == 0


def test_a_producer_that_logd_forgot_takes_a_new_id() -> None:
    world = World()
    world.batch(0)
    world.settle()
    world.logs[0].producers.clear()
    world.batch(0)
    world.batch(0)
    world.batch(1)
    world.settle()
    world.check()
    assert set(world.logs[0].producers) == {101} and set(world.logs[1].producers) == {1}


def test_a_fenced_producer_takes_a_new_id() -> None:
    world = World()
    world.batch(0)
    world.step()
    world.answer(Fenced("f"))
    world.settle()
    world.check()
    assert set(world.logs[0].producers) == {101}


def test_a_deleted_topic_fails_what_was_for_it() -> None:
    world = World()
    first, open_one = world.batch(0), world.add(1)
    world.step()
    world.line.answer(m.ProduceReply([m.Produced(UnknownTopicId.code, "gone")]))
    world.line.answer(news(version=2, deleted=(5,)))
    world.sleep(0.2)
    assert isinstance(first.exception(), UnknownTopicId) and isinstance(open_one.exception(), UnknownTopicId)
    assert "t" not in world.batcher.lanes and "t" not in world.batcher.adds


def test_a_topic_that_logd_does_not_know_yet_is_waited_for() -> None:
    world = World()
    world.batch(0)
    world.step()
    world.line.answer(m.ProduceReply([m.Produced(UnknownTopicId.code, "not yet")]))
    world.settle()
    world.check()


def test_memory_is_bounded_by_a_gate() -> None:
    world = World(batch_bytes=1000, buffer_bytes=5000)
    for _ in range(100):
        if world.batcher.gated:
            break
        world.add(0, b"x" * 400)
    assert world.batcher.gated and 5000 <= world.batcher.bytes < 7000
    with pytest.raises(Busy):
        world.lane.add(None, b"", 0)
    world.step()
    world.answer()
    assert not world.batcher.gated
    world.settle()
    world.check()


def test_more_partitions_are_taken_up() -> None:
    world = World(partitions=1)
    world.batch(0)
    world.settle()
    world.line.routes.merge(news(topic(partitions=3, version=2), version=2))
    world.sleep(31.0)
    world.logs[2], world.sent[2] = Log(), []
    world.batch(2)
    world.settle()
    assert world.logs[2].values == world.sent[2]


def test_without_idempotence_one_is_under_way_and_order_holds() -> None:
    world = World(idempotent=False)
    for _ in range(3):
        world.batch(0)
    world.step()
    assert len(world.line.sent) == 1
    world.answer(Busy("b"))
    world.settle()
    world.check()
    assert not world.logs[0].producers


def test_without_acks_it_is_done_when_sent() -> None:
    world = World(idempotent=False, acks="none")
    ticket = world.batch(0)
    world.step()
    assert ticket.result() == (0, -1, 0) and world.batcher.bytes == 0


def test_abandoned_batches_fail() -> None:
    world = World()
    tickets = [world.batch(0), world.add(1)]
    world.batcher.abandon(Closed("c"))
    assert all(isinstance(ticket.exception(), Closed) for ticket in tickets)


def test_sequences_wrap() -> None:
    world = World()
    home = world.lane.homes[0]
    home.next_sequence = SEQUENCES - 3
    world.logs[0].producers[1] = (SEQUENCES - 3, [])
    for _ in range(4):
        world.batch(0, 2)
    world.step()
    world.answer(Busy("b"))
    world.settle()
    world.check()
    assert world.logs[0].producers[1][0] == 5
    assert _distance(1, SEQUENCES - 1) == 2 and _distance(SEQUENCES - 1, 1) == -2


@given(st.binary(max_size=50) | st.none(), st.binary(max_size=200) | st.none(), st.booleans(), st.integers(1, 3))
def test_renumbered_is_as_if_sealed_so(key: bytes | None, value: bytes | None, headers: bool, count: int) -> None:
    def sealed(*numbers: int) -> bytes:
        builder = codec.BatchBuilder()
        for _ in range(count):
            builder.add(key, value, codec.encode_headers([("a", b"b")]) if headers else b"")
        return bytes(builder.seal(*numbers))
    assert renumbered(sealed(1, 2, 3), 4, 5, 6) == sealed(4, 5, 6)


@pytest.mark.parametrize("wrong", [{"acks": "some"}, {"compress": "lz4"}, {"batch_messages": 0}, {"batch_bytes": 1 << 30},
                                   {"linger": -1}, {"timeout": 0}, {"buffer_bytes": 1}])
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadConfig):
        ProducerOptions(**wrong)


ERRORS = [Busy.code, DiskFull.code, NotLeader.code, TimedOut.code]
STEPS = st.lists(st.one_of(
    st.tuples(st.just("add"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("answer")), st.tuples(st.just("answer")),
    st.tuples(st.just("refuse"), st.sampled_from(ERRORS)),
    st.tuples(st.just("lose")), st.tuples(st.just("break"), st.booleans()),
    st.tuples(st.just("sleep"), st.sampled_from([0.01, 0.3, 11.0]))), max_size=60)


# The oldest one's second reply is lost, those behind it are answered: one more, and logd would have forgotten it.
FORGOTTEN = [("add", 0, 1)] * 5 + [("sleep", 11.0)] + [("answer",)] * 4 + [("add", 0, 1), ("answer",), ("lose",)]


@settings(max_examples=300)
@given(STEPS)
@example(FORGOTTEN)
def test_whatever_happens_everything_is_written_once_and_in_order(steps: list[tuple[Any, ...]]) -> None:
    """Refusals, lost replies, broken connections whose requests were or were not served."""
    world = World(timeout=100_000.0)
    for what, *args in steps:
        if what == "add":
            world.batch(*args)
            world.step()
        elif what == "sleep":
            world.sleep(args[0])
        elif not world.line.sent:
            continue
        elif what == "answer":
            world.answer()
        elif what == "refuse":
            world.answer(error_of(args[0], "by chance"))
        elif what == "lose":
            world.answer(lose=world.line.kinds()[0] == Kind.PRODUCE)
        elif what == "break":
            _serve_some(world, all_of_them=args[0])
            world.line.break_line(LOGD)
            world.step()
    world.settle()
    world.check()


def _serve_some(world: World, all_of_them: bool) -> None:
    """What was on its way when the connection broke may have been served."""
    waiting = [(body, frames) for endpoint, request, body, frames in world.line.sent if request.kind == Kind.PRODUCE]
    for body, frames in waiting if all_of_them else waiting[: len(waiting) // 2]:
        for part, frame in zip(body.parts, frames, strict=True):
            world.logs[part.partition].append(frame)


def gap_first(world: World) -> None:
    """Two batches are sent, the second is answered first: with a gap, since logd has not taken the first."""
    world.batch(0)
    world.batch(0)
    world.step()
    world.line.sent.reverse()
    world.answer()


@pytest.mark.parametrize("written", [False, True])
def test_a_gap_behind_a_batch_that_is_not_answered_is_that_ones(written: bool) -> None:
    """It timed out, and was written after all, or not: once and in order all the same, and with the producer's numbers."""
    world = World()
    gap_first(world)
    assert [sent[1].kind for sent in world.line.sent] == [Kind.PRODUCE], "no new id: nothing says that logd forgot"
    if written:
        world.answer(lose=True)
    else:
        world.line.sent.clear()
    world.sleep(11)
    world.settle()
    world.check()
    assert set(world.logs[0].producers) == {1}


def test_order_holds_when_a_new_id_comes_before_the_first_answer() -> None:
    world = World()
    world.batch(0)
    world.settle()
    world.logs[0].producers.clear()
    for _ in range(4):
        world.batch(0)
    world.step()
    first, *others = world.line.sent
    world.line.sent[:] = [*others, first]
    for _ in others:
        world.answer()
    world.answer()
    world.settle()
    world.check()
    assert set(world.logs[0].producers) == {101}

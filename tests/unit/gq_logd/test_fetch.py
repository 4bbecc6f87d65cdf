"""Fetch by offset and by ranges, long polls, what is hidden; Runs, Due and markers."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gq_proto import codec, control, messages
from gq_proto import ranges as rng
from gq_proto import record as rec
from gq_proto.errors import BadRequest, Fenced, GoQueueError, OffsetOutOfRange, TooLarge
from gq_proto.limits import REQUEST_FRAMES_MAX
from gq_proto.messages import Kind
from tests.unit.gq_logd.world import TOPIC, Call, World, batch_of, produce, values

DELAY = codec.encode_headers([("gq-delay", (60_000_000).to_bytes(8))])


def part(offset: int = -1, **kw: Any) -> messages.FetchPart:
    return messages.FetchPart(TOPIC, kw.pop("partition", 0), offset=offset, **kw)


def ranges_of(world: World, ranges: list[int], max_bytes: int = 1 << 20, **kw: Any) -> tuple[messages.Fetched, list[int]]:
    call = Call(Kind.FETCH, messages.Fetch([part(ranges=ranges, max_bytes=max_bytes)], **kw))
    reply = world.send(call)
    return reply.parts[0], [record.offset for record in codec.decode(call.frames_back[0])]


def filled(folder: Path, count: int = 100, **kw: Any) -> World:
    world = World(folder, settings={"segment_bytes": 3000}, **kw)
    for number in range(0, count, 5):
        world.publish(batch_of(*[b"%d" % n * 20 for n in range(number, number + 5)]))
    return world


def test_by_offset_within_max_bytes_but_one_record_at_least(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(*[b"x" * 1000 for _ in range(10)]), batch_of(b"y" * 300_000))
    for max_bytes, count in ((1, 1), (1036, 1), (2071, 1), (2072, 2), (5000, 4), (1 << 20, 11)):
        fetched, records = world.fetch(1, max_bytes=max_bytes)
        assert len(records) == count and fetched.next_offset == 1 + count
    assert len(world.fetch(11, max_bytes=10)[1]) == 1


def test_more_parts_than_a_reply_may_have_frames_are_refused(tmp_path: Path) -> None:
    world = filled(tmp_path)
    parts = [messages.FetchPart(TOPIC, 0, offset=1, max_bytes=1)] * (REQUEST_FRAMES_MAX + 1)
    with pytest.raises(BadRequest, match="ask for 1024 at most"):
        world.ask(Kind.FETCH, messages.Fetch(parts))
    assert len(world.ask(Kind.FETCH, messages.Fetch(parts[1:])).parts) == REQUEST_FRAMES_MAX


def test_a_fetch_is_answered_before_the_next_request_is_looked_at_and_a_produce_at_the_turns_end(tmp_path: Path) -> None:
    world = filled(tmp_path)
    written, fetched = produce(batch_of(b"x")), Call(Kind.FETCH, messages.Fetch([part(1)]))
    world.handle(written)
    world.handle(fetched)
    assert fetched.done and not written.done
    world.turn()
    assert written.done


def test_every_offset_can_be_where_a_read_begins(tmp_path: Path) -> None:
    world = filled(tmp_path)
    for offset in [*range(101), *range(100, -1, -1)]:
        assert [r.offset for r in world.read_all(offset)] == list(range(max(offset, 1), 101))
    assert world.fetch(101)[1] == [] and world.fetch(101)[0].error == 0
    assert world.fetch(102)[0].error == 35
    assert world.fetch(2**62)[0].error == 35


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=20),
       st.sampled_from([1, 500, 5000, 1 << 20]))
def test_ranges_against_a_list(tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, int]], max_bytes: int) -> None:
    world = filled(tmp_path_factory.mktemp("r"))
    flat: list[int] = []
    at = 1
    for gap, count in gaps:
        flat += (at + gap, count)
        at += gap + count
    wanted = [o for low, count in zip(flat[::2], flat[1::2]) for o in range(low, low + count) if o <= 100]
    seen: list[int] = []
    left = list(flat)
    while left:
        fetched, offsets = ranges_of(world, left, max_bytes)
        seen += offsets
        assert fetched.covered >= 1 and len(fetched.status) == len(left) // 2
        for number, status in enumerate(fetched.status[:fetched.covered]):
            low, count = left[2 * number:2 * number + 2]
            assert status == (messages.RangeStatus.OK if low + count <= 101 else messages.RangeStatus.NOT_YET)
        low, count = left[2 * fetched.covered - 2:2 * fetched.covered]
        rest = [fetched.next_offset, low + count - fetched.next_offset] if fetched.next_offset < low + count else []
        left = rest + left[2 * fetched.covered:]
    assert seen == wanted
    world.core.files.pool.close()


def test_ranges_that_are_gone_or_not_there_yet(tmp_path: Path) -> None:
    world = filled(tmp_path)
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(50))
    fetched, offsets = ranges_of(world, [3, 2, 48, 4, 60, 1, 99, 5, 200, 1])
    assert fetched.status == [1, 1, 0, 2, 2] and fetched.covered == 5 and fetched.log_start == 50
    assert offsets == [50, 51, 60, 99, 100]


@pytest.mark.parametrize("ranges", [[], [1], [5, 1, 4, 1], [1, 0], [3, -1], [2**63 - 1, 5]])
def test_nonsense_ranges(tmp_path: Path, ranges: list[int]) -> None:
    world = filled(tmp_path, 5)
    assert ranges_of(world, ranges)[0].error == 10


def test_several_parts_share_max_bytes(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=2)
    for partition in (0, 1):
        world.publish(batch_of(*[b"x" * 1000 for _ in range(10)]), partition=partition)
    call = Call(Kind.FETCH, messages.Fetch([part(0), part(0, partition=1), part(0, partition=5)], max_bytes=3200))
    reply = world.send(call)
    assert [p.error for p in reply.parts] == [0, 0, 23]
    assert sum(map(len, call.frames_back)) <= 3200 and len(call.frames_back) == 3


# -- long polls ---------------------------------------------------------------------------

def test_a_long_poll_waits_for_any_part(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=2)
    world.publish(batch_of(b"a"))
    call = Call(Kind.FETCH, messages.Fetch([part(2), part(0, partition=1)], max_wait_ms=5000))
    world.send(call)
    assert not call.done
    world.publish(batch_of(b"b"), partition=1)
    assert call.reply.parts[1].next_offset == 2 and codec.decode(call.frames_back[1])[0].value == b"b"


def test_a_long_poll_ends_at_its_wait_or_its_callers_patience(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    patient = Call(Kind.FETCH, messages.Fetch([part(2)], max_wait_ms=5000))
    hasty = Call(Kind.FETCH, messages.Fetch([part(2)], max_wait_ms=5000), deadline=world.now + 1)
    world.send(patient, hasty)
    world.tick(0.9)
    assert not hasty.done
    world.tick(0.2)
    assert hasty.done and not patient.done
    world.tick(3.8)
    assert not patient.done
    world.tick(0.2)
    assert patient.reply.parts[0].next_offset == 2
    assert world.core._fetches.next_deadline() is None


def test_a_long_poll_for_min_bytes(tmp_path: Path) -> None:
    world = World(tmp_path)
    call = Call(Kind.FETCH, messages.Fetch([part(0)], max_wait_ms=5000, min_bytes=3000))
    world.send(call)
    for _ in range(2):
        world.publish(batch_of(b"x" * 1000))
        assert not call.done
    world.publish(batch_of(b"x" * 1000))
    assert len(codec.decode(call.frames_back[0])) == 3


def test_a_long_poll_with_an_error_in_a_part_does_not_wait(tmp_path: Path) -> None:
    world = World(tmp_path)
    call = Call(Kind.FETCH, messages.Fetch([part(0), part(9)], max_wait_ms=5000))
    assert [p.error for p in world.send(call).parts] == [0, 35]


def test_a_long_poll_hears_of_a_new_epoch_and_of_deletion(tmp_path: Path) -> None:
    world = World(tmp_path)
    call = Call(Kind.FETCH, messages.Fetch([part(0, epoch=1)], max_wait_ms=5000))
    world.send(call)
    world.lead()
    assert call.reply.parts[0].error == 52
    call = Call(Kind.FETCH, messages.Fetch([part(0)], max_wait_ms=5000))
    world.send(call)
    world.apply(deleted=[TOPIC])
    assert call.reply.parts[0].error == 22


# -- transactions ---------------------------------------------------------------------------

def txn(*vals: bytes, producer: int, sequence: int = 0, epoch: int = 0) -> bytes:
    return batch_of(*vals, producer=producer, sequence=sequence, epoch=epoch, flags=rec.TRANSACTIONAL)


def marker(type_: int, producer: int, epoch: int = 0) -> messages.WriteMarker:
    return messages.WriteMarker(type_, control.encode_body(type_, control.Marker(producer, epoch, "t")))


def test_what_was_aborted_is_kept_when_nothing_else_is_derived_yet(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(txn(b"a", producer=1), txn(b"b", producer=2))
    world.ask(Kind.WRITE_MARKER, marker(0, 2))
    world.tick(2)                                                           # b is in .txnindex, and too little for an index
    world.ask(Kind.WRITE_MARKER, marker(0, 1))
    world.crash()
    for _ in range(3):
        world.publish(batch_of(bytes(700_000)))
        world.tick(3)
    world.crash()                                                           # now there are indexes that recovery believes
    assert values(world.read_all()) == [bytes(700_000)] * 3


@pytest.mark.parametrize("end", ["live", "kill", "stop", "roll"])
def test_committed_readers_stop_at_open_transactions_and_skip_aborted_ones(tmp_path: Path, end: str) -> None:
    world = World(tmp_path, settings={"segment_bytes": 300} if end == "roll" else {})

    def again() -> None:
        if end == "kill":
            world.crash()
        elif end == "stop":
            world.stop()
            world.start()
        elif end == "roll":
            world.tick(2)
            world.crash()

    world.publish(batch_of(b"plain"), txn(b"a1", b"a2", producer=1), txn(b"b1", producer=2), batch_of(b"plain2"),
                  txn(b"a3", producer=1, sequence=2))
    again()
    assert values(world.read_all()) == [b"plain"]
    assert values(world.read_all(isolation=0)) == [b"plain", b"a1", b"a2", b"b1", b"plain2", b"a3"]
    assert world.ask(Kind.RUNS, messages.Runs(0)).last_stable == 2
    world.ask(Kind.WRITE_MARKER, marker(0, 1))
    again()
    assert values(world.read_all()) == [b"plain"]                          # b is open, from before a2's end
    world.ask(Kind.WRITE_MARKER, marker(1, 2))
    again()
    assert values(world.read_all()) == [b"plain", b"b1", b"plain2"]
    assert len(world.read_all(isolation=0)) == 6
    runs = world.ask(Kind.RUNS, messages.Runs(0))
    assert runs.hidden == [2, 2, runs.hidden[2], 1]
    fetched, offsets = ranges_of(world, [1, 5])
    assert fetched.hidden == [2, 2] and offsets == [1, 2, 3, 4, 5]


def test_a_marker_of_an_old_epoch_is_fenced_and_a_new_one_fences(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(txn(b"a", producer=1, epoch=3))
    with pytest.raises(Fenced):
        world.ask(Kind.WRITE_MARKER, marker(1, 1, 2))
    world.ask(Kind.WRITE_MARKER, marker(0, 1, 4))
    assert world.publish(txn(b"a", producer=1, epoch=3, sequence=1))[0].error == 33
    assert world.read_all() == []


def test_a_transactional_batch_names_its_producer(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.publish(batch_of(b"a", flags=rec.TRANSACTIONAL))[0].error == 12


# -- delays -----------------------------------------------------------------------------------

def decide(type_: int, *ranges: int) -> messages.WriteMarker:
    return messages.WriteMarker(type_, control.encode_body(type_, list(ranges)))


@pytest.mark.parametrize("end", ["live", "kill", "stop"])
def test_delayed_records_are_hidden_until_ready_the_first_word_decides(tmp_path: Path, end: str) -> None:
    world = World(tmp_path)

    def again() -> None:
        if end == "kill":
            world.crash()
        elif end == "stop":
            world.stop()
            world.start()

    world.publish(batch_of(b"now"), batch_of(b"d2", b"d3", b"d4", b"d5", flags=rec.DELAYED, headers=DELAY), batch_of(b"now2"))
    again()
    assert values(world.read_all()) == [b"now", b"now2"]
    assert len(world.read_all(include_delayed=True)) == 6
    assert world.fetch(0)[0].hidden == [2, 4]
    due = world.ask(Kind.DUE, messages.Due(0))
    assert due.due[::2] == [2, 3, 4, 5] and due.due[1] == world.wall_us + 60_000_000
    reply = world.ask(Kind.WRITE_MARKER, decide(3, 1, 3))                   # 1 is not delayed
    assert reply.taken == [2, 2] and reply.offset == (7 if end == "live" else 8)
    again()
    assert values(world.read_all()) == [b"now", b"d2", b"d3", b"now2"]
    reply = world.ask(Kind.WRITE_MARKER, decide(4, 2, 3))
    assert reply.taken == [4, 1]
    assert world.ask(Kind.WRITE_MARKER, decide(3, 2, 3)) == messages.WriteMarkerReply(-1, [])
    again()
    assert values(world.read_all()) == [b"now", b"d2", b"d3", b"now2"]
    assert values(world.read_all(include_delayed=True)) == [b"now", b"d2", b"d3", b"d5", b"now2"]
    due = world.ask(Kind.DUE, messages.Due(3))
    assert due.due[::2] == [3, 4, 5] and [c.type for c in due.controls] == [3, 4]


def test_scattered_ranges_decide_what_is_delayed_in_them_and_nothing_else(tmp_path: Path) -> None:
    world, chance, delayed = World(tmp_path), random.Random(5), set[int]()
    for number in range(60):
        kind: dict[str, Any] = {"flags": rec.DELAYED, "headers": DELAY} if number % 3 else {}
        low = world.publish(batch_of(*[b"x"] * chance.randrange(1, 80), **kind))[0].base_offset
        delayed |= set(range(low, world.partition.log.end)) if kind else set()
    end, decided = world.partition.log.end, set[int]()
    for _ in range(20):
        wanted = sorted(chance.sample(range(end), chance.choice([2, 20, 200])))
        ranges = [number for offset in wanted for number in (offset, 1)]
        reply = world.ask(Kind.WRITE_MARKER, messages.WriteMarker(3, control.encode_body(3, ranges)))
        taken = {offset for low, high in rng.pairs(reply.taken) for offset in range(low, high)}
        assert taken == (set(wanted) & delayed) - decided
        decided |= taken


@pytest.mark.parametrize("crash", [False, True])
def test_long_ready_records_are_told_a_few_at_a_time(tmp_path: Path, crash: bool) -> None:
    world = World(tmp_path)
    first = world.publish(batch_of(*[b"x"] * 30_000, flags=rec.DELAYED, headers=DELAY))[0].base_offset
    for number in range(100):
        ranges = [n for offset in range(first + number, first + 30_000, 100) for n in (offset, 1)]
        world.ask(Kind.WRITE_MARKER, messages.WriteMarker(3, control.encode_body(3, ranges)))
        world.publish(batch_of(b"between"))
    if crash:
        world.crash()
    offset, named, runs, replies = 0, [], [], 0
    while offset < world.partition.log.end:
        reply = world.ask(Kind.RUNS, messages.Runs(offset))
        bodies = [found for found in reply.controls if found.type == 3]
        assert sum(len(found.body) for found in bodies[1:]) <= 32_768
        assert all(offset <= found.offset < reply.next_offset and found.lanes for found in bodies)
        runs += reply.runs
        named += [found.offset for found in bodies]
        offset, replies = reply.next_offset, replies + 1
    assert len(named) == 100 and named == sorted(named) and replies > 10
    assert sum(runs[1::3]) == world.partition.log.end, "nothing is told twice, nothing left out"


@pytest.mark.parametrize("clean", [False, True])
def test_ready_records_of_before_a_restart_are_told_after_it(tmp_path: Path, clean: bool) -> None:
    """Also those that recovery did not have to read."""
    world = World(tmp_path)
    first = world.publish(batch_of(*[b"x"] * 9, flags=rec.DELAYED, headers=DELAY))[0].base_offset
    wanted: list[bytes] = []
    for number in range(9):
        wanted.append(control.encode_body(3, [first + number, 1]))
        world.ask(Kind.WRITE_MARKER, messages.WriteMarker(3, wanted[-1]))
        if number in (3, 6):
            world.stop() if clean else None
            world.start() if clean else world.crash()
        reply = world.ask(Kind.RUNS, messages.Runs(0))
        assert [found.body for found in reply.controls if found.type == 3] == wanted


def test_a_topic_of_small_messages_has_control_records_of_any_size(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"max_message_bytes": 1})
    world.publish(batch_of(*[b"x"] * 1000, flags=rec.DELAYED, headers=DELAY))
    assert len(world.ask(Kind.WRITE_MARKER, decide(3, *[number for i in range(1, 1001, 2) for number in (i, 1)])).taken) == 1000
    assert world.publish(batch_of(b"xx"))[0].error == TooLarge.code


def test_two_markers_in_one_turn_the_first_decides(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a", b"b", flags=rec.DELAYED, headers=DELAY))
    calls = [Call(Kind.WRITE_MARKER, body) for body in (decide(4, 1, 1), decide(3, 1, 2), decide(3, 1, 2))]
    world.send(*calls)
    assert [call.reply.taken for call in calls] == [[1, 1], [2, 1], []]
    assert values(world.read_all()) == [b"b"]


def test_a_marker_may_name_absurd_ranges(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a", flags=rec.DELAYED, headers=DELAY))
    assert world.ask(Kind.WRITE_MARKER, decide(3, 0, 2**32 - 1, 2**40, 2**31)).taken == [1, 1]


def test_other_markers_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    for type_, body in ((2, bytes(12)), (9, b""), (0, b"short"), (0x8001, b"")):
        with pytest.raises(GoQueueError):
            world.ask(Kind.WRITE_MARKER, messages.WriteMarker(type_, body))
    assert world.partition.log.end == 0


# -- runs -------------------------------------------------------------------------------------

@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(-2, 4), st.integers(1, 9), st.booleans())
def test_runs_by_lane_against_a_list(tmp_path_factory: pytest.TempPathFactory, lanes: list[int], lane: int, limit: int,
                                     packed: bool) -> None:
    world = World(tmp_path_factory.mktemp("r"), settings={"segment_bytes": 500})
    for at in range(0, len(lanes), 7):
        chunk = lanes[at:at + 7]
        world.publish(batch_of(*[b"x" * 20 for _ in chunk], priorities=chunk))
    found: list[int] = []
    offset = 0
    while offset < len(lanes) + 1:
        reply = world.ask(Kind.RUNS, messages.Runs(offset, lane, limit, packed))
        ranges = rng.unpack(reply.ranges)
        assert len(reply.runs) <= 3 * limit and len(ranges) <= 2 * limit and offset < reply.next_offset <= len(lanes) + 1
        assert not ranges or (packed and lane >= 0 and offset <= ranges[0] and ranges[-2] + ranges[-1] <= reply.next_offset)
        found += [number for low, end in rng.pairs(ranges) for number in range(low, end)]
        for start, count, kind in zip(reply.runs[::3], reply.runs[1::3], reply.runs[2::3]):
            assert offset <= start and start + count <= reply.next_offset
            if not rec.kind_flags(kind) & rec.CONTROL:
                assert kind == 0 if lane == -2 else lane == -1 or not packed
                found += range(start, start + count)
        offset = reply.next_offset
    assert found == [number + 1 for number, own in enumerate(lanes) if lane in (-2, -1, own)]
    world.core.files.pool.close()


def test_runs_bounds(tmp_path: Path) -> None:
    world = filled(tmp_path)
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(50))
    assert world.ask(Kind.RUNS, messages.Runs(0)).runs[0] == 50
    assert world.ask(Kind.RUNS, messages.Runs(101)).next_offset == 101
    with pytest.raises(OffsetOutOfRange):
        world.ask(Kind.RUNS, messages.Runs(102))
    with pytest.raises(BadRequest):
        world.ask(Kind.RUNS, messages.Runs(0, 5))
    with pytest.raises(BadRequest):
        world.ask(Kind.RUNS, messages.Runs(0, -3))


def test_ready_records_are_told_with_the_lanes_of_what_they_name(tmp_path: Path) -> None:
    world = World(tmp_path, settings={"segment_bytes": 1_000})
    lanes = [0, 0, 1, 2, 2, 4, 4, 3, 0, 4] * 6
    for at in range(0, 60, 6):
        world.publish(batch_of(*[b"x" * 60] * 6, priorities=lanes[at:at + 6], flags=rec.DELAYED, headers=DELAY))
    assert len(world.partition.log.segments) > 3
    watch = Call(Kind.WATCH, messages.Watch([messages.WatchPart(TOPIC, 0, 61)]))
    world.send(watch)
    ready = world.ask(Kind.WRITE_MARKER, decide(3, 1, 10, 20, 1, 22, 39)).offset
    wanted = [(o, lanes[o - 1]) for o in (*range(1, 11), 20, *range(22, 61))]

    def told(controls: list[messages.Control]) -> list[tuple[int, int]]:
        [record] = [c for c in controls if c.type == 3]
        triples = zip(record.lanes[::3], record.lanes[1::3], record.lanes[2::3])
        return [(low + n, lane) for low, count, lane in triples for n in range(count)]

    assert told(watch.reply.parts[0].controls) == wanted
    assert told(world.ask(Kind.RUNS, messages.Runs(0)).controls) == wanted
    assert told(world.ask(Kind.RUNS, messages.Runs(0, 4)).controls) == wanted
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(30))
    world.partition.controls.clear()
    world.partition.controls_from = 2**40                                      # as after many others: read from the log again
    start = world.partition.log.segments[0].base
    assert told(world.ask(Kind.RUNS, messages.Runs(ready)).controls) == [(o, lane if o >= start else 2) for o, lane in wanted]


def test_many_control_records_come_in_pieces(tmp_path: Path) -> None:
    world = World(tmp_path)
    delayed = [b"x"] * 50
    for _ in range(60):
        world.publish(batch_of(*delayed, flags=rec.DELAYED, headers=DELAY))
    end = world.partition.log.end
    world.send(*[Call(Kind.WRITE_MARKER, decide(3, offset, 1)) for offset in range(1, end)])
    offset, seen = 0, 0
    while offset < world.partition.log.end:
        reply = world.ask(Kind.RUNS, messages.Runs(offset))
        controls = sum(count for count, kind in zip(reply.runs[1::3], reply.runs[2::3]) if rec.kind_flags(kind) & rec.CONTROL)
        assert len(reply.controls) == controls
        seen += controls
        assert reply.next_offset > offset
        offset = reply.next_offset
    assert seen == end - 1 + 1
    assert len(world.read_all()) == end - 1
    due = world.ask(Kind.DUE, messages.Due(0, 100))
    assert len(due.due) == 200 and due.next_offset == 101


def test_produce_and_fetch_in_one_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    fetch = Call(Kind.FETCH, messages.Fetch([part(0)], max_wait_ms=100))
    world.send(fetch, produce(batch_of(b"a")))
    assert codec.decode(fetch.frames_back[0])[0].value == b"a"


# -- several answers to one fetch ----------------------------------------------------------------

def follow(offset: int, answers: int = 3, max_bytes: int = 1 << 20) -> Call:
    return Call(Kind.FETCH, messages.Fetch([part(offset, max_bytes=max_bytes)], max_wait_ms=1000, answers=answers))


def came(call: Call) -> tuple[list[int], bool]:
    return [record.offset for record in codec.decode(call.frames_back[0])], call.reply.open


def test_a_fetch_goes_on_while_it_reaches_the_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a", b"b"))
    call = follow(1)
    world.send(call)
    assert came(call) == ([1, 2], True)
    world.publish(batch_of(b"c"))
    assert came(call) == ([3], True)
    world.publish(batch_of(b"d"))
    assert came(call) == ([4], False)
    world.publish(batch_of(b"e"))
    assert came(call) == ([4], False)


def test_it_ends_with_the_wait_with_the_bytes_and_where_more_is_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    waits, small, behind = follow(2), follow(2, max_bytes=40), follow(0, max_bytes=40)
    world.send(waits, small, behind)
    assert came(behind)[1] is False, "the end was not reached"
    world.publish(batch_of(b"b" * 100))
    assert came(small) == ([2], False), "max_bytes are used up"
    assert came(waits) == ([2], True)
    world.tick(1.1)
    assert came(waits) == ([], False)


def test_what_goes_wrong_on_the_way_is_the_last_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    call = Call(Kind.FETCH, messages.Fetch([part(7)], max_wait_ms=1000, answers=3))
    world.send(call)
    assert call.reply.parts[0].error == OffsetOutOfRange.code and not call.reply.open
    unknown = Call(Kind.FETCH, messages.Fetch([messages.FetchPart(999, 0, offset=0)], max_wait_ms=1000, answers=3))
    world.send(unknown)
    assert unknown.reply.parts[0].error and not unknown.reply.open


def test_by_ranges_there_is_one_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    call = Call(Kind.FETCH, messages.Fetch([part(ranges=[1, 1])], max_wait_ms=1000, answers=3))
    world.send(call)
    assert came(call) == ([1], False)

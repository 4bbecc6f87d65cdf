"""Fetches of one priority: what they bring, how they wait, what they pass over."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gq_proto import codec, control, messages
from gq_proto import record as rec
from gq_proto.errors import BadRequest, Corrupt
from gq_proto.messages import Kind
from tests.unit.gq_logd.test_fetch import DELAY
from tests.unit.gq_logd.world import TOPIC, Call, World, batch_of, produce


def fetch_of(offset: int, lane: int, max_bytes: int = 1 << 20, **more: Any) -> Call:
    part = messages.FetchPart(TOPIC, 0, offset=offset, max_bytes=max_bytes, lane=lane)
    return Call(Kind.FETCH, messages.Fetch([part], **more))


def brought(call: Call) -> list[int]:
    return [record.offset for record in codec.decode(call.frames_back[-1])]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.integers(0, 4), st.sampled_from([1, 500, 1 << 20]))
def test_one_lane_against_a_list(tmp_path_factory: pytest.TempPathFactory, lanes: list[int], lane: int, max_bytes: int) -> None:
    world = World(tmp_path_factory.mktemp("l"), settings={"segment_bytes": 700})
    for at in range(0, len(lanes), 7):
        chunk = lanes[at:at + 7]
        world.publish(batch_of(*[b"x" * 20 for _ in chunk], priorities=chunk))
    found: list[int] = []
    offset, end = 0, len(lanes) + 1
    while offset < end:
        call = fetch_of(offset, lane, max_bytes)
        [fetched] = world.send(call).parts
        assert fetched.error == 0 and offset < fetched.next_offset <= end
        assert all(offset <= o < fetched.next_offset for o in brought(call))
        found += brought(call)
        offset = fetched.next_offset
    assert found == [number + 1 for number, own in enumerate(lanes) if own == lane]
    world.core.files.pool.close()


def test_small_records_among_large_ones_come_many_at_a_time(tmp_path: Path) -> None:
    """Going by the mean size there, 100,000 bytes hold one record or two."""
    world = World(tmp_path)
    for _ in range(150):
        world.publish(batch_of(b"x" * 100_000, b"y", b"z", priorities=[4, 1, 2]))
    call = fetch_of(1, 1, 100_000)
    world.send(call)
    assert len(brought(call)) == 150


def test_what_is_delayed_is_left_out_and_what_was_aborted_is_hidden(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a", b"b", priorities=[0, 2]), batch_of(b"late", flags=rec.DELAYED, headers=DELAY, priorities=[0]),
                  batch_of(b"tx", flags=rec.TRANSACTIONAL, producer=1, priorities=[0]), batch_of(b"c", priorities=[0]))
    assert world.send(fetch_of(1, 0)).parts[0].next_offset == 4, "the transaction is open"
    world.ask(Kind.WRITE_MARKER, messages.WriteMarker(0, control.encode_body(0, control.Marker(1, 0, "t"))))
    call = fetch_of(0, 0)
    [fetched] = world.send(call).parts
    assert (brought(call), fetched.hidden, fetched.next_offset) == ([1, 4, 5], [4, 1], 7)


def test_it_waits_for_its_own_priority_and_looks_at_nothing_twice(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(*[b"x"] * 10))
    call = fetch_of(0, 0, max_wait_ms=1_000)
    world.send(call)
    assert not call.done
    world.send(produce(batch_of(*[b"x"] * 10)))
    assert not call.done and call.body.parts[0].offset == 21
    world.send(produce(batch_of(b"n", b"c", priorities=[2, 0])))
    assert brought(call) == [22] and call.reply.parts[0].next_offset == 23


def test_where_none_comes_it_is_told_how_far_it_was_looked(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(*[b"x"] * 10))
    call = fetch_of(3, 4, max_wait_ms=500)
    world.send(call)
    world.tick(0.6)
    assert call.frames_back[-1] == b"" and call.reply.parts[0].next_offset == 11


def test_several_answers(tmp_path: Path) -> None:
    world = World(tmp_path)
    call = fetch_of(0, 1, max_wait_ms=1_000, answers=3)
    world.send(call)
    for number, lane in enumerate((1, 2, 1)):
        world.send(produce(batch_of(b"%d" % number, priorities=[lane])))
        if lane == 1:
            assert brought(call) == [number + 1] and call.reply.open
    assert call.reply.parts[0].next_offset == 4


def test_damage_is_said(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(*[b"x" * 50] * 3, priorities=[0, 1, 0]))
    path = world.partition.log.live.path()
    with open(path, "r+b") as file:
        file.seek(-10, 2)
        file.write(b"?")
    call = fetch_of(0, 0)
    [fetched] = world.send(call).parts
    assert brought(call) == [1] and fetched.next_offset == 2
    assert world.send(fetch_of(2, 0)).parts[0].error == Corrupt.code


@pytest.mark.parametrize("lane", [-2, 5, 7, 2**40])
def test_lanes_that_do_not_exist(tmp_path: Path, lane: int) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"x"))
    for wait in (0, 1_000):
        [fetched] = world.send(fetch_of(0, lane, max_wait_ms=wait)).parts
        assert fetched.error == BadRequest.code

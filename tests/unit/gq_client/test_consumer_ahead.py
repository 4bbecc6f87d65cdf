"""A stream against the obvious: whatever the chunks and the leases, each lease gets exactly its messages, in its order."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gq_client.consumer_ahead import BEHIND_MAX, LANE_GAP_MAX, MISSES_MAX, REST_S, STREAM_BYTES, Chunk, Stream
from gq_client.consumer_lease import HeldLease, to_ranges
from gq_proto import codec
from gq_proto import ranges as rng
from gq_proto.messages import Lease


class Hub:
    asleep = False


def log(low: int, high: int) -> bytes:
    builder = codec.BatchBuilder()
    for i in range(low, high):
        builder.add(None, b"%d" % i)
    frame = bytearray(builder.seal())
    codec.stamp(frame, low, 1)
    return bytes(frame)


def records(offsets: list[int]) -> bytes:
    return b"".join(log(offset, offset + 1) for offset in offsets)


def lease(offsets: list[int], delivery: int = 1, epoch: int = 1) -> HeldLease:
    return HeldLease(Lease(1, 2, 3, "t", 0, epoch, delivery, to_ranges(offsets), 1), Hub(), 0, 9)  # type: ignore[arg-type]


def handed_out(held: HeldLease) -> list[int]:
    out: list[int] = []
    while view := held.next_view(7, 0.0):
        held.cursor = len(view)
        out += [m.offset for m in view]
    return out


SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=8)


@given(SIZES, SIZES, st.sets(st.integers(0, 150), max_size=25), st.sets(st.integers(0, 150), max_size=10))
def test_every_lease_gets_what_it_names(chunks: list[int], leases: list[int], acked: set[int], hidden: set[int]) -> None:
    stream, end = Stream(), sum(chunks)
    stream.reset(1, 0, 0.0)
    asked = []
    at = 0
    for size in leases:
        offsets = [o for o in range(at, min(at + size, end)) if o not in acked]
        at += size
        if offsets and 2 * len(offsets) >= offsets[-1] + 1 - offsets[0]:
            held = lease(offsets)
            assert stream.claim(held, 0.0)
            held.streaming = True
            asked.append((held, offsets))
        elif offsets:
            break
    at = 0
    for size in chunks:
        token = stream.token
        stream.asked = True
        within = sorted(offset for offset in hidden if at <= offset < at + size)
        stream.arrived(token, log(at, at + size), to_ranges(within) if within else [], at + size)
        at += size
        stream.feed()
    for held, offsets in asked:
        assert not held.streaming
        left = [o for low, high in rng.pairs(held.todo) for o in range(low, high)]
        assert handed_out(held) + left == offsets and hidden.isdisjoint(offsets[:len(offsets) - len(left)])
        assert not left or not hidden.isdisjoint(left), "by ranges is only what came due since it was read"
    assert not stream.waiting
    assert stream.size == sum(chunk.left for chunk in stream.chunks)


def test_a_stream_asks_for_more_as_soon_as_some_of_what_it_has_is_given_out_however_large_the_last_answer_was() -> None:
    stream, size = streaming(0), STREAM_BYTES // 4
    builder = codec.BatchBuilder()
    for _ in range(4):
        builder.add(None, b"x" * size)
    frame = bytearray(builder.seal())
    codec.stamp(frame, 0, 1)
    assert len(frame) > STREAM_BYTES, "as an answer is that ends with the record that crosses the bound"
    stream.asked = True
    stream.arrived(stream.token, bytes(frame), [], 4)
    assert not stream.wants_fetch(0.0)
    assert stream.claim(lease([0]), 0.0)
    stream.feed()
    assert len(stream.chunks) == 1 and stream.wants_fetch(0.0)


def test_a_chunk_is_cut_from_its_front() -> None:
    chunk = Chunk(10, 20, log(10, 20), [])
    assert [r.offset for r in codec.decode(chunk.cut(12, 15), codec.Record)] == [12, 13, 14]
    assert [r.offset for r in codec.decode(chunk.cut(15, 20), codec.Record)] == [15, 16, 17, 18, 19]


def streaming(at: int) -> Stream:
    stream = Stream()
    stream.reset(1, at, 0.0)
    return stream


def test_who_does_not_follow_on_is_fetched_by_ranges_and_the_stream_goes_on_behind() -> None:
    for held in (lease([5, 6]), lease([5000, 5001]), lease([10, 11], epoch=2)):
        stream = streaming(10)
        assert not stream.claim(held, 0.0)
        assert stream.next == stream.promised == held.lease.ranges[-2] + held.lease.ranges[-1]
    assert not streaming(10).claim(lease([10], delivery=2), 0.0)
    assert not streaming(10).claim(lease([10, 20, 30]), 0.0), "mostly holes"


def test_an_answer_of_before_a_reset_is_ignored() -> None:
    stream = streaming(10)
    token = stream.token
    stream.asked = True
    stream.reset(1, 50, 0.0)
    stream.arrived(token, log(10, 20), [], 20)
    assert stream.next == 50 and not stream.chunks


def test_what_is_thrown_away_unused_rests_the_stream() -> None:
    stream = streaming(0)
    at = 0
    for _ in range(MISSES_MAX):
        stream.asked = True
        stream.arrived(stream.token, log(at, at + 5), [], at + 5)
        at += 100_000
        assert not stream.claim(lease([at]), 0.0)
        at += 1
    assert not stream.wants_fetch(REST_S - 1) and stream.wants_fetch(REST_S)
    assert not stream.claim(lease([at]), REST_S - 1)


def test_a_lease_holds_no_more_than_a_bound_ahead() -> None:
    stream, big = streaming(0), 700_000
    builder = codec.BatchBuilder()
    for _ in range(4):
        builder.add(None, b"x" * big)
    frame = bytearray(builder.seal())
    codec.stamp(frame, 0, 1)
    held: Any = lease([0, 1, 2, 3])
    assert stream.claim(held, 0.0)
    for low in range(4):
        data = bytes(frame[codec.locate(frame, 0, low):][: big + 34])
        stream.asked = True
        stream.arrived(stream.token, data, [], low + 1)
    stream.feed()
    assert held.raw_bytes < 3 * big and held.todo


def test_what_was_hidden_when_it_was_read_is_left_to_a_fetch_by_ranges_wherever_it_lies() -> None:
    stream = Stream()
    stream.reset(1, 0, 0.0)
    for low, hidden in ((0, []), (2, [2, 1]), (4, [])):
        stream.arrived(stream.token, log(low, low + 2), hidden, low + 2)
    stale, fine = lease([2]), lease([3, 4])
    assert stream.claim(stale, 0.0) and stream.claim(fine, 0.0)
    stream.feed()
    assert (handed_out(stale), stale.todo, stale.streaming) == ([], [2, 1], False)
    assert (handed_out(fine), fine.todo) == ([3, 4], [])


# -- one priority's stream --------------------------------------------------------------------

@given(st.lists(st.integers(0, 4), min_size=1, max_size=120), SIZES, SIZES, st.sets(st.integers(0, 120), max_size=10))
def test_every_lease_of_a_lane_gets_what_it_names(lanes: list[int], chunks: list[int], leases: list[int], acked: set[int]) -> None:
    stream = Stream(0)
    stream.reset(1, 0, 0.0)
    mine = [offset for offset, lane in enumerate(lanes) if lane == 0]
    left = [offset for offset in mine if offset not in acked]
    asked = []
    for size in leases:
        offsets, left = left[:size], left[size:]
        if offsets:
            held = lease(offsets)
            assert stream.claim(held, 0.0)
            held.streaming = True
            asked.append((held, offsets))
    at = 0
    for size in [*chunks, len(lanes)]:
        upto = min(at + size, len(lanes))
        stream.asked = True
        stream.arrived(stream.token, records([o for o in mine if at <= o < upto]), [], upto)
        at = upto
        stream.feed()
    for held, offsets in asked:
        assert not held.streaming and not held.todo and handed_out(held) == offsets
    assert not stream.waiting


def test_what_lies_behind_a_lane_is_fetched_by_ranges_and_the_stream_goes_on() -> None:
    stream = Stream(3)
    assert not stream.claim(lease([10, 20]), 0.0) and stream.next == stream.promised == 21
    assert stream.claim(lease([500, 90_000]), 0.0)
    for _ in range(BEHIND_MAX - 1):
        assert not stream.claim(lease([12]), 0.0)
    assert stream.waiting and stream.promised == 90_001
    assert stream.claim(lease([90_005]), 0.0)
    for _ in range(BEHIND_MAX):
        assert not stream.claim(lease([12, 14]), 0.0)
    assert not stream.waiting and stream.next == 15
    assert not stream.claim(lease([15 + LANE_GAP_MAX + 1]), 0.0) and stream.next == 15 + LANE_GAP_MAX + 2
    assert not stream.claim(lease([10**6], delivery=2), 0.0) and not stream.claim(lease([10**6], epoch=2), 0.0)

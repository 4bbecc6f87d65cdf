"""The compiled codec against the pure one: same results, same bytes, same errors, on valid, mutated and random input."""

import itertools
import os
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from gq_proto import pure
from gq_proto import record as r
from gq_proto.errors import GoQueueError
from tests.samples import BASE, NOW, raw_record, samples, stamped

SAMPLES = list(samples().values())
SMALL = [sealed for sealed in SAMPLES if len(sealed) < 2000]

names = st.text(max_size=8) | st.sampled_from(["gq-batch", "gq-delay", "gq-deliver-at", "gq-x", "gq-", "traceparent"])
header_lists = st.lists(st.tuples(names, st.binary(max_size=20) | st.just(bytes(8)) | st.just(bytes(18))), max_size=6)
optional = st.none() | st.binary(max_size=40)
records = st.fixed_dictionaries({
    "key": optional | st.just(bytes(4)), "value": optional, "headers": header_lists,
    "priority": st.integers(0, 4) | st.integers(-1, 6),
    "flags": st.sampled_from([0, 0, 0, 1, 2, 4, 8, 0x18, 0x10, 0x20, 0x40, 6, 12]),
    "codec": st.sampled_from([0, 0, 1, 2]), "timestamp": st.sampled_from([0, NOW, 2**62 - 1, 2**62, -1]),
})
raw_records = st.builds(
    raw_record, flags=st.integers(0, 0x3F) | st.integers(0, 255), priority=st.integers(0, 5), codec=st.integers(0, 2), key=optional,
    value=optional, headers=st.binary(max_size=30) | header_lists.map(lambda headers: _encoded(headers)),
    offset=st.sampled_from([0, 41, 42, 43, 2**63 - 1, 2**63]), timestamp=st.sampled_from([0, NOW, NOW + 10**10, 2**62, 2**64 - 1]))
mutations = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=3)


def _encoded(headers: list[tuple[str, bytes]]) -> bytes:
    """As encode_headers, but in the order given."""
    parts = [len(name.encode()).to_bytes(2) + name.encode() + len(value).to_bytes(2) + value for name, value in headers]
    return len(parts).to_bytes(2) + b"".join(parts) if parts else b""


def outcome(call: Callable[..., Any], *args: Any, **fields: Any) -> Any:
    try:
        return call(*args, **fields)
    except (GoQueueError, ValueError, TypeError, BufferError) as error:
        return type(error), str(error) if isinstance(error, GoQueueError) else ""


def mutated(raw: bytes, changes: list[tuple[int, int]]) -> bytes:
    out = bytearray(raw)
    for at, byte in changes if out else ():
        out[at % len(out)] = byte
    return bytes(out)


frames = st.one_of(
    st.binary(max_size=200),
    st.builds(mutated, st.sampled_from(SMALL), mutations),
    st.builds(lambda parts, changes: mutated(b"".join(parts), changes), st.lists(raw_records, max_size=4), mutations),
    st.builds(lambda sealed, base, cut: stamped(sealed, base)[: cut or None], st.sampled_from(SMALL), st.integers(0, 50),
              st.integers(-60, 0)),
)
logs = st.builds(b"".join, st.lists(frames, max_size=4))


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1))
def test_crc(compiled, data, value):
    assert compiled.crc32c(data, value) == pure.crc32c(data, value) == compiled.crc32c_table(data, value)


def test_crc_of_every_length_around_the_block_borders(compiled):
    data = os.urandom(7000)
    for size in (*range(300), *range(3050, 3200), 6144, 6999):
        for start in (0, 1):
            assert compiled.crc32c(data[start : start + size]) == pure.crc32c(data[start : start + size]), (size, start)


@given(st.binary(max_size=70), st.integers(1, 10_000))
def test_partition_of(compiled, key, count):
    assert compiled.partition_of(key, count) == pure.partition_of(key, count)


@given(header_lists)
def test_headers(compiled, headers):
    encoded = outcome(pure.encode_headers, headers)
    assert outcome(compiled.encode_headers, headers) == encoded
    assert outcome(compiled.decode_headers, encoded) == outcome(pure.decode_headers, encoded)


@given(st.binary(max_size=60), mutations)
def test_decode_headers(compiled, raw, changes):
    for data in (raw, mutated(_encoded([("a", b"1"), ("gq-x", b""), ("é", raw)]), changes)):
        assert outcome(compiled.decode_headers, data) == outcome(pure.decode_headers, data)


@given(st.lists(records, max_size=6), st.sampled_from([(-1, -1, -1), (7, 1, 2), (2**63 - 1, 2**15 - 1, 2**31 - 1), (1, -1, 0)]),
       st.integers(0, 400))
def test_builder(compiled, adds, producer, reserve):
    one, other = pure.BatchBuilder(reserve), compiled.BatchBuilder(reserve)
    for _ in range(2):
        for fields in adds:
            fields = fields | {"headers": _encoded(fields["headers"])}
            assert outcome(one.add, **fields) == outcome(other.add, **fields)
            assert (one.count, one.size) == (other.count, other.size)
        assert outcome(one.seal, *producer) == outcome(other.seal, *producer)


@given(frames, st.booleans(), st.booleans(), st.sampled_from([0, 2, 2**20]),
       st.integers(0, 5000), st.sampled_from([0, NOW, NOW + 5]))
def test_stamp(compiled, frame, create, internal, max_value, position, last):
    one, other = bytearray(frame), bytearray(frame)
    fields = {"create": create, "internal": internal, "max_value": max_value, "position": position, "last_timestamp": last,
              "segment_base": 30, "index_interval": 40, "time_interval_us": 3, "last_time_point": last}
    assert outcome(compiled.stamp, other, BASE, NOW, **fields) == outcome(pure.stamp, one, BASE, NOW, **fields)
    assert one == other


@given(logs, st.integers(0, 60), st.sampled_from([-1, 0, 41]), st.integers(0, 10_000))
def test_walks(compiled, data, start, expected, base_position):
    fields = {"base_position": base_position, "index_interval": 50}
    assert compiled.scan(data, start, expected, **fields) == pure.scan(data, start, expected, **fields)
    assert compiled.check(data) == pure.check(data)
    for offset in (0, 41, 42, 45, 2**62):
        assert compiled.locate(data, start, offset) == pure.locate(data, start, offset)
        assert compiled.find_valid(data, start, 0, offset) == pure.find_valid(data, start, 0, offset)


@given(st.sets(st.integers(42, 80)), st.sets(st.integers(40, 60), max_size=5))
def test_decode_gives_what_is_wanted_and_not_hidden(compiled, wanted, hidden):
    builder = pure.BatchBuilder()
    for number in range(20):
        builder.add(None, b"%d" % number)
    frame = bytearray(builder.seal())
    pure.stamp(frame, 42, 1)
    for codec in (compiled, pure):
        found = codec.decode(frame, only=pure.ranges_of(wanted), skip=pure.ranges_of(hidden))
        assert [m.offset for m in found] == sorted((wanted - hidden) & {*range(42, 62)})


def shown(found: Any) -> Any:
    if not isinstance(found, list):
        return found
    return [(m.topic, m.partition, m.offset, m.timestamp, m.priority, m.flags, m.key, m.raw_value, m.raw_headers, m.delivery,
             outcome(lambda m=m: m.value), outcome(lambda m=m: m.headers), outcome(lambda m=m: m.system_headers)) for m in found]


@given(logs, st.sampled_from([0, 41, 43]), st.sampled_from([2**63 - 1, 44, 42]), st.lists(st.integers(0, 50), max_size=5),
       st.none() | st.lists(st.integers(0, 50), max_size=5))
def test_decode(compiled, data, lo, hi, skip, only):
    fields = {"topic": "t", "partition": 3, "delivery": 2, "lo": lo, "hi": hi, "skip": skip, "only": only}
    assert shown(outcome(compiled.decode, data, **fields)) == shown(outcome(pure.decode, data, **fields))
    for without in (r.CONTROL, r.CONTROL | r.DELAYED, 0):
        assert outcome(compiled.columns, data, lo, hi, skip, without) == outcome(pure.columns, data, lo, hi, skip, without)


def file_of(data: bytes) -> int:
    fd = os.memfd_create("gather")
    os.write(fd, data)
    return fd


@st.composite
def gathers(draw):
    sizes = draw(st.lists(st.sampled_from([0, 10, 100, 5000]), min_size=1, max_size=60))
    log = b"".join(stamped(raw_record(value=bytes(size)), 41 + number) for number, size in enumerate(sizes))
    data = mutated(log, draw(mutations)) if draw(st.booleans()) else log
    ranges, low = [], 35
    for skip, count in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=12)):
        ranges += (low + skip, count)
        low += skip + count
    return log, data, ranges, draw(st.sampled_from([100, 4096])), draw(st.sampled_from([1, 200, 2**40])), draw(st.integers(-3, 3))


@given(gathers())
def test_gather(compiled, case):
    log, data, ranges, interval, max_bytes, slip = case
    index = pure.scan(log, index_interval=interval, segment_base=41).index
    fd = file_of(data)
    try:
        for known in (b"", index):
            args = (fd, 0, len(data) + slip, ranges, known, 41, max_bytes)
            found = outcome(pure.gather, *args)
            assert outcome(compiled.gather, *args) == found
            packed = (*args[:3], array("q", ranges), *args[4:])
            assert outcome(compiled.gather, *packed) == outcome(pure.gather, *packed)
            if data == log and slip == 0 and max_bytes == 2**40 and not isinstance(found, tuple):
                offsets = {low + n for low, count in zip(ranges[::2], ranges[1::2]) for n in range(count)}
                wanted = [m for m in pure.decode(log) if m.offset in offsets]
                assert [(m.offset, m.value) for m in pure.decode(found.data)] == [(m.offset, m.value) for m in wanted]
                assert sum(found.found[1::2]) == len(wanted) and found.bad == -1
    finally:
        os.close(fd)


def test_gather_of_more_than_there_was_room_for_at_first(compiled):
    records = [stamped(raw_record(value=bytes([number]) * 1_000_000), 41 + number) for number in range(12)]
    size = sum(map(len, records))
    fd = file_of(b"".join(records))
    try:
        for ranges, wanted in (([41, 12], records), ([42, 1, 44, 8], [records[1], *records[3:11]])):
            found = compiled.gather(fd, 0, size, ranges)
            assert found.data == b"".join(wanted) and found == pure.gather(fd, 0, size, ranges)
    finally:
        os.close(fd)


runs = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 2, 0x20, 0x22, 0x12, 0x0A])), max_size=30)


@given(runs, st.integers(1, 5), st.integers(0, 60), st.integers(0, 80), st.sampled_from([-2, -1, 0, 2]),
       st.sampled_from([0, 1, 3, 2**62]))
def test_runs(compiled, pieces, stride, low, high, lane, limit):
    one, other, flat, offset = bytearray(), bytearray(), [], 10
    for count, kind in pieces:
        flat += (offset, count, kind)
        offset += count
    for at in range(0, len(flat), 3 * stride):
        pure.extend_runs(one, 10, flat[at : at + 3 * stride])
        compiled.extend_runs(other, 10, flat[at : at + 3 * stride])
    assert one == other
    found, following = pure.select_runs(one, 10, low, high, lane, limit)
    assert compiled.select_runs(other, 10, low, high, lane, limit) == (found, following)
    kinds = {offset + n: kind for offset, count, kind in zip(flat[::3], flat[1::3], flat[2::3]) for n in range(count)}
    wanted = {offset: kind & 0x30 if lane == -2 else kind for offset, kind in kinds.items()
              if low <= offset < min(high, following) and (lane < 0 or kind & 7 == lane or kind & 0x20)}
    assert {o + n: kind for o, count, kind in zip(found[::3], found[1::3], found[2::3]) for n in range(count)} == wanted
    neighbours = list(zip(found[::3], found[1::3], found[2::3]))
    assert all(a[2] != b[2] for a, b in itertools.pairwise(neighbours) if a[0] + a[1] == b[0])


@given(runs, st.integers(0, 60), st.integers(0, 80), st.sampled_from([0, 2]), st.sampled_from([0, 1, 3, 2**62]))
def test_lane_ranges(compiled, pieces, low, high, lane, limit):
    packed, offset = bytearray(), 10
    for count, kind in pieces:
        pure.extend_runs(packed, 10, [offset, count, kind])
        offset += count
    found, following = pure.lane_ranges(packed, 10, low, high, lane, limit)
    assert compiled.lane_ranges(packed, 10, low, high, lane, limit) == (found, following)
    own = pure.runs_by_lane(pure.select_runs(packed, 10, low, min(following, high), lane)[0])[1][lane]
    assert found.tolist() == own and len(own) <= 2 * limit and low <= following
    assert following == pure.select_runs(packed, 10, low, high)[1] or len(own) == 2 * limit


@given(runs, st.integers(0, 60), st.integers(0, 80))
def test_lane_counts(compiled, pieces, low, high):
    packed, kinds, offset = bytearray(), {}, 10
    for count, kind in pieces:
        pure.extend_runs(packed, 10, [offset, count, kind])
        kinds |= dict.fromkeys(range(offset, offset + count), kind)
        offset += count
    counts = pure.lane_counts(packed, 10, low, high)
    assert compiled.lane_counts(packed, 10, low, high) == counts
    assert counts == [sum(low <= o < high and kind & 0x37 == lane for o, kind in kinds.items()) for lane in range(5)]


@given(runs)
def test_lane_totals(compiled, pieces):
    packed, kinds, offset = bytearray(), {}, 10
    for count, kind in pieces:
        pure.extend_runs(packed, 10, [offset, count, kind])
        kinds |= dict.fromkeys(range(offset, offset + count), kind)
        offset += count
    totals = pure.lane_totals(packed)
    assert compiled.lane_totals(packed) == totals
    mine = [[o - 10 for o, kind in kinds.items() if kind & 0x27 == lane] for lane in range(5)]
    assert totals == [(len(offsets), min(offsets, default=-1)) for offsets in mine]


@given(runs, st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=20))
def test_lanes_within(compiled, pieces, wanted):
    packed, kinds, offset = bytearray(), {}, 10
    for count, kind in pieces:
        pure.extend_runs(packed, 10, [offset, count, kind])
        kinds |= dict.fromkeys(range(offset, offset + count), kind & 7)
        offset += count
    ranges, at = [], 5
    for gap, count in wanted:
        ranges += (at + gap, count)
        at += gap + count
    found = pure.lanes_within(packed, 10, ranges)
    assert compiled.lanes_within(packed, 10, ranges) == found
    lanes = [(o + n, lane) for o, count, lane in zip(found[::3], found[1::3], found[2::3]) for n in range(count)]
    assert lanes == [(o, kinds[o]) for low, n in zip(ranges[::2], ranges[1::2]) for o in range(low, low + n) if o in kinds]


@given(runs)
def test_runs_by_lane(compiled, pieces):
    flat, kinds, offset = [], {}, 10
    for count, kind in pieces:
        flat += (offset, count, kind)
        kinds |= dict.fromkeys(range(offset, offset + count), kind)
        offset += count + (kind & 2)
    plain, lanes = pure.runs_by_lane(flat)
    assert compiled.runs_by_lane(flat) == compiled.runs_by_lane(array("q", flat)) == (plain, lanes)
    assert plain == pure.ranges_of([o for o, kind in kinds.items() if not kind & 0x30])
    assert lanes == [pure.ranges_of([o for o, kind in kinds.items() if kind & 0x37 == lane]) for lane in range(5)]
    assert compiled.runs_by_lane([0, 1, 5]) == pure.runs_by_lane([0, 1, 5]) == ([0, 1], [[], [], [], [], [0, 1]])


steps = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=12)


def ascending(pieces):
    ranges, at = [], 0
    for gap, count in pieces:
        ranges += (at + gap, count)
        at += gap + count
    return ranges


def members(ranges):
    return [o for low, n in zip(ranges[::2], ranges[1::2]) for o in range(low, low + n)]


@given(steps, steps, st.integers(-2, 40), st.randoms(use_true_random=False))
def test_ranges(compiled, one, other, number, chance):
    a, b = ascending(one), ascending(other)
    for name, wanted in (("intersect", set(members(a)) & set(members(b))), ("subtract", set(members(a)) - set(members(b))),
                         ("union", set(members(a)) | set(members(b)))):
        found = getattr(pure, f"ranges_{name}")(a, b)
        assert getattr(compiled, f"ranges_{name}")(a, b) == getattr(compiled, f"ranges_{name}")(tuple(a), tuple(b)) == found
        assert found == pure.ranges_of(wanted) and members(found) == sorted(wanted)
    shuffled = list(zip(a[::2], a[1::2]))
    chance.shuffle(shuffled)
    loose = [x for pair in shuffled for x in pair]
    for codec in (pure, compiled):
        assert codec.ranges_count(loose) == codec.ranges_count(array("q", loose)) == len(members(loose))
        with pytest.raises(OverflowError):
            codec.ranges_count([0, 2**62] * 3)
    assert compiled.ranges_offsets(loose) == pure.ranges_offsets(loose) == members(loose)
    assert compiled.ranges_head(loose, number) == pure.ranges_head(loose, number)
    assert members(pure.ranges_head(loose, number)) == members(loose)[:max(number, 0)]
    assert compiled.ranges_head(array("q", loose), number) == array("q", pure.ranges_head(loose, number))
    assert pure.ranges_head(array("q", loose), number) == array("q", pure.ranges_head(loose, number))
    for codec in (pure, compiled):
        assert codec.ranges_are(loose, members(loose)) and codec.ranges_are(array("q", loose), members(loose))
        for others in (members(loose)[:-1], [*members(loose), 1], [o + (n == 2) for n, o in enumerate(members(loose))], [-1]):
            assert codec.ranges_are(loose, others) == (others == members(loose))
        assert not codec.ranges_are([0, 2**60], [0, 1]) and not codec.ranges_are([5, -3, 10, 3], [10, 11, 12])
        assert not codec.ranges_are([2**63 - 1, 1], [])
    assert compiled.ranges_tail(loose, number) == pure.ranges_tail(loose, number)
    assert members(pure.ranges_tail(loose, number)) == members(loose)[max(number, 0):]
    assert compiled.ranges_find(loose, number) == pure.ranges_find(loose, number)
    assert pure.ranges_find(loose, number) == (members(loose).index(number) if number in members(loose) else -1)
    offsets = members(loose) + members(loose)[:3]
    assert compiled.ranges_of(array("Q", offsets)) == compiled.ranges_of(array("l", offsets)) == compiled.ranges_of(offsets)
    assert compiled.ranges_of(offsets) == compiled.ranges_of(iter(offsets)) == pure.ranges_of(offsets) == pure.ranges_of(members(a))


far = st.lists(st.tuples(st.one_of(st.integers(0, 9), st.integers(0, 2**17), st.sampled_from([2**32 - 5, 2**33, 2**50])),
                         st.one_of(st.integers(1, 4), st.integers(1, 200_000))), max_size=8)


@st.composite
def many(draw):
    """More than an array container holds; drawing each by itself would take a second."""
    chance = draw(st.randoms(use_true_random=True))
    return [(chance.randint(1, 3), chance.randint(1, 2)) for _ in range(draw(st.integers(1000, 6000)))]


@settings(max_examples=60, deadline=None)
@given(st.one_of(far, many()), st.integers(0, 70_000))
def test_ranges_as_roaring_bitmaps(compiled, pieces, start):
    pieces = [(start, 1), *pieces]
    ranges = ascending(pieces)
    packed = pure.ranges_roaring(ranges)
    assert compiled.ranges_roaring(ranges) == packed
    wanted = BitMap64()
    for low, n in zip(ranges[::2], ranges[1::2]):
        wanted.add_range(low, low + n)
    found = BitMap64.deserialize(packed)
    assert found == wanted and len(found) == sum(ranges[1::2])
    found.add(ranges[0])
    found -= wanted
    assert not found


def test_no_ranges_are_a_roaring_bitmap_too(compiled):
    assert compiled.ranges_roaring([]) == pure.ranges_roaring([]) and not BitMap64.deserialize(pure.ranges_roaring([]))
    for bad in ([5, 0], [5, 2, 6, 1], [-1, 3]):
        for codec in (pure, compiled):
            with pytest.raises(ValueError, match="ascend"):
                codec.ranges_roaring(bad)


@given(st.lists(st.one_of(st.integers(-3, 12), st.integers(2**62, 2**65)), max_size=7))
def test_ranges_that_may_be_none(compiled, numbers):
    assert compiled.ranges_ascend(numbers) == pure.ranges_ascend(numbers)
    assert compiled.ranges_ascend([0, 2**63 - 1]) and pure.ranges_ascend([0, 2**63 - 1])
    assert not compiled.ranges_ascend([1, 2**63 - 1]) and not pure.ranges_ascend([1, 2**63 - 1])


@pytest.mark.parametrize("name", ["find", "head", "intersect", "offsets", "subtract", "tail", "union"])
def test_half_a_range(compiled, name):
    more = {"find": [3], "head": [3], "tail": [3]}.get(name, [[0, 9]] if name != "offsets" else [])
    for codec in (pure, compiled):
        with pytest.raises(IndexError):
            getattr(codec, f"ranges_{name}")([5, 2, 8], *more)


def test_every_sample_whole_and_cut(compiled):
    for sealed in SAMPLES:
        raw = stamped(sealed)
        for cut in range(len(raw)) if len(raw) < 2000 else range(0, len(raw), 4999):
            assert compiled.scan(raw[:cut], 0, BASE) == pure.scan(raw[:cut], 0, BASE)
            one, other = bytearray(sealed[:cut]), bytearray(sealed[:cut])
            assert outcome(compiled.stamp, one, 1, NOW, internal=True) == outcome(pure.stamp, other, 1, NOW, internal=True)
            assert one == other
    assert r.EMPTY == len(r.WHY) - 1

"""Both codecs, one behaviour each: build, stamp, scan, the smaller walks, decode."""

import pytest

from gq_proto import record as r
from gq_proto.errors import BadRecord, Corrupt, TimestampSkew, TooLarge
from gq_proto.found import Batch, FoundBatch
from gq_proto.headers import DELAY_US_MAX, delay_header, deliver_at_header
from gq_proto.limits import (
    BATCH_MESSAGES_MAX,
    KEY_MAX,
    TIMESTAMP_SKEW_US_MAX,
    USER_HEADERS_MAX,
    VALUE_CEILING,
    VALUE_MAX,
)
from tests.samples import INTERNAL, NOW, log, raw_record, samples, stamped

SAMPLES = samples()
HOUR = TIMESTAMP_SKEW_US_MAX


def test_crc_is_castagnoli(codec):
    assert codec.crc32c(b"123456789") == 0xE3069283
    assert codec.crc32c(b"6789", codec.crc32c(b"12345")) == 0xE3069283
    assert codec.crc32c(b"") == 0


def test_partition_is_murmur3(codec):
    assert codec.partition_of(b"", 7) == 0
    assert codec.partition_of(b"hello", 2**31 - 1) == 0x248BFA47       # published vector of murmur3 x86 32, seed 0
    assert codec.partition_of(bytearray(b"hello"), 10) == 0x248BFA47 % 10
    with pytest.raises(BadRecord):
        codec.partition_of(b"x", 0)


class TestBuilder:
    def test_size_is_what_seal_returns(self, codec):
        builder = codec.BatchBuilder(16)
        assert (builder.count, builder.size) == (0, 0)
        assert [builder.add(b"k", b"v" * n, codec.encode_headers([("a", b"b")] * (n % 3))) for n in range(100)] == list(range(100))
        size = builder.size
        assert builder.count == 100
        assert len(builder.seal(1, 0, 0)) == size
        assert (builder.count, builder.size) == (0, 0)

    def test_without_a_producer_no_header_is_left_behind(self, codec):
        builder = codec.BatchBuilder()
        builder.add(b"k", b"v")
        assert builder.seal() == raw_record()
        builder.add(b"k", b"v", codec.encode_headers([("a", b"b")]))
        assert builder.seal() == raw_record(headers=b"\0\x01\0\x01a\0\x01b")

    def test_the_first_record_names_the_batch(self, codec):
        builder = codec.BatchBuilder()
        builder.add(b"k", b"v", codec.encode_headers([("a", b"b")]))
        builder.add(b"l", b"w")
        sealed = builder.seal(5, 6, 7)
        header = b"\0\x02\0\x08gq-batch\0\x12" + bytes.fromhex("0000000000000005 0006 00000007 00000002") + b"\0\x01a\0\x01b"
        assert sealed == raw_record(flags=r.BATCH, headers=header) + raw_record(key=b"l", value=b"w")

    def test_clear_forgets(self, codec):
        builder = codec.BatchBuilder()
        builder.add(b"k", b"v")
        builder.clear()
        assert (builder.count, builder.size) == (0, 0)
        with pytest.raises(BadRecord, match="empty"):
            builder.seal()

    def test_a_sealed_batch_is_not_touched_by_the_next(self, codec):
        builder = codec.BatchBuilder()
        builder.add(b"a", b"1" * 1000)
        first = builder.seal()
        copy = bytes(bytearray(first))
        builder.add(b"b", b"2" * 1000)
        builder.seal()
        assert first == copy

    @pytest.mark.parametrize(("error", "fields"), [
        (TooLarge, {"key": bytes(KEY_MAX + 1)}),
        (TooLarge, {"value": bytes(VALUE_CEILING + 1)}),
        (TooLarge, {"headers": bytes(65_536)}),
        (TooLarge, {"headers": bytes(65_535 - 29)}),        # no room for gq-batch
        (BadRecord, {"priority": 5}), (BadRecord, {"priority": -1}),
        (BadRecord, {"flags": r.BATCH}), (BadRecord, {"flags": 0x40}), (BadRecord, {"flags": -1}), (BadRecord, {"flags": 256}),
        (BadRecord, {"flags": r.COMMIT}), (BadRecord, {"flags": r.CONTROL}), (BadRecord, {"flags": r.CONTROL, "key": bytes(4)}),
        (BadRecord, {"flags": r.CONTROL | r.DELAYED, "key": bytes(4), "value": b"", "headers": bytes(6)}),
        (BadRecord, {"flags": r.COMPRESSED, "value": b""}), (BadRecord, {"codec": 1, "value": b""}),
        (BadRecord, {"flags": r.COMPRESSED, "codec": 1}), (BadRecord, {"flags": r.COMPRESSED, "codec": 2, "value": b""}),
        (BadRecord, {"timestamp": -1}), (BadRecord, {"timestamp": 2**62}),
        (BadRecord, {"headers": bytes(5)}), (BadRecord, {"flags": r.DELAYED}),
        (TypeError, {"key": "text"}), (TypeError, {"value": "text"}),
    ])
    def test_a_refused_record_leaves_the_batch_as_it_was(self, codec, error, fields):
        builder = codec.BatchBuilder()
        with pytest.raises(error):
            builder.add(**{"key": None, "value": None} | fields)
        assert (builder.count, builder.size) == (0, 0)
        builder.add(b"k", b"v")
        assert builder.seal() == raw_record()

    @pytest.mark.parametrize("producer", [(0, -1, 0), (0, 2**15, 0), (0, 0, -1), (0, 0, 2**31)])
    def test_a_producer_out_of_range_is_refused(self, codec, producer):
        builder = codec.BatchBuilder()
        builder.add(b"k", b"v")
        with pytest.raises(BadRecord):
            builder.seal(*producer)
        assert builder.seal() == raw_record()

    def test_bytes_like_keys_and_values(self, codec):
        builder = codec.BatchBuilder()
        builder.add(bytearray(b"k"), memoryview(b"v"))
        assert builder.seal() == raw_record()


class TestStamp:
    def test_offsets_timestamp_and_crc(self, codec):
        frame = bytearray(SAMPLES["idempotent"])
        said = codec.stamp(frame, 100, NOW, position=5000, segment_base=90, last_index_position=900)
        assert (said.count, said.size, said.first_offset, said.next_offset) == (3, len(frame), 100, 103)
        assert said.batch == Batch(77, 3, 1000, 3)
        assert (said.runs, said.due, said.controls) == ([100, 3, 2], [], [])
        assert said.index == bytes.fromhex("0000000a 00001388")
        assert (said.times, said.max_timestamp, said.last_time_point) == ([NOW, 100], NOW, NOW)
        assert said.flags == r.BATCH
        found = codec.decode(bytes(frame))
        assert [(m.offset, m.timestamp, m.value) for m in found] == [(100 + n, NOW, b"v%d" % n) for n in range(3)]

    @pytest.mark.parametrize("name", SAMPLES)
    def test_apps_are_refused_what_is_the_systems(self, codec, name):
        if name in INTERNAL:
            with pytest.raises(BadRecord, match=r"only daemons|are the system's"):
                codec.stamp(bytearray(SAMPLES[name]), 0, NOW)
        else:
            codec.stamp(bytearray(SAMPLES[name]), 0, NOW)
        codec.stamp(bytearray(SAMPLES[name]), 0, NOW, internal=True)

    def test_delays_count_from_the_stamped_time(self, codec):
        assert codec.stamp(bytearray(SAMPLES["delayed"]), 7, NOW).due == [7, NOW + 5_000_000, 8, NOW + 60_000_000]

    def test_runs_split_by_lane_and_kind_only(self, codec):
        frame = bytearray(SAMPLES["priorities"])
        assert codec.stamp(frame, 0, NOW).runs == [0, 1, 0, 1, 1, 1, 2, 1, 2, 3, 1, 3, 4, 2, 4, 6, 1, 2]
        assert codec.stamp(bytearray(SAMPLES["compressed"]), 0, NOW).runs == [0, 2, 2]

    def test_index_points_are_an_interval_apart(self, codec):
        builder = codec.BatchBuilder()
        for _ in range(50):
            builder.add(None, bytes(966))       # 1000 bytes each
        frame = bytearray(builder.seal())
        said = codec.stamp(frame, 10, NOW, segment_base=10)
        assert said.index == b"".join([(n * 5).to_bytes(4) + (n * 5000).to_bytes(4) for n in range(1, 10)])
        assert said.last_index_position == 45_000
        assert codec.scan(frame, segment_base=10).index == said.index
        assert codec.stamp(frame, 10, NOW, segment_base=10, index_interval=10**9).index == b""

    def test_create_keeps_the_producers_time(self, codec):
        frame = bytearray(SAMPLES["idempotent"])
        said = codec.stamp(frame, 0, NOW + HOUR, create=True, last_timestamp=NOW - 1)
        assert [m.timestamp for m in codec.decode(frame)] == [NOW, NOW + 1, NOW + 2]
        assert said.max_timestamp == NOW + 2
        assert codec.stamp(frame, 0, NOW, create=True, last_timestamp=NOW + 50).max_timestamp == NOW + 50
        for now in (NOW + HOUR + 3, NOW - HOUR - 1):
            with pytest.raises(TimestampSkew, match="hour"):
                codec.stamp(bytearray(SAMPLES["idempotent"]), 0, now, create=True)

    def test_limits(self, codec):
        codec.stamp(bytearray(raw_record(value=bytes(VALUE_MAX))), 0, NOW)
        with pytest.raises(TooLarge, match=r"record 0 at byte 0 has a value"):
            codec.stamp(bytearray(raw_record(value=bytes(VALUE_MAX + 1))), 0, NOW)
        codec.stamp(bytearray(raw_record(value=bytes(VALUE_MAX + 1))), 0, NOW, max_value=VALUE_MAX + 1)
        with pytest.raises(TooLarge, match="batch"):
            codec.stamp(bytearray(raw_record(key=None, value=None) * (BATCH_MESSAGES_MAX + 1)), 0, NOW)
        name = b"n" * (USER_HEADERS_MAX - 2 - 4)
        section = b"\0\x01" + len(name).to_bytes(2) + name
        codec.stamp(bytearray(raw_record(headers=section + b"\0\0")), 0, NOW)
        with pytest.raises(TooLarge, match="headers"):
            codec.stamp(bytearray(raw_record(headers=section + b"\0\x01x")), 0, NOW)

    def test_a_batch_above_the_limit_of_bytes_is_refused_but_one_large_record_is_not(self, codec):
        large = raw_record(value=bytes(17 * 2**20))
        codec.stamp(bytearray(large), 0, NOW, max_value=VALUE_CEILING)
        with pytest.raises(TooLarge, match="batch"):
            codec.stamp(bytearray(large + raw_record()), 0, NOW, max_value=VALUE_CEILING)

    @pytest.mark.parametrize(("why", "frame"), [
        (r.EMPTY, b""),
        (r.SHORT, raw_record()[:-1]), (r.SHORT, b"GQ"),
        (r.BAD_MAGIC, raw_record(magic=0x4750)), (r.BAD_VERSION, raw_record(version=2)),
        (r.BAD_FLAGS, raw_record(flags=0x40)), (r.BAD_FLAGS, raw_record(flags=r.COMMIT)),
        (r.BAD_FLAGS, raw_record(flags=r.CONTROL | r.COMPRESSED, codec=1, key=bytes(4))),
        (r.BAD_PRIORITY, raw_record(priority=5)),
        (r.BAD_CODEC, raw_record(codec=1)), (r.BAD_CODEC, raw_record(codec=2, flags=1)), (r.BAD_CODEC, raw_record(codec=8)),
        (r.BAD_TIMESTAMP, raw_record(timestamp=2**62)), (r.BAD_TIMESTAMP, raw_record(timestamp=2**64 - 1)),
        (r.BAD_OFFSET, raw_record(offset=2**63)),
        (r.BAD_LENGTH, raw_record(value_size=VALUE_CEILING + 1)), (r.BAD_LENGTH, raw_record(headers=bytes(5))),
        (r.BAD_LENGTH, raw_record(flags=r.CONTROL)), (r.BAD_LENGTH, raw_record(flags=r.CONTROL, key=bytes(4), value=None)),
        (r.BAD_LENGTH, raw_record(flags=r.COMPRESSED, codec=1, value=None)),
        (r.BAD_CRC, raw_record()[:-1] + b"?"),
        (r.BAD_HEADERS, raw_record(headers=bytes(6))), (r.BAD_HEADERS, raw_record(headers=b"\0\x01\0\0\0\x01")),
        (r.BAD_HEADERS, raw_record(headers=b"\0\x02\0\0\0\0")), (r.BAD_HEADERS, raw_record(headers=b"\0\x01\0\0\0\0?")),
        (r.BAD_HEADERS, raw_record(headers=b"\0\x01\0\x01\xff\0\0")), (r.BAD_HEADERS, raw_record(headers=b"\0\x01\xff\xff\0\0")),
        (r.BAD_ORDER, raw_record(headers=b"\0\x02\0\x01a\0\0\0\x04gq-x\0\0")),
        (r.BAD_ORDER, raw_record(flags=r.DELAYED, headers=b"\0\x02\0\x04gq-x\0\0\0\x08gq-delay\0\x08" + bytes(8))),
        (r.BAD_ORDER, raw_record(flags=r.DELAYED, headers=b"\0\x02" + (b"\0\x08gq-delay\0\x08" + bytes(8)) * 2)),
        (r.BAD_BATCH, raw_record(flags=r.BATCH)), (r.BAD_BATCH, raw_record(flags=r.BATCH, headers=b"\0\x01\0\0\0\0")),
        (r.BAD_BATCH, raw_record(headers=b"\0\x01\0\x08gq-batch\0\x12" + bytes(17) + b"\x01")),
        (r.BAD_BATCH, raw_record(flags=r.BATCH, headers=b"\0\x01\0\x08gq-batch\0\x12" + bytes(18))),
        (r.BAD_BATCH, raw_record(flags=r.BATCH, headers=b"\0\x01\0\x08gq-batch\0\x12" + bytes(17) + b"\x02")),
        (r.BAD_BATCH, raw_record(flags=r.BATCH, headers=b"\0\x01\0\x08gq-batch\0\x12\xff" + bytes(16) + b"\x01")),
        (r.BAD_BATCH, raw_record(flags=r.BATCH, headers=b"\0\x01\0\x08gq-batch\0\x11" + bytes(17))),
        (r.BAD_DELAY, raw_record(flags=r.DELAYED)), (r.BAD_DELAY, raw_record(flags=r.DELAYED, headers=b"\0\x01\0\0\0\0")),
        (r.BAD_DELAY, raw_record(headers=b"\0\x01\0\x08gq-delay\0\x08" + bytes(8))),
        (r.BAD_DELAY, raw_record(flags=r.DELAYED, headers=b"\0\x01\0\x08gq-delay\0\x07" + bytes(7))),
        (r.BAD_DELAY, raw_record(flags=r.DELAYED, headers=b"\0\x01\0\x08gq-delay\0\x08" + (DELAY_US_MAX + 1).to_bytes(8))),
        (r.BAD_DELAY, raw_record(flags=r.DELAYED, headers=b"\0\x01\0\x0dgq-deliver-at\0\x08" + b"\x7f" * 8)),
        (r.LONG_DELAY, raw_record(flags=r.DELAYED,
                                  headers=b"\0\x01\0\x0dgq-deliver-at\0\x08" + (NOW + DELAY_US_MAX + 1).to_bytes(8))),
    ])
    def test_every_violation_is_named(self, codec, why, frame):
        for before, index in ((b"", 0), (raw_record(), 1)) if frame else ((b"", 0),):
            if why == r.BAD_BATCH and before:
                continue        # the batch header's own place is tested below
            with pytest.raises(BadRecord) as caught:
                codec.stamp(bytearray(before + frame), 0, NOW)
            assert caught.value.message == f"record {index} at byte {len(before)} {r.WHY[why]}"

    def test_a_batch_header_belongs_on_the_first_record_and_counts_all(self, codec):
        one = samples()["transactional"]
        for frame in (raw_record() + one, one + raw_record(), one + one):
            with pytest.raises(BadRecord, match="gq-batch"):
                codec.stamp(bytearray(frame), 0, NOW)

    def test_the_longest_delay_is_taken(self, codec):
        for header in (delay_header(DELAY_US_MAX), deliver_at_header(NOW + DELAY_US_MAX), deliver_at_header(0)):
            frame = bytearray(raw_record(flags=r.DELAYED, headers=codec.encode_headers([header])))
            assert codec.stamp(frame, 0, NOW).due[1] in (NOW + DELAY_US_MAX, 0)

    def test_a_frame_must_be_writable(self, codec):
        with pytest.raises(BufferError):
            codec.stamp(raw_record(), 0, NOW)


class TestScan:
    def test_collects_what_the_leader_collected(self, codec):
        for name, sealed in SAMPLES.items():
            frame = bytearray(sealed)
            said = codec.stamp(frame, 5, NOW, internal=True)
            scan = codec.scan(frame, 0, 5)
            for field in ("count", "next_offset", "max_timestamp", "flags", "runs", "due", "index", "times", "controls"):
                assert getattr(scan, field) == getattr(said, field), (name, field)
            assert scan.reason == "end" and scan.position == len(frame) and scan.open_batch is None

    def test_batches_and_controls_of_a_log(self, codec):
        scan = codec.scan(log())
        assert FoundBatch(2, 77, 3, 1000, 3) in scan.batches
        assert [found.type for found in scan.controls] == [3, 4, 1, 0, 2]
        assert scan.reason == "end"

    def test_a_cut_at_each_byte_leaves_the_longest_valid_prefix(self, codec):
        raw = stamped(SAMPLES["idempotent"])
        ends = [m for m in range(len(raw) + 1) if codec.check(raw[:m])[0] == m]
        assert len(ends) == 4
        for cut in range(len(raw)):
            scan = codec.scan(raw[:cut], 0, 41)
            whole = max(end for end in ends if end <= cut)
            assert (scan.position, scan.count) == (whole, ends.index(whole))
            assert scan.reason == ("end" if cut == whole else "short")
            if scan.count:
                assert (scan.open_batch.position, scan.open_batch.offset) == (0, 41)
                assert (scan.open_batch.present, scan.open_batch.count) == (scan.count, 3)

    def test_every_flipped_bit_is_found(self, codec):
        first, second, third = (stamped(raw_record(key=b"%d" % n), 41 + n) for n in range(3))
        for bit in range(len(second) * 8):
            damaged = bytearray(second)
            damaged[bit // 8] ^= 1 << bit % 8
            scan = codec.scan(first + damaged + third, 0, 41)
            assert (scan.count, scan.position, scan.next_offset) == (1, len(first), 42), bit
            assert scan.reason in ("crc", "header", "short")
            assert str(len(first)) in scan.detail
            assert codec.find_valid(first + damaged + third, len(first), 42, 100) == len(first) + len(second)

    def test_offsets_must_follow(self, codec):
        one, other = stamped(raw_record(), 41), stamped(raw_record(), 43)
        scan = codec.scan(one + other)
        assert (scan.reason, scan.count, scan.next_offset) == ("offset", 1, 42)
        assert codec.scan(one, 0, 40).reason == "offset"

    def test_positions_are_those_of_the_file(self, codec):
        raw = stamped(raw_record(), 41)
        scan = codec.scan(b"?" + raw + b"?", 1, 41, base_position=1000, segment_base=40, last_index_position=-10**6)
        assert (scan.position, scan.index, scan.reason) == (1001 + len(raw), bytes.fromhex("00000001 000003e9"), "short")

    @pytest.mark.parametrize(("offset", "base"), [(2**32 + 40, 40), (41, 42), (2**62, 0)])
    def test_an_index_has_no_place_for_what_is_not_of_its_segment(self, codec, offset, base):
        scan = codec.scan(stamped(raw_record(), offset), segment_base=base, last_index_position=-10**6)
        assert (scan.next_offset, scan.index, scan.last_index_position) == (offset + 1, b"", -10**6)

    def test_the_last_offset_there_is(self, codec):
        raw = bytearray(stamped(raw_record(), 2**63 - 2))
        assert codec.scan(raw).next_offset == codec.check(raw)[3] == 2**63 - 1
        raw[8:16] = (2**63 - 1).to_bytes(8)
        assert (codec.scan(raw).reason, codec.scan(raw).count, codec.check(raw)[1]) == ("header", 0, 0)

    def test_an_empty_buffer(self, codec):
        scan = codec.scan(b"", 0, 9)
        assert (scan.count, scan.first_offset, scan.next_offset, scan.reason) == (0, -1, 9, "end")


class TestSmallWalks:
    def test_find_valid_wants_a_plausible_offset(self, codec):
        raw = b"GQ\x01GQ" + stamped(raw_record(), 41) + b"G" + stamped(raw_record(), 50)
        assert codec.find_valid(raw, 0, 0, 100) == 5
        assert codec.find_valid(raw, 0, 42, 100) == 5 + len(raw_record()) + 1
        assert codec.find_valid(raw, 6, 0, 49) == -1
        assert codec.find_valid(raw, -5, 0, 49) == 5
        assert codec.find_valid(b"", 0, 0, 1) == -1

    def test_a_record_inside_a_value_is_found_only_when_its_offset_fits(self, codec):
        inner = stamped(raw_record(), 7)
        assert codec.find_valid(stamped(raw_record(value=inner), 900)[1:], 0, 900, 1000) == -1

    def test_locate(self, codec):
        raw = b"".join(stamped(raw_record(value=bytes(n)), 41 + 2 * n) for n in range(3))
        size = len(raw_record(value=b""))
        assert [codec.locate(raw, 0, offset) for offset in (0, 41, 42, 43, 44, 45, 46)] == \
            [0, 0, size, size, 2 * size + 1, 2 * size + 1, -1]
        assert codec.locate(raw, size, 41) == size
        assert codec.locate(raw, 1, 41) == -1 == codec.locate(raw, -1, 41)

    def test_check_takes_whole_records_only(self, codec):
        raw = stamped(SAMPLES["plain"])
        assert codec.check(raw) == (len(raw), 2, 41, 43)
        assert codec.check(raw[:-1])[1:] == (1, 41, 42)
        assert codec.check(raw + raw) == (len(raw), 2, 41, 43)
        assert codec.check(b"") == (0, 0, -1, -1)


class TestDecode:
    def test_every_field(self, codec):
        headers = codec.encode_headers([("gq-x", b"s"), ("a", b"1"), ("a", b"2")])
        raw = stamped(raw_record(priority=4, flags=r.TRANSACTIONAL, headers=headers))
        owner = object()
        [m] = codec.decode(raw, topic="t", partition=3, owner=owner, delivery=2)
        assert (m.topic, m.partition, m.offset, m.timestamp, m.priority, m.flags, m.key, m.value, m.delivery) == \
            ("t", 3, 41, NOW, 4, r.TRANSACTIONAL, b"k", b"v", 2)
        assert m.owner is owner
        assert (m.headers, m.system_headers, m.raw_headers) == ([("a", b"1"), ("a", b"2")], [("gq-x", b"s")], headers)
        assert repr(m) == "<Record t/3/41>"

    def test_null_and_empty_are_distinct(self, codec):
        found = codec.decode(stamped(SAMPLES["null-empty"]))
        assert [(m.key, m.value) for m in found] == [(k, v) for k in (None, b"", b"k") for v in (None, b"", b"v")]
        assert all(m.headers == [] for m in found)

    def test_values_are_decompressed_when_asked_for(self, codec):
        m, other = codec.decode(stamped(SAMPLES["compressed"]))
        assert m.value == b"the quick brown fox " * 8 and m.value is m.value
        assert len(m.raw_value) < len(m.value)
        assert other.value == other.raw_value == b"not"
        [broken] = codec.decode(stamped(raw_record(flags=r.COMPRESSED, codec=1)))
        with pytest.raises(BadRecord, match="zstd"):
            _ = broken.value

    def test_attributes_can_be_set(self, codec):
        m = codec.decode(stamped(SAMPLES["compressed"]))[0]
        m.value = b"new"
        assert (m.value, m.raw_value, m.flags) == (b"new", b"new", 0)
        m.topic, m.partition, m.offset, m.timestamp, m.priority, m.delivery, m.owner, m.key = "t", 1, 2, 3, 4, 5, None, b"6"
        m.raw_headers = codec.encode_headers([("a", b"b")])
        assert m.headers == [("a", b"b")]
        made = codec.Record("t", 1, 2, value=b"v")
        assert (made.topic, made.offset, made.value, made.headers, made.delivery) == ("t", 2, b"v", [], 1)

    def test_subclasses_are_made_without_init(self, codec):
        class Message(codec.Record):
            __slots__ = ()

            def __init__(self):
                raise AssertionError("decode must not call this")

            def shout(self):
                return self.value.upper()

        [m] = codec.decode(stamped(raw_record()), Message)
        assert type(m) is Message and m.shout() == b"V"
        assert not hasattr(m, "__dict__")

    def test_a_record_made_bare_is_harmless(self, codec):
        bare = codec.Record.__new__(codec.Record)
        for name in ("headers", "value", "raw_headers", "flags"):
            try:
                getattr(bare, name)
            except AttributeError:
                assert codec.NAME == "pure"

    def test_bounds_and_skips(self, codec):
        raw = stamped(SAMPLES["null-empty"])        # offsets 41..49
        offsets = lambda **fields: [m.offset for m in codec.decode(raw, **fields)]  # noqa: E731
        assert offsets(lo=43, hi=46) == [43, 44, 45]
        assert offsets(skip=[0, 1, 40, 2, 43, 2, 49, 5]) == [42, 45, 46, 47, 48]
        assert offsets(skip=(41, 100)) == []
        with pytest.raises(ValueError, match="pairs"):
            offsets(skip=[41])

    def test_control_records_are_left_out(self, codec):
        assert codec.decode(stamped(SAMPLES["ready"])) == []
        assert len(codec.decode(log())) == codec.check(log())[1] - 5

    def test_a_cut_last_record_is_not_there_and_damage_raises(self, codec):
        raw = stamped(SAMPLES["plain"])
        for cut in range(len(raw)):
            assert len(codec.decode(raw[:cut])) == (1 if cut >= len(raw) - 49 else 0)
        with pytest.raises(Corrupt, match=r"at byte 0 .* t/1 does not match its CRC"):
            codec.decode(raw[:-50] + b"?" + raw[-49:], topic="t", partition=1)
        with pytest.raises(Corrupt, match="magic"):
            codec.decode(raw + b"?" * 34)
        with pytest.raises(Corrupt, match="next offset"):
            codec.decode(raw + raw)

    def test_only_records_can_be_made(self, codec):
        with pytest.raises((TypeError, AttributeError)):
            codec.decode(stamped(raw_record()), dict)


class TestHeaders:
    def test_system_headers_go_first_in_their_order(self, codec):
        mixed = [("b", b"1"), ("gq-x", b"2"), ("gq-delay", b"3"), ("a", b"4"), ("gq-batch", b"5"), ("b", b"6")]
        assert codec.decode_headers(codec.encode_headers(mixed)) == \
            [("gq-batch", b"5"), ("gq-delay", b"3"), ("gq-x", b"2"), ("b", b"1"), ("a", b"4"), ("b", b"6")]

    def test_limits(self, codec):
        assert codec.encode_headers([]) == b"" and codec.decode_headers(b"") == []
        assert len(codec.encode_headers([("h", bytes(USER_HEADERS_MAX - 7))])) == USER_HEADERS_MAX
        with pytest.raises(TooLarge):
            codec.encode_headers([("h", bytes(USER_HEADERS_MAX - 6))])
        assert len(codec.encode_headers([("h", bytes(USER_HEADERS_MAX - 7)), ("gq-x", bytes(4000))])) > USER_HEADERS_MAX
        with pytest.raises(TooLarge):
            codec.encode_headers([("h", bytes(USER_HEADERS_MAX - 7)), ("gq-x", bytes(4096))])
        with pytest.raises(TooLarge):
            codec.encode_headers([("n" * 65_536, b"")])

    def test_what_is_no_text_is_refused(self, codec):
        with pytest.raises(BadRecord):
            codec.encode_headers([("\ud800", b"")])
        with pytest.raises(TypeError):
            codec.encode_headers([("a", "text")])
        with pytest.raises(BadRecord):
            codec.decode_headers(b"\0\x01\0\x02\xed\xa0\0\0")

    def test_cut_at_each_position_and_trailing_bytes(self, codec):
        raw = codec.encode_headers([("a", b"1"), ("snow☃", b"\xff\0"), ("", b"")])
        for cut in range(1, len(raw)):
            with pytest.raises(BadRecord):
                codec.decode_headers(raw[:cut])
        with pytest.raises(BadRecord):
            codec.decode_headers(raw + b"\0")


def test_the_environment_chooses(reload_codec, compiled):
    assert reload_codec("pure").NAME == "pure"
    assert reload_codec(None).NAME == reload_codec("compiled").NAME == compiled.NAME == "compiled"

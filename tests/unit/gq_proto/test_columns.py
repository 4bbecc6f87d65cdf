"""Columns mean what decoded records mean, and Arrow finds them well formed. That both codecs give the same: test_codec_twins."""

from array import array

import pytest

from gq_proto import record as r
from gq_proto.errors import Corrupt
from tests.samples import BASE, raw_record, samples, stamped

pa = pytest.importorskip("pyarrow")


def log() -> bytes:
    """All samples, one after another."""
    parts, base = [], BASE
    for sealed in samples().values():
        parts.append(stamped(sealed, base))
        base = int.from_bytes(last_of(parts[-1])[8:16]) + 1
    return b"".join(parts)


def last_of(frame: bytes) -> bytes:
    at = following = 0
    while following < len(frame):
        key, value, headers = (int.from_bytes(frame[following + a : following + b]) for a, b in ((26, 28), (28, 32), (32, 34)))
        at, following = following, following + 34 + key * (key != r.KEY_NULL) + value * (value != r.VALUE_NULL) + headers
    return frame[at:]


def binary(count, offsets, data, validity=None):
    buffers = [validity and pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    made = pa.Array.from_buffers(pa.binary(), count, buffers)
    made.validate(full=True)
    return made.to_pylist()


def rows(found):
    """Each as (offset, timestamp, priority, flags, key, value, headers)."""
    keys = binary(found.count, found.key_offsets, found.key_data, found.key_validity)
    values = binary(found.count, found.value_offsets, found.value_data, found.value_validity)
    names = binary(found.header_count, found.name_offsets, found.name_data)
    contents = binary(found.header_count, found.content_offsets, found.content_data)
    ends = array("i", found.header_offsets)
    for row in range(found.count):
        headers = [(names[n].decode(), contents[n]) for n in range(ends[row], ends[row + 1])]
        assert bool(found.header_validity[row // 8] >> row % 8 & 1) == bool(headers), "a list is there or null, never empty"
        yield (array("q", found.offset)[row], array("q", found.timestamp)[row], found.priority[row], found.flags[row], keys[row],
               values[row], headers)


def expected(codec, data, **options):
    return [(m.offset, m.timestamp, m.priority, m.flags, m.key, m.raw_value, [(n, bytes(v)) for n, v in m.headers])
            for m in codec.decode(data, **options)]


def test_rows(codec):
    data = log()
    found = codec.columns(data)
    assert list(rows(found)) == expected(codec, data)
    assert found.size == len(data) and found.next_offset == array("q", found.offset)[-1] + 1
    assert any(row[6] for row in rows(found)) and not any(name.startswith("gq-") for row in rows(found) for name, _ in row[6])


def test_bounds_ranges_and_flags(codec):
    data = log()
    skip = [BASE + 1, 2, BASE + 6, 1, BASE + 9, 100]
    found = codec.columns(data, BASE + 1, BASE + 12, skip)
    assert list(rows(found)) == expected(codec, data, lo=BASE + 1, hi=BASE + 12, skip=skip) != []
    assert found.next_offset == BASE + 12
    assert list(rows(codec.columns(data, without=r.CONTROL | r.DELAYED))) == [
        row for row in expected(codec, data) if not row[3] & r.DELAYED]
    every = list(rows(codec.columns(data, without=0)))
    assert [row[0] for row in every] == list(range(BASE, BASE + len(every))) and any(row[3] & r.CONTROL for row in every)


def test_a_cut_end_is_for_the_next_call(codec):
    data = log()
    for cut in range(len(data) - 300, len(data), 7):
        found = codec.columns(data[:cut])
        assert found.size <= cut and list(rows(found)) + list(rows(codec.columns(data[found.size:]))) == expected(codec, data)


def test_nothing(codec):
    for found in (codec.columns(b""), codec.columns(log(), 2**62), codec.columns(log(), without=0xFF & ~r.CONTROL, lo=2**62)):
        assert found.count == found.header_count == 0 and found.key_offsets == bytes(4) == found.header_offsets


def test_damage(codec):
    data = log()
    with pytest.raises(Corrupt, match="the record at byte 0 does not match its CRC"):
        codec.columns(data[:40] + b"\xff" + data[41:])
    assert codec.columns(data[:40] + b"\xff" + data[41:], BASE + 1).count, "what is not asked for is not looked at"
    bad = raw_record(headers=b"\0\1\0\1\xff\0\0", offset=3)
    with pytest.raises(Corrupt, match="the record at byte 0 has malformed headers"):
        codec.columns(bad)
    with pytest.raises(ValueError, match="pairs"):
        codec.columns(data, skip=[1])

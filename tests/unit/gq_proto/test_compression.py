"""zstd values: round trips, bombs, damage."""

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gq_proto.compression import compress, decompress
from gq_proto.errors import BadRecord, TooLarge
from gq_proto.record import CODEC_NONE

PLAIN = b"the quick brown fox " * 100


@given(st.binary(max_size=2000))
def test_round_trip(data):
    assert decompress(compress(data)) == data
    assert decompress(compress(data, CODEC_NONE), CODEC_NONE) == data


def unsized(data):
    streaming = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return streaming.compress(data) + streaming.flush()


@pytest.mark.parametrize("pack", [compress, unsized])
def test_output_is_bounded(pack):
    assert decompress(pack(PLAIN), max_size=len(PLAIN)) == PLAIN
    with pytest.raises(TooLarge):
        decompress(pack(PLAIN), max_size=len(PLAIN) - 1)
    with pytest.raises(TooLarge):
        decompress(pack(bytes(100 * 2**20)))


@pytest.mark.parametrize("bad", [b"", b"plain", compress(PLAIN)[:-3], compress(PLAIN) + b"more", compress(PLAIN)[:6]])
def test_what_is_no_zstd(bad):
    with pytest.raises(BadRecord):
        decompress(bad)


def test_reserved_codecs():
    for codec in (2, 3, 9):
        with pytest.raises(BadRecord):
            compress(b"", codec)
        with pytest.raises(BadRecord):
            decompress(b"", codec)


@given(st.binary(max_size=100), st.integers(0, 60), st.integers(0, 255))
def test_any_bytes(junk, at, byte):
    damaged = bytearray(compress(PLAIN))
    damaged[at % len(damaged)] = byte
    for bad in (junk, bytes(damaged)):
        try:
            assert len(decompress(bad, max_size=5000)) <= 5000
        except (BadRecord, TooLarge):
            pass

"""Compression of record values: zstd, with a bound on what comes out.

Never trusts the size a frame declares beyond refusing it: output is bounded by `max_size` whatever the input says.
Contexts are per thread, because zstandard's are not safe to share.
"""

import threading
from typing import Final

import zstandard

from gq_proto.errors import BadRecord, TooLarge
from gq_proto.limits import VALUE_CEILING
from gq_proto.record import CODEC_NONE, CODEC_ZSTD

LEVEL: Final = 3
_WINDOW_MAX: Final = 1 << 27
_CHUNK: Final = 1 << 20


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)


_contexts = _Contexts()


def compress(data: bytes, codec: int = CODEC_ZSTD) -> bytes:
    """`data` compressed; BadRecord for a codec this release does not write."""
    if codec == CODEC_NONE:
        return bytes(data)
    if codec != CODEC_ZSTD:
        raise BadRecord(f"compression {codec} is reserved: use 1 (zstd)")
    return _contexts.compressor.compress(data)


def decompress(data: bytes, codec: int = CODEC_ZSTD, max_size: int = VALUE_CEILING) -> bytes:
    """The original bytes. TooLarge when there are more than `max_size`, BadRecord when `data` is not what `codec` says."""
    if codec == CODEC_NONE:
        return bytes(data)
    if codec != CODEC_ZSTD:
        raise BadRecord(f"compression {codec} is reserved: this release reads 1 (zstd)")
    try:
        declared = zstandard.frame_content_size(data)
        if declared > max_size:
            raise TooLarge(f"a compressed value holds {declared} bytes: the limit is {max_size}")
        if declared > 0:
            return _contexts.decompressor.decompress(data, allow_extra_data=False)
        return _unsized(data, max_size)
    except zstandard.ZstdError as error:
        raise BadRecord(f"a compressed value is not zstd: {error}") from None


def _unsized(data: bytes, max_size: int) -> bytes:
    """Frames written by streaming compressors do not declare their size: read until one byte too many."""
    chunks, size = [], 0
    with _contexts.decompressor.stream_reader(data) as reader:
        while chunk := reader.read(min(_CHUNK, max_size + 1 - size)):
            chunks.append(chunk)
            size += len(chunk)
            if size > max_size:
                raise TooLarge(f"a compressed value holds more than {max_size} bytes")
    return b"".join(chunks)

"""A piece of a segment as the codec's columns, chunk by chunk: the records that lie there, or the delayed messages whose ready
records do.

Every record that becomes a row has its CRC checked. What is damaged, cut, or gone since the piece was planned is lost: an error, or
a warning and the rest.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from gq_proto import codec, segment
from gq_proto import ranges as rng
from gq_proto import record as r
from gq_proto.control import ControlType
from gq_proto.errors import Corrupt
from gq_proto.found import Columns, Gathered
from gq_proto.segment import Derived, segment_name
from gq_spark.decided import named
from gq_spark.disk import Disk, File
from gq_spark.loss import lost
from gq_spark.options import Options
from gq_spark.planning import Piece
from gq_spark.pruning import EVERY

CHUNK: Final = 1024 * 1024         # what of it stays in the caches is worth more than longer batches


class Pieces:
    """Reads for one task. Buffers are used again."""

    def __init__(self, disk: Disk, options: Options) -> None:
        self._disk, self._fatal = disk, options.fail_on_data_loss
        self._without = (0 if options.include_control else r.CONTROL) | (0 if options.include_delayed else r.DELAYED)
        self._room = bytearray(CHUNK)

    def read(self, piece: Piece) -> Iterator[Columns]:
        """Columns with at least one row each."""
        if piece.low < piece.high:
            yield from self._lying(piece)
        if piece.controls:
            yield from self._became_ready(piece)

    def _open(self, path: str) -> File | None:
        try:
            return self._disk.open(path)
        except FileNotFoundError:
            lost(self._fatal, f"{path} is gone: retention took it after the query was planned")
            return None

    # -- what lies there -------------------------------------------------------------------

    def _lying(self, piece: Piece) -> Iterator[Columns]:
        path = f"{piece.folder}/{segment_name(piece.base)}"
        file = self._open(path)
        if file is None:
            return
        with file:
            yield from self._walk(piece, path, file)

    def _walk(self, piece: Piece, path: str, file: File) -> Iterator[Columns]:
        at, want, reached = piece.position, CHUNK, piece.low
        while at < piece.end:
            size = min(want, piece.end - at)
            data = self._chunk(file, at, size)
            found, good = self._columns(piece, data)
            if found.count:
                yield found
            at += found.size
            reached = max(reached, found.next_offset)
            if found.size and good:
                want = CHUNK
            elif good and codec.locate(data, 0, piece.high) == 0:
                break                               # the next one is behind what was asked for
            elif good and len(data) == size < piece.end - at:
                want *= 2                           # one that is longer than a chunk
            else:
                at, reached = self._step_over(piece, path, file, at, reached)
        if reached < piece.high:
            lost(self._fatal, f"{path}: offsets {reached}-{piece.high - 1} are not in it")

    def _chunk(self, file: File, at: int, size: int) -> memoryview:
        if size > len(self._room):
            self._room = bytearray(size)
        return file.read_into(self._room, at, size)

    def _columns(self, piece: Piece, data: memoryview) -> tuple[Columns, bool]:
        """The rows that `data` begins with, and whether nothing wrong follows them."""
        try:
            return codec.columns(data, piece.low, piece.high, piece.skip, self._without), True
        except Corrupt:
            return codec.columns(data[: codec.check(data)[0]], piece.low, piece.high, piece.skip, self._without), False

    def _step_over(self, piece: Piece, path: str, file: File, at: int, reached: int) -> tuple[int, int]:
        """What lies at `at` is lost; where to go on and with which offset, both at the piece's end if nowhere."""
        data = file.read_into(bytearray(piece.end - at), at, piece.end - at)
        lost(self._fatal, f"{path}: {codec.scan(data, base_position=at).detail or f'nothing is left behind position {at}'}")
        found = codec.find_valid(data, 1, reached, max(reached, piece.high))
        return (at + found, int.from_bytes(data[found + 8 : found + 16])) if found > 0 else (piece.end, piece.high)

    # -- what became ready there -------------------------------------------------------------

    def _became_ready(self, piece: Piece) -> Iterator[Columns]:
        data = b"".join(found.data for found in self._gathered(piece, piece.base, list(piece.controls)))
        ready = rng.subtract(rng.clip(named(data, ControlType.DELAY_READY), piece.first, piece.last), list(piece.skip))
        for base, following in pairwise([*piece.bases, EVERY]):
            wanted = rng.clip(ready, base, following)
            for found in self._gathered(piece, base, wanted) if wanted else ():
                yield codec.columns(found.data, without=r.CONTROL)

    def _gathered(self, piece: Piece, base: int, wanted: list[int]) -> Iterator[Gathered]:
        """These records of a segment, some at a time."""
        path = f"{piece.folder}/{segment_name(base)}"
        file = self._open(path)
        if file is None:
            return
        raw = self._disk.read(f"{piece.folder}/{segment_name(base, Derived.INDEX.value)}")
        index = segment.read_derived(raw, Derived.INDEX, base).payload
        with file:
            while wanted:
                found = codec.gather(file.fd, 0, self._disk.size(path), wanted, index, base, CHUNK)
                file.note(len(found.data))
                if found.data:
                    yield found
                wanted = rng.subtract(wanted, found.found)
                if wanted and (found.bad >= 0 or not found.found):
                    lost(self._fatal, f"{path}: offset {wanted[0]} cannot be read" + f", position {found.bad}" * (found.bad >= 0))
                    wanted = rng.subtract(wanted, [wanted[0], 1])

"""What is derived from a log: entries that grow with a live segment, and those of sealed segments as bytes in a bounded cache.

Owns how far a live derived file is saved and how it goes on (its chain of CRCs). The layout is gq_proto.segment's. A file is
written in blocks that say how far into the log they reach, so it may lag behind: recovery scans the rest. Never judges the log.
"""

from bisect import bisect_right
from collections import OrderedDict
from typing import Final

from gq_logd.pool import FilePool
from gq_proto import codec
from gq_proto.segment import RUN_ENTRY, Derived, DerivedFile, derived_block, derived_header

ALWAYS: Final = (Derived.INDEX, Derived.TIMEINDEX, Derived.RUNS)     # the others only when they have an entry
CACHE_BYTES_MAX: Final = 16 * 1024 * 1024


class Growing:
    """One derived file of a live segment: all its entries, packed, and how much of them the file has."""

    __slots__ = ("_crc", "_file_size", "_saved", "base", "covered", "kind", "packed")

    def __init__(self, kind: Derived, base: int) -> None:
        self.kind, self.base = kind, base
        self.packed = bytearray()
        self._saved = 0                  # bytes of `packed`; of runs: the offset up to which they are saved
        self._crc = 0
        self._file_size = 0              # of what is good in the file; 0: begin anew
        self.covered = 0                 # position in the log that the file reaches
        if kind is Derived.RUNS:
            self._saved = base

    def adopt(self, found: DerivedFile) -> None:
        """Go on with a file that recovery found good as a whole."""
        self.packed = bytearray(found.payload)
        self._saved = found.next_offset if self.kind is Derived.RUNS else len(found.payload)
        self._file_size, self._crc, self.covered = found.size, found.crc, found.position

    def keep_below(self, found: DerivedFile, offset: int) -> None:
        """Take the entries of records below `offset` only; the file is written anew."""
        if self.kind is Derived.RUNS:
            codec.extend_runs(self.packed, self.base, codec.select_runs(found.payload, self.base, self.base, offset)[0])
        else:
            self.packed = bytearray(found.payload[:count_below(self.kind, found.payload, self.base, offset) * self.kind.entry.size])

    def extend_runs(self, runs: list[int]) -> None:
        codec.extend_runs(self.packed, self.base, runs)

    @property
    def unsaved(self) -> bool:
        """It has entries that the file has not (not told of runs, whose last one grows)."""
        return len(self.packed) > self._saved

    def _unsaved(self) -> bytes | bytearray:
        if self.kind is not Derived.RUNS:
            return self.packed[self._saved:]
        return runs_from(self.packed, self.base, self._saved)

    def flush(self, pool: FilePool, path: str, position: int, next_offset: int, footer: bytes | None = None) -> None:
        """Append a block that reaches `position`, and the footer that closes the file. OSError leaves the state as it was."""
        blocks = []
        header, crc = derived_header(self.kind, self.base)
        if self._file_size:
            crc = self._crc
        else:
            blocks.append(header)
        block, crc = derived_block(crc, self._unsaved(), position, next_offset)
        blocks.append(block)
        if footer is not None:
            block, crc = derived_block(crc, footer, position, next_offset, footer=True)
            blocks.append(block)
        file = pool.get(path, create=True)
        if file.size != self._file_size:
            file.truncate(self._file_size)
        file.append(blocks)
        self._file_size, self._crc, self.covered = file.size, crc, position
        self._saved = next_offset if self.kind is Derived.RUNS else len(self.packed)


class PayloadCache:
    """Entries of sealed segments by path, the least recently used dropped first."""

    def __init__(self, limit: int = CACHE_BYTES_MAX) -> None:
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def get(self, path: str) -> bytes | None:
        found = self._kept.get(path)
        if found is not None:
            self._kept.move_to_end(path)
        return found

    def put(self, path: str, payload: bytes) -> None:
        self.drop(path)
        self._kept[path] = payload
        self._size += len(payload)
        while self._size > self._limit and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped)

    def drop(self, path: str) -> None:
        self._size -= len(self._kept.pop(path, b""))


def count_below(kind: Derived, packed: bytes | bytearray, base: int, offset: int) -> int:
    """How many entries speak of records below `offset`."""
    size = kind.entry.size
    if kind is Derived.TIMEINDEX:
        return bisect_right(range(len(packed) // size), offset - 1 - base,
                            key=lambda n: int.from_bytes(packed[n * size + 8:n * size + 12]))
    width, origin = (4, base) if kind in (Derived.INDEX, Derived.RUNS) else (8, 0)
    return bisect_right(range(len(packed) // size), offset - 1 - origin,
                        key=lambda n: int.from_bytes(packed[n * size:n * size + width]))


def runs_from(packed: bytes | bytearray, base: int, offset: int) -> bytes | bytearray:
    """The entries of `.runs` for records from `offset` on: the first is what of its run lies there."""
    at = count_below(Derived.RUNS, packed, base, offset) * RUN_ENTRY.size
    if not at:
        return packed
    start, count, kind = RUN_ENTRY.unpack_from(packed, at - RUN_ENTRY.size)
    cut = offset - base - start
    return (RUN_ENTRY.pack(start + cut, count - cut, kind) if cut < count else b"") + packed[at:]

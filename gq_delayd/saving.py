"""What goes into the index files, and when: a block per part and `index_interval_s` in which something changed, none a message.

Owns where each file ends. What is decided goes in when it is met in the log, not when it is confirmed: a block is what the log says
below one offset, so a prefix of blocks is right for a log that lost its tail. A file that holds more of the past than of what waits
is written anew, a slice per turn (`work`), from a copy of the moment it began plus all that changed since.
"""

from array import array
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c
from pyroaring import BitMap64

from gq_delayd import index
from gq_delayd.desk import Desk
from gq_delayd.effects import IndexReplace, IndexWrite
from gq_delayd.part import Part
from gq_delayd.wheel import pairs
from gq_proto.bitmaps import next_in, run_end
from gq_proto.control import ControlType

BLOCK_BYTES: Final = 1 << 20         # saved at once when so much has gathered
STEP_OFFSETS: Final = 100_000        # of a log without delays: saves a restart from looking at it again
COMPACT_ENTRIES: Final = 65_536      # a file with fewer is never written anew
SLICE: Final = 4_096


class File:
    """`position`: where it ends, 0 when there is none. `decided`: entries of decided ranges when it was last compacted."""

    __slots__ = ("broken", "compacting", "crc", "decided", "entries", "known", "position", "save_at", "unsaved")

    def __init__(self, crc: int) -> None:
        self.position, self.crc, self.entries, self.decided, self.known = 0, crc, 0, 0, 0
        self.unsaved = bytearray()
        self.save_at = 0.0                   # 0: nothing to save
        self.broken = False
        self.compacting: Iterator[None] | None = None


class Saving:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._files: dict[int, File] = {}        # by part id
        self._waiting: dict[Part, None] = {}     # for save_at
        self._compacting: dict[Part, None] = {}

    # -- life ------------------------------------------------------------------------------------

    def begin(self, part: Part) -> None:
        """Nothing of its file counts."""
        if self._desk.settings.index_interval_s:
            self._files[part.id] = File(crc32c(index.header(part.topic_id, part.number)))

    def resume(self, part: Part, block: index.Block) -> None:
        """Its file goes on behind that block."""
        file = self._files[part.id] = File(block.crc)
        file.position, file.known = block.size, block.next_offset

    def loaded(self, part: Part, entries: int) -> None:
        self._files[part.id].entries = entries

    def forget(self, part: Part) -> None:
        """Its id changed, or it went: what is in memory of its file is of no use."""
        for id in self._files.keys() - self._desk.by_id.keys():
            del self._files[id]
        self._waiting.pop(part, None)
        self._compacting.pop(part, None)

    def failed(self, id: int) -> None:
        """It could not be written: what it says stays true, nothing more is added."""
        file = self._files.get(id)
        if file:
            file.broken, file.compacting = True, None
            file.unsaved.clear()

    # -- what changed ------------------------------------------------------------------------------

    def pending(self, part: Part, flat: list[int]) -> None:
        file = self._changing(part)
        if file:
            index.add_pending(file.unsaved, flat)

    def decided(self, part: Part, type_: int, ranges: list[int]) -> None:
        file = self._changing(part)
        if file:
            state = index.State.DELIVERED if type_ == ControlType.DELAY_READY else index.State.CANCELLED
            index.add_ranges(file.unsaved, state, ranges)

    def expired(self, part: Part, ranges: list[int]) -> None:
        file = self._changing(part)
        if file:
            index.add_ranges(file.unsaved, index.State.EXPIRED, ranges)

    def _changing(self, part: Part) -> File | None:
        file = self._files.get(part.id)
        if file is None or file.broken:
            return None
        if not file.save_at:
            file.save_at = self._desk.now + self._desk.settings.index_interval_s
            self._waiting[part] = None
        return file

    # -- saving ----------------------------------------------------------------------------------

    def turn(self, part: Part) -> None:
        """At the end of a turn in which it was touched: much has gathered, or much of the log was passed by."""
        file = self._files.get(part.id)
        if file and (len(file.unsaved) >= BLOCK_BYTES or part.known - file.known >= STEP_OFFSETS):
            self._save(part, file)

    def due(self) -> None:
        for part in [part for part in self._waiting if self._save_at(part) <= self._desk.now]:
            del self._waiting[part]
            file = self._files.get(part.id)
            if file:
                self._save(part, file)

    def _save_at(self, part: Part) -> float:
        file = self._files.get(part.id)
        return file.save_at if file else 0.0

    def next_save(self) -> float | None:
        return min((self._save_at(part) for part in self._waiting), default=None)

    def finish(self) -> None:
        """An orderly end: everything is saved, so that a start has nothing to read."""
        for part in self._desk.parts.values():
            file = self._files.get(part.id)
            if not file:
                continue
            while file.compacting and next(file.compacting, self) is not self:
                pass
            if file.unsaved or (file.position and file.known != part.known):
                self._save(part, file)

    def _save(self, part: Part, file: File) -> None:
        """A block with what has gathered."""
        if file.broken or file.compacting:
            return
        data, crc = index.seal(file.crc, file.unsaved, part.known, max(part.epoch, 0))
        if not file.position:
            data = index.header(part.topic_id, part.number) + data
        self._desk.emit(IndexWrite(part.key, part.id, part.topic, file.position, data))
        file.entries += len(file.unsaved) // index.ENTRY.size + 1
        file.position, file.crc, file.known, file.save_at = file.position + len(data), crc, part.known, 0.0
        file.unsaved = bytearray()
        if file.entries > max(COMPACT_ENTRIES, 2 * (len(part.pending) + file.decided)):
            file.compacting = self._compact(part, file)
            self._compacting[part] = None

    # -- compacting ----------------------------------------------------------------------------------

    @property
    def compacting(self) -> bool:
        """There is something to be done by `work`."""
        return bool(self._compacting)

    def work(self) -> None:
        """A slice of what is being written anew."""
        for part in list(self._compacting):
            file = self._files.get(part.id)
            if file is None or file.compacting is None or next(file.compacting, self) is self:
                del self._compacting[part]

    def _compact(self, part: Part, file: File) -> Iterator[None]:
        """Write the file anew. Until it is done, changes gather in `unsaved`; nothing goes into the old one."""
        flats = [*self._desk.wheel.all_of(part.id), *(group.entries[:] for group in part.groups())]
        decided = ((index.State.DELIVERED, part.ready.copy()), (index.State.CANCELLED, part.cancelled.copy()))
        start = index.header(part.topic_id, part.number)
        self._write_fresh(part, 0, start)
        position, crc, count, ranges = len(start), crc32c(start), 0, 0
        for entries in self._entries(part, flats, decided):
            self._write_fresh(part, position, entries)
            position, crc, count = position + len(entries), crc32c(entries, crc), count + len(entries) // index.ENTRY.size
            ranges += entries[0] != index.State.PENDING and len(entries) // index.ENTRY.size
            yield
        data, crc = index.seal(crc, file.unsaved, part.known, max(part.epoch, 0), count)
        self._write_fresh(part, position, data)
        self._desk.emit(IndexReplace(part.key, part.id, part.topic))
        file.position, file.crc, file.known, file.save_at = position + len(data), crc, part.known, 0.0
        file.entries, file.decided, file.unsaved, file.compacting = count + len(data) // index.ENTRY.size, ranges, bytearray(), None

    def _write_fresh(self, part: Part, position: int, data: bytes) -> None:
        self._desk.emit(IndexWrite(part.key, part.id, part.topic, position, data, fresh=True))

    def _entries(self, part: Part, flats: list["array[int]"],
                 decided: tuple[tuple[index.State, BitMap64], ...]) -> Iterator[bytes]:
        for flat in flats:
            for at in range(0, len(flat), 2 * SLICE):
                out = bytearray()
                waiting = [n for offset, due in pairs(flat[at : at + 2 * SLICE]) if offset in part.pending for n in (offset, due)]
                index.add_pending(out, waiting)
                if out:
                    yield bytes(out)
        for state, offsets in decided:
            for ranges in _slices(offsets):
                out = bytearray()
                index.add_ranges(out, state, ranges)
                yield bytes(out)


def _slices(offsets: BitMap64) -> Iterator[list[int]]:
    """Its ranges, SLICE at a time."""
    ranges: list[int] = []
    low = next_in(offsets, 0)
    while low is not None:
        high = run_end(offsets, low)
        ranges += (low, high - low)
        if len(ranges) >= 2 * SLICE:
            yield ranges
            ranges = []
        low = next_in(offsets, high)
    if ranges:
        yield ranges

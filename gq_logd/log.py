"""The segments of one partition, as one log: append at the end, find by offset, drop at the start.

Owns the list of segments, which of their files wait for a sync, and which sealed ones wait to be closed (their derived files are
finished only after the log itself is synced: a finished derived file therefore proves its log). Never knows epochs,
producers or visibility.

Invariants: segments are sorted and the last is live; a segment's next_offset is the base of the one behind it, but for damage;
after an OSError in append everything is as it was before, on disk too.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from gq_logd.files import Files
from gq_logd.rebuild import make_ready
from gq_logd.segments import Segment
from gq_run.disk import Bytes, File

SAVE_BYTES: Final = 1 << 20      # a derived file may lag so far behind its log: that much is scanned at a restart


class Log:
    def __init__(self, files: Files, folder: str, segments: list[Segment], start: int, new: bool = False) -> None:
        assert segments and segments[-1].live
        self._files, self._pool, self.folder, self.segments = files, files.pool, folder, segments
        self._bases = [segment.base for segment in segments]
        self.start = start
        self.size_bytes = sum(segment.size for segment in segments)
        self._unsynced: dict[str, None] = {}     # paths written since the last sync began; pinned
        self._syncing: list[str] = []
        self._folder_changed = new
        self._sealed = [segment for segment in segments[:-1] if not segment.closed]

    @property
    def live(self) -> Segment:
        return self.segments[-1]

    @property
    def end(self) -> int:
        return self.segments[-1].next_offset

    # -- the end ---------------------------------------------------------------------

    def append(self, buffers: Sequence[Bytes]) -> None:
        """Write to the live segment, which has not grown by it yet: see Segment.take. OSError: nothing was written."""
        live = self.segments[-1]
        path = live.path()
        file = self._pool.get(path, create=True)
        if file.size != live.size:
            file.truncate(live.size)
        try:
            file.append(buffers)
        except OSError:
            file.truncate(live.size)
            raise
        self._wrote(path)

    def roll(self, next_offset: int) -> Segment:
        """Seal the live segment and go on in a new one. OSError: nothing changed."""
        old = self.segments[-1]
        assert old.size, "an empty segment is never rolled"
        new = Segment(self._files, self.folder, next_offset, 0, next_offset, live=True)
        new.max_timestamp = old.max_timestamp
        self._pool.get(new.path(), create=True)
        self._folder_changed = True
        old.live = False
        self._sealed.append(old)
        self.segments.append(new)
        self._bases.append(next_offset)
        return new

    # -- syncing ---------------------------------------------------------------------

    @property
    def unsynced(self) -> bool:
        return bool(self._unsynced) or self._folder_changed

    @property
    def unclosed(self) -> bool:
        """A sealed segment waits to be closed."""
        return bool(self._sealed)

    @property
    def unsaved(self) -> bool:
        """Something is not synced, or not in the derived files."""
        return self.unsynced or self.unclosed or self.live.lags

    @property
    def syncing(self) -> bool:
        return bool(self._syncing)

    def touch(self, offset: int) -> None:
        """Segments with records at or above `offset` wait for a sync: recovery found them written, not synced."""
        for segment in self.segments:
            if segment.next_offset > offset and segment.size:
                self._wrote(segment.path())

    def _wrote(self, path: str) -> None:
        if path not in self._unsynced:
            self._unsynced[path] = None
            self._pool.get(path)
            self._pool.pin(path)

    def sync_begins(self) -> tuple[tuple[File, ...], tuple[str, ...]]:
        """What to sync; sync_ended() follows."""
        assert not self._syncing
        files = tuple(self._pool.get(path) for path in self._unsynced)
        folders = (self.folder,) if self._folder_changed else ()
        self._syncing, self._unsynced, self._folder_changed = list(self._unsynced), {}, False
        return files, folders

    def sync_ended(self) -> None:
        for path in self._syncing:
            self._pool.unpin(path)
        self._syncing = []

    def save(self, least_bytes: int = SAVE_BYTES) -> None:
        """Derived entries into their files, and close sealed segments whose log is on the disk. OSError."""
        for segment in list(self._sealed):
            if segment.path() in self._unsynced or segment.path() in self._syncing:
                continue
            segment.close()
            self._sealed.remove(segment)
        self.live.save(least_bytes)

    # -- finding ---------------------------------------------------------------------

    def find(self, offset: int) -> Segment:
        """The segment that holds `offset`, ready to be read; the first or last one for offsets outside."""
        return self.ready(max(bisect_right(self._bases, offset) - 1, 0))

    def number_of(self, offset: int) -> int:
        return max(bisect_right(self._bases, offset) - 1, 0)

    def ready(self, number: int) -> Segment:
        """Segment by number, its derived files checked."""
        segment = self.segments[number]
        if not segment.checked:
            make_ready(self._files, segment)
        return segment

    def behind(self, part: Segment) -> int:
        """The base of the segment behind `part`, which is not the last."""
        return self._bases[self.number_of(part.base) + 1]

    def lost_within(self, low: int, high: int) -> list[int]:
        """Ranges in [low, high) between segments: their records were lost, the offsets are not given out again."""
        found: list[int] = []
        for number in range(self.number_of(low), len(self.segments) - 1):
            start, end = max(self.ready(number).next_offset, low), min(self._bases[number + 1], high)
            if start < end:
                found += (start, end - start)
            if self._bases[number + 1] >= high:
                break
        return found

    def walk(self, offset: int, end: int) -> Iterator[Segment]:
        """Segments that hold offsets in [offset, end), each ready to be read."""
        for number in range(self.number_of(offset), len(self.segments)):
            if self.segments[number].base >= end and number:
                return
            yield self.ready(number)

    # -- the start -------------------------------------------------------------------

    def drop_below(self, offset: int) -> list[str]:
        """Forget whole sealed segments below `offset`; the paths of their files, to be removed."""
        paths: list[str] = []
        while len(self.segments) > 1 and self._bases[1] <= offset:
            segment = self.segments.pop(0)
            del self._bases[0]
            self.size_bytes -= segment.size
            if segment in self._sealed:
                self._sealed.remove(segment)
            if segment.path() in self._unsynced:
                del self._unsynced[segment.path()]
                self._pool.unpin(segment.path())
            for path in segment.paths():
                self._pool.forget(path)
                self._files.payloads.drop(path)
                paths.append(path)
        self.start = max(self.start, self._bases[0])
        return paths

    def close(self) -> None:
        for segment in self.segments:
            for path in segment.paths():
                self._pool.forget(path)
                self._files.payloads.drop(path)

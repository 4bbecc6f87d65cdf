"""Leader epochs of one partition: who led from which offset on.

Owns the list of (epoch, start offset), both ascending. An epoch is listed from the moment its leader begins. The first record
written in it says so in the log; `leader-epochs` follows with the next checkpoint, behind which recovery reads the log anyway. An
epoch in which nothing was written leaves no trace, and needs none.

Invariant: end_of(e) never exceeds the log end, and what lies at or above it was not written in epoch e or before.
"""

from collections.abc import Sequence


class Epochs:
    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[tuple[int, int]] = ()) -> None:
        self._entries = list(entries)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._entries[-1][0] if self._entries else -1

    def begin(self, epoch: int, start_offset: int) -> None:
        """A newer epoch starts here. One that began at the same offset wrote nothing: it gives way."""
        assert epoch > self.latest, (epoch, self._entries)
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))

    def cut(self, end_offset: int) -> None:
        """The log ends here: what began above it never was. One that begins at the end stays: its number is used up."""
        while self._entries and self._entries[-1][1] > end_offset:
            self._entries.pop()

    def trim(self, log_start: int) -> None:
        """Forget epochs that ended at or below the log start; the one that covers it stays."""
        while len(self._entries) > 1 and self._entries[1][1] <= log_start:
            del self._entries[0]

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The largest known epoch <= `epoch` and the first offset after it; (-1, start of the first) when all are newer."""
        found, end = -1, self._entries[0][1] if self._entries else end_offset
        for i, (known, _) in enumerate(self._entries):
            if known > epoch:
                break
            found, end = known, self._entries[i + 1][1] if i + 1 < len(self._entries) else end_offset
        return found, end

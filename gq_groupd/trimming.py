"""Keeping the journal short: when it holds more than the settings say, all groups are snapshotted, one a step, then it is
trimmed to where the first of those snapshots begins.

A group counts as snapshotted only when all of its entries are durable. A crash on the way leaves the journal as it was.
"""

from collections import deque
from functools import partial

from gq_groupd.desk import Desk
from gq_groupd.effects import Trim
from gq_groupd.group import Group
from gq_groupd.snapshot import dump_group


class Trimming:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.start_offset = self.end_offset = 0     # of the journal, as far as is durable
        self._bytes = 0
        self._to_do: deque[Group] = deque()
        self._begun_at = -1                         # a round is under way; offset it began at
        self._last_ticket = 0
        self._round_records = 0                     # written by the last round

    def replayed(self, offset: int, size: int) -> None:
        if self.end_offset == 0:
            self.start_offset = offset
        self.end_offset = offset + 1
        self._bytes += size

    def wrote(self, size: int) -> None:
        self._bytes += size

    def durable(self, ticket: int, end_offset: int) -> None:
        self.end_offset = max(self.end_offset, end_offset)
        if self._begun_at < 0:
            self._consider()
        elif not self._to_do and ticket >= self._last_ticket:
            self._finish()

    def _consider(self) -> None:
        settings = self._desk.settings
        most = max(settings.snapshot_records, 4 * self._round_records)
        if self.end_offset - self.start_offset > most or self._bytes > settings.snapshot_bytes:
            self._begun_at, self._round_records = self.end_offset, 0
            self._to_do = deque(self._desk.state.groups.values())
            self._bytes = 0
            self._next()

    def _next(self) -> None:
        while self._to_do:
            group = self._to_do.popleft()
            if self._desk.state.numbers.get(group.number) is group:
                for entry in dump_group(group):
                    self._desk.commit(group, entry)
                    self._round_records += 1
                break
        self._last_ticket = self._desk.ticket + 1
        if self._to_do:
            self._desk.at(self._desk.now_ms + 1, partial(self._next))
        elif not self._desk.pending():
            self._finish()

    def _finish(self) -> None:
        if self._begun_at > self.start_offset:
            self.start_offset = self._begun_at
            self._desk.emit(Trim(self._begun_at))
        self._begun_at = -1

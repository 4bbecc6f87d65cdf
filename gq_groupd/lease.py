"""One lease: messages of one partition in one member's hands, and the clock of each as the app sees it.

Hard: who, what, which of it is open, how it ended per message. Soft: `clocks`, `extended`, `named_ms`, and how far the app has
started beyond what acks and heartbeats proved.

All of its messages are of one priority, `lane`.

Every message of the lease is in exactly one of: open (its holder's), lapsed (taken or given back, not handed out since: a late
ack counts), acked (done through this lease: a repeated ack is answered ok), or none (handed out again, void: stale).

A message's clock starts when the app starts it. `clocks` are [n, deadline]: of the first n messages, all that are open are due
at the deadline, unless extended. Deadlines do not fall with n. What is not started has no clock: it lives as its member does.
A hold lease counts as started when it is granted.

Thousands of leases are kept after their end, for acks that come again: of one that is acked to the last message only what the
journal has of it stays in memory (`shed`).
"""

from collections.abc import Sequence
from operator import add
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from gq_proto import codec
from gq_proto.bitmaps import Told, bitmap_of, bitmap_told, first_of, heard, next_in
from gq_proto.limits import PRIORITY_DEFAULT

if TYPE_CHECKING:
    from gq_groupd.part import Part


class Lease:
    __slots__ = ("_acked", "_ranges", "anchor", "armed_ms", "ascends", "clocks", "deadline_us", "delivery", "epoch", "extended",
                 "high", "hold", "id", "lane", "lapsed", "longest_ms", "low", "member", "named_ms", "open", "part", "random",
                 "started", "told", "total", "visibility_ms")

    def __init__(self, id: int, random: int, part: "Part", member: str, epoch: int, delivery: int, ranges: Sequence[int],
                 anchor: int, hold: bool, visibility_ms: int, deadline_us: int, lane: int = PRIORITY_DEFAULT,
                 bitmap: BitMap64 | None = None, told: Told | None = None) -> None:
        self.id, self.random, self.part, self.member, self.epoch = id, random, part, member, epoch
        self.delivery, self.anchor, self.lane = delivery, anchor, lane
        self._ranges: Sequence[int] | None = ranges
        self.hold, self.visibility_ms, self.deadline_us = hold, visibility_ms, deadline_us
        self.longest_ms = visibility_ms         # no deadline was ever further away than this
        self.told = told                        # its ranges, as the journal has them
        self.ascends = codec.ranges_ascend(ranges)
        self.low, self.high = ranges[0], ranges[-2] + ranges[-1]
        if not self.ascends:
            self.low, self.high = min(ranges[::2]), max(map(add, ranges[::2], ranges[1::2]))
        self.open = bitmap_of(ranges) if bitmap is None else bitmap
        self.total = len(self.open)
        self.lapsed = BitMap64()
        self._acked: BitMap64 | None = BitMap64()
        self.started = self.total if hold else 0
        self.clocks: list[tuple[int, int]] = []
        self.extended: list[tuple[int, BitMap64]] = []
        self.named_ms = 0
        self.armed_ms: int | None = None

    @property
    def ranges(self) -> Sequence[int]:
        """Its messages, in the order of serving."""
        if self._ranges is None:
            assert self.told is not None
            return heard(self.told)[0]
        return self._ranges

    @property
    def acked(self) -> BitMap64:
        if self._acked is None:
            assert self.told is not None
            return bitmap_told(self.told)
        return self._acked

    @acked.setter
    def acked(self, acked: BitMap64) -> None:
        self._acked = acked

    def shed(self) -> None:
        """When all of it is acked."""
        if self.told is not None and self._acked is not None and len(self._acked) == self.total:
            self._acked = self._ranges = None

    # -- places in the lease -----------------------------------------------------------

    def first(self, n: int) -> BitMap64:
        """Its first n messages."""
        return bitmap_of(first_of(self.ranges, n))

    def first_open(self) -> int:
        """Where the first open message stands in the order of serving."""
        if self.ascends:
            return codec.ranges_find(self.ranges, self.open.min()) if self.open else self.total
        at = 0
        for low, count in zip(self.ranges[::2], self.ranges[1::2]):
            offset = next_in(self.open, low)
            if offset is not None and offset < low + count:
                return int(at + offset - low)
            at += count
        return self.total

    def reach_of(self, messages: BitMap64) -> int:
        """How many leading messages of the lease reach over all of `messages`."""
        if len(messages) == self.total:
            return self.total
        if len(self.ranges) == 2:
            return int(messages.max()) - self.low + 1
        if self.ascends:
            return codec.ranges_find(self.ranges, messages.max()) + 1
        reach = at = 0
        for low, count in zip(self.ranges[::2], self.ranges[1::2]):
            if messages.range_cardinality(low, low + count):
                inside = messages & bitmap_of([low, count])
                reach = at + inside.max() - low + 1
            at += count
        return reach

    def unstarted(self) -> BitMap64:
        """Open and, as far as is known, not in the app's hands."""
        if self.started >= self.total:
            return BitMap64()
        return self.open - self.first(self.started) if self.started else self.open.copy()

    # -- clocks ---------------------------------------------------------------------------

    def progress(self, started: int, deadline_ms: int) -> None:
        """The app has started the first `started` messages; those new in that are due at deadline_ms."""
        started = min(started, self.total)
        if started <= self.started:
            return
        self.started = started
        if not self.open:
            return
        if self.clocks:
            first = self.first_open()
            self.clocks = [clock for clock in self.clocks if clock[0] > first]
            deadline_ms = max(deadline_ms, self.clocks[-1][1]) if self.clocks else deadline_ms
        self.clocks.append((started, deadline_ms))

    def extend(self, messages: BitMap64, deadline_ms: int) -> None:
        """These are due at deadline_ms, whatever was said before."""
        for _, other in self.extended:
            other.difference_update(messages)
        self.extended = [entry for entry in self.extended if entry[1]]
        self.extended.append((deadline_ms, messages.copy()))

    def deadline_ms(self) -> int | None:
        """The next time any of its messages may be due."""
        if not self.open:
            return None
        due = self.clocks[0][1] if self.clocks else None
        for deadline, messages in self.extended:
            if (due is None or deadline < due) and messages:
                due = deadline
        return due

    def take_due(self, now_ms: int) -> BitMap64:
        """Open messages whose time is up; their clocks are spent."""
        due, reach = BitMap64(), 0
        while self.clocks and self.clocks[0][1] <= now_ms:
            reach = self.clocks.pop(0)[0]
        if reach:
            due = self.first(reach) & self.open
            for _, messages in self.extended:
                due -= messages
        for deadline, messages in self.extended:
            if deadline <= now_ms:
                due |= messages & self.open
        self.extended = [entry for entry in self.extended if entry[0] > now_ms]
        return due

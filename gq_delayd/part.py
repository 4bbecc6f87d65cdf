"""One partition's delays: which messages wait, which are decided, what was sent to the log about them.

Hard, a function of the log below `known`: pending, ready, cancelled. Changed by learn, decide and expire alone, which the scan
calls.
Soft: `out` (a marker names them, its fate is open or was not met in the log yet), `told_ready` and `told_cancelled` (logd said that
it took them; met in the log soon), due, flying, awaiting.

    pending  =  waiting in the wheel  +  in `due` (no marker yet)  +  out          told_* are of out, or cancelled beside it
"""

from array import array
from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap64

from gq_delayd.tables import step
from gq_delayd.wheel import TICK_US, pairs
from gq_proto import control
from gq_proto.bitmaps import bitmap_of, ranges_of, union_of
from gq_proto.control import ControlType
from gq_proto.messages import Control

DECIDING: Final = (ControlType.DELAY_READY, ControlType.DELAY_CANCELLED)


class Group:
    """Messages that came due together, and go into one marker: [offset, due us, ...]."""

    __slots__ = ("entries", "tick")

    def __init__(self, tick: int, entries: "array[int]") -> None:
        self.tick, self.entries = tick, entries

    def offsets(self) -> BitMap64:
        return BitMap64(self.entries[::2])


class Counts:
    """Since this delayd serves the partition; they outlive what a new epoch resets."""

    __slots__ = ("cancelled", "expired", "ready")

    def __init__(self) -> None:
        self.ready = self.cancelled = self.expired = 0


class Part:
    """`id` is its name in the wheel, a new one with every reset."""

    def __init__(self, topic_id: int, topic: str, number: int) -> None:
        self.topic_id, self.topic, self.number = topic_id, topic, number
        self.counts = Counts()
        self.lateness: list[tuple[int, int]] = []      # (us, messages), the latest last
        self.start_told = 0                            # where the log begins, as the watch says: it says so once
        self.reset(-1)

    def reset(self, id: int) -> None:
        """As if it were new: nothing is known of its log."""
        self.id = id
        self.stage = "opening"
        self.epoch = self.new_epoch = -1
        self.known = self.end = self.log_start = 0
        self.pending, self.ready, self.cancelled = BitMap64(), BitMap64(), BitMap64()
        self.out, self.told_ready, self.told_cancelled = BitMap64(), BitMap64(), BitMap64()
        self.due: list[Group] = []
        self.flying: dict[int, tuple[Group, BitMap64]] = {}
        self.awaiting: list[tuple[Group, BitMap64]] = []
        self.retry_at = 0.0
        self.backoff_s = 0.0
        self.counting = False        # what was decided before it served is not counted
        self.asking = 0              # number of the ask under way; 0 none
        self.rest_until = 0.0
        self.offline = False         # its log cannot be read, logd says

    @property
    def key(self) -> tuple[int, int]:
        return self.topic_id, self.number

    @property
    def serving(self) -> bool:
        return self.stage == "serving"

    def step(self, event: str) -> None:
        self.stage = step(self.stage, event)

    # -- the scan --------------------------------------------------------------------------

    def learn(self, flat: Sequence[int]) -> None:
        """Delayed messages lie there: [offset, due us, ...]."""
        self.pending |= BitMap64(flat[::2])

    def decide(self, found: Control) -> list[int]:
        """A control record was met; the ranges it decides, [] when it is not about delays."""
        if found.type not in DECIDING:
            return []
        ranges = control.decode_body(found.type, found.body)
        assert isinstance(ranges, list)
        offsets = bitmap_of(ranges)
        if found.type == ControlType.DELAY_READY:
            offsets -= self.cancelled
            self.counts.ready += len(offsets & self.pending) if self.counting else 0
            self.ready |= offsets
        else:
            offsets -= self.ready
            self.counts.cancelled += len(offsets & self.pending) if self.counting else 0
            self.cancelled |= offsets
        self._forget(offsets)
        return ranges

    def expire(self, log_start: int) -> list[int]:
        """The log begins there now; the ranges that waited below."""
        self.log_start = max(self.log_start, log_start)
        for decided in (self.ready, self.cancelled):
            if decided and decided[0] < log_start:
                decided.remove_range(0, log_start)
        if not self.pending or self.pending[0] >= log_start:
            return []
        gone = self.pending.copy()
        gone.remove_range(log_start, 2**63)
        self.counts.expired += len(gone)
        self._forget(gone)
        return ranges_of(gone)

    def _forget(self, offsets: BitMap64) -> None:
        for bitmap in (self.pending, self.out, self.told_ready, self.told_cancelled):
            if bitmap:
                bitmap -= offsets
        if self.awaiting:
            self.awaiting = [(group, named) for group, named in self.awaiting if not named.isdisjoint(self.pending)]

    # -- questions -------------------------------------------------------------------------------

    def waiting(self) -> BitMap64:
        """Pending, and not said to be decided."""
        return self.pending - self.told_ready - self.told_cancelled

    def scheduled(self) -> int:
        return len(self.pending) - len(self.told_ready) - len(self.told_cancelled)

    def total_ready(self) -> int:
        return self.counts.ready + len(self.told_ready)

    def total_cancelled(self) -> int:
        return self.counts.cancelled + len(self.told_cancelled)

    def overdue(self) -> int:
        """Came due, and no word yet that their ready record is written."""
        if not self.due and not self.flying:
            return 0
        late = union_of([group.offsets() for group in self.due] + [named for _, named in self.flying.values()])
        return len(late & self.waiting())

    def groups(self) -> list[Group]:
        """All that came due and may still be listed as waiting."""
        return [*self.due, *(group for group, _ in self.flying.values()), *(group for group, _ in self.awaiting)]

    def note_lateness(self, group: Group, count: int, wall_us: int) -> int:
        """`count` messages of a group were taken; how late, in microseconds, on the average of the group."""
        dues = group.entries[1::2]
        late = max(0, wall_us - sum(dues) // len(dues))
        self.lateness.append((late, count))
        del self.lateness[:-LATENESS_KEPT]
        return late

    def late(self, share: float) -> int:
        """The lateness that `share` of the latest messages did not exceed; -1 while nothing came due."""
        total = sum(count for _, count in self.lateness)
        reached = 0
        for late, count in sorted(self.lateness):
            reached += count
            if reached >= share * total:
                return late
        return -1


LATENESS_KEPT: Final = 1_024


def spread(group: Group, most: int) -> list[Group]:
    """A group of many ticks (what came due while nobody looked) as up to `most` groups in order of due times."""
    dues = group.entries[1::2]
    low, high = min(dues), max(dues)
    if high - low < TICK_US:
        return [group]
    if len(dues) > SORTED_MAX:
        return _by_width(group, low, (high - low) // most + 1)
    ordered = sorted((due, offset) for offset, due in pairs(group.entries))
    ticks = sorted({-(-due // TICK_US) for due, _ in ordered})
    if len(ticks) > most:
        ticks = [-(-ordered[(number + 1) * len(ordered) // most - 1][0] // TICK_US) for number in range(most)]
    found: list[Group] = []
    for due, offset in ordered:
        while not found or -(-due // TICK_US) > ticks[len(found) - 1]:
            found.append(Group(ticks[len(found)], array("Q")))
        found[-1].entries.extend((offset, due))
    return [group for group in found if group.entries]


SORTED_MAX: Final = 50_000


def _by_width(group: Group, low: int, width: int) -> list[Group]:
    """Too many to sort: by equal stretches of time."""
    found: dict[int, Group] = {}
    for offset, due in pairs(group.entries):
        number = (due - low) // width
        into = found.get(number)
        if into is None:
            into = found[number] = Group((low + (number + 1) * width) // TICK_US, array("Q"))
        into.entries.append(offset)
        into.entries.append(due)
    return [found[number] for number in sorted(found)]


def joined(groups: list[Group], most: int) -> list[Group]:
    """`most` groups at most: neighbours are joined. Their order stays."""
    if len(groups) <= most:
        return groups
    size = -(-len(groups) // most)
    found = []
    for start in range(0, len(groups), size):
        first = Group(groups[start].tick, groups[start].entries[:])
        for group in groups[start + 1 : start + size]:
            first.entries.extend(group.entries)
        found.append(first)
    return found

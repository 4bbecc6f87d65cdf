"""Telling the log what came due: ready records, one per partition and tick, several of a partition on their way at a time.

What came due goes out in order of ticks. A marker that was refused, or whose fate is unknown, is asked for again after a while:
logd leaves out what is decided, so nothing is made ready twice. A confirmed one waits until it is met in the log; after a new
leader epoch what was not met there is sent again.
"""

from array import array
from typing import Final

from gq_delayd.desk import Desk
from gq_delayd.effects import AskMarker
from gq_delayd.part import Group, Part, joined, spread
from gq_delayd.wheel import pairs
from gq_proto import ranges as rng
from gq_proto.bitmaps import bitmap_of, ranges_of, union_of
from gq_proto.control import ControlType
from gq_proto.errors import GoQueueError
from gq_proto.messages import WriteMarkerReply

WINDOW: Final = 16                   # markers of a part under way
BACKOFF_S: Final = (0.02, 1.0)
DOUBT_S: Final = 2.0                 # what was decided before, as logd said, is met in the log within this


class Firing:
    """`late`: (topic, microseconds, messages) of each marker that was taken, for whoever collects them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._resting: dict[Part, None] = {}
        self._doubts: dict[Part, float] = {}
        self.late: list[tuple[str, int, int]] = []

    def came_due(self, part: Part, tick: int, entries: "array[int]") -> None:
        part.due.append(Group(tick, entries))
        self._desk.touch(part)

    def turn(self, part: Part) -> None:
        """Send what came due, as far as the part may."""
        if not part.serving or not part.due or part.retry_at > self._desk.now:
            return
        room = WINDOW - len(part.flying)
        if room <= 0:
            return
        groups = [piece for group in part.due if (left := _open(part, group)) for piece in spread(left, WINDOW)]
        part.due = []
        for group in joined(groups, max(room, 1)):
            self._send(part, group)

    def _send(self, part: Part, group: Group) -> None:
        """In as many markers as it takes."""
        most = self._desk.settings.ready_messages
        for start in range(0, len(group.entries), 2 * most):
            piece = group if len(group.entries) <= 2 * most else Group(group.tick, group.entries[start : start + 2 * most])
            offsets = piece.offsets()
            ranges = ranges_of(offsets)
            part.out |= offsets
            number = self._desk.next_number()
            part.flying[number] = piece, offsets
            self._desk.emit(AskMarker(part.key, part.id, number, part.epoch, ControlType.DELAY_READY, ranges))

    def answer(self, ask: AskMarker, reply: WriteMarkerReply | None, error: GoQueueError | None) -> None:
        part = self._desk.by_id.get(ask.id)
        if part is None:
            return
        group, offsets = part.flying.pop(ask.number)
        self._desk.touch(part)
        if error or reply is None:
            part.out -= offsets
            self._again(part, [group])
            self._rest(part, error)
            return
        part.backoff_s = 0.0
        part.told_ready |= bitmap_of(reply.taken) & part.pending
        if not offsets.isdisjoint(part.pending):
            part.awaiting.append((group, offsets))
        taken = rng.count(reply.taken)
        if taken < len(offsets):
            self._doubts.setdefault(part, self._desk.now + DOUBT_S)
        if taken:
            self.late.append((part.topic, part.note_lateness(group, taken, self._desk.wall_us), taken))

    def _again(self, part: Part, groups: list[Group]) -> None:
        """To be sent anew; later, if the clock was set back meanwhile."""
        for group in groups:
            if max(group.entries[1::2]) > self._desk.wall_us:
                self._desk.wheel.add(part.id, group.entries)
            else:
                part.due.append(group)
        part.due.sort(key=lambda group: group.tick)

    def _rest(self, part: Part, error: GoQueueError | None) -> None:
        if not part.backoff_s:
            self._desk.note("warning" if error and not error.retriable else "info", "a ready record was refused, trying again",
                            topic=part.topic, partition=part.number, error=error.name if error else "",
                            reason=error.message if error else "")
        part.backoff_s = min(max(2 * part.backoff_s, BACKOFF_S[0]), BACKOFF_S[1])
        part.retry_at = self._desk.now + part.backoff_s
        self._resting[part] = None

    def wake(self) -> None:
        """Send again where that is due."""
        for part in [part for part in self._resting if part.retry_at <= self._desk.now]:
            del self._resting[part]
            if part.id in self._desk.by_id:
                self._desk.touch(part)
        for part in [part for part, when in self._doubts.items() if when <= self._desk.now]:
            del self._doubts[part]
            if part.id in self._desk.by_id:
                self._look_again(part)

    def next_wake(self) -> float | None:
        return min((*(part.retry_at for part in self._resting), *self._doubts.values()), default=None)

    def _look_again(self, part: Part) -> None:
        """Messages that were not taken and that nobody has decided about after all are sent again."""
        for group, named in part.awaiting:
            left = (named & part.waiting()) - union_of(offsets for _, offsets in part.flying.values())
            if left:
                part.out -= left
                self._again(part, [Group(group.tick, array("Q", [n for offset, due in pairs(group.entries) if offset in left
                                                                 for n in (offset, due)]))])
                self._desk.touch(part)

    def put_back(self) -> None:
        """The clock was set back: what was due and is not sent may be due later now."""
        for part in self._desk.parts.values():
            groups, part.due = part.due, []
            for group in groups:
                self._desk.wheel.add(part.id, group.entries)

    def recall(self, part: Part) -> None:
        """All up to the end of the log is known: what was confirmed and is not there (an epoch ended before it) goes again."""
        lost = [group for group, _ in part.awaiting]
        part.awaiting = []
        part.told_ready.clear()
        part.told_cancelled.clear()
        part.out.clear()
        for _, offsets in part.flying.values():
            part.out |= offsets
        self._again(part, lost)


def _open(part: Part, group: Group) -> Group | None:
    """What of it still waits and is not on its way."""
    offsets = group.offsets()
    found = offsets & part.pending
    for gone in (part.out, part.told_ready, part.told_cancelled):
        if gone:
            found -= gone
    if len(found) == len(offsets):
        return group
    left = array("Q", [n for offset, due in pairs(group.entries) if offset in found for n in (offset, due)])
    return Group(group.tick, left) if left else None

"""Pages of what waits, in order of (due, partition, offset).

The wheel's slots are the order, coarsely; only the slots that a page reaches are looked at. A large slot is split into finer ones
first, a bit per turn, so that a page of a million messages due on the same day holds up nothing. The first page knows of everything
that was published before it was asked for.
"""

from array import array
from typing import Final

from gq_delayd.desk import Desk
from gq_delayd.effects import Call, Fail, Reply
from gq_delayd.fresh import Fresh
from gq_delayd.part import Part
from gq_delayd.wheel import TICK_US, pairs
from gq_proto.errors import BadRequest, NotCoordinator
from gq_proto.limits import DELAYED_PAGE_MAX
from gq_proto.messages import ListDelayed, ListDelayedReply

LARGE: Final = 16_384            # messages of a slot that are not sorted at once
BUDGET: Final = 4_096            # split in one turn
Row = tuple[int, int, int]       # due, partition, offset


class Page:
    __slots__ = ("after", "call", "ids", "limit", "unread")

    def __init__(self, call: Call, parts: list[Part]) -> None:
        body: ListDelayed = call.body
        if len(body.after) not in (0, 3):
            raise BadRequest("after is [due_us, partition, offset] of the last one seen, or []")
        self.call = call
        self.ids = [part.id for part in parts]
        self.unread = len(parts)
        self.after: Row = (body.after[0], body.after[1], body.after[2]) if body.after else (-1, -1, -1)
        self.limit = max(1, min(body.limit, DELAYED_PAGE_MAX))


class Listing:
    def __init__(self, desk: Desk, fresh: Fresh) -> None:
        self._desk, self._fresh = desk, fresh
        self._open: list[Page] = []

    def request(self, call: Call, parts: list[Part]) -> None:
        """Answered as soon as the slots it needs are small."""
        page = Page(call, parts)
        if call.body.after:
            self._begin(page)
            return
        for part in parts:
            self._fresh.wait(part, call, lambda: self._read(page))

    def _read(self, page: Page) -> None:
        """One more of its logs is read."""
        page.unread -= 1
        if not page.unread:
            self._begin(page)

    def _begin(self, page: Page) -> None:
        if not self._step(page):
            self._open.append(page)

    @property
    def waiting(self) -> bool:
        """There is something to be done by `work`."""
        return bool(self._open)

    def work(self) -> None:
        """A bit of the oldest page."""
        if self._open and (self._open[0].call.deadline <= self._desk.now or self._step(self._open[0])):
            del self._open[0]

    def _step(self, page: Page) -> bool:
        """True when it was answered."""
        parts = [part for id in page.ids if (part := self._desk.by_id.get(id)) and part.serving]
        if len(parts) < len(page.ids):
            self._desk.emit(Fail(page.call, NotCoordinator("a partition moved or is being read: ask again")))
            return True
        rows = self._rows(page, parts)
        if rows is None:
            return False
        delayed = [number for due, partition, offset in rows[: page.limit] for number in (partition, offset, due)]
        self._desk.emit(Reply(page.call, ListDelayedReply(delayed, len(rows) > page.limit, [part.number for part in parts])))
        return True

    def _rows(self, page: Page, parts: list[Part]) -> list[Row] | None:
        """One more than the page holds, if there are; None: a large slot is in the way, a part of it was split."""
        wheel = self._desk.wheel
        places = [place for place in wheel.places(page.ids) if (place.end - 1) * TICK_US >= page.after[0]]
        rows = [row for part in parts for group in part.groups() for row in _of(part, page.after, group.entries)]
        for place in places:
            rows.sort()
            if len(rows) > page.limit and rows[page.limit][0] <= (place.start - 1) * TICK_US:
                break
            if place.splits and sum(len(wheel.entries(place, part.id)) for part in parts) > 2 * LARGE:
                wheel.refine(place.level, place.key, BUDGET)
                return None
            for part in parts:
                rows += _of(part, page.after, wheel.entries(place, part.id))
        rows.sort()
        return rows[: page.limit + 1]


def _of(part: Part, after: Row, entries: "array[int]") -> list[Row]:
    number, pending, ready, cancelled = part.number, part.pending, part.told_ready, part.told_cancelled
    return [(due, number, offset) for offset, due in pairs(entries)
            if (due, number, offset) > after and offset in pending and offset not in ready and offset not in cancelled]


def next_due(desk: Desk, part: Part) -> int:
    """When the first message that waits is due, microseconds; -1 when none does."""
    best = -1
    for entries in (group.entries for group in part.groups()):
        best = _least(part, entries, best)
    for place in desk.wheel.places((part.id,)):
        if 0 <= best <= (place.start - 1) * TICK_US:
            break
        best = _least(part, desk.wheel.entries(place, part.id), best)
    return best


def _least(part: Part, entries: "array[int]", best: int) -> int:
    dues = entries[1::2]
    least = min(dues, default=-1)
    if least >= 0 and entries[2 * dues.index(least)] not in part.waiting():
        least = min((row[0] for row in _of(part, (-1, -1, -1), entries)), default=-1)
    return least if best < 0 or 0 <= least < best else best

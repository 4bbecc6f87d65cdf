"""Cancelling: cancelled records, and the truth about each offset asked.

What waits is named in cancelled records; logd says what it took, the first to name an offset decides. Of what it did not take, the
log tells as it is scanned: the answer waits for that. An offset beyond what is known of the log may have been published just now:
the log is read up to its end first. Somebody who gave up is not answered.
"""

from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap64

from gq_delayd.desk import Desk
from gq_delayd.effects import AskMarker, Call, Fail, Reply
from gq_delayd.fresh import Fresh
from gq_delayd.part import Part
from gq_proto import ranges as rng
from gq_proto.bitmaps import bitmap_of, clipped, ranges_of
from gq_proto.control import ControlType
from gq_proto.errors import BadRequest, GoQueueError, Unavailable
from gq_proto.limits import DELAYED_RANGES_MAX
from gq_proto.messages import CancelDelayed, CancelDelayedReply, Fate, WriteMarkerReply

GONE: Final = "the partition moved, or its log began a new epoch: ask again"


class Cancel:
    """A request on its way. `numbers`: markers whose fate is open; `asked`: what they name."""

    __slots__ = ("asked", "call", "numbers", "taken")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.asked = BitMap64()
        self.numbers: set[int] = set()
        self.taken = BitMap64()


class Cancelling:
    def __init__(self, desk: Desk, fresh: Fresh) -> None:
        self._desk, self._fresh = desk, fresh
        self._open: dict[int, list[Cancel]] = {}         # by part id

    def request(self, part: Part, call: Call) -> None:
        body: CancelDelayed = call.body
        rng.check_ranges(body.ranges)
        if len(body.ranges) > 2 * DELAYED_RANGES_MAX or not body.ranges:
            raise BadRequest(f"name 1 to {DELAYED_RANGES_MAX} offset ranges")
        id = part.id
        if body.ranges[-2] + body.ranges[-1] > part.known:
            self._fresh.wait(part, call, lambda: self._begin(id, call))
        else:
            self._begin(id, call)

    def _begin(self, id: int, call: Call) -> None:
        part = self._desk.by_id.get(id)
        if part is None:
            self._desk.emit(Fail(call, Unavailable(GONE)))
            return
        cancel = Cancel(call)
        cancel.asked = within_all(part.waiting(), call.body.ranges)
        for piece in _pieces(ranges_of(cancel.asked), self._desk.settings.ready_messages):
            number = self._desk.next_number()
            cancel.numbers.add(number)
            self._desk.emit(AskMarker(part.key, part.id, number, part.epoch, ControlType.DELAY_CANCELLED, piece))
        if not self._answered(part, cancel):
            self._open.setdefault(part.id, []).append(cancel)

    def answer(self, ask: AskMarker, reply: WriteMarkerReply | None, error: GoQueueError | None) -> None:
        part = self._desk.by_id.get(ask.id)
        cancel = next((cancel for cancel in self._open.get(ask.id, ()) if ask.number in cancel.numbers), None)
        taken = bitmap_of(reply.taken) if reply else BitMap64()
        if part:
            part.told_cancelled |= taken & part.pending
        if cancel is None:
            return
        cancel.numbers.discard(ask.number)
        cancel.taken |= taken
        if part is None or error:
            self._open[ask.id].remove(cancel)
            self._desk.emit(Fail(cancel.call, error or Unavailable(GONE)))
        else:
            self.decided(part)

    def decided(self, part: Part) -> None:
        """More is known of what became of its messages."""
        waiting = self._open.get(part.id)
        if waiting:
            self._open[part.id] = [cancel for cancel in waiting if not self._answered(part, cancel)]

    def expire(self) -> None:
        """Forget those who gave up, and those whose part is not what it was."""
        for id in list(self._open):
            if id not in self._desk.by_id:
                for cancel in self._open[id]:
                    self._desk.emit(Fail(cancel.call, Unavailable(GONE)))
                del self._open[id]
                continue
            self._open[id] = [cancel for cancel in self._open[id] if cancel.call.deadline > self._desk.now]
            if not self._open[id]:
                del self._open[id]

    def _answered(self, part: Part, cancel: Cancel) -> bool:
        if cancel.numbers or not (cancel.asked - cancel.taken).isdisjoint(part.waiting()):
            return False
        self._desk.emit(Reply(cancel.call, CancelDelayedReply(fates(part, cancel.call.body.ranges, cancel.taken))))
        return True


def fates(part: Part, asked: Sequence[int], taken: BitMap64) -> list[int]:
    """low, count, Fate, ... of all that was asked. `taken`: by this request."""
    sets = ((Fate.CANCELLED, taken), (Fate.DELIVERED, part.ready | part.told_ready),
            (Fate.ALREADY_CANCELLED, (part.cancelled | part.told_cancelled) - taken))
    found = sorted((low, end, fate) for fate, offsets in sets
                   for low, end in rng.pairs(ranges_of(within_all(offsets, asked))))
    out: list[int] = []
    number = 0
    for low, end in rng.pairs(asked):
        at = low
        while number < len(found) and found[number][0] < end:
            start, stop, fate = found[number]
            if start > at:
                _add(out, at, start, Fate.NONE)
            _add(out, max(start, low), min(stop, end), fate)
            at = min(stop, end)
            if stop > end:
                break                    # asked ranges that touch: the rest is the next one's
            number += 1
        _add(out, at, end, Fate.NONE)
    return out


def _add(out: list[int], low: int, end: int, fate: int) -> None:
    if low < end:
        out += (low, end - low, int(fate))


def within_all(offsets: BitMap64, ranges: Sequence[int]) -> BitMap64:
    """The offsets that lie in the ranges, however large those are."""
    if not offsets:
        return BitMap64()
    inside, _ = clipped(list(ranges), offsets.min(), offsets.max() + 1)
    return offsets & inside


def _pieces(ranges: list[int], most: int) -> list[list[int]]:
    """Ranges with `most` offsets at most each."""
    found: list[list[int]] = []
    room = 0
    for low, end in rng.pairs(ranges):
        while low < end:
            if not room:
                found.append([])
                room = most
            count = min(end - low, room)
            found[-1] += (low, count)
            low, room = low + count, room - count
    return found

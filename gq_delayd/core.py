"""All that gq_delayd decides. Inputs and time in, effects out; nothing else.

    core = Core(settings)
    core.own(mine, deleted)              which partitions are led here
    core.watched(watched)                what the logs tell
    core.answer(ask, reply, error)       answers to what it asked
    core.request(call)                   from clients; GoQueueError refuses at once
    core.turn() -> effects               once, after any number of the above
    core.next_deadline()                 when the next turn is due though nothing came

`at(now, wall_us)` comes before each of them: what time it is on the monotonic and on the wall clock. Deadlines follow the wall
clock. What is due is decided by it alone; waits are on the monotonic one, never longer than LOOK_S while something waits, and the
two are compared in each turn, so that a clock that was set is noticed within that.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gq_delayd.cancelling import Cancelling
from gq_delayd.desk import Desk
from gq_delayd.effects import Ask, AskIndex, AskMarker, Call, Effect, Key, Reply
from gq_delayd.firing import Firing
from gq_delayd.fresh import Fresh
from gq_delayd.listing import Listing, next_due
from gq_delayd.loading import Loading
from gq_delayd.part import Part
from gq_delayd.saving import Saving
from gq_delayd.settings import Settings
from gq_delayd.wheel import TICK_US
from gq_proto.control import ControlType
from gq_proto.errors import BadRequest, GoQueueError, NotCoordinator, UnknownKind
from gq_proto.messages import DelayPartition, DelayStatsReply, Kind, Watched

LOOK_S: Final = 1.0              # a clock that was set is noticed within this
JUMP_US: Final = 100_000         # more than a clock is ever slewed between two looks
BACK_US: Final = 1_000           # a clock that went back by more makes what is due and not sent yet wait again
PREPARE: Final = 2_000           # messages that are moved ahead of their time in one turn,
PREPARE_S: Final = 0.005         # and how long to the next such turn


class Core:
    def __init__(self, settings: Settings) -> None:
        self._desk = Desk(settings)
        self._saving = Saving(self._desk)
        self._loading = Loading(self._desk, self._saving)
        self._firing = Firing(self._desk)
        self._fresh = Fresh(self._desk)
        self._cancelling = Cancelling(self._desk, self._fresh)
        self._listing = Listing(self._desk, self._fresh)
        self._loading.on_serving = self._firing.recall
        self._loading.on_decided = self._cancelling.decided
        self._loading.on_read = self._fresh.read
        self._fresh.look = self._loading.look
        self._shift_us: int | None = None        # wall clock less monotonic, in the last turn
        self._unprepared = False
        self.jumps = 0                           # of the wall clock
        self.owned = False                       # `own` was called

    def at(self, now: float, wall_us: int) -> None:
        """It is then: monotonic seconds, Unix microseconds."""
        self._desk.now, self._desk.wall_us = now, wall_us
        self._desk.wheel.now = wall_us // TICK_US

    # -- inputs ---------------------------------------------------------------------------------

    def own(self, mine: Mapping[Key, str], deleted: frozenset[str] = frozenset()) -> None:
        self.owned = True
        self._loading.own(mine, deleted)

    def watched(self, watched: Watched) -> None:
        self._loading.watched(watched)

    def answer(self, ask: Ask, reply: Any, error: GoQueueError | None) -> None:
        if isinstance(ask, AskIndex):
            if ask.id in self._desk.by_id:
                self._loading.index_read(ask, reply)
        elif not isinstance(ask, AskMarker):
            self._loading.answer(ask, reply, error)
        elif ask.type == ControlType.DELAY_READY:
            self._firing.answer(ask, reply, error)
        else:
            self._cancelling.answer(ask, reply, error)

    def index_failed(self, id: int) -> None:
        self._saving.failed(id)

    def request(self, call: Call) -> None:
        if call.kind == Kind.CANCEL_DELAYED:
            self._cancelling.request(self._serving(call)[0], call)
        elif call.kind == Kind.LIST_DELAYED:
            self._listing.request(call, self._serving(call))
        elif call.kind == Kind.DELAY_STATS:
            self._desk.emit(Reply(call, DelayStatsReply([self._stats(part) for part in self._parts(call)])))
        else:
            raise UnknownKind(f"request kind {call.kind} is not for delayd")

    def _parts(self, call: Call) -> list[Part]:
        """Those the envelope names; NotCoordinator when there are none here."""
        desk = self._desk
        if not call.topic_id:
            return sorted(desk.parts.values(), key=lambda part: (part.topic, part.number))
        if call.partition < 0 and call.kind != Kind.CANCEL_DELAYED:
            found = list(desk.of_topic(call.topic_id))
        else:
            part = desk.parts.get((call.topic_id, call.partition))
            found = [part] if part else []
        if not found:
            raise NotCoordinator(f"partition {call.partition} of topic id {call.topic_id} is not this delayd's: refresh metadata")
        return found

    def _serving(self, call: Call) -> list[Part]:
        if not call.topic_id:
            raise BadRequest("the envelope names no topic")
        found = self._parts(call)
        for part in found:
            if not part.serving:
                raise NotCoordinator(f"{part.topic}/{part.number} is still being read: ask again")
        return found

    # -- turns ------------------------------------------------------------------------------------

    def turn(self) -> list[Effect]:
        """What is due, and what the inputs since the last turn led to."""
        desk = self._desk
        self._compare_clocks()
        tick = desk.wall_us // TICK_US
        first = desk.wheel.next_tick()
        if first is not None and first <= tick:
            self._came_due(desk.wheel.advance(tick))
        self._came_due(desk.wheel.early(desk.wall_us))
        self._loading.wake()
        self._firing.wake()
        if self._loading.loading:
            self._loading.work()
        if self._listing.waiting:
            self._listing.work()
        self._fresh.expire()
        self._cancelling.expire()
        touched, desk.touched = desk.touched, {}
        for part in touched:
            self._firing.turn(part)
            self._saving.turn(part)
        self._saving.due()
        if self._saving.compacting:
            self._saving.work()
        self._unprepared = desk.wheel.prepare(PREPARE)
        effects, desk.effects = desk.effects, []
        return effects

    def _compare_clocks(self) -> None:
        desk = self._desk
        shift = desk.wall_us - int(desk.now * 1e6)
        if self._shift_us is not None and abs(shift - self._shift_us) > JUMP_US:
            self.jumps += 1
            desk.note("warning", "the wall clock was set, deadlines follow it", by_s=round((shift - self._shift_us) / 1e6, 3))
        if self._shift_us is not None and shift < self._shift_us - BACK_US:
            self._firing.put_back()
        self._shift_us = shift

    def _came_due(self, found: list[tuple[int, int, "array[int]"]]) -> None:
        for when, id, entries in found:
            part = self._desk.by_id.get(id)
            if part:
                self._firing.came_due(part, when, entries)

    def next_deadline(self) -> float | None:
        """Monotonic seconds; None when nothing is due by itself."""
        desk = self._desk
        if self._loading.loading or self._listing.waiting or self._saving.compacting:
            return desk.now
        found = [self._loading.next_wake(), self._firing.next_wake(), self._saving.next_save()]
        first = desk.wheel.next_tick()
        if first is not None:
            at_us = desk.wheel.next_step(first)
            found.append(desk.now + min(max(at_us - desk.wall_us, 0) / 1e6, LOOK_S))
            if self._unprepared:
                found.append(desk.now + PREPARE_S)
        return min((when for when in found if when is not None), default=None)

    def finish(self) -> list[Effect]:
        """An orderly end: what is still to be saved."""
        self._saving.finish()
        effects, self._desk.effects = self._desk.effects, []
        return effects

    def quiet_s(self) -> float:
        """Since a delayed message was last heard of."""
        return self._desk.now - self._desk.learnt_at

    # -- what it tells ------------------------------------------------------------------------------

    def unread(self) -> list[Part]:
        """Parts that do not serve yet, but for those whose logs cannot be read."""
        return [part for part in self._desk.parts.values() if not (part.serving or part.offline)]

    def parts(self) -> Iterator[Part]:
        return iter(self._desk.parts.values())

    def take_late(self) -> list[tuple[str, int, int]]:
        """(topic, microseconds, messages) of the markers taken since the last call."""
        late, self._firing.late = self._firing.late, []
        return late

    def _stats(self, part: Part) -> DelayPartition:
        return DelayPartition(part.topic_id, part.topic, part.number, part.scheduled(), part.overdue(), part.total_ready(),
                              part.total_cancelled(), part.counts.expired, next_due(self._desk, part), part.late(0.5),
                              part.late(0.99), not part.serving)

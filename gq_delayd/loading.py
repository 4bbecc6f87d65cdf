"""Learning the logs: from the index what it knows, from `Due` the rest, from `Watch` what comes.

    opening: read the index -> checking index: what of it is the log still true to -> loading: into the wheel, bit by bit
    -> reading: Due from there to the end -> serving; a new leader epoch: checking, and on, or from the start when the log lost
    something that was known.

Nothing of a log is believed that does not carry the part's epoch, so nothing is known that a power loss has taken back. What is
learnt goes to the part, the wheel and the index (`saving`) together, in the order of the log.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gq_delayd import index
from gq_delayd.desk import Desk
from gq_delayd.effects import AskDue, AskEndOfEpoch, AskIndex, IndexRemove, Key, WatchSet
from gq_delayd.part import Part
from gq_delayd.saving import Saving
from gq_proto.errors import DiskFull, GoQueueError, OffsetOutOfRange, PartitionOffline
from gq_proto.messages import Control, DueReply, EndOfEpochReply, Watched
from gq_proto.runs import DELAYED_KIND

REST_S: Final = 0.25             # after an ask failed


class Loading:
    """`on_serving(part)`: all up to the end is known. `on_decided(part)`: control records were met, or the log start moved.
    `on_read(part)`: what was the end when the last Due was asked is reached."""

    def __init__(self, desk: Desk, saving: Saving) -> None:
        self._desk, self._saving = desk, saving
        self.on_serving: Callable[[Part], None] = lambda part: None
        self.on_decided: Callable[[Part], None] = lambda part: None
        self.on_read: Callable[[Part], None] = lambda part: None
        self._indexes: dict[int, tuple[bytes, list[index.Block]]] = {}       # by part id, while it is being looked at
        self._loads: dict[int, Iterator[index.Loaded | None]] = {}
        self._feeds: dict[int, Iterator[None]] = {}
        self._resting: dict[Part, None] = {}

    # -- which parts there are ------------------------------------------------------------------

    def own(self, mine: Mapping[Key, str], deleted: frozenset[str]) -> None:
        """All partitions led here, with their topics' names, and the names of topics that are gone for good."""
        desk = self._desk
        for key, part in list(desk.parts.items()):
            if mine.get(key) != part.topic:
                desk.remove(part)
                self._saving.forget(part)
        for topic in sorted(deleted):
            desk.emit(IndexRemove(topic))
        for key in mine.keys() - desk.parts.keys():
            part = Part(key[0], mine[key], key[1])
            desk.add(part)
            self._open(part)
        desk.emit(WatchSet(frozenset(mine)))

    def _open(self, part: Part) -> None:
        if self._desk.settings.index_interval_s:
            self._desk.emit(AskIndex(part.key, part.id, part.topic))
        else:
            self._begin(part)

    def _lose(self, part: Part, why: str) -> None:
        """The log does not hold what was known of it: begin again."""
        self._desk.note("warning", "the log lost something that was known of it, reading it anew", topic=part.topic,
                        partition=part.number, known=part.known, epoch=part.epoch, reason=why)
        part.step("lose")
        self._desk.reset(part)
        self._saving.forget(part)

    # -- the index ---------------------------------------------------------------------------------

    def index_read(self, ask: AskIndex, raw: bytes) -> None:
        part = self._desk.by_id[ask.id]
        blocks = index.blocks(raw, part.topic_id, part.number)
        if blocks:
            self._indexes[part.id] = raw, blocks
            part.step("find index")
            self._ask_end(part, blocks[-1].epoch)
            return
        if raw:
            self._desk.note("warning", "the delay index is of no use, reading the log instead", topic=part.topic,
                            partition=part.number, bytes=len(raw))
        self._begin(part)

    def _begin(self, part: Part) -> None:
        """Without an index."""
        self._saving.begin(part)
        part.step("find none")
        self._ask_due(part)

    def _index_checked(self, part: Part, end: int) -> None:
        """Blocks about offsets that the log still has can be believed, all of them to the last one."""
        raw, blocks = self._indexes.pop(part.id)
        good = [block for block in blocks if block.next_offset <= end]
        if not good:
            self._begin(part)
            return
        block = good[-1]
        part.step("check")
        part.known, part.epoch = block.next_offset, block.epoch
        self._saving.resume(part, block)
        self._loads[part.id] = index.load(raw, block.size)

    @property
    def loading(self) -> bool:
        """There is something to be done by `work`."""
        return bool(self._loads or self._feeds)

    def work(self) -> None:
        """A bit of what is being loaded."""
        for id in list(self._loads):
            loaded = next(self._loads[id])
            part = self._desk.by_id.get(id)
            if part is None:
                del self._loads[id]
            elif loaded is not None:
                del self._loads[id]
                self._feeds[id] = self._feed(part, loaded)
        for id in list(self._feeds):
            if id not in self._desk.by_id or next(self._feeds[id], self) is self:
                del self._feeds[id]

    def _feed(self, part: Part, loaded: index.Loaded) -> Iterator[None]:
        """Into the wheel, without what is decided."""
        part.ready, part.cancelled = loaded.delivered, loaded.cancelled
        decided = loaded.delivered | loaded.cancelled | loaded.expired
        while loaded.pending:
            flat = loaded.pending.pop(0)
            part.learn(flat)
            self._desk.wheel.add(part.id, flat)
            yield
        part.pending -= decided
        self._saving.loaded(part, loaded.entries)
        if self._desk.wheel.size(part.id) > 2 * len(part.pending) + SLACK:
            self._desk.wheel.sweep(part.id, part.pending)
        part.step("load")
        self._ask_due(part)

    # -- asking -------------------------------------------------------------------------------------

    def _ask_due(self, part: Part) -> None:
        part.asking = self._desk.next_number()
        self._desk.emit(AskDue(part.key, part.id, part.asking, part.known, self._desk.settings.due_page))

    def _ask_end(self, part: Part, of: int) -> None:
        part.asking = self._desk.next_number()
        self._desk.emit(AskEndOfEpoch(part.key, part.id, part.asking, of))

    def answer(self, ask: AskDue | AskEndOfEpoch, reply: Any, error: GoQueueError | None) -> None:
        part = self._desk.by_id.get(ask.id)
        if part is None or part.asking != ask.number:
            return
        part.asking, part.offline = 0, isinstance(error, PartitionOffline | DiskFull)
        if isinstance(error, OffsetOutOfRange) and isinstance(ask, AskDue):
            self._lose(part, error.message)
            self._begin(part)                # its index, if any, said so too
        elif error or reply is None:
            self._rest(part)
        elif isinstance(ask, AskDue):
            self._due(part, ask, reply)
        elif part.stage == "checking index":
            self._index_checked(part, reply.end_offset)
        else:
            self._checked(part, reply)

    def _rest(self, part: Part) -> None:
        part.rest_until = self._desk.now + REST_S
        self._resting[part] = None

    def wake(self) -> None:
        """Ask again where that is due."""
        for part in [part for part in self._resting if part.rest_until <= self._desk.now]:
            del self._resting[part]
            if self._desk.by_id.get(part.id) is not part or part.asking:
                continue
            if part.stage == "checking index":
                self._ask_end(part, self._indexes[part.id][1][-1].epoch)
            elif part.stage == "checking":
                self._ask_end(part, part.epoch)
            elif part.stage in ("reading", "serving"):
                self._ask_due(part)

    def next_wake(self) -> float | None:
        return min((part.rest_until for part in self._resting), default=None)

    # -- what the log says ------------------------------------------------------------------------

    def _see_epoch(self, part: Part, epoch: int) -> bool:
        """News in this epoch: may they be believed?"""
        if part.epoch < 0:
            part.epoch = epoch
        if epoch > part.epoch and part.stage in ("reading", "serving", "checking"):
            if epoch > part.new_epoch:
                part.step("see epoch")
                part.new_epoch = epoch
                self._ask_end(part, part.epoch)
            return False
        return epoch == part.epoch

    def _checked(self, part: Part, reply: EndOfEpochReply) -> None:
        if reply.end_offset < part.known:
            self._lose(part, f"leader epoch {part.epoch} ended at {reply.end_offset}")
            self._open(part)
            return
        part.step("check")
        part.epoch = part.new_epoch
        part.end = part.known
        self._ask_due(part)

    def _due(self, part: Part, ask: AskDue, reply: DueReply) -> None:
        if not self._see_epoch(part, reply.epoch):
            if not part.asking:
                self._rest(part)             # an older one's: its leader does not know yet
            return
        self._scan(part, reply.due, reply.controls, max(reply.next_offset, part.known))
        full = len(reply.due) >= 2 * ask.limit
        if part.stage == "reading" and not full:
            self._caught_up(part)            # what was written meanwhile does not hold up the rest
        if full or part.known < part.end:
            self._ask_due(part)
        if not full:
            self.on_read(part)

    def look(self, part: Part) -> bool:
        """Ask what came since; False while an ask is under way that may have been sent before it came."""
        if part.asking or part in self._resting:
            return False
        self._ask_due(part)
        return True

    def _scan(self, part: Part, due: list[int], controls: list[Control], next_offset: int) -> None:
        """The log in [known, next_offset), whole."""
        if due:
            part.learn(due)
            self._desk.learnt_at = self._desk.now
            self._saving.pending(part, due)
            self._desk.wheel.add(part.id, due)
        decided = False
        for found in controls:
            if found.offset >= part.known:
                ranges = part.decide(found)
                if ranges:
                    self._saving.decided(part, found.type, ranges)
                    decided = True
        part.known = next_offset
        part.end = max(part.end, next_offset)
        self._desk.touch(part)
        if decided:
            self.on_decided(part)
            if self._desk.wheel.size(part.id) > 2 * len(part.pending) + SLACK:
                self._desk.wheel.sweep(part.id, part.pending)

    def _caught_up(self, part: Part) -> None:
        part.step("catch up")
        part.counting = True
        if part.start_told > part.log_start:
            self._move_start(part, part.start_told)
        self._desk.touch(part)
        self.on_serving(part)

    def watched(self, watched: Watched) -> None:
        part = self._desk.parts.get((watched.topic_id, watched.partition))
        if part is None or watched.error:
            return
        part.start_told = max(part.start_told, watched.log_start)
        if part.stage in ("opening", "checking index", "loading"):
            part.end = max(part.end, watched.end)
            return
        if not self._see_epoch(part, watched.epoch):
            return
        part.end = max(part.end, watched.end)
        if watched.log_start > part.log_start:
            self._move_start(part, watched.log_start)
        if part.asking or part.known >= watched.end or part in self._resting:
            return
        if part.serving and _follows(watched, part.known):
            self._scan(part, [], watched.controls, watched.end)
        else:
            self._ask_due(part)

    def _move_start(self, part: Part, log_start: int) -> None:
        gone = part.expire(log_start)
        if gone:
            self._saving.expired(part, gone)
        self._desk.touch(part)
        self.on_decided(part)


SLACK: Final = 65_536            # messages in the wheel that do not count any more, before they are taken out


def _follows(watched: Watched, known: int) -> bool:
    """The runs say all about [known, end), and nothing there is delayed."""
    runs = watched.runs
    return bool(runs) and runs[0] <= known and not any(
        kind & DELAYED_KIND and offset + count > known for offset, count, kind in zip(runs[::3], runs[1::3], runs[2::3]))

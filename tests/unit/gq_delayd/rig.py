"""A core with a hand-made log under it: one node's partitions, whose clock, disk and failures the test decides.

`Log` says and does what gq_logd does with delays: Due, EndOfEpoch, WriteMarker (the first to name an offset decides), Watch. `Play`
carries effects between it and the core and runs time.
"""

import heapq
from array import array
from collections.abc import Callable
from itertools import count
from typing import Any

from gq_delayd import effects as e
from gq_delayd.core import Core
from gq_delayd.settings import Settings
from gq_proto import control
from gq_proto import messages as m
from gq_proto import ranges as rng
from gq_proto import record as rec
from gq_proto.errors import GoQueueError, NotLeader, OffsetOutOfRange
from gq_proto.messages import Kind

TOPIC = 7
START_US = 1_700_000_000_000_000
MS = 1_000
PLAIN = rec.kind_of(0, 2)
DELAYED = rec.kind_of(rec.DELAYED, 2)
CONTROL = rec.kind_of(rec.CONTROL, 2)


class Log:
    """Records are (kind, due us) or (CONTROL, type, ranges, stamp us)."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.records: list[tuple[Any, ...]] = []
        self.start = 0
        self.epoch = 1
        self.epochs: list[tuple[int, int]] = [(1, 0)]
        self.ready: dict[int, tuple[int, int]] = {}          # offset -> (ready record's offset, its stamp)
        self.cancelled: set[int] = set()

    @property
    def end(self) -> int:
        return len(self.records)

    def publish(self, due_us: int | None = None, times: int = 1) -> int:
        """The first offset."""
        first = self.end
        self.records += [(PLAIN, 0) if due_us is None else (DELAYED, due_us)] * times
        return first

    def mark(self, type_: int, ranges: list[int], wall_us: int) -> m.WriteMarkerReply:
        undecided = [offset for low, end in rng.pairs(ranges) for offset in range(max(low, self.start), min(end, self.end))
                     if self.records[offset][0] == DELAYED and offset not in self.ready and offset not in self.cancelled]
        taken = rng.of_offsets(undecided)
        if not taken:
            return m.WriteMarkerReply(-1)
        for offset in undecided:
            if type_ == control.ControlType.DELAY_READY:
                self.ready[offset] = (self.end, wall_us)
            else:
                self.cancelled.add(offset)
        self.records.append((CONTROL, type_, taken, wall_us))
        return m.WriteMarkerReply(self.end - 1, taken)

    def controls(self, low: int, high: int) -> list[m.Control]:
        return [m.Control(at, self.records[at][1], control.encode_body(self.records[at][1], self.records[at][2]))
                for at in range(low, high) if self.records[at][0] == CONTROL]

    def due(self, offset: int, limit: int) -> m.DueReply:
        offset = max(offset, self.start)
        if offset > self.end:
            raise OffsetOutOfRange("above the end")
        found: list[int] = []
        following = self.end
        for at in range(offset, self.end):
            if self.records[at][0] == DELAYED:
                if len(found) >= 2 * limit:
                    following = at
                    break
                found += (at, self.records[at][1])
        return m.DueReply(found, following, self.controls(offset, following), self.epoch)

    def watched(self, known: int) -> m.Watched:
        runs: list[int] = []
        for at in range(known, self.end):
            runs += (at, 1, self.records[at][0])
        told = m.Watched(TOPIC, self.number, self.epoch, self.start, self.end)
        if len(runs) <= 3 * 64 and self.start <= known < self.end:
            told.runs, told.controls = runs, self.controls(known, self.end)
        return told

    def end_of(self, of: int) -> m.EndOfEpochReply:
        later = [start for epoch, start in self.epochs if epoch > of]
        known = max((epoch for epoch, _ in self.epochs if epoch <= of), default=-1)
        return m.EndOfEpochReply(known, later[0] if later else self.end)

    def lose(self, end: int) -> None:
        """A power loss: nothing from `end` on was on the disk."""
        del self.records[end:]
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start <= end]
        self.ready = {offset: (at, stamp) for offset, (at, stamp) in self.ready.items() if at < end}
        self.cancelled = {offset for record in self.records if record[0] == CONTROL and record[1] == 4
                          for low, high in rng.pairs(record[2]) for offset in range(low, high)}

    def lead(self) -> None:
        """A new leader epoch, as after every start."""
        self.epoch += 1
        self.epochs = [*((epoch, start) for epoch, start in self.epochs if start < self.end), (self.epoch, self.end)]


class Call:
    """A request, and what it was answered."""

    def __init__(self, kind: Kind, body: Any, partition: int, deadline: float) -> None:
        self.kind, self.body, self.topic_id, self.partition, self.deadline = kind, body, TOPIC, partition, deadline
        self.reply: Any = None
        self.error: GoQueueError | None = None


class Play:
    """`wall` is the wall clock's lead over the monotonic one. `refuse(ask)`: an error that logd has for it, or None. `slow_s`: from
    an ask to its answer."""

    def __init__(self, *logs: Log, settings: Settings | None = None, files: dict[Any, bytes] | None = None) -> None:
        self.logs = {(TOPIC, log.number): log for log in logs or (Log(),)}
        self.settings = settings or Settings()
        self.files: dict[Any, bytearray] = {key: bytearray(raw) for key, raw in (files or {}).items()}
        self.fresh: dict[Any, bytearray] = {}
        self.now = 1000.0
        self.wall = START_US - int(1000.0 * 1e6)
        self.slow_s = 0.0002
        self.refuse: Callable[[Any], GoQueueError | None] = lambda ask: None
        self.unwritable = False
        self.markers: list[e.AskMarker] = []
        self.notes: list[e.Note] = []
        self.writes = 0
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.start()

    @property
    def log(self) -> Log:
        return next(iter(self.logs.values()))

    @property
    def wall_us(self) -> int:
        return int(self.now * 1e6) + self.wall

    def start(self) -> None:
        """The daemon begins; the log and the files are what they are."""
        self._later.clear()
        self.known: dict[Any, tuple[int, int, int]] = {}
        self.core = Core(self.settings)
        self._at().own(dict.fromkeys(self.logs, "t"))
        self.known = dict.fromkeys(self.logs, (0, -1, -1))
        self.step()

    def _at(self) -> Core:
        self.core.at(self.now, self.wall_us)
        return self.core

    # -- time --------------------------------------------------------------------------------

    def run(self, seconds: float, every: float = 0.002) -> None:
        """Time passes."""
        until = self.now + seconds
        while self.now < until:
            deadline = self.core.next_deadline()
            ahead = [until, self.now + every, *([self._later[0][0]] if self._later else [])]
            if deadline is not None:
                ahead.append(max(deadline, self.now))
            self.now = max(self.now, min(ahead))
            if min(ahead) <= self.now and deadline is not None and deadline <= self.now:
                self.now += 0.0001
            self.step()

    def step(self) -> None:
        """One loop turn."""
        while self._later and self._later[0][0] <= self.now:
            heapq.heappop(self._later)[2]()
        for key, log in self.logs.items():
            end, epoch, start = self.known.get(key, (log.end, log.epoch, log.start))
            if end != log.end or epoch not in (-1, log.epoch) or start not in (-1, log.start):
                told = log.watched(end if epoch in (-1, log.epoch) else 2**40)
                self.known[key] = (log.end, log.epoch, log.start)
                self._at().watched(told)
        for effect in self._at().turn():
            self._do(effect)

    def later(self, call: Callable[[], None], seconds: float | None = None) -> None:
        heapq.heappush(self._later, (self.now + (self.slow_s if seconds is None else seconds), next(self._order), call))

    # -- effects ---------------------------------------------------------------------------------

    def _do(self, effect: e.Effect) -> None:
        if isinstance(effect, e.AskMarker | e.AskDue | e.AskEndOfEpoch):
            if isinstance(effect, e.AskMarker):
                self.markers.append(effect)
                self._check_due(effect)
            core = self.core
            self.later(lambda: self._answer(core, effect, *self._ask(effect)))
        elif isinstance(effect, e.AskIndex):
            raw, core = bytes(self.files.get(effect.key, b"")), self.core
            self.later(lambda: self._answer(core, effect, raw, None))
        elif isinstance(effect, e.Reply):
            effect.call.reply = effect.body              # type: ignore[attr-defined]
        elif isinstance(effect, e.Fail):
            effect.call.error = effect.error             # type: ignore[attr-defined]
        elif isinstance(effect, e.Note):
            self.notes.append(effect)
        elif isinstance(effect, e.IndexWrite):
            self._write(effect)
        elif isinstance(effect, e.IndexReplace):
            self.files[effect.key] = self.fresh.pop(effect.key)
        elif isinstance(effect, e.IndexRemove):
            self.files.clear()

    def _check_due(self, ask: e.AskMarker) -> None:
        """By the clock of this moment. (Between asking and writing it may be set back.)"""
        log = self.logs[ask.key]
        if ask.type == control.ControlType.DELAY_READY and ask.epoch == log.epoch:
            for low, end in rng.pairs(ask.ranges):
                assert all(log.records[offset][1] <= self.wall_us for offset in range(low, min(end, log.end))), "early"

    def _write(self, effect: e.IndexWrite) -> None:
        self.writes += 1
        if self.unwritable:
            self._at().index_failed(effect.id)
            return
        file = (self.fresh if effect.fresh else self.files).setdefault(effect.key, bytearray())
        assert effect.position <= len(file)
        file[effect.position :] = effect.data

    def _answer(self, core: Core, ask: Any, reply: Any, error: GoQueueError | None) -> None:
        if core is self.core:
            self._at().answer(ask, reply, error)

    def _ask(self, ask: Any) -> tuple[Any, GoQueueError | None]:
        log = self.logs[ask.key]
        error = self.refuse(ask)
        if error:
            return None, error
        try:
            if isinstance(ask, e.AskDue):
                return log.due(ask.offset, ask.limit), None
            if isinstance(ask, e.AskEndOfEpoch):
                return log.end_of(ask.of), None
            if ask.epoch not in (-1, log.epoch):
                raise NotLeader("another epoch")
            return log.mark(ask.type, ask.ranges, self.wall_us), None
        except GoQueueError as error:
            return None, error

    # -- clients -----------------------------------------------------------------------------------

    def call(self, kind: Kind, body: Any, partition: int = 0, patience_s: float = 5.0) -> Call:
        call = Call(kind, body, partition, self.now + patience_s)
        self._at().request(call)
        return call

    def ask(self, kind: Kind, body: Any, partition: int = 0) -> Any:
        """The reply; an error is raised."""
        call = self.call(kind, body, partition)
        for _ in range(2000):
            if call.reply or call.error:
                break
            self.run(0.001)
        if call.error:
            raise call.error
        return call.reply

    def cancel(self, *ranges: int) -> list[int]:
        return self.ask(Kind.CANCEL_DELAYED, m.CancelDelayed(list(ranges))).fates  # type: ignore[no-any-return]

    def listed(self, partition: int = 0) -> list[tuple[int, int]]:
        """(offset, due) of all that waits, page by page."""
        found: list[tuple[int, int]] = []
        after: list[int] = []
        while True:
            page = self.ask(Kind.LIST_DELAYED, m.ListDelayed(after, 3), partition)
            rows = list(zip(page.delayed[::3], page.delayed[1::3], page.delayed[2::3]))
            found += [(offset, due) for _, offset, due in rows]
            if not page.more:
                return found
            after = [rows[-1][2], rows[-1][0], rows[-1][1]]

    def stats(self, partition: int = 0) -> m.DelayPartition:
        return self.ask(Kind.DELAY_STATS, m.DelayStats(), partition).partitions[0]  # type: ignore[no-any-return]

    def fired(self, log: Log | None = None) -> list[int]:
        """Offsets in the order in which consumers get them."""
        log = log or self.log
        return [offset for record in log.records if record[0] == CONTROL and record[1] == 3
                for low, end in rng.pairs(record[2]) for offset in range(low, end)]

    def check(self, log: Log | None = None) -> None:
        """Nothing early, nothing twice."""
        log = log or self.log
        fired = self.fired(log)
        assert len(set(fired)) == len(fired)
        for offset, (_, stamp) in log.ready.items():
            assert stamp >= log.records[offset][1], f"{offset} was early"


def array_of(numbers: list[int]) -> "array[int]":
    return array("Q", numbers)

"""A Core with everything around it played: logs are lists of kinds, the journal is a list, time is a number.

`Rig` carries out effects as soon as they come, but for the classes in `hold`, which pile up in `held` until `release`. A restart is
a new Core fed from the journal. `client` calls return the reply's body or raise the error it carries.
"""

import itertools
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gq_groupd import effects as fx
from gq_groupd.core import Core, Settings
from gq_proto import codec, control
from gq_proto import messages as m
from gq_proto import ranges as rng
from gq_proto.errors import GoQueueError, OffsetOutOfRange, UnknownTopicId
from gq_proto.limits import PRIORITIES
from gq_proto.messages import Kind
from gq_proto.record import CONTROL, DELAYED, kind_lane, kind_of
from gq_proto.runs import ALL_LANES, CONTROL_KIND, NO_LANES, UNDELIVERABLE

NORMAL = kind_of(0, 2)
READY = kind_of(CONTROL, 2)
LATER = kind_of(DELAYED, 2)
WALL = 1_700_000_000_000_000


@dataclass(eq=False)
class Call:
    kind: int
    body: Any
    peer: bytes = b"peer"
    partition: int = 0
    deadline: float = 1e12


class Log:
    """One partition: `kinds[offset]` of what lies there."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.controls: dict[int, m.Control] = {}
        self.start = 0
        self.epoch = 1
        self.ends: dict[int, int] = {}      # of earlier epochs

    @property
    def end(self) -> int:
        return len(self.kinds)

    def runs(self, low: int, high: int, limit: int = 10**9, lane: int = ALL_LANES) -> tuple[list[int], int]:
        """As logd answers Runs."""
        out: list[int] = []
        kinds = [kind & UNDELIVERABLE for kind in self.kinds] if lane == NO_LANES else self.kinds
        at = max(low, self.start)
        while at < high:
            kind, first = kinds[at], at
            while at < high and kinds[at] == kind:
                at += 1
            if lane < 0 or kind & CONTROL_KIND or kind_lane(kind) == lane:
                if len(out) == 3 * limit:
                    return out, first
                out += (first, at - first, kind)
        return out, max(high, low)

    def deliverable(self) -> set[int]:
        return {o for o in range(self.start, self.end) if self.kinds[o] & (READY | LATER) in (0, NORMAL)}


class Rig:
    def __init__(self, topics: dict[str, int] | None = None, settings: Settings | None = None, **config: Any) -> None:
        self.settings = settings or Settings()
        self.now = 1_000
        self.skew_us = 0                    # of the wall clock, when somebody sets it
        self.random = itertools.count(1)
        self.ids = itertools.count(100)
        self.topics: dict[str, m.TopicMeta] = {}
        self.logs: dict[tuple[int, int], Log] = {}
        self.journal: list[tuple[int, bytes, bytes]] = []
        self.journal_end = 0
        self.hold: set[type] = set()
        self.held: list[Any] = []
        self.answers: dict[Any, Any] = {}
        self.pushes: list[m.AssignedPush] = []
        self.exports: list[m.GroupInfo] = []
        self.watching: frozenset[tuple[int, int]] = frozenset()
        self.dlq: list[tuple[str, str, int, int, int, str]] = []      # group, topic, partition, offset, count, reason
        self.copy_error: GoQueueError | None = None
        for name, partitions in (topics or {"t": 1}).items():
            self.create(name, partitions, **config)
        self.core = Core(3, lambda: next(self.random), self.settings)
        self.do(self.core.start(self.now, self.wall, self.topics.values(), [], 0))

    @property
    def wall(self) -> int:
        return WALL + self.now * 1000 + self.skew_us

    # -- the world ---------------------------------------------------------------------------

    def create(self, name: str, partitions: int, **config: Any) -> m.TopicMeta:
        topic = m.TopicMeta(name, next(self.ids), m.TopicConfig(**config), [m.PartitionMeta("n", 1)] * partitions)
        self.topics[name] = topic
        for p in range(partitions):
            self.logs[topic.id, p] = Log()
        return topic

    def tell_topics(self, *names: str, deleted: Iterable[int] = ()) -> None:
        self.do(self.core.topics(self.now, self.wall, [self.topics[n] for n in names], deleted))

    def log(self, topic: str = "t", partition: int = 0) -> Log:
        return self.logs[self.topics[topic].id, partition]

    def publish(self, count: int = 1, topic: str = "t", partition: int = 0, kind: int = NORMAL, tell: bool = True) -> None:
        log = self.log(topic, partition)
        low = log.end
        log.kinds += [kind] * count
        if tell:
            self.tell(topic, partition, low)

    def ready(self, ranges: list[int], topic: str = "t", partition: int = 0) -> int:
        """A delay-ready record; its offset."""
        log = self.log(topic, partition)
        offset = log.end
        log.kinds.append(READY)
        named = [o for low, n in zip(ranges[::2], ranges[1::2]) for o in range(low, low + n)]
        lanes = [x for o in named for x in (o, 1, kind_lane(log.kinds[o]))]
        log.controls[offset] = m.Control(offset, 3, control.encode_body(3, ranges), lanes)
        self.tell(topic, partition, offset)
        return offset

    def tell(self, topic: str = "t", partition: int = 0, known: int = -1) -> None:
        key = self.topics[topic].id, partition
        log = self.logs[key]
        runs = log.runs(known, log.end)[0] if known >= 0 else []
        controls = [c for o, c in log.controls.items() if o >= known >= 0]
        if key in self.watching:
            self.do(self.core.watched(self.now, self.wall, m.Watched(*key, log.epoch, log.start, log.end, runs, 0, controls)))

    def new_epoch(self, keep: int, topic: str = "t", partition: int = 0) -> None:
        """Another leader; what lies from `keep` on was lost."""
        log = self.log(topic, partition)
        del log.kinds[keep:]
        log.controls = {o: c for o, c in log.controls.items() if o < keep}
        log.ends[log.epoch] = keep
        log.epoch += 1
        log.kinds.append(READY)

    def advance(self, ms: int) -> None:
        """Time passes; everything due on the way happens when it is due."""
        until = self.now + ms
        while (due := self.core.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self.do(self.core.due(self.now, self.wall))
        self.now = until

    def restart(self) -> None:
        """kill -9 and a new one."""
        self.held, self.watching = [], frozenset()
        self.core = Core(3, lambda: next(self.random), self.settings)
        for offset, key, value in self.journal:
            self.core.replay(offset, key, value)
        self.do(self.core.start(self.now, self.wall, self.topics.values(), [], self.journal_end))

    # -- effects ------------------------------------------------------------------------------------

    def do(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            if type(effect) in self.hold:
                self.held.append(effect)
            else:
                self.carry_out(effect)

    def release(self, *kinds: type) -> None:
        self.hold -= set(kinds)
        held, self.held = self.held, []
        self.do(held)

    def carry_out(self, effect: Any) -> None:
        if isinstance(effect, fx.Append):
            for key, value in effect.records:
                self.journal.append((self.journal_end, key, value))
                self.journal_end += 1
            self.do(self.core.appended(self.now, self.wall, effect.ticket, self.journal_end))
        elif isinstance(effect, fx.Trim):
            self.journal = [r for r in self.journal if r[0] >= effect.offset]
        elif isinstance(effect, fx.Reply):
            self.answers[effect.call] = effect.body
        elif isinstance(effect, fx.Fail):
            self.answers[effect.call] = effect.error
        elif isinstance(effect, fx.Push):
            self.pushes.append(effect.body)
        elif isinstance(effect, fx.WatchSet):
            new, self.watching = effect.parts - self.watching, effect.parts
            names = {t.id: n for n, t in self.topics.items()}
            for key in sorted(new):
                self.tell(names[key[0]], key[1])
        elif isinstance(effect, fx.Export):
            self.exports.append(effect.info)
        elif not isinstance(effect, fx.ExportRemoved):
            try:
                reply, error = self.answer(effect), None
            except GoQueueError as failure:
                reply, error = None, failure
            self.do(self.core.answer(self.now, self.wall, effect, reply, error))

    def answer(self, ask: Any) -> Any:
        if isinstance(ask, fx.PrepareDeadLetters):
            return fx.DeadLetterEnd(99, len(self.dlq))
        if isinstance(ask, fx.CopyDeadLetters):
            return self.copy(ask)
        log = self.logs.get((ask.topic_id, ask.partition))
        if log is None:
            raise UnknownTopicId("gone")
        if isinstance(ask, fx.AskRuns):
            if ask.offset > log.end:
                raise OffsetOutOfRange("behind the end")
            runs, upto = log.runs(ask.offset, log.end, ask.limit, ask.lane)
            controls = [c for o, c in log.controls.items() if ask.offset <= o < upto]
            plain = [kind_lane(kind) for kind in log.kinds[ask.offset:upto] if not kind & UNDELIVERABLE]
            counts = [plain.count(lane) for lane in range(PRIORITIES)] if ask.lane == NO_LANES else []
            ranges = array("q", codec.runs_by_lane(runs)[0]) if ask.lane >= 0 else array("q")
            if ask.lane >= 0:
                runs = [x for run in zip(*[iter(runs)] * 3) if run[2] & CONTROL_KIND for x in run]
            return m.RunsReply(runs, upto, log.start, log.end, log.end, log.epoch, controls, [], counts, rng.pack(ranges))
        if isinstance(ask, fx.AskEndOfEpoch):
            return m.EndOfEpochReply(ask.of, log.ends.get(ask.of, log.end))
        if isinstance(ask, fx.AskOffsetForTime):
            return m.OffsetForTimeReply(min(ask.timestamp_us, log.end), 0)
        raise AssertionError(ask)

    def copy(self, ask: fx.CopyDeadLetters) -> fx.DeadLettersCopied:
        if self.copy_error:
            raise self.copy_error
        there = {entry[:4] for entry in self.dlq[ask.dlq_end:]} if ask.scan else set()
        copied: list[int] = []
        for item in ask.items:
            if (ask.group, ask.topic, ask.partition, item.offset) not in there:
                self.dlq.append((ask.group, ask.topic, ask.partition, item.offset, item.count, item.reason))
            copied += (item.offset, 1)
        return fx.DeadLettersCopied(copied, [])

    # -- clients ----------------------------------------------------------------------------------------

    def send(self, kind: Kind, body: Any, peer: bytes = b"peer", patience_s: float = 1e9) -> Call:
        call = Call(int(kind), body, peer, deadline=self.now / 1000 + patience_s)
        self.do(self.core.request(self.now, self.wall, call))
        return call

    def answer_to(self, call: Call) -> Any:
        """None while there is none."""
        body = self.answers.get(call)
        if isinstance(body, GoQueueError):
            raise body
        return body

    def ask(self, kind: Kind, body: Any, peer: bytes = b"peer") -> Any:
        call = self.send(kind, body, peer)
        answer = self.answer_to(call)
        assert answer is not None, f"no answer to {kind.name} yet"
        del self.answers[call]
        return answer

    def join(self, member: str = "a", topics: Iterable[str] = ("t",), group: str = "g", **more: Any) -> m.JoinReply:
        return self.ask(Kind.JOIN, m.Join(group, member, list(topics), **more), member.encode())

    def poll(self, member: str = "a", most: int = 500, group: str = "g", **more: Any) -> list[m.Lease]:
        return self.ask(Kind.POLL, m.Poll(group, member, 0, most, **more), member.encode()).leases

    def settle(self, lease: m.Lease, op: m.Op = m.Op.ACK, ranges: list[int] | None = None, member: str = "a", group: str = "g",
               arg_ms: int = -1, reason: str = "", progress: list[m.Progress] | None = None, whole: bool = False) -> m.SettleResult:
        item = m.Settle1(op, lease.lease, [] if whole else lease.ranges if ranges is None else ranges, arg_ms, reason,
                         lease.random if whole else 0)
        return self.ask(Kind.SETTLE, m.Settle(group, member, [item], progress or []), member.encode()).settled[0]

    def heartbeat(self, member: str = "a", leases: Iterable[m.Lease] = (), group: str = "g",
                  progress: list[m.Progress] | None = None) -> m.HeartbeatReply:
        body = m.Heartbeat(group, member, 0, [lease.lease for lease in leases], progress or [])
        return self.ask(Kind.HEARTBEAT, body, member.encode())

    def beat(self, ms: int, *members: str, held: dict[str, list[m.Lease]] | None = None, group: str = "g") -> None:
        """Time passes while these members live."""
        until = self.now + ms
        while self.now < until:
            self.advance(min(3_000, until - self.now))
            for member in members:
                self.heartbeat(member, (held or {}).get(member, ()), group)

    def mark(self, ack: bool, low: int, high: int, topic: str = "t", partition: int = 0, group: str = "g") -> int:
        item = m.Mark1(self.topics[topic].id, partition, ack, low, high)
        return self.ask(Kind.MARK, m.Mark(group, [item], True)).changed[0]

    def describe(self, group: str = "g") -> m.GroupInfo:
        return self.ask(Kind.DESCRIBE_GROUP, m.DescribeGroup(group))

    def part(self, topic: str = "t", partition: int = 0, group: str = "g") -> m.GroupPartition:
        return next(p for p in self.describe(group).partitions if (p.topic, p.partition) == (topic, partition))


def offsets(leases: m.Lease | Iterable[m.Lease]) -> list[int]:
    """In the order of serving."""
    if isinstance(leases, m.Lease):
        leases = [leases]
    return [o for lease in leases for low, n in zip(lease.ranges[::2], lease.ranges[1::2]) for o in range(low, low + n)]

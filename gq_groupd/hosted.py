"""One `__groups` partition that this groupd coordinates: its journal, its core, and carrying out what the core wants.

Life: taking over (requests answer NotCoordinator) -> serving -> closed. A journal that fails drops the core with everything it
had in mind and takes over anew after a while: what was not durable never happened, clients ask again.

Owns the replies that wait for the journal. Invariant: a Reply, Fail or Push with `after` leaves only once that ticket is durable.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from gq_groupd import effects as e
from gq_groupd.commits import Commits
from gq_groupd.core import Core, PartGauge, Settings
from gq_groupd.dead_letters import DeadLetters
from gq_groupd.exports import Exports
from gq_groupd.journal import Journal
from gq_proto.errors import Corrupt, GoQueueError, NotCoordinator, PartitionOffline, Unavailable
from gq_proto.messages import (
    Body,
    EndOfEpoch,
    Kind,
    MetadataReply,
    OffsetForTime,
    PollReply,
    Runs,
    Settle,
    SettleReceipts,
    SettleReply,
    TopicMeta,
    Watched,
)
from gq_run import logs
from gq_run.daemon import Daemon
from gq_run.loop import Timer
from gq_run.peers import Peers
from gq_run.watcher import Watcher

RETRY_S: Final = (0.05, 2.0)      # takeover: first wait and longest
ASK_TIMEOUT_S: Final = 10.0
SOFT_S: Final = 0.005             # a journal record that nobody waits for is sent within this


class Request(Protocol):
    """gq_run.server.Incoming, or a part of one."""

    peer: bytes
    kind: int
    partition: int
    body: Any
    deadline: float

    def reply(self, body: Body) -> bool: ...
    def fail(self, error: GoQueueError) -> bool: ...


class Shared:
    """What all hosted partitions use. `topics()` is all that metad knows."""

    def __init__(self, daemon: Daemon, peers: Peers, watcher: Watcher, dead_letters: DeadLetters, exports: Exports,
                 settings: Settings, topics: Callable[[], Iterable[TopicMeta]]) -> None:
        self.daemon, self.peers, self.watcher = daemon, peers, watcher
        self.dead_letters, self.exports, self.settings, self.topics = dead_letters, exports, settings, topics
        self.commits = Commits()
        self.touched: dict[Hosted, None] = {}      # those whose end_turn() has something to do

    def end_turn(self) -> None:
        touched, self.touched = self.touched, {}
        for hosted in touched:
            hosted.end_turn()


class Hosted:
    """`epoch` is that of the partition's leader when it was taken over."""

    def __init__(self, shared: Shared, topic_id: int, partition: int, epoch: int) -> None:
        self._shared, self._loop = shared, shared.daemon.loop
        self.topic_id, self.partition, self.epoch = topic_id, partition, epoch
        self.serving = False
        self._closed = False
        self._retry_s = RETRY_S[0]
        self.unreadable = ""                       # why the journal can't be read, for as long as it can't
        self._core: Core | None = None
        self._journal: Journal | None = None
        self._parked: dict[int, list[tuple[e.Reply | e.Fail | e.Push, float]]] = {}     # and since when
        self._confirmed = 0
        self._awaited = self._flush_set = False
        self._timer: Timer | None = None
        self._timer_ms: int | None = None
        self._take_over()

    # -- life -------------------------------------------------------------------------------

    def _take_over(self) -> None:
        if self._closed:
            return
        core = Core(self.partition, lambda: secrets.randbits(32), self._shared.settings)
        self._core, self._confirmed = core, 0
        self._journal = Journal(self._shared.peers, self.topic_id, self.partition, core.replay, self._replayed, self._appended,
                                self._failed)
        self._journal.open()

    def _replayed(self, end_offset: int) -> None:
        assert self._core is not None
        self.serving, self._retry_s, self.unreadable = True, RETRY_S[0], ""
        self._do(self._core.start(self._now_ms(), self._loop.wall_us(), self._shared.topics(), [], end_offset))
        self._shared.daemon.log.debug("serves", extra=logs.fields(partition=self.partition, journal_end=end_offset))

    def _failed(self, error: GoQueueError) -> None:
        """The journal ended: nothing in memory counts that is not in it."""
        log = self._shared.daemon.log.warning if self.serving else self._shared.daemon.log.debug
        log("journal lost, taking over anew", extra=logs.fields(partition=self.partition, error=error.name, reason=error.message))
        if isinstance(error, Corrupt | PartitionOffline) and not self.unreadable.startswith(error.message):
            self.unreadable = error.message
            if self._journal and not self._journal.newer:
                self.unreadable += "; restore it from a copy of this node"
            self._shared.daemon.log.error("the journal cannot be read: its groups wait until it can",
                                          extra=logs.fields(partition=self.partition, reason=self.unreadable))
        self._drop(Unavailable("the group's coordinator starts over, ask again"))
        self._loop.call_later(self._retry_s, self._take_over)
        self._retry_s = min(2 * self._retry_s, RETRY_S[1])

    def close(self) -> None:
        """Somebody else coordinates it, or the daemon stops."""
        self._closed = True
        self._drop(NotCoordinator("the group's coordinator moved"))

    def _drop(self, error: GoQueueError) -> None:
        if self._journal:
            self._journal.close()
        core, was, self._core, self._journal, self.serving = self._core, self.serving, None, None, False
        parked, self._parked = self._parked, {}
        self._shared.watcher.set(self, frozenset())
        if self._timer:
            self._timer.cancel()
            self._timer, self._timer_ms = None, None
        for effect in core.abandon() if core and was else ():
            if isinstance(effect, e.Fail):
                _refuse(effect.call, effect.error)
        for ticket in sorted(parked):
            for effect, _ in parked[ticket]:
                if not isinstance(effect, e.Push):
                    _refuse(effect.call, error)

    # -- inputs -------------------------------------------------------------------------------

    def handle(self, call: Request) -> None:
        """NotCoordinator while taking over."""
        if not self.serving or self._core is None:
            if self.unreadable:
                raise NotCoordinator(f"the group's journal cannot be read: {self.unreadable}")
            raise NotCoordinator("the group's coordinator is starting, ask again")
        self._do(self._core.request(self._now_ms(), self._loop.wall_us(), call))

    def topics(self, reply: MetadataReply) -> None:
        if self.serving and self._core:
            self._do(self._core.topics(self._now_ms(), self._loop.wall_us(), reply.topics, reply.deleted))

    def watched(self, watched: Watched) -> None:
        if self.serving and self._core:
            self._do(self._core.watched(self._now_ms(), self._loop.wall_us(), watched))

    def gauges(self) -> Iterable[PartGauge]:
        return self._core.gauges() if self.serving and self._core else ()

    def ages(self) -> Mapping[tuple[str, str], list[int]]:
        """Of acked messages by (group, topic), see Ages.counts."""
        return self._core.ages.counts if self.serving and self._core else {}

    def members(self) -> Iterable[tuple[str, int]]:
        return self._core.members() if self.serving and self._core else ()

    def end_turn(self) -> None:
        """At the end of a turn in which something happened: append what was decided, set the timer for what is due next."""
        if self._journal and self._journal.pending:
            self._flush(self._journal)
        if not self.serving or self._core is None:
            return
        deadline = self._core.next_deadline()
        if deadline != self._timer_ms:
            if self._timer:
                self._timer.cancel()
            self._timer_ms = deadline
            self._timer = None if deadline is None else self._loop.call_at(deadline / 1000 + 0.0005, self._due)

    def _flush(self, journal: Journal) -> None:
        """At once when somebody waits for it; what nobody waits for (grants, mostly) waits a little for company."""
        if self._awaited:
            self._awaited = False
            journal.flush()
        elif not self._flush_set:
            self._flush_set = True
            self._loop.call_later(SOFT_S, self._flush_soft)

    def _flush_soft(self) -> None:
        self._flush_set = False
        if self._journal:
            self._journal.flush()

    def _due(self) -> None:
        self._timer, self._timer_ms = None, None
        if self.serving and self._core:
            self._do(self._core.due(self._now_ms(), self._loop.wall_us()))

    def _appended(self, ticket: int, end_offset: int) -> None:
        for number in range(self._confirmed + 1, ticket + 1):
            for effect, since in self._parked.pop(number, ()):
                self._send(effect)
                if isinstance(effect, e.Reply) and isinstance(effect.body, SettleReply):
                    self._note_commit(_request(effect.call).body, self._loop.now() - since)
        self._confirmed = ticket
        if self._core:
            self._do(self._core.appended(self._now_ms(), self._loop.wall_us(), ticket, end_offset))

    def _note_commit(self, request: Settle | SettleReceipts, seconds: float) -> None:
        if isinstance(request, Settle):
            self._shared.commits.note(request.group, seconds)
        elif self._core:
            for name in self._core.named({item.group_number for item in request.items}):
                self._shared.commits.note(name, seconds)

    def _now_ms(self) -> int:
        return int(self._loop.now() * 1000)

    # -- effects ----------------------------------------------------------------------------------

    def _do(self, effects: Iterable[e.Effect]) -> None:
        self._shared.touched[self] = None
        for effect in effects:
            if isinstance(effect, e.Reply | e.Fail | e.Push):
                if effect.after > self._confirmed:
                    self._awaited = True
                    self._parked.setdefault(effect.after, []).append((effect, self._loop.now()))
                else:
                    self._send(effect)
            elif isinstance(effect, e.Append):
                assert self._journal is not None
                self._journal.append(effect.ticket, effect.records)
            else:
                self._do_other(effect)

    def _send(self, effect: e.Reply | e.Fail | e.Push) -> None:
        if isinstance(effect, e.Push):
            self._shared.daemon.server.push(effect.peer, Kind.ASSIGNED, effect.body)
        elif isinstance(effect, e.Fail):
            _refuse(effect.call, effect.error)
        elif not _request(effect.call).reply(effect.body) and isinstance(effect.body, PollReply | SettleReply) and self._core:
            self._do(self._core.undelivered(self._now_ms(), self._loop.wall_us(), effect.call, effect.body))

    def _do_other(self, effect: e.Effect) -> None:
        shared = self._shared
        if isinstance(effect, e.WatchSet):
            shared.watcher.set(self, effect.parts)
        elif isinstance(effect, e.AskRuns):
            self._ask(effect, Kind.RUNS, Runs(effect.offset, effect.lane, effect.limit, effect.lane >= 0))
        elif isinstance(effect, e.AskEndOfEpoch):
            self._ask(effect, Kind.END_OF_EPOCH, EndOfEpoch(effect.of))
        elif isinstance(effect, e.AskOffsetForTime):
            self._ask(effect, Kind.OFFSET_FOR_TIME, OffsetForTime(effect.timestamp_us))
        elif isinstance(effect, e.PrepareDeadLetters):
            shared.dead_letters.prepare(effect, self._answer_to(effect))
        elif isinstance(effect, e.CopyDeadLetters):
            shared.dead_letters.copy(effect, self._answer_to(effect))
        elif isinstance(effect, e.Export):
            shared.exports.write(effect.info)
        elif isinstance(effect, e.ExportRemoved):
            shared.exports.remove(effect.group)
            shared.commits.forget(effect.group)
        elif isinstance(effect, e.Trim) and self._journal:
            self._journal.trim(effect.offset)

    def _ask(self, ask: e.AskRuns | e.AskEndOfEpoch | e.AskOffsetForTime, kind: Kind, body: Body) -> None:
        answer = self._answer_to(ask)
        self._shared.peers.to_leader(ask.topic_id, ask.partition, kind, body, lambda reply, frames, error: answer(reply, error),
                                     timeout_s=ASK_TIMEOUT_S)

    def _answer_to(self, ask: e.Ask) -> Callable[[Any, GoQueueError | None], None]:
        """Answers go to the core that asked, if it is still there."""
        core = self._core

        def answered(reply: Any, error: GoQueueError | None) -> None:
            if core is self._core and self._core is not None:
                self._do(self._core.answer(self._now_ms(), self._loop.wall_us(), ask, reply, error))
        return answered


def _request(call: e.Call) -> Request:
    """What the core hands back is what it was handed."""
    return call  # type: ignore[return-value]


def _refuse(call: e.Call, error: GoQueueError) -> None:
    _request(call).fail(error)

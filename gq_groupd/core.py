"""One `__groups` partition's groups, as a pure state machine: inputs in, effects out. See the package's text and `effects`.

    core = Core(partition, rand32, settings)
    for record in journal: core.replay(offset, key, value)
    effects = core.start(now_ms, wall_us, topics, deleted, end_offset)     once, after replay, with all metadata
    effects = core.request(now_ms, wall_us, call)                          JOIN .. PAUSE
    effects = core.topics(now_ms, wall_us, topics, deleted)                what changed in the metadata
    effects = core.watched(now_ms, wall_us, watched)                       a part of a WatchReply
    effects = core.answer(now_ms, wall_us, ask, reply, error)              to an ask among the effects
    effects = core.appended(now_ms, wall_us, ticket, end_offset)           all Appends up to ticket are durable
    effects = core.undelivered(now_ms, wall_us, call, body)                a Reply could not be sent: leases in it return
    effects = core.due(now_ms, wall_us); core.next_deadline()              timers

now_ms is monotonic, never goes back; wall_us only dates what has to survive a restart. Effects are done in order.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from gq_groupd import entries as e
from gq_groupd.burial import Burial
from gq_groupd.desk import Desk
from gq_groupd.effects import (
    Ask,
    AskEndOfEpoch,
    AskOffsetForTime,
    AskRuns,
    Call,
    Effect,
    Export,
    ExportRemoved,
    Fail,
)
from gq_groupd.errands import NEVER_MS, PATIENCE_MS, UNHEARD_MS, Errand, Errands, Marking
from gq_groupd.group import PARTITIONED, SHARED, Group, Member
from gq_groupd.info import Info, PartGauge
from gq_groupd.loading import Loading
from gq_groupd.members import Members
from gq_groupd.part import Part
from gq_groupd.serving import Serving
from gq_groupd.settings import Settings
from gq_groupd.settling import Settling
from gq_groupd.trimming import Trimming
from gq_proto import limits, names
from gq_proto.errors import (
    BadRequest,
    GoQueueError,
    GroupNotEmpty,
    ModeMismatch,
    Unavailable,
    UnknownGroup,
    UnknownKind,
    UnknownMember,
)
from gq_proto.messages import (
    EARLIEST,
    Body,
    Empty,
    Heartbeat,
    Join,
    JoinReply,
    Kind,
    ListGroupsReply,
    PollReply,
    SettleReply,
    TopicMeta,
    Watched,
)

__all__ = ["Core", "PartGauge", "Settings"]


class Core:
    """rand32() gives 32 random bits: the only chance in here, and the caller's."""

    def __init__(self, partition: int, rand32: Callable[[], int], settings: Settings | None = None) -> None:
        self._desk = desk = Desk(partition, rand32, settings or Settings())
        self.ages = desk.ages                   # of acked messages, for metrics at scrape
        self._settling = Settling(desk)
        self._members = Members(desk, self._settling)
        self._serving = Serving(desk, self._settling, self._members)
        self._loading = Loading(desk)
        self._burial = Burial(desk, self._settling)
        self._errands = Errands(desk)
        self._info = Info(desk, self._members)
        self._trimming = Trimming(desk)
        self._members.on_gone = self._serving.drop
        self._members.on_expired = self._drop_group
        self._loading.on_placed = self._members.rebalance
        self._requests: dict[int, Callable[[Call], None]] = {
            Kind.JOIN: self._join, Kind.LEAVE: self._leave, Kind.HEARTBEAT: self._heartbeat, Kind.POLL: self._poll,
            Kind.SETTLE: self._settle, Kind.SETTLE_RECEIPTS: self._settle_receipts, Kind.MARK: self._mark,
            Kind.DESCRIBE_GROUP: self._describe, Kind.LIST_GROUPS: self._list, Kind.DELETE_GROUP: self._delete,
            Kind.PAUSE: self._pause}

    # -- life -------------------------------------------------------------------------

    def replay(self, offset: int, key: bytes, value: bytes) -> None:
        """One journal record, in order, before start()."""
        self._trimming.replayed(offset, len(key) + len(value))
        self._desk.state.apply(key.decode(), e.decode(value))

    def start(self, now_ms: int, wall_us: int, topics: Iterable[TopicMeta], deleted: Iterable[int],
              end_offset: int) -> list[Effect]:
        """Replay is done; the journal ends at end_offset. `topics` is all that metad knows."""
        desk = self._desk
        desk.at_time(now_ms, wall_us)
        desk.next_lease = max(desk.state.last_lease + 1, wall_us)
        self._trimming.end_offset = max(self._trimming.end_offset, end_offset)
        for group in desk.state.groups.values():
            self._restart(group)
        self._loading.topics(list(topics), list(deleted))
        for group in list(desk.state.groups.values()):
            self._members.refresh_keys(group, {})
            self._loading.place(group)
            self._members.rebalance(group)
        return self._finish()

    def _restart(self, group: Group) -> None:
        group.pieces.clear()
        for part in group.parts.values():
            part.restart()
            part.waiting.restart(self._desk.now_ms, self._desk.wall_us)
            for lease in part.leases.values():
                self._settling.restart(lease)
        for member in group.members.values():
            member.heard_ms = self._desk.now_ms
            self._members.watch_session(group, member)
        if not group.members:
            self._members.watch_expiry(group)

    def abandon(self) -> list[Effect]:
        """The core is to be dropped: Fails for everything it has parked (polls, joins, marks, describes)."""
        error = Unavailable("the group's coordinator starts over, ask again")
        polls: list[Effect] = [Fail(parked.call, error) for group in self._desk.state.groups.values() for parked in group.parked]
        return polls + self._errands.abandon()

    # -- inputs --------------------------------------------------------------------------

    def request(self, now_ms: int, wall_us: int, call: Call) -> list[Effect]:
        """Never raises GoQueueError: a refusal is a Fail among the effects. Parked requests past call.deadline are dropped."""
        self._desk.at_time(now_ms, wall_us)
        try:
            handler = self._requests.get(call.kind)
            if handler is None:
                raise UnknownKind(f"request kind {call.kind} is not a group's")
            handler(call)
        except GoQueueError as error:
            self._desk.fail(call, error)
        return self._finish()

    def topics(self, now_ms: int, wall_us: int, topics: Iterable[TopicMeta], deleted: Iterable[int]) -> list[Effect]:
        """Created and altered topics, whole; ids of deleted ones."""
        self._desk.at_time(now_ms, wall_us)
        for group in self._loading.topics(list(topics), list(deleted)):
            self._members.rebalance(group)
        return self._finish()

    def watched(self, now_ms: int, wall_us: int, watched: Watched) -> list[Effect]:
        """Told for every partition in the last WatchSet; harmless for others."""
        self._desk.at_time(now_ms, wall_us)
        self._loading.watched(watched)
        return self._finish()

    def answer(self, now_ms: int, wall_us: int, ask: Ask, reply: Any, error: GoQueueError | None) -> list[Effect]:
        """`ask` is the effect itself."""
        self._desk.at_time(now_ms, wall_us)
        if isinstance(ask, AskRuns | AskEndOfEpoch | AskOffsetForTime):
            self._loading.answer(ask, reply, error)
        else:
            self._burial.answer(ask, reply, error)
        return self._finish()

    def appended(self, now_ms: int, wall_us: int, ticket: int, end_offset: int) -> list[Effect]:
        """Everything up to `ticket` is durable in the configured fsync mode; end_offset is the offset after its last record."""
        self._desk.at_time(now_ms, wall_us)
        self._desk.confirmed = max(self._desk.confirmed, ticket)
        self._burial.durable(ticket)
        self._trimming.durable(ticket, end_offset)
        return self._finish()

    def undelivered(self, now_ms: int, wall_us: int, call: Call, body: Body) -> list[Effect]:
        """The peer of `call` is gone: leases granted in `body` return uncounted, its parked polls are forgotten."""
        self._desk.at_time(now_ms, wall_us)
        if isinstance(body, PollReply):
            self._serving.undelivered(call, body)
        group = self._desk.state.groups.get(getattr(call.body, "group", ""))
        if group:
            self._serving.forget_peer(group, call.peer)
        return self._finish()

    def due(self, now_ms: int, wall_us: int) -> list[Effect]:
        """Do what is due at now_ms."""
        self._desk.at_time(now_ms, wall_us)
        self._desk.run_due()
        return self._finish()

    def next_deadline(self) -> int | None:
        """When due() is wanted next, in ms of the same clock; None: never, until something happens."""
        return self._desk.next_deadline()

    def gauges(self) -> Sequence[PartGauge]:
        """Per (group, topic, partition), for metrics at scrape."""
        return self._info.gauges()

    def members(self) -> list[tuple[str, int]]:
        """Of each group how many there are."""
        return [(name, len(group.members)) for name, group in self._desk.state.groups.items()]

    def named(self, numbers: Iterable[int]) -> list[str]:
        """The groups that have these numbers; those that are gone are left out."""
        groups = [self._desk.state.numbers.get(number) for number in numbers]
        return [group.name for group in groups if group]

    # -- the end of every step ----------------------------------------------------------------

    def _finish(self) -> list[Effect]:
        desk = self._desk
        while desk.hungry or desk.touched or desk.advanced or desk.parts_changed:
            if desk.parts_changed:
                desk.parts_changed = False
                self._loading.refresh_watch()
            while desk.hungry:
                self._serving.serve(desk.hungry.popitem()[0])
            while desk.touched:
                part = desk.touched.popitem()[0]
                if desk.alive(part):
                    self._tend(part)
            if desk.advanced:
                desk.advanced = False
                self._errands.advance()
        while desk.changed:
            self._arm_export(desk.changed.popitem()[0])
        self._trimming.wrote(desk.journal_bytes)
        return desk.take_effects()

    def _tend(self, part: Part) -> None:
        desk = self._desk
        due = part.waiting.next_due()
        if due is not None and due <= desk.now_ms:
            part.retry_due(desk.now_ms)
            desk.wake(part.group)
            due = part.waiting.next_due()
        if due is not None and (part.armed_ms is None or due < part.armed_ms or part.armed_ms <= desk.now_ms):
            part.armed_ms = due
            desk.at(due, partial(desk.touch, part))
        if part.handover:
            self._members.check_handover(part)
        self._loading.tend(part)
        self._burial.tend(part)

    def _arm_export(self, group: Group) -> None:
        if group.export_ms is None:
            group.export_ms = self._desk.now_ms + limits.EXPORT_INTERVAL_MS
            self._desk.at(group.export_ms, partial(self._export, group))

    def _export(self, group: Group) -> None:
        group.export_ms = None
        if self._desk.state.numbers.get(group.number) is group:
            self._desk.emit(Export(self._info.describe(group)))

    # -- requests ------------------------------------------------------------------------------------

    def _group(self, name: str) -> Group:
        group = self._desk.state.groups.get(name)
        if group is None:
            raise UnknownGroup(f"no group is called {name!r:.220}: it is made by its first consumer")
        return group

    def _member(self, group: Group, id: str, peer: bytes) -> Member:
        member = group.members.get(id)
        if member is None:
            raise UnknownMember(f"group {group.name} has no member {id!r:.80}: its session ended, join again")
        self._members.heard(member, peer)
        return member

    def _join(self, call: Call) -> None:
        body: Join = call.body
        names.check_name("group", body.group)
        if names.is_internal(body.group):
            raise BadRequest(f"group {body.group} is internal: use another name")
        if body.mode not in ("", PARTITIONED, SHARED):
            raise BadRequest(f"mode {body.mode!r:.40} is unknown: use {PARTITIONED} or {SHARED}")
        self._members.check(body)
        group = self._desk.state.groups.get(body.group)
        if group and body.mode and body.mode != group.mode:
            raise ModeMismatch(f"group {group.name} is {group.mode}: join it so, or use another group")
        if group is None:
            start = str(int(body.start)) if body.start.isdigit() else body.start
            group = self._make_group(body.group, body.mode or PARTITIONED, start)
        member = self._members.join(group, body, call.peer)
        self._loading.place(group)
        self._members.rebalance(group)
        self._errands.run(Errand(call, partial(self._joined, call, group, member), partial(self._join_late, call)))

    def _make_group(self, name: str, mode: str, start: str) -> Group:
        number = self._desk.state.next_number
        self._desk.journal(name, e.GroupMade(number, mode, start, self._desk.wall_us))
        return self._desk.state.numbers[number]

    def _joined(self, call: Call, group: Group, member: Member) -> bool:
        """Once it is certain where its topics start."""
        if group.members.get(member.id) is not member:
            self._desk.fail(call, UnknownMember("the session ended: join again"))
            return True
        mine = {self._desk.names.get(topic) for topic in member.topics}
        if any(key[0] in mine for key in group.placing):
            return False
        heartbeat = min(self._desk.settings.heartbeat_ms, member.session_ms // 3)
        self._desk.reply(call, JoinReply(member.id, group.generation, self._members.assigned(group, member), heartbeat,
                                         group.number, member.session_ms))
        return True

    def _join_late(self, call: Call) -> None:
        self._desk.fail(call, Unavailable("a partition to start in cannot be read now, nobody leads it: ask again"))

    def _leave(self, call: Call) -> None:
        group = self._group(call.body.group)
        member = group.members.get(call.body.member)
        if member:
            self._members.leave(group, member)
        self._desk.reply(call, Empty())

    def _heartbeat(self, call: Call) -> None:
        body: Heartbeat = call.body
        group = self._group(body.group)
        member = self._member(group, body.member, call.peer)
        self._desk.reply(call, self._members.heartbeat(group, member, body))

    def _poll(self, call: Call) -> None:
        group = self._group(call.body.group)
        self._serving.poll(call, group, self._member(group, call.body.member, call.peer))

    def _settle(self, call: Call) -> None:
        """Also of members that are gone: a late ack is one."""
        body = call.body
        group = self._group(body.group)
        member = group.members.get(body.member)
        if member:
            self._members.heard(member, member.peer)
        settled = self._settling.settle(group, body.member, body.items)
        self._settling.progress(group, body.member, body.progress)
        self._desk.reply(call, SettleReply(settled, True))
        if member and member.in_flight < self._desk.settings.max_in_flight:
            self._desk.wake(group)

    def _settle_receipts(self, call: Call) -> None:
        self._desk.reply(call, SettleReply([self._settling.receipt(item) for item in call.body.items]))

    def _mark(self, call: Call) -> None:
        body = call.body
        names.check_name("group", body.group)
        group = self._desk.state.groups.get(body.group)
        if group is None and body.create:
            group = self._make_group(body.group, PARTITIONED, EARLIEST)
            self._members.watch_expiry(group)
        if names.is_internal(body.group) and not all(item.ack for item in body.items):
            raise BadRequest(f"group {body.group} is internal: what it is done with stays so")
        marking = Marking(self._desk, self._loading, call, group or self._group(body.group))
        self._errands.run(Errand(call, marking.attempt, marking.at_last), UNHEARD_MS if marking.unheard else NEVER_MS)

    def _describe(self, call: Call) -> None:
        group, lanes = self._group(call.body.group), call.body.lanes
        tell = partial(self._tell, call, group)
        self._errands.run(Errand(call, lambda: self._info.ready(group, lanes) and tell(), tell), PATIENCE_MS)

    def _tell(self, call: Call, group: Group) -> bool:
        self._desk.reply(call, self._info.describe(group, call.body.lanes))
        return True

    def _list(self, call: Call) -> None:
        tell = partial(self._tell_all, call)
        ready = self._info.ready
        self._errands.run(Errand(call, lambda: all(map(ready, self._desk.state.groups.values())) and tell(), tell), PATIENCE_MS)

    def _tell_all(self, call: Call) -> bool:
        self._desk.reply(call, ListGroupsReply([self._info.summary(group) for group in self._desk.state.groups.values()]))
        return True

    def _delete(self, call: Call) -> None:
        group = self._group(call.body.group)
        if names.is_internal(group.name):
            raise BadRequest(f"group {group.name} is internal: it holds which dead letters are done with")
        if group.members and not call.body.force:
            raise GroupNotEmpty(f"group {group.name} has {len(group.members)} members: stop them, or force it")
        self._drop_group(group)
        self._desk.reply(call, Empty())

    def _drop_group(self, group: Group) -> None:
        for member in group.members:
            self._serving.drop(group, member)
        self._desk.commit(group, e.GroupDropped(group.number))
        self._desk.emit(ExportRemoved(group.name))
        self._desk.ages.forget(group=group.name)
        self._desk.parts_changed = self._desk.advanced = True

    def _pause(self, call: Call) -> None:
        group = self._group(call.body.group)
        if group.paused != call.body.paused:
            self._desk.commit(group, e.Paused(group.number, call.body.paused))
            self._desk.wake(group)
        self._desk.reply(call, Empty())

"""Polls: composing leases from what is free, and the polls that wait for something to be.

A reply holds a few messages with failures behind them, each a lease of its own, and whole stretches of others, partition by
partition, beginning behind where the member's last one ended. Who has max_in_flight messages waits. A poll that allows several
answers stays parked until they, its messages or its time are used up.
"""

from array import array
from functools import partial

from gq_groupd import entries as e
from gq_groupd.composing import Composing
from gq_groupd.desk import Desk
from gq_groupd.effects import Call, Fail, Reply
from gq_groupd.group import PARTITIONED, Group, Member
from gq_groupd.members import Members
from gq_groupd.part import Part, Pick
from gq_groupd.settling import Settling
from gq_proto import limits
from gq_proto.errors import UnknownMember
from gq_proto.messages import Lease, Poll, PollReply, SettleResult
from gq_proto.ranges import pack
from gq_proto.runs import ALL_LANES, NO_LANES

PARKED_MAX = 16             # polls of one member that wait; an older one is answered with nothing
ANSWER_EARLY_MS = 20        # before the caller gives up


class Parked:
    """A poll that may still be answered: so many times (`answers`), with so many messages (`room`), until `until_ms`. `after`: the
    ticket its settles need."""

    __slots__ = ("after", "answers", "call", "member", "room", "settled", "until_ms")

    def __init__(self, call: Call, member: str, settled: list[SettleResult], until_ms: int, after: int, answers: int) -> None:
        self.call, self.member, self.settled, self.until_ms, self.after = call, member, settled, until_ms, after
        self.room, self.answers = max(call.body.max_messages, 1), answers


class Serving:
    def __init__(self, desk: Desk, settling: Settling, members: Members) -> None:
        self._desk, self._settling, self._members = desk, settling, members

    def poll(self, call: Call, group: Group, member: Member) -> None:
        body: Poll = call.body
        settled = self._settling.settle(group, member.id, body.settle) if body.settle else []
        if body.progress:
            self._settling.progress(group, member.id, body.progress)
        now = self._desk.now_ms
        wait = min(body.max_wait_ms, limits.LONG_POLL_MS_MAX, int(call.deadline * 1000) - now - ANSWER_EARLY_MS)
        parked = Parked(call, member.id, settled, now + max(wait, 0), self._desk.pending() if body.settle else 0,
                        max(body.answers, 1) if group.mode == PARTITIONED else 1)     # shared: what others could start is theirs
        if not self._answer(group, parked):
            self._expire(group, parked)
        if not parked.answers:
            return
        group.parked.append(parked)
        self._bound(group, member)
        self._desk.at(parked.until_ms, partial(self._overdue, group, parked))

    def serve(self, group: Group) -> None:
        """Something may be there for who waits."""
        for parked in list(group.parked):
            if self._answer(group, parked) and not parked.answers:
                group.parked.remove(parked)

    def drop(self, group: Group, member: str) -> None:
        """The member is gone: its polls fail."""
        for parked in [parked for parked in group.parked if parked.member == member]:
            group.parked.remove(parked)
            self._desk.emit(Fail(parked.call, UnknownMember("the session ended: join again"), parked.after))

    def forget_peer(self, group: Group, peer: bytes) -> None:
        """Nobody reads there any more."""
        for parked in [parked for parked in group.parked if parked.call.peer == peer]:
            group.parked.remove(parked)

    def _bound(self, group: Group, member: Member) -> None:
        mine = [parked for parked in group.parked if parked.member == member.id]
        if len(mine) > PARKED_MAX:
            group.parked.remove(mine[0])
            self._end(group, mine[0])

    def _overdue(self, group: Group, parked: Parked) -> None:
        if parked in group.parked:
            group.parked.remove(parked)
            self._end(group, parked)

    def _expire(self, group: Group, parked: Parked) -> None:
        if parked.until_ms <= self._desk.now_ms:
            self._end(group, parked)

    def _answer(self, group: Group, parked: Parked) -> bool:
        member = group.members.get(parked.member)
        if member is None or group.paused:
            return False
        leases, count = self._compose(group, member, parked.call.body, parked.room)
        if leases:
            parked.room -= count
            parked.answers = parked.answers - 1 if parked.room > 0 and parked.until_ms > self._desk.now_ms else 0
            self._reply(group, parked, leases)
        return bool(leases)

    def _end(self, group: Group, parked: Parked) -> None:
        """The last answer, with nothing in it."""
        parked.answers = 0
        self._reply(group, parked, [])

    def _reply(self, group: Group, parked: Parked, leases: list[Lease]) -> None:
        after = parked.after if parked.after > self._desk.confirmed else 0
        if any(lease.delivery > 1 for lease in leases):
            after = self._desk.pending()         # no one sees an attempt that a crash could make undone
        body = PollReply(leases, parked.settled, group.generation, group.paused, bool(parked.answers), group.number)
        parked.settled = []
        self._desk.emit(Reply(parked.call, body, after))

    # -- composing ----------------------------------------------------------------------------------

    def _compose(self, group: Group, member: Member, body: Poll, room: int) -> tuple[list[Lease], int]:
        """And how many messages they hold."""
        desk = self._desk
        room = min(room, desk.settings.max_in_flight - member.in_flight)
        composing = Composing(group, member, room, desk.now_ms, desk.settings)
        leases = [self._grant(part, member, pick, body) for part, pick in composing.picks()]
        desk.touched.update(composing.touched)
        return leases, room - composing.room

    def _grant(self, part: Part, member: Member, pick: Pick, body: Poll) -> Lease:
        desk, group = self._desk, part.group
        visibility = body.visibility_ms if body.visibility_ms > 0 else desk.config(part).visibility_ms
        visibility = min(max(visibility, 1), limits.VISIBILITY_MS_MAX)
        id, random = desk.next_lease, desk.rand32()
        desk.next_lease += 1
        deadline_us = desk.wall_us + visibility * 1000 if body.hold else 0
        told = part.tell(pick.ranges)
        desk.commit(group, e.Granted(group.number, part.topic_id, part.partition, id, random, member.id, part.epoch,
                                     pick.delivery, told, visibility, deadline_us, body.hold, pick.anchor, pick.lane))
        lease = desk.state.leases[id]
        lease.named_ms = desk.now_ms
        if body.hold:
            lease.clocks = [(lease.total, desk.now_ms + visibility)]
            self._settling.arm(lease)
        lane = ALL_LANES if not group.lanes & (group.lanes - 1) else pick.lane if pick.anchor < 0 else NO_LANES
        ranges, packed = list[int](), b""
        if body.packed and isinstance(told, bytes):
            packed = pack(array("q", pick.ranges))
        else:
            ranges = list(pick.ranges)
        return Lease(id, random, part.topic_id, part.topic, part.partition, part.epoch, pick.delivery, ranges, visibility, lane,
                     packed)

    def undelivered(self, call: Call, body: PollReply) -> None:
        """Leases that never reached anybody."""
        for lease in body.leases:
            held = self._desk.state.leases.get(lease.lease)
            if held and held.open:
                self._settling.give_back(held, held.open.copy())

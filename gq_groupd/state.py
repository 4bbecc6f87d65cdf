"""All that one `__groups` partition says, and `apply`, the only code that changes what is hard in it: live and at replay.

An entry about a group or part that is not here is skipped (see `entries`). `now_ms` is the clock that waits are put on; at
replay it is 0 and Waiting.restart puts them right afterwards.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from gq_groupd import entries as e
from gq_groupd.entries import How
from gq_groupd.group import Group, Member
from gq_groupd.lease import Lease
from gq_groupd.part import Part
from gq_groupd.snapshot import load_part
from gq_proto.bitmaps import bitmap_of

SPARE_MAX = 16              # rounds kept of members that left
FORMER_LEASES = 4_096        # of a core: settled ones that repeated acks are still recognised for


class State:
    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.numbers: dict[int, Group] = {}
        self.leases: dict[int, Lease] = {}                  # live, lapsed and former
        self.former: OrderedDict[int, None] = OrderedDict()
        self.next_number = 1
        self.last_lease = 0
        self.now_ms = 0

    def apply(self, name: str, entry: e.AnyEntry) -> None:
        if type(entry) in _GROUP:
            _GROUP[type(entry)](self, name, entry)
            return
        group = self.numbers.get(entry.number)
        if group is None:
            return
        if type(entry) in _MEMBERS:
            _MEMBERS[type(entry)](self, group, entry)
            return
        part = group.parts.get((entry.topic_id, entry.partition))  # type: ignore[union-attr]
        if part:
            _PART[type(entry)](self, part, entry)

    def part(self, number: int, topic_id: int, partition: int) -> Part | None:
        group = self.numbers.get(number)
        return group.parts.get((topic_id, partition)) if group else None

    def add_lease(self, lease: Lease) -> None:
        self.leases[lease.id] = lease
        self.last_lease = max(self.last_lease, lease.id)
        self.former[lease.id] = None
        for _ in range(2):
            if len(self.former) > FORMER_LEASES:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        id, _ = self.former.popitem(last=False)
        lease = self.leases[id]
        if id in lease.part.leases or id in lease.part.lapsed:
            self.former[id] = None
        else:
            del self.leases[id]

    def drop_part(self, part: Part) -> None:
        for id in [id for id, lease in self.leases.items() if lease.part is part]:
            lease = self.leases.pop(id)
            self.former.pop(id, None)
            member = part.group.members.get(lease.member)
            if member and member.leases.pop(id, None):
                member.in_flight -= len(lease.open)
        part.group.parts.pop(part.key, None)
        part.group.owners.pop(part.key, None)


# -- groups -------------------------------------------------------------------------------

def _add_group(state: State, group: Group) -> None:
    state.groups[group.name] = group
    state.numbers[group.number] = group
    state.next_number = max(state.next_number, group.number + 1)


def _group_made(state: State, name: str, entry: e.GroupMade) -> None:
    _add_group(state, Group(name, entry.number, entry.mode, entry.start, entry.wall_us))


def _group_dropped(state: State, name: str, entry: e.GroupDropped) -> None:
    state.next_number = max(state.next_number, entry.number + 1)
    group = state.numbers.pop(entry.number, None)
    if group:
        for part in list(group.parts.values()):
            state.drop_part(part)
        del state.groups[group.name]


def _group_snapshot(state: State, name: str, entry: e.GroupSnapshot) -> None:
    """A group that is here already is as the snapshot says."""
    if entry.number in state.numbers:
        return
    group = Group(name, entry.number, entry.mode, entry.start, entry.empty_since_us)
    group.paused, group.generation, group.seen = entry.paused, entry.generation, set(entry.seen)
    group.members = {id: Member(id, topics, client, session) for id, topics, client, session in entry.members}
    group.owners = {(topic_id, partition): member for topic_id, partition, member in entry.owners}
    _add_group(state, group)


def _part_snapshot(state: State, name: str, entry: e.PartSnapshot) -> None:
    group = state.numbers.get(entry.number)
    key = entry.topic_id, entry.partition
    if group is None or key in group.parts:
        return
    pieces = group.pieces.setdefault(key, [])
    if entry.chunk == 0:
        pieces.clear()
    if entry.chunk != len(pieces):
        return
    pieces.append(entry.data)
    if len(pieces) == entry.chunks:
        part, leases = load_part(group, key, b"".join(pieces))
        group.parts[key] = part
        group.pieces.pop(key)
        for lease in leases:
            state.add_lease(lease)
            if lease.lapsed:
                part.lapsed[lease.id] = lease
            if lease.open:
                part.grant(lease)


# -- members ---------------------------------------------------------------------------------

def _paused(state: State, group: Group, entry: e.Paused) -> None:
    group.paused = entry.paused


def _joined(state: State, group: Group, entry: e.Joined) -> None:
    member = group.members.get(entry.member)
    if member:
        member.topics, member.client, member.session_ms = entry.topics, entry.client, entry.session_ms
    else:
        group.members[entry.member] = Member(entry.member, entry.topics, entry.client, entry.session_ms)
    group.seen.update(entry.absent)
    group.empty_since_us = 0


def _left(state: State, group: Group, entry: e.Left) -> None:
    member = group.members.pop(entry.member, None)
    if member and member.shares:
        group.spare = [*group.spare, member.shares][-SPARE_MAX:]
    if not group.members:
        group.empty_since_us = entry.wall_us


def _moved(state: State, group: Group, entry: e.Moved) -> None:
    group.generation = entry.generation
    for topic_id, partition, member in entry.moves:
        if member:
            group.owners[topic_id, partition] = member
        else:
            group.owners.pop((topic_id, partition), None)


def _part_made(state: State, group: Group, entry: e.PartMade) -> None:
    key = entry.topic_id, entry.partition
    if key not in group.parts:
        group.parts[key] = Part(group, entry.topic_id, entry.topic, entry.partition, entry.start)
        group.seen.add(entry.topic)


def _topic_dropped(state: State, group: Group, entry: e.TopicDropped) -> None:
    for part in [part for part in group.parts.values() if part.topic_id == entry.topic_id]:
        state.drop_part(part)
    for key in [key for key in group.owners if key[0] == entry.topic_id]:
        del group.owners[key]


# -- parts -------------------------------------------------------------------------------------

def _epoch_moved(state: State, part: Part, entry: e.EpochMoved) -> None:
    part.epoch = entry.epoch
    if entry.end >= 0:
        part.cut(entry.end)


def _gone(state: State, part: Part, entry: e.Gone) -> None:
    part.gone(entry.log_start)
    part.expired += entry.expired
    part.expired_now += entry.expired
    if entry.expired:
        part.skipped_to = entry.log_start


def _granted(state: State, part: Part, entry: e.Granted) -> None:
    ranges, bitmap = part.heard(entry.ranges)
    lease = Lease(entry.lease, entry.random, part, entry.member, entry.epoch, entry.delivery, ranges, entry.anchor,
                  entry.hold, entry.visibility_ms, entry.deadline_us, entry.lane, bitmap, entry.ranges)
    part.grant(lease)
    state.add_lease(lease)
    if entry.delivery > 1:
        part.redelivered += lease.total


def _acked(state: State, part: Part, entry: e.Acked) -> None:
    lease = state.leases.get(entry.lease)
    ranges, bitmap = part.heard(entry.ranges)
    if entry.how in (How.ACKED, How.DEAD_LETTERED):
        if lease:
            part.census.depart(lease.lane, len(bitmap), state.now_ms)
        else:
            part.census.departed(part.by_lane(bitmap), state.now_ms)
    part.ack(lease, bitmap, ranges, entry.anchor)
    if entry.how == How.ACKED:
        part.consumed += len(bitmap)
    elif entry.how == How.DEAD_LETTERED:
        part.dead_lettered += len(bitmap)
    elif entry.how == How.EXPIRED:
        part.expired += len(bitmap)
        part.expired_now += len(bitmap)
    elif entry.how == How.ANCHOR:
        part.anchors.close(ranges[0])
    if lease:
        lease.started = max(lease.started, lease.reach_of(bitmap))
        lease.shed()


def _failed(state: State, part: Part, entry: e.Failed) -> None:
    lease = state.leases.get(entry.lease)
    if lease is None:
        return
    bitmap = bitmap_of(entry.ranges)
    if entry.dead:
        part.condemn(lease, bitmap, entry.count, entry.reason, entry.at_us)
    else:
        part.fail(lease, bitmap, entry.count, state.now_ms, entry.at_us, entry.delay_ms)
    if entry.how == How.TIMED_OUT:
        part.timed_out += len(bitmap)


def _returned(state: State, part: Part, entry: e.Returned) -> None:
    lease = state.leases.get(entry.lease)
    if lease:
        part.give_back(lease, bitmap_of(entry.ranges))


def _extended(state: State, part: Part, entry: e.Extended) -> None:
    lease = state.leases.get(entry.lease)
    if lease and lease.hold:
        lease.deadline_us = max(lease.deadline_us, entry.deadline_us)
        lease.longest_ms = max(lease.longest_ms, entry.for_ms)


def _started(state: State, part: Part, entry: e.Started) -> None:
    lease = state.leases.get(entry.lease)
    if lease:
        lease.started = max(lease.started, min(entry.started, lease.total))


def _marked(state: State, part: Part, entry: e.Marked) -> None:
    part.mark(entry.ack, entry.low, entry.high, state.now_ms)


def _intent(state: State, part: Part, entry: e.Intent) -> None:
    part.dead.pledge(entry.ranges, entry.dlq_topic_id, entry.dlq_end)


_GROUP: dict[Any, Callable[[State, str, Any], None]] = {
    e.GroupMade: _group_made, e.GroupDropped: _group_dropped, e.GroupSnapshot: _group_snapshot,
    e.PartSnapshot: _part_snapshot,
}
_MEMBERS: dict[Any, Callable[[State, Group, Any], None]] = {
    e.Paused: _paused, e.Joined: _joined, e.Left: _left, e.Moved: _moved, e.PartMade: _part_made,
    e.TopicDropped: _topic_dropped,
}
_PART: dict[Any, Callable[[State, Part, Any], None]] = {
    e.EpochMoved: _epoch_moved, e.Gone: _gone, e.Granted: _granted, e.Acked: _acked, e.Failed: _failed,
    e.Returned: _returned, e.Extended: _extended, e.Started: _started, e.Marked: _marked, e.Intent: _intent,
}

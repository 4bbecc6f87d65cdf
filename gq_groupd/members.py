"""Who is in a group, for how long, and which partitions are whose.

Rebalancing is decided here and cooperative: only what has to move moves. A partition that moves away from somebody who holds
unstarted messages of it rests until they are given back, rebalance_grace_ms at most; then they are taken. What is started runs out
with its old owner. Nobody else notices.

Sessions are soft: after a restart everybody has a full one. Membership, generation and owners are in the journal.
"""

from collections.abc import Callable
from functools import partial

from gq_groupd import entries as e
from gq_groupd.assignment import assign
from gq_groupd.desk import Desk
from gq_groupd.effects import Push
from gq_groupd.group import SHARED, Group, Key, Member
from gq_groupd.part import Part
from gq_groupd.settling import Settling
from gq_proto import limits, names
from gq_proto.errors import BadRequest, Busy
from gq_proto.messages import EARLIEST, LATEST, Assigned, AssignedPush, Heartbeat, HeartbeatReply, Join

SESSION_MS_MIN = 100
TOPICS_MAX = 1_000          # one member subscribes to


class Members:
    """`on_gone(group, member)`: its polls are to be answered; `on_expired(group)`: it is to be dropped."""

    def __init__(self, desk: Desk, settling: Settling) -> None:
        self._desk, self._settling = desk, settling
        self.on_gone: Callable[[Group, str], None] = lambda group, member: None
        self.on_expired: Callable[[Group], None] = lambda group: None

    # -- coming and going ----------------------------------------------------------------------

    def check(self, body: Join) -> None:
        """BadName or BadRequest for a Join that can never work."""
        for topic in body.topics:
            names.check_name("topic", topic)
        if not 1 <= len(body.topics) <= TOPICS_MAX:
            raise BadRequest(f"a member subscribes to 1..{TOPICS_MAX} topics, not {len(body.topics)}")
        if body.member:
            names.check_name("member", body.member)
        if body.start not in (EARLIEST, LATEST) and not (body.start.isascii() and body.start.isdigit() and len(body.start) < 19):
            raise BadRequest(f"start {body.start!r:.40} is unknown: use {EARLIEST}, {LATEST} or Unix microseconds")

    def join(self, group: Group, body: Join, peer: bytes) -> Member:
        """A member, new or with other topics. The caller places parts and rebalances."""
        id = body.member or f"{self._desk.rand32():08x}{self._desk.rand32():08x}"
        member = group.members.get(id)
        if member is None and len(group.members) >= limits.GROUP_MEMBERS_MAX:
            raise Busy(f"group {group.name} has {limits.GROUP_MEMBERS_MAX} members already")
        topics = list(dict.fromkeys(body.topics))
        session = min(max(body.session_ms or self._desk.settings.session_ms, SESSION_MS_MIN), limits.VISIBILITY_MS_MAX)
        if member is None or (member.topics, member.session_ms) != (topics, session):
            absent = [topic for topic in topics if topic not in self._desk.names]
            self._desk.commit(group, e.Joined(group.number, id, topics, body.client[:limits.NAME_MAX], session, absent))
        new = member is None
        member = group.members[id]
        self.heard(member, peer)
        if new:
            self.watch_session(group, member)
        return member

    def heard(self, member: Member, peer: bytes) -> None:
        member.heard_ms = self._desk.now_ms
        member.peer = peer

    def watch_session(self, group: Group, member: Member) -> None:
        self._desk.at(member.heard_ms + member.session_ms, partial(self._session_due, group, member))

    def _session_due(self, group: Group, member: Member) -> None:
        if group.members.get(member.id) is not member or self._desk.state.numbers.get(group.number) is not group:
            return
        if member.heard_ms + member.session_ms > self._desk.now_ms:
            self.watch_session(group, member)
            return
        self._settling.lose(member)
        self._remove(group, member)

    def leave(self, group: Group, member: Member) -> None:
        self._settling.leave(member)
        self._remove(group, member)

    def _remove(self, group: Group, member: Member) -> None:
        self._desk.commit(group, e.Left(group.number, member.id, self._desk.wall_us))
        self.on_gone(group, member.id)
        self.rebalance(group)
        if not group.members:
            self.watch_expiry(group)

    def heartbeat(self, group: Group, member: Member, body: Heartbeat) -> HeartbeatReply:
        """Leases that it does not name for a while return; those it names and does not have are lost."""
        now = self._desk.now_ms
        self._settling.progress(group, member.id, body.progress, journal=True)
        named = set(body.leases)
        for lease in list(member.leases.values()):
            if lease.id in named:
                lease.named_ms = now
            elif now - lease.named_ms > self._desk.settings.unnamed_lease_ms and not lease.hold:
                self._settling.give_back(lease, lease.open.copy())
        lost = [id for id in body.leases if id not in member.leases]
        return HeartbeatReply(group.generation, self.assigned(group, member), lost)

    # -- empty groups ------------------------------------------------------------------------------

    def watch_expiry(self, group: Group) -> None:
        """Internal groups stay."""
        if not names.is_internal(group.name):
            gone_for = max(0, self._desk.wall_us - group.empty_since_us) // 1000
            group.empty_at_ms = self._desk.now_ms - min(gone_for, self._desk.settings.group_expiry_ms)
            self._desk.at(group.empty_at_ms + self._desk.settings.group_expiry_ms, partial(self._expiry_due, group))

    def _expiry_due(self, group: Group) -> None:
        still = self._desk.state.numbers.get(group.number) is group and not group.members
        if still and group.empty_at_ms + self._desk.settings.group_expiry_ms <= self._desk.now_ms:
            self.on_expired(group)

    # -- assignment ------------------------------------------------------------------------------------

    def assigned(self, group: Group, member: Member) -> list[Assigned]:
        return [self._assigned(group.parts[key]) for key in member.keys if key in group.parts]

    def _assigned(self, part: Part) -> Assigned:
        epoch = part.epoch if part.epoch >= 0 else self._desk.epoch_of(part.key)
        return Assigned(part.topic_id, part.topic, part.partition, epoch)

    def rebalance(self, group: Group) -> None:
        """Members, topics or partitions changed: who has what now?"""
        old_keys = {id: member.keys for id, member in group.members.items()}
        old_owners = dict(group.owners)
        moves = self._moves(group)
        if moves:
            self._desk.commit(group, e.Moved(group.number, group.generation + 1, moves))
        changed = self.refresh_keys(group, old_keys)
        if changed and not moves:
            self._desk.commit(group, e.Moved(group.number, group.generation + 1, []))
        revoked = self._hand_over(group, moves, old_owners)
        for member in changed:
            if member.peer:
                self._desk.emit(Push(member.peer, AssignedPush(group.name, member.id, group.generation,
                                                               self.assigned(group, member), revoked.get(member.id, [])),
                                     self._desk.pending()))
        self._desk.wake(group)

    def refresh_keys(self, group: Group, old: dict[str, list[Key]]) -> list[Member]:
        """What each member may lease from; the members for whom that changed."""
        by_member: dict[str, list[Key]] = {id: [] for id in group.members}
        for key, part in group.parts.items():
            if not self._desk.known(part):
                continue
            if group.mode == SHARED:
                for member in group.members.values():
                    if part.topic in member.topics:
                        by_member[member.id].append(key)
            elif group.owners.get(key) in by_member:
                by_member[group.owners[key]].append(key)
        changed = []
        for id, member in group.members.items():
            member.keys = sorted(by_member[id])
            if member.keys != old.get(id):
                changed.append(member)
        return changed

    def _moves(self, group: Group) -> list[tuple[int, int, str]]:
        if group.mode == SHARED:
            return []
        partitions: dict[int, list[int]] = {}
        subscribers: dict[int, list[str]] = {}
        for part in group.parts.values():
            if self._desk.known(part):
                partitions.setdefault(part.topic_id, []).append(part.partition)
                subscribers.setdefault(part.topic_id, [m.id for m in group.members.values() if part.topic in m.topics])
        target = assign(partitions, subscribers, group.owners)
        moves = [(*key, owner) for key, owner in target.items() if group.owners.get(key) != owner]
        moves += [(*key, "") for key in group.owners if key not in target]
        return moves

    # -- moving --------------------------------------------------------------------------------------------

    def _hand_over(self, group: Group, moves: list[tuple[int, int, str]], owners: dict[Key, str]) -> dict[str, list[int]]:
        """Partitions with unstarted messages in their old owner's hands rest. Per old owner, the leases it is to give back."""
        revoked: dict[str, list[int]] = {}
        now = self._desk.now_ms
        if moves:
            group.rebalances += 1
            group.rebalance_from_ms = now if group.rebalance_from_ms is None else group.rebalance_from_ms
        for topic_id, number, owner in moves:
            part = group.parts.get((topic_id, number))
            if part is None:
                continue
            old = owners.get((topic_id, number), "")
            if part.handover and part.handover[0] == owner:
                part.handover = None
            leases = [lease.id for lease in part.leases.values() if lease.member == old and not lease.hold]
            if old in group.members and leases:
                revoked.setdefault(old, []).extend(leases)
                if not part.handover and any(part.leases[id].unstarted() for id in leases):
                    part.handover = old, now + self._desk.settings.rebalance_grace_ms
                    self._desk.at(part.handover[1], partial(self._grace_over, part))
        self.settle_moves(group)
        return revoked

    def check_handover(self, part: Part) -> None:
        """Did the old owner give everything unstarted back?"""
        if part.handover:
            old, until = part.handover
            leases = [lease for lease in part.leases.values() if lease.member == old and not lease.hold]
            if until <= self._desk.now_ms:
                for lease in leases:
                    self._settling.give_back(lease, lease.unstarted())
            elif any(lease.unstarted() for lease in leases):
                return
            part.handover = None
            self._desk.wake(part.group)
            self.settle_moves(part.group)

    def _grace_over(self, part: Part) -> None:
        if self._desk.alive(part):
            self.check_handover(part)

    def settle_moves(self, group: Group) -> None:
        """The rebalance is over when nothing rests any more."""
        if group.rebalance_from_ms is not None and not any(part.handover for part in group.parts.values()):
            group.rebalance_ms = self._desk.now_ms - group.rebalance_from_ms
            group.rebalance_from_ms = None

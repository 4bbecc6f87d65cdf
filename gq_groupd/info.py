"""What a core tells about its groups: describe, list, export, gauges. Reads only."""

from collections.abc import Sequence
from typing import NamedTuple

from gq_groupd.desk import Desk
from gq_groupd.group import SHARED, Group
from gq_groupd.members import Members
from gq_groupd.part import Part
from gq_proto.bitmaps import ranges_of
from gq_proto.limits import PRIORITIES
from gq_proto.messages import GroupInfo, GroupPartition, GroupSummary, LaneInfo, MemberInfo

ACKED_AHEAD_MAX = 10_000        # ranges told of a partition


class PartGauge(NamedTuple):
    """Counters count since this core started; lag, in_flight and retrying are as of now."""

    group: str
    topic: str
    partition: int
    lag: int
    in_flight: int
    retrying: int
    consumed: int           # acked
    redelivered: int
    timed_out: int          # visibility timeouts
    dead_lettered: int
    expired: int
    rebalances: int = 0     # of the group, on each of its rows
    rebalance_ms: int = 0   # how long the group's last one took
    lanes: Sequence[LaneInfo] = ()


class Info:
    def __init__(self, desk: Desk, members: Members) -> None:
        self._desk, self._members = desk, members

    def ready(self, group: Group, lanes: bool = False) -> bool:
        """Everything about it is known up to the ends of its partitions."""
        parts = self._parts(group)
        return not group.placing and all(part.stage == "ready" for part in parts) and not (lanes and self._count(parts))

    def _count(self, parts: list[Part]) -> list[Part]:
        """Those that are not counted to the end; they will be."""
        behind = [part for part in parts if part.census.counted < part.scanned]
        for part in behind:
            part.census.wanted = True
            self._desk.touch(part)
        return behind

    def describe(self, group: Group, lanes: bool = False) -> GroupInfo:
        members = [MemberInfo(m.id, m.client, m.session_ms, self._desk.now_ms - m.heard_ms, m.topics,
                              self._members.assigned(group, m), m.in_flight) for m in group.members.values()]
        parts = self._parts(group)
        topics = sorted(group.topics() | {part.topic for part in parts})
        return GroupInfo(group.name, group.number, group.mode, group.generation, group.paused, members,
                         [_partition(group, part, self.lanes(part) if lanes else []) for part in parts], topics, group.state())

    def summary(self, group: Group) -> GroupSummary:
        parts = self._parts(group)
        topics = sorted(group.topics() | {part.topic for part in parts})
        return GroupSummary(group.name, group.mode, len(group.members), topics, group.paused, sum(part.lag() for part in parts))

    def gauges(self) -> list[PartGauge]:
        self._count([part for group in self._desk.state.groups.values() for part in self._parts(group)])
        return [_gauge(group, part, self.lanes(part)) for group in self._desk.state.groups.values() for part in self._parts(group)]

    def lanes(self, part: Part) -> list[LaneInfo]:
        """Of each priority that there is anything to say of. What was not counted yet is in none."""
        census, now = part.census, self._desk.now_ms
        in_flight = [0] * PRIORITIES
        for lease in part.leases.values():
            in_flight[lease.lane] += len(lease.open)
        retrying, anchored = part.by_lane(part.waiting.all | part.dead.all), part.by_lane(part.anchors.all())
        return [LaneInfo(lane, max(0, census.opened[lane] + anchored[lane] - in_flight[lane] - retrying[lane]), in_flight[lane],
                         retrying[lane], census.came[lane], census.went[lane], round(census.came_rates[lane].per_s(now), 3),
                         round(census.went_rates[lane].per_s(now), 3),
                         now - census.served_ms[lane] if census.served_ms[lane] >= 0 else -1)
                for lane in range(PRIORITIES)
                if census.opened[lane] or anchored[lane] or in_flight[lane] or census.came[lane] or census.went[lane]]

    def _parts(self, group: Group) -> list[Part]:
        return sorted((part for part in group.parts.values() if self._desk.known(part)),
                      key=lambda part: (part.topic, part.partition))


def _partition(group: Group, part: Part, lanes: list[LaneInfo]) -> GroupPartition:
    committed = part.committed()
    owner = "" if group.mode == SHARED else group.owners.get(part.key, "")
    return GroupPartition(part.topic, part.topic_id, part.partition, owner, committed, part.end, part.log_start, part.lag(),
                          len(part.held), len(part.waiting.all) + len(part.dead.all),
                          ranges_of(part.acked.ahead, ACKED_AHEAD_MAX), 0, part.expired, part.skipped_to, lanes)


def _gauge(group: Group, part: Part, lanes: list[LaneInfo]) -> PartGauge:
    return PartGauge(group.name, part.topic, part.partition, part.lag(), len(part.held),
                     len(part.waiting.all) + len(part.dead.all), part.consumed, part.redelivered, part.timed_out,
                     part.dead_lettered, part.expired_now, group.rebalances, group.rebalance_ms, lanes)

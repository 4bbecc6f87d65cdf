"""What happened, as an outside observer knows it, and what must be true of it.

Messages carry unique ids. The observer hears what publishers, consumers and operators were answered, reads logs straight from the
cores, and knows what may be lost: confirmations younger than the fsync interval when power fails. Violations are AssertionErrors.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from pyroaring import BitMap64

from gq_groupd.cursor import Lane
from gq_groupd.group import SHARED
from gq_groupd.part import Part
from gq_logd import queries
from gq_logd.partition import Partition
from gq_proto import codec
from gq_proto import messages as m
from gq_proto.bitmaps import union_of, within
from gq_proto.names import DLQ_SUFFIX
from gq_proto.runs import UNDELIVERABLE
from tests.sim.daemons import Groupd, Key, Logd, Metad

Message = tuple[str, int]       # group, id


@dataclass
class Placed:
    key: Key
    offset: int
    confirmed_at: float


@dataclass
class Marked:
    """An operator's mark; it takes hold, if at all, between asked and until."""

    group: str
    key: Key
    ack: bool
    low: int
    high: int
    asked: float
    until: float = 1e18


@dataclass
class Oracle:
    metad: Metad
    logd: Logd
    groupd: Groupd
    groups: dict[str, list[str]]                                    # name -> topics
    placed: dict[int, Placed] = field(default_factory=dict)         # published and confirmed
    sent: set[int] = field(default_factory=set)                     # published, perhaps
    handed_out: set[Message] = field(default_factory=set)
    acked_ever: set[Message] = field(default_factory=set)           # an app tried to
    acked_at: dict[Message, float] = field(default_factory=dict)    # confirmed
    marks: list[Marked] = field(default_factory=list)
    delivery: dict[Message, tuple[int, float]] = field(default_factory=dict)
    emitted: dict[int, float] = field(default_factory=dict)         # lease -> when groupd decided to send it
    where: dict[tuple[Key, int], int] = field(default_factory=dict)  # id last seen at a place
    starts: dict[Key, int] = field(default_factory=dict)            # furthest log start seen
    lost_to_retention: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    met: set[tuple[str, Key]] = field(default_factory=set)          # groups and the partitions they know from the log
    counts: Counter[str] = field(default_factory=Counter)
    amnesty: bool = False           # power failed with fsync=interval: copies may have been lost and made again

    # -- what is heard --------------------------------------------------------------------------

    def published(self, key: Key, base_offset: int, ids: list[int], now: float) -> None:
        for n, id in enumerate(ids):
            self.placed[id] = Placed(key, base_offset + n, now)
            self.where[key, base_offset + n] = id
        self.counts["published"] += len(ids)

    def replied(self, call: object, body: object, now: float) -> None:
        if isinstance(body, m.PollReply):
            for lease in body.leases:
                self.emitted[lease.lease] = now
                self.counts["leases"] += 1

    def fetched(self, group: str, lease: m.Lease, offset: int, id: int) -> None:
        """An app is about to get it."""
        assert id in self.sent, f"{group} got {id} at {lease.topic}[{lease.partition}] {offset}: nobody ever published that"
        message = group, id
        key = lease.topic_id, lease.partition
        self.where[key, offset] = id
        placed = self.placed.get(id)
        assert placed is None or (placed.key, placed.offset) == (key, offset), \
            f"message {id} was published at {placed}, and fetched from {lease.topic}[{lease.partition}] {offset}"
        emitted = self.emitted[lease.lease]
        acked_at = self.acked_at.get(message)
        assert acked_at is None or acked_at >= emitted, \
            f"{group} acked {id} ({lease.topic}[{lease.partition}] {offset}), which was confirmed at {acked_at:.3f}, " \
            f"and got it again at {emitted:.3f}"
        last, last_at = self.delivery.get(message, (0, -1.0))
        if emitted > last_at and not self.mark_count(group, key, offset, False, last_at):
            assert lease.delivery >= last, \
                f"{group} got {id} ({lease.topic}[{lease.partition}] {offset}) as delivery {last} at {last_at:.3f}, " \
                f"as {lease.delivery} at {emitted:.3f}"
            self.delivery[message] = lease.delivery, emitted
        self.handed_out.add(message)
        self.counts["delivered"] += 1
        self.counts["redelivered"] += lease.delivery > 1

    def mark_asked(self, group: str, key: Key, ack: bool, low: int, high: int, now: float) -> Marked:
        mark = Marked(group, key, ack, low, high, now)
        self.marks.append(mark)
        for (place, offset), id in self.where.items() if not ack else ():
            if place == key and low <= offset < high:
                self.acked_at.pop((group, id), None)
                self.delivery.pop((group, id), None)
        return mark

    def mark_count(self, group: str, key: Key, offset: int, ack: bool, since: float = -1.0) -> int:
        """Marks that covered the message, or may have, at or after `since`."""
        return sum(mark.ack == ack and mark.low <= offset < mark.high and (mark.group, mark.key) == (group, key)
                   and mark.until >= since for mark in self.marks)

    def ack_confirmed(self, group: str, key: Key, offset: int, id: int, asked: float, now: float) -> None:
        if not self.mark_count(group, key, offset, False, asked):
            self.acked_at[group, id] = now

    def core_dropped(self, everything_durable: bool) -> None:
        """Grants that were not yet in the journal are forgotten, and what was counted after them."""
        if not everything_durable:
            self.delivery.clear()

    def power_failed(self, now: float, kept_s: float) -> None:
        """Confirmations younger than kept_s need not have lasted."""
        if kept_s > 0:
            self.amnesty = True
            self.acked_at = {k: at for k, at in self.acked_at.items() if at < now - kept_s}
            self.delivery.clear()

    # -- the log itself ----------------------------------------------------------------------------

    def read(self, partition: Partition) -> list[tuple[int, codec.Record]]:
        """All deliverable records of it. Damage (segments that a power loss tore each for itself) is stepped over."""
        out: list[tuple[int, codec.Record]] = []
        for segment in partition.log.segments:
            data = self.logd.disk.read(f"{partition.folder}/{segment.base:020d}.log")
            at, low, high = 0, partition.log.start, partition.high_watermark
            while 0 <= at < len(data):
                end = codec.scan(data, at).position
                out += [(record.offset, record) for record in codec.decode(data[at:end], codec.Record, lo=low, hi=high)]
                at = codec.find_valid(data, end, 0, high - 1)
        return out

    def check_logs(self, after_power_loss_at: float = -1.0, kept_s: float = 0.0) -> None:
        """What was confirmed is where it was, but for retention and what a power loss may take."""
        for key, partition in self.logd.core.catalog.partitions.items() if self.logd.core else ():
            if partition.topic.startswith("__") or key[0] not in self.metad.topics:
                continue
            ids = {offset: id_of(record.value) for offset, record in self.read(partition)
                   if not partition.topic.endswith(DLQ_SUFFIX)}
            for id, placed in list(self.placed.items()):
                if placed.key != key or placed.offset < partition.log.start:
                    continue
                if ids.get(placed.offset) == id:
                    continue
                excused = after_power_loss_at >= 0 and placed.confirmed_at >= after_power_loss_at - kept_s
                assert excused, f"message {id}, confirmed at {placed.confirmed_at:.3f} as {key} {placed.offset}, is not there"
                del self.placed[id]

    # -- whole state, after each step -----------------------------------------------------------------

    def check_state(self, lag: bool) -> None:
        """`lag`: also count by hand, which is slow."""
        core = self.groupd.core
        for key, partition in self.logd.core.catalog.partitions.items() if self.logd.core else ():
            if partition.log.start > self.starts.get(key, 0):
                self.retention(key, partition)
        if core is None:
            return
        for group in core._desk.state.groups.values():
            in_flight: Counter[str] = Counter()
            for part in group.parts.values():
                if part.epoch >= 0:
                    self.met.add((group.name, part.key))
                self._check_part(part, lag)
                for lease in part.leases.values():
                    in_flight[lease.member] += len(lease.open)
            for member in group.members.values():
                assert member.in_flight == in_flight[member.id], f"{member.id} holds {in_flight[member.id]}, not {member.in_flight}"

    def _check_part(self, part: Part, lag: bool) -> None:
        name = f"{part.group.name} {part.topic}[{part.partition}]"
        opens = [lease.open for lease in part.leases.values()]
        assert sum(map(len, opens)) == len(part.held) and union_of(opens) == part.held, f"{name}: a message in two leases"
        disjoint = [part.held, part.waiting.all, part.dead.all, part.returned, part.retry]
        assert sum(map(len, disjoint)) == len(union_of(disjoint)), f"{name}: a message in two states"
        assert part.dead.all == type(part.dead.all)(part.dead.letters)
        for entry in part.attempts.any:
            assert entry not in part.acked or part.anchors.open, f"{name}: {entry} is acked and has attempts"
        if part.stage == "ready":
            known = part.open | part.anchors.all()
            assert union_of(disjoint) <= known, f"{name}: {union_of(disjoint) - known} are neither open nor done"
            entries = _buffered(part.lanes.lanes)
            reached = within(part.open, 0, part.lanes.upto)
            reached |= union_of(bitmap for ready, bitmap in part.anchors.open.items() if ready < part.lanes.upto)
            forgotten = reached - union_of(disjoint) - entries
            assert not forgotten, f"{name}: {forgotten} are open and will never be served"
            if lag:
                self._check_lag(part, name)

    def _check_lag(self, part: Part, name: str) -> None:
        partition = self.logd.partition(part.key)
        said = part.epoch, part.end, part.log_start
        if partition is None or (partition.epoch, partition.last_stable, partition.log.start) != said:
            return
        wanted: set[int] = set()
        offset = partition.log.start
        entries = [_buffered([lane]) for lane in part.lanes.lanes]
        assert all(lane.count == sum(entry.high - entry.low for entry in lane.entries()) for lane in part.lanes.lanes)
        handed = union_of((part.held, part.waiting.all, part.dead.all, part.returned, part.retry))
        while offset < partition.last_stable:
            reply = queries.runs(partition, m.Runs(offset))
            for at in range(0, len(reply.runs), 3):
                low, count, kind = reply.runs[at:at + 3]
                if not kind & UNDELIVERABLE:
                    lane, opened = kind & 7, {o for o in range(low, low + count) if o not in part.acked}
                    wanted |= opened
                    lost = {o for o in opened if o < part.lanes.lanes[lane].upto and o not in entries[lane] and o not in handed}
                    assert not lost, f"{name}: {lost} of lane {lane} are open and will never be served"
            offset = reply.next_offset
        assert part.lag() == len(wanted), f"{name}: lag {part.lag()}, by hand {len(wanted)}"
        assert part.committed() == min(wanted, default=part.end), f"{name}: committed {part.committed()}"
        self.counts["lags compared"] += 1

    # -- the end ------------------------------------------------------------------------------------

    def retention(self, key: Key, partition: Partition) -> None:
        """What lies below the log start is lost to groups, even if a power loss brings it back. To groups that had looked at the
        partition before: to others it was never there."""
        before = self.starts.get(key, 0)
        self.starts[key] = max(before, partition.log.start)
        for group in self.groups:
            if (group, key) in self.met:
                self.lost_to_retention[group] |= {id for (place, offset), id in self.where.items()
                                                  if place == key and before <= offset < partition.log.start}

    def drained(self) -> bool:
        core = self.groupd.core
        groups = core._desk.state.groups if core else {}
        return bool(core) and all(name in groups and core._info.ready(groups[name])  # type: ignore[union-attr]
                                  and all(part.lag() == 0 for part in groups[name].parts.values()) for name in self.groups)

    def check_end(self) -> None:
        """After everything healed and consumers took all there was."""
        self.check_logs()
        letters = self._letters()
        for name, topics in self.groups.items():
            for topic in topics:
                self._check_delivered(name, topic, letters)
            self._check_owners(name)
            self._check_expired(name)

    def _letters(self) -> set[Message]:
        """Dead letters; each of them once, but for those that were opened again."""
        copies: Counter[Message] = Counter()
        places: dict[Message, tuple[int, int, str]] = {}
        for key, partition in self.logd.core.catalog.partitions.items() if self.logd.core else ():
            if partition.topic.endswith(DLQ_SUFFIX) and key[0] in self.metad.topics:
                for _, record in self.read(partition):
                    headers = dict(record.system_headers)
                    message = headers["gq-dlq-group"].decode(), id_of(record.value)
                    copies[message] += 1
                    places[message] = (int(headers["gq-dlq-offset"]), int(headers["gq-dlq-partition"]),
                                       headers["gq-dlq-topic"].decode())
        for message, count in copies.items():
            offset, number, topic = places[message]
            meta = self.metad.named(topic)
            limit = 1 + self.mark_count(message[0], (meta.id if meta else 0, number), offset, False)
            assert count <= limit or self.amnesty, f"{message} is {count} times in the DLQ, {limit} at most"
        self.counts["dead letters"] = sum(copies.values())
        return set(copies)

    def _check_delivered(self, group: str, topic: str, letters: set[Message]) -> None:
        meta = self.metad.named(topic)
        for number in range(len(meta.partitions)) if meta else ():
            partition = self.logd.partition((meta.id, number)) if meta else None
            assert partition, f"{topic}[{number}] is not there"
            for offset, record in self.read(partition):
                if offset < self.starts.get((partition.topic_id, number), 0):
                    continue
                message = group, id_of(record.value)
                marked = self.mark_count(group, (partition.topic_id, number), offset, True)
                assert message in self.handed_out or marked or message in letters, \
                    f"{group} never got {message[1]}, at {topic}[{number}] {offset}"
                assert message in self.acked_ever or marked or message in letters or self.amnesty, \
                    f"{group} is done with {message[1]}, at {topic}[{number}] {offset}, which nobody acked and no DLQ holds"

    def _check_owners(self, name: str) -> None:
        core = self.groupd.core
        assert core
        group = core._desk.state.groups[name]
        for key, part in group.parts.items():
            if group.mode != SHARED and part.topic_id in self.metad.topics:
                assert group.owners.get(key) in group.members, f"{name}: nobody alive owns {part.topic}[{part.partition}]"

    def _check_expired(self, name: str) -> None:
        if self.amnesty:
            return                      # the journal, and with it what a group counted or knew, may have been cut back
        core = self.groupd.core
        assert core
        group = core._desk.state.groups[name]
        places = {id: place for place, id in self.where.items()}
        for key, part in group.parts.items():
            lost = [id for id in self.lost_to_retention[name] if places[id][0] == key and id in self.placed
                    and (name, id) not in self.acked_ever and not self.mark_count(name, *places[id], True)]
            dead = len(part.dead.all) + self.counts["dead letters"]
            assert part.expired + dead >= len(lost), \
                f"{name} {part.topic}[{part.partition}]: {len(lost)} were lost to retention, {part.expired} counted"


def id_of(value: bytes | None) -> int:
    """-1 for what no publisher of ours wrote."""
    head = (value or b"").split(b":", 1)[0]
    return int(head) if head.isdigit() else -1


def _buffered(lanes: list[Lane]) -> BitMap64:
    out = BitMap64()
    for lane in lanes:
        for low, high, _ in lane.entries():
            out.add_range(low, high)
    return out

"""The process around the cores: which `__groups` partitions are ours, which request is whose.

Owns the peers and one Hosted per `__groups` partition whose leader is this node's logd. Ready when all of them serve. A new
epoch of such a partition (its logd started anew, it moved) is a new takeover: what was in memory may be ahead of what the log
kept.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from gq_groupd.ages import BOUNDS_MS
from gq_groupd.core import PartGauge
from gq_groupd.dead_letters import DeadLetters
from gq_groupd.exports import Exports
from gq_groupd.hosted import Hosted, Shared
from gq_groupd.options import settings_of
from gq_proto import codec, limits
from gq_proto.errors import GoQueueError, NotCoordinator, UnknownKind
from gq_proto.messages import Kind, ListGroupsReply, MetadataReply
from gq_proto.names import GROUPS_TOPIC
from gq_proto.record import PRIORITY_NAMES
from gq_run import metrics as m
from gq_run.daemon import Daemon
from gq_run.directory import Directory
from gq_run.peers import Peers
from gq_run.server import Incoming
from gq_run.watcher import Watcher

GAUGES_FRESH_S: Final = 1.0        # a scrape costs the cores at most so often
OURS: Final = frozenset(kind for kind in Kind if Kind.JOIN <= kind <= Kind.PAUSE)


class GroupDaemon:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._directory = Directory(daemon, self._changed)
        self._peers = Peers(daemon, self._directory)
        watcher = Watcher(daemon.loop, self._peers, Hosted.watched)
        self._watcher = watcher
        exports = Exports(daemon.data_dir, daemon.log.warning)
        self._shared = Shared(daemon, self._peers, watcher, DeadLetters(self._peers), exports, settings_of(daemon.config),
                              self._directory.topics.values)
        self._hosted: dict[int, Hosted] = {}
        self._topics: dict[str, int] = {}
        self._gauges = Gauges(lambda: self._hosted.values(), daemon.loop.now)

    def start(self) -> None:
        self._daemon.detail = "waits for metad and the log"
        self._daemon.loop.each_turn(self._end_turn)
        self._daemon.facts = self._facts
        self._daemon.metrics.add(self._gauges.samples)
        self._daemon.metrics.add(self._shared.commits.samples)
        self._directory.start()

    def stop(self) -> None:
        for hosted in self._hosted.values():
            hosted.close()
        self._peers.close()
        self._directory.close()

    # -- what is ours ---------------------------------------------------------------------------

    def _changed(self, reply: MetadataReply) -> None:
        self._peers.refresh()
        self._settle_ownership()
        self._watcher.renew()
        for hosted in self._hosted.values():
            hosted.topics(reply)

    def _settle_ownership(self) -> None:
        topic = self._directory.topic_named(GROUPS_TOPIC)
        mine: dict[int, int] = {}
        if topic is not None and self._daemon.node_id:
            mine = {number: part.epoch for number, part in enumerate(topic.partitions) if part.leader == self._daemon.node_id}
        for number, hosted in list(self._hosted.items()):
            if mine.get(number) != hosted.epoch or topic is None or topic.id != hosted.topic_id:
                hosted.close()
                del self._hosted[number]
        for number, epoch in mine.items():
            if topic is not None and number not in self._hosted:
                self._hosted[number] = Hosted(self._shared, topic.id, number, epoch)

    def _end_turn(self) -> None:
        self._shared.end_turn()
        self._watcher.flush()
        if not self._daemon.is_ready and self._hosted:
            waiting = [number for number, hosted in self._hosted.items() if not (hosted.serving or hosted.unreadable)]
            self._daemon.detail = f"{len(waiting)} of {len(self._hosted)} partitions of {GROUPS_TOPIC} are being read"
            if not waiting:
                self._daemon.ready()

    def _facts(self) -> dict[str, Any]:
        """Those whose journal cannot be read keep nobody waiting, but are said."""
        unreadable = [number for number, hosted in self._hosted.items() if hosted.unreadable]
        if self._daemon.is_ready:
            self._daemon.detail = f"{GROUPS_TOPIC}: partitions {unreadable} cannot be read, see the log" if unreadable else ""
        return {"unreadable": unreadable}

    # -- requests -------------------------------------------------------------------------------

    def handle(self, incoming: Incoming) -> None:
        if incoming.kind not in OURS:
            raise UnknownKind(f"request kind {incoming.kind} is not for groupd")
        if incoming.kind == Kind.LIST_GROUPS and incoming.partition < 0:
            self._list_all(incoming)
        elif incoming.kind in (Kind.SETTLE_RECEIPTS, Kind.LIST_GROUPS):
            self._of(incoming.partition).handle(incoming)
        else:
            number = codec.partition_of(incoming.body.group.encode("utf-8", "surrogatepass"), limits.GROUPS_PARTITIONS)
            self._of(number).handle(incoming)

    def _of(self, number: int) -> Hosted:
        hosted = self._hosted.get(number)
        if hosted is None:
            raise NotCoordinator(f"{GROUPS_TOPIC} partition {number} is coordinated elsewhere, or not yet here: ask again")
        return hosted

    def _list_all(self, incoming: Incoming) -> None:
        if not self._hosted:
            raise NotCoordinator("no group is coordinated here yet, ask again")
        gathered = Gathered(incoming, len(self._hosted))
        for number, hosted in list(self._hosted.items()):
            hosted.handle(Part(gathered, number))


class Gathered:
    """One LIST_GROUPS answered by all cores."""

    def __init__(self, incoming: Incoming, count: int) -> None:
        self.incoming, self._left, self._reply = incoming, count, ListGroupsReply([])

    def got(self, reply: Any) -> bool:
        self._reply.groups.extend(reply.groups)
        self._left -= 1
        return self.incoming.reply(self._reply) if not self._left else True

    def failed(self, error: GoQueueError) -> bool:
        if self._left < 0:
            return True
        self._left = -1
        return self.incoming.fail(error)


class Part:
    """What one core sees of it."""

    def __init__(self, gathered: Gathered, partition: int) -> None:
        incoming = gathered.incoming
        self._gathered = gathered
        self.peer, self.kind, self.partition = incoming.peer, incoming.kind, partition
        self.body, self.deadline = incoming.body, incoming.deadline

    def reply(self, body: Any) -> bool:
        return self._gathered.got(body)

    def fail(self, error: GoQueueError) -> bool:
        return self._gathered.failed(error)


def _lanes(row: PartGauge, labels: tuple[str, ...]) -> Iterator[m.Sample]:
    for lane in row.lanes:
        mine = (*labels, PRIORITY_NAMES[lane.priority])
        yield m.PRIORITY_READY, mine, lane.ready
        yield m.PRIORITY_IN_FLIGHT, mine, lane.in_flight
        yield m.PRIORITY_ENQUEUED, mine, lane.enqueued
        yield m.PRIORITY_DEQUEUED, mine, lane.dequeued
        if lane.served_ms_ago >= 0:
            yield m.PRIORITY_SERVED, mine, lane.served_ms_ago / 1000


def _histogram(counts: list[int]) -> m.Histogram:
    """Of Ages' counts."""
    made = m.Histogram(tuple(bound / 1000 for bound in BOUNDS_MS))
    made.counts, made.sum = counts[:-1], counts[-1] / 1000
    return made


class Gauges:
    """The cores' counts as metrics. Read at most once per GAUGES_FRESH_S."""

    def __init__(self, hosted: Callable[[], Iterable[Hosted]], now: Callable[[], float]) -> None:
        self._hosted, self._now = hosted, now
        self._read_at = -GAUGES_FRESH_S
        self._rows: list[PartGauge] = []
        self._rebalances: dict[str, int] = {}
        self._durations: dict[str, m.Histogram] = {}

    def samples(self) -> Iterator[m.Sample]:
        now = self._now()
        if now - self._read_at >= GAUGES_FRESH_S:
            self._read_at, self._rows = now, [row for hosted in self._hosted() for row in hosted.gauges()]
            self._note_rebalances()
        for row in self._rows:
            labels = (row.group, row.topic, str(row.partition))
            yield m.CONSUMER_LAG, labels, row.lag
            yield m.IN_FLIGHT, labels, row.in_flight
            yield m.MESSAGES_RETRYING, labels, row.retrying
            yield m.MESSAGES_READY, labels, max(0, row.lag - row.in_flight - row.retrying)
            yield from _lanes(row, labels)
        yield from self._sums()
        for hosted in self._hosted():
            for group, members in hosted.members():
                yield m.GROUP_MEMBERS, (group,), members
            for pair, counts in hosted.ages().items():
                yield m.END_TO_END_LATENCY, pair, _histogram(counts)
        for group, histogram in self._durations.items():
            yield m.REBALANCE_DURATION, (group,), histogram

    def _sums(self) -> Iterator[m.Sample]:
        counted: dict[tuple[m.Metric, tuple[str, ...]], int] = {}
        for row in self._rows:
            pair: tuple[str, ...] = (row.group, row.topic)
            for metric, value in ((m.MESSAGES_CONSUMED, row.consumed), (m.REDELIVERIES, row.redelivered),
                                  (m.VISIBILITY_TIMEOUTS, row.timed_out), (m.MESSAGES_EXPIRED, row.expired),
                                  (m.DLQ, row.dead_lettered)):
                labels = pair if metric is not m.DLQ else (row.topic,)
                counted[metric, labels] = counted.get((metric, labels), 0) + value
        for (metric, labels), value in counted.items():
            yield metric, labels, value

    def _note_rebalances(self) -> None:
        for row in self._rows:
            if row.rebalances > self._rebalances.get(row.group, 0):
                self._durations.setdefault(row.group, m.Histogram()).observe(row.rebalance_ms / 1000)
            self._rebalances[row.group] = row.rebalances



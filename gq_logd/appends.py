"""Produce and WriteMarker: queued per partition while a turn collects, written once at its end, answered part by part.

Owns the queues of the turn and, with fsync=every, what is written and waits for its sync. A request is answered when the last of
its parts is decided. Nothing stays queued over a turn's end.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from gq_logd.config import LogConfig
from gq_logd.effects import Call, Effect, Fail, Reply
from gq_logd.partition import Partition
from gq_logd.space import Space
from gq_logd.stats import TopicStats
from gq_logd.turn import Item, MarkerItem, Turn
from gq_proto.errors import BadRequest, Forbidden, GoQueueError
from gq_proto.limits import REQUEST_FRAMES_MAX
from gq_proto.messages import Acks, Produce, Produced, ProduceReply, WriteMarker, WriteMarkerReply
from gq_proto.names import is_internal

FindPartition = Callable[[int, int, int], Partition]


class Ticket:
    """A Produce on its way."""

    __slots__ = ("_call", "_effects", "_left", "_parts", "_quiet", "arrived")

    def __init__(self, call: Call, effects: list[Effect], now: float) -> None:
        body: Produce = call.body
        self._call, self._effects, self.arrived = call, effects, now
        self._parts: list[Produced] = [Produced(0)] * len(body.parts)
        self._left = len(body.parts)
        self._quiet = body.acks == Acks.NONE

    def part_done(self, index: int, item: Item) -> None:
        error = item.error
        produced = Produced(error.code, error.message) if error else item.produced
        assert produced
        self._parts[index] = produced
        self._left -= 1
        if not self._left and not self._quiet:
            self._effects.append(Reply(self._call, ProduceReply(self._parts)))

    def refuse(self, index: int, error: GoQueueError) -> None:
        item = Item(None, False, None)
        item.error = error
        self.part_done(index, item)


class MarkerTicket:
    """A WriteMarker on its way."""

    __slots__ = ("_call", "_effects", "arrived")

    def __init__(self, call: Call, effects: list[Effect], now: float) -> None:
        self._call, self._effects, self.arrived = call, effects, now

    def part_done(self, index: int, item: Item) -> None:
        if item.error:
            self._effects.append(Fail(self._call, item.error))
            return
        assert item.produced and isinstance(item, MarkerItem)
        self._effects.append(Reply(self._call, WriteMarkerReply(item.produced.base_offset, item.taken)))


class Appends:
    def __init__(self, config: LogConfig, clock: Callable[[], float], effects: list[Effect]) -> None:
        self._config, self._clock, self._effects = config, clock, effects
        self._queues: dict[Partition, list[Item]] = {}
        self._parked: dict[Partition, deque[Item]] = {}
        self.topics: dict[str, TopicStats] = {}

    def produce(self, call: Call, now: float, find: FindPartition) -> None:
        body: Produce = call.body
        if len(call.frames) != len(body.parts):
            raise BadRequest(f"a produce of {len(body.parts)} parts carries {len(call.frames)} frames: send one each")
        if not 1 <= len(body.parts) <= REQUEST_FRAMES_MAX:
            raise BadRequest(f"a produce of {len(body.parts)} parts: send 1 to {REQUEST_FRAMES_MAX}")
        ticket = Ticket(call, self._effects, now)
        for index, part in enumerate(body.parts):
            try:
                partition = find(part.topic_id, part.partition, part.epoch)
                if is_internal(partition.topic) and not body.internal:
                    raise Forbidden(f"{partition.topic} is internal: only daemons write to it")
            except GoQueueError as e:
                ticket.refuse(index, e)
                continue
            item = Item(call.frames[index].buffer, body.internal, ticket)
            item.index = index
            self._queue(partition, item)

    def marker(self, call: Call, now: float, partition: Partition) -> None:
        body: WriteMarker = call.body
        self._queue(partition, MarkerItem(body.type, body.body, MarkerTicket(call, self._effects, now)))

    def _queue(self, partition: Partition, item: Item) -> None:
        queue = self._queues.get(partition)
        if queue is None:
            self._queues[partition] = [item]
        else:
            queue.append(item)

    @property
    def waiting(self) -> bool:
        return bool(self._queues)

    def write(self, wall_us: int, space: Space) -> list[Partition]:
        """End of a turn: write what is queued. The partitions that were tried."""
        queues, self._queues = self._queues, {}
        for partition, items in queues.items():
            started = self._clock()
            turn = Turn(partition, wall_us, space)
            for item in items:
                turn.add(item)
            turn.write()
            now = self._clock()
            partition.stats.append_latency.observe(now - started)
            self._settle(partition, items, now)
        return list(queues)

    def _settle(self, partition: Partition, items: list[Item], now: float) -> None:
        stats = self.stats_of(partition.topic)
        for item in items:
            item.frame = None
            if item.error:
                stats.refused(item.error.name)
                self._done(item)
            elif item.end > partition.synced_end and self._config.fsync == "every":
                self._parked.setdefault(partition, deque()).append(item)
            else:
                stats.produce_latency.observe(now - item.ticket.arrived)
                self._done(item)

    def stats_of(self, topic: str) -> TopicStats:
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats()
        return stats

    def _done(self, item: Item) -> None:
        ticket: Any = item.ticket
        ticket.part_done(item.index, item)

    def forget(self, partition: Partition, now: float) -> None:
        """It was deleted."""
        self.synced(partition, now)
        self.topics.pop(partition.topic, None)

    def synced(self, partition: Partition, now: float) -> None:
        """Answer what is on the disk now; all of it with an error when the partition went offline."""
        parked = self._parked.get(partition)
        if not parked:
            return
        stats = self.stats_of(partition.topic)
        while parked and (not partition.online or parked[0].end <= partition.synced_end):
            item = parked.popleft()
            if not partition.online and item.end > partition.synced_end:
                item.error = partition.offline_error()
                stats.refused(item.error.name)
            else:
                stats.produce_latency.observe(now - item.ticket.arrived)
            self._done(item)
        if not parked:
            del self._parked[partition]

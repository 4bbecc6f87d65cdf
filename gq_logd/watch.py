"""Watch: one outstanding question per connection, answered when something it knows has changed, all changes of a turn at once.

Owns what each connection watches and what it was last told. An answer carries the new runs where they are few and follow on, so
that the asker need not come back for them. Partitions that are unknown or not led here are told with the last answer to a question,
not at once: asking again would spin. An answer looks at what moved, whatever else is watched.
"""

import heapq
from itertools import count
from typing import Final

from gq_logd.effects import Call, Effect, Reply
from gq_logd.partition import Partition
from gq_logd.queries import tell_lanes
from gq_proto.errors import GoQueueError, NotLeader, UnknownTopicId
from gq_proto.limits import LONG_POLL_MS_MAX
from gq_proto.messages import Watch, Watched, WatchPart, WatchReply

RUNS_TOLD_MAX: Final = 64
ANSWERS_MAX: Final = 1_000
Key = tuple[int, int]


class Watching:
    """One connection's question. `left`: answers it may still get; `moved`: what is to be looked at before the turn ends."""

    __slots__ = ("call", "left", "moved", "parts")

    def __init__(self, call: Call, body: Watch) -> None:
        self.call, self.left = call, min(body.answers, ANSWERS_MAX)
        self.parts = {(part.topic_id, part.partition): part for part in body.parts}
        self.moved: dict[Key, None] = {}


class Watches:
    def __init__(self, effects: list[Effect], partitions: dict[Key, Partition]) -> None:
        self._effects, self._partitions = effects, partitions
        self._watching: dict[bytes, Watching] = {}       # by peer
        self._by_partition: dict[Key, dict[bytes, Watching]] = {}
        self._deadlines: list[tuple[float, int, bytes, Watching]] = []
        self._order = count()
        self._moved: dict[bytes, None] = {}
        self._told: dict[Key, int] = {}                  # a log start that watchers are to hear of

    def watch(self, call: Call, now: float) -> None:
        """Replaces the connection's earlier question, which is answered with nothing new."""
        body: Watch = call.body
        earlier = self._forget(call.peer)
        if earlier:
            self._effects.append(Reply(earlier.call, WatchReply([])))
        watching = self._watching[call.peer] = Watching(call, body)
        for key in watching.parts:
            self._by_partition.setdefault(key, {})[call.peer] = watching
        when = min(now + max(min(body.max_wait_ms, LONG_POLL_MS_MAX), 0) / 1000, call.deadline)
        heapq.heappush(self._deadlines, (when, next(self._order), call.peer, watching))
        watching.moved = {key: None for key, part in watching.parts.items() if self._differs(part)}
        if watching.moved:
            self._moved[call.peer] = None

    def moved(self, key: Key, always: bool = False) -> None:
        """The partition's end, epoch or (always) anything else is new."""
        watchers = self._by_partition.get(key)
        if watchers:
            for peer, watching in watchers.items():
                self._moved[peer] = watching.moved[key] = None
            if always:
                self._told[key] = 1

    def answer_moved(self) -> None:
        """The end of a turn."""
        if self._moved:
            moved, self._moved = self._moved, {}
            for peer in moved:
                self._answer(peer, late=False)
            self._told.clear()

    def next_deadline(self) -> float | None:
        while self._deadlines and self._watching.get(self._deadlines[0][2]) is not self._deadlines[0][3]:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, peer, watching = heapq.heappop(self._deadlines)
            if self._watching.get(peer) is watching:
                self._answer(peer, late=True)

    def _answer(self, peer: bytes, late: bool) -> None:
        watching = self._watching.get(peer)
        if not watching:
            return
        moved = watching.parts.values() if late else [watching.parts[key] for key in watching.moved]
        watching.moved = {}
        parts = [told for part in moved if (told := self._tell(part, late))]
        if not parts and not late:
            return
        watching.left -= 1
        more = watching.left > 0 and not late
        if not more:
            self._forget(peer)
        self._effects.append(Reply(watching.call, WatchReply(parts, more)))

    def _forget(self, peer: bytes) -> Watching | None:
        watching = self._watching.pop(peer, None)
        if watching:
            for key in watching.parts:
                watchers = self._by_partition.get(key)
                if watchers:
                    watchers.pop(peer, None)
                    if not watchers:
                        del self._by_partition[key]
        return watching

    def _find(self, part: WatchPart) -> Partition:
        partition = self._partitions.get((part.topic_id, part.partition))
        if not partition:
            raise UnknownTopicId("not here")
        if not partition.leader:
            raise NotLeader("not led here")
        return partition

    def _differs(self, part: WatchPart) -> bool:
        try:
            partition = self._find(part)
        except GoQueueError:
            return False
        return (partition.last_stable != part.end or part.epoch not in (-1, partition.epoch)
                or part.log_start not in (-1, partition.log.start))

    def _tell(self, part: WatchPart, late: bool) -> Watched | None:
        """What is new of one partition; None when nothing is."""
        key = (part.topic_id, part.partition)
        try:
            partition = self._find(part)
        except GoQueueError as e:
            gone = late or key in self._told
            return Watched(part.topic_id, part.partition, part.epoch, 0, part.end, error=e.code) if gone else None
        if not self._differs(part) and key not in self._told:
            return None
        end = partition.last_stable
        told = Watched(part.topic_id, part.partition, partition.epoch, partition.log.start, end)
        if partition.log.start <= part.end < end and part.epoch in (-1, partition.epoch):
            _add_runs(told, partition, part.end, end)
        part.end, part.epoch, part.log_start = end, partition.epoch, partition.log.start
        return told


def _add_runs(told: Watched, partition: Partition, low: int, end: int) -> None:
    """The runs of [low, end), if they are few and all their control records are at hand."""
    live = partition.log.live
    if low < live.base:
        return
    runs, following = live.runs(low, end, limit=RUNS_TOLD_MAX + 1)
    controls = partition.recent_controls(low, end)
    if len(runs) <= 3 * RUNS_TOLD_MAX and following == end and controls is not None:
        told.runs, told.controls = runs, tell_lanes(partition, controls)

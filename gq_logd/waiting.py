"""Fetches that wait for more: a long poll is answered when enough bytes are there, or at its deadline with what there is.

Owns who waits for which partition. A fetch is looked at again only when one of its partitions moved. One that allows several
answers goes on from where the last one ended, while that was the partition's end and max_bytes are not used up. Bound: WAITING_MAX
fetches, more are answered at once with what there is.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from gq_logd import reading
from gq_logd.effects import Call, Effect, Reply
from gq_logd.partition import Partition
from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.limits import FETCH_BYTES_MAX, LONG_POLL_MS_MAX, PRIORITIES, REQUEST_FRAMES_MAX
from gq_proto.messages import Fetch, Fetched, FetchPart, FetchReply, Isolation
from gq_proto.runs import ALL_LANES

WAITING_MAX: Final = 10_000
ANSWERS_MAX: Final = 1_000
FEW_RUNS: Final = 16             # enough to know that there is something
FindPartition = Callable[[int, int], Partition]


class Waiting:
    """`left`: answers it may still get; more than one only where it is about one part, by offset, which then is this one's own."""

    __slots__ = ("call", "left", "partitions")

    def __init__(self, call: Call, partitions: list[Partition]) -> None:
        self.call = call
        self.partitions = partitions
        body: Fetch = call.body
        self.left = min(body.answers, ANSWERS_MAX) if len(body.parts) == 1 else 1


class Fetches:
    def __init__(self, effects: list[Effect], find: FindPartition) -> None:
        self._effects, self._find = effects, find
        self._waiting: dict[Waiting, None] = {}
        self._by_partition: dict[Partition, dict[Waiting, None]] = {}
        self._deadlines: list[tuple[float, int, Waiting]] = []
        self._order = count()
        self._moved: dict[Waiting, None] = {}

    def fetch(self, call: Call, now: float) -> None:
        body: Fetch = call.body
        if len(body.parts) > REQUEST_FRAMES_MAX:
            raise BadRequest(f"a fetch of {len(body.parts)} parts: ask for {REQUEST_FRAMES_MAX} at most")
        enough = self._enough(body)
        if body.max_wait_ms <= 0 or len(self._waiting) >= WAITING_MAX or (enough and body.answers <= 1):
            self._answer(call)
            return
        try:
            partitions = [self._find(part.topic_id, part.partition) for part in body.parts]
        except GoQueueError:
            self._answer(call)
            return
        waiting = Waiting(call, partitions)
        if enough and not self._go_on(waiting):
            return
        self._waiting[waiting] = None
        for partition in partitions:
            self._by_partition.setdefault(partition, {})[waiting] = None
        when = min(now + min(body.max_wait_ms, LONG_POLL_MS_MAX) / 1000, call.deadline)
        heapq.heappush(self._deadlines, (when, next(self._order), waiting))

    def moved(self, partition: Partition) -> None:
        """It has more to read, or something to tell: look at who waits for it, at the turn's end."""
        waiting = self._by_partition.get(partition)
        if waiting:
            self._moved.update(waiting)

    def answer_moved(self) -> None:
        if self._moved:
            moved, self._moved = self._moved, {}
            for waiting in moved:
                if waiting in self._waiting and self._enough(waiting.call.body) and not self._go_on(waiting):
                    self._forget(waiting)

    def next_deadline(self) -> float | None:
        while self._deadlines and self._deadlines[0][2] not in self._waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            waiting = heapq.heappop(self._deadlines)[2]
            if waiting in self._waiting:
                self._forget(waiting)
                self._answer(waiting.call)

    def _go_on(self, waiting: Waiting) -> bool:
        """Answer. True: it waits for more."""
        waiting.left -= 1
        return self._answer(waiting.call, waiting.left > 0)

    def _forget(self, waiting: Waiting) -> None:
        del self._waiting[waiting]
        for partition in waiting.partitions:
            others = self._by_partition.get(partition)
            if others:
                others.pop(waiting, None)
                if not others:
                    del self._by_partition[partition]

    def _enough(self, body: Fetch) -> bool:
        """min_bytes are there, or a part has an error to tell."""
        found = 0
        for part in body.parts:
            there = self._there(part, body)
            if there < 0:
                return True
            found += there
        return found >= max(body.min_bytes, 1)

    def _there(self, part: FetchPart, body: Fetch) -> int:
        """Bytes a part has to give, about; -1 when it has to be answered at once."""
        if part.offset < 0:
            return -1
        try:
            partition = self._find(part.topic_id, part.partition)
            partition.check_epoch(part.epoch)
            partition.check_offset(part.offset)
        except GoQueueError:
            return -1
        limit = partition.limit(body.isolation)
        if part.lane != ALL_LANES:
            return max(body.min_bytes, 1) if _has_lane(partition, part, limit) else 0
        if part.offset >= limit:
            return 0
        if body.min_bytes <= 1:
            return 1
        live = partition.log.live
        if part.offset < live.base:
            return min(part.max_bytes, live.size + FETCH_BYTES_MAX)
        return min(part.max_bytes, max(live.size - live.floor(part.offset), 1))

    def _answer(self, call: Call, more: bool = False) -> bool:
        """With what there is. `more`: if that is all there is of its one part, it may go on; then True."""
        body: Fetch = call.body
        parts, frames = [], []
        left = most = max(min(body.max_bytes, FETCH_BYTES_MAX), 1)
        for part in body.parts:
            try:
                partition = self._find(part.topic_id, part.partition)
            except GoQueueError as e:
                fetched, data = reading.failed(None, e), reading.NOTHING
            else:
                fetched, data = reading.part_of(partition, part, left, body)
                if len(data) > left < most and part.offset >= 0:
                    fetched, data = reading.empty(partition, part.offset), reading.NOTHING
            left -= len(data)
            parts.append(fetched)
            frames.append(data)
        more = more and _move_on(body, parts[0], len(frames[0]))
        self._effects.append(Reply(call, FetchReply(parts, more), frames))
        return more


def _has_lane(partition: Partition, part: FetchPart, limit: int) -> bool:
    """There is something to tell. Where nothing of the priority lies is not looked at again."""
    if not 0 <= part.lane < PRIORITIES:
        return True
    ranges, following = reading.lane_within(partition, part.offset, limit, part.lane, FEW_RUNS)
    if not ranges:
        part.offset = following
    return bool(ranges) or following < limit


def _move_on(body: Fetch, fetched: Fetched, size: int) -> bool:
    """Have the fetch's one part go on behind what was fetched; False when another request has to."""
    part = body.parts[0]
    end = fetched.last_stable if body.isolation == Isolation.READ_COMMITTED else fetched.high_watermark
    if fetched.error or part.offset < 0 or fetched.next_offset < end:
        return False
    part.offset = fetched.next_offset
    part.max_bytes -= size
    body.max_bytes -= size
    return min(part.max_bytes, body.max_bytes) > 0

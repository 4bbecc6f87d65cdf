"""Getting the bytes of leases: by ranges, or from a stream that reads ahead.

Owns the streams and what is in flight. Bounded: a lease holds at most about two fetches' worth of bytes that the app has
not come to, a stream two more, all streams together TOTAL_BYTES_MAX. What cannot be had is told to the consumer: a lease of an
old epoch or a topic that is gone is given back, a corrupt message rejected, one that retention took is forgotten.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from gq_client.consumer_ahead import Stream
from gq_client.consumer_ask import Ask
from gq_client.consumer_lease import HeldLease
from gq_client.routing import To
from gq_proto import limits
from gq_proto.errors import GoQueueError, NotLeader, UnknownPartition, UnknownTopic, UnknownTopicId, error_of
from gq_proto.messages import Fetch, Fetched, FetchPart, FetchReply, Kind, Op, RangeStatus
from gq_proto.runs import ALL_LANES, NO_LANES

PARTS_MAX: Final = 256
STREAMS_MAX: Final = 64                              # partitions of one consumer that are read ahead
TOTAL_BYTES_MAX: Final = 64 * limits.MIB
AHEAD_WAIT_MS: Final = 10_000
ANSWERS: Final = 64                                  # to one fetch ahead, while the end of the partition is reached each time
RETRY_S: Final = 0.05
Key = tuple[int, int]
StreamKey = tuple[int, int, int]                     # and the lane


class Owner(Protocol):
    """What the consumer's core does for its fetcher."""

    def send(self, ask: Ask) -> None: ...
    def give_back(self, held: HeldLease, now: float) -> None: ...
    def drop(self, held: HeldLease) -> None: ...


class Fetcher:
    """`queue` is the consumer's line of leases to serve, shared with it."""

    def __init__(self, owner: Owner, queue: Iterable[HeldLease], read_ahead: bool) -> None:
        self._owner, self._queue, self._read_ahead = owner, queue, read_ahead
        self.streams: dict[StreamKey, Stream] = {}
        self._retry: dict[Key, float] = {}

    @property
    def retry_at(self) -> float:
        return min(self._retry.values(), default=float("inf"))

    def add(self, held: HeldLease, now: float) -> None:
        """A lease came."""
        stream = self._stream(held.key, held.lease.lane)
        held.streaming = bool(stream) and stream.claim(held, now) if stream else False

    def _stream(self, key: Key, lane: int) -> Stream | None:
        stream = self.streams.get((*key, lane))
        if stream is None and self._read_ahead and lane != NO_LANES:
            self._drop(lambda other: other[:2] == key and (lane == ALL_LANES) != (other[2] == ALL_LANES))
            if len(self.streams) < STREAMS_MAX:
                stream = self.streams[*key, lane] = Stream(lane)
        return stream

    def _drop(self, which: Callable[[StreamKey], bool]) -> None:
        for key in [key for key in self.streams if which(key)]:
            self.streams.pop(key).reset(-1, -1, 0.0)

    def keep(self, keys: set[Key]) -> None:
        """Only these partitions are ours now."""
        self._drop(lambda key: key[:2] not in keys)

    def pump(self, now: float) -> None:
        """Move bytes on and ask for what is missing. `queue` holds the leases in the order to serve them."""
        if self._retry:
            self._retry = {key: at for key, at in self._retry.items() if at > now}
        ahead = []
        for key, stream in self.streams.items():
            if stream.waiting:
                stream.feed()
            if not stream.asked and stream.wants_fetch(now) and key[:2] not in self._retry:
                ahead.append((key[:2], stream))
        missing: dict[Key, list[HeldLease]] = {}
        for held in self._queue:
            if held.todo and not (held.streaming or held.fetching or held.chunks) and held.key not in self._retry:
                missing.setdefault(held.key, []).append(held)
        for leases in missing.values():
            self._ask_ranges(leases[:PARTS_MAX])
        for part, stream in ahead:           # what is wanted later comes later
            self._ask_ahead(part, stream, now)

    def _ask_ahead(self, key: Key, stream: Stream, now: float) -> None:
        if not stream.waiting and sum(s.size for s in self.streams.values()) > TOTAL_BYTES_MAX:
            return
        stream.asked, stream.token = True, stream.token + 1
        token = stream.token
        part = FetchPart(key[0], key[1], stream.epoch, stream.next, lane=stream.lane)
        self._owner.send(Ask(To.leader(*key), Kind.FETCH, Fetch([part], max_wait_ms=AHEAD_WAIT_MS, answers=ANSWERS),
                             lambda *a: self._ahead(key, stream, token, *a), AHEAD_WAIT_MS / 1000 + 5, *key))

    def _ahead(self, key: Key, stream: Stream, token: int, now: float, body: FetchReply | None, frames: list[Any],
               error: GoQueueError | None) -> None:
        part = body.parts[0] if body else None
        if part and part.error:
            error = error_of(part.error, part.message)
        if error or part is None:
            if token == stream.token:
                stream.reset(-1, -1, now)
                self._retry[key] = now + RETRY_S
        else:
            stream.arrived(token, frames[0], part.hidden, part.next_offset, bool(body and body.open))
        self.pump(now)

    def _ask_ranges(self, leases: list[HeldLease]) -> None:
        for held in leases:
            held.fetching = True
        lease = leases[0].lease
        parts = [FetchPart(held.lease.topic_id, held.lease.partition, held.lease.epoch, -1, list(held.todo)) for held in leases]
        self._owner.send(Ask(To.leader(lease.topic_id, lease.partition), Kind.FETCH, Fetch(parts),
                             lambda *a: self._fetched(leases, *a), 10.0, lease.topic_id, lease.partition))

    def _fetched(self, leases: list[HeldLease], now: float, body: FetchReply | None, frames: list[Any],
                 error: GoQueueError | None) -> None:
        for i, held in enumerate(leases):
            held.fetching = False
            if held.lost or not held.todo:
                continue
            part = body.parts[i] if body else None
            problem = error_of(part.error, part.message) if part and part.error else error
            if problem or part is None:
                self._failed(held, problem, now)
            else:
                self._arrived(held, part, frames[i], now)
        self.pump(now)

    def _failed(self, held: HeldLease, error: GoQueueError | None, now: float) -> None:
        if isinstance(error, NotLeader):
            self._owner.give_back(held, now)       # the lease is of an epoch that ended: groupd looks at it afresh
        elif isinstance(error, UnknownTopicId | UnknownTopic | UnknownPartition):
            self._owner.drop(held)
        self._retry[held.key] = now + RETRY_S

    def _arrived(self, held: HeldLease, part: Fetched, data: Any, now: float) -> None:
        todo = held.todo
        rest: list[int] = []
        whole = 2 * part.covered == len(todo) and part.next_offset == todo[-2] + todo[-1] and not any(part.status)
        for j in range(len(todo) // 2) if not whole else ():
            low, n = todo[2 * j], todo[2 * j + 1]
            status = part.status[j] if j < part.covered and j < len(part.status) else RangeStatus.NOT_YET
            if status == RangeStatus.GONE:
                held.forget([low, n])
            elif status == RangeStatus.CORRUPT:
                self._corrupt(held, low, n)
            elif status == RangeStatus.NOT_YET:
                rest += (low, n)
            elif j == part.covered - 1 and low < part.next_offset < low + n:
                rest += (part.next_offset, low + n - part.next_offset)
        if len(data):
            held.add_bytes(data, part.hidden, 0, 2**63 - 1)
        if rest == list(todo):
            self._retry[held.key] = now + RETRY_S
        held.todo = rest

    def _corrupt(self, held: HeldLease, low: int, n: int) -> None:
        """Its bytes are damaged on disk: to the dead letter queue, where its origin is kept, instead of into a loop."""
        for offset in range(low, low + n):
            held.record(Op.REJECT, offset, -1, "corrupt", False)


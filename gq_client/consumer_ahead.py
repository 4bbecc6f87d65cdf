"""Reading ahead of the leases: the bytes of one partition, or of one priority in it, as a stream, so that they are here when the
lease is.

Owns, per stream, the bytes fetched from where the next lease is expected on, and the leases that wait for more of them. Where a
group sees more than one priority, each has a stream of its own, in which its messages are dense, however far they lie apart.
Only dense first deliveries that follow on one another come from here; a lease that does not is fetched by ranges and the
stream goes on behind it, as is one of messages that were still delayed when they were read ahead. Bytes thrown away unused are
misses: after a few in a row the stream rests (a shared group: others get what lies between). A stream serves one epoch; another
one starts it anew.

Invariants: chunks follow on one another and end at `next`; leases wait in offset order; an answer to a fetch of before the last
reset is ignored (`asked` is a token that every reset and every fetch renews).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from gq_client.consumer_lease import HeldLease, is_ascending
from gq_proto import codec, limits
from gq_proto import ranges as rng
from gq_proto.runs import ALL_LANES

STREAM_BYTES: Final = limits.FETCH_BYTES_DEFAULT     # fetch more when less than this is at hand
GAP_MAX: Final = 500                                 # offsets between two leases that are read over
LANE_GAP_MAX: Final = 100_000                        # where the others between them are not read
BEHIND_MAX: Final = 4
MISSES_MAX: Final = 3
REST_S: Final = 30.0


class Chunk:
    """Records [low, high), from `position` of data on."""

    __slots__ = ("data", "hidden", "high", "low", "position")

    def __init__(self, low: int, high: int, data: Any, hidden: list[int]) -> None:
        self.low, self.high, self.data, self.hidden, self.position = low, high, memoryview(data), hidden, 0

    @property
    def left(self) -> int:
        """Bytes that were not given up."""
        return len(self.data) - self.position

    def cut(self, low: int, high: int) -> Any:
        """The bytes of records [low, high); they and what lies before them are given up."""
        start = self._position(self.position, low) if low > self.low else self.position
        end = self._position(start, high) if high < self.high else len(self.data)
        self.low, self.position = high, end
        return self.data[start:end]

    def _position(self, start: int, offset: int) -> int:
        found = codec.locate(self.data, start, offset)
        return len(self.data) if found < 0 else found


class Stream:
    """One partition's, of one lane or of all (-1). `size`: bytes at hand that no lease was given; `promised`: where the next lease
    is expected; `next`: where the next fetch goes on; -1 nowhere. `behind`: leases in a row of what lies before that."""

    __slots__ = ("asked", "behind", "chunks", "epoch", "lane", "misses", "next", "promised", "rest_until", "size", "token",
                 "waiting")

    def __init__(self, lane: int = ALL_LANES) -> None:
        self.lane = lane
        self.behind = 0
        self.chunks: deque[Chunk] = deque()
        self.waiting: deque[HeldLease] = deque()
        self.size = 0
        self.epoch = self.next = self.promised = -1
        self.asked = False
        self.token = 0
        self.misses = 0
        self.rest_until = 0.0

    def claim(self, held: HeldLease, now: float) -> bool:
        """True: the lease waits here for its bytes. False: fetch it by ranges."""
        lease = held.lease
        if lease.delivery != 1:
            return False
        low, high = held.low, held.high
        if self.lane != ALL_LANES:
            return self._claim_lane(held, low, high, now)
        if high - low > 2 * held.count or not is_ascending(held.ranges):
            self.reset(-1, -1, now)
            return False
        if lease.epoch != self.epoch or not 0 <= self.promised <= low <= self.next + GAP_MAX or now < self.rest_until:
            self.reset(lease.epoch, high, now)
            return False
        self.promised = high
        self.waiting.append(held)
        return True

    def _claim_lane(self, held: HeldLease, low: int, high: int, now: float) -> bool:
        """Messages that came back, or were delayed, lie behind the stream: it goes on without them, unless all do."""
        lease = held.lease
        self.behind = self.behind + 1 if low < self.promised else 0
        if lease.epoch != self.epoch or self.promised < 0 or low > self.next + LANE_GAP_MAX or self.behind >= BEHIND_MAX:
            self.reset(lease.epoch, high, now)
            return False
        if self.behind or now < self.rest_until or not is_ascending(held.ranges):
            return False
        self.promised = high
        self.waiting.append(held)
        return True

    def reset(self, epoch: int, at: int, now: float) -> list[HeldLease]:
        """Go on at `at` with nothing at hand. Returns who waited: fetch theirs by ranges."""
        if self.chunks:
            self.misses += 1
        if self.misses >= MISSES_MAX:
            self.misses, self.rest_until = 0, now + REST_S
        self.chunks.clear()
        orphans = list(self.waiting)
        self.waiting.clear()
        for held in orphans:
            held.streaming = False
        self.size, self.epoch, self.next, self.promised, self.asked = 0, epoch, at, at, False
        self.behind = 0
        self.token += 1
        return orphans

    def wants_fetch(self, now: float) -> bool:
        return not self.asked and self.next >= 0 and self.size < STREAM_BYTES and (bool(self.waiting) or now >= self.rest_until)

    def arrived(self, token: int, data: Any, hidden: list[int], next_offset: int, more: bool = False) -> None:
        """An answer to the fetch `token`; `more` follow."""
        if token != self.token:
            return
        self.asked = more
        if next_offset > self.next:
            self.chunks.append(Chunk(self.next, next_offset, data, hidden))
            self.size += len(data)
            self.next = next_offset

    def feed(self) -> None:
        """Move bytes to the leases that wait, in order, each no more than it should hold."""
        while self.waiting:
            held = self.waiting[0]
            stale = False
            while held.todo and held.raw_bytes < STREAM_BYTES and not (stale := self._is_stale(held)) and self._feed_some(held):
                self.misses = 0
            if held.todo and not held.lost and not stale:
                return
            held.streaming = False
            self.waiting.popleft()

    def _is_stale(self, held: HeldLease) -> bool:
        """What was hidden when it was read ahead and is leased now has come due since: its bytes are fetched anew."""
        hidden = next((chunk.hidden for chunk in self.chunks if chunk.high > held.todo[0]), ())
        return bool(hidden) and bool(rng.intersect(hidden, held.todo))

    def _feed_some(self, held: HeldLease) -> bool:
        """What the first chunk has of the lease, in one piece; the records between its ranges are skipped by the decoder."""
        todo, low = held.todo, held.todo[0]
        while self.chunks and self.chunks[0].high <= low:
            self.size -= self.chunks.popleft().left
        if not self.chunks:
            return False
        chunk = self.chunks[0]
        assert chunk.low <= low, "a lease below the stream"
        taken: Sequence[int] = todo
        rest: Sequence[int] = []
        if todo[-2] >= chunk.high:
            n = 2 * bisect_left(range(len(todo) // 2), chunk.high, key=lambda at: todo[2 * at])
            taken, rest = todo[:n], todo[n:]
        high = taken[-2] + taken[-1]
        if high > chunk.high:
            rest = [chunk.high, high - chunk.high, *rest]
            taken = [*taken[:-1], taken[-1] - (high - chunk.high)]
            high = chunk.high
        before = chunk.left
        held.add_bytes(chunk.cut(low, high), chunk.hidden, low, high, taken if len(taken) > 2 else None)
        self.size -= before - chunk.left
        held.todo = rest
        if chunk.high == high:
            self.size -= self.chunks.popleft().left
        return True

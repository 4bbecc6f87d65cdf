"""One partition as one group sees it: where every message stands. Changed only by `apply` and by scanning the log's runs.

What the sets mean is said in `standing`, how free messages are found in `taking`; here is what becomes of them.
"""

from collections.abc import Sequence
from operator import add, sub

from pyroaring import BitMap64

from gq_groupd.lease import Lease
from gq_groupd.taking import Pick, Taking
from gq_proto.bitmaps import TOP, union_of, within
from gq_proto.limits import PRIORITIES

__all__ = ["Part", "Pick"]

FEW = 16                # numbers in ranges that are cheaper to walk than a bitmap
LAPSED_MAX = 10_000     # leases of a part whose late acks are waited for


class Part(Taking):
    # -- what apply does to it ----------------------------------------------------------------------------

    def grant(self, lease: Lease) -> None:
        taken = lease.open
        self.group.lanes |= 1 << lease.lane
        if not self.held.isdisjoint(taken):
            # Only at replay: the one who had it gave it back in entries that were lost with an unsynced tail.
            for other in list(self.leases.values()):
                self._leave(other, other.open & taken)
        self.held |= taken
        for other in [other for other in self.lapsed.values() if other.low < lease.high and lease.low < other.high]:
            self._lapse(other, taken)
        self.returned -= taken
        self.retry -= taken
        self.waiting.remove(taken)
        self.leases[lease.id] = lease
        member = self.group.members.get(lease.member)
        if member:
            member.in_flight += len(taken)
            member.leases[lease.id] = lease

    def ack(self, lease: Lease | None, bitmap: BitMap64, ranges: Sequence[int], anchor: int) -> None:
        if lease:
            self._leave(lease, bitmap)
            self._lapse(lease, bitmap)
            lease.acked |= bitmap
        else:
            for other in [*self.leases.values(), *self.lapsed.values()]:
                self._leave(other, bitmap)
                self._lapse(other, bitmap)
        if anchor >= 0:
            self.anchors.ack(anchor, bitmap)
        else:
            if len(ranges) > FEW:
                self.acked.update(bitmap)
            else:
                for at in range(0, len(ranges), 2):
                    self.acked.add(ranges[at], ranges[at] + ranges[at + 1])
            self._close(bitmap, lease)
            self.open -= bitmap
        self._unfail(bitmap)
        self.dead.remove(bitmap)

    def _close(self, bitmap: BitMap64, lease: Lease | None) -> None:
        """They are open no more: of which lanes were they?"""
        if lease and bitmap and bitmap.max() < self.census.counted:
            self.census.opened[lease.lane] -= self.open.intersection_cardinality(bitmap)
            return
        gone = self.open & bitmap
        gone.remove_range(self.census.counted, TOP)
        if gone:
            self.census.opened = list(map(sub, self.census.opened, self.lanes_of(gone, lease)))

    def _close_range(self, low: int, high: int, counts: list[int] | None = None) -> None:
        """counts: of which lanes they are, if that is known."""
        if self.open.range_cardinality(low, high):
            self.open.remove_range(low, high)
            if counts is None:
                self.census.reset(self.acked.below)
            else:
                self.census.opened = list(map(sub, self.census.opened, counts))

    def _lanes_within(self, low: int, high: int) -> list[int] | None:
        """Of what lanes the open messages of [low, high) are; None where some of them were never handed out, or are not counted."""
        some = within(self.open, low, high)
        rest, counts = some - self.held, [0] * PRIORITIES
        if high > self.census.counted or not rest.issubset(union_of((self.waiting.all, self.dead.all, self.returned, self.retry))):
            return None
        for lease in self.leases.values():
            counts[lease.lane] += lease.open.intersection_cardinality(some)
        return list(map(add, counts, self.by_lane(rest)))

    def give_back(self, lease: Lease, bitmap: BitMap64) -> None:
        self._leave(lease, bitmap)
        self._remember(lease, bitmap)
        self._mark(bitmap, lease.lane)
        failed = bitmap & self.attempts.any
        self.retry |= failed
        self.returned |= bitmap - failed

    def fail(self, lease: Lease, bitmap: BitMap64, count: int, now_ms: int, at_us: int, delay_ms: int) -> None:
        self._withdraw(lease, bitmap)
        self._mark(bitmap, lease.lane)
        self.attempts.set(bitmap, count)
        self._remember(lease, bitmap)
        if delay_ms > 0:
            self.waiting.add(bitmap, now_ms, at_us, delay_ms)
        else:
            self.retry |= bitmap

    def condemn(self, lease: Lease, bitmap: BitMap64, count: int, reason: str, at_us: int) -> None:
        self._withdraw(lease, bitmap)
        self._mark(bitmap, lease.lane)
        self.attempts.set(bitmap, count)
        self.dead.add(bitmap, count, reason, at_us)

    def _withdraw(self, lease: Lease, bitmap: BitMap64) -> None:
        """From wherever it is: the lease, or (late reject) free or waiting."""
        self._leave(lease, bitmap)
        self._lapse(lease, bitmap)
        self.waiting.remove(bitmap)
        self.returned -= bitmap
        self.retry -= bitmap

    def _leave(self, lease: Lease, bitmap: BitMap64) -> None:
        n = lease.open.intersection_cardinality(bitmap)
        if not n:
            return
        if n == len(lease.open):
            self.held -= lease.open
            lease.open = BitMap64()          # `bitmap` may be the old one
        else:
            self.held -= bitmap if n == len(bitmap) else lease.open & bitmap
            lease.open -= bitmap
        member = self.group.members.get(lease.member)
        if member and lease.id in member.leases:        # not one that left and came back meanwhile
            member.in_flight -= n
        if not lease.open:
            self.leases.pop(lease.id, None)
            if member:
                member.leases.pop(lease.id, None)

    def _remember(self, lease: Lease, bitmap: BitMap64) -> None:
        lease.lapsed |= bitmap
        self.lapsed[lease.id] = lease
        if len(self.lapsed) > LAPSED_MAX:
            oldest = next(iter(self.lapsed.values()))
            self._lapse(oldest, oldest.lapsed.copy())

    def _lapse(self, lease: Lease, bitmap: BitMap64) -> None:
        if lease.lapsed:
            lease.lapsed -= bitmap
            if not lease.lapsed:
                self.lapsed.pop(lease.id, None)

    def _unfail(self, bitmap: BitMap64) -> None:
        self.attempts.forget(bitmap)
        self.waiting.remove(bitmap)
        if self.returned:
            self.returned -= bitmap
        if self.retry:
            self.retry -= bitmap
        for marked in self.marked:
            if marked:
                marked -= bitmap

    def retry_due(self, now_ms: int) -> None:
        ready = self.waiting.take_due(now_ms)
        self.retry |= ready

    # -- by position: marks, the log's start and end --------------------------------------------------------

    def in_region(self, low: int, high: int) -> BitMap64:
        """Messages at positions [low, high) that are known in any way but open or acked."""
        known = union_of((self.held, self.waiting.all, self.dead.all, self.returned, self.retry, self.attempts.any,
                          *(lease.lapsed for lease in self.lapsed.values())))
        region = within(known, low, high)
        if self.anchors.open or self.anchors.acked:
            region -= self.anchors.all()
            region |= union_of(bitmap for ready, bitmap in self.anchors.open.items() if low <= ready < high) & known
        for lease in [*self.leases.values(), *self.lapsed.values()]:
            if lease.anchor >= 0:
                members = lease.open | lease.lapsed
                region = region | members if low <= lease.anchor < high else region - members
        return region

    def void(self, bitmap: BitMap64) -> None:
        """Nobody's any more, no failures, no late acks."""
        for lease in list(self.leases.values()):
            self._leave(lease, bitmap)
        for lease in list(self.lapsed.values()):
            self._lapse(lease, bitmap)
        self._unfail(bitmap)
        self.dead.remove(bitmap)

    def mark(self, ack: bool, low: int, high: int, now_ms: int = 0) -> None:
        region = self.in_region(low, high)
        counts = self._lanes_within(low, high) if ack else None
        self.census.departed(counts or [], now_ms)
        for lease in [*self.leases.values(), *self.lapsed.values()] if ack else ():
            lease.acked |= (lease.open | lease.lapsed) & region
        self.void(region)
        if ack:
            for ready in [ready for ready in self.anchors.open if low <= ready < high]:
                self.anchors.close(ready)
            self.anchors.forget(low, high)
            self.acked.add(low, high)
            self._close_range(low, high, counts)
        else:
            self.acked.remove(low, high)
            self.anchors.forget(low, high)
            self.rescan(low)

    def cut(self, end: int) -> None:
        """A new leader: nothing at or above end was ever there. What lies below is looked at anew: it may have holes now."""
        self.void(self.in_region(end, TOP))
        self.anchors.forget(end, TOP)
        self.acked.cut(end)
        for marked in self.marked:
            marked.remove_range(end, TOP)       # what comes in their place may be of other lanes
        self.end = min(self.end, end)
        self.rescan(min(self.acked.below, end))

    def gone(self, log_start: int) -> None:
        """Nothing below log_start is left."""
        lost = self.anchors.gone_below(log_start)
        self.void(self.in_region(0, log_start) | lost)
        self.acked.settle_below(log_start)
        self._close_range(0, log_start)
        self.lanes.skip_to(log_start)
        self.scanned = max(self.scanned, log_start)
        self.end = max(self.end, log_start)

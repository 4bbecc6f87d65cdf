"""What is too old or too much: whole sealed segments leave at the log's start.

Owns when to look at a partition next: at the time its oldest segment expires, so partitions at rest cost nothing. Age counts from
the newest max(timestamp, due) in a segment, on the wall clock. A live segment whose last record has expired is sealed first and
then removed, which leaves an empty one named by the next offset. Size keeps at least retention_bytes.
"""

import heapq
from itertools import count

from gq_logd.partition import Partition


class Retention:
    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Partition]] = []
        self._when: dict[Partition, int] = {}
        self._order = count()

    def schedule(self, partition: Partition) -> None:
        """Look again when its oldest segment expires; call it when that or the settings changed."""
        when = expiry_of(partition)
        if self._when.get(partition) == when:
            return
        self._when.pop(partition, None)
        if when is not None:
            self.put_off(partition, when)

    def put_off(self, partition: Partition, when_us: int) -> None:
        """Look again then."""
        self._when[partition] = when_us
        heapq.heappush(self._queue, (when_us, next(self._order), partition))

    def wrote(self, partition: Partition) -> None:
        """An empty partition got its first records, perhaps."""
        if partition not in self._when:
            self.schedule(partition)

    def forget(self, partition: Partition) -> None:
        self._when.pop(partition, None)

    def next_wall_us(self) -> int | None:
        """When to call `expired` again."""
        while self._queue and self._when.get(self._queue[0][2]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def expired(self, wall_us: int) -> Partition | None:
        """A partition to be looked at now."""
        when = self.next_wall_us()
        if when is None or when > wall_us:
            return None
        partition = heapq.heappop(self._queue)[2]
        del self._when[partition]
        return partition


def expiry_of(partition: Partition) -> int | None:
    """Wall clock, microseconds; None when nothing ever expires by age."""
    retention_ms = partition.settings.retention_ms
    if retention_ms < 0:
        return None
    oldest = partition.log.ready(0)
    return oldest.newest_us + retention_ms * 1000 + 1 if oldest.size else None


def drop_to(partition: Partition, wall_us: int) -> int:
    """The offset below which whole sealed segments are to go; seals the live one when all of it expired. OSError of a roll."""
    log, settings = partition.log, partition.settings
    keep_from, number, left = log.segments[0].base, 0, log.size_bytes
    while number < len(log.segments) - 1:
        segment = log.ready(number)
        too_old = settings.retention_ms >= 0 and segment.newest_us < wall_us - settings.retention_ms * 1000
        too_much = 0 <= settings.retention_bytes <= left - segment.size
        if not too_old and not too_much:
            return keep_from
        left -= segment.size
        number += 1
        keep_from = log.segments[number].base
    live = log.live
    if live.size and settings.retention_ms >= 0 and live.newest_us < wall_us - settings.retention_ms * 1000:
        if partition.high_watermark < log.end:
            return keep_from
        log.roll(log.end)
        return log.end
    return keep_from

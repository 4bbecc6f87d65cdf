"""A stretch of a partition's log, read without a group and without a reader that stays. Operations, see gq_client.ask.

Bounded in messages and in bytes, so that one costs little whatever lies there.
"""

from typing import Any, Final

from gq_client import admin
from gq_client.admin import Operation
from gq_client.cursor import Cursor
from gq_client.routing import Routes
from gq_proto import limits
from gq_proto.errors import NotLeader, Unavailable
from gq_proto.messages import PartitionInfo, TopicMeta

BYTES_MAX: Final = 4 * limits.MIB
TRIES_MAX: Final = 3                  # of a partition that moves


def stretch(routes: Routes, topic: TopicMeta, partition: int, low: int, high: int, limit: int) -> Operation[list[Any]]:
    """The first `limit` messages that there are at offsets [low, high), BYTES_MAX at most (but one, if there is one)."""
    cursor = Cursor(topic, partition, low, stop_at_end=True, max_bytes=fetch_bytes(limit))
    found = yield from read(routes, cursor, limit, BYTES_MAX, high)
    return [record for record in found if record.offset < high]


def read(routes: Routes, cursor: Cursor, limit: int, most_bytes: int, high: int = 2**63 - 1) -> Operation[list[Any]]:
    """Up to `limit` messages of what the cursor comes to; of those at or above `high` some may come along."""
    tries = 0
    while (not cursor.ended and cursor.next < high and len(cursor.records) < limit
           and sum(map(size_of, cursor.records)) < most_bytes):
        body, frames = yield cursor.ask()
        if not cursor.took(body.parts[0], frames[0]):
            tries += 1
            if tries > TRIES_MAX:
                raise NotLeader(f"partition {cursor.partition} of {cursor.topic} moves: ask again")
            yield from admin.refresh(routes)
    return cursor.take(limit)


def parts_of(routes: Routes, topic: str, partition: int | None) -> Operation[list[PartitionInfo]]:
    """The partition that was asked for, or all. UnknownTopic, UnknownPartition; Unavailable while nobody leads one."""
    parts = yield from admin.partitions(routes, topic)
    found = routes.topic(topic)
    wanted = range(len(found.partitions)) if partition is None else [routes.check_partition(found, partition)]
    by_number = {part.partition: part for part in parts}
    for number in wanted:
        if number not in by_number:
            raise Unavailable(f"partition {number} of {topic} has no leader now: ask again")
    return [by_number[number] for number in wanted]


def fetch_bytes(limit: int) -> int:
    """What is fetched at once for so many messages."""
    return min(max(limit * 4 * limits.KIB, 64 * limits.KIB), limits.FETCH_BYTES_DEFAULT)


def size_of(record: Any) -> int:
    """Its bytes in the log."""
    return limits.RECORD_HEADER + len(record.raw_value or b"") + len(record.key or b"") + len(record.raw_headers)

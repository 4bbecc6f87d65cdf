"""A position as offsets: what --from, --to, --before mean in each partition of a topic."""

from typing import TYPE_CHECKING

from gq_ctl.units import EARLIEST, Position
from gq_proto.errors import Unavailable, UnknownPartition

if TYPE_CHECKING:
    from gq_client import Client


def partitions(client: "Client", topic: str, partition: int | None) -> list[int]:
    """The one that was asked for, or all."""
    count = len(client.topic(topic).partitions)
    if partition is None:
        return list(range(count))
    if partition >= count:
        raise UnknownPartition(f"topic {topic} has partitions 0..{count - 1}, not {partition}")
    return [partition]


def resolve(client: "Client", topic: str, partition: int | None, where: Position) -> dict[int, int]:
    """The offset of `where` by partition. A time is the first message at or after it, the end when there is none."""
    chosen = partitions(client, topic, partition)
    if where.offset >= 0:
        return dict.fromkeys(chosen, where.offset)
    if where.name:
        parts = {part.partition: part for part in client.partitions(topic)}
        if lost := [number for number in chosen if number not in parts]:
            raise Unavailable(f"partition {lost[0]} of {topic} has no leader now, or cannot be read: see gqctl status")
        return {number: parts[number].log_start if where.name == EARLIEST else parts[number].high_watermark for number in chosen}
    return {number: client.offset_for_time(topic, number, where.time_us) for number in chosen}

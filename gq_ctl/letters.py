"""Dead letters: which of a topic there are, where each came from, and what it takes to give them back.

A letter is outstanding while the internal group `__dlq` has not acked it in `{topic}.dlq`. Its origin stands in its system headers.
Redriving re-opens the origin in the group that failed it and then acks the letter, in this order: a crash between the two
leaves the letter, and a second redrive changes nothing that was not acked meanwhile. Publishing anew may double in that case.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gq_ctl.reading import stretch
from gq_proto.names import dlq_of

if TYPE_CHECKING:
    from gq_client import Client

BOOKS: Final = "__dlq"       # the group whose acks say which letters are done with
ORIGIN: Final = "gq-dlq-"


class Letter(NamedTuple):
    """One dead letter: `message` as it lies in the DLQ; the rest is its origin's."""

    message: Any
    topic: str
    partition: int
    offset: int
    tries: int
    reason: str
    time_us: int
    group: str


def of(message: Any) -> Letter:
    """The letter in a record of a DLQ. What a header does not say is empty or -1."""
    said = {name.removeprefix(ORIGIN): value.decode(errors="replace") for name, value in message.system_headers
            if name.startswith(ORIGIN)}
    numbers = {name: int(said[name]) if said.get(name, "").isdigit() else -1 for name in ("partition", "offset", "count", "time")}
    return Letter(message, said.get("topic", ""), numbers["partition"], numbers["offset"], numbers["count"], said.get("reason", ""),
                  numbers["time"], said.get("group", ""))


def holes(low: int, high: int, acked: list[int]) -> list[tuple[int, int]]:
    """What of [low, high) lies in none of the sorted flat ranges `acked`."""
    found = []
    for start, count in zip(acked[::2], acked[1::2]):
        if start > low:
            found.append((low, min(start, high)))
        low = max(low, start + count)
    if low < high:
        found.append((low, high))
    return [(start, end) for start, end in found if start < end]


def outstanding(client: "Client", topic: str) -> dict[int, list[tuple[int, int]]]:
    """Offset ranges of the DLQ of `topic` by partition; {} when there is no DLQ. UnknownTopic when there is no topic either."""
    from gq_proto.errors import UnknownGroup, UnknownTopic
    dlq = dlq_of(topic)
    try:
        parts = client.partitions(dlq)
    except UnknownTopic:
        client.topic(topic)
        return {}
    try:
        books = {part.partition: part for part in client.describe_group(BOOKS).partitions if part.topic == dlq}
    except UnknownGroup:
        books = {}
    found = {}
    for part in parts:
        book = books.get(part.partition)
        low = max(part.log_start, book.committed) if book else part.log_start
        found[part.partition] = holes(low, part.high_watermark, book.acked_ahead if book else [])
    return found


def letters(client: "Client", topic: str, partition: int | None = None) -> Iterator[Letter]:
    """Outstanding ones, by partition and offset."""
    from gq_ctl.remote import Remote, message_of
    if isinstance(client, Remote):
        for one in client.letters(topic, partition):
            place = {**one["message"], "partition": one["partition"], "offset": one["offset"]}
            yield Letter(message_of(place), one["originTopic"], one["originPartition"], one["originOffset"], one["attempts"],
                         one["reason"], one["deadAt"], one["group"])
        return
    for number, ranges in outstanding(client, topic).items():
        if partition in (None, number):
            for low, high in ranges:
                yield from map(of, stretch(client, dlq_of(topic), number, low, high))

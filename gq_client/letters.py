"""Dead letters, as operations (see gq_client.ask): which of a topic there are, where each came from, giving them back.

A letter is outstanding while the internal group `__dlq` has not acked it in `{topic}.dlq`. Its origin stands in its system headers.
Redriving re-opens the origin in the group that failed it (`reopen`) and then acks the letter (`settle`), in this order: a stop
between the two leaves the letter, and a second redrive changes nothing that was not acked meanwhile. Publishing anew may double in
that case.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from gq_client import admin
from gq_client.admin import Operation
from gq_client.ask import Ask
from gq_client.routing import Routes, To
from gq_client.stretch import parts_of, stretch
from gq_proto import ranges as rng
from gq_proto.errors import UnknownGroup, UnknownTopic
from gq_proto.messages import Kind, Mark1, Runs, TopicMeta
from gq_proto.names import dlq_of
from gq_proto.runs import UNDELIVERABLE

BOOKS: Final = "__dlq"             # the group whose acks say which letters are done with
ORIGIN: Final = "gq-dlq-"
LOOKED_MAX: Final = 10_000         # letters that one choose() looks at
SOME: Final = 500                  # letters read at a time
ALL_LANES: Final = -2


class Letter(NamedTuple):
    """One dead letter: `record` as it lies in the DLQ; the rest is its origin's, empty or -1 where it is not said."""

    record: Any
    topic: str
    partition: int
    offset: int
    tries: int
    reason: str
    time_us: int
    group: str


class Choice(NamedTuple):
    """Which letters are meant: `limit` at most, behind `after` (partition, offset)."""

    group: str = ""
    partition: int | None = None
    reason: str = ""
    limit: int = SOME
    offsets: frozenset[int] = frozenset()
    after: tuple[int, int] = (-1, -1)

    def fits(self, letter: Letter) -> bool:
        return (self.group in ("", letter.group) and self.reason in letter.reason
                and (not self.offsets or letter.record.offset in self.offsets))


def choose(routes: Routes, topic: str, choice: Choice) -> Operation[tuple[list[Letter], bool]]:
    """Outstanding letters, by partition and offset; and whether there may be more. Looks at LOOKED_MAX. UnknownTopic."""
    dlq = dlq_of(topic)
    ranges = yield from outstanding(routes, topic, choice.partition)
    found: list[Letter] = []
    looked = 0
    for number, low, high in [(number, *pair) for number, part in ranges.items() for pair in rng.pairs(part)]:
        low = low if number > choice.after[0] else max(low, choice.after[1] + 1) if number == choice.after[0] else high
        while low < high:
            if len(found) >= choice.limit or looked >= LOOKED_MAX:
                return found, True
            records = yield from stretch(routes, routes.topic(dlq), number, low, high, SOME)
            if not records:
                break
            some = [letter for letter in map(letter_of, records) if choice.fits(letter)]
            room = choice.limit - len(found)
            found += some[:room]
            if len(some) > room:
                return found, True
            looked += len(records)
            low = records[-1].offset + 1
    return found, False


def outstanding(routes: Routes, topic: str, partition: int | None) -> Operation[dict[int, list[int]]]:
    """Ranges of the DLQ of `topic` by partition; {} when there is no DLQ. UnknownTopic when there is no topic either."""
    dlq = dlq_of(topic)
    try:
        parts = yield from parts_of(routes, dlq, partition)
    except UnknownTopic:
        yield from admin.topic(routes, topic)
        return {}
    try:
        books = yield from admin.describe_group(routes, BOOKS)
        booked = {part.partition: part for part in books.partitions if part.topic == dlq}
    except UnknownGroup:
        booked = {}
    found = {}
    for part in parts:
        book = booked.get(part.partition)
        low = max(part.log_start, book.committed) if book else part.log_start
        found[part.partition] = rng.subtract(rng.normal([(low, part.high_watermark)]), book.acked_ahead if book else [])
    return found


def count_outstanding(routes: Routes, topic: str) -> Operation[int]:
    """How many letters that are. By the run index: control records lie between them."""
    total = 0
    ranges = yield from outstanding(routes, topic, None)
    for number, part in ranges.items():
        offset, end = (part[0], part[-2] + part[-1]) if part else (0, 0)
        while offset < end:
            reply, _ = yield Ask(Kind.RUNS, Runs(offset, ALL_LANES), To.leader(routes.topic(dlq_of(topic)).id, number))
            runs = zip(reply.runs[::3], reply.runs[1::3], reply.runs[2::3])
            total += rng.count(rng.intersect(rng.normal((low, low + count) for low, count, kind in runs
                                                        if not kind & UNDELIVERABLE), part))
            if reply.next_offset <= offset:
                break
            offset = reply.next_offset
    return total


def letter_of(record: Any) -> Letter:
    said = {name.removeprefix(ORIGIN): value.decode(errors="replace") for name, value in record.system_headers
            if name.startswith(ORIGIN)}
    number = {name: int(said[name]) if said.get(name, "").isdigit() else -1 for name in ("partition", "offset", "count", "time")}
    return Letter(record, said.get("topic", ""), number["partition"], number["offset"], number["count"], said.get("reason", ""),
                  number["time"], said.get("group", ""))


def reopen(routes: Routes, letters: list[Letter]) -> Operation[list[Letter]]:
    """Those whose origin and group are there, and that the group has again now."""
    origins: dict[str, tuple[TopicMeta, dict[int, int]] | None] = {}
    for name in {letter.topic for letter in letters if letter.topic}:
        origins[name] = yield from _origin(routes, name)
    by_group: dict[str, list[Letter]] = {}
    for letter in letters:
        origin = origins.get(letter.topic)
        if origin and _is_there(letter, *origin):
            by_group.setdefault(letter.group, []).append(letter)
    reopened: list[Letter] = []
    for group, some in by_group.items():
        try:
            yield from admin.mark(routes, group, list(_marks(some, origins, False)))
        except UnknownGroup:
            continue
        reopened += some
    return reopened


def _origin(routes: Routes, name: str) -> Operation[tuple[TopicMeta, dict[int, int]] | None]:
    """The topic and its log starts."""
    try:
        parts = yield from admin.partitions(routes, name)
    except UnknownTopic:
        return None
    return routes.topic(name), {part.partition: part.log_start for part in parts}


def _is_there(letter: Letter, topic: TopicMeta, starts: dict[int, int]) -> bool:
    """Is the origin's record still that record? A topic that was made after the letter is another one of that name."""
    return bool(letter.group) and topic.created_us <= letter.time_us and letter.offset >= starts.get(letter.partition, 2**63)


def _marks(letters: Iterable[Letter], origins: dict[str, Any], ack: bool) -> Iterator[Mark1]:
    by_place: dict[tuple[int, int], list[int]] = {}
    for letter in letters:
        by_place.setdefault((origins[letter.topic][0].id, letter.partition), []).append(letter.offset)
    for (topic_id, partition), offsets in by_place.items():
        for low, high in rng.pairs(rng.of_offsets(sorted(offsets))):
            yield Mark1(topic_id, partition, ack, low, high)


def settle(routes: Routes, topic: str, done: list[Letter]) -> Operation[None]:
    """These letters are no longer outstanding."""
    if not done:
        return
    dlq = yield from admin.topic(routes, dlq_of(topic))
    by_partition: dict[int, list[int]] = {}
    for letter in done:
        by_partition.setdefault(letter.record.partition, []).append(letter.record.offset)
    marks = [Mark1(dlq.id, partition, True, low, high) for partition, offsets in by_partition.items()
             for low, high in rng.pairs(rng.of_offsets(sorted(offsets)))]
    yield from admin.mark(routes, BOOKS, marks, create=True)

"""What waits for its time: pages of it, cancelling, counts. Operations (see gq_client.ask) that both clients have as methods.

A partition's delayd is beside its leader, so each node is asked about its part of a topic and the answers are put together. A
partition that no answer covered (it moved meanwhile) is asked for alone: the session follows it to where it is.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from gq_client import admin
from gq_client.admin import Method, Operation
from gq_client.ask import Ask
from gq_client.routing import Routes, To
from gq_proto import codec, limits
from gq_proto import messages as m
from gq_proto import ranges as rng
from gq_proto.errors import BadRequest, GoQueueError, Internal, Unavailable, error_of
from gq_proto.messages import Fate, Isolation, Kind

OFFSET_MAX: Final = 2**63 - 2
After = tuple[int, int, int]


class Delayed(NamedTuple):
    """A message that waits. `due`: Unix microseconds. `key` is None when it has none, cannot be read, or was not asked for."""

    partition: int
    offset: int
    due: int
    key: bytes | None


class Page(NamedTuple):
    """Messages in order of (due, partition, offset). `after`: ask with it for what follows; None: nothing does."""

    messages: list[Delayed]
    after: After | None


# -- listing -------------------------------------------------------------------------------

def delayed(routes: Routes, name: str, *, partition: int | None = None, after: After | None = None,
            limit: int = limits.DELAYED_PAGE, keys: bool = True) -> Operation[Page]:
    """A page of what waits in a topic, or in one partition of it, soonest first. limit: DELAYED_PAGE_MAX at most. For `keys` the
    messages themselves are read. UnknownTopic, UnknownPartition, BadRequest."""
    if not 0 < limit <= limits.DELAYED_PAGE_MAX:
        raise BadRequest(f"a page of {limit} messages: use 1..{limits.DELAYED_PAGE_MAX}")
    found = yield from admin.topic(routes, name)
    numbers = range(len(found.partitions)) if partition is None else [routes.check_partition(found, partition)]
    bodies = yield from _of_each(found, numbers, Kind.LIST_DELAYED, m.ListDelayed(list(after or ()), limit),
                                 lambda body: body.partitions)
    rows = sorted((due, number, offset) for body in bodies
                  for number, offset, due in zip(body.delayed[::3], body.delayed[1::3], body.delayed[2::3], strict=True))
    more = len(rows) > limit or any(body.more for body in bodies)
    del rows[limit:]
    waiting = [Delayed(number, offset, due, None) for due, number, offset in rows]
    return Page((yield from _with_keys(found, waiting)) if keys else waiting, rows[-1] if more and rows else None)


def _of_each(topic: m.TopicMeta, numbers: Iterable[int], kind: Kind, body: m.Body, covers: Any) -> Operation[list[Any]]:
    """The answers that together are about all these partitions: of the nodes that lead them, then of single partitions."""
    wanted = set(numbers)
    bodies: list[Any] = []
    if len(wanted) > 1:
        nodes = sorted({topic.partitions[number].leader for number in wanted} - {""})
        bodies += yield from admin.all_of([Ask(kind, body, To.node("delayd", node, topic.id)) for node in nodes])
    missing = sorted(wanted - {number for answer in bodies for number in covers(answer)})
    bodies += yield from admin.all_of([Ask(kind, body, To.delays(topic.id, number)) for number in missing])
    return bodies


def _with_keys(topic: m.TopicMeta, waiting: list[Delayed]) -> Operation[list[Delayed]]:
    """As they are now: what was cancelled or taken by retention meanwhile is left out."""
    left: dict[int, list[int]] = {}
    for number in {row.partition for row in waiting}:
        left[number] = rng.of_offsets(sorted(row.offset for row in waiting if row.partition == number))
    keys: dict[tuple[int, int], bytes | None] = {}
    gone: set[tuple[int, int]] = set()
    while left:
        answers = yield [_fetch(topic, number, ranges) for number, ranges in left.items()]
        for number, answer in zip(list(left), answers, strict=True):
            left[number] = _taken(number, left[number], answer, keys, gone)
            if not left[number]:
                del left[number]
    return [row._replace(key=keys.get(row[:2])) for row in waiting if row[:2] not in gone]


def _fetch(topic: m.TopicMeta, number: int, ranges: list[int]) -> Ask:
    part = m.FetchPart(topic.id, number, -1, -1, ranges)
    return Ask(Kind.FETCH, m.Fetch([part], isolation=Isolation.READ_UNCOMMITTED, include_delayed=True), To.leader(topic.id, number))


def _taken(number: int, ranges: list[int], answer: Any, keys: dict[tuple[int, int], bytes | None],
           gone: set[tuple[int, int]]) -> list[int]:
    """Take one answer of a partition; what of `ranges` is still to be asked."""
    if isinstance(answer, GoQueueError):
        raise answer
    fetched: m.Fetched = answer[0].parts[0]
    if fetched.error:
        raise error_of(fetched.error, fetched.message)
    for record in codec.decode(answer[1][0], codec.Record, skip=fetched.hidden):
        keys[number, record.offset] = record.key
    lost = rng.union(rng.clip(ranges, 0, fetched.log_start), rng.intersect(ranges, fetched.hidden))
    gone.update((number, offset) for low, end in rng.pairs(lost) for offset in range(low, end))
    return rng.clip(ranges, fetched.next_offset, OFFSET_MAX) if fetched.covered else []


# -- cancelling ------------------------------------------------------------------------------

def cancel_delayed(routes: Routes, name: str, places: Iterable[Sequence[int]]) -> Operation[list[Fate | GoQueueError]]:
    """Cancel messages, each named by (partition, offset), or what publish returned; what became of each, in order: CANCELLED or
    ALREADY_CANCELLED, DELIVERED (it came due before), NONE (no delayed message lies there), or why it is not known. Asking again
    does no harm. UnknownTopic, UnknownPartition, BadRequest: then nothing was cancelled."""
    given = [(int(place[0]), int(place[1])) for place in places]
    found = yield from admin.topic(routes, name)
    by_partition: dict[int, set[int]] = {}
    for number, offset in given:
        if not 0 <= offset <= OFFSET_MAX:
            raise BadRequest(f"offset {offset}: use 0..{OFFSET_MAX}")
        by_partition.setdefault(routes.check_partition(found, number), set()).add(offset)
    asks = [Ask(Kind.CANCEL_DELAYED, m.CancelDelayed(ranges), To.delays(found.id, number))
            for number, offsets in by_partition.items() for ranges in _portions(offsets)]
    answers = (yield asks) if asks else []
    fates: dict[tuple[int, int], Fate | GoQueueError] = {}
    for ask, answer in zip(asks, answers, strict=True):
        fates.update(_fates(ask, answer))
    return [fates[place] if place in fates else Internal(f"delayd said nothing of {place[0]}:{place[1]}") for place in given]


def _portions(offsets: set[int]) -> Iterable[list[int]]:
    ranges = rng.of_offsets(sorted(offsets))
    for at in range(0, len(ranges), 2 * limits.DELAYED_RANGES_MAX):
        yield ranges[at:at + 2 * limits.DELAYED_RANGES_MAX]


def _fates(ask: Ask, answer: Any) -> Iterable[tuple[tuple[int, int], Fate | GoQueueError]]:
    number = ask.to.partition
    if isinstance(answer, GoQueueError):
        for low, end in rng.pairs(ask.body.ranges):         # type: ignore[attr-defined]
            yield from (((number, offset), answer) for offset in range(low, end))
        return
    told: list[int] = answer[0].fates
    for low, count, fate in zip(told[::3], told[1::3], told[2::3], strict=True):
        yield from (((number, offset), Fate(fate)) for offset in range(low, low + count))


# -- counting ----------------------------------------------------------------------------------

def delay_stats(routes: Routes, name: str | None = None) -> Operation[list[m.DelayPartition]]:
    """Counts of each partition of a topic, or of all topics, by topic and partition. UnknownTopic; Unavailable when no delayd is
    known."""
    if name is not None:
        found = yield from admin.topic(routes, name)
        bodies = yield from _of_each(found, range(len(found.partitions)), Kind.DELAY_STATS, m.DelayStats(),
                                     lambda body: [part.partition for part in body.partitions])
    else:
        yield from admin.refresh(routes)
        nodes = sorted(node for daemon, node in routes.daemons if daemon == "delayd")
        if not nodes:
            raise Unavailable("no delayd is known: is it running?")
        bodies = yield from admin.all_of([Ask(Kind.DELAY_STATS, m.DelayStats(), To.node("delayd", node)) for node in nodes])
    return sorted((part for body in bodies for part in body.partitions), key=lambda part: (part.topic, part.partition))


class Delays:
    """The operations above as methods; both clients have them."""

    delayed = Method(delayed)
    cancel_delayed = Method(cancel_delayed)
    delay_stats = Method(delay_stats)

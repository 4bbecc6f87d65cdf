"""Everything a client asks but publish, read and consume: topics, partitions, groups, receipts, daemons.

Each operation is written once, as a generator of requests (see gq_client.ask) over the routing table; `Admin` makes them methods of
both clients: Client's return the result, AsyncClient's are awaited. Names are resolved with fresh metadata, so what another
client has just made or deleted is seen. Errors are those of gq_proto.errors.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from gq_client.ask import Ask, Asks
from gq_client.routing import METAD, Routes, To
from gq_proto import messages as m
from gq_proto.errors import Forbidden, GoQueueError, UnknownTopic, error_of
from gq_proto.messages import Kind, Op
from gq_proto.names import is_internal
from gq_proto.receipt import Receipt

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Operation = Generator[Ask | Asks, Any, R]
END = -1                             # as `high` of a mark: the log's end


class Blocking(Protocol):
    routes: Routes

    def run(self, operation: Operation[R], timeout: float | None = None) -> R: ...


class Awaiting(Protocol):
    routes: Routes

    async def run(self, operation: Operation[R], timeout: float | None = None) -> R: ...


class Method(Generic[P, R_co]):
    """An operation as a method of either client."""

    def __init__(self, operation: Callable[Concatenate[Routes, P], Operation[R_co]]) -> None:
        self._operation = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, R_co]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Awaitable[R_co]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> "Method[P, R_co]": ...

    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.run(self._operation(client.routes, *args, **kwargs))
        call.__doc__ = self.__doc__
        return call


# -- topics ------------------------------------------------------------------------

def refresh(routes: Routes) -> Operation[None]:
    """Bring the routing table up to date."""
    yield Ask(Kind.METADATA, m.Metadata(routes.version), METAD)


def topic(routes: Routes, name: str) -> Operation[m.TopicMeta]:
    """A topic's id, settings and partitions. UnknownTopic."""
    yield from refresh(routes)
    return routes.topic(name)


def topics(routes: Routes) -> Operation[list[m.TopicMeta]]:
    """All of them, internal ones too."""
    yield from refresh(routes)
    return list(routes.topics.values())


def create_topic(routes: Routes, name: str, *, partitions: int = 0, replication_factor: int = 0,
                 config: Mapping[str, Any] | None = None, if_not_exists: bool = False) -> Operation[m.TopicMeta]:
    """Make a topic; 0 and settings left out are the node's defaults. `config`: camelCase keys of messages.TopicConfig.
    AlreadyExists, BadName, BadRequest. Once it returns, publishing to it works."""
    body = m.CreateTopic(name, partitions, replication_factor, dict(config or {}), if_not_exists)
    reply, _ = yield Ask(Kind.CREATE_TOPIC, body, METAD, safe=if_not_exists)
    return _learnt(routes, reply)


def alter_topic(routes: Routes, name: str, *, partitions: int = 0,
                config: Mapping[str, Any] | None = None) -> Operation[m.TopicMeta]:
    """Change settings, or add partitions (never fewer). UnknownTopic, BadRequest."""
    reply, _ = yield Ask(Kind.ALTER_TOPIC, m.AlterTopic(name, partitions, dict(config or {})), METAD)
    return _learnt(routes, reply)


def _learnt(routes: Routes, reply: m.TopicReply) -> m.TopicMeta:
    routes.add(reply.topic)
    return reply.topic


def delete_topic(routes: Routes, name: str) -> Operation[None]:
    """Remove a topic and all its messages. UnknownTopic."""
    reply, _ = yield Ask(Kind.DELETE_TOPIC, m.DeleteTopic(name), METAD, safe=False)
    routes.remove(reply.topic_id)


def delete_before(routes: Routes, name: str, partition: int, offset: int = END) -> Operation[int]:
    """Remove what lies below `offset` (END: everything); the new log start."""
    _check_not_internal(name)
    to = yield from _leader(routes, name, partition)
    reply, _ = yield Ask(Kind.DELETE_BEFORE, m.DeleteBefore(offset), to)
    return cast("m.DeleteBeforeReply", reply).log_start


def purge(routes: Routes, name: str) -> Operation[None]:
    """Remove every message of a topic."""
    _check_not_internal(name)
    found = yield from topic(routes, name)
    yield from all_of([Ask(Kind.DELETE_BEFORE, m.DeleteBefore(END), To.leader(found.id, number))
                       for number in range(len(found.partitions))])


def _check_not_internal(name: str) -> None:
    if is_internal(name):
        raise Forbidden(f"{name} is internal: the daemons remove what they no longer need")


def partitions(routes: Routes, name: str) -> Operation[list[m.PartitionInfo]]:
    """Offsets and sizes of each partition, in order."""
    found = yield from topic(routes, name)
    nodes = sorted({part.leader for part in found.partitions if part.leader})
    replies = yield from all_of([Ask(Kind.PARTITIONS, m.Partitions([found.id]), To.node("logd", node)) for node in nodes])
    every = [part for reply in replies for part in reply.partitions if part.leader]
    return sorted(every, key=lambda part: part.partition)


def offset_for_time(routes: Routes, name: str, partition: int, timestamp_us: int) -> Operation[int]:
    """The first offset at or after a time (Unix microseconds); the log end when there is none."""
    to = yield from _leader(routes, name, partition)
    reply, _ = yield Ask(Kind.OFFSET_FOR_TIME, m.OffsetForTime(timestamp_us), to)
    return cast("m.OffsetForTimeReply", reply).offset


def _leader(routes: Routes, name: str, partition: int) -> Operation[To]:
    found = yield from topic(routes, name)
    return To.leader(found.id, routes.check_partition(found, partition))


def all_of(asks: list[Ask]) -> Operation[list[Any]]:
    """The bodies of their replies; the first error is raised when all have ended."""
    if not asks:
        return []
    bodies = []
    for result in (yield asks):
        if isinstance(result, GoQueueError):
            raise result
        bodies.append(result[0])
    return bodies


# -- groups -----------------------------------------------------------------------------

def groups(routes: Routes) -> Operation[list[m.GroupSummary]]:
    """All groups of all coordinators, by name."""
    yield from refresh(routes)
    nodes = sorted(node for daemon, node in routes.daemons if daemon == "groupd")
    replies = yield from all_of([Ask(Kind.LIST_GROUPS, m.ListGroups(), To.node("groupd", node)) for node in nodes])
    return sorted((group for reply in replies for group in reply.groups), key=lambda group: group.group)


def describe_group(routes: Routes, group: str, *, lanes: bool = False) -> Operation[m.GroupInfo]:
    """Members, assignment, and per partition: committed, lag, in flight; lanes: also per priority. UnknownGroup."""
    reply, _ = yield Ask(Kind.DESCRIBE_GROUP, m.DescribeGroup(group, lanes), To.group(group))
    return cast("m.GroupInfo", reply)


def delete_group(routes: Routes, group: str, *, force: bool = False) -> Operation[None]:
    """Forget a group and what it acked. UnknownGroup; GroupNotEmpty while it has members, unless `force`."""
    yield Ask(Kind.DELETE_GROUP, m.DeleteGroup(group, force), To.group(group), safe=False)


def pause_group(routes: Routes, group: str, paused: bool = True) -> Operation[None]:
    """No new leases until it is resumed; what is leased goes on."""
    yield Ask(Kind.PAUSE, m.Pause(group, paused), To.group(group))


def mark(routes: Routes, group: str, marks: Sequence[m.Mark1], *, create: bool = False) -> Operation[list[int]]:
    """Ack and un-ack ranges by hand (see messages.Mark); the messages that changed, per mark."""
    if not marks:
        return []
    reply, _ = yield Ask(Kind.MARK, m.Mark(group, list(marks), create), To.group(group))
    return cast("m.MarkReply", reply).changed


def commit(routes: Routes, group: str, name: str, partition: int, offset: int) -> Operation[int]:
    """Ack everything below `offset`; how many that were."""
    found = yield from _found(routes, name, partition)
    changed = yield from mark(routes, group, [m.Mark1(found.id, partition, True, 0, offset)], create=True)
    return changed[0]


def reset(routes: Routes, group: str, name: str, partition: int, offset: int) -> Operation[tuple[int, int]]:
    """Go on at `offset`: what is below is done, what is at or above comes (again). (acked, un-acked)."""
    found = yield from _found(routes, name, partition)
    marks = [m.Mark1(found.id, partition, True, 0, offset), m.Mark1(found.id, partition, False, offset, END)]
    changed = yield from mark(routes, group, marks, create=True)
    return changed[0], changed[1]


def rewind(routes: Routes, group: str, name: str, partition: int, low: int, high: int = END) -> Operation[int]:
    """Have [low, high) delivered again, attempts from 0; how many were un-acked. UnknownGroup."""
    found = yield from _found(routes, name, partition)
    changed = yield from mark(routes, group, [m.Mark1(found.id, partition, False, low, high)])
    return changed[0]


def _found(routes: Routes, name: str, partition: int) -> Operation[m.TopicMeta]:
    found = yield from topic(routes, name)
    routes.check_partition(found, partition)
    return found


# -- receipts ------------------------------------------------------------------------------

def settle(routes: Routes, op: Op, receipts: Iterable[Receipt], *, arg_ms: int = -1,
           reason: str = "") -> Operation[list[GoQueueError | None]]:
    """One op on messages named by receipts, from any process; None or an error (StaleReceipt, ...) for each, in order."""
    given = list(receipts)
    by_partition: dict[int, list[int]] = {}
    for index, receipt in enumerate(given):
        by_partition.setdefault(receipt.groups_partition, []).append(index)
    asks = [Ask(Kind.SETTLE_RECEIPTS, m.SettleReceipts([_item(op, given[i], arg_ms, reason) for i in indexes]),
                To.groups(partition))
            for partition, indexes in by_partition.items()]
    results: list[GoQueueError | None] = [None] * len(given)
    for indexes, answer in zip(by_partition.values(), (yield asks) if asks else [], strict=True):
        for place, index in enumerate(indexes):
            results[index] = answer if isinstance(answer, GoQueueError) else _outcome(answer[0].settled[place])
    return results


def _item(op: Op, receipt: Receipt, arg_ms: int, reason: str) -> m.Receipt1:
    return m.Receipt1(op, receipt.topic, receipt.partition, receipt.offset, receipt.delivery, receipt.group_number, receipt.lease,
                      receipt.random, arg_ms, reason)


def _outcome(result: m.SettleResult) -> GoQueueError | None:
    return error_of(result.error, result.message) if result.error else None


# -- keys ----------------------------------------------------------------------------------

def create_key(routes: Routes, name: str, scopes: Sequence[m.Scope] = (), *, expires_us: int = 0, curve: str = "",
               node: bool = False) -> Operation[m.CreateKeyReply]:
    """Make an API key; its `token` is in this answer and nowhere else. AlreadyExists, BadName, BadRequest."""
    reply, _ = yield Ask(Kind.CREATE_KEY, m.CreateKey(name, list(scopes), expires_us, curve, node), METAD, safe=False)
    return cast("m.CreateKeyReply", reply)


def keys(routes: Routes) -> Operation[list[m.KeyMeta]]:
    """All keys, without what they are checked by."""
    reply, _ = yield Ask(Kind.LIST_KEYS, m.ListKeys(), METAD)
    return cast("m.ListKeysReply", reply).keys


def revoke_key(routes: Routes, key: str) -> Operation[m.RevokeKeyReply]:
    """By id or name. NotFound."""
    reply, _ = yield Ask(Kind.REVOKE_KEY, m.RevokeKey(key), METAD, safe=False)
    return cast("m.RevokeKeyReply", reply)


# -- daemons -------------------------------------------------------------------------------

def statuses(routes: Routes) -> Operation[list[m.StatusReply | GoQueueError]]:
    """What each registered daemon says of itself, or why it does not."""
    yield from refresh(routes)
    asks = [Ask(Kind.STATUS, m.Empty(), METAD)]
    asks += [Ask(Kind.STATUS, m.Empty(), To.node(daemon, node)) for daemon, node in sorted(routes.daemons) if daemon != "metad"]
    return [answer if isinstance(answer, GoQueueError) else answer[0] for answer in (yield asks)]


def has_topic(routes: Routes, name: str) -> Operation[bool]:
    """Is there such a topic?"""
    try:
        yield from topic(routes, name)
    except UnknownTopic:
        return False
    return True


class Admin:
    """The operations above as methods; both clients have them."""

    refresh = Method(refresh)
    topic = Method(topic)
    topics = Method(topics)
    has_topic = Method(has_topic)
    create_topic = Method(create_topic)
    alter_topic = Method(alter_topic)
    delete_topic = Method(delete_topic)
    delete_before = Method(delete_before)
    purge = Method(purge)
    partitions = Method(partitions)
    offset_for_time = Method(offset_for_time)
    groups = Method(groups)
    describe_group = Method(describe_group)
    delete_group = Method(delete_group)
    pause_group = Method(pause_group)
    mark = Method(mark)
    commit = Method(commit)
    reset = Method(reset)
    rewind = Method(rewind)
    settle = Method(settle)
    create_key = Method(create_key)
    keys = Method(keys)
    revoke_key = Method(revoke_key)
    statuses = Method(statuses)

"""Which right a request needs, by its kind: the one table that all daemons check callers with a key by.

Owns the table and what it means: a verb on every topic and group that the request names; NODE is for daemons alone (a kind that is
not in the table, too). KEY: any valid key will do, and `shown` leaves out of the reply what the key has nothing to do with. Pure;
a caller over a trusted way (ipc, mostly) never gets here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from gq_proto import messages as m
from gq_proto.access import ANY, NODE, Access, Names
from gq_proto.keys import ADMIN, CONSUME, PUBLISH
from gq_proto.messages import Kind
from gq_proto.names import is_internal

KEY: Final = "key"               # whatever its scopes
OWNER: Final = "owner"           # admin of all topics and groups


def _envelope(topic_id: int, body: Any) -> Iterable[int]:
    return (topic_id,)


def _envelope_if_any(topic_id: int, body: Any) -> Iterable[int]:
    return (topic_id,) if topic_id else ()


def _parts(topic_id: int, body: Any) -> Iterable[int]:
    return [part.topic_id for part in body.parts]


def _items(topic_id: int, body: Any) -> Iterable[int]:
    return [item.topic_id for item in body.items]


@dataclass(frozen=True)
class Right:
    """`verb` may depend on the body. `ids`: topics by id, `names`: by name, `group`: the group that the request is about."""

    verb: str | Callable[[Any], str]
    ids: Callable[[int, Any], Iterable[int]] | None = None
    names: Callable[[Any], Iterable[str]] | None = None
    group: Callable[[Any], str] | None = None
    shown: Callable[[Access, Any], Any] | None = None


def check(access: Access, kind: int, topic_id: int, body: Any, names: Names) -> None:
    """Forbidden, or UnknownTopicId. `topic_id` is the envelope's, names(id) a topic's name."""
    if access.node:
        return
    right = RIGHTS.get(kind, DAEMONS_ONLY)
    verb = right.verb if isinstance(right.verb, str) else right.verb(body)
    if verb == KEY:
        return
    if verb == NODE or (verb == OWNER and not access.owns_all()):
        raise access.refusal(verb)
    if right.ids:
        for id in right.ids(topic_id, body):
            access.need_id(verb, id, names)
    group = right.group(body) if right.group else ""
    if right.names:
        for name in right.names(body):
            access.need(verb, name, group)
    if right.group:
        access.need(verb, "", group)
    if not (right.ids or right.names or right.group) and verb != OWNER:
        access.need(verb)


def shown(access: Access, kind: int, body: Any) -> Any:
    """What of a reply the caller may see."""
    right = RIGHTS.get(kind, DAEMONS_ONLY)
    return body if access.node or right.shown is None else right.shown(access, body)


# -- what is shown -------------------------------------------------------------------------

def _metadata(access: Access, reply: Any) -> Any:
    """Internal topics are there for routing: where a group's coordinator is."""
    topics = [topic for topic in reply.topics if is_internal(topic.name) or access.sees(topic.name)]
    return replace(reply, topics=topics, keys=None)


def _partitions(access: Access, reply: Any) -> Any:
    return replace(reply, partitions=[part for part in reply.partitions if access.sees(part.topic)])


def _group(access: Access, reply: Any) -> Any:
    members = [replace(member, topics=_seen(access, member.topics),
                       assignment=[part for part in member.assignment if access.sees(part.topic)]) for member in reply.members]
    return replace(_partitions(access, reply), members=members, topics=_seen(access, reply.topics))


def _groups(access: Access, reply: Any) -> Any:
    return replace(reply, groups=[replace(group, topics=_seen(access, group.topics))
                                  for group in reply.groups if access.sees_group(group.group)])


def _seen(access: Access, topics: list[str]) -> list[str]:
    return [topic for topic in topics if access.sees(topic)]


# -- the table -----------------------------------------------------------------------------

def _asks_as_key(body: m.Metadata) -> str:
    return NODE if body.applied_by or body.keys or body.follower else KEY


def _or_node(verb: str) -> Callable[[Any], str]:
    return lambda body: NODE if body.internal else verb


def _making(body: m.CreateTopic) -> str:
    return NODE if body.internal else PUBLISH if body.auto else ADMIN


def _producing(body: m.InitProducer) -> str:
    """The next epoch of a known producer fences it. Producers have no owner that a key could be, so that is for daemons."""
    return PUBLISH if body.producer_id < 0 else NODE


def _name(body: Any) -> Iterable[str]:
    return (body.name,)


def _one_group(body: Any) -> str:
    name: str = body.group
    return name


DAEMONS_ONLY: Final = Right(NODE)
RIGHTS: Final[dict[int, Right]] = {
    Kind.STATUS: Right(KEY),

    Kind.PRODUCE: Right(_or_node(PUBLISH), _parts),
    Kind.FETCH: Right(CONSUME, _parts),
    Kind.RUNS: Right(CONSUME, _envelope),
    Kind.DUE: Right(CONSUME, _envelope),
    Kind.OFFSET_FOR_TIME: Right(CONSUME, _envelope),
    Kind.END_OF_EPOCH: Right(CONSUME, _envelope),
    Kind.WRITE_MARKER: DAEMONS_ONLY,
    Kind.DELETE_BEFORE: Right(ADMIN, _envelope),
    Kind.WATCH: Right(CONSUME, _parts),
    Kind.PARTITIONS: Right(KEY, shown=_partitions),
    Kind.REPLICA_FETCH: DAEMONS_ONLY,

    Kind.METADATA: Right(_asks_as_key, shown=_metadata),
    Kind.CREATE_TOPIC: Right(_making, names=_name),
    Kind.ALTER_TOPIC: Right(_or_node(ADMIN), names=_name),
    Kind.DELETE_TOPIC: Right(_or_node(ADMIN), names=_name),
    Kind.INIT_PRODUCER: Right(_producing),
    Kind.REGISTER: DAEMONS_ONLY,
    Kind.CREATE_KEY: Right(OWNER),
    Kind.LIST_KEYS: Right(OWNER),
    Kind.REVOKE_KEY: Right(OWNER),
    Kind.CHECK_KEY: DAEMONS_ONLY,

    Kind.JOIN: Right(CONSUME, names=lambda body: body.topics, group=_one_group),
    Kind.LEAVE: Right(CONSUME, group=_one_group),
    Kind.HEARTBEAT: Right(CONSUME, group=_one_group),
    Kind.POLL: Right(CONSUME, group=_one_group),
    Kind.SETTLE: Right(CONSUME, group=_one_group),
    Kind.SETTLE_RECEIPTS: Right(CONSUME, names=lambda body: {item.topic for item in body.items}),
    Kind.MARK: Right(CONSUME, _items, group=_one_group),
    Kind.DESCRIBE_GROUP: Right(ANY, group=_one_group, shown=_group),
    Kind.LIST_GROUPS: Right(KEY, shown=_groups),
    Kind.DELETE_GROUP: Right(ADMIN, group=_one_group),
    Kind.PAUSE: Right(ADMIN, group=_one_group),

    Kind.LIST_DELAYED: Right(CONSUME, _envelope),
    Kind.CANCEL_DELAYED: Right(PUBLISH, _envelope),
    Kind.DELAY_STATS: Right(ANY, _envelope_if_any, shown=_partitions),
}

"""metad's decisions: requests in, entries and answers out. Pure: time, chance and disk are the shell's.

Owns soft state beside State: who waits for a change (long polls), who waits until the leaders have applied one (topic changes)
or the daemons know one (keys), what each said it knows, which reserved producer ids are left. Losing it is harmless: callers ask
again.

A handler decides, then `_commit` emits the entry and applies it at once, so that the next decision sees it. The shell holds
answers back until the entries before them are on the disk; if they can't be written it calls `restore` with what is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from gq_metad import entries, keys, topics
from gq_metad.effects import Append, Call, Effect, Fail, Reply
from gq_metad.spread import Change, Spread, Who
from gq_metad.state import LOGD, State
from gq_proto import limits, messages
from gq_proto.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Fenced,
    Forbidden,
    GoQueueError,
    TimedOut,
    Unavailable,
    UnknownKind,
    UnknownTopic,
)
from gq_proto.keys import public
from gq_proto.messages import Kind, PartitionMeta, TopicMeta
from gq_proto.names import DLQ_SUFFIX, check_name, is_dlq, is_internal, topic_of_dlq

EPOCH_MAX: Final = 0x7FFF          # of a producer: an i16 in the record format
ENDPOINTS_MAX: Final = 16
ENDPOINT_LENGTH_MAX: Final = 300
MARGIN_S: Final = 0.2              # an answer leaves so long before its caller gives up, or
MARGIN_SHARE: Final = 0.1          # this share of the caller's patience, whichever is less
HEARD_S: Final = 2 * limits.LONG_POLL_MS_MAX / 1000     # a daemon that asked nothing for longer counts as down


@dataclass
class Unconfirmed:
    """A topic change that is answered when the leaders have applied `version`."""

    call: Call
    topic_id: int
    version: int
    nodes: frozenset[str] | None       # None: whoever leads the topic's partitions by then
    answer: messages.Body
    deadline: float


@dataclass
class Poller:
    """A follower who knows all there is."""

    call: Call
    until: float


@dataclass
class Turn:
    """One step in the making."""

    now: float
    wall_us: int
    effects: list[Effect] = field(default_factory=list)


class Core:
    """`new_id(bits)`: chance, from the shell. `state` is read by anyone, changed by apply alone."""

    def __init__(self, defaults: topics.Defaults, new_id: Callable[[int], int], state: State | None = None) -> None:
        self._defaults, self._new_id = defaults, new_id
        self.state = state or State()
        self._pollers: list[Poller] = []
        self._unconfirmed: list[Unconfirmed] = []
        self._applied: dict[str, int] = {}                      # logd's node id -> version
        self._next_producer = self.state.producers_until
        self._identity: dict[bytes, tuple[str, str]] = {}       # connection -> (daemon, node id)
        self._heard: dict[tuple[str, str], float] = {}          # when it last asked anything
        self._spread = Spread(self._is_up)

    # -- the face ------------------------------------------------------------------------------

    def bootstrap(self, now: float, wall_us: int) -> list[Effect]:
        """What a new cluster begins with; nothing on one that has it."""
        turn = Turn(now, wall_us)
        if not self.state.cluster_id:
            self._commit(turn, entries.ClusterMade(f"{self._new_id(64):016x}"))
        for name in topics.INTERNAL_TOPICS:
            if name not in self.state.ids:
                config = topics.changed(self._defaults.config, topics.INTERNAL_CONFIG, self._defaults.config)
                self._commit(turn, entries.TopicPut(self._new_topic(turn, name, limits.GROUPS_PARTITIONS, config)))
        return self._done(turn, self.state.version)

    def step(self, now: float, wall_us: int, call: Call) -> list[Effect]:
        """One request."""
        turn = Turn(now, wall_us)
        version = self.state.version
        self._hear(now, call)
        try:
            handler = _HANDLERS.get(call.kind)
            if handler is None:
                raise UnknownKind(f"request kind {call.kind} is not metad's")
            handler(self, turn, call, call.body)
        except GoQueueError as e:
            turn.effects.append(Fail(call, e))
        return self._done(turn, version)

    def due(self, now: float) -> list[Effect]:
        """Answers to those whose patience ends."""
        over = [p for p in self._pollers if p.until <= now]
        late = [u for u in self._unconfirmed if u.deadline <= now]
        self._pollers = [p for p in self._pollers if p.until > now]
        self._unconfirmed = [u for u in self._unconfirmed if u.deadline > now]
        unchanged = [Reply(p.call, self._metadata_since(p.call.body)) for p in over]
        return [*unchanged, *(Fail(u.call, self._lateness(u)) for u in late), *self._spread.due(now)]

    def next_deadline(self) -> float | None:
        """When due() has something to do; None: not by itself."""
        waiting = [p.until for p in self._pollers] + [u.deadline for u in self._unconfirmed]
        spread = self._spread.next_deadline()
        return min(waiting if spread is None else [*waiting, spread], default=None)

    def restore(self, state: State, error: GoQueueError) -> list[Effect]:
        """The log refused the last entries with `error`: go on from what it has. Followers know nothing newer and wait on."""
        lost = [u for u in self._unconfirmed if u.version > state.version]
        self._unconfirmed = [u for u in self._unconfirmed if u.version <= state.version]
        self.state, self._next_producer = state, state.producers_until
        return [*(Fail(u.call, error) for u in lost), *self._spread.restore(state.version, error)]

    def up(self, now: float) -> dict[tuple[str, str], bool]:
        """Of each registered daemon: was it heard of lately."""
        return {key: self._is_up(key, now) for key in self.state.daemons}

    def _is_up(self, who: Who, now: float) -> bool:
        return now - self._heard.get(who, -HEARD_S) < HEARD_S

    # -- shared by the handlers ------------------------------------------------------------------

    def _commit(self, turn: Turn, entry: entries.AnyEntry) -> None:
        turn.effects.append(Append(entry))
        self.state.apply(entry)

    def _done(self, turn: Turn, version: int) -> list[Effect]:
        """Wake the followers if there is news for them."""
        if self.state.version != version:
            pollers, self._pollers = self._pollers, []
            turn.effects += [Reply(p.call, self._metadata_since(p.call.body)) for p in pollers]
        return turn.effects

    def _hear(self, now: float, call: Call) -> None:
        identity = self._identity.get(call.peer)
        if identity:
            self._heard[identity] = now

    def _topic(self, name: str, internal: bool) -> TopicMeta:
        topic = self.state.topic(check_name("topic", name))
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        _check_allowed(name, internal)
        return topic

    def _when_applied(self, turn: Turn, call: Call, topic_id: int, version: int, answer: messages.Body,
                      nodes: frozenset[str] | None = None) -> None:
        """Answer once the leaders have it, which may be now."""
        margin = min(MARGIN_S, MARGIN_SHARE * (call.deadline - turn.now))
        waiting = Unconfirmed(call, topic_id, version, nodes, answer, call.deadline - margin)
        if self._is_applied(waiting):
            turn.effects.append(Reply(call, answer))
        else:
            self._unconfirmed.append(waiting)

    def _is_applied(self, waiting: Unconfirmed) -> bool:
        nodes = self._leaders(waiting.topic_id) if waiting.nodes is None else waiting.nodes
        return all(self._applied.get(node, 0) >= waiting.version for node in nodes)

    def _leaders(self, topic_id: int) -> frozenset[str]:
        """"" among them while a partition has none: never confirmed. Of a deleted topic: nobody."""
        topic = self.state.topics.get(topic_id)
        return frozenset(p.leader for p in topic.partitions) if topic else frozenset()

    def _lateness(self, waiting: Unconfirmed) -> GoQueueError:
        nodes = self._leaders(waiting.topic_id) if waiting.nodes is None else waiting.nodes
        missing = sorted(node for node in nodes if self._applied.get(node, 0) < waiting.version)
        if "" in missing:
            return Unavailable("the change is made, but no logd has registered yet to carry it out: start one")
        return TimedOut(f"the change is made, but logd of {', '.join(missing)} has not confirmed it yet: see its status")

    def _room(self) -> None:
        if len(self._pollers) + len(self._unconfirmed) + len(self._spread) >= limits.METADATA_WAITERS_MAX:
            raise Busy(f"{limits.METADATA_WAITERS_MAX} requests wait already: back off")

    # -- following ---------------------------------------------------------------------------------

    def _metadata(self, turn: Turn, call: Call, body: messages.Metadata) -> None:
        if body.applied_by and (LOGD, body.applied_by) in self.state.daemons:
            self._take_applied(turn, body.applied_by, body.known_version)
        if body.follower:
            self._take_follower(turn, call, body)
        if body.known_version == self.state.version and body.max_wait_ms > 0:
            self._room()
            patience_s = min(body.max_wait_ms, limits.LONG_POLL_MS_MAX) / 1000
            margin = min(MARGIN_S, MARGIN_SHARE * (call.deadline - turn.now))
            self._pollers.append(Poller(call, min(turn.now + patience_s, call.deadline - margin)))
        else:
            turn.effects.append(Reply(call, self._metadata_since(body)))

    def _take_applied(self, turn: Turn, node_id: str, version: int) -> None:
        self._applied[node_id] = min(version, self.state.version)
        waiting, self._unconfirmed = self._unconfirmed, []
        for change in waiting:
            if self._is_applied(change):
                turn.effects.append(Reply(change.call, change.answer))
            else:
                self._unconfirmed.append(change)

    def _take_follower(self, turn: Turn, call: Call, body: messages.Metadata) -> None:
        """A registered daemon is there, and knows this much."""
        daemon, _, node_id = body.follower.partition("/")
        who = (daemon, node_id)
        if who not in self.state.daemons:
            return
        if self._identity.get(call.peer) != who:
            self._identify(call.peer, who)
        self._heard[who] = turn.now
        turn.effects += self._spread.know(turn.now, who, min(body.known_version, self.state.version))

    def _metadata_since(self, body: messages.Metadata) -> messages.MetadataReply:
        state, known = self.state, body.known_version
        full = known <= 0 or known < state.forgotten or known > state.version
        if full:
            known = 0
        wanted = None if body.topics is None else frozenset(body.topics)
        found = [t for t in state.changed_since(known) if wanted is None or t.name in wanted]
        # Who begins knows no topic; only a logd may have a folder of one that is gone.
        deleted = [t for t, version in state.tombstones.items() if version > known] if body.applied_by or not full else []
        told = list(state.keys.values()) if body.keys and (full or state.keys_version > known) else None
        return messages.MetadataReply(state.version, found, deleted, list(state.daemons.values()), state.cluster_id, full, told)

    # -- topics ----------------------------------------------------------------------------------------

    def _create(self, turn: Turn, call: Call, body: messages.CreateTopic) -> None:
        self._room()
        existing = self.state.topic(check_name("topic", body.name))
        if existing is None:
            _check_allowed(body.name, body.internal)
            topic = self._decide_topic(turn, body)
            self._commit(turn, entries.TopicPut(topic))
            self._answer_topic(turn, call, topic.id, created=True)
        elif body.if_not_exists:
            self._answer_topic(turn, call, existing.id)
        else:
            raise AlreadyExists(f"the topic {body.name} exists already")

    def _decide_topic(self, turn: Turn, body: messages.CreateTopic) -> TopicMeta:
        if body.auto and not self._defaults.auto_create:
            raise UnknownTopic(f"there is no topic {body.name}, and defaults.topic.autoCreateTopics is off: create it first")
        if len(self.state.topics) >= limits.TOPICS_MAX:
            raise Busy(f"there are {limits.TOPICS_MAX} topics: delete one first")
        topics.check_replication_factor(body.replication_factor or self._defaults.replication_factor)
        partitions = topics.check_partitions(body.partitions or self._default_partitions(body.name))
        config = topics.changed(self._defaults.config, body.config, self._defaults.config)
        return self._new_topic(turn, body.name, partitions, config)

    def _default_partitions(self, name: str) -> int:
        origin = self.state.topic(topic_of_dlq(name)) if is_dlq(name) else None
        return len(origin.partitions) if origin else self._defaults.partitions

    def _new_topic(self, turn: Turn, name: str, partitions: int, config: messages.TopicConfig) -> TopicMeta:
        return TopicMeta(name, self._new_topic_id(), config, self._place(partitions), 1, turn.wall_us)

    def _new_topic_id(self) -> int:
        while True:
            topic_id = self._new_id(63)
            if topic_id and topic_id not in self.state.topics and topic_id not in self.state.tombstones:
                return topic_id

    def _place(self, count: int) -> list[PartitionMeta]:
        """New partitions, each led by the logd that leads the fewest; by none while none is registered."""
        led = {node: n for node, n in self.state.led().items() if node}
        total = sum(len(topic.partitions) for topic in self.state.topics.values())
        if total + count > limits.PARTITIONS_TOTAL_MAX:
            raise Busy(f"there are {total} partitions of {limits.PARTITIONS_TOTAL_MAX} at most: delete a topic first")
        placed = []
        for _ in range(count):
            node = min(led, key=led.__getitem__, default="")
            if node:
                led[node] += 1
            placed.append(PartitionMeta(node, 1, [node], [node]) if node else PartitionMeta("", 0))
        return placed

    def _answer_topic(self, turn: Turn, call: Call, topic_id: int, *, created: bool = False) -> None:
        topic = self.state.topics[topic_id]
        self._when_applied(turn, call, topic_id, topic.version, messages.TopicReply(topic, topic.version, created))

    def _alter(self, turn: Turn, call: Call, body: messages.AlterTopic) -> None:
        self._room()
        topic = self._topic(body.name, body.internal)
        count = len(topic.partitions)
        grown = topics.check_partitions(body.partitions or count)
        if grown < count:
            raise BadRequest(f"partitions is {grown}, but {body.name} has {count}: there can't be fewer")
        if grown > count and body.name in topics.INTERNAL_TOPICS:
            raise Forbidden(f"{body.name} has {count} partitions for ever")
        config = topics.changed(topic.config, body.config, self._defaults.config)
        # The DLQ first: it has room for every partition before anything can die in a new one.
        dlq = self.state.topic(body.name + DLQ_SUFFIX)
        if dlq and grown > count:
            self._grow(turn, dlq, max(grown, len(dlq.partitions)), dlq.config)
        self._grow(turn, topic, grown, config)
        self._answer_topic(turn, call, topic.id)

    def _grow(self, turn: Turn, topic: TopicMeta, partitions: int, config: messages.TopicConfig) -> None:
        more = self._place(partitions - len(topic.partitions))
        if more or config != topic.config:
            self._commit(turn, entries.TopicPut(replace(topic, partitions=[*topic.partitions, *more], config=config)))

    def _delete(self, turn: Turn, call: Call, body: messages.DeleteTopic) -> None:
        self._room()
        topic = self._topic(body.name, body.internal)
        if body.name in topics.INTERNAL_TOPICS:
            raise Forbidden(f"{body.name} is where the daemons keep their state")
        nodes = self._leaders(topic.id) - {""}
        self._commit(turn, entries.TopicDeleted(topic.id))
        answer = messages.DeleteTopicReply(topic.id, self.state.version)
        self._when_applied(turn, call, topic.id, self.state.version, answer, nodes)

    # -- producers, daemons ----------------------------------------------------------------------------

    def _init_producer(self, turn: Turn, call: Call, body: messages.InitProducer) -> None:
        if body.producer_id < 0:
            turn.effects.append(Reply(call, messages.InitProducerReply(self._take_producer(turn), 0)))
            return
        if body.producer_id >= self.state.producers_until or not body.producer_id:
            raise BadRequest(f"producer id {body.producer_id} was never given out: ask for a new one with -1")
        current = self.state.producer_epochs.get(body.producer_id, 0)
        if body.epoch >= 0 and body.epoch != current:
            raise Fenced(f"producer {body.producer_id} is at epoch {current}, not {body.epoch}: a newer one has taken over")
        if current >= EPOCH_MAX:
            raise Fenced(f"producer {body.producer_id} has used up its epochs: ask for a new id with -1")
        self._commit(turn, entries.ProducerBumped(body.producer_id, current + 1))
        turn.effects.append(Reply(call, messages.InitProducerReply(body.producer_id, current + 1)))

    def _take_producer(self, turn: Turn) -> int:
        if self._next_producer >= self.state.producers_until:
            self._commit(turn, entries.ProducersReserved(self._next_producer + limits.PRODUCER_IDS_BLOCK))
        self._next_producer += 1
        return self._next_producer - 1

    def _register(self, turn: Turn, call: Call, body: messages.Register) -> None:
        check_name("node", body.node_id)
        check_name("daemon", body.daemon)
        if not 1 <= len(body.endpoints) <= ENDPOINTS_MAX or max(map(len, body.endpoints)) > ENDPOINT_LENGTH_MAX:
            raise BadRequest(f"register with 1 to {ENDPOINTS_MAX} endpoints of up to {ENDPOINT_LENGTH_MAX} characters")
        key = (body.daemon, body.node_id)
        if key not in self.state.daemons and len(self.state.daemons) >= limits.DAEMONS_MAX:
            raise Busy(f"{limits.DAEMONS_MAX} daemons are registered")
        self._take_node(turn, call, body)
        self._commit(turn, entries.DaemonRegistered(body.node_id, body.daemon, body.endpoints, body.curve))
        if body.daemon == LOGD:
            self._applied[body.node_id] = 0
        self._identify(call.peer, key)
        self._heard[key] = turn.now
        incarnation = self.state.daemons[key].incarnation
        turn.effects.append(Reply(call, messages.RegisterReply(incarnation, self.state.version, self.state.cluster_id)))

    def _identify(self, peer: bytes, who: Who) -> None:
        self._identity = {other: known for other, known in self._identity.items() if known != who} | {peer: who}

    def _take_node(self, turn: Turn, call: Call, body: messages.Register) -> None:
        """Its CURVE key becomes known to all; who came by one may give no other."""
        if call.access and body.curve not in ("", call.access.key.curve):
            raise Forbidden(f"the CURVE key of node {body.node_id} is not the one it came by")
        key = keys.of_node(self.state, body.node_id, body.curve, turn.wall_us, self._new_id)
        if key:
            self._commit(turn, entries.KeyPut(key))

    # -- keys ------------------------------------------------------------------------------------------

    def _create_key(self, turn: Turn, call: Call, body: messages.CreateKey) -> None:
        self._room()
        key, token = keys.decide(self.state, body, turn.wall_us, self._new_id)
        self._commit(turn, entries.KeyPut(key))
        self._when_known(turn, call, lambda late: messages.CreateKeyReply(public(key), token, late))

    def _revoke_key(self, turn: Turn, call: Call, body: messages.RevokeKey) -> None:
        self._room()
        key = keys.existing(self.state, body.key)
        self._commit(turn, entries.KeyRevoked(key.id))
        self._when_known(turn, call, lambda late: messages.RevokeKeyReply(public(key), late))

    def _list_keys(self, turn: Turn, call: Call, body: messages.ListKeys) -> None:
        turn.effects.append(Reply(call, messages.ListKeysReply([public(key) for key in self.state.keys.values()])))

    def _check_key(self, turn: Turn, call: Call, body: messages.CheckKey) -> None:
        turn.effects.append(Reply(call, messages.CheckKeyReply(keys.owner(self.state, body.token, turn.wall_us))))

    def _when_known(self, turn: Turn, call: Call, answer: Callable[[list[str]], messages.Body]) -> None:
        """Answer once the daemons have the keys as they are now."""
        margin = min(MARGIN_S, MARGIN_SHARE * (call.deadline - turn.now))
        turn.effects += self._spread.wait(turn.now, Change(call, self.state.version, call.deadline - margin, answer))


Handler = Callable[[Core, Turn, Call, Any], None]
_HANDLERS: Final[dict[int, Handler]] = {
    Kind.METADATA: Core._metadata,
    Kind.CREATE_TOPIC: Core._create,
    Kind.ALTER_TOPIC: Core._alter,
    Kind.DELETE_TOPIC: Core._delete,
    Kind.INIT_PRODUCER: Core._init_producer,
    Kind.REGISTER: Core._register,
    Kind.CREATE_KEY: Core._create_key,
    Kind.LIST_KEYS: Core._list_keys,
    Kind.REVOKE_KEY: Core._revoke_key,
    Kind.CHECK_KEY: Core._check_key,
}


def _check_allowed(name: str, internal: bool) -> None:
    if is_internal(name) and not internal:
        raise Forbidden(f"{name} is internal: names that begin with __ belong to the daemons")

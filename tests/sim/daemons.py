"""The daemons of the simulation: a model of gq_metad, and the real LogCore and the real groupd (core, journal, watch, copier) in
shells that know no socket.

Each has lives: start() begins one, kill() ends it with nothing but its disk kept. Everything a life has scheduled dies with it.
"""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from gq_groupd import hosted as hosted_module
from gq_groupd.core import Core, Settings
from gq_groupd.dead_letters import DeadLetters
from gq_groupd.hosted import Hosted, Shared
from gq_logd.config import LogConfig
from gq_logd.core import LogCore
from gq_logd.effects import Fail, Remove, Reply, Sync
from gq_logd.partition import Partition
from gq_proto import messages as m
from gq_proto.errors import GoQueueError, NotCoordinator, Unavailable, UnknownTopicId
from gq_proto.messages import Kind
from gq_proto.names import GROUPS_TOPIC
from gq_run.watcher import Watcher
from tests.sim.disk import FakeDisk
from tests.sim.world import Call, Done, Line, Server, World

NODE = "n1"
Key = tuple[int, int]


class Metad:
    """Topics, epochs, producers. Never loses anything: it is not what is tested. `tell` hears of every change."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.topics: dict[int, m.TopicMeta] = {}
        self.deleted: list[int] = []
        self.version = 0
        self._ids = 100
        self._epochs: dict[Key, int] = {}
        self._producers: dict[int, int] = {}
        self.listeners: list[Callable[[m.MetadataReply], None]] = []

    def named(self, name: str) -> m.TopicMeta | None:
        return next((topic for topic in self.topics.values() if topic.name == name), None)

    def create(self, name: str, partitions: int, **config: Any) -> m.TopicMeta:
        self._ids += 1
        topic = m.TopicMeta(name, self._ids, m.TopicConfig(**config), [])
        self.topics[topic.id] = topic
        self.grow(topic, partitions)
        return topic

    def grow(self, topic: m.TopicMeta, partitions: int) -> None:
        for number in range(len(topic.partitions), partitions):
            self._epochs[topic.id, number] = 1
            topic.partitions.append(m.PartitionMeta(NODE, 1))
        self._changed([topic], [])

    def delete(self, topic: m.TopicMeta) -> None:
        del self.topics[topic.id]
        self.deleted.append(topic.id)
        self._changed([], [topic.id])

    def register_logd(self) -> None:
        for topic in self.topics.values():
            for number in range(len(topic.partitions)):
                self._epochs[topic.id, number] += 1
                topic.partitions[number] = m.PartitionMeta(NODE, self._epochs[topic.id, number])
        self._changed(list(self.topics.values()), [])

    def everything(self) -> m.MetadataReply:
        return m.MetadataReply(self.version, list(self.topics.values()), list(self.deleted), [], full=True)

    def _changed(self, topics: list[m.TopicMeta], deleted: list[int]) -> None:
        self.version += 1
        for listener in list(self.listeners):
            listener(m.MetadataReply(self.version, topics, deleted, []))

    def handle(self, call: Call) -> None:
        body = call.body
        if call.kind == Kind.INIT_PRODUCER:
            id = body.producer_id if body.producer_id >= 0 else len(self._producers) + 1
            self._producers[id] = self._producers.get(id, -1) + 1
            call.reply(m.InitProducerReply(id, self._producers[id]))
        elif call.kind == Kind.CREATE_TOPIC:
            topic = self.named(body.name)
            made = topic or self.create(body.name, body.partitions, segment_bytes=65_536)
            call.reply(m.TopicReply(made, self.version, topic is None))
        elif call.kind == Kind.ALTER_TOPIC:
            topic = self.named(body.name)
            if topic is None:
                call.fail(UnknownTopicId("deleted meanwhile"))
            else:
                self.grow(topic, body.partitions)
                call.reply(m.TopicReply(topic, self.version))
        else:
            raise AssertionError(call.kind)


def copied(reply: m.MetadataReply) -> m.MetadataReply:
    """Through the wire."""
    decoded: m.MetadataReply = m.reply_body(m.decode_reply(m.encode_reply(Kind.METADATA, 1, reply)))
    return decoded


class Logd:
    def __init__(self, world: World, metad: Metad, config: LogConfig) -> None:
        self.world, self.metad, self.config = world, metad, config
        self.disk = FakeDisk(world.random)
        self.server: Server | None = None
        self.core: LogCore | None = None
        self._turning = False
        self._timer = -1.0
        metad.listeners.append(self._metadata)

    def start(self) -> None:
        core = LogCore(self.disk, "/data", NODE, self.config)  # type: ignore[arg-type]
        self.core = core
        while core.recover(self.world.now):
            pass
        self.metad.register_logd()
        core.apply(copied(self.metad.everything()), self.world.now, self.world.wall_us())
        self.server = Server(self._handle)
        self._turn_soon()

    def kill(self) -> None:
        if self.server:
            self.server.kill()
        self.server = self.core = None
        self._turning = False
        self._timer = -1.0

    def power_loss(self) -> None:
        assert self.core is None
        self.disk.power_loss()

    def partition(self, key: Key) -> Partition | None:
        return self.core.catalog.partitions.get(key) if self.core else None

    def _metadata(self, reply: m.MetadataReply) -> None:
        """In force at once: CREATE_TOPIC answers only then."""
        if self.core and self.server:
            self.core.apply(copied(reply), self.world.now, self.world.wall_us())
            self._turn_soon()

    def _handle(self, call: Call) -> None:
        assert self.core
        self.core.handle(call, self.world.now)
        for effect in self.core.effects():
            self._do(self.core, effect)
        self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._turning:
            self._turning = True
            core = self.core
            self.world.later(self.world.random.choice((0, 0.0005)), lambda: self._turn(core))

    def _turn(self, core: LogCore | None) -> None:
        if core is None or core is not self.core:
            return
        self._turning = False
        for effect in core.turn(self.world.now, self.world.wall_us()):
            self._do(core, effect)
        when = core.next_deadline(self.world.now, self.world.wall_us())
        if when is not None and not self.world.now < self._timer <= when:
            self._timer = max(when, self.world.now + 0.001)
            self.world.at(self._timer, lambda: self._turn(core))

    def _do(self, core: LogCore, effect: Any) -> None:
        if isinstance(effect, Reply):
            effect.call.reply(effect.body, effect.frames)  # type: ignore[attr-defined]
        elif isinstance(effect, Fail):
            effect.call.fail(effect.error)  # type: ignore[attr-defined]
        elif isinstance(effect, Remove):
            try:
                self.disk.remove_tree(effect.path)
            except NotADirectoryError:
                self.disk.remove(effect.path)
        elif isinstance(effect, Sync):
            self.world.later(self.world.random.uniform(0.0005, 0.02), lambda: self._sync(core, effect))

    def _sync(self, core: LogCore, effect: Sync) -> None:
        if core is self.core:
            error, write_error = effect.carry_out(self.disk)  # type: ignore[arg-type]
            core.synced(effect.job, error, self.world.now, write_error)
            self._turn_soon()


class _Timer:
    def __init__(self) -> None:
        self.live = True

    def cancel(self) -> None:
        self.live = False


class _Loop:
    """gq_run.loop.Loop as far as groupd uses it. Everything ends with a turn; nothing runs once `dead`."""

    def __init__(self, world: World, turn: Callable[[], None]) -> None:
        self._world, self._turn = world, turn
        self.dead = False

    def now(self) -> float:
        return self._world.now

    def wall_us(self) -> int:
        return self._world.wall_us()

    def run(self, call: Callable[[], None]) -> None:
        if not self.dead:
            call()
            self._turn()

    def post(self, call: Callable[[], None]) -> None:
        self._world.later(0, lambda: self.run(call))

    def call_at(self, when: float, call: Callable[[], None]) -> _Timer:
        timer = _Timer()
        self._world.at(when, lambda: self.run(call) if timer.live else None)
        return timer

    def call_later(self, seconds: float, call: Callable[[], None]) -> _Timer:
        return self.call_at(self._world.now + seconds, call)


class _Peers:
    """gq_run.peers.Peers over Lines."""

    def __init__(self, loop: _Loop, topics: dict[int, m.TopicMeta], logd: Line, metad: Line) -> None:
        self._loop, self._topics, self._logd, self._metad = loop, topics, logd, metad

    def topic(self, topic_id: int) -> m.TopicMeta | None:
        return self._topics.get(topic_id)

    def leader_of(self, topic_id: int, partition: int) -> tuple[str, int] | None:
        topic = self._topics.get(topic_id)
        return (NODE, topic.partitions[partition].epoch) if topic and partition < len(topic.partitions) else None

    def later(self, call: Callable[[], None]) -> None:
        self._loop.post(call)

    def _done(self, done: Done) -> Done:
        return lambda body, frames, error: self._loop.run(lambda: done(body, frames, error))

    def to_node(self, node_id: str, kind: Kind, body: m.Body, done: Done, timeout_s: float) -> None:
        self._logd.call(kind, body, self._done(done), timeout_s=timeout_s)

    def to_leader(self, topic_id: int, partition: int, kind: Kind, body: m.Body, done: Done, frames: Sequence[Any] = (), *,
                  timeout_s: float = 10.0, epoch: int = -1) -> None:
        if self.leader_of(topic_id, partition) is None:
            error: GoQueueError = Unavailable("no leader") if topic_id in self._topics else UnknownTopicId("gone")
            self.later(lambda: done(None, [], error))
            return
        self._logd.call(kind, body, self._done(done), frames, timeout_s=timeout_s, topic_id=topic_id, partition=partition,
                        epoch=epoch)

    def to_metad(self, kind: Kind, body: m.Body, done: Done, timeout_s: float = 30.0) -> None:
        self._metad.call(kind, body, self._done(done), timeout_s=timeout_s)


class _Hosted(Hosted):
    """Says when it drops its core."""

    on_drop: Callable[[Hosted], None]

    def _drop(self, error: GoQueueError) -> None:
        self.on_drop(self)
        super()._drop(error)


class Groupd:
    """`watch_reply(call, body)` sees what it answers, at the time of deciding to send it."""

    def __init__(self, world: World, metad: Metad, logd: Logd, settings: Settings) -> None:
        self.world, self.metad, self.logd, self.settings = world, metad, logd, settings
        self.server: Server | None = None
        self.hosted: Hosted | None = None
        self.watch_reply: Callable[[Any, Any], None] = lambda call, body: None
        self.on_drop: Callable[[Hosted], None] = lambda hosted: None
        self._loop: _Loop | None = None
        self._metad_server = Server(metad.handle)
        hosted_module.secrets = SimpleNamespace(randbits=world.random.getrandbits)  # type: ignore[attr-defined]
        metad.listeners.append(self._changed)

    @property
    def core(self) -> Core | None:
        return self.hosted._core if self.hosted and self.hosted.serving else None

    def start(self) -> None:
        loop = self._loop = _Loop(self.world, self._turn)
        self._topics: dict[int, m.TopicMeta] = {topic.id: topic for topic in copied(self.metad.everything()).topics}
        self._line = Line(self.world, lambda: self.logd.server)
        self._peers = _Peers(loop, self._topics, self._line, Line(self.world, lambda: self._metad_server))
        self._watcher = Watcher(loop, self._peers, Hosted.watched)  # type: ignore[arg-type]
        log = SimpleNamespace(debug=_mute, info=_mute, warning=_mute, error=_mute)
        daemon = SimpleNamespace(loop=loop, log=log, server=SimpleNamespace(push=self._push))
        exports = SimpleNamespace(write=_mute, remove=_mute)
        self._shared = Shared(daemon, self._peers, self._watcher, DeadLetters(self._peers), exports,  # type: ignore[arg-type]
                              self.settings, self._topics.values)
        self.server = Server(self._handle)
        self._own()

    def kill(self) -> None:
        if self.hosted:
            self.on_drop(self.hosted)
        if self.server and self._loop:
            self._loop.dead = True
            self._line.close()
            self.server.kill()
        self.server = self.hosted = self._loop = None

    def _changed(self, reply: m.MetadataReply) -> None:
        """Metadata reaches it late."""
        loop = self._loop
        if loop:
            told = copied(reply)
            self.world.later(self.world.random.uniform(0, 0.05), lambda: loop.run(lambda: self._take(told)))

    def _take(self, reply: m.MetadataReply) -> None:
        for topic in reply.topics:
            known = self._topics.get(topic.id)
            newer = known and topic.partitions[0].epoch > known.partitions[0].epoch
            if known is None or len(topic.partitions) > len(known.partitions) or newer:
                self._topics[topic.id] = topic
        for topic_id in self.metad.deleted:
            self._topics.pop(topic_id, None)
        self._own()
        self._watcher.renew()
        if self.hosted:
            current = [self._topics[topic.id] for topic in reply.topics if topic.id in self._topics]
            self.hosted.topics(m.MetadataReply(reply.version, current, reply.deleted, []))

    def _own(self) -> None:
        topic = next(topic for topic in self._topics.values() if topic.name == GROUPS_TOPIC)
        epoch = topic.partitions[0].epoch
        if self.hosted and self.hosted.epoch != epoch:
            self.hosted.close()
            self.hosted = None
        if self.hosted is None:
            _Hosted.on_drop = staticmethod(self.on_drop)  # type: ignore[assignment]
            self.hosted = _Hosted(self._shared, topic.id, 0, epoch)

    def _turn(self) -> None:
        if self.hosted:
            self.hosted.end_turn()
            self._watcher.flush()

    def _push(self, peer: bytes, kind: int, body: m.Body) -> bool:
        line = next((line for line in (self.server.lines if self.server else ()) if line.peer == peer), None)
        return line.push(kind, body) if line else False

    def _handle(self, call: Call) -> None:
        assert self._loop
        self._loop.run(lambda: self._serve(_Watched(call, self)))

    def _serve(self, call: "_Watched") -> None:
        try:
            if self.hosted is None:
                raise NotCoordinator("starting")
            self.hosted.handle(call)
        except GoQueueError as error:
            call.fail(error)


class _Watched:
    """A call whose answer is looked at on its way out."""

    def __init__(self, call: Call, groupd: Groupd) -> None:
        self._call, self._groupd = call, groupd
        self.peer, self.kind, self.partition = call.peer, call.kind, call.partition
        self.body, self.deadline = call.body, call.deadline

    def reply(self, body: m.Body) -> bool:
        self._groupd.watch_reply(self, body)
        return self._call.reply(body)

    def fail(self, error: GoQueueError) -> bool:
        return self._call.fail(error)


def _mute(*args: Any, **kwargs: Any) -> None:
    pass


def topics_of(metad: Metad, names: Iterable[str]) -> list[m.TopicMeta]:
    return [topic for name in names if (topic := metad.named(name))]

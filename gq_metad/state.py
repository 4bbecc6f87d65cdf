"""Hard state of metad: the sum of its log's entries. `apply` is the only mutator.

Never decides, refuses or forgets by the clock: the same entries give the same state everywhere. `version` grows by one with
every entry that a follower of the metadata must see; each topic carries the version of its last change.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gq_metad import entries
from gq_proto import limits
from gq_proto.messages import DaemonMeta, KeyMeta, PartitionMeta, TopicMeta

LOGD = "logd"


class State:
    def __init__(self) -> None:
        self.cluster_id = ""
        self.version = 0
        self.topics: dict[int, TopicMeta] = {}
        self.ids: dict[str, int] = {}                       # by name
        self.tombstones: dict[int, int] = {}                # topic id -> version of its deletion, oldest first
        self.forgotten = 0                                  # version up to which tombstones were dropped
        self.daemons: dict[tuple[str, str], DaemonMeta] = {}    # by (daemon, node id)
        self.producers_until = 1
        self.producer_epochs: dict[int, int] = {}           # only ids beyond epoch 0, longest unused first
        self.keys: dict[str, KeyMeta] = {}                  # by id
        self.keys_version = 0                               # of their last change

    def topic(self, name: str) -> TopicMeta | None:
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def logds(self) -> list[str]:
        """Node ids of the registered logds, in the order of their first registration."""
        return [node for daemon, node in self.daemons if daemon == LOGD]

    def led(self) -> dict[str, int]:
        """Partitions per leader."""
        counts = dict.fromkeys(self.logds(), 0)
        for topic in self.topics.values():
            for partition in topic.partitions:
                counts[partition.leader] = counts.get(partition.leader, 0) + 1
        return counts

    # -- the only mutator --------------------------------------------------------------------

    def apply(self, entry: entries.AnyEntry) -> None:
        match entry:
            case entries.ClusterMade(cluster_id):
                self.cluster_id = cluster_id
            case entries.TopicPut(topic):
                self._put(topic)
            case entries.TopicDeleted(topic_id):
                self._delete(topic_id)
            case entries.DaemonRegistered(node_id, daemon, endpoints, curve):
                self._register(node_id, daemon, endpoints, curve)
            case entries.ProducersReserved(until):
                self.producers_until = until
            case entries.ProducerBumped(producer_id, epoch):
                self._bump(producer_id, epoch)
            case entries.KeyPut(key):
                self.keys[key.id] = key
                self.version = self.keys_version = self.version + 1
            case entries.KeyRevoked(id):
                del self.keys[id]
                self.version = self.keys_version = self.version + 1

    def _put(self, topic: TopicMeta) -> None:
        self.version += 1
        self.topics[topic.id] = replace(topic, version=self.version)
        self.ids[topic.name] = topic.id

    def _delete(self, topic_id: int) -> None:
        self.version += 1
        del self.ids[self.topics.pop(topic_id).name]
        self.tombstones[topic_id] = self.version
        while len(self.tombstones) > limits.TOMBSTONES_MAX:
            oldest = next(iter(self.tombstones))
            self.forgotten = self.tombstones.pop(oldest)

    def _register(self, node_id: str, daemon: str, endpoints: list[str], curve: str) -> None:
        self.version += 1
        before = self.daemons.get((daemon, node_id))
        incarnation = before.incarnation + 1 if before else 1
        self.daemons[daemon, node_id] = DaemonMeta(node_id, daemon, endpoints, incarnation, curve)
        if daemon == LOGD:
            for topic in list(self.topics.values()):
                self._new_epochs(topic, node_id)

    def _new_epochs(self, topic: TopicMeta, node_id: str) -> None:
        """For what the node leads, and what nobody does."""
        if any(p.leader in ("", node_id) for p in topic.partitions):
            partitions = [_led_anew(p, node_id) if p.leader in ("", node_id) else p for p in topic.partitions]
            self.topics[topic.id] = replace(topic, partitions=partitions, version=self.version)

    def _bump(self, producer_id: int, epoch: int) -> None:
        self.producer_epochs.pop(producer_id, None)
        self.producer_epochs[producer_id] = epoch
        if len(self.producer_epochs) > limits.PRODUCER_EPOCHS_MAX:
            del self.producer_epochs[next(iter(self.producer_epochs))]

    # -- whole ---------------------------------------------------------------------------------

    def snapshot(self) -> entries.Snapshot:
        return entries.Snapshot(self.cluster_id, self.version, list(self.topics.values()),
                                [(version, topic_id) for topic_id, version in self.tombstones.items()], self.forgotten,
                                list(self.daemons.values()), self.producers_until, list(self.producer_epochs.items()),
                                list(self.keys.values()), self.keys_version)

    @classmethod
    def of(cls, snapshot: entries.Snapshot) -> "State":
        state = cls()
        state.cluster_id, state.version, state.forgotten = snapshot.cluster_id, snapshot.version, snapshot.forgotten
        state.topics = {topic.id: topic for topic in snapshot.topics}
        state.ids = {topic.name: topic.id for topic in snapshot.topics}
        state.tombstones = {topic_id: version for version, topic_id in snapshot.tombstones}
        state.daemons = {(d.daemon, d.node_id): d for d in snapshot.daemons}
        state.producers_until = snapshot.producers_until
        state.producer_epochs = dict(snapshot.producer_epochs)
        state.keys, state.keys_version = {key.id: key for key in snapshot.keys}, snapshot.keys_version
        return state

    def changed_since(self, known: int) -> Iterator[TopicMeta]:
        return (topic for topic in self.topics.values() if topic.version > known)


def _led_anew(partition: PartitionMeta, node_id: str) -> PartitionMeta:
    if partition.leader:
        return replace(partition, epoch=partition.epoch + 1)
    return PartitionMeta(node_id, partition.epoch + 1, [node_id], [node_id])

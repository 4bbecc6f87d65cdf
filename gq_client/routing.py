"""The routing table: which topics there are, who leads their partitions, where each daemon listens.

Owns what METADATA replies said, newest version wins. Shared by all sessions of a client: each reads it, whoever hears news
merges it. Knows no socket: whether an ipc endpoint exists on this host is a function that is handed in.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gq_proto import codec, limits
from gq_proto.errors import UnknownPartition, UnknownTopic
from gq_proto.messages import DaemonMeta, MetadataReply, TopicMeta
from gq_proto.names import GROUPS_TOPIC


class To(NamedTuple):
    """Whom a request is for. Resolved to an endpoint anew at every attempt, so a retry follows a moved leader."""

    role: str                  # "metad", "leader", "groups", "delays", "daemon", "endpoint"
    topic_id: int = 0
    partition: int = -1
    daemon: str = ""
    node_id: str = ""

    @staticmethod
    def leader(topic_id: int, partition: int) -> "To":
        """The logd that leads a partition."""
        return To("leader", topic_id, partition)

    @staticmethod
    def group(name: str) -> "To":
        """The groupd that coordinates a group."""
        return To("groups", 0, codec.partition_of(name.encode(), limits.GROUPS_PARTITIONS))

    @staticmethod
    def groups(partition: int) -> "To":
        """The groupd that owns a partition of __groups."""
        return To("groups", 0, partition)

    @staticmethod
    def delays(topic_id: int, partition: int) -> "To":
        """The delayd of a partition: beside its leader."""
        return To("delays", topic_id, partition)

    @staticmethod
    def node(daemon: str, node_id: str, topic_id: int = 0) -> "To":
        """One daemon: "metad", "logd", "groupd", "delayd" of a node; about all of a topic that is there."""
        return To("daemon", topic_id, -1, daemon, node_id)

    @staticmethod
    def at(endpoint: str) -> "To":
        """Whoever listens there."""
        return To("endpoint", 0, -1, endpoint)

    def __str__(self) -> str:
        if self.role == "leader":
            return f"the leader of partition {self.partition} of topic id {self.topic_id}"
        if self.role == "groups":
            return f"the coordinator of {GROUPS_TOPIC} partition {self.partition}"
        if self.role == "delays":
            return f"the delayd of partition {self.partition} of topic id {self.topic_id}"
        return {"metad": "metad", "endpoint": self.daemon}.get(self.role, f"{self.daemon} of node {self.node_id}")


METAD: Final = To("metad")


class Routes:
    """`bootstrap`: metad's endpoints, tried in turn. `reachable(endpoint)` says whether an ipc one is of this host."""

    def __init__(self, bootstrap: Sequence[str], reachable: Callable[[str], bool] = lambda endpoint: True) -> None:
        self.bootstrap = list(bootstrap)
        self.bootstrap_key = ""                      # public CURVE key of its tcp endpoints; "": plain
        self.pair: tuple[bytes, bytes] | None = None     # our own CURVE keys; None: any will do
        self._reachable = reachable
        self._turn = 0
        self.version = 0
        self.cluster_id = ""
        self.topics: dict[str, TopicMeta] = {}
        self.by_id: dict[int, TopicMeta] = {}
        self.daemons: dict[tuple[str, str], DaemonMeta] = {}
        self._chosen: dict[tuple[str, str], str] = {}        # the endpoint in use of each daemon

    # -- news ---------------------------------------------------------------------------

    def merge(self, reply: MetadataReply) -> None:
        """Take over what changed. A reply of another cluster (a node made anew) replaces everything."""
        if self.cluster_id and reply.cluster_id and reply.cluster_id != self.cluster_id:
            self.version, self.topics, self.by_id, self.daemons = 0, {}, {}, {}
        self.cluster_id = reply.cluster_id or self.cluster_id
        if reply.version < self.version:
            return
        for topic_id in reply.deleted:
            self._forget(self.by_id.get(topic_id))
        if reply.full:
            named = {topic.id for topic in reply.topics}
            for known in list(self.by_id.values()):
                if known.id not in named and known.version <= reply.version:
                    self._forget(known)
        for topic in reply.topics:
            self.add(topic)
        for daemon in reply.daemons:
            self.daemons[daemon.daemon, daemon.node_id] = daemon
        self._chosen.clear()
        self.version = reply.version

    def add(self, topic: TopicMeta) -> None:
        """A topic that was just made, altered or heard of."""
        known = self.by_id.get(topic.id) or self.topics.get(topic.name)
        if known and known.id == topic.id and known.version > topic.version:
            return
        self._forget(known)
        self._forget(self.topics.get(topic.name))
        self.topics[topic.name] = self.by_id[topic.id] = topic

    def remove(self, topic_id: int) -> None:
        """A topic that was just deleted."""
        self._forget(self.by_id.get(topic_id))

    def _forget(self, topic: TopicMeta | None) -> None:
        if topic:
            self.by_id.pop(topic.id, None)
            if self.topics.get(topic.name) is topic:
                del self.topics[topic.name]

    def next_bootstrap(self) -> None:
        """The metad asked so far does not answer: try another."""
        self._turn += 1

    # -- questions -----------------------------------------------------------------------

    def topic(self, name: str) -> TopicMeta:
        """UnknownTopic when it is not (yet) known."""
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r:.220}: create it first")
        return topic

    def check_partition(self, topic: TopicMeta, partition: int) -> int:
        if not 0 <= partition < len(topic.partitions):
            raise UnknownPartition(f"topic {topic.name} has partitions 0..{len(topic.partitions) - 1}, not {partition}")
        return partition

    def knows(self, to: To) -> bool:
        """True while the table still lists the partition that `to` names."""
        topic = self.by_id.get(to.topic_id)
        return topic is not None and 0 <= to.partition < len(topic.partitions)

    def endpoint(self, to: To) -> str | None:
        """Where to send; None when nobody is known: refresh, then try again."""
        if to.role == "leader":
            topic = self.by_id.get(to.topic_id)
            return self._led(topic, to.partition, "logd")
        if to.role == "delays":
            return self._led(self.by_id.get(to.topic_id), to.partition, "delayd")
        if to.role == "groups":
            return self._led(self.topics.get(GROUPS_TOPIC), to.partition, "groupd")
        if to.role == "metad":
            return self.bootstrap[self._turn % len(self.bootstrap)] if self.bootstrap else None
        if to.role == "endpoint":
            return to.daemon
        return self._listens(to.daemon, to.node_id)

    def server_key(self, endpoint: str) -> str:
        """The public CURVE key of who listens there; "" for a plain endpoint."""
        if endpoint.startswith("ipc://"):
            return ""
        if endpoint in self.bootstrap and self.bootstrap_key:
            return self.bootstrap_key
        return next((daemon.curve for daemon in self.daemons.values() if endpoint in daemon.endpoints), "")

    def _led(self, topic: TopicMeta | None, partition: int, daemon: str) -> str | None:
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return self._listens(daemon, topic.partitions[partition].leader)

    def _listens(self, daemon: str, node_id: str) -> str | None:
        chosen = self._chosen.get((daemon, node_id))
        if chosen is None:
            meta = self.daemons.get((daemon, node_id))
            if meta is None or not meta.endpoints:
                return None
            chosen = next((endpoint for endpoint in meta.endpoints if self._reachable(endpoint)), meta.endpoints[-1])
            self._chosen[daemon, node_id] = chosen
        return chosen

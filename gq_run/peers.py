"""Lines to the logds: one per node, found through the directory, shared by all that a daemon asks of them.

Owns the lines. A call goes to whoever leads the partition at this moment; nobody known there is an Unavailable like any other.
Retrying is the askers' business. Lines of nodes that moved or left are closed.
"""

import os
from collections.abc import Callable, Sequence

from gq_proto.errors import GoQueueError, Unavailable, UnknownTopicId
from gq_proto.messages import Body, DaemonMeta, Kind, TopicMeta
from gq_run.caller import Caller, Done
from gq_run.daemon import Daemon
from gq_run.directory import Directory
from gq_run.server import Payload


class Peers:
    """`on_up(node_id)`: a line to a logd stands (again)."""

    def __init__(self, daemon: Daemon, directory: Directory) -> None:
        self._daemon, self._directory = daemon, directory
        self._lines: dict[str, Caller] = {}
        self._metad = daemon.caller(daemon.metad_endpoint())
        self.on_up: Callable[[str], None] = lambda node_id: None

    def refresh(self) -> None:
        """The directory changed: connect to what is new, hang up where nobody is any more."""
        wanted = {d.node_id: _nearest(d) for d in self._directory.daemons if d.daemon == "logd" and d.endpoints}
        for node_id, line in list(self._lines.items()):
            if wanted.get(node_id) != (line.endpoint, line.server_key):
                self._lines.pop(node_id).close()
        for node_id, (endpoint, key) in wanted.items():
            if node_id not in self._lines:
                line = self._lines[node_id] = self._daemon.caller(endpoint, key)
                line.on_up = lambda node_id=node_id: self.on_up(node_id)  # type: ignore[misc]

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        self._metad.close()

    def leader_of(self, topic_id: int, partition: int) -> tuple[str, int] | None:
        """(node id, epoch); None while nobody leads it."""
        topic = self._directory.topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        meta = topic.partitions[partition]
        return (meta.leader, meta.epoch) if meta.leader in self._lines else None

    def topic(self, topic_id: int) -> TopicMeta | None:
        return self._directory.topics.get(topic_id)

    def to_node(self, node_id: str, kind: Kind, body: Body, done: Done, timeout_s: float) -> None:
        line = self._lines.get(node_id)
        if line is None:
            self._later(done, Unavailable(f"no line to logd of node {node_id}"))
        else:
            line.call(kind, body, done, timeout_s=timeout_s)

    def to_leader(self, topic_id: int, partition: int, kind: Kind, body: Body, done: Done, frames: Sequence[Payload] = (), *,
                  timeout_s: float = 10.0, epoch: int = -1) -> None:
        """done(body, frames, error), once, never from within this call."""
        leader = self.leader_of(topic_id, partition)
        if leader is None:
            gone = topic_id not in self._directory.topics
            error: GoQueueError = (UnknownTopicId(f"topic id {topic_id} is gone") if gone else
                                   Unavailable(f"partition {partition} of topic id {topic_id} has no leader yet"))
            self._later(done, error)
            return
        self._lines[leader[0]].call(kind, body, done, frames, timeout_s=timeout_s, topic_id=topic_id, partition=partition,
                                    epoch=epoch)

    def later(self, call: Callable[[], None]) -> None:
        """Not from within the caller."""
        self._daemon.loop.post(call)

    def _later(self, done: Done, error: GoQueueError) -> None:
        self.later(lambda: done(None, [], error))

    def to_metad(self, kind: Kind, body: Body, done: Done, timeout_s: float = 30.0) -> None:
        self._metad.call(kind, body, done, timeout_s=timeout_s)


def _nearest(daemon: DaemonMeta) -> tuple[str, str]:
    """The first endpoint that this host can reach, with its CURVE key: ipc ones come first and count where their socket is."""
    for endpoint in daemon.endpoints:
        if not endpoint.startswith("ipc://"):
            return endpoint, daemon.curve
        if os.path.exists(endpoint.removeprefix("ipc://")):
            return endpoint, ""
    return daemon.endpoints[-1], ""

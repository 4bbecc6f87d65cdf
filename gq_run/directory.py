"""What a daemon knows of the cluster: registers it with metad, then follows the metadata for as long as the process lives.

    self.directory = Directory(daemon, self.changed)          # in App.__init__
    self.directory.start()                                    # in App.start, or when recovery is done
    def changed(self, reply): ...                             # after every change; tables below are up to date already

Owns the line to metad and the tables `topics` and `daemons`. A missing metad is waited for, with backoff, and what is known stays
in force meanwhile. With `applies=True` (logd) the next question tells metad that the last answer was acted upon: `changed` must
have done so when it returns. Registration happens once per process (it gives what a logd leads new epochs), and again only
when metad no longer knows of it. A topic is gone only when its id is in reply.deleted, or absent from a `full` reply to one that
knew it; folders are removed for the first reason alone.
"""

from collections.abc import Callable
from typing import Any, Final

from gq_proto import messages
from gq_proto.errors import GoQueueError
from gq_run import logs
from gq_run.daemon import Daemon

LONG_POLL_MS: Final = 30_000
GRACE_S: Final = 5.0             # beyond the long poll, before the line is taken for dead
BACKOFF_S: Final = (0.05, 1.0)   # first and longest


class Directory:
    def __init__(self, daemon: Daemon, changed: Callable[[messages.MetadataReply], None], *, applies: bool = False) -> None:
        self._daemon, self._changed, self._applies = daemon, changed, applies
        self._line = daemon.caller(daemon.metad_endpoint())
        self._backoff_s = BACKOFF_S[0]
        self._closed = False
        self.topics: dict[int, messages.TopicMeta] = {}
        self.daemons: list[messages.DaemonMeta] = []
        self.version = 0                 # of the tables; 0 before the first answer
        self.incarnation = 0             # 0 until registered
        self.cluster_id = ""

    def start(self) -> None:
        body = messages.Register(self._daemon.node_id, self._daemon.name, self._daemon.endpoints, self._daemon.public_key)
        self._line.call(messages.Kind.REGISTER, body, self._registered)

    def close(self) -> None:
        self._closed = True
        self._line.close()

    def topic_named(self, name: str) -> messages.TopicMeta | None:
        return next((topic for topic in self.topics.values() if topic.name == name), None)

    def find_daemon(self, daemon: str, node_id: str) -> messages.DaemonMeta | None:
        return next((d for d in self.daemons if d.daemon == daemon and d.node_id == node_id), None)

    def _registered(self, body: Any, frames: object, error: GoQueueError | None) -> None:
        if error:
            self._retry(self.start, "register", error)
            return
        self._backoff_s = BACKOFF_S[0]
        self.incarnation, self.cluster_id = body.incarnation, body.cluster_id
        self._daemon.log.info("registered", extra=logs.fields(incarnation=body.incarnation, cluster=body.cluster_id))
        self._ask()

    def _ask(self) -> None:
        body = messages.Metadata(self.version, LONG_POLL_MS, applied_by=self._daemon.node_id if self._applies else "", keys=True,
                                 follower=f"{self._daemon.name}/{self._daemon.node_id}")
        self._line.call(messages.Kind.METADATA, body, self._answered, timeout_s=LONG_POLL_MS / 1000 + GRACE_S)

    def _answered(self, body: Any, frames: object, error: GoQueueError | None) -> None:
        if error:
            self._retry(self._ask, "follow the metadata", error)
            return
        self._backoff_s = BACKOFF_S[0]
        if body.version != self.version or body.full:
            self._take(body)
        if self.find_daemon(self._daemon.name, self._daemon.node_id):
            self._ask()
        else:
            self._daemon.log.error("metad does not know this daemon any more, registering anew")
            self.start()

    def _take(self, reply: messages.MetadataReply) -> None:
        if reply.full:
            self.topics.clear()
        for topic in reply.topics:
            self.topics[topic.id] = topic
        for topic_id in reply.deleted:
            self.topics.pop(topic_id, None)
        self.daemons, self.version = reply.daemons, reply.version
        self._daemon.take_keys(reply, self._name_of)
        mine = self.find_daemon(self._daemon.name, self._daemon.node_id)
        if mine and mine.incarnation > self.incarnation:
            self._daemon.log.error("another daemon registered under this node's name", extra=logs.fields(at=mine.endpoints))
        self._changed(reply)

    def _name_of(self, topic_id: int) -> str | None:
        topic = self.topics.get(topic_id)
        return topic.name if topic else None

    def _retry(self, call: Callable[[], None], what: str, error: GoQueueError) -> None:
        level = "debug" if error.retriable else "error"
        getattr(self._daemon.log, level)(f"cannot {what} yet", extra=logs.fields(error=error.name, reason=error.message))
        self._daemon.loop.call_later(self._backoff_s, lambda: self._again(call))
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_S[1])

    def _again(self, call: Callable[[], None]) -> None:
        """Closed meanwhile (what was asked has then failed, too): logd's loop turns on until all is on the disk."""
        if not self._closed:
            call()

"""A session without sockets: what it sends is decoded, what a daemon would answer is put in by hand."""

from typing import Any

from gq_client.routing import Routes
from gq_client.session import Call, Session
from gq_proto import messages as m
from gq_proto.errors import GoQueueError
from gq_proto.messages import Kind

METAD = "ipc:///m"
LOGD = "ipc:///l"
GROUPD = "ipc:///g"
DELAYD = "ipc:///d"


def topic(name: str = "t", id: int = 5, partitions: int = 2, leader: str = "n", version: int = 1, **config: Any) -> m.TopicMeta:
    return m.TopicMeta(name, id, m.TopicConfig(**config), [m.PartitionMeta(leader, 1) for _ in range(partitions)], 1, 0, version)


def daemons(logd: str = LOGD) -> list[m.DaemonMeta]:
    return [m.DaemonMeta("n", "metad", [METAD], 1), m.DaemonMeta("n", "logd", [logd], 1),
            m.DaemonMeta("n", "groupd", [GROUPD], 1), m.DaemonMeta("n", "delayd", [DELAYD], 1)]


def news(*topics: m.TopicMeta, version: int = 1, deleted: tuple[int, ...] = (), logd: str = LOGD) -> m.MetadataReply:
    return m.MetadataReply(version, list(topics), list(deleted), daemons(logd), "c")


class Line:
    """A session at a time that stands still until told. Endpoints connect at once unless they are in `dead`."""

    def __init__(self, *known: m.TopicMeta, bootstrap: tuple[str, ...] = (METAD,), chance: float = 0.0) -> None:
        self.now = 100.0
        self.routes = Routes(bootstrap)
        if known:
            self.routes.merge(news(*known))
        self.session = Session(self.routes, b"", lambda: chance)
        self.dead: set[str] = set()
        self.sent: list[tuple[str, m.Request, Any, list[Any]]] = []
        self.ended: list[Call] = []

    def call(self, kind: Kind, body: m.Body, to: Any, patience: float = 30.0, **options: Any) -> Call:
        call = Call(kind, body, to, self.now + patience, self.ended.append, **options)
        self.session.submit(self.now, call)
        self.run()
        return call

    def run(self) -> None:
        """Connect and send until nothing more is to be done."""
        while self.session.dial or self.session.outbox:
            dial, self.session.dial = self.session.dial, []
            for endpoint in dial:
                if endpoint not in self.dead:
                    self.session.up(self.now, endpoint)
            outbox, self.session.outbox = self.session.outbox, []
            for endpoint, frames, _ in outbox:
                request = m.decode_request(frames[0])
                self.sent.append((endpoint, request, m.request_body(request), list(frames[1:])))

    def take(self) -> tuple[str, m.Request, Any, list[Any]]:
        """The oldest request that was sent."""
        return self.sent.pop(0)

    def kinds(self) -> list[Kind]:
        return [Kind(request.kind) for _, request, _, _ in self.sent]

    def answer(self, body: m.Body, *frames: bytes) -> None:
        """Answer the oldest request."""
        request_open = getattr(body, "open", False)      # more answers to it follow
        endpoint, request, _, _ = self.sent[0] if request_open else self.take()
        self.session.received(self.now, endpoint, [m.encode_reply(request.kind, request.id, body), *frames])
        self.run()

    def refuse(self, error: GoQueueError) -> None:
        endpoint, request, _, _ = self.take()
        self.session.received(self.now, endpoint, [m.encode_error(request.kind, request.id, error)])
        self.run()

    def break_line(self, endpoint: str, up: bool = True) -> None:
        """The connection breaks; what it carried is lost. It comes back at once when `up`."""
        self.sent = [sent for sent in self.sent if sent[0] != endpoint]
        self.session.down(self.now, endpoint)
        if up:
            self.session.up(self.now, endpoint)
        self.run()

    def wait(self, seconds: float) -> None:
        """Time passes, deadline by deadline."""
        end = self.now + seconds
        while self.session.next_due <= end:
            self.now = max(self.now, self.session.next_due)
            self.session.due(self.now)
            self.run()
        self.now = end

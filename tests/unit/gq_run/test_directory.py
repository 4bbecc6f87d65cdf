"""Following the metadata: registers once, waits for a missing metad, tells what it applied, forgets what is gone."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from gq_proto import messages as m
from gq_proto.messages import DaemonMeta, Kind, MetadataReply, TopicConfig, TopicMeta
from gq_run import directory
from gq_run.caller import Caller
from gq_run.directory import Directory
from gq_run.loop import Loop
from gq_run.server import Incoming, Server

ME = DaemonMeta("n1", "logd", ["ipc:///x"], 1)


def topic(id: int, name: str = "t") -> TopicMeta:
    return TopicMeta(f"{name}{id}", id, TopicConfig(), [])


@dataclass
class Metad:
    """Registers whoever comes; a long poll is answered by the next of `news`, else kept."""

    loop: Loop
    context: zmq.Context[zmq.Socket[bytes]]
    endpoint: str

    def __post_init__(self) -> None:
        self.registered: list[m.Register] = []
        self.asked: list[m.Metadata] = []
        self.parked: list[Incoming] = []
        self.news: list[MetadataReply] = []
        self.open()

    def open(self) -> None:
        self.server = Server(self.loop, self.context, self.handle)
        self.server.bind(self.endpoint)

    def handle(self, incoming: Incoming) -> None:
        if incoming.kind == Kind.REGISTER:
            self.registered.append(incoming.body)
            incoming.reply(m.RegisterReply(len(self.registered), 1, "c"))
            return
        self.asked.append(incoming.body)
        self.parked.append(incoming)
        self.serve()

    def tell(self, reply: MetadataReply) -> None:
        self.news.append(reply)
        self.serve()

    def serve(self) -> None:
        if self.news and self.parked:
            self.parked.pop().reply(self.news.pop(0))


@pytest.fixture
def metad(loop: Loop, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> Iterator[Metad]:
    made = Metad(loop, context, endpoint)
    yield made
    made.server.close()


@pytest.fixture
def follow(loop: Loop, context: zmq.Context[zmq.Socket[bytes]], endpoint: str,
           monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.setattr(directory, "BACKOFF_S", (0.005, 0.02))
    made: list[Directory] = []

    def follow(**options: Any) -> tuple[Directory, list[MetadataReply]]:
        daemon: Any = SimpleNamespace(loop=loop, node_id="n1", name="logd", endpoints=["ipc:///x"], log=logging.getLogger("t"),
                                      metad_endpoint=lambda: endpoint, caller=lambda at: Caller(loop, context, at),
                                      public_key="", take_keys=lambda reply, names: None)
        changes: list[MetadataReply] = []
        made.append(Directory(daemon, changes.append, **options))
        made[-1].start()
        return made[-1], changes

    yield follow
    for one in made:
        one.close()


def test_it_registers_then_follows(metad: Metad, follow: Callable[..., Any], turn_until: Callable[..., None]) -> None:
    found, changes = follow(applies=True)
    metad.tell(MetadataReply(3, [topic(1), topic(2)], [], [ME], "c", True))
    metad.tell(MetadataReply(4, [topic(3)], [1], [ME], "c"))
    metad.tell(MetadataReply(4, [], [], [ME], "c"))
    turn_until(lambda: len(metad.asked) == 4)
    assert metad.registered == [m.Register("n1", "logd", ["ipc:///x"])]
    assert [(a.known_version, a.applied_by) for a in metad.asked] == [(0, "n1"), (3, "n1"), (4, "n1"), (4, "n1")]
    assert sorted(found.topics) == [2, 3] and found.version == 4 and found.incarnation == 1 and found.cluster_id == "c"
    assert [c.version for c in changes] == [3, 4]
    assert found.topic_named("t3") == topic(3) and found.topic_named("t1") is None
    assert found.find_daemon("logd", "n1") == ME and found.find_daemon("logd", "n2") is None


def test_others_say_nothing_of_applying(metad: Metad, follow: Callable[..., Any], turn_until: Callable[..., None]) -> None:
    follow()
    turn_until(lambda: metad.asked)
    assert metad.asked[0].applied_by == ""


def test_a_full_answer_replaces_what_was_known(metad: Metad, follow: Callable[..., Any], turn_until: Callable[..., None]) -> None:
    found, changes = follow()
    metad.tell(MetadataReply(9, [topic(1)], [], [ME], "c", True))
    metad.tell(MetadataReply(2, [topic(2)], [], [ME], "c", True))
    turn_until(lambda: len(changes) == 2)
    assert list(found.topics) == [2] and found.version == 2


def test_it_waits_for_a_missing_metad_and_registers_once(loop: Loop, context: zmq.Context[zmq.Socket[bytes]], endpoint: str,
                                                         follow: Callable[..., Any], turn_until: Callable[..., None]) -> None:
    found, _ = follow()
    for _ in range(5):
        loop.turn(0.02)
    assert found.incarnation == 0
    metad = Metad(loop, context, endpoint)
    metad.tell(MetadataReply(3, [topic(1)], [], [ME], "c", True))
    turn_until(lambda: len(metad.asked) == 2)
    metad.server.close()
    turn_until(lambda: not found._line.connected)
    assert list(found.topics) == [1]                         # stays in force
    metad.parked.clear()
    metad.open()
    turn_until(lambda: len(metad.asked) == 3)
    assert len(metad.registered) == 1 and metad.asked[2].known_version == 3
    metad.server.close()


def test_closed_it_asks_no_more_while_the_loop_turns_on(loop: Loop, metad: Metad, follow: Callable[..., Any],
                                                        turn_until: Callable[..., None]) -> None:
    found, _ = follow()
    metad.tell(MetadataReply(3, [], [], [ME], "c", True))
    turn_until(lambda: len(metad.asked) == 2)
    found.close()
    for _ in range(5):
        loop.turn(0.02)
    assert len(metad.asked) == 2
    found.close = lambda: None                       # type: ignore[method-assign]  # the fixture's


def test_it_registers_anew_where_it_is_not_known(metad: Metad, follow: Callable[..., Any], turn_until: Callable[..., None]) -> None:
    found, _ = follow()
    metad.tell(MetadataReply(3, [], [], [], "other", True))
    turn_until(lambda: found.incarnation == 2)
    assert len(metad.registered) == 2


def test_another_daemon_under_this_name_is_reported(metad: Metad, follow: Callable[..., Any], turn_until: Callable[..., None],
                                                    caplog: pytest.LogCaptureFixture) -> None:
    _, changes = follow()
    metad.tell(MetadataReply(3, [], [], [DaemonMeta("n1", "logd", ["ipc:///y"], 2)], "c", True))
    turn_until(lambda: changes)
    assert "another daemon registered under this node's name" in caplog.text

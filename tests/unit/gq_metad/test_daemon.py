"""metad's shell: nothing is answered before it is written, restarts keep all, a full disk refuses and goes on."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gq_metad.daemon import MetaDaemon
from gq_metad.options import OPTIONS
from gq_proto import limits
from gq_proto import messages as m
from gq_proto.errors import Corrupt, DiskFull
from gq_run.daemon import Daemon
from gq_run.disk import File
from gq_run.metrics import Registry
from gq_run.options import Config
from gq_run.settings import SHARED
from tests.unit.gq_metad.conftest import KINDS


@dataclass(eq=False)
class Incoming:
    body: Any
    deadline: float
    kind: int
    peer: bytes = b"p"
    access: Any = None
    replies: list[Any] = field(default_factory=list)

    def reply(self, body: Any) -> bool:
        self.replies.append(body)
        return True

    fail = reply


class Shell:
    """A MetaDaemon on a folder, turned by hand; no socket is bound."""

    def __init__(self, folder: Path, **options: Any) -> None:
        given = {key.replace("__", "."): value for key, value in options.items()}
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
        self.daemon = Daemon("metad", Config([*SHARED, *OPTIONS], given), str(folder), "n1", lock)
        self.app = MetaDaemon(self.daemon)
        try:
            self.app.start()
        except BaseException:
            self.end()
            raise

    def ask(self, *bodies: m.Body) -> list[Any]:
        """All in one turn of the loop; what was answered at its end."""
        asked = [Incoming(body, self.daemon.loop.now() + 30, KINDS[type(body)]) for body in bodies]
        for incoming in asked:
            self.app.handle(incoming)                      # type: ignore[arg-type]
            assert incoming.replies == []                  # held back until written
        self.daemon.loop.turn()
        return [reply for incoming in asked for reply in incoming.replies]

    def end(self) -> None:
        """As kill -9 leaves it."""
        self.app._log.close()
        self.daemon._close()


@pytest.fixture(autouse=True)
def leave_gc_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Daemon, "_tame_gc", lambda self: None)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    shells: list[Shell] = []

    def start(**options: Any) -> Shell:
        if shells:
            shells.pop().end()
        shells.append(Shell(tmp_path, **options))
        return shells[0]

    yield start
    shells.pop().end()


REGISTER = m.Register("n1", "logd", ["ipc:///x"])


def test_a_restart_keeps_everything_that_was_answered(start: Callable[..., Shell]) -> None:
    shell = start()
    assert shell.daemon.is_ready
    [registered, first] = shell.ask(REGISTER, m.InitProducer())
    shell.ask(m.CreateTopic("orders"))
    [before] = shell.ask(m.Metadata())
    shell = start()
    [after] = shell.ask(m.Metadata())
    assert after == before and {t.name for t in after.topics} == {"orders", "__groups", "__txn"}
    [again, other] = shell.ask(REGISTER, m.InitProducer())
    assert again.incarnation == registered.incarnation + 1 and again.cluster_id == registered.cluster_id
    assert other.producer_id > first.producer_id


def test_a_torn_tail_costs_only_what_was_not_answered(start: Callable[..., Shell], tmp_path: Path) -> None:
    shell = start()
    shell.ask(REGISTER)
    size = (tmp_path / "meta" / "log").stat().st_size
    shell.ask(m.CreateTopic("orders"))
    with (tmp_path / "meta" / "log").open("r+b") as file:
        file.truncate(size + 30)
    [reply] = start().ask(m.Metadata())
    assert {t.name for t in reply.topics} == {"__groups", "__txn"} and len(reply.daemons) == 1
    assert (tmp_path / "meta" / "log").stat().st_size == size


def test_a_damaged_log_is_why_it_cannot_start(start: Callable[..., Shell], tmp_path: Path) -> None:
    start().ask(REGISTER)
    path = tmp_path / "meta" / "log"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="log is damaged at 8"):
        Shell(tmp_path)


def test_metadata_that_is_lost_beside_the_logs_is_why_it_cannot_start(start: Callable[..., Shell], tmp_path: Path) -> None:
    start().ask(REGISTER)
    (tmp_path / "logs" / "__groups").mkdir(parents=True)
    shutil.rmtree(tmp_path / "meta")
    for _ in range(2):
        with pytest.raises(Corrupt, match=r"meta is empty, but .*logs/__groups is not of a new node"):
            start()
    shutil.rmtree(tmp_path / "logs")
    start().ask(REGISTER)


def test_snapshots_replace_the_log_and_lose_nothing(start: Callable[..., Shell], tmp_path: Path) -> None:
    shell = start(metad__snapshotBytes=4096)
    shell.ask(REGISTER)
    for i in range(40):
        shell.ask(m.CreateTopic(f"t{i}"))
        shell.ask(m.InitProducer(shell.ask(m.InitProducer())[0].producer_id, -1))
    assert (tmp_path / "meta" / "log").stat().st_size < 4096 + 2000
    assert (tmp_path / "meta" / "snapshot").exists()
    state = shell.app._core.state.snapshot()
    assert start().app._core.state.snapshot() == state


def test_a_full_disk_refuses_what_it_can_not_write_and_goes_on(start: Callable[..., Shell], monkeypatch: pytest.MonkeyPatch,
                                                               tmp_path: Path) -> None:
    shell = start()
    shell.ask(REGISTER)
    full = [True]
    append = File.append

    def fails(self: File, buffers: Any) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "no space left")
        append(self, buffers)

    monkeypatch.setattr(File, "append", fails)
    [create, known] = shell.ask(m.CreateTopic("orders"), m.Metadata())
    assert isinstance(create, DiskFull) and isinstance(known, DiskFull)       # what was read was never so either
    [known] = shell.ask(m.Metadata())
    assert {t.name for t in known.topics} == {"__groups", "__txn"}
    full[0] = False
    shell.ask(m.CreateTopic("orders"))
    [known] = shell.ask(m.Metadata())
    assert "orders" in {t.name for t in known.topics}
    assert start().app._core.state.version == known.version


def test_long_polls_end_by_the_loops_timer(start: Callable[..., Shell]) -> None:
    shell = start()
    incoming = Incoming(m.Metadata(shell.app._core.state.version, 1), shell.daemon.loop.now() + 30, m.Kind.METADATA)
    shell.app.handle(incoming)                             # type: ignore[arg-type]
    while not incoming.replies:
        shell.daemon.loop.turn(1.0)
    assert incoming.replies[0].topics == []


def test_the_export_is_for_eyes(start: Callable[..., Shell], tmp_path: Path) -> None:
    shell = start()
    shell.ask(REGISTER)
    shell.ask(m.CreateTopic("orders", config={"maxRetries": 7}))
    shell.app.stop()
    found = json.loads((tmp_path / "meta" / "topics.json").read_text())
    topic = next(t for t in found["topics"] if t["name"] == "orders")
    assert topic["config"]["maxRetries"] == 7 and topic["partitions"][0]["leader"] == "n1"
    assert found["version"] == shell.app._core.state.version and found["daemons"][0]["nodeId"] == "n1"


def test_numbers_and_facts(start: Callable[..., Shell]) -> None:
    shell = start()
    shell.ask(REGISTER)
    registry: Registry = shell.daemon.metrics
    found = {metric.name: dict(samples) for metric, samples in registry.collect().items()}
    assert found["goqueue_topics"] == {(): 2} and found["goqueue_nodes_total"] == {("up",): 1, ("down",): 0}
    facts = shell.daemon.status().facts
    assert facts["daemons"] == {"logd/n1": "up"} and facts["topics"] == 2


def test_the_log_limits_of_one_turn_are_one_write(start: Callable[..., Shell]) -> None:
    shell = start()
    index = shell.app._log.index
    replies = shell.ask(REGISTER, *[m.InitProducer() for _ in range(limits.PRODUCER_IDS_BLOCK + 5)])
    assert len(replies) == limits.PRODUCER_IDS_BLOCK + 6 and shell.app._log.index == index + 3

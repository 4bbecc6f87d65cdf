"""What all daemons share: the lock, the node's name, addresses, STATUS, exit codes. Processes are tests/system's."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from gq_proto import messages
from gq_proto.errors import BadConfig, BadName, Locked, Unavailable
from gq_proto.messages import Empty, Kind
from gq_run import daemon as d
from gq_run import paths
from gq_run.daemon import Daemon
from gq_run.options import Config
from gq_run.server import Incoming
from gq_run.settings import SHARED


class Echo:
    """An App."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.calls = daemon, []

    def start(self) -> None:
        assert self.daemon.endpoints                     # bound already
        self.calls.append("start")

    def handle(self, incoming: Incoming) -> None:
        raise Unavailable("not ready")

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture(autouse=True)
def leave_gc_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> Iterator[Callable[..., Daemon]]:
    monkeypatch.setenv("GOQUEUE_RUNTIME_DIR", os.path.dirname(endpoint.removeprefix("ipc://")))
    made: list[Daemon] = []

    def make(data: str = "data", **options: Any) -> Daemon:
        given = {"broker.listeners.logd": "off", "metrics.listeners.logd": "off"}
        given |= {key.replace("__", "."): value for key, value in options.items()}
        folder = tmp_path / data
        folder.mkdir(exist_ok=True)
        made.append(Daemon("logd", Config(SHARED, given), str(folder), "n1", d.take_lock(str(folder), "logd")))
        return made[-1]

    yield make
    for daemon in made:
        if not daemon.context.closed:
            daemon._close()


def ask(daemon: Daemon, kind: Kind = Kind.STATUS, body: messages.Body | None = None) -> Any:
    results: list[Any] = []
    caller = daemon.caller(paths.ipc_endpoint(daemon.data_dir, "logd"))
    while not caller.connected:
        daemon.loop.turn(0.02)
    caller.call(kind, body or Empty(), lambda *result: results.append(result))
    while not results:
        daemon.loop.turn(0.02)
    caller.close()
    return results[0][2] or results[0][0]


# -- the lock ---------------------------------------------------------------------------

def test_one_daemon_of_a_kind_per_data_directory(tmp_path: Path) -> None:
    first = d.take_lock(str(tmp_path), "logd")
    with pytest.raises(Locked, match=rf"another logd \(pid {os.getpid()}\) runs on {tmp_path}"):
        d.take_lock(str(tmp_path), "logd")
    os.close(d.take_lock(str(tmp_path), "metad"))
    os.close(first)
    os.close(d.take_lock(str(tmp_path), "logd"))


# -- the node's name ----------------------------------------------------------------------

def test_a_node_keeps_the_name_of_its_first_start(tmp_path: Path) -> None:
    name = d.settle_node_id(str(tmp_path), "")
    assert name.startswith("node-") and d.settle_node_id(str(tmp_path), "") == name
    assert d.settle_node_id(str(tmp_path), name) == name
    with pytest.raises(BadConfig, match=rf"nodeId is other but .* belongs to node {name}"):
        d.settle_node_id(str(tmp_path), "other")
    assert sorted(os.listdir(tmp_path)) == ["node.id"]


def test_a_configured_name_is_taken_and_checked(tmp_path: Path) -> None:
    assert d.settle_node_id(str(tmp_path), "n7") == d.settle_node_id(str(tmp_path), "") == "n7"
    with pytest.raises(BadName):
        d.settle_node_id(str(tmp_path / ".."), "a/b")


# -- addresses -----------------------------------------------------------------------------

def test_a_default_address_of_another_node_is_gone_without(make: Callable[..., Daemon], caplog: pytest.LogCaptureFixture,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    first = make("a", broker__listeners__logd="127.0.0.1:0")
    first.open(Echo)
    port = first.endpoints[1].rpartition(":")[2]
    second = make("b", broker__listeners__logd=f"127.0.0.1:{port}")
    monkeypatch.setattr(second.config, "is_default", lambda key: True)
    second.open(Echo)
    assert [e.partition(":")[0] for e in second.endpoints] == ["ipc"]
    assert "going on without" in caplog.text
    second.ready()
    assert f"broker.listeners.logd 127.0.0.1:{port}" in ask(second).detail and "taken" not in ask(first).detail


def test_a_chosen_address_that_is_taken_is_an_error(make: Callable[..., Daemon]) -> None:
    first = make("a", broker__listeners__logd="127.0.0.1:0", metrics__listeners__logd="127.0.0.1:0")
    first.open(Echo)
    port = first.endpoints[1].rpartition(":")[2]
    with pytest.raises(OSError, match=r"broker\.listeners\.logd: .*in use"):
        make("b", broker__listeners__logd=f"127.0.0.1:{port}").open(Echo)
    with pytest.raises(OSError, match=r"metrics\.listeners\.logd: .*in use"):
        make("c", metrics__listeners__logd=first.status().facts["metrics"]).open(Echo)


def test_what_is_no_address(make: Callable[..., Daemon]) -> None:
    with pytest.raises(BadConfig, match=r"broker\.listeners\.logd: "):
        make(broker__listeners__logd="nonsense").open(Echo)


def test_a_long_data_directory_works(make: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon = make("x" * 200)
    daemon.open(Echo)
    assert ask(daemon).daemon == "logd"


# -- requests, life ---------------------------------------------------------------------------

def test_status_is_answered_before_and_after_it_is_ready(make: Callable[..., Daemon]) -> None:
    daemon = make()
    daemon.open(Echo)
    daemon.facts = lambda: {"partitions": 3}
    before = ask(daemon)
    assert (before.ready, before.detail, before.node_id, before.pid) == (False, "starting", "n1", os.getpid())
    assert before.facts["partitions"] == 3 and before.codec in ("compiled", "pure")
    assert isinstance(ask(daemon, Kind.LEAVE, messages.Leave("g", "m")), Unavailable)      # the App's answer
    daemon.ready(), daemon.ready()
    after = ask(daemon)
    assert after.ready and after.detail == ""


def test_it_leaves_in_order(make: Callable[..., Daemon]) -> None:
    daemon = make()
    daemon.open(Echo)
    app, path = daemon._app, paths.socket_path(daemon.data_dir, "logd")
    assert os.path.exists(path)
    daemon.loop.call_later(0, lambda: os.kill(os.getpid(), 15))
    daemon.run()
    assert app.calls == ["start", "stop"] and not os.path.exists(path)      # type: ignore[union-attr]
    os.close(d.take_lock(daemon.data_dir, "logd"))


def test_the_collector_is_tamed_when_ready_and_runs_when_idle(make: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, collected = make(), []
    daemon.ready()
    assert not gc.isenabled() and gc.get_freeze_count() > 0
    monkeypatch.setattr(gc, "collect", lambda *_: collected.append(1))
    monkeypatch.setattr(gc, "get_count", lambda: (5, 0, 0))
    daemon._collect()
    assert collected == []                                   # nothing to do
    monkeypatch.setattr(gc, "get_count", lambda: (5000, 0, 0))
    daemon._collect()
    assert collected == [1]
    daemon.server.taken += 1000                              # busy
    daemon._collect()
    assert collected == [1]
    daemon.server.taken += 1000
    daemon._gc_last -= d.GC_BUSY_S
    daemon._collect()
    assert collected == [1, 1]




@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, endpoint: str, tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.setenv("GOQUEUE_RUNTIME_DIR", os.path.dirname(endpoint.removeprefix("ipc://")))
    monkeypatch.setattr("gq_run.logs.setup", lambda *_: None)
    monkeypatch.setattr(d, "keep_freed_memory", lambda: None, raising=False)
    # main() leaves the descriptors of a failed start to the end of the process; this process goes on
    made: list[Daemon] = []
    init = Daemon.__init__
    monkeypatch.setattr(Daemon, "__init__", lambda self, *args: (made.append(self), init(self, *args))[1])

    def main(make_app: Any, *argv: str) -> Any:
        with pytest.raises(SystemExit) as exit:
            d.main("logd", (), make_app, ["--data-dir", str(tmp_path / "data"), "--logd-addr", "off", "--metrics-enabled", "off",
                                          *argv])
        for daemon in made:
            if not daemon.context.closed:
                daemon._close()
        return exit.value.code

    return main


class Stops(Echo):
    def start(self) -> None:
        self.daemon.loop.post(self.daemon.stop)


class Fails(Echo):
    def start(self) -> None:
        raise OSError(28, "No space left on device")


class Broken(Echo):
    def start(self) -> None:
        self.daemon.loop.post(lambda: 1 // 0)


class LateError(Echo):
    def start(self) -> None:
        def late() -> None:
            raise Unavailable("nobody catches this")
        self.daemon.loop.post(late)


def test_exit_codes(main: Callable[..., Any], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
                    tmp_path: Path) -> None:
    assert main(Stops) == 0
    assert main(Fails) == 1
    assert main(Stops, "--log-level", "loud") == 2
    lock = d.take_lock(str(tmp_path / "data"), "logd")
    assert main(Stops) == 1
    os.close(lock)
    (tmp_path / "theirs.yaml").write_text("consumer: {pollTimeout: 5s}")
    assert main(Stops, "--config", str(tmp_path / "theirs.yaml")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["gq_logd:"] * 4        # one line each
    assert "No space left" in lines[0] and "logging.level" in lines[1] and "another logd" in lines[2]
    assert "each poll says it" in lines[3]
    assert main(Broken) == 70 and main(LateError) == 70
    assert "ZeroDivisionError" in caplog.text and "nobody catches this" in caplog.text


def test_a_node_that_was_killed_leaves_nothing_in_the_way(make: Callable[..., Daemon]) -> None:
    daemon = make()
    daemon.open(Echo)
    path = paths.socket_path(daemon.data_dir, "logd")
    daemon._close()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as stale:      # a socket file without its process
        stale.bind(f"ipc://{path}")
        os.link(path, path + ".left")
    os.rename(path + ".left", path)
    again = make()
    again.open(Echo)
    assert ask(again).pid == os.getpid()

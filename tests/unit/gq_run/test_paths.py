"""Paths: which base is taken, what is recorded, how long a socket's path gets."""

import os
import stat
from pathlib import Path

import pytest

from gq_proto.errors import BadConfig
from gq_proto.limits import SOCKET_PATH_MAX
from gq_run import paths


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOQUEUE_RUNTIME_DIR", "GOQUEUE_DATA_DIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_data_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert paths.default_data_dir() == "/var/lib/goqueue"
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/u")
    assert paths.default_data_dir() == "/home/u/.local/share/goqueue"
    monkeypatch.setenv("GOQUEUE_DATA_DIR", "/data/../x")
    assert paths.default_data_dir() == "/x"


def test_base_of_the_runtime_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = paths.digest(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert paths.runtime_dir(tmp_path) == f"/run/goqueue/{name}"
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    monkeypatch.setattr(os, "getuid", lambda: 7)
    assert paths.runtime_dir(tmp_path) == f"/tmp/goqueue-7/{name}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    assert paths.runtime_dir(tmp_path) == f"/tmp/goqueue/{name}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/does/not/exist")
    assert paths.runtime_dir(tmp_path) == f"/tmp/goqueue-7/{name}"
    monkeypatch.setenv("GOQUEUE_RUNTIME_DIR", "/tmp/mine")
    assert paths.runtime_dir(tmp_path) == f"/tmp/mine/{name}"


def test_a_data_dir_is_named_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert paths.digest(tmp_path / "link") == paths.digest(f"{tmp_path}/real/../real/")
    assert paths.digest(tmp_path / "real") != paths.digest(tmp_path)
    assert len(paths.digest(tmp_path)) == 12


def test_a_long_data_dir_has_short_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = tmp_path / ("d" * 200) / ("e e" * 60)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp/" + "x" * 90)
    assert len(paths.socket_path(data, "supervisor")) <= SOCKET_PATH_MAX
    monkeypatch.setenv("GOQUEUE_RUNTIME_DIR", "/tmp/" + "x" * 90)
    with pytest.raises(BadConfig, match="too long"):
        paths.runtime_dir(data)


def test_making_it_leaves_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data, short = tmp_path / "data", Path(os.path.realpath("/tmp")) / f"gq-test-{os.getpid()}"
    data.mkdir()
    try:
        monkeypatch.setenv("GOQUEUE_RUNTIME_DIR", str(short))
        made = paths.make_runtime_dir(data)
        assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
        monkeypatch.delenv("GOQUEUE_RUNTIME_DIR")
        assert paths.runtime_dir(data) == made                     # whoever has another environment finds it
        os.chmod(made, 0o755)
        assert paths.make_runtime_dir(data) == made
        assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
        copy = tmp_path / "copy"
        copy.mkdir()
        (copy / ".runtime").write_text((data / ".runtime").read_text())
        assert paths.runtime_dir(copy) != made                     # a copied data directory is another node
        os.rmdir(made)
        assert paths.runtime_dir(data) != made                     # gone, after a reboot say
    finally:
        short.rmdir()


def test_a_runtime_dir_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setattr(paths, "runtime_dir", lambda data_dir: str(tmp_path / "base" / "x"))
    (tmp_path / "base").mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "base" / "x").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadConfig, match="not this user's own"):
        paths.make_runtime_dir(data)


@pytest.mark.parametrize(("address", "endpoint"), [
    ("127.0.0.1:7400", "tcp://127.0.0.1:7400"), ("[::1]:1", "tcp://[::1]:1"), (":7400", "tcp://*:7400"), ("h:0", "tcp://h:0")])
def test_addresses(address: str, endpoint: str) -> None:
    assert paths.tcp_endpoint(address) == endpoint


@pytest.mark.parametrize("address", ["", "7400", "h:", "h:x", "h:65536", "::1:7400", "h:-1", "h:\u0661"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(BadConfig, match="bad address"):
        paths.split_address(address)


def test_loopback() -> None:
    assert all(map(paths.is_loopback, ("127.0.0.1", "127.1.2.3", "localhost", "::1")))
    assert not any(map(paths.is_loopback, ("", "0.0.0.0", "10.0.0.1", "example.org", "::")))


def test_reachable_here(tmp_path: Path) -> None:
    assert paths.reachable_here("tcp://127.0.0.1:1")
    assert not paths.reachable_here(f"ipc://{tmp_path}/x.sock")
    (tmp_path / "x.sock").touch()
    assert paths.reachable_here(f"ipc://{tmp_path}/x.sock")

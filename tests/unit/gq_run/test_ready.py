"""sd_notify: what a service manager gets, and that nobody else is troubled."""

import os
import socket
from pathlib import Path

import pytest

from gq_run import ready


@pytest.mark.parametrize("abstract", [False, True])
def test_notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    name = f"\0gq-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        monkeypatch.setenv("NOTIFY_SOCKET", name.replace("\0", "@"))
        assert ready.notify("READY=1", "STATUS=metad serves")
        assert manager.recv(100) == b"READY=1\nSTATUS=metad serves"


def test_without_a_manager_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not ready.notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/does/not/exist")
    assert not ready.notify("READY=1")


@pytest.mark.parametrize(("usec", "pid", "expected"), [
    ("3000000", "", 1.5), ("3000000", str(os.getpid()), 1.5), ("3000000", "1", 0.0), ("", "", 0.0), ("x", "", 0.0), ("0", "", 0.0)])
def test_watchdog(monkeypatch: pytest.MonkeyPatch, usec: str, pid: str, expected: float) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid)
    assert ready.watchdog_s() == expected

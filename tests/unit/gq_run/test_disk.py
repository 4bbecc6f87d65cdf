"""The real disk: partial writes, appends behind rubbish, atomic replacement."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from gq_run.disk import IOV_MAX, Disk


def test_append_goes_on_after_partial_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Disk().open(str(tmp_path / "f"), create=True)
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: pwritev(fd, [b"".join(buffers)[:7]], at))
    file.append([b"hello", b"", b" wide", b" world"])
    file.append([b"!"])
    assert file.size == 17 and file.pread(0, 99) == b"hello wide world!"


def test_more_buffers_than_one_write_takes(tmp_path: Path) -> None:
    file = Disk().open(str(tmp_path / "f"), create=True)
    buffers = [b"%d," % n for n in range(2 * IOV_MAX + 5)]
    file.append(buffers)
    assert file.pread(0, file.size) == b"".join(buffers)


def test_a_failed_append_leaves_size_and_can_be_cut_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Disk().open(str(tmp_path / "f"), create=True)
    file.append([b"good"])
    pwritev, calls = os.pwritev, list[int]()

    def failing(fd: int, buffers: Any, at: int) -> int:
        calls.append(at)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return pwritev(fd, [b"".join(buffers)[:3]], at)

    monkeypatch.setattr(os, "pwritev", failing)
    with pytest.raises(OSError):
        file.append([b"too long"])
    assert file.size == 4 and os.path.getsize(file.path) == 7
    monkeypatch.undo()
    file.append([b"xy"])
    assert file.pread(0, 99) == b"goodxyo"[:7]
    file.truncate(6)
    assert Path(file.path).read_bytes() == b"goodxy"


def test_a_write_that_writes_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Disk().open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(os, "pwritev", lambda *args: 0)
    with pytest.raises(OSError):
        file.append([b"x"])


def test_write_atomic_replaces_or_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = Disk(), str(tmp_path / "f")
    disk.write_atomic(path, b"one")
    disk.write_atomic(path, b"two", durable=False)
    assert disk.read(path) == b"two"

    def failing(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", failing)
    with pytest.raises(OSError):
        disk.write_atomic(path, b"three")
    monkeypatch.undo()
    assert disk.read(path) == b"two" and disk.list_dir(str(tmp_path)) == ["f"]


def test_what_is_not_there(tmp_path: Path) -> None:
    disk, path = Disk(), str(tmp_path / "x")
    disk.remove(path)
    disk.remove_tree(path)
    assert disk.list_dir(path) == [] and not disk.exists(path)
    for call in (disk.open, disk.read, disk.size):
        with pytest.raises(FileNotFoundError):
            call(path)


def test_space(tmp_path: Path) -> None:
    disk = Disk()
    assert 0 < disk.free_bytes(str(tmp_path)) <= disk.total_bytes(str(tmp_path))

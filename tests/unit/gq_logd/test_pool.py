"""Open files: few, the least recently used closed first, pinned ones not at all."""

from pathlib import Path

import pytest

from gq_logd.pool import FilePool
from gq_run.disk import Disk


def test_the_least_recently_used_is_closed(tmp_path: Path) -> None:
    pool = FilePool(Disk(), 2)
    a, b, c = (str(tmp_path / name) for name in "abc")
    file_a, file_b = pool.get(a, create=True), pool.get(b, create=True)
    assert pool.get(a) is file_a
    pool.get(c, create=True)
    assert file_b.fileno() == -1 and file_a.fileno() >= 0 and len(pool) == 2


def test_pinned_files_stay_open(tmp_path: Path) -> None:
    pool = FilePool(Disk(), 1)
    paths = [str(tmp_path / name) for name in "abc"]
    files = []
    for path in paths:
        files.append(pool.get(path, create=True))
        pool.pin(path)
    assert len(pool) == 3 and all(file.fileno() >= 0 for file in files)
    pool.pin(paths[0])
    pool.unpin(paths[0])
    pool.forget(paths[0])                              # still pinned once: closed when that ends
    assert files[0].fileno() >= 0
    pool.unpin(paths[0])
    assert files[0].fileno() == -1
    pool.unpin(paths[1])
    pool.forget(paths[1])
    assert files[1].fileno() == -1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    pool = FilePool(Disk(), 2)
    with pytest.raises(FileNotFoundError):
        pool.get(str(tmp_path / "x"))
    assert len(pool) == 0

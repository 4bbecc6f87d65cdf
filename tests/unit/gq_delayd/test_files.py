"""The index on disk: written where it ends, replaced whole, removed with its topic; and the options."""

from pathlib import Path

import pytest

from gq_delayd.effects import IndexReplace, IndexWrite
from gq_delayd.files import Files
from gq_delayd.options import OPTIONS, settings_of
from gq_delayd.settings import Settings
from gq_run import settings
from gq_run.disk import Disk
from gq_run.options import load


def write(position: int, data: bytes, partition: int = 3, fresh: bool = False) -> IndexWrite:
    return IndexWrite((7, partition), 1, "orders", position, data, fresh)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(Disk(), str(tmp_path))


def test_what_is_written_is_read_and_ends_where_it_was_put(files: Files, tmp_path: Path) -> None:
    assert files.read("orders", 3) == b""
    files.write(write(0, b"abcdef"))
    files.write(write(6, b"ghi"))
    assert files.read("orders", 3) == b"abcdefghi"
    files.write(write(3, b"X"))
    assert (tmp_path / "delays/orders/3.index").read_bytes() == b"abcX"


def test_a_fresh_file_counts_when_it_takes_the_others_place(files: Files) -> None:
    files.write(write(0, b"old"))
    files.write(write(0, b"ne", fresh=True))
    files.write(write(2, b"w", fresh=True))
    assert files.read("orders", 3) == b"old"
    files.replace(IndexReplace((7, 3), 1, "orders"))
    assert files.read("orders", 3) == b"new"


def test_what_was_left_of_a_fresh_file_is_overwritten(files: Files) -> None:
    files.write(write(0, b"left over from before", fresh=True))
    files.write(write(0, b"new", fresh=True))
    files.replace(IndexReplace((7, 3), 1, "orders"))
    assert files.read("orders", 3) == b"new"


def test_a_topics_files_go_with_it_and_strangers_are_tidied_away(files: Files, tmp_path: Path) -> None:
    files.write(write(0, b"x"))
    (tmp_path / "delays/gone").mkdir()
    (tmp_path / "delays/gone/0.index").write_bytes(b"y")
    files.tidy(["orders", "others"])
    assert files.read("orders", 3) == b"x" and not (tmp_path / "delays/gone").exists()
    files.remove("orders")
    files.remove("orders")
    assert list((tmp_path / "delays").iterdir()) == []


def test_what_cannot_be_read_is_none_and_what_cannot_be_written_is_said(files: Files, tmp_path: Path) -> None:
    (tmp_path / "delays/orders/3.index").mkdir(parents=True)
    assert files.read("orders", 3) == b""
    with pytest.raises(OSError):
        files.write(write(0, b"x"))


def test_settings_come_from_section_delay(tmp_path: Path) -> None:
    def read(text: str) -> Settings:
        (tmp_path / "goqueue.yaml").write_text(text)
        return settings_of(load("delayd", [*settings.SHARED, *OPTIONS], [], {}, str(tmp_path)))
    assert read("") == Settings()
    found = read("delay: {indexInterval: 0, readyMessages: 100}")
    assert (found.index_interval_s, found.ready_messages) == (0.0, 100)

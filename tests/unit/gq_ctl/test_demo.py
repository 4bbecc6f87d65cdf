"""The demo's own logic: what it sends, what it makes of the notes, what it deletes."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_ctl import demo
from gq_ctl.demo_work import (
    CRITICAL,
    DELAYED,
    Note,
    overtaken,
    pack_notes,
    read_notes,
    rebuild,
    source_files,
    source_lines,
)

notes = st.builds(Note, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1),
                  st.binary(max_size=9), st.binary(max_size=9))


@given(st.lists(notes))
def test_notes_come_back(sent):
    assert list(read_notes(pack_notes(sent))) == sent


def test_notes_cut_anywhere_lose_only_the_last():
    sent = [Note(1, 2, 1, b"a.py", b"x\n"), Note(1, 3, 1, b"a.py", b""), Note(0, 0, 2, b"", b"y")]
    ends = [len(pack_notes(sent[:n])) for n in range(len(sent) + 1)]
    for low, high in pairwise(ends):
        for cut in range(low, high):
            assert list(read_notes(pack_notes(sent)[:cut])) == sent[:ends.index(low)]


def test_rebuild_orders_by_offset_and_counts_what_came_again():
    got = [Note(0, 7, 1, b"a", b"2"), Note(0, 5, 2, b"a", b"1\n"), Note(1, 0, 1, b"b", b"x\r\n"), Note(0, 7, 1, b"a", b"2")]
    assert rebuild(got) == ({b"a": b"1\n2", b"b": b"x\r\n"}, 3, 2)


def test_the_demos_own_messages_are_no_lines_and_what_they_overtook_is_counted() -> None:
    def line(partition: int, offset: int) -> Note:
        return Note(partition, offset, 1, b"a", b"x")

    mine = [Note(1, 9, 1, CRITICAL, b"!"), Note(0, 3, 1, DELAYED, b"?")]
    assert rebuild([line(0, 1), *mine])[1] == 1
    notes = [line(1, 1), line(1, 2), mine[0], line(1, 2), line(1, 3), line(1, 3), line(1, 7), line(1, 12), line(0, 4)]
    assert overtaken(notes, CRITICAL) == 2, "3 and 7: not what came again, later offsets, other partitions"
    assert overtaken(notes, DELAYED) == overtaken([], CRITICAL) == 0


def make_tree(root: Path) -> None:
    (root / "pkg/__pycache__").mkdir(parents=True)
    (root / "site-packages").mkdir()
    (root / "pkg/a.py").write_bytes(b"one\r\ntwo\x0b\nlast")
    (root / "b.py").write_bytes(b"\n")
    (root / "empty.py").write_bytes(b"")
    (root / "notes.txt").write_bytes(b"no\n")
    (root / "site-packages/c.py").write_bytes(b"no\n")


def test_source_lines_are_the_files(tmp_path):
    make_tree(tmp_path)
    assert source_files(tmp_path) == [Path("b.py"), Path("empty.py"), Path("pkg/a.py")]
    assert list(source_lines(tmp_path)) == [(b"b.py", b"\n"), (b"pkg/a.py", b"one\r\n"), (b"pkg/a.py", b"two\x0b\n"),
                                            (b"pkg/a.py", b"last")]


def test_compare_sees_a_wrong_byte_a_missing_and_a_surplus_file(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    make_tree(source)
    run = demo.Demo(tmp_path / "demo", source)
    run.rebuilt.mkdir(parents=True)
    assert run.compare({b"b.py": b"\n", b"pkg/a.py": b"one\r\ntwo\x0b\nlast"}) == []
    assert run.compare({b"b.py": b"", b"z.py": b""}) == [Path("b.py"), Path("pkg/a.py"), Path("z.py")]


def test_clear_spares_what_is_not_the_demos(tmp_path):
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(demo.DemoFailed):
        demo.clear(tmp_path)
    assert (tmp_path / "mine").read_text() == "keep"
    folder = tmp_path / "demo"
    demo.clear(folder)
    (folder / "data").mkdir()
    demo.clear(folder)
    assert [path.name for path in folder.iterdir()] == [demo.MARK]

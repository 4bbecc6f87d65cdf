import json
import os

import pytest

from gq_ctl.output import Output, Stdout, StdoutClosed, plain


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            pass


def printed(form, pipe, call):
    out = Output(form, Stdout(pipe[1]))
    call(out)
    os.close(pipe[1])
    return os.read(pipe[0], 65536).decode()


ROWS = [{"name": "a", "size": 5, "_hidden": [1]}, {"name": "longer", "size": 12, "_hidden": []}]


def test_json_is_one_object_a_line_with_every_field(pipe):
    text = printed("json", pipe, lambda out: out.rows(ROWS, "name"))
    assert [json.loads(line) for line in text.splitlines()] == [
        {"name": "a", "size": 5, "hidden": [1]}, {"name": "longer", "size": 12, "hidden": []}]


def test_value_is_the_one_column(pipe):
    assert printed("value", pipe, lambda out: out.rows(ROWS, "name")) == "a\nlonger\n"


def test_a_table_in_a_pipe_is_aligned_text_with_numbers_to_the_right(pipe):
    text = printed("table", pipe, lambda out: out.rows(ROWS, "name", {"name": str.upper}))
    assert text == "NAME    SIZE\nA          5\nLONGER    12\n"


def test_an_empty_table_says_so_on_stderr_only(pipe, capfd):
    assert printed("table", pipe, lambda out: out.rows([], "name", empty="no topics")) == ""
    assert capfd.readouterr().err == "gqctl: no topics\n"


def test_a_single_object_in_a_table_is_a_field_a_line(pipe):
    assert printed("table", pipe, lambda out: out.one(ROWS[1], "name")) == "name  longer\nsize  12\n"


def test_plain_text_of_fields():
    assert [plain(x) for x in (None, True, 1.5, [1, "a"], {"a": 1}, "x")] == ["", "yes", "1.5", "1,a", "a=1", "x"]


def test_a_closed_pipe_is_an_error_at_the_flush_and_nothing_is_kept(pipe):
    out = Stdout(pipe[1])
    os.close(pipe[0])
    out.write(b"x" * 10)
    with pytest.raises(StdoutClosed):
        out.flush()
    out.flush()


def test_big_writes_arrive_whole(tmp_path):
    with (tmp_path / "out").open("wb") as file:
        out = Stdout(file.fileno())
        for number in range(100_000):
            out.write(b"%d\n" % number)
        out.flush()
    assert (tmp_path / "out").read_bytes() == b"".join(b"%d\n" % n for n in range(100_000))


def test_what_cannot_be_written_names_stdout():
    with open("/dev/full", "wb", buffering=0) as full:
        out = Stdout(full.fileno())
        out.write(b"x")
        with pytest.raises(OSError, match="No space left on device: 'stdout'"):
            out.flush()

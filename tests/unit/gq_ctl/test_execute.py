import json
import os

import pytest

from gq_ctl import execute
from gq_proto.message import Record


def message(key=b"k", value=b"v", raw_headers=b""):
    return Record("jobs", 2, 17, 1_700_000_000_000_000, 1, 0, key, value, raw_headers, delivery=3)


def test_the_command_gets_the_value_on_stdin_and_the_rest_in_its_environment(tmp_path):
    out = tmp_path / "out"
    env = execute.environment(message(value=b"a\0b"), "w", "jobs:2:17:3:x", {"GOQUEUE_DATA_DIR": "/d"})
    assert execute.run(f"cat > {out}; env | grep ^GOQUEUE_ >> {out}; exit 7", message(value=b"a\0b"), env) == 7
    value, *told = out.read_bytes().split(b"\n")
    assert value.startswith(b"a\0bGOQUEUE_")
    told = {line.partition(b"=")[0].decode(): line.partition(b"=")[2].decode() for line in out.read_bytes()[3:].splitlines()}
    assert told["GOQUEUE_TOPIC"] == "jobs" and told["GOQUEUE_PARTITION"] == "2" and told["GOQUEUE_OFFSET"] == "17"
    assert told["GOQUEUE_DELIVERY"] == "3" and told["GOQUEUE_KEY"] == "k" and told["GOQUEUE_RECEIPT"] == "jobs:2:17:3:x"
    assert told["GOQUEUE_DATA_DIR"] == "/d" and json.loads(told["GOQUEUE_HEADERS"]) == {}


def test_a_key_that_no_environment_can_hold_is_left_out(monkeypatch):
    monkeypatch.setenv("GOQUEUE_KEY", "another's")
    for key in (None, b"a\0b"):
        assert b"GOQUEUE_KEY" not in execute.environment(message(key=key), "w", "r", {})
    assert execute.environment(message(key=b"\xff"), "w", "r", {})[b"GOQUEUE_KEY"] == b"\xff"


def test_a_command_that_reads_nothing_or_dies_by_a_signal():
    assert execute.run("true", message(value=b"x" * 1_000_000), {}) == 0
    assert execute.run("kill -9 $$", message(value=None), {}) == -9


def test_an_interrupt_ends_the_command_too(monkeypatch, tmp_path):
    pid = tmp_path / "pid"

    def interrupted(self, value):
        while not pid.exists() or not pid.read_text():
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(execute.subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute.run(f"echo $$ > {pid}; exec sleep 60", message(), {b"PATH": os.environb[b"PATH"]})
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_what_is_plainly_no_program():
    assert execute.missing("./no-such-thing.sh --flag") == "./no-such-thing.sh"
    assert execute.missing("sh -c true") == execute.missing("if true; then x; fi") == execute.missing("A=1 x") == ""
    assert execute.missing("'./with space' x") == execute.missing("(x)") == ""
    assert execute.missing(" ") == "a command"

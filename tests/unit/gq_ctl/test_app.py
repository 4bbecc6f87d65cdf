import os

import click
import pytest

from gq_ctl import app, line, supervisor
from gq_proto import errors
from gq_run import paths


@pytest.mark.parametrize(("error", "code"), [
    (errors.UnknownTopic("x"), 4), (errors.UnknownGroup("x"), 4), (errors.TimedOut("x"), 124), (errors.Unavailable("x"), 3),
    (errors.BadName("x"), 2), (errors.BadConfig("x"), 2), (errors.StaleReceipt("x"), 1), (errors.DiskFull("x"), 1),
])
def test_what_went_wrong_is_an_exit_code(error, code):
    assert app.exit_code(error) == code


def raising(monkeypatch, error):
    @click.command("status", cls=app.Command)
    def command():
        raise error
    monkeypatch.setattr(app.Root, "get_command", lambda self, ctx, name: command)
    return app.run(["status"])


@pytest.mark.parametrize(("error", "code", "said"), [
    (errors.NotFound("gone\nforever"), 4, "gqctl: gone forever\n"), (KeyboardInterrupt(), 130, "\n"), (app.Terminated(), 143, ""),
    (app.Failed("no", 7), 7, "gqctl: no\n"), (app.Quiet(9), 9, ""), (app.StdoutClosed(), 141, ""),
    (PermissionError(13, "Permission denied", "/x"), 1, "gqctl: /x: Permission denied\n"),
])
def test_every_end_of_a_command(monkeypatch, capfd, error, code, said):
    stdout = os.dup(1)
    try:
        assert raising(monkeypatch, error) == code
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    assert capfd.readouterr() == ("", said)


def test_a_mistake_names_the_help_of_its_command(capfd):
    assert app.run(["topic", "alter", "t", "--retention"]) == app.run(["topic", "alter", "t", "--nope"]) == app.USAGE
    assert capfd.readouterr().err.count("(see gqctl topic alter --help)") == 2


def test_help_of_a_family_cuts_no_sentence(capfd):
    for family in ("topic", "bench"):
        app.run([family, "--help"])
        assert "..." not in capfd.readouterr().out.partition("Commands:")[2]


def test_a_bug_is_not_hidden(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        raising(monkeypatch, ZeroDivisionError())


def test_the_innermost_option_wins_and_options_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("GOQUEUE_DATA_DIR", "/env")
    monkeypatch.delenv("GOQUEUE_SERVER", raising=False)
    seen = []

    @click.command("status", cls=app.Command)
    def command():
        seen.append(app.settings().node())
    monkeypatch.setattr(app.Root, "get_command", lambda self, ctx, name: command)
    for argv in (["status"], ["--data-dir", "/a", "status"], ["--data-dir", "/a", "status", "--data-dir", "/b"],
                 ["status", "--server", "host"], ["status", "--server", "h:1,[::1]"]):
        assert app.run(argv) == 0
    monkeypatch.setenv("GOQUEUE_SERVER", "there:1")
    assert app.run(["status"]) == app.run(["--data-dir", "/a", "status"]) == 0
    assert seen == [("/env", ""), ("/a", ""), ("/b", ""), ("", "host:7400"), ("", "h:1,[::1]:7400"), ("", "there:1"), ("/a", "")]
    assert app.run(["--data-dir", "/a", "status", "--server", "b:1"]) == 2


def test_metads_port_is_that_of_the_daemons():
    assert paths.TCP_PORTS["metad"] == app.METAD_PORT
    assert line.metad_endpoint("", "host:7400") == "tcp://host:7400"


def test_every_command_of_the_table_is_there_and_documented():
    ctx = click.Context(app.root)
    for name in app.COMMANDS:
        command = app.root.get_command(ctx, name)
        assert command is not None and command.name == name and command.help
        for below in getattr(command, "commands", {}).values():
            assert below.help, f"{name} {below.name}"


def test_no_node_is_said_at_once_with_what_to_do(tmp_path):
    with pytest.raises(errors.Unavailable, match=r"no node runs on .*: start it with `gqctl --data-dir '.*a b' up`"):
        line.check_up(str(tmp_path / "a b"))


def test_what_supervisor_inherits_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "lib:")
    monkeypatch.setenv("GOQUEUE_CONFIG", "node.yaml")
    monkeypatch.setenv("GOQUEUE_RUNTIME_DIR", "run")
    data = tmp_path / "data"
    data.mkdir()
    found = supervisor.Supervisor(str(data)).environment()
    assert found["PYTHONPATH"].split(":")[-1] == str(tmp_path / "lib")
    assert found["GOQUEUE_CONFIG"] == str(tmp_path / "node.yaml")
    assert found["GOQUEUE_SOCKETS"].startswith(str(tmp_path / "run")) and os.stat(found["GOQUEUE_SOCKETS"]).st_mode & 0o777 == 0o700
    assert (data / "daemons").is_dir() and found["GOQUEUE_DATA_DIR"] == str(data)


@pytest.mark.parametrize(("typed", "said"), [
    ("consum", "No such command 'consum'. Did you mean 'consume'?"), ("frobnicate", "No such command 'frobnicate'."),
])
def test_a_typo_is_told_what_was_meant(typed, said, capfd):
    stdout = os.dup(1)
    try:
        assert app.run([typed]) == 2
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    assert capfd.readouterr().err.startswith(f"gqctl: {said} (see gqctl --help)")

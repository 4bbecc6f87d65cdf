"""One line a record, whatever is logged."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from gq_run import logs


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    root, level = list(logging.root.handlers), logs.logger().level
    yield
    logging.root.handlers[:] = root
    logging.captureWarnings(False)
    logging.raiseExceptions = True
    logs.logger().setLevel(level)


NASTY = "line\nbreak \u2028 \x00 \u00fc \ud800 \r\x1b[0m"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("metad", "n1", "info", "json")
    logs.logger("metad").info("topic made", extra=logs.fields(topic="orders", ids=[1, 2], what=object))
    line = json.loads(capsys.readouterr().err)
    assert line["time"].endswith("Z") and len(line["time"]) == len("2026-01-02T03:04:05.678901Z")
    del line["time"]
    assert line == {"level": "info", "daemon": "metad", "node": "n1", "message": "topic made", "topic": "orders", "ids": [1, 2],
                    "what": "<class 'object'>"}


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("metad", "n1", "info", "text")
    logs.logger("metad").warning("topic %s", "made", extra=logs.fields(topic="orders"))
    time, rest = capsys.readouterr().err.rstrip("\n").split(" ", 1)
    assert len(time) == len("2026-01-02T03:04:05.678Z") and rest == "WARNING metad topic made topic=orders"


@pytest.mark.parametrize("format", ["json", "text"])
def test_one_line_a_record(capsys: pytest.CaptureFixture[str], format: str) -> None:
    logs.setup("metad", "n1", "info", format)
    try:
        raise ValueError(NASTY.replace("\ud800", ""))
    except ValueError:
        logs.logger().exception("went\nwrong", extra=logs.fields(why="a\r\nb"))
    out = capsys.readouterr().err
    assert out.count("\n") == 1 and out.endswith("\n") and "ValueError" in out
    assert format == "json" or len(out.splitlines()) == 1
    if format == "json":
        assert json.loads(out)["traceback"].startswith("Traceback")


@pytest.mark.parametrize("format", ["json", "text"])
def test_what_is_no_unicode_is_logged_all_the_same(capsys: pytest.CaptureFixture[str], format: str) -> None:
    logs.setup("metad", "n1", "info", format)
    logs.logger().info("name \ud800", extra=logs.fields(raw=b"\xff", name="\udcff"))
    assert "name" in capsys.readouterr().err


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("metad", "n1", "warning", "text")
    logs.logger("x").info("quiet")
    logging.getLogger("library").info("quiet too")
    logging.getLogger("library").warning("loud")
    logs.setup("metad", "n1", "debug", "text")
    logs.logger("x").debug("detail")
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["loud", "detail"]


def test_a_closed_stderr_takes_nothing_down(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> None:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    logs.setup("metad", "n1", "info", "json")
    logs.logger().info("into the void")

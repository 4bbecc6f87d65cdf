"""Logging: one line per record on stderr, as JSON or as text. Python's logging underneath.

Owns the formats. Fields beside the message go in `extra`:  log.info("topic made", extra=fields(topic="orders", partitions=3)).

    {"time":"2026-01-02T03:04:05.678901Z","level":"info","daemon":"metad","node":"n1","message":"topic made","topic":"orders"}
    2026-01-02T03:04:05.678Z INFO metad topic made topic=orders partitions=3

A traceback is a field too (JSON: "traceback"), its lines joined; nothing that is logged can make a second line.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

ROOT: Final = "goqueue"
LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def fields(**values: Any) -> dict[str, dict[str, Any]]:
    """For `extra`: named values of a record."""
    return {"fields": values}


def logger(name: str = "") -> logging.Logger:
    return logging.getLogger(f"{ROOT}.{name}" if name else ROOT)


def setup(daemon: str, node_id: str, level: str, format: str) -> logging.Logger:
    """Send everything at `level` and above to stderr; also what libraries log through `logging`, from warning on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(daemon, node_id) if format == "json" else TextLines(daemon))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.raiseExceptions = False          # a closed stderr must not take the daemon down
    found = logger()
    found.setLevel(LEVELS[level])
    return found


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, daemon: str, node_id: str) -> None:
        super().__init__()
        self._always = {"daemon": daemon, "node": node_id}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time(record, "microseconds"), "level": record.levelname.lower(), **self._always,
                                "message": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except (UnicodeEncodeError, TypeError, ValueError, OverflowError):     # lone surrogates, keys that are no text, ...
            return json.dumps(line, default=repr, skipkeys=True)


class TextLines(logging.Formatter):
    """For eyes."""

    def __init__(self, daemon: str) -> None:
        super().__init__()
        self._daemon = daemon

    def format(self, record: logging.LogRecord) -> str:
        words = [_time(record, "milliseconds"), record.levelname, self._daemon, record.getMessage()]
        words += [f"{name}={value}" for name, value in getattr(record, "fields", {}).items()]
        if record.exc_info:
            words.append(self.formatException(record.exc_info))
        return " | ".join(" ".join(words).splitlines()).encode("utf-8", "backslashreplace").decode()


def _time(record: logging.LogRecord, precision: str) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec=precision).replace("+00:00", "Z")

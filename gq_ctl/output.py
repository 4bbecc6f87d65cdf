"""What goes to stdout, in the form the user asked for, and what goes to stderr.

    table   for people: columns; the default on a terminal
    json    one object a line; the default in a pipe
    value   the one thing a script wants: a message's value, a name, a number; one a line

Owns stdout: bytes are collected and written in big pieces with plain writes, so that a closed pipe is noticed where it happens
and nothing is written twice at exit. Rows are dicts; the columns of a table are the keys of its first row. Never colours data in a
pipe and never prints talk on stdout.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

FORMS: Final = ("table", "json", "value")
CHUNK_BYTES: Final = 256 * 1024
STDOUT: Final = 1
WIDTH: Final = 100_000     # of a table, at most

Row = dict[str, Any]
Show = Callable[[Any], str]


def say(text: str) -> None:
    """One line of talk."""
    try:
        print(f"gqctl: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass        # nobody listens: not a reason to fail


class StdoutClosed(Exception):
    """Nobody reads stdout any more (`| head -1`). No OSError, so that nothing on the way takes it for one."""


class Stdout:
    """A buffered file descriptor. StdoutClosed when the reader went away; what was flushed before did arrive."""

    def __init__(self, fd: int = STDOUT) -> None:
        self.fd = fd
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the kernel. What could not be written is dropped: the error says so."""
        data = memoryview(b"".join(self._parts))
        self._parts.clear()
        self._size = 0
        try:
            while data:
                data = data[os.write(self.fd, data):]
        except BrokenPipeError:
            raise StdoutClosed from None
        except OSError as e:
            raise OSError(e.errno, e.strerror, "stdout") from None


class Output:
    """One command's stdout. `form` is one of FORMS."""

    def __init__(self, form: str, stdout: Stdout | None = None) -> None:
        self.form = form
        self.stdout = stdout or Stdout()

    def rows(self, rows: Iterable[Row], value: str, show: dict[str, Show] | None = None, empty: str = "") -> None:
        """A list. `value` names the column that -o value prints; `show` turns columns into text for the table, columns of
        the first row with no name in a table begin with an underscore; `empty` is what a table says when there is nothing."""
        if self.form == "table":
            self._table(list(rows), show or {}, empty)
        elif self.form == "json":
            for row in rows:
                self.json({name.lstrip("_"): field for name, field in row.items()})
        else:
            for row in rows:
                self.line(plain(row[value]))
        self.stdout.flush()

    def one(self, row: Row, value: str, show: dict[str, Show] | None = None) -> None:
        """A single object: in a table one line a field."""
        if self.form != "table":
            self.rows([row], value)
            return
        width = max((len(name) for name in row if not name.startswith("_")), default=0)
        for name, field in row.items():
            if not name.startswith("_"):
                self.line(f"{name.ljust(width)}  {_shown(name, field, show or {})}")
        self.stdout.flush()

    def json(self, value: object) -> None:
        self.stdout.write(json_bytes(value) + b"\n")

    def line(self, text: str) -> None:
        self.stdout.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def _table(self, rows: list[Row], show: dict[str, Show], empty: str) -> None:
        if not rows:
            if empty:
                say(empty)
            return
        names = [name for name in rows[0] if not name.startswith("_")]
        cells = [[_shown(name, row.get(name), show) for name in names] for row in rows]
        right = [all(isinstance(row.get(name), int | float) for row in rows) for name in names]
        if os.isatty(self.stdout.fd):
            self._rich(names, cells, right)
        else:
            self._aligned(names, cells, right)

    def _aligned(self, names: Sequence[str], cells: list[list[str]], right: list[bool]) -> None:
        """Plain text: what a table in a pipe looks like."""
        table = [[name.upper() for name in names], *cells]
        widths = [max(map(len, column)) for column in zip(*table)]
        for line in table:
            padded = [cell.rjust(width) if flush else cell.ljust(width) for cell, width, flush in zip(line, widths, right)]
            self.line("  ".join(padded).rstrip())

    def _rich(self, names: Sequence[str], cells: list[list[str]], right: list[bool]) -> None:
        """For a terminal. Never folded: what is too wide the terminal wraps, so that it can still be copied."""
        import io

        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, flush in zip(names, right):
            table.add_column(name.upper(), justify="right" if flush else "left", no_wrap=True)
        for line in cells:
            table.add_row(*(Text(cell) for cell in line))
        text = io.StringIO()
        Console(file=text, force_terminal=True, width=WIDTH).print(table)
        for printed in text.getvalue().splitlines():
            self.line(printed.rstrip())


def _shown(name: str, field: Any, show: dict[str, Show]) -> str:
    return show[name](field) if name in show else plain(field)


def plain(field: Any) -> str:
    """A field as text without quotes: lists joined by commas, nothing for None."""
    match field:
        case None: return ""
        case bool(): return "yes" if field else "no"
        case float(): return f"{field:.10g}"
        case list() | tuple(): return ",".join(map(plain, field))
        case dict(): return " ".join(f"{name}={plain(value)}" for name, value in field.items())
    return str(field)


def json_bytes(value: object) -> bytes:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")


class Progress:
    """A line on stderr that is written over, for anything long; silent unless stderr is a terminal."""

    EVERY_S: Final = 0.2

    def __init__(self, what: str, now: Callable[[], float]) -> None:
        self._what, self._now = what, now
        self.wanted = sys.stderr.isatty()
        self._start = self._last = now()
        self._shown = False

    def update(self, count: int, of: int = 0) -> None:
        now = self._now()
        if not self.wanted or now - self._last < self.EVERY_S:
            return
        self._last = now
        rate = count / max(now - self._start, 1e-9)
        total = f" of {of:,}" if of else ""
        sys.stderr.write(f"\r\x1b[K{self._what}: {count:,}{total}, {rate:,.0f}/s")
        sys.stderr.flush()
        self._shown = True

    def done(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False

"""The demo's workers as the director holds them, and its talk."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

PLAIN_PROGRESS_S: Final = 2.0


class Worker:
    """A process of demo_work, and what it told last."""

    def __init__(self, name: str, argv: list[str], env: dict[str, str], log: Path) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        self.killed = False
        self._rest = b""
        with log.open("ab") as errors:
            self.process = subprocess.Popen([sys.executable, "-m", "gq_ctl.demo_work", *argv], env=env, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        assert self.process.stdout and self.process.stdin
        self.out, self.into = self.process.stdout, self.process.stdin

    def read(self) -> bool:
        """Take what it told, unless it was killed: then its notes say more. False at its end."""
        data = os.read(self.out.fileno(), 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not self.killed:
                self.facts.update(json.loads(line))
        return bool(data)

    def go(self, limit: int = 0) -> None:
        """Let it go on; a consumer until it has taken `limit` lines."""
        self.facts["holding"] = None
        self.into.write(b"%d\n" % limit)
        self.into.flush()

    def kill(self) -> None:
        """-9, and wait until it is gone."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Politely, then not; by its pid."""
        for pipe in (self.into, self.out):
            with contextlib.suppress(OSError):
                pipe.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


class Screen:
    """Talk and one line of progress, on stderr: rewritten in place on a terminal, a plain line now and then elsewhere."""

    def __init__(self) -> None:
        self._tty = sys.stderr.isatty()
        self._dirty = False
        self._next = 0.0
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        self._clear()
        print(f"{time.monotonic() - self._start:5.1f} s  {text}", file=sys.stderr, flush=True)

    def progress(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (0.1 if self._tty else PLAIN_PROGRESS_S)
        if self._tty:
            print(f"\r\033[K{now - self._start:5.1f} s  {text}", end="", file=sys.stderr, flush=True)
            self._dirty = True
        else:
            self.say(text)

    def _clear(self) -> None:
        if self._dirty:
            print("\r\033[K", end="", file=sys.stderr)
            self._dirty = False

"""Real daemons for system tests: a Node is the processes of one node on one data directory.

Owns the processes it starts and ends only those, by pid. Never sleeps for readiness: it asks STATUS until a daemon says that it
is ready, and fails with the daemon's own words when it exits instead. Sockets are ipc ones below the runtime directory, which is
named after the data directory, so any number of nodes live side by side; tcp and metrics are off unless `env` says otherwise.

    with Node(tmp_path / "node").start() as node:
        node.client().publish("orders", b"1")
        node.kill9("logd")
        node.start("logd")
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import zmq

from gq_proto import files, messages
from gq_run import paths

ROOT = Path(__file__).parents[2]
DAEMONS = ("metad", "logd", "groupd", "delayd")
READY_S = 30.0
STOP_S = 15.0
LOG_TAIL = 4000


class Died(AssertionError):
    """A daemon ended although nobody asked it to."""


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would point a daemon or gqctl at another node, and with this checkout importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_") or name == "GOQUEUE_CODEC"}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more}


def commands(folder: Path) -> Path:
    """A folder with `gqctl` and `python3` for a shell's PATH: this interpreter's, installed or not."""
    folder.mkdir()
    for name, arguments in (("gqctl", "-m gq_ctl "), ("python3", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (folder / name).chmod(0o755)
    return folder


def until(check: Any, what: str | Callable[[], str], timeout: float = READY_S, every: float = 0.02) -> Any:
    """The first true value of check(); AssertionError with `what` when there is none in time. For what can't be awaited."""
    end = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, f"not within {timeout:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(every)


def free_port() -> int:
    """A tcp port of 127.0.0.1 that is the caller's until this process ends, whoever else looks for one: it stays bound, and as
    nobody listens on it a server (which sets SO_REUSEADDR) may bind it, too."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = int(probe.getsockname()[1])
    probe.detach()
    return port


class Node:
    """`folder` gets `data` (the data directory) and `out` (what the daemons print). `config`: YAML text for goqueue.yaml."""

    def __init__(self, folder: Path, *, config: str = "", env: Mapping[str, str] | None = None,
                 daemons: tuple[str, ...] = DAEMONS, data: Path | None = None) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.out = folder / "out"
        self.daemons = daemons
        self.data.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        off = {f"GOQUEUE_{name.upper()}{kind}_ADDR": "off" for name in DAEMONS for kind in ("", "_METRICS")}
        self.env = environment(GOQUEUE_DATA_DIR=str(self.data), **{**off, **(env or {})})
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._clients: list[Any] = []
        if config:
            path = folder / "goqueue.yaml"
            path.write_text(config)
            self.env["GOQUEUE_CONFIG"] = str(path)

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- daemons ------------------------------------------------------------------------

    def start(self, *names: str, wait: bool = True) -> "Node":
        """Start these daemons (all that do not run, when none is named) and wait until they are ready."""
        chosen = names or tuple(name for name in self.daemons if not self.alive(name))
        for name in chosen:
            self._spawn(name)
        if wait:
            self.wait_ready(*chosen)
        return self

    def _spawn(self, name: str) -> None:
        assert not self.alive(name), f"{name} runs already"
        with self._log(name).open("ab") as out:
            self.processes[name] = subprocess.Popen([sys.executable, "-m", f"gq_{name}"], env=self.env, cwd=self.folder,
                                                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)

    def wait_ready(self, *names: str, timeout: float = READY_S) -> None:
        for name in names or tuple(self.processes):
            until(lambda name=name: self._ready(name), lambda name=name: f"{name} is ready: {self.status(name)}; {self.log(name)}",
                  timeout)

    def _ready(self, name: str) -> bool:
        process = self.processes[name]
        if process.poll() is not None:
            raise Died(f"{name} exited {process.returncode}:\n{self.log(name)}")
        status = self.status(name, timeout=0.5)
        return status is not None and status.ready and status.pid == process.pid

    def status(self, name: str, timeout: float = 5.0) -> messages.StatusReply | None:
        """What the daemon says of itself; None when it does not answer in time."""
        reply = self.ask(name, messages.Kind.STATUS, messages.Empty(), timeout=timeout)
        return messages.reply_body(messages.decode_reply(reply[0])) if reply else None  # type: ignore[no-any-return]

    def ask(self, name: str, kind: int, body: messages.Body, *frames: bytes, timeout: float = 5.0, **envelope: Any) -> list[bytes]:
        """One raw request to a daemon, over a socket of its own: the frames of the reply, [] when none comes in time."""
        head = messages.encode_request(kind, 1, body, deadline_ms=int(timeout * 1000), **envelope)
        with self.socket(name) as line:
            line.send_multipart([head, *frames])
            return line.recv_multipart() if line.poll(int(timeout * 1000)) else []

    @contextlib.contextmanager
    def socket(self, name: str) -> Iterator[zmq.Socket[bytes]]:
        """A bare DEALER connected to a daemon, for what no client would send."""
        with zmq.Context() as context, context.socket(zmq.DEALER) as line:
            line.linger = 0
            line.connect(self.endpoint(name))
            yield line

    @property
    def runtime(self) -> Path:
        return Path(paths.runtime_dir(self.data))

    def endpoint(self, name: str) -> str:
        return paths.ipc_endpoint(self.data, name)

    def alive(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and process.poll() is None

    def pid(self, name: str) -> int:
        return self.processes[name].pid

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.processes.items() if process.poll() is None}

    def kill9(self, *names: str) -> None:
        """SIGKILL these (all, when none is named) at once, and wait until they are gone."""
        for name in names or tuple(self.pids):
            self.processes[name].kill()
        for name in names or tuple(self.processes):
            self.processes[name].wait(STOP_S)

    def terminate(self, *names: str) -> dict[str, int]:
        """SIGTERM, last of the list first, and their exit codes."""
        chosen = names or tuple(self.pids)
        for name in reversed(chosen):
            self.processes[name].terminate()
        return {name: self.processes[name].wait(STOP_S) for name in chosen}

    def restart(self, *names: str) -> None:
        """A clean stop and a start (all, when none is named)."""
        chosen = names or self.daemons
        running = tuple(name for name in chosen if self.alive(name))
        if running:
            self.terminate(*running)
        self.start(*chosen)

    def crash(self, *names: str) -> None:
        """kill -9 and a start (all, when none is named)."""
        chosen = names or self.daemons
        self.kill9(*chosen)
        self.start(*chosen)

    def freeze(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGCONT)

    def stop(self) -> None:
        """End all that this node started: politely, then not. The gateway first: it gives back to the others what it holds for its
        callers, and would wait ten seconds for those that ended with it."""
        for client in self._clients:
            with contextlib.suppress(Exception):
                client.close()
        self._clients.clear()
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
        if self.alive("gateway"):
            self.processes["gateway"].terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes["gateway"].wait(STOP_S)
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        shutil.rmtree(self.runtime, ignore_errors=True)

    # -- what they print ------------------------------------------------------------------

    def _log(self, name: str) -> Path:
        return self.out / f"{name}.log"

    def log(self, name: str) -> str:
        """The end of what a daemon printed."""
        try:
            return self._log(name).read_text(errors="replace")[-LOG_TAIL:]
        except FileNotFoundError:
            return ""

    # -- users ------------------------------------------------------------------------------

    def client(self, **options: Any) -> Any:
        """A gq_client.Client of this node, closed with it."""
        import gq_client
        client = gq_client.Client(data_dir=str(self.data), **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Any) -> Any:
        """A gq_client.AsyncClient of this node; the caller closes it."""
        import gq_client
        return gq_client.AsyncClient(data_dir=str(self.data), **options)

    def gqctl(self, *args: str, input: str | bytes = b"", timeout: float = 60,
              check: bool = True) -> subprocess.CompletedProcess[bytes]:
        """Run gqctl on this node; stdout and stderr are bytes. AssertionError for an exit code other than 0 when `check`."""
        done = subprocess.run([sys.executable, "-m", "gq_ctl", *args], env=self.env, cwd=self.folder, timeout=timeout,
                              input=input.encode() if isinstance(input, str) else input, capture_output=True)
        assert not check or done.returncode == 0, f"gqctl {' '.join(args)} exited {done.returncode}: {done.stderr.decode()}"
        return done

    def spawn(self, argv: list[str], stdout: int | IO[bytes] | None = subprocess.PIPE, **options: Any) -> subprocess.Popen[bytes]:
        """A process of the test's own in this node's environment (a consumer to be killed, say). The caller ends it."""
        return subprocess.Popen(argv, env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=stdout, **options)


def vouched(node: Node, topic: str) -> None:
    """Wait until the checkpoints vouch for all of it: who reads the files reads no further."""
    def reach(partition: int) -> int:
        mark = node.data / "logs" / topic / str(partition) / files.CHECKPOINT
        return files.decode_checkpoint(mark.read_bytes()).last_stable if mark.exists() else 0

    parts = node.client().partitions(topic)
    until(lambda: all(reach(part.partition) >= part.high_watermark for part in parts), f"the checkpoints vouch for all of {topic}")

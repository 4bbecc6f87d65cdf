"""supervisord of a node: start it, ask it, end it.

Owns the process only through its unix socket and pid file in the runtime directory; `etc/supervisord.conf` says what it runs.
It is started in the data directory with absolute paths in its environment, because it outlives the shell that started it.
"""

import http.client
import os
import resource
import select
import socket
import subprocess
import sys
import xmlrpc.client
from pathlib import Path
from typing import Any, Final

from gq_ctl.app import Failed
from gq_ctl.line import listens
from gq_run import paths

CONFIGURATION: Final = Path(__file__).parent / "etc" / "supervisord.conf"
DAEMONS: Final = ("metad", "logd", "groupd", "delayd", "gateway")      # in the order in which they start
START_S: Final = 20.0
OPEN_FILES: Final = 65_536
NOT_RUNNING: Final = 70            # supervisor's faults
ALREADY_STARTED: Final = 60
RUNNING: Final = ("RUNNING", "STARTING", "BACKOFF")
GIVEN_UP: Final = ("FATAL", "EXITED", "UNKNOWN")


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return _Connection(self._path)


class Supervisor:
    """Of one data directory."""

    def __init__(self, data_dir: str) -> None:
        self.data_dir = data_dir
        self.socket = paths.socket_path(data_dir, "supervisor")

    def runs(self) -> bool:
        return listens(self.socket)

    def _rpc(self) -> Any:
        return xmlrpc.client.ServerProxy("http://localhost", transport=_Transport(self.socket)).supervisor

    def processes(self) -> dict[str, dict[str, Any]]:
        """By daemon, in the order in which they start: statename, pid, start, now, spawnerr ...; empty when it does not run."""
        if not self.runs():
            return {}
        found = sorted(self._rpc().getAllProcessInfo(), key=lambda info: DAEMONS.index(info["name"]))
        return {info["name"]: info for info in found}

    def start(self) -> None:
        """Start supervisord, which starts the daemons; if it runs, start those daemons that do not."""
        if self.runs():
            for name, info in self.processes().items():
                if info["statename"] not in RUNNING:
                    self.start_process(name)
            return
        environment = self.environment()
        done = subprocess.run([sys.executable, "-m", "supervisor.supervisord", "-c", str(CONFIGURATION)], env=environment,
                              cwd=self.data_dir, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_S)
        if done.returncode and not self.runs():
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise Failed(f"supervisord did not start: {said[-1] if said else f'exit code {done.returncode}'}")

    def start_process(self, name: str) -> None:
        self._call(lambda rpc: rpc.startProcess(name, False), ALREADY_STARTED)

    def stop_process(self, name: str) -> None:
        """Waits until it has ended."""
        self._call(lambda rpc: rpc.stopProcess(name, True), NOT_RUNNING)

    def _call(self, call: Any, fine: int) -> None:
        try:
            call(self._rpc())
        except xmlrpc.client.Fault as e:
            if e.faultCode != fine:
                raise Failed(f"supervisor: {e.faultString}") from None

    def shutdown(self, timeout_s: float) -> bool:
        """End all daemons and supervisord; True when it is gone, False when it did not end in time."""
        rpc = self._rpc()
        pid = int(rpc.getPID())
        with Ending(pid) as ending:
            rpc.shutdown()
            return ending.wait(timeout_s)

    def environment(self) -> dict[str, str]:
        """Of its daemons, wherever they are started; the folders they need are made."""
        runtime = paths.make_runtime_dir(self.data_dir)
        os.makedirs(os.path.join(self.data_dir, "daemons"), mode=0o750, exist_ok=True)
        _raise_open_files()
        own = {"GOQUEUE_PYTHON": sys.executable, "GOQUEUE_DATA_DIR": self.data_dir, "GOQUEUE_SOCKETS": runtime,
               "PYTHONPATH": os.pathsep.join(_import_path())}
        absolute = {name: os.path.abspath(os.environ[name]) for name in ("GOQUEUE_CONFIG", "GOQUEUE_RUNTIME_DIR")
                    if os.environ.get(name)}
        return {**os.environ, **absolute, **own}


class Ending:
    """Waits for a process that is no child. Open it before the process is asked to end: the pid can't be another's then."""

    def __init__(self, pid: int) -> None:
        self._fd = -1
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            pass

    def __enter__(self) -> "Ending":
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def wait(self, timeout_s: float) -> bool:
        """True when it has ended."""
        return self._fd < 0 or bool(select.select([self._fd], [], [], max(0.0, timeout_s))[0])


def _import_path() -> list[str]:
    """Where the daemons find gq_*: this package's folder when it is a checkout, and PYTHONPATH with absolute folders."""
    named = [os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    here = str(Path(__file__).parents[1])
    installed = os.path.basename(here) in ("site-packages", "dist-packages")
    return named if installed or here in named else [here, *named]


def _raise_open_files() -> None:
    """Each partition holds files open: let the daemons have as many as this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

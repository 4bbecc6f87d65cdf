"""`gqctl up`, `down`, `restart`, `status`: the daemons of one data directory.

Owns the decision what must run and when all of it is there: STATUS of each daemon, not supervisor's word. `up` is safe to repeat;
it takes over daemons that outlived their supervisor. `down` leaves nothing behind: it ends by pid, after asking each daemon for
its own, what supervisor does not know.
"""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from gq_ctl.app import FAILED, UNREACHABLE, USAGE, Command, Failed, Quiet, settings
from gq_ctl.output import Progress, Row, say
from gq_ctl.params import DURATION
from gq_ctl.units import show_duration
from gq_proto.messages import StatusReply
from gq_run import paths

DAEMONS: Final = ("metad", "logd", "groupd", "delayd", "gateway")
STATUS_S: Final = 1.0
STOP_S: Final = 20.0
POLL_S: Final = 0.03
TAIL_BYTES: Final = 8192
SHOW: Final = {"uptime_s": lambda seconds: "" if seconds is None else show_duration(seconds * 1000)}


class Hopeless(Failed):
    """A daemon that will not start however often it is tried."""


@click.command("up", cls=Command)
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="Give up waiting for readiness after this.")
def up_command(timeout: int) -> None:
    """Start the daemons under supervisor and wait until all are ready.

    An empty or missing data directory is fine: it is made. Prints the status of each daemon.
    """
    data_dir = settings().local()
    os.makedirs(data_dir, mode=0o750, exist_ok=True)
    with alone(data_dir):
        _start(data_dir, timeout / 1000)
    _show([_row(name, status, {}) for name, status in _ask_all(data_dir).items()])


@click.command("down", cls=Command)
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="Give up waiting for the end after this.")
def down_command(timeout: int) -> None:
    """Stop the daemons and wait until all have ended.

    Nothing is lost: logs are synced on the way. A node that does not run is fine.
    """
    data_dir = settings().local()
    if os.path.isdir(data_dir):
        with alone(data_dir):
            _stop(data_dir, timeout / 1000)


@click.command("restart", cls=Command)
@click.argument("daemons", nargs=-1, type=click.Choice(DAEMONS))
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="Give up waiting after this.")
def restart_command(daemons: tuple[str, ...], timeout: int) -> None:
    """Stop and start all daemons (with supervisor), or only the named DAEMONS."""
    data_dir, seconds = settings().local(), timeout / 1000
    os.makedirs(data_dir, mode=0o750, exist_ok=True)
    with alone(data_dir):
        if daemons:
            _restart_some(data_dir, daemons)
        else:
            _stop(data_dir, seconds)
        _start(data_dir, seconds)
    _show([_row(name, status, {}) for name, status in _ask_all(data_dir).items()])


@click.command("status", cls=Command)
def status_command() -> None:
    """Show each daemon: pid, uptime, health, codec, version.

    Exit code 0 when all are ready, 1 when some are not, 3 when none answers.
    """
    data_dir, server = settings().node()
    rows = _rows_of_server(server) if server else _rows_of_directory(data_dir)
    _show(rows)
    healthy = [row["health"] == "ready" for row in rows]
    if not any(row["pid"] for row in rows):
        say(f"no node runs on {data_dir}: start it with `gqctl up`")
        raise Quiet(UNREACHABLE)
    if not all(healthy):
        raise Quiet(FAILED)


# -- starting and stopping ---------------------------------------------------------------

def _start(data_dir: str, timeout_s: float) -> None:
    from gq_ctl.supervisor import Supervisor
    supervisor = Supervisor(data_dir)
    found = _ask_all(data_dir)
    if not supervisor.runs():
        if all(status and status.ready for status in found.values()):
            say("up already, but not under supervisor")
            return
        _end_by_pid(data_dir, timeout_s)
    mine, before = not supervisor.runs(), _size(data_dir, "supervisord")
    supervisor.start()
    try:
        _wait_ready(data_dir, supervisor, before, timeout_s)
    except Hopeless:
        if mine:
            supervisor.shutdown(timeout_s)
        raise


def _wait_ready(data_dir: str, supervisor: Any, before: int, timeout_s: float) -> None:
    """Until every daemon that supervisor runs says that it is ready; Failed says which is not, and why. `before`: the size of
    supervisor's log when it was told to start them."""
    start = time.monotonic()
    progress = Progress("starting", time.monotonic)
    while True:
        processes = supervisor.processes()
        found = _ask_all(data_dir, tuple(processes) or DAEMONS)
        late = [name for name, status in found.items() if not _is_process(status, processes.get(name))]
        progress.update(len(found) - len(late), len(found))
        if not late:
            progress.done()
            return
        for name in late:
            _check_alive(data_dir, name, processes.get(name), before)
        if time.monotonic() - start > timeout_s:
            progress.done()
            status = found[late[0]]
            raise Failed(f"{', '.join(late)} not ready after {show_duration(timeout_s * 1000)}: "
                         f"{status.detail if status else last_words(data_dir, late[0]) or 'no answer'}")
        time.sleep(POLL_S)


def _is_process(status: StatusReply | None, process: dict[str, Any] | None) -> bool:
    return bool(status and status.ready and process and process["pid"] == status.pid)


def _check_alive(data_dir: str, name: str, process: dict[str, Any] | None, before: int) -> None:
    """Failed when supervisor has given it up, or when it says that its options are wrong: waiting would not help."""
    from gq_ctl.supervisor import GIVEN_UP
    if process is None:
        return
    if process["statename"] in GIVEN_UP or f"exited: {name} (exit status {USAGE}" in _tail(data_dir, "supervisord", before):
        raise Hopeless(f"{name} does not start: {last_words(data_dir, name) or process['spawnerr'] or process['description']}")


def _stop(data_dir: str, timeout_s: float) -> None:
    from gq_ctl.supervisor import Supervisor
    supervisor = Supervisor(data_dir)
    end = time.monotonic() + timeout_s
    if supervisor.runs() and not supervisor.shutdown(timeout_s):
        raise Failed(f"supervisor did not end in {show_duration(timeout_s * 1000)}: try again, or look with `gqctl status`")
    _end_by_pid(data_dir, end - time.monotonic())


def _restart_some(data_dir: str, daemons: tuple[str, ...]) -> None:
    from gq_ctl.supervisor import Supervisor
    supervisor = Supervisor(data_dir)
    if not supervisor.runs():
        return
    for name in reversed(daemons):
        supervisor.stop_process(name)


def _end_by_pid(data_dir: str, timeout_s: float) -> None:
    """Daemons that no supervisor knows: SIGTERM, and wait until they have ended; then SIGKILL."""
    from gq_ctl.supervisor import Ending
    end = time.monotonic() + timeout_s
    for name, pid in reversed(_holders(data_dir).items()):
        say(f"{name} ran without supervisor (pid {pid}): ending it")
        with Ending(pid) as ending:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                if ending.wait(min(STOP_S, end - time.monotonic())):
                    break
            else:
                raise Failed(f"{name} (pid {pid}) does not end, not even by SIGKILL")


def _holders(data_dir: str) -> dict[str, int]:
    """The daemons that hold the data directory, by their locks: a daemon that hangs has one, too."""
    found = {}
    for name in DAEMONS:
        with suppress(OSError, ValueError), open(paths.lock_path(data_dir, name)) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found[name] = int(lock.read())
    return found


@contextmanager
def alone(data_dir: str) -> Iterator[None]:
    """One `up` or `down` at a time on a data directory; another one waits."""
    with open(os.path.join(data_dir, ".gqctl.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def last_words(data_dir: str, name: str) -> str:
    """The last line a daemon printed."""
    lines = _tail(data_dir, name, -TAIL_BYTES).strip().splitlines()
    return lines[-1].strip() if lines else ""


def _size(data_dir: str, name: str) -> int:
    try:
        return os.path.getsize(log_of(data_dir, name))
    except OSError:
        return 0


def log_of(data_dir: str, name: str) -> str:
    return os.path.join(data_dir, "daemons", f"{name}.log")


def _tail(data_dir: str, name: str, start: int) -> str:
    """A log file from byte `start` on; negative: so many at its end."""
    try:
        with open(log_of(data_dir, name), "rb") as log:
            size = os.fstat(log.fileno()).st_size
            log.seek(min(start, size) if start >= 0 else max(0, size + start))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


# -- status -----------------------------------------------------------------------------------

def _ask_all(data_dir: str, daemons: tuple[str, ...] = DAEMONS) -> dict[str, StatusReply | None]:
    from gq_ctl.line import daemon_status
    return {name: daemon_status(paths.ipc_endpoint(data_dir, name), STATUS_S) for name in daemons}


def _rows_of_directory(data_dir: str) -> list[Row]:
    from gq_ctl.supervisor import Supervisor
    processes = Supervisor(data_dir).processes()
    found = _ask_all(data_dir, tuple(processes) or DAEMONS)
    return [_row(name, status, processes.get(name), last_words(data_dir, name)) for name, status in found.items()]


def _rows_of_server(server: str) -> list[Row]:
    from gq_ctl import line
    metad = line.metad_endpoint("", server)
    known = line.daemons(metad)
    rows = [_row("metad", line.daemon_status(metad), {})]
    for daemon in known:
        if daemon.daemon != "metad":
            reachable = [point for point in daemon.endpoints if paths.reachable_here(point)]
            rows.append(_row(daemon.daemon, line.daemon_status(reachable[0], curve_key=daemon.curve) if reachable else None, {}))
    return rows


def _row(name: str, status: StatusReply | None, process: dict[str, Any] | None, last_words: str = "") -> Row:
    """process: {} where supervisor was not asked, None where it does not know the daemon."""
    if status is None:
        state = process["statename"].lower() if process else "down"
        health = {"running": "no answer", "starting": "starting", "stopped": "down"}.get(state, state)
        failing = state in ("fatal", "backoff", "exited")
        return {"daemon": name, "pid": process["pid"] or None if process else None, "uptime_s": None, "health": health,
                "codec": None, "version": None, "node": None, "detail": last_words if failing else ""}
    return {"daemon": status.daemon, "pid": status.pid, "uptime_s": round(status.uptime_s, 3),
            "health": "ready" if status.ready else "starting", "codec": status.codec, "version": status.version,
            "node": status.node_id, "detail": status.detail or ("not under supervisor" if process is None else "")}


def _show(rows: list[Row]) -> None:
    settings().output().rows(rows, "health", SHOW)

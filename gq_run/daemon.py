"""What every daemon's __main__ calls: from argv to a serving process and back, in one order for all.

    # gq_logd/__main__.py                         # gq_logd/daemon.py
    def main() -> None:                           class LogDaemon:                         (an App)
        daemon.main("logd", OPTIONS, LogDaemon)       def __init__(self, daemon: Daemon): ...   lock held, nothing bound
                                                      def start(self): ...                      bound, on the loop
                                                      def handle(self, incoming): ...           every request but STATUS
                                                      def stop(self): ...                       SIGTERM: leave all in order

Order: options -> data directory and its lock (`{data}/.{daemon}.lock`) -> node id -> logging -> App(daemon) -> bind -> start() ->
loop: requests, timers -> SIGTERM/SIGINT: stop(), close, exit 0. STATUS is answered here from the bind on, with `ready` false
until the App calls daemon.ready(); what the App answers meanwhile is its own business (Unavailable, mostly).

Exit codes: 0 asked to stop · 1 cannot start (one line says why: locked, address in use, disk) · 2 bad usage or config (one line) ·
70 a bug: the traceback is logged and a supervisor starts it anew.
"""

import contextlib
import fcntl
import functools
import gc
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, Protocol

import zmq

from gq_proto import __version__, codec, messages
from gq_proto.errors import BadConfig, GoQueueError, Locked
from gq_proto.memory import keep_freed_memory
from gq_proto.names import check_name
from gq_run import curve, exporter, logs, options, paths, ready, security, settings
from gq_run.caller import Caller
from gq_run.loop import Loop
from gq_run.metrics import DENIED, REFUSED, REQUESTS, UNSENT, UPTIME, Registry, Sample
from gq_run.options import Config, Option
from gq_run.server import Incoming, Server

OFF: Final = "off"                # an address that is not listened at
NODE_ID_FILE: Final = "node.id"
GC_CHECK_S: Final = 5.0           # the cyclic collector runs when so long there was next to nothing to do,
GC_IDLE_REQUESTS: Final = 50
GC_BUSY_S: Final = 60.0           # or at the latest so long after the last time
EX_SOFTWARE: Final = 70


class App(Protocol):
    """A daemon's shell. All of it runs on the loop's thread."""

    def start(self) -> None:
        """Called once, when all sockets are bound: recover (in slices, by loop.post, if it takes long), then daemon.ready().

        A GoQueueError or OSError here is why the daemon can't start: one line on stderr. Later ones are bugs."""

    def handle(self, incoming: Incoming) -> None:
        """A request: reply(), fail(), raise a GoQueueError, or keep it for later."""

    def stop(self) -> None:
        """The last call: no request comes any more. Replies sent here still go out."""


class Daemon:
    """What an App gets. Its data directory is locked; `server` is bound when App.start() is called."""

    def __init__(self, name: str, config: Config, data_dir: str, node_id: str, lock: int, loop: Loop | None = None) -> None:
        keep_freed_memory()
        self.name = name                     # "metad", "logd", ...
        self.config = config
        self.data_dir = data_dir
        self.node_id = node_id
        self.log = logs.logger(name)
        self.loop = loop or Loop()
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.server = Server(self.loop, self.context, self._handle)
        self.metrics = Registry()            # .add(source): see metrics.py
        self.metrics.add(self._samples)
        self.facts: Callable[[], dict[str, Any]] = dict   # what STATUS says beside the fixed fields
        self.guard: security.Guard | None = None          # of a listener that wants keys
        self._zap: curve.Zap | None = None
        self._scrapers: security.Scrapers | None = None   # where metrics want keys
        self.refusing: list[security.Refusing] = []       # all who turn callers away
        self.detail = "starting"             # one line for STATUS: why it is not ready, or what is wrong
        self.is_ready = False
        self._app: App | None = None
        self._lock = lock
        self._started = time.monotonic()
        self._metrics_address = ""
        self._without: list[str] = []        # default addresses that are taken
        self._exporter: exporter.Exporter | None = None

    @property
    def endpoints(self) -> list[str]:
        """Where this daemon is reached, ipc first: for REGISTER."""
        return [paths.advertised(endpoint, self.config.text("broker.advertise")) for endpoint in self.server.endpoints]

    @property
    def public_key(self) -> str:
        """The CURVE key by which its tcp endpoint is known; "" where that is plain."""
        return self.guard.public_key if self.guard else ""

    @functools.cached_property
    def pair(self) -> tuple[bytes, bytes]:
        """The node's CURVE keys."""
        return curve.pair_of(self.data_dir)

    def caller(self, endpoint: str, server_key: str = "") -> Caller:
        """A line to another daemon; over tcp with CURVE where its key is given, as that of metad is by the config."""
        if endpoint == self.metad_endpoint():
            server_key = self.config.text("security.metadKey")
        if endpoint.startswith("ipc://") or not server_key:
            return Caller(self.loop, self.context, endpoint)
        return Caller(self.loop, self.context, endpoint, server_key=server_key, pair=self.pair)

    def client_options(self) -> dict[str, Any]:
        """How a gq_client.AsyncClient of this daemon's own reaches metad: as one of the node's daemons, without an API key."""
        server, key = self.config.text("broker.metad"), self.config.text("security.metadKey")
        if not server:
            return {"data_dir": self.data_dir}
        pair = (self.pair[0].decode(), self.pair[1].decode()) if key else None
        return {"server": server, "key": "", "curve_server_key": key, "curve_pair": pair}

    def take_keys(self, reply: messages.MetadataReply, names: Callable[[int], str | None]) -> None:
        """From here on who asks is held against these keys, and topics are called so. BadConfig when nobody could ever get in."""
        if self.guard:
            self.guard.names = names
            self.guard.verifier.take(reply)
            security.check_any(self.config, f"broker.listeners.{self.name}", self.guard.verifier, self.guard.public_key)
        if self._scrapers:
            self._scrapers.verifier.take(reply)
            security.check_any(self.config, f"metrics.listeners.{self.name}", self._scrapers.verifier)

    def metad_endpoint(self) -> str:
        return self.config.text("broker.metad") or paths.ipc_endpoint(self.data_dir, "metad")

    def ready(self) -> None:
        """It serves from now on. Calls after the first do nothing."""
        if self.is_ready:
            return
        self.is_ready, self.detail = True, ""
        ready.notify("READY=1", f"STATUS={self.name} {self.node_id} serves")
        self.log.info("ready", extra=logs.fields(after_s=round(time.monotonic() - self._started, 3)))
        self._tame_gc()

    def stop(self) -> None:
        """Leave the loop after this turn, as SIGTERM does."""
        self.loop.stop()

    # -- life ------------------------------------------------------------------------------

    def open(self, make: Callable[["Daemon"], App]) -> None:
        """Make the App, bind, let it start. Any error here is why the daemon cannot start."""
        self._app = make(self)
        paths.make_runtime_dir(self.data_dir)
        self.server.bind(paths.ipc_endpoint(self.data_dir, self.name))
        security.check(self.config)
        if self.name in paths.TCP_PORTS:             # the gateway's callers come by other doors
            self._listen(f"broker.listeners.{self.name}", self._bind_tcp)
        if self.config.switch("metrics.enabled"):
            self._listen(f"metrics.listeners.{self.name}", self._serve_metrics)
        self.log.info("started", extra=logs.fields(pid=os.getpid(), version=__version__, data_dir=self.data_dir,
                                                   endpoints=self.endpoints, metrics=self._metrics_address))
        self._app.start()

    def run(self) -> None:
        """Serve until asked to stop, leave in order."""
        assert self._app is not None
        restore = self._take_signals()
        self._keep_watchdog()
        try:
            self.loop.run()
            ready.notify("STOPPING=1")
            self._app.stop()
        finally:
            restore()
            self._close()
        self.log.info("stopped")

    def _close(self) -> None:
        if self._exporter:
            self._exporter.close()
        self.server.close()
        if self._zap:
            self._zap.close()
        self.context.destroy(linger=None)
        self.loop.close()
        os.close(self._lock)

    def _listen(self, key: str, bind: Callable[[str], object]) -> None:
        """An address from the config. The default one may be another node's on this machine: then go on without."""
        address = self.config.text(key)
        if address in ("", OFF):
            return
        try:
            bind(address)
        except GoQueueError as e:
            raise BadConfig(f"{key}: {e.message}") from None
        except OSError as e:
            if not self.config.is_default(key):
                raise OSError(e.errno, f"{key}: {e.strerror or e}") from None
            self.go_on_without(key, address)

    def go_on_without(self, key: str, address: str) -> None:
        """A default address is taken, by another node most likely: STATUS says it, once it serves and nothing else is wrong."""
        self.log.warning("default address is taken, going on without it", extra=logs.fields(key=key, address=address))
        self._without.append(f"{key} {address}")

    def _bind_tcp(self, address: str) -> None:
        guarded = security.needs_keys(self.config, f"broker.listeners.{self.name}")
        if guarded and self.guard is None:
            self.guard, self._zap = security.Guard(self.pair, self.log), curve.Zap(self.loop, self.context)
            self.refusing.append(self.guard)
        if not guarded and not paths.is_loopback(paths.split_address(address)[0]):
            self.log.warning("open to everyone: security.insecure is on", extra=logs.fields(address=address))
        self.server.bind(paths.tcp_endpoint(address), self.guard if guarded else None)

    def _serve_metrics(self, address: str) -> None:
        host, port = paths.split_address(address)
        admit = self._scrape_guard().admit if security.needs_keys(self.config, f"metrics.listeners.{self.name}") else _anyone
        self._exporter = exporter.Exporter(self.loop, self.metrics, host, port, lambda: self.is_ready, admit)
        self._metrics_address = self._exporter.address

    def _scrape_guard(self) -> security.Scrapers:
        self._scrapers = security.Scrapers(security.Verifier(), security.own_token(self.pair))
        self.refusing.append(self._scrapers)
        return self._scrapers

    def _take_signals(self) -> Callable[[], None]:
        """SIGTERM and SIGINT stop the loop. The wake-up descriptor is written by the C handler, so none is lost while polling."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.loop.add_reader(reader, lambda: _drain(reader))
        old_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        old = {number: signal.signal(number, lambda *_: self.loop.stop()) for number in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_fd)
            self.loop.remove_reader(reader)
            os.close(reader)
            os.close(writer)

        return restore

    def _keep_watchdog(self) -> None:
        every_s = ready.watchdog_s()
        if every_s:
            ready.notify("WATCHDOG=1")
            self.loop.call_later(every_s, self._keep_watchdog)

    def _tame_gc(self) -> None:
        """What lives now lives on: the collector need not look at it. From here on it runs when there is little to do."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self._gc_taken = self.server.taken
        self._gc_last = self.loop.now()
        self.loop.call_later(GC_CHECK_S, self._collect)

    def _collect(self) -> None:
        taken, now = self.server.taken, self.loop.now()
        idle = taken - self._gc_taken < GC_IDLE_REQUESTS
        if (idle and gc.get_count()[0] > 1000) or now - self._gc_last >= GC_BUSY_S:
            gc.collect()
            self._gc_last = now
        self._gc_taken = taken
        self.loop.call_later(GC_CHECK_S, self._collect)

    # -- requests ----------------------------------------------------------------------------

    def _handle(self, incoming: Incoming) -> None:
        if incoming.kind == messages.Kind.STATUS:
            incoming.reply(self.status())
        else:
            assert self._app is not None
            self._app.handle(incoming)

    def _samples(self) -> Iterator[Sample]:
        yield UPTIME, (self.name,), round(time.monotonic() - self._started, 3)
        yield REQUESTS, (self.name,), self.server.taken
        yield REFUSED, (self.name,), self.server.refused
        yield UNSENT, (self.name,), self.server.unsent
        if self.refusing:
            yield DENIED, (self.name, "unauthorized"), sum(one.unauthorized for one in self.refusing)
            yield DENIED, (self.name, "forbidden"), sum(one.forbidden for one in self.refusing)

    def status(self) -> messages.StatusReply:
        facts = {"metrics": self._metrics_address, "endpoints": self.endpoints, **self.facts()}
        detail = self.detail or (f"taken by another, gone without: {', '.join(self._without)}" if self._without else "")
        return messages.StatusReply(self.name, self.node_id, __version__, codec.NAME, os.getpid(),
                                    time.monotonic() - self._started, self.is_ready, detail, facts)


def main(name: str, own_options: Sequence[Option], make: Callable[[Daemon], App], argv: Sequence[str] | None = None, *,
         loop: Callable[[], Loop] = Loop) -> NoReturn:
    """Run a daemon until it is stopped, and exit."""
    serving = False
    try:
        daemon = _prepare(name, own_options, sys.argv[1:] if argv is None else argv, loop)
        daemon.open(make)
        serving = True
        daemon.run()
    except Exception as e:
        if not isinstance(e, BadConfig) and (serving or not isinstance(e, GoQueueError | OSError)):
            logs.logger(name).critical("a bug: exiting, to be started anew", exc_info=True)
            sys.exit(EX_SOFTWARE)
        print(f"gq_{name}: {' '.join(str(e).split())}", file=sys.stderr)
        sys.exit(2 if isinstance(e, BadConfig) else 1)
    sys.exit(0)


def _prepare(name: str, own_options: Sequence[Option], argv: Sequence[str], loop: Callable[[], Loop] = Loop) -> Daemon:
    """Config checked, logging on, data directory locked, node id known."""
    config = options.load(name, [*settings.SHARED, *own_options], argv, os.environ, paths.default_data_dir(),
                          settings.ELSEWHERE)
    data_dir = os.path.abspath(config.text("broker.dataDir") or paths.default_data_dir())
    os.makedirs(data_dir, mode=0o750, exist_ok=True)
    lock = take_lock(data_dir, name)
    node_id = settle_node_id(data_dir, config.text("broker.nodeId"))
    logs.setup(name, node_id, config.text("logging.level"), config.text("logging.format"))
    return Daemon(name, config, data_dir, node_id, lock, loop())


def take_lock(data_dir: str, name: str) -> int:
    """Hold `data_dir` for this kind of daemon until the descriptor is closed or the process ends; Locked when another does."""
    path = paths.lock_path(data_dir, name)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "?"
        os.close(fd)
        raise Locked(f"another {name} (pid {holder}) runs on {data_dir}: stop it or use another data directory") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def settle_node_id(data_dir: str, configured: str) -> str:
    """The node's name for good: partitions are led by name, so it stays with the data, wherever that is started."""
    path = os.path.join(data_dir, NODE_ID_FILE)
    if not os.path.exists(path):
        wanted = check_name("node", configured or f"node-{secrets.token_hex(3)}")
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w") as file:
            file.write(wanted + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)             # the first of several daemons that start at once decides
        os.unlink(temporary)
    with open(path) as file:
        found = check_name("node", file.read().strip())
    if configured and configured != found:
        raise BadConfig(f"broker.nodeId is {configured} but {data_dir} belongs to node {found}: use that or another data directory")
    return found


def _anyone(token: str) -> None:
    """May read metrics."""


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 512)

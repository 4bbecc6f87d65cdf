"""The HTTP listener: uvicorn's server and protocol, run by us, on a socket bound by us.

Owns the listening socket and the connections. An address that is the default one and taken (another node's on this machine) is
done without, as every daemon does; one that was asked for is why the gateway cannot start.
"""

import asyncio
import logging
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import uvicorn

from gq_gateway import tls
from gq_gateway.app import make_app, metrics_app
from gq_gateway.gateway import Gateway
from gq_gateway.guard import Bounds, GuardedProtocol
from gq_proto import limits
from gq_run import logs, paths
from gq_run.daemon import OFF, Daemon
from gq_run.metrics import HTTP_CONNECTIONS, Sample

TICK_S: Final = 1.0             # how often the Date header is renewed


class HttpServer:
    """A Server, see gq_gateway.daemon."""

    key = "http.address"        # the option that says where
    fact = "http"               # what STATUS calls it

    def __init__(self, daemon: Daemon, gateway: Gateway) -> None:
        self._daemon, self._gateway = daemon, gateway
        self._server: uvicorn.Server | None = None
        self._tls: tls.Renewed | None = None
        self._address = ""
        self._ticking: asyncio.Task[None] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        return {self.fact: self._address}

    def app(self, bounds: Bounds) -> Any:
        return make_app(self._gateway, bounds.body)

    async def start(self) -> None:
        self._tls = tls.renewed(self._daemon.config, self.fact, self._daemon.log) if self.key == HttpServer.key else None
        listener = self._listen()
        if listener is None:
            return
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        config = self._daemon.config
        bounds = Bounds(config.number("http.maxBodyBytes"), config.number("http.maxConnections"),
                        config.number("http.requestTimeout") / 1000)
        protocol: Any = partial(GuardedProtocol, bounds)
        self._server = uvicorn.Server(uvicorn.Config(
            self.app(bounds), http=protocol, ws="none", lifespan="off", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, backlog=limits.BACKLOG,
            timeout_keep_alive=config.number("http.idleTimeout") // 1000))
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        await self._serve(self._server, listener, bounds)
        self._ticking = asyncio.create_task(self._tick())
        if self.key == HttpServer.key:
            self._daemon.metrics.add(self._samples)
        self._daemon.log.info("listening", extra=logs.fields(**self.facts))

    async def _serve(self, server: uvicorn.Server, listener: socket.socket, bounds: Bounds) -> None:
        """As uvicorn does; over TLS by hand, because uvicorn lets a caller take a minute for the handshake."""
        if self._tls is None:
            await server.startup(sockets=[listener])
            return
        await server.startup(sockets=[])
        config: Any = server.config
        protocol = partial(config.http_protocol_class, config=config, server_state=server.server_state,
                           app_state=server.lifespan.state)
        server.servers.append(await asyncio.get_running_loop().create_server(
            protocol, sock=listener, ssl=self._tls.context(), backlog=limits.BACKLOG, ssl_handshake_timeout=bounds.request_s,
            ssl_shutdown_timeout=bounds.request_s))

    async def stop(self, within: float) -> None:
        server = self._server
        if server is None:
            return
        server.config.timeout_graceful_shutdown = max(1, round(within))
        await server.shutdown()
        if self._ticking:
            self._ticking.cancel()

    def _samples(self) -> Iterator[Sample]:
        yield HTTP_CONNECTIONS, (), len(self._server.server_state.connections) if self._server else 0

    async def _tick(self) -> None:
        assert self._server is not None
        while True:
            await self._server.on_tick(0)
            await asyncio.sleep(TICK_S)

    def _listen(self) -> socket.socket | None:
        key, address = self.key, self._daemon.config.text(self.key)
        if address in ("", OFF):
            return None
        host, port = paths.split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as e:
            listener.close()
            if not self._daemon.config.is_default(key):
                raise OSError(e.errno, f"{key}: cannot listen at {address}: {e.strerror or e}") from None
            self._daemon.go_on_without(key, address)
            return None
        listener.setblocking(False)
        bound_host, bound_port = listener.getsockname()[:2]
        self._address = f"[{bound_host}]:{bound_port}" if ":" in bound_host else f"{bound_host}:{bound_port}"
        return listener


class MetricsServer(HttpServer):
    """The node's view for Prometheus: the metrics of all daemons at /metrics; /health and /ready as every daemon's exporter has."""

    key = "metrics.listeners.node"
    fact = "node_metrics"

    async def start(self) -> None:
        if self._daemon.config.switch("metrics.enabled"):
            await super().start()

    def app(self, bounds: Bounds) -> Any:
        return metrics_app(self._gateway)

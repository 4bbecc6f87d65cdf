"""The gateway's shell: an App of gq_run.daemon on an asyncio loop. Starts what serves callers, and ends it in order.

Owns the servers (HTTP here; others, such as gRPC, by `Servers`) and the client. Ready once metad has registered it. SIGTERM: no new
connections, long polls end, answers under way have http.drain to be sent, then the client flushes and closes.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Any, Final, Protocol

from gq_client.aio import AsyncClient
from gq_gateway.door import open_door
from gq_gateway.gateway import Gateway
from gq_gateway.http import HttpServer, MetricsServer
from gq_gateway.loop import AsyncLoop
from gq_gateway.registration import Registration
from gq_gateway.rpc.server import GrpcServer
from gq_proto.errors import UnknownKind
from gq_run import paths, security
from gq_run.daemon import OFF, Daemon
from gq_run.server import Incoming

CLOSE_S: Final = 5.0
METRICS_LISTENERS: Final = [f"metrics.listeners.{daemon}" for daemon in paths.METRICS_PORTS]
GC_THRESHOLD: Final = (20_000, 10, 20)


class Server(Protocol):
    """Something that serves callers. start() raises OSError or GoQueueError when it cannot; stop() returns when its callers are
    answered, `within` seconds at the latest. `facts` are told by STATUS."""

    async def start(self) -> None: ...
    async def stop(self, within: float) -> None: ...
    @property
    def facts(self) -> dict[str, Any]: ...


Maker = Callable[[Daemon, Gateway], Server]
SERVERS: list[Maker] = [HttpServer, MetricsServer, GrpcServer]       # started in this order, stopped together


class GatewayDaemon:
    """An App, see gq_run.daemon."""

    def __init__(self, daemon: Daemon) -> None:
        assert isinstance(daemon.loop, AsyncLoop)
        self._daemon, self._loop = daemon, daemon.loop
        self._servers: list[Server] = []
        self._client: AsyncClient | None = None

    def start(self) -> None:
        self._daemon.facts = self._facts
        self._loop.complete(self._start())

    def handle(self, incoming: Incoming) -> None:
        raise UnknownKind(f"request kind {incoming.kind} is not for the gateway: it answers STATUS here, apps by HTTP")

    def stop(self) -> None:
        self._loop.complete(self._stop())

    async def _start(self) -> None:
        patience_s = self._daemon.config.number("http.answerTimeout") / 1000
        self._client = AsyncClient(**self._daemon.client_options(), timeout=patience_s)
        door = open_door(self._daemon.config, self._daemon.log)
        self._daemon.refusing.append(door)
        registration = Registration(self._daemon, self._client, door, self._ready)
        self._gateway = Gateway(self._client, lambda: self._daemon.is_ready and registration.reachable, self._taken,
                                self._daemon.metrics.collect, door)
        self._daemon.metrics.add(self._gateway.samples)
        if any(self._daemon.config.text(key) not in ("", OFF) and security.needs_keys(self._daemon.config, key)
               for key in METRICS_LISTENERS):
            self._gateway.scrape_key = security.own_token(self._daemon.pair)
        self._servers = [make(self._daemon, self._gateway) for make in SERVERS]
        for server in self._servers:
            await server.start()
        self._daemon.detail = "metad has not answered yet"
        self._loop.spawn(registration.keep())

    async def _stop(self) -> None:
        self._gateway.draining.set()
        within = self._daemon.config.number("http.drain") / 1000
        await asyncio.gather(*[server.stop(within) for server in self._servers])
        assert self._client is not None
        await self._gateway.settle(within)
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.close()
        except TimeoutError:
            self._daemon.log.warning("closed before everything was confirmed")

    def _ready(self) -> None:
        """What others leave to idle moments goes on here: libraries make cycles, as many as there are callers."""
        if self._daemon.is_ready:
            return
        self._daemon.ready()
        gc.enable()
        gc.set_threshold(*GC_THRESHOLD)

    def _taken(self) -> None:
        """A caller's request counts as one of this daemon's."""
        self._daemon.server.taken += 1

    def _facts(self) -> dict[str, Any]:
        return {name: value for server in self._servers for name, value in server.facts.items()}

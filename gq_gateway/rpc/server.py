"""The gRPC listener: grpc.aio's server on the gateway's loop, with reflection and health.

Owns the port. An address that is the default one and taken (another node's on this machine) is done without, as every daemon does.
grpc's own log is shut (see this package): it is not in our form, and what it says of a failure is raised, too.
Bounds: calls at a time, bytes of a message; a connection without life is found out by pings.
"""

import asyncio
import contextlib
import logging
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gq_gateway import tls
from gq_gateway.gateway import Gateway
from gq_gateway.rpc.service import NAME, Service
from gq_proto import limits
from gq_run import logs, paths
from gq_run.daemon import OFF, Daemon

KEY: Final = "grpc.address"
ANY: Final = "0.0.0.0"              # what ":9000" means, as for HTTP
PING_MS: Final = 10_000
MIN_PING_MS: Final = 5_000          # callers that ping more often are turned away
SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
Settings = list[tuple[str, int]]


def settings(max_message_bytes: int) -> Settings:
    """Of grpc's server. A message to a caller is as large as it is: the caller's own bound holds."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),                       # a taken port is an error, not a lottery
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PING_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_MS),
        ("grpc.max_metadata_size", 16 * limits.KIB),
    ]


def credentials(files: tls.Renewed) -> grpc.ServerCredentials:
    """grpc asks for each connection, on a thread of its own, whether the files changed."""
    given = first = files.current()

    def fetch() -> Any:
        nonlocal given
        found = files.current()
        if found is given:
            return None
        given = found
        return configuration(found)

    return grpc.dynamic_ssl_server_credentials(configuration(first), fetch, first.client_ca is not None)


def configuration(files: tls.Tls) -> Any:
    return grpc.ssl_server_certificate_configuration([(files.key, files.certificate)], files.client_ca)


class Listener:
    """A server on an address, without a daemon around it."""

    def __init__(self, gateway: Gateway, max_message_bytes: int, max_calls: int,
                 credentials: grpc.ServerCredentials | None = None) -> None:
        self._service = Service(gateway)
        self._credentials = credentials
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=settings(max_message_bytes), maximum_concurrent_rpcs=max_calls)
        self._service.serve(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self, address: str) -> int:
        """The port. OSError when the address cannot be had."""
        try:
            port = (self._server.add_secure_port(address, self._credentials) if self._credentials
                    else self._server.add_insecure_port(address))
        except RuntimeError:
            raise OSError(f"cannot listen at {address}: it is taken, or no address of this machine") from None
        await self._server.start()
        for name in ("", NAME):
            await self._health.set(name, SERVING)
        return port

    async def stop(self, within: float) -> None:
        """No new calls; those under way end by themselves, `within` seconds at the latest."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(within)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._service.ended()


class GrpcServer:
    """A Server, see gq_gateway.daemon."""

    def __init__(self, daemon: Daemon, gateway: Gateway) -> None:
        self._daemon, self._gateway = daemon, gateway
        self._listener: Listener | None = None
        self._address = ""

    @property
    def facts(self) -> dict[str, Any]:
        return {"grpc": self._address}

    async def start(self) -> None:
        config = self._daemon.config
        address = config.text(KEY)
        if address in ("", OFF):
            return
        host, port = paths.split_address(address)
        host = f"[{host}]" if ":" in host else host or ANY
        logging.getLogger("grpc").setLevel(logging.ERROR)
        files = tls.renewed(config, "grpc", self._daemon.log)
        listener = Listener(self._gateway, config.number("grpc.maxMessageBytes"), config.number("grpc.maxCalls"),
                            credentials(files) if files else None)
        try:
            port = await listener.start(f"{host}:{port}")
        except OSError as error:
            if not config.is_default(KEY):
                raise OSError(f"{KEY}: {error}") from None
            self._daemon.go_on_without(KEY, address)
            return
        self._listener = listener
        self._address = f"{host}:{port}"
        self._daemon.log.info("listening", extra=logs.fields(grpc=self._address))

    async def stop(self, within: float) -> None:
        if self._listener:
            await self._listener.stop(within)

"""The HTTP endpoint of a daemon: /metrics for Prometheus, /health and /ready for probes.

Owns background threads, because rendering and slow clients must not hold up the loop. The numbers are read on the loop's
thread (Registry.collect, by loop.post) and made into text here by prometheus_client. A few connections at a time, each with a
time-out, others are closed: bounded, whatever connects.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from gq_proto.errors import Forbidden, GoQueueError, Unauthorized
from gq_run.loop import Loop
from gq_run.metrics import COUNTER, HISTOGRAM, Histogram, Metric, Registry

CLIENT_S: Final = 2.0        # a client's patience with which we put up
COLLECT_S: Final = 5.0       # the loop's
CONNECTION_S: Final = 10.0   # all of it: who sends a byte now and then would keep a place for ever
CONNECTIONS_MAX: Final = 8
REFUSALS: Final[dict[type[GoQueueError], HTTPStatus]] = {Unauthorized: HTTPStatus.UNAUTHORIZED, Forbidden: HTTPStatus.FORBIDDEN}
Collected = dict[Metric, list[tuple[tuple[str, ...], float | Histogram]]]


class Exporter:
    """Serves from construction to close(). OSError when the address is taken. `admit`, called on the loop's thread with the key
    that a scraper brings, raises Unauthorized, Forbidden or Unavailable: metrics are not for everyone."""

    def __init__(self, loop: Loop, registry: Registry, host: str, port: int, is_ready: Callable[[], bool],
                 admit: Callable[[str], None] = lambda token: None) -> None:
        self._loop, self._registry, self._admit = loop, registry, admit
        self.is_ready = is_ready
        self._http = _Http((host, port), _Handler, self)
        bound_host, bound_port = self._http.server_address[:2]
        self.address = f"[{bound_host!s}]:{bound_port}" if ":" in str(bound_host) else f"{bound_host!s}:{bound_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """On the loop's thread, when it runs no more."""
        self._http.shutdown()
        self._http.server_close()

    def collect(self, token: str) -> Collected:
        """From the background thread: the loop's numbers. TimeoutError when it is busy for too long; what `admit` raises."""
        future: Future[Collected] = Future()

        def run() -> None:
            try:
                self._admit(token)
                future.set_result(self._registry.collect())
            except GoQueueError as e:
                future.set_exception(e)
            except BaseException as e:
                future.set_exception(e)
                raise

        self._loop.post(run)
        return future.result(COLLECT_S)


def bearer(authorization: str) -> str:
    """The key in a header "Authorization: Bearer KEY"; "" for none."""
    kind, _, token = authorization.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def render(collected: Collected) -> bytes:
    """Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest  # late: start-up and memory of who never scrapes

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(collected))
    return generate_latest(registry)


class _Collector:
    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    def collect(self) -> Iterator[Any]:
        for metric, samples in self._collected.items():
            yield _family(metric, samples)


def _family(metric: Metric, samples: list[tuple[tuple[str, ...], float | Histogram]]) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if metric.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in samples:
            assert isinstance(value, Histogram)
            histogram.add_metric(labels, _buckets(value), value.sum)
        return histogram
    family = (CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily)(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):          # it is closed
        connection.shutdown(socket.SHUT_RDWR)


class _Http(ThreadingHTTPServer):
    daemon_threads = True        # a stop waits for no client
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], exporter: Exporter) -> None:
        self.exporter = exporter
        self._free = threading.Semaphore(CONNECTIONS_MAX)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)      # scrapes of before may linger
        self.socket.bind(self.server_address)      # HTTPServer's own asks DNS for a name that nobody needs
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(CONNECTION_S, _shut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    timeout = CLIENT_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/health":
            self._answer(HTTPStatus.OK, b"alive\n")
        elif path == "/ready":
            ready = self.server.exporter.is_ready()
            self._answer(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, b"ready\n" if ready else b"starting\n")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"try /metrics, /health or /ready\n")

    def _metrics(self) -> None:
        try:
            collected = self.server.exporter.collect(bearer(self.headers.get("Authorization", "")))
        except TimeoutError:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"the daemon is too busy\n")
            return
        except GoQueueError as e:
            self._answer(REFUSALS.get(type(e), HTTPStatus.SERVICE_UNAVAILABLE), f"{e.message}\n".encode())
            return
        self._answer(HTTPStatus.OK, render(collected), "text/plain; version=0.0.4; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""

"""The ASGI application: falcon on the table of routes, every path with and without /v1.

Owns the frame around every handler: authorize, parse, call, encode; and what becomes of errors. A caller sees problems (RFC 9457)
only; what is a bug is logged with its traceback and told as `internal`.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import falcon
import falcon.asgi
import msgspec

from gq_gateway.call import RECEIVE, Call, parse_body, parse_query, read_body
from gq_gateway.gateway import Gateway
from gq_gateway.node import METRICS_TYPE, node_metrics
from gq_gateway.problems import (
    CONTENT_TYPE,
    RETRY_AFTER_S,
    CrossSite,
    MalformedRequest,
    MethodNotAllowed,
    NoSuchPath,
    Refused,
    encode,
    problem_of,
    status_of,
)
from gq_gateway.routes import ROUTES
from gq_gateway.table import METRICS, Raw, Route
from gq_proto.errors import GoQueueError, Internal

PREFIX: Final = "/v1"
JSON: Final = "application/json"
PLAIN: Final = "text/plain; charset=utf-8"
Responder = Callable[..., Awaitable[None]]
_log = logging.getLogger("goqueue.gateway")
_encoder = msgspec.json.Encoder()


def make_app(gateway: Gateway, max_body: int, routes: Sequence[Route] = ROUTES) -> Any:
    """An ASGI callable. `max_body`: bytes of a request's body."""
    gateway.routes = routes
    app = falcon.asgi.App(request_type=HttpRequest)
    app.req_options.strip_url_path_trailing_slash = True
    for path in dict.fromkeys(route.path for route in routes):
        resource = _Resource()
        for route in routes:
            if route.path == path:
                setattr(resource, f"on_{route.method.lower()}", _responder(gateway, route, max_body))
        for prefix in ("", PREFIX):
            app.add_route(prefix + path, resource)
    app.add_error_handler(GoQueueError, _on_error)
    app.add_error_handler(falcon.HTTPError, _on_http_error)
    app.add_error_handler(Exception, _on_bug)

    async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scope[RECEIVE] = receive
        try:
            await app(scope, receive, send)
        finally:
            del scope[RECEIVE]               # `receive` knows the scope: a cycle

    return serve


class HttpRequest(falcon.asgi.Request):
    """As the hook for keys wants it."""

    __slots__ = ()
    listener = "http"


class _Resource:
    """One path; its responders are set by make_app."""


def _responder(gateway: Gateway, route: Route, max_body: int) -> Responder:
    decoder = msgspec.json.Decoder(route.body) if route.body and not route.raw else None
    no_query = msgspec.convert({}, route.query) if not route.required_query else None
    counts = gateway.book.route(route.method, route.path)
    handler, lists, nullable = route.handler, route.query_lists, route.query_nullable
    about = (route.resource,) if route.resource else ()

    async def answer(request: Any, response: Any, params: dict[str, str]) -> None:
        call = Call(gateway, request, params, route.status)
        check_site(request)
        call.access = await gateway.authorize(request, route.verb, **{name: params[name] for name in about})
        text = request.query_string
        call.query = no_query if not text and no_query is not None else parse_query(text, route.query, lists, nullable)
        if route.body:
            call.raw = await read_body(request, max_body, route.optional)
            if decoder:
                call.body = parse_body(call.raw, decoder) if call.raw or not route.optional else route.body()
        result = await handler(call)
        response.status = call.status
        for name, value in call.headers.items():
            response.set_header(name, value)
        if isinstance(result, Raw):
            response.content_type, response.data = result.content_type, result.data
        elif result is not None:
            response.content_type, response.data = JSON, _encoder.encode(result)

    async def respond(request: Any, response: Any, **params: str) -> None:
        began = time.perf_counter()
        gateway.taken()
        try:
            await answer(request, response, params)
        except GoQueueError as error:
            refuse(response, error)
        except Exception:
            _log.error("a bug: %s %s", route.method, route.path, exc_info=True)
            refuse(response, Internal())
        counts.note(response.status_code, time.perf_counter() - began)

    return respond


def check_site(request: Any) -> None:
    """A page of another site, open in a browser of this machine, must not reach a gateway that trusts who is local."""
    if request.get_header("Sec-Fetch-Site") == "cross-site":
        if request.method != "GET" or request.get_header("Sec-Fetch-Mode") != "navigate":
            raise CrossSite("a page of another site may not use this gateway: call it from your server")


def refuse(response: Any, error: GoQueueError) -> None:
    """Answer with a problem."""
    problem = problem_of(error)
    response.status = problem.status
    response.content_type, response.data = CONTENT_TYPE, encode(problem)
    plain = error.error if isinstance(error, Refused) else error
    if problem.retriable:
        response.set_header("Retry-After", str(RETRY_AFTER_S))
    if problem.status == 401:
        response.set_header("WWW-Authenticate", "Bearer")
    if problem.status == 413:
        response.set_header("Connection", "close")
    if isinstance(plain, MethodNotAllowed):
        response.set_header("Allow", plain.allowed)


async def _on_error(request: Any, response: Any, error: Any, params: Any) -> None:
    refuse(response, error)


async def _on_http_error(request: Any, response: Any, error: Any, params: Any) -> None:
    """What falcon finds: no route, no such method there, what is no HTTP."""
    if error.status_code == 404:
        refuse(response, NoSuchPath(f"there is no {request.path!r:.200}: see /docs"))
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refuse(response, MethodNotAllowed(f"{request.method} is not for this path: use {allowed}", allowed))
    else:
        refuse(response, MalformedRequest(str(error.title or "the request makes no sense")))


async def _on_bug(request: Any, response: Any, error: Any, params: Any) -> None:
    _log.error("a bug: %s %s", request.method, request.uri_template or "?", exc_info=error)
    refuse(response, Internal())


class Scraper:
    """Who asks for metrics, as the hook for keys wants it."""

    listener = "metrics"

    def __init__(self, scope: dict[str, Any]) -> None:
        self._headers = dict(scope["headers"])

    def get_header(self, name: str) -> str | None:
        found: bytes | None = self._headers.get(name.lower().encode())
        return None if found is None else found.decode("latin-1")


async def _metrics(gateway: Gateway, scraper: Scraper) -> tuple[int, str, bytes]:
    """Status, content type, body."""
    try:
        await gateway.authorize(scraper, METRICS)
    except GoQueueError as error:
        return status_of(error), PLAIN, f"{error.message}\n".encode()
    return 200, METRICS_TYPE, await node_metrics(gateway)


def metrics_app(gateway: Gateway) -> Any:
    """What a daemon's exporter answers (gq_run.exporter), for the node."""

    async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
        status, kind, body = 404, PLAIN, b"try /metrics, /health or /ready\n"
        if scope["path"] == "/metrics":
            status, kind, body = await _metrics(gateway, Scraper(scope))
        elif scope["path"] == "/health":
            status, body = 200, b"alive\n"
        elif scope["path"] == "/ready":
            status, body = (200, b"ready\n") if gateway.is_ready() else (503, b"starting\n")
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return serve

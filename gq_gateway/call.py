"""One request as a handler sees it: path, query and body, checked and typed; and whether its caller is still there."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from falcon.uri import parse_query_string
from msgspec import Struct

from gq_gateway.door import EVERYTHING
from gq_gateway.gateway import Gateway
from gq_gateway.problems import Refused, UnsupportedMediaType, invalid
from gq_proto.access import Access
from gq_proto.errors import BadRequest, GoQueueError, TooLarge
from gq_proto.names import check_name

RECEIVE: Final = "goqueue.receive"        # in the ASGI scope: what tells that the caller left
DIGITS_MAX: Final = 18


class Call:
    """`query` and `body` are of the types that the route declares, `raw` is the body as it came. A handler may set `status` and
    `headers` of its answer."""

    __slots__ = ("access", "body", "gateway", "headers", "params", "query", "raw", "request", "status")

    def __init__(self, gateway: Gateway, request: Any, params: dict[str, str], status: int) -> None:
        self.gateway, self.request, self.params, self.status = gateway, request, params, status
        self.access: Access = EVERYTHING      # what its key may see
        self.query: Any = None
        self.body: Any = None
        self.raw = b""
        self.headers: dict[str, str] = {}

    @property
    def topic(self) -> str:
        return self.name("topic")

    @property
    def group(self) -> str:
        return self.name("group")

    def name(self, what: str) -> str:
        """A legal name from the path; BadName says what is wrong with it."""
        try:
            return check_name(what, self.params[what])
        except GoQueueError as error:
            raise Refused(error, what) from None

    def number(self, what: str) -> int:
        """A number from the path."""
        text = self.params[what]
        if not (text.isascii() and text.isdigit()) or len(text) > DIGITS_MAX:
            raise Refused(BadRequest(f"{what} {text!r:.60} in the path is no whole number"), what)
        return int(text)

    def watch(self) -> "asyncio.Task[None]":
        """A task that ends when the caller goes away. Cancel it when that does not matter any more."""
        return asyncio.ensure_future(_until_gone(self.request.scope[RECEIVE]))


async def _until_gone(receive: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(request: Any, most: int, optional: bool) -> bytes:
    """The whole body; TooLarge, UnsupportedMediaType."""
    body: bytes = await request.stream.read(most + 1)
    if len(body) > most:
        raise too_large(most)
    if not body and optional:
        return body
    kind = (request.content_type or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType(f"the content type is {kind!r:.80}: send JSON with Content-Type: application/json")
    return body


def too_large(most: int) -> GoQueueError:
    return TooLarge(f"the body is above {most} bytes (http.maxBodyBytes): send less at a time")


def parse_query(text: str, kind: type[Struct], lists: frozenset[str], nullable: frozenset[str] = frozenset()) -> Any:
    """`lists`: parameters that may be given several times, or once with commas. `nullable`: those that may be left out, but not
    be given as the word null, which msgspec would take for it."""
    found: dict[str, Any] = parse_query_string(text, keep_blank=True)
    for name in nullable & found.keys():
        if found[name] == "null":
            raise Refused(BadRequest(f"{name}: there is no null in a URL, leave it out"), name)
    for name in lists & found.keys():
        given = found[name] if isinstance(found[name], list) else [found[name]]
        found[name] = [one for part in given for one in part.split(",") if one]
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def parse_body(body: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(error) if isinstance(error, ValueError) else BadRequest("the body is nested too deeply") from None

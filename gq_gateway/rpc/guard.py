"""Around every call: who asks, and what becomes of errors.

A GoQueueError is the call's status, with its name in the trailers; anything else is a bug: it is logged here and the caller is told
no more than that. A cancelled call (the caller went away, or its deadline passed) unwinds as asyncio tasks do.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from gq_gateway.counts import OK, Counts
from gq_gateway.rpc.status import status_of, trailers
from gq_proto import limits
from gq_proto.errors import BadRequest, GoQueueError, Internal

MARGIN_S: Final = 0.1           # an answer is on its way so long before the caller gives up
PATIENCE_S: Final = limits.REQUEST_DEADLINE_MS / 1000
INSIDE: Final = "an error inside the gateway or the node: its log says more"
_log = logging.getLogger("goqueue.gateway")


class Caller:
    """Who asks, as the hook for keys sees it: get_header() as of an HTTP request, `peer` an address."""

    __slots__ = ("_headers", "context")
    listener = "grpc"

    def __init__(self, context: Any) -> None:
        self.context = context
        self._headers: dict[str, str] | None = None

    def get_header(self, name: str) -> str | None:
        if self._headers is None:
            self._headers = {key: value for key, value in self.context.invocation_metadata() if isinstance(value, str)}
        return self._headers.get(name.lower())

    @property
    def peer(self) -> str:
        return str(self.context.peer())

    def patience(self, most: float = PATIENCE_S) -> float:
        """Seconds until an answer is of no use any more, `most` at most."""
        left = self.context.time_remaining()
        return most if left is None else max(0.0, min(most, left - MARGIN_S))


Unary = Callable[[Any, Caller], Awaitable[Any]]
Stream = Callable[[Any, Caller], Awaitable[None]]


def unary(method: Unary, counts: Counts, taken: Callable[[], None] = lambda: None) -> Callable[[Any, Any], Awaitable[Any]]:
    """A handler for grpc of a method that answers once. `taken()` is told of each call, `counts` of its end."""
    async def handle(request: Any, context: Any) -> Any:
        taken()
        status, began = OK, time.perf_counter()
        try:
            return await method(readable(request), Caller(context))
        except BaseException as error:
            status = _told(error, context)
            await _refuse(context, error)
        finally:
            counts.note(status, time.perf_counter() - began)

    return handle


def stream(method: Stream, counts: Counts) -> Callable[[Any, Any], Awaitable[None]]:
    """A handler for grpc of a method that reads and writes caller.context itself. It returns when the call is over."""
    async def handle(request: Any, context: Any) -> None:
        status = OK
        counts.open += 1
        try:
            await method(readable(request), Caller(context))
        except BaseException as error:
            status = _told(error, context)
            await _refuse(context, error)
        finally:
            counts.open -= 1
            counts.note(status, 0.0)

    return handle


def reader(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A deserializer for grpc: what is no message becomes the error that the call ends with."""
    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return BadRequest("the request is no message of this method's type, see goqueue.proto")

    return read


def readable(request: Any) -> Any:
    if isinstance(request, BadRequest):
        raise request
    return request


def _told(error: BaseException, context: Any) -> str:
    """The status that a call ends with which fails so."""
    if isinstance(error, GoQueueError):
        return status_of(error).name
    if not isinstance(error, asyncio.CancelledError | grpc.aio.BaseError):
        return grpc.StatusCode.INTERNAL.name
    late = context.time_remaining() is not None and context.time_remaining() <= 0
    return (grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED).name


async def _refuse(context: Any, error: BaseException) -> None:
    if isinstance(error, grpc.aio.BaseError) or not isinstance(error, Exception):
        raise error                                 # grpc's own: it was aborted, or the caller left while it was written to
    if not isinstance(error, GoQueueError):
        _log.error("a bug in a gRPC call", exc_info=error)
        error = Internal(INSIDE)
    status = status_of(error)
    await context.abort(status, INSIDE if status == grpc.StatusCode.INTERNAL else error.message, trailers(error))


async def each(context: Any) -> AsyncIterator[Any]:
    """The requests of a stream."""
    while True:
        request = await context.read()
        if request is grpc.aio.EOF:
            return
        yield readable(request)

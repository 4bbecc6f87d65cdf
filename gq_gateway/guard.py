"""The HTTP protocol with bounds: what a caller may send, for how long, and how long it may leave an answer unread.

Owns timers and refusals; the rest is uvicorn's. A request whose head or body does not come in time, a head that is too large, a
body that says it is, what is no HTTP, and more connections than allowed are answered with a problem, and the connection ends: what
still comes is thrown away for LINGER_S, so that the caller can read why. An answer that nobody reads ends the connection too.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gq_gateway.call import too_large
from gq_gateway.problems import (
    CONTENT_TYPE,
    HeadersTooLarge,
    MalformedRequest,
    RequestTimeout,
    TooManyConnections,
    encode,
    problem_of,
)
from gq_proto.errors import GoQueueError

HEAD_MAX: Final = 65_536
VERSIONS: Final = ("1.0", "1.1")
LINGER_S: Final = 1.0
STALL_S: Final = 30.0


@dataclass(frozen=True)
class Bounds:
    """Sizes in bytes, times in seconds."""

    body: int
    connections: int
    request_s: float


class Joined:
    """A transport whose writes of one turn of the loop leave together: an answer's head and body are one packet, one call."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._ended = False
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.can_write_eof, self.get_write_buffer_size = transport.can_write_eof, transport.get_write_buffer_size
        self.abort = transport.abort

    def write(self, data: bytes) -> None:
        """After write_eof it goes nowhere: an answer that was under way when its caller was refused."""
        if self._ended:
            return
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def write_eof(self) -> None:
        self.flush()
        self._ended = True
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, bounds: Bounds, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._bounds = bounds
        self._head = 0                       # bytes that came of the head that is coming
        self._in_head = True
        self._begun = False                  # a request is here in part
        self._refused = False
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    # -- asyncio's --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        joined: Any = Joined(transport, self.loop)
        super().connection_made(joined)
        if len(self.connections) > self._bounds.connections:
            self._refuse(TooManyConnections("the gateway has as many connections as it may: try again later"))
        else:
            self._late = self.loop.call_later(self._bounds.request_s, self._on_late)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > HEAD_MAX:
            self._refuse(HeadersTooLarge(f"path and headers are above {HEAD_MAX} bytes"))
        elif not self._begun:
            self._in_time()
        elif self._late is None:
            self._late = self.loop.call_later(self._bounds.request_s, self._on_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        if self._stalled:
            self._stalled.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None

    # -- the parser's -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begun = self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        if self.parser.get_http_version() not in VERSIONS:
            self._refuse(MalformedRequest("HTTP/1.1 and HTTP/1.0 are spoken here"))
        elif int(length) > self._bounds.body:
            self._refuse(too_large(self._bounds.body))
        elif not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._begun, self._in_head, self._head = False, True, 0
        if not self._refused:
            super().on_message_complete()

    # -- refusing -----------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(MalformedRequest("this is no HTTP/1.1 request"))

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _in_time(self) -> None:
        if self._late:
            self._late.cancel()
            self._late = None

    def _on_late(self) -> None:
        self._late = None
        if self._begun:
            self._refuse(RequestTimeout(f"the request was not whole after {self._bounds.request_s:g} s"))
        else:
            self.transport.close()

    def _refuse(self, error: GoQueueError) -> None:
        """Say why, take nothing more, end the connection a little later. In the middle of an answer: end it now."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._in_time()
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
            return
        self.transport.write(refusal(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def refusal(error: GoQueueError) -> bytes:
    """A whole answer that ends the connection."""
    problem = problem_of(error)
    body = encode(problem)
    head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n" % (CONTENT_TYPE.encode(), len(body))
    again = b"retry-after: 1\r\n" if problem.retriable else b""
    return STATUS_LINE[problem.status] + head + again + b"\r\n" + body

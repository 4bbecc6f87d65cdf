"""Reading one partition without a group: Reader blocks, AsyncReader is awaited; both drive a Cursor.

Owns a line of its own and one fetch in flight. No state is kept anywhere: where to begin is the caller's to remember.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from gq_client.cursor import PATIENCE_S, RETRY_S, Cursor
from gq_client.session import Call, Session
from gq_proto import codec
from gq_proto.errors import Closed

if TYPE_CHECKING:
    from gq_client.aio import AsyncClient
    from gq_client.sync import Client

ALL = 2**31


class Reading:
    """What both readers are: a cursor, and at most one fetch in flight."""

    def __init__(self, cursor: Cursor, session: Session) -> None:
        self._cursor, self._session = cursor, session
        self._call: Call | None = None
        self._closed = False

    @property
    def next_offset(self) -> int:
        """Where reading goes on behind the records that have come."""
        return self._cursor.position

    @property
    def skipped(self) -> int:
        """Offsets passed over because retention had taken them."""
        return self._cursor.skipped

    def seek(self, offset: int) -> None:
        """Go on at `offset`."""
        if self._call:
            self._session.cancel(self._call)
            self._call = None
        self._cursor.seek(offset)


class Reader(Reading):
    """Iterate over it (for ever, or to the end with stop_at_end), or poll(). Not for several threads."""

    def __init__(self, client: "Client", cursor: Cursor) -> None:
        self._client, self._line = client, client.line()
        super().__init__(cursor, self._line.session)
        self._retry_at = 0.0
        client.adopt(self)

    def poll(self, most: int = ALL, timeout: float | None = None) -> list[codec.Record]:
        """Up to `most` records, as soon as there is one; [] after `timeout` seconds (None: for ever) or at the end."""
        cursor = self._cursor
        if not cursor.records:
            self._fill(None if timeout is None else time.monotonic() + timeout)
        return cursor.take(most)

    def __iter__(self) -> Iterator[codec.Record]:
        while batch := self.poll():
            yield from batch

    def close(self) -> None:
        """Safe to repeat."""
        if not self._closed:
            self._closed = True
            self._client.disown(self)
            self._client.drop(self._line)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _fill(self, end: float | None) -> None:
        """Until records are here, the end is reached, or `end` has passed."""
        if self._closed:
            raise Closed("the reader was closed")
        cursor = self._cursor
        while not cursor.records and not cursor.ended:
            call = self._ask()
            if call is None or not call.done:
                now = time.monotonic()
                left = PATIENCE_S if end is None else max(0.0, end - now)
                self._line.pump(left if call else min(left, max(0.0, self._retry_at - now)))
            if call and call.done:
                self._take(call)
            elif end is not None and time.monotonic() >= end:
                return
        if not cursor.ended:
            self._ask()

    def _ask(self) -> Call | None:
        """The fetch in flight; None while a moved partition is waited for."""
        if self._call is None and time.monotonic() >= self._retry_at:
            self._call = self._line.submit(self._cursor.ask().call(time.monotonic() + PATIENCE_S))
        return self._call

    def _take(self, call: Call) -> None:
        self._call = None
        body, frames = call.result()
        if not self._cursor.took(body.parts[0], frames[0]):
            self._retry_at = time.monotonic() + RETRY_S
            self._session.refresh(time.monotonic())
            self._line.wire.push()


class AsyncReader(Reading):
    """As Reader: `async for`, or await poll(). Belongs to the loop it was made on."""

    def __init__(self, client: "AsyncClient", cursor: Cursor) -> None:
        self._client, self._line = client, client.line()
        super().__init__(cursor, self._line.session)
        self._came = asyncio.Event()
        client.adopt(self)

    async def poll(self, most: int = ALL, timeout: float | None = None) -> list[codec.Record]:
        """Up to `most` records, as soon as there is one; [] after `timeout` seconds (None: for ever) or at the end."""
        if not self._cursor.records:
            try:
                async with asyncio.timeout(timeout):
                    await self._fill()
            except TimeoutError:
                pass
        return self._cursor.take(most)

    async def __aiter__(self) -> AsyncIterator[codec.Record]:
        while batch := await self.poll():
            for record in batch:
                yield record

    async def close(self) -> None:
        """Safe to repeat."""
        if not self._closed:
            self._closed = True
            self._client.disown(self)
            self._client.drop(self._line)

    async def __aenter__(self) -> "AsyncReader":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _fill(self) -> None:
        if self._closed:
            raise Closed("the reader was closed")
        cursor = self._cursor
        while not cursor.records and not cursor.ended:
            call = self._ask()
            if not call.done:
                await self._came.wait()
            self._call = None
            body, frames = call.result()
            if not cursor.took(body.parts[0], frames[0]):
                self._session.refresh(time.monotonic())
                self._line.flush()
                await asyncio.sleep(RETRY_S)
        if not cursor.ended:
            self._ask()

    def _ask(self) -> Call:
        """The fetch in flight. A poll that times out leaves it there for the next."""
        if self._call is None:
            self._came.clear()
            self._call = self._cursor.ask().call(time.monotonic() + PATIENCE_S, lambda call: self._came.set())
            self._line.submit(self._call)
        return self._call

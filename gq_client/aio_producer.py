"""The batching producer on an event loop. See gq_client.producer; here nothing waits but whoever awaits.

    async with client.producer() as producer:
        delivery = await producer.send("logs", line)     # waits only while memory is full
        print(await delivery)                            # Published(partition, offset, timestamp)

With linger 0 what is sent within one turn of the loop travels together: AsyncClient.publish is that, awaited.
"""

import asyncio
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from gq_client import topics
from gq_client.batch import Batch, Lane, ProducerOptions
from gq_client.batches import Batcher
from gq_client.delivery import AsyncDelivery
from gq_client.draft import Headers, When, prepared, priority_of
from gq_client.gathering import Gathering
from gq_client.session import NEVER
from gq_proto.errors import Busy, Closed, GoQueueError, TimedOut

if TYPE_CHECKING:
    from gq_client.aio import AsyncClient


class AsyncProducer:
    """Made by AsyncClient.producer(), on the running loop. Owns a line and one timer. `eager`: the linger counts only while
    something is under way; what is sent meanwhile goes together when that is answered. For many senders of which each waits: they
    need not pay the linger, nor cost a request each (see gq_client.gathering)."""

    def __init__(self, client: "AsyncClient", options: ProducerOptions, block: float, eager: bool = False) -> None:
        self._client, self._options, self._block = client, options, block
        self._line = client.line()
        self._line.after_turn = self._work
        self._loop = self._line.loop
        self._gathering = Gathering(self._loop.call_soon, self._work) if eager else None
        self._batcher: Batcher | None = None
        self._starting = asyncio.Lock()
        self._changed: asyncio.Future[None] | None = None    # resolved when batches are finished
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._soon = False                                   # a turn of work is scheduled
        self._error: GoQueueError | None = None              # first since the last flush
        self._closed = False
        client.adopt(self)

    # -- messages -------------------------------------------------------------------------------

    async def send(self, topic: str, value: Any, key: Any = None, headers: Headers = None, priority: int | str | None = None,
                   delay: float | None = None, deliver_at: When = None, partition: int | None = None) -> AsyncDelivery:
        """Hand over one message; see Client.publish for the arguments. Waits while memory is full, `block` seconds, then Busy.
        Errors that can be known now are raised, the others are the delivery's."""
        batcher = self._batcher
        lane = batcher.lanes.get(topic) if batcher else None
        if lane is None or batcher is None or self._starting.locked():
            batcher, lane = await self._lane(topic)      # in the order of the sends
        if batcher.gated:
            await self._room(batcher)
        at = -1 if partition is None else partition
        if at >= len(lane.homes):
            await self._line.run(topics.news(self._client.routes, topic), self._options.timeout)
            batcher.follow(lane)
        if topic in batcher.adds and not headers and delay is None and deliver_at is None:
            return cast("AsyncDelivery", lane.add(key, value, at, b"", priority_of(priority)))
        now_us = time.time_ns() // 1000
        stored, *rest = prepared(value, headers, priority, delay, deliver_at, self._options.compress, now_us)
        return cast("AsyncDelivery", lane.add(key, stored, at, *rest, now_us if lane.create else 0))

    async def _lane(self, topic: str) -> tuple[Batcher, Lane]:
        self._check()
        async with self._starting:
            if self._batcher is None:
                ids = self._options.idempotent and self._options.acks != "none"
                producer_id, epoch = await self._line.run(topics.new_producer()) if ids else (-1, -1)
                self._batcher = Batcher(self._line.session, self, self._options, AsyncDelivery, producer_id, epoch, random.random)
            found = await self._line.run(topics.ensure(self._client.routes, topic), self._options.timeout)
            return self._batcher, self._batcher.lane(found)

    async def _room(self, batcher: Batcher) -> None:
        await self._until(lambda: not batcher.gated, self._block,
                          f"the producer's memory ({self._options.buffer_bytes} bytes) is full: the node does not keep up", Busy)

    async def flush(self, timeout: float | None = None) -> None:
        """Send what is open and wait until every message handed over before is written. Raises the first error of a message since
        the last flush; TimedOut when some are still under way after `timeout` seconds."""
        self._check()
        batcher = self._batcher
        if batcher:
            batcher.seal_all(time.monotonic())
            self._work()
            await self._until(lambda: not batcher.unfinished, timeout, "messages are still under way")
        error, self._error = self._error, None
        if error:
            raise error

    async def close(self, timeout: float | None = None) -> None:
        """flush, then close the connections. Safe to repeat."""
        if self._closed:
            return
        try:
            await self.flush(timeout)
        finally:
            self._end()

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.close()
        except GoQueueError:
            if error is None:
                raise                    # else the app's own error says more

    # -- what the accumulators say ------------------------------------------------------------------

    def opened(self, lane: Lane, partition: int) -> None:
        """A batch got its first message."""
        now = time.monotonic()
        assert self._batcher is not None
        self._batcher.opened(now, lane, partition)
        if not self._options.linger or (self._gathering and not self._batcher.unfinished):
            self._work_soon()
        else:
            self._remind(now + self._options.linger)

    def full(self, lane: Lane, partition: int) -> None:
        """A batch is full: off it goes."""
        assert self._batcher is not None
        self._batcher.seal(time.monotonic(), lane, partition)
        self._work()

    def wait(self) -> None:
        """The gate closed between send's look and the add: full() did that, and one message more does no harm."""

    # -- what deliveries ask ------------------------------------------------------------------------

    async def await_batch(self, batch: Batch, timeout: float | None = None) -> None:
        """Until it is done. What lingers is sent now, unless the producer is eager."""
        if not batch.size and self._options.linger and not self._gathering:
            assert self._batcher is not None
            self._batcher.seal(time.monotonic(), batch.home.lane, batch.home.partition)
            self._work_soon()
        done: asyncio.Future[None] = self._loop.create_future()       # each waiter's own: one that is cancelled is no other's loss
        batch.callbacks.append(lambda: None if done.done() else done.set_result(None))
        await done

    def tell(self, batch: Batch, call: Callable[[], Any]) -> None:
        """Call it once the batch is done."""
        if batch.done:
            call()
        else:
            batch.callbacks.append(call)

    # -- working --------------------------------------------------------------------------------------

    def _work_soon(self) -> None:
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Send what may go, take what has come, tell who waits."""
        self._soon = False
        batcher = self._batcher
        if self._closed or batcher is None:
            return
        self._step(batcher)
        self._line.flush()
        finished = self._taken(batcher)
        while finished:
            self._step(batcher)
            self._line.flush()
            for batch in finished:
                self._announce(batch)
            finished = self._taken(batcher)
        self._remind(batcher.next_due)

    def _step(self, batcher: Batcher) -> None:
        now = time.monotonic()
        if self._gathering and batcher.open and not batcher.unfinished and self._gathering.over():
            self._gathering.sent(batcher.seal_all(now))
        batcher.step(now)

    def _taken(self, batcher: Batcher) -> list[Batch]:
        finished, batcher.finished = batcher.finished, []
        return finished

    def _announce(self, batch: Batch) -> None:
        self._error = self._error or batch.error
        for call in batch.callbacks:
            self._loop.call_soon(call)
        batch.callbacks.clear()
        if self._changed and not self._changed.done():
            self._changed.set_result(None)

    def _remind(self, when: float) -> None:
        if when < self._timer_at:
            if self._timer:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self._loop.call_later(max(0.0, when - time.monotonic()), self._on_time)

    def _on_time(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._work()

    async def _until(self, ready: Callable[[], bool], timeout: float | None, what: str,
                     error: type[GoQueueError] = TimedOut) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not ready():
                    self._check()
                    if self._changed is None or self._changed.done():
                        self._changed = self._loop.create_future()
                    await asyncio.shield(self._changed)
        except TimeoutError:
            raise error(what) from None

    # -- the end ------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._line.check_owner()
        if self._closed:
            raise Closed("the producer was closed")

    def _end(self) -> None:
        self._closed = True
        if self._timer:
            self._timer.cancel()
        if self._batcher:
            self._batcher.abandon(Closed("the producer was closed before the message was written"))
            for batch in self._taken(self._batcher):
                self._announce(batch)
        self._client.drop(self._line)
        self._client.disown(self)

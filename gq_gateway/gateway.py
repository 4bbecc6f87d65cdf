"""What all handlers of the gateway share: the client, the producers, whether it drains, and the hook for keys.

Owns one AsyncClient, one AsyncProducer per acks mode, made when first needed, and the work that goes on after an answer (giving
leases back). Everything on the loop's thread.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from gq_client.aio import AsyncClient
from gq_client.aio_producer import AsyncProducer
from gq_gateway.counts import Book
from gq_gateway.door import Door
from gq_gateway.polls import Polls
from gq_proto.access import Access
from gq_proto.errors import Unavailable
from gq_run.exporter import Collected
from gq_run.metrics import HTTP_WAITING, Sample

BLOCK_S: Final = 2.0             # with a producer whose memory is full
NUMBERS_MAX: Final = 10_000


class Gateway:
    """`draining` is set when the gateway is about to stop: long polls end, nothing new is begun. `taken()` is told of each request,
    `collect()` gives this process's metrics."""

    def __init__(self, client: AsyncClient, is_ready: Callable[[], bool], taken: Callable[[], None] = lambda: None,
                 collect: Callable[[], Collected] = dict, door: Door | None = None) -> None:
        self.client = client
        self.is_ready, self.taken, self.collect = is_ready, taken, collect
        self.door = door or Door()
        self.pid = os.getpid()
        self.scrape_key = ""             # of this node, for metrics of its daemons
        self.draining = asyncio.Event()
        self.book = Book()
        self.polls = Polls(client, self.draining, self.afterwards)
        self.waiting = 0                 # long polls by HTTP
        self.routes: Sequence[Any] = ()  # the table that is served
        self._producers: dict[str, AsyncProducer] = {}
        self._after: set[asyncio.Task[None]] = set()
        self._numbers: dict[str, int] = {}             # of groups: a cache

    async def authorize(self, request: Any, verb: str, topic: str = "", group: str = "") -> Access:
        """The one hook for keys, called before anything else of a request is looked at, again for what its body names, and once
        more after a long wait. `verb` is "publish", "consume", "admin", "metrics", "any" (whoever has a key) or "" (open to
        everyone); `topic` and `group` what it is about (with both, one scope must cover both), neither for the node. What else the
        caller may see says the Access. Unauthorized, Forbidden; Unavailable while the keys are not known yet."""
        return self.door.admit(request, verb, topic, group)

    def producer(self, acks: str) -> AsyncProducer:
        """The shared producer: what is sent within one turn of the loop travels together."""
        self.check_open()
        found = self._producers.get(acks)
        if found is None:
            found = self.client.producer(linger=0, acks=acks, timeout=self.client.timeout, block=BLOCK_S)
            self._producers[acks] = found
        return found

    def check_open(self) -> None:
        if self.draining.is_set():
            raise Unavailable("the gateway is about to stop: ask again, another one may answer")

    def afterwards(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it go on although nobody waits for it; a stop does."""
        task = asyncio.ensure_future(work)
        self._after.add(task)
        task.add_done_callback(self._after.discard)

    async def settle(self, within: float) -> None:
        """Wait until what goes on afterwards has ended, so many seconds at most."""
        if self._after:
            await asyncio.wait(self._after, timeout=within)

    async def is_number_of(self, group: str, number: int) -> bool:
        """Is this the group's number? They are never given out twice; a group that was made anew has another one. UnknownGroup."""
        if self._numbers.get(group) != number:
            self._numbers[group] = (await self.client.describe_group(group)).number
            while len(self._numbers) > NUMBERS_MAX:
                del self._numbers[next(iter(self._numbers))]
        return self._numbers[group] == number

    def samples(self) -> Iterator[Sample]:
        yield from self.book.samples()
        yield HTTP_WAITING, (), self.waiting

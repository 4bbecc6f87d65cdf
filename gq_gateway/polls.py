"""Long polls, HTTP's and gRPC's: hold leases from the coordinator and their bytes from the logs, for whichever member is named.

Nothing stays here. What is returned lives to its deadline, whoever settles it. What was leased and does not reach the caller (who
went away, or the gateway stops, the bytes could not be had, the answer is full) is given back, uncounted, at once; so is what a
question that nobody waits for any more still brings. The coordinator is asked for a few seconds at a time: that keeps the member's
session alive, and bounds how long a question outlives its caller.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from gq_client.aio import AsyncClient
from gq_client.consumer_ask import Ask
from gq_client.consumer_fetch import Fetcher
from gq_client.consumer_lease import HeldLease, Message, subtract, to_ranges
from gq_client.routing import To
from gq_proto import codec, limits
from gq_proto.codec import Record
from gq_proto.errors import GoQueueError
from gq_proto.messages import Kind, Op, Poll, PollReply, Settle, Settle1
from gq_proto.receipt import Receipt, texts

SLICE_MS: Final = limits.HEARTBEAT_MS      # the coordinator is asked for so long at a time
GRACE_S: Final = 5.0                       # beyond it, before the coordinator is taken for lost
TICK_S: Final = 5.0                        # deadlines fall on multiples: one look at them for many polls
RETRY_S: Final = 0.05
FETCH_S: Final = 10.0
ALL: Final = 1 << 30
May = Callable[[set[str]], Awaitable[None]]
Gone = asyncio.Future[None]


class Question(NamedTuple):
    """For `most` messages of `most_bytes` in all (the first may be larger); wait_s for the first. visibility_ms 0: the topic's."""

    group: str
    member: str
    most: int
    wait_s: float
    visibility_ms: int
    most_bytes: int


class Found(NamedTuple):
    """The coordinator's answer; the messages, each with its receipt."""

    reply: PollReply
    messages: list[Message]
    receipts: list[str]


class Polls:
    """All polls of this gateway. `draining` ends those that wait; `afterwards` is given the work that nobody waits for."""

    def __init__(self, client: AsyncClient, draining: asyncio.Event,
                 afterwards: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._client, self._draining, self._afterwards = client, draining, afterwards

    async def poll(self, question: Question, may: May, gone: Gone | None = None) -> Found:
        """No messages when there were none in time. `may` refuses topics that are not for the caller: the member may be another's,
        keys may end. `gone`: done when the caller has left; or cancel this. UnknownMember, UnknownGroup; Unavailable when the
        bytes cannot be had."""
        gone = gone or asyncio.get_running_loop().create_future()
        reply = await self._leases(question, gone)
        gathering = Gathering(self._client, question, reply)
        try:
            await may({lease.topic for lease in reply.leases})
            await gathering.gather(gone)
            messages, receipts = ([], []) if gone.done() else gathering.hand_out()
        finally:
            self._settle(question, gathering.close())
        return Found(reply, messages, receipts)

    async def _leases(self, question: Question, gone: Gone) -> PollReply:
        """Without leases when the time is over, the caller left or the gateway stops."""
        drain = asyncio.ensure_future(self._draining.wait())
        end = time.monotonic() + question.wait_s
        try:
            while True:
                reply = await self._slice(question, end, (gone, drain))
                if reply.leases or time.monotonic() >= end or gone.done() or drain.done():
                    return reply
        finally:
            drain.cancel()

    async def _slice(self, question: Question, end: float, ends: tuple["asyncio.Future[Any]", ...]) -> PollReply:
        """One question, until it is answered or one of `ends` is done. Left behind, its leases are given back."""
        asked = asyncio.ensure_future(self._ask(question, max(0.0, end - time.monotonic())))
        heard = False
        try:
            await asyncio.wait((asked, *ends), return_when=asyncio.FIRST_COMPLETED)
            heard = asked.done()
            return asked.result() if heard else PollReply([])
        except GoQueueError as error:
            if not error.retriable or time.monotonic() >= end:
                raise
            await asyncio.wait(ends, timeout=RETRY_S, return_when=asyncio.FIRST_COMPLETED)
            return PollReply([])
        finally:
            if not heard:
                self._afterwards(self._orphan(question, asked))

    async def _ask(self, question: Question, left_s: float) -> PollReply:
        now, wait_ms = time.monotonic(), min(int(left_s * 1000), SLICE_MS)
        patience = math.ceil((now + wait_ms / 1000 + GRACE_S) / TICK_S) * TICK_S - now
        body = Poll(question.group, question.member, -1, question.most, wait_ms, question.visibility_ms, True)
        reply, _ = await self._client.call(Kind.POLL, body, to=To.group(question.group), timeout=patience, safe=False)
        found: PollReply = reply
        return found

    async def _orphan(self, question: Question, asked: "asyncio.Task[PollReply]") -> None:
        try:
            reply = await asked
        except GoQueueError:
            return
        self._settle(question, [Settle1(Op.RELEASE, lease.lease, lease.ranges) for lease in reply.leases])

    def _settle(self, question: Question, items: list[Settle1]) -> None:
        if items:
            self._afterwards(self._settled(question, items))

    async def _settled(self, question: Question, items: list[Settle1]) -> None:
        try:
            await self._client.call(Kind.SETTLE, Settle(question.group, question.member, items), to=To.group(question.group))
        except GoQueueError:
            pass                           # they come back at their deadline


class Gathering:
    """The bytes of one answer's leases: an Owner of a Fetcher that does not read ahead, and a Hub that nothing is settled by."""

    asleep = False

    def __init__(self, client: AsyncClient, question: Question, reply: PollReply) -> None:
        self._client, self._most_bytes = client, question.most_bytes
        partition = codec.partition_of(question.group.encode(), limits.GROUPS_PARTITIONS)
        self._held = [HeldLease(lease, self, partition, reply.group_number) for lease in reply.leases]
        self._queue = deque(self._held)
        self._fetcher = Fetcher(self, self._queue, False)
        self._asks: set[asyncio.Task[None]] = set()
        self._handed: dict[HeldLease, list[int]] = {}
        self._size = 0                     # bytes that came
        self._error: GoQueueError | None = None

    async def gather(self, gone: Gone) -> None:
        """Until all is here, or as much as an answer takes, or what is missing can't be had soon. The error of a log that does not
        answer, when nothing came at all."""
        end = time.monotonic() + FETCH_S
        try:
            while self._queue and self._size < self._most_bytes and not (self._error or gone.done()) and time.monotonic() < end:
                self._fetcher.pump(time.monotonic())
                if self._size and not self._asks:
                    break                  # the rest rests: others wait for what is here
                await self._news(end, gone)
                self._sort_out()
        finally:
            for ask in self._asks:
                ask.cancel()
        if self._error and not self._size:
            raise self._error

    def hand_out(self) -> tuple[list[Message], list[str]]:
        """Messages in the order of their leases, as far as they fit the answer, and their receipts."""
        messages: list[Message] = []
        receipts: list[str] = []
        room = self._most_bytes
        for held in self._held:
            some, room = _fitting(held, room, not messages)
            if some:
                offsets = self._handed[held] = [message.offset for message in some]
                lease = held.lease
                receipts += texts(Receipt(lease.topic, lease.partition, 0, lease.delivery, held.groups_partition, held.group_number,
                                          lease.lease, lease.random), offsets)
                messages += some
        return messages, receipts

    def close(self) -> list[Settle1]:
        """What is to become of the messages that are not handed out. Leases, their messages and this name each other: they are
        parted, or what was fetched would stay until the collector comes."""
        items = self._leftovers()
        for held in self._held:
            held.view, held.items = [], []
            held.chunks.clear()
        self._held.clear()
        self._handed.clear()
        self._queue.clear()
        del self._fetcher
        return items

    def _leftovers(self) -> list[Settle1]:
        items: list[Settle1] = []
        for held in self._held:
            items += held.take_ops()
            handed = self._handed.get(held)
            rest = subtract(held.open, to_ranges(handed)) if handed else list(held.open)
            if rest:
                items.append(Settle1(Op.RELEASE, held.lease.lease, rest))
        return items

    async def _news(self, end: float, gone: Gone) -> None:
        now = time.monotonic()
        if self._asks:
            await asyncio.wait((*self._asks, gone), timeout=max(0.0, end - now), return_when=asyncio.FIRST_COMPLETED)
        elif self._queue:
            await asyncio.wait((gone,), timeout=max(0.0, min(self._fetcher.retry_at, end) - now))

    def _sort_out(self) -> None:
        """Decode what came. Leases that are complete wait for nothing any more."""
        for held in list(self._queue):
            if held.chunks:
                held.next_view(ALL, time.monotonic())
            if not (held.todo or held.fetching):
                self._queue.remove(held)

    # -- what the fetcher asks for ------------------------------------------------------------------

    def send(self, ask: Ask) -> None:
        task = asyncio.ensure_future(self._ask(ask))
        self._asks.add(task)
        task.add_done_callback(self._asks.discard)

    async def _ask(self, ask: Ask) -> None:
        try:
            body, frames = await self._client.call(ask.kind, ask.body, to=ask.to, timeout=ask.timeout_s)
        except GoQueueError as error:
            if error.retriable:
                self._error = error
            ask.then(time.monotonic(), None, (), error)
        else:
            self._size += sum(map(len, frames))
            ask.then(time.monotonic(), body, frames, None)

    def give_back(self, held: HeldLease, now: float) -> None:
        held.cut()
        if held in self._queue:
            self._queue.remove(held)

    def drop(self, held: HeldLease) -> None:
        self.give_back(held, 0.0)
        held.forget(held.ranges)

    # -- what messages ask for ------------------------------------------------------------------------

    def wake(self) -> None:
        """Their ops are taken by close()."""

    def confirm(self, lease: HeldLease, offset: int) -> Any:
        raise AssertionError("nothing is settled through these leases")


def _fitting(held: HeldLease, room: int, first: bool) -> tuple[list[Message], int]:
    """The first messages of a lease that fit into so many bytes (`first`: one always does), and the bytes left; -1: it is full."""
    some: list[Message] = []
    for message in held.view:
        try:
            size = size_of(message)
        except GoQueueError as error:
            message.reject(error.message)       # it can't be read: to where somebody looks at it
            continue
        if size > room and (some or not first):
            return some, -1
        room -= size
        some.append(message)
    return some, room


def size_of(message: Record) -> int:
    """About what it takes in an answer, in bytes. BadRecord when its value or headers do not decode."""
    value, key = message.value, message.key
    return 160 + (len(value) if value else 0) + (len(key) if key else 0) + (_weight(message) if message.raw_headers else 0)


def _weight(message: Record) -> int:
    return len(message.raw_headers) + 8 * len(message.headers)

"""Poll: hold leases from the coordinator and their bytes from the logs, for a member that may be anybody's. Nothing stays here.

What is returned lives to its deadline, whoever settles it. What was leased and does not reach the caller (it went away, its
deadline came first, the bytes could not be had in time, the response was full) is given back, uncounted, at once; so is what a
question that nobody waits for any more still brings. The question to the coordinator is renewed every SLICE_S, so one that was left
behind does not wait for long.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gq_client.aio import AsyncClient
from gq_client.consumer_ask import Ask
from gq_client.consumer_fetch import Fetcher
from gq_client.consumer_lease import HeldLease, Message, subtract, to_ranges
from gq_client.routing import To
from gq_gateway.rpc.convert import size_of
from gq_proto import codec, limits
from gq_proto.errors import GoQueueError
from gq_proto.messages import Kind, Op, Poll, PollReply, Settle, Settle1

SLICE_S: Final = 5.0
GRACE_S: Final = 2.0                        # beyond its wait, for the coordinator's answer
RETRY_S: Final = 0.05
GIVE_BACK_S: Final = 5.0
FETCH_S: Final = 10.0
RESPONSE_BYTES: Final = 3 * limits.MIB      # what callers take by default is 4 MiB
ALL: Final = 1 << 30


class Polls:
    """All polls of this gateway. `draining` ends them with what they have."""

    def __init__(self, client: AsyncClient, draining: asyncio.Event) -> None:
        self._client, self._draining = client, draining
        self._asking: set[asyncio.Task[Any]] = set()
        self._giving: set[asyncio.Task[Any]] = set()

    async def poll(self, group: str, member: str, most: int, wait_s: float, visibility_ms: int,
                   may: Callable[[set[str]], Awaitable[None]]) -> tuple[PollReply, list[Message]]:
        """The coordinator's answer, and up to `most` messages; [] when there were none in time. `may` refuses topics that are not
        for the caller: the member may be another's. UnknownMember, UnknownGroup."""
        reply = await self._asked(group, member, _kept(self._asking, self._lease(group, member, most, wait_s, visibility_ms)))
        gathering = Gathering(self._client, group, reply)
        try:
            await may({lease.topic for lease in reply.leases})
            messages = await gathering.messages(FETCH_S)
        finally:
            self._give_back(group, member, gathering.leftovers())
        return reply, messages

    async def ended(self) -> None:
        """Once all that was leased is given back. What is still asked for dies with the connection: the coordinator sees to it."""
        while self._giving:
            await asyncio.wait(self._giving)

    async def _asked(self, group: str, member: str, asked: "asyncio.Task[PollReply]") -> PollReply:
        """What the question brings, or nothing when the gateway drains. Left behind, its leases are given back."""
        drain = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((asked, drain), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            return PollReply([])
        finally:
            drain.cancel()
            if not asked.done():
                asked.add_done_callback(lambda done: self._give_back(group, member, _releases(done)))

    async def _lease(self, group: str, member: str, most: int, wait_s: float, visibility_ms: int) -> PollReply:
        end = time.monotonic() + wait_s
        while True:
            left = max(0.0, min(end - time.monotonic(), SLICE_S))
            body = Poll(group, member, -1, most, int(left * 1000), visibility_ms, True)
            try:
                reply, _ = await self._client.call(Kind.POLL, body, to=To.group(group), timeout=left + GRACE_S, safe=False)
            except GoQueueError as error:
                if not error.retriable or time.monotonic() >= end:
                    raise
                await asyncio.sleep(RETRY_S)
                continue
            if reply.leases or time.monotonic() >= end or self._draining.is_set():
                return reply  # type: ignore[no-any-return]

    def _give_back(self, group: str, member: str, items: list[Settle1]) -> None:
        if items:
            _kept(self._giving, self._settle(group, member, items))

    async def _settle(self, group: str, member: str, items: list[Settle1]) -> None:
        with contextlib.suppress(GoQueueError):             # then the leases run out
            await self._client.call(Kind.SETTLE, Settle(group, member, items), to=To.group(group), timeout=GIVE_BACK_S)


def _kept(tasks: set["asyncio.Task[Any]"], work: Any) -> "asyncio.Task[Any]":
    """Go on with it, whoever stops waiting."""
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    tasks.add(task)

    def done(task: "asyncio.Task[Any]") -> None:
        tasks.discard(task)
        if not task.cancelled():
            task.exception()                    # whoever waits for it has it too

    task.add_done_callback(done)
    return task


def _releases(asked: "asyncio.Task[PollReply]") -> list[Settle1]:
    if asked.cancelled() or asked.exception():
        return []
    return [Settle1(Op.RELEASE, lease.lease, lease.ranges) for lease in asked.result().leases]


class Gathering:
    """The bytes of one answer's leases: an Owner of a Fetcher that does not read ahead, and a Hub that nothing is settled by."""

    asleep = False

    def __init__(self, client: AsyncClient, group: str, reply: PollReply) -> None:
        self._client = client
        partition = codec.partition_of(group.encode(), limits.GROUPS_PARTITIONS)
        self._held = [HeldLease(lease, self, partition, reply.group_number) for lease in reply.leases]
        self._queue = deque(self._held)
        self._fetcher = Fetcher(self, self._queue, False)
        self._asks: set[asyncio.Task[None]] = set()
        self._handed: dict[HeldLease, list[int]] = {}

    async def messages(self, patience_s: float) -> list[Message]:
        """Of all leases, in their order, as far as their bytes came in time and fit a response; the first one always fits."""
        end = time.monotonic() + patience_s
        try:
            while self._queue and time.monotonic() < end:
                self._fetcher.pump(time.monotonic())
                await self._news(end)
                self._sort_out()
        finally:
            for ask in self._asks:
                ask.cancel()
        return self._hand_out()

    def leftovers(self) -> list[Settle1]:
        """What is to become of the messages that are not handed out."""
        items: list[Settle1] = []
        for held in self._held:
            items += held.take_ops()
            handed = self._handed.get(held)
            rest = subtract(held.open, to_ranges(handed)) if handed else held.open
            if rest:
                items.append(Settle1(Op.RELEASE, held.lease.lease, rest))
        return items

    async def _news(self, end: float) -> None:
        now = time.monotonic()
        if self._asks:
            await asyncio.wait(self._asks, timeout=max(0.0, end - now), return_when=asyncio.FIRST_COMPLETED)
        elif self._queue:
            await asyncio.sleep(max(0.0, min(self._fetcher.retry_at, end) - now))

    def _sort_out(self) -> None:
        """Decode what came. Leases that are complete wait for nothing any more."""
        for held in list(self._queue):
            if held.chunks:
                held.next_view(ALL, time.monotonic())
            if not (held.todo or held.fetching):
                self._queue.remove(held)

    def _hand_out(self) -> list[Message]:
        out: list[Message] = []
        size = 0
        for held in self._held:
            for message in held.view:
                try:
                    size += size_of(message)
                except GoQueueError as error:
                    message.reject(error.message)       # it can't be read: to where somebody looks at it
                    continue
                if out and size > RESPONSE_BYTES:
                    return out
                out.append(message)
                self._handed.setdefault(held, []).append(message.offset)
        return out

    # -- what the fetcher asks for ------------------------------------------------------------------

    def send(self, ask: Ask) -> None:
        task = asyncio.ensure_future(self._ask(ask))
        self._asks.add(task)
        task.add_done_callback(self._asks.discard)

    async def _ask(self, ask: Ask) -> None:
        try:
            body, frames = await self._client.call(ask.kind, ask.body, to=ask.to, timeout=ask.timeout_s)
        except GoQueueError as error:
            ask.then(time.monotonic(), None, (), error)
        else:
            ask.then(time.monotonic(), body, frames, None)

    def give_back(self, held: HeldLease, now: float) -> None:
        held.cut()
        if held in self._queue:
            self._queue.remove(held)

    def drop(self, held: HeldLease) -> None:
        self.give_back(held, 0.0)
        held.forget(held.lease.ranges)

    # -- what messages ask for ------------------------------------------------------------------------

    def wake(self) -> None:
        """Their ops are taken by leftovers()."""

    def confirm(self, lease: HeldLease, offset: int) -> Any:
        raise AssertionError("nothing is settled through these leases")

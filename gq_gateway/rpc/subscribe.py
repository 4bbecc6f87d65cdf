"""Subscribe: a group's messages as a stream, for as long as the call lasts.

One call is one consumer, and so one member of the group, with leases that live and end with it. A message counts as started when
it is written to the call, and no more are taken while the caller has not read what was written: a slow reader has a window's worth
of messages and no more, and holds up nobody else. When the call ends, however it does, the consumer sends what was settled, gives
back the rest and leaves.
"""

import asyncio
import resource
from collections.abc import Awaitable
from typing import Any, Final

from gq_client.consumer_aio import AsyncConsumer
from gq_client.consumer_lease import Message
from gq_gateway import goqueue_pb2 as pb
from gq_gateway.gateway import Gateway
from gq_gateway.polls import size_of
from gq_gateway.rpc.convert import add_message, milliseconds, mode_of, start_of
from gq_gateway.rpc.duplex import AUTHORIZED_S, STOPPING
from gq_gateway.rpc.guard import Caller
from gq_gateway.rpc.leases import Handed, Leases
from gq_proto import limits
from gq_proto.errors import BadRequest, Busy, GoQueueError, Unavailable

RESPONSE_BYTES: Final = 1 << 20        # a response is not filled beyond; most callers take 4 MiB at once
TAKEN_BYTES: Final = 2 * RESPONSE_BYTES
LOOK_S: Final = 1.0                    # how often a full window is held against what the coordinator knows
JOINING_S: Final = 0.05
TOPICS_MAX: Final = 1_000
DESCRIPTORS: Final = 16                # of this process that a subscriber takes at most


class Subscribing:
    """All subscribers of this gateway. `leases`: what they hold."""

    def __init__(self, gateway: Gateway, leases: Leases) -> None:
        self._gateway, self._leases = gateway, leases
        self._ending: set[asyncio.Task[None]] = set()
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 // DESCRIPTORS
        self.count = 0

    async def subscribe(self, request: pb.SubscribeRequest, caller: Caller) -> None:
        wanted = Wanted(request)
        await wanted.authorize(self._gateway, caller)
        if self._gateway.draining.is_set():
            raise Unavailable(STOPPING)
        for topic in wanted.topics:
            await self._gateway.client.topic(topic)
        if self.count >= self._most:
            raise Busy(f"{self.count} subscribers are all that this gateway has descriptors for: raise its limit, or use another")
        subscriber = Subscriber(self._gateway, caller, wanted, Handed(self._leases))
        self.count += 1
        try:
            await subscriber.run()
        finally:
            self._spawn(subscriber.close())

    async def ended(self) -> None:
        """Once all that were subscribers have left their groups."""
        while self._ending:
            await asyncio.wait(self._ending)

    def _spawn(self, closing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(closing)
        self._ending.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: "asyncio.Task[None]") -> None:
        self.count -= 1
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()


class Wanted:
    """A SubscribeRequest, checked."""

    def __init__(self, request: pb.SubscribeRequest) -> None:
        self.group, self.topics = request.group, list(dict.fromkeys(request.topics))
        if not 1 <= len(self.topics) <= TOPICS_MAX:
            raise BadRequest(f"topics: {len(self.topics)} were named, use 1 to {TOPICS_MAX}")
        self.in_flight = _bounded("max_in_flight", request.max_in_flight, limits.MAX_IN_FLIGHT)
        self.batch = _bounded("max_batch", request.max_batch, limits.POLL_MESSAGES)
        visibility_ms = milliseconds("visibility_ms", request.visibility_ms)
        start = start_of(request.start)
        self.options: dict[str, Any] = {
            "mode": mode_of(request.mode), "start": int(start) / 1_000_000 if start.isdigit() else start, "ack": "manual",
            "visibility": visibility_ms / 1000 if visibility_ms else None, "max_poll": min(limits.POLL_MESSAGES, self.in_flight),
        }
        if request.client:
            self.options["client"] = request.client[:limits.NAME_MAX]

    async def authorize(self, gateway: Gateway, caller: Caller) -> None:
        await gateway.authorize(caller, "consume", "", self.group)
        for topic in self.topics:
            await gateway.authorize(caller, "consume", topic, self.group)


class Subscriber:
    """One call."""

    def __init__(self, gateway: Gateway, caller: Caller, wanted: Wanted, handed: Handed) -> None:
        self._gateway, self._caller, self._wanted, self._handed = gateway, caller, wanted, handed
        self._consumer: AsyncConsumer = gateway.client.consumer(wanted.topics, wanted.group, **wanted.options)
        self._drain = asyncio.ensure_future(self._close_when_draining())
        self._settled = asyncio.Event()
        self._size = 1024                       # of a message, lately
        self._ask_again_at = asyncio.get_running_loop().time() + AUTHORIZED_S
        self._round = gateway.door.verifier.round
        handed.on_room = self._settled.set

    async def run(self) -> None:
        """Until the gateway stops, the consumer fails, or the call is cancelled."""
        await self._greet()
        while True:
            most = min(await self._room(), self._wanted.batch, max(1, TAKEN_BYTES // self._size))
            messages = await self._consumer.poll(most)
            if not messages:
                raise Unavailable(STOPPING)
            self._gateway.taken()
            await self._still_allowed()
            await self._send(messages)

    async def close(self) -> None:
        """Leave the group. What was settled until now is sent first."""
        self._handed.clear()
        if self._gateway.draining.is_set():
            await self._drain
        else:
            self._drain.cancel()
            await self._consumer.close()

    async def _close_when_draining(self) -> None:
        await self._gateway.draining.wait()
        await self._consumer.close()            # run() sees it

    async def _greet(self) -> None:
        """Tell the caller that it is a member."""
        messages: list[Message] = []
        while not self._consumer.member and not messages:
            messages = await self._consumer.poll(1, JOINING_S)
            if self._gateway.draining.is_set():
                raise Unavailable(STOPPING)
        await self._caller.context.write(pb.SubscribeResponse(member=self._consumer.member))
        if messages:
            await self._send(messages)

    async def _room(self) -> int:
        """How many more may be in flight; waits until there is one."""
        while True:
            room = self._wanted.in_flight - self._handed.in_flight()
            if room > 0:
                return room
            self._settled.clear()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._settled.wait()
            except TimeoutError:
                self._handed.sweep()
            if self._gateway.draining.is_set():
                raise Unavailable(STOPPING)

    async def _still_allowed(self) -> None:
        now, round = asyncio.get_running_loop().time(), self._gateway.door.verifier.round
        if now >= self._ask_again_at or round != self._round:
            self._ask_again_at, self._round = now + AUTHORIZED_S, round
            await self._wanted.authorize(self._gateway, self._caller)

    async def _send(self, messages: list[Message]) -> None:
        """In responses of a size that callers take."""
        response, size = pb.SubscribeResponse(), 0
        for message in messages:
            try:
                one = size_of(message)
            except GoQueueError as error:
                message.reject(error.message)           # it can't be read: to where somebody looks at it
                continue
            if size and size + one > RESPONSE_BYTES:
                await self._caller.context.write(response)
                response, size = pb.SubscribeResponse(), 0
            size += one
            self._size += (one - self._size) // 16
            add_message(response.messages, message, self._handed.receipt(message))
        if size:
            await self._caller.context.write(response)


def _bounded(name: str, value: int, most: int) -> int:
    """0: the most."""
    if not 0 <= value <= most:
        raise BadRequest(f"{name}: {value} is out of range, use 1 to {most}, or 0 for {most}")
    return value or most

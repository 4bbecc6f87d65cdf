"""A call that reads requests and writes answers, each at its own pace: what PublishStream and Settle have in common.

Owns the two sides and their end. The reader takes requests until the caller has ended or the gateway drains; the answerer goes on
until everything that was taken is answered. Bounds: while `most` things wait for an answer, or for the caller to read it, no
further request is read, and so the caller's connection fills up.
"""

import asyncio
from typing import Any, Final

from gq_gateway.gateway import Gateway
from gq_gateway.rpc.guard import Caller, each
from gq_proto.errors import GoQueueError, Unauthorized, Unavailable

AUTHORIZED_S: Final = 5.0           # for so long a stream may use a topic without asking again
STOPPING: Final = "the gateway is about to stop: send what has no result again, another one may answer"


class Duplex:
    """One call. `take` and `answer` are the subclass's; `waiting` counts what was taken and is not answered."""

    def __init__(self, gateway: Gateway, caller: Caller, verb: str, most: int) -> None:
        self.gateway, self.caller = gateway, caller
        self.rights = Rights(gateway, caller, verb)
        self.waiting = 0
        self._verb, self._most = verb, most
        self._ended = False
        self._changed = asyncio.Event()         # something waits, or nothing more will
        self._room = asyncio.Event()

    async def take(self, request: Any) -> None:
        """Add what it asks for, by added()."""
        raise NotImplementedError

    async def answer(self) -> int:
        """Write an answer to some of what waits; how many things that were. Called while something waits."""
        raise NotImplementedError

    def added(self, count: int) -> None:
        self.waiting += count
        self._changed.set()

    async def run(self) -> None:
        """GoQueueError of a request that could not be taken, once all before it are answered; Unavailable when the gateway
        stops."""
        await self.gateway.authorize(self.caller, self._verb)
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._read())
        drain = loop.create_task(self.gateway.draining.wait())
        reader.add_done_callback(self._end)
        drain.add_done_callback(lambda _: reader.cancel())
        try:
            await self._answer_all()
        finally:
            drain.cancel()
            if not reader.cancel() and not reader.cancelled():
                reader.exception()              # seen
        if reader.cancelled():
            raise Unavailable(STOPPING)
        reader.result()

    def _end(self, reader: Any) -> None:
        self._ended = True
        self._changed.set()

    async def _read(self) -> None:
        now = asyncio.get_running_loop().time
        async for request in each(self.caller.context):
            self.gateway.taken()
            self.rights.refresh(now())
            await self.take(request)
            if self.waiting >= self._most:
                self._room.clear()
                await self._room.wait()

    async def _answer_all(self) -> None:
        while True:
            if self.waiting:
                answered = await self.answer()
                self.waiting -= answered
                if self.waiting < self._most:
                    self._room.set()
            elif self._ended:
                return
            else:
                self._changed.clear()
                await self._changed.wait()


class Rights:
    """What one caller may do with topics: asked once for each, and anew after AUTHORIZED_S of a stream and when keys changed."""

    def __init__(self, gateway: Gateway, caller: Caller, verb: str) -> None:
        self._gateway, self._caller, self._verb = gateway, caller, verb
        self._found: dict[str, GoQueueError | None] = {}
        self._until, self._round = 0.0, 0

    def refresh(self, now: float) -> None:
        """Forget what was said too long ago, or of other keys."""
        round = self._gateway.door.verifier.round
        if now >= self._until or round != self._round:
            self._found.clear()
            self._until, self._round = now + AUTHORIZED_S, round

    async def refusal(self, topic: str) -> GoQueueError | None:
        """None: allowed. Raises Unauthorized."""
        try:
            return self._found[topic]
        except KeyError:
            self._found[topic] = await self._ask(topic)
            return self._found[topic]

    async def _ask(self, topic: str) -> GoQueueError | None:
        try:
            await self._gateway.authorize(self._caller, self._verb, topic)
        except Unauthorized:
            raise                               # it is about the call, whatever the topic
        except GoQueueError as error:
            return error
        return None

"""What all handlers of the gateway share: the client, the producers, whether it drains, and the hook for keys.

Owns one AsyncClient and one AsyncProducer per acks mode, made when first needed. Everything on the loop's thread.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from gq_client.aio import AsyncClient
from gq_client.aio_producer import AsyncProducer
from gq_proto.errors import Unavailable

PUBLISH_S: Final = 10.0          # patience with a publish, retries included
ANYONE: Final = ""


class Gateway:
    """`draining` is set when the gateway is about to stop: long polls end, nothing new is begun."""

    def __init__(self, client: AsyncClient, is_ready: Callable[[], bool]) -> None:
        self.client = client
        self.is_ready = is_ready
        self.draining = asyncio.Event()
        self._producers: dict[str, AsyncProducer] = {}

    async def authorize(self, request: Any, verb: str, resource: str) -> None:
        """The one hook for keys. `verb` is "publish", "consume", "admin" or "" (open to everyone), `resource` the topic or group
        it is about, "" for the node. Raises Unauthorized or Forbidden; today everyone may do everything."""

    def producer(self, acks: str) -> AsyncProducer:
        """The shared producer: what is sent within one turn of the loop travels together. BadConfig for unknown acks."""
        if self.draining.is_set():
            raise Unavailable("the gateway is about to stop: ask again, another one may answer")
        found = self._producers.get(acks)
        if found is None:
            found = self._producers[acks] = self.client.producer(linger=0, acks=acks, timeout=PUBLISH_S)
        return found

"""Being known to metad: registers the gateway, then follows the metadata, which keeps the client's routes and the keys fresh.

A missing metad is waited for. When metad does not know this gateway any more (its data was made anew), it is told again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gq_client.aio import AsyncClient
from gq_client.routing import METAD
from gq_gateway.door import Door
from gq_proto.errors import BadConfig, Closed, GoQueueError
from gq_proto.messages import Kind, Metadata, MetadataReply, Register
from gq_run import logs
from gq_run.daemon import Daemon

LONG_POLL_MS: Final = 30_000
GRACE_S: Final = 5.0
BACKOFF_S: Final = (0.05, 1.0)


class Registration:
    """`ready()` is called once metad has taken it and told of topics and keys, and whenever there is news."""

    def __init__(self, daemon: Daemon, client: AsyncClient, door: Door, ready: Callable[[], None]) -> None:
        self._daemon, self._client, self._door, self._ready = daemon, client, door, ready

    @property
    def reachable(self) -> bool:
        """There is a connection to metad."""
        return self._client.shared.session.reaches(METAD)

    async def keep(self) -> None:
        """For as long as the client is open. BadConfig when a public listener wants keys and there are none."""
        wait = BACKOFF_S[0]
        while True:
            try:
                await self._register()
                wait = BACKOFF_S[0]
                await self._follow()
            except Closed:
                return
            except BadConfig:
                raise
            except GoQueueError as error:
                level = "debug" if error.retriable else "error"
                getattr(self._daemon.log, level)("metad does not answer", extra=logs.fields(error=error.name,
                                                                                          reason=error.message))
                await asyncio.sleep(wait)
                wait = min(2 * wait, BACKOFF_S[1])

    async def _register(self) -> None:
        body = Register(self._daemon.node_id, self._daemon.name, self._daemon.endpoints)
        reply, _ = await self._client.call(Kind.REGISTER, body, to=METAD)
        self._daemon.log.info("registered", extra=logs.fields(incarnation=reply.incarnation, cluster=reply.cluster_id))

    async def _follow(self) -> None:
        """Until metad does not know us any more. Asks from the version of the keys: the client's routes may be newer."""
        while True:
            reply: MetadataReply
            question = Metadata(self._door.verifier.version, LONG_POLL_MS, keys=True,
                                follower=f"{self._daemon.name}/{self._daemon.node_id}")
            reply, _ = await self._client.call(Kind.METADATA, question, to=METAD, timeout=LONG_POLL_MS / 1000 + GRACE_S)
            self._door.take(reply, self._daemon.config)
            self._daemon.take_keys(reply, lambda topic_id: None)
            self._ready()
            if not any((known.daemon, known.node_id) == (self._daemon.name, self._daemon.node_id) for known in reply.daemons):
                self._daemon.log.error("metad does not know this daemon any more, registering anew")
                return

"""What the blocking and the asyncio consumer share: what the app was handed and has not acked yet, and its eyes on the group.

Owns the app's side of mode auto: whatever it was handed last, by iterating or by poll(), is acked when it asks for more.
"""

import time
from typing import Any

from gq_client.consumer import VIEW, ConsumerCore, ack_all
from gq_client.consumer_ask import Ask
from gq_client.consumer_lease import HeldLease, Message
from gq_client.consumer_options import ConsumerOptions
from gq_client.routing import Routes
from gq_client.session import Call, Session
from gq_proto.messages import Assigned, AssignedPush, Kind


class ConsumerShell:
    """`_current`: the lease whose view the app walks; `_polled`: what the last poll() handed out."""

    def __init__(self, options: ConsumerOptions, core: ConsumerCore, routes: Routes) -> None:
        self.options = options
        self.asleep = True
        self._core = core
        core.reachable = lambda: bool(routes.version)
        self._view = 1 if options.hold else VIEW
        self._polled: list[tuple[HeldLease, list[Message]]] = []
        self._current: HeldLease | None = None

    @property
    def member(self) -> str:
        """This consumer's id in the group; "" while it is none."""
        return self._core.member

    @property
    def assignment(self) -> list[Assigned]:
        """The partitions it may lease from."""
        return self._core.assignment

    @property
    def stale(self) -> int:
        """Ops that came too late: their messages were others' already."""
        return self._core.settler.stale

    def _hand_out(self, held: HeldLease) -> list[Message]:
        """Its whole view at once."""
        held.cursor = len(held.view)
        if self.options.ack == "none":
            ack_all(held, held.view)
        elif self.options.ack == "auto":
            self._polled.append((held, held.view))
        return held.view

    def _asks_for_more(self) -> None:
        """What the app was handed last is done with, in mode auto."""
        for held, view in self._polled:
            ack_all(held, view)
        self._polled.clear()
        current, self._current = self._current, None
        if self.options.ack == "auto" and current and current.cursor:
            ack_all(current, current.view[current.cursor - 1:current.cursor])

    def _submit(self, session: Session) -> None:
        """What the core wants asked."""
        asks, self._core.outbox = self._core.outbox, []
        now = time.monotonic()
        for ask in asks:
            session.submit(now, Call(ask.kind, ask.body, ask.to, now + ask.timeout_s, _answering(ask), single=True))

    def _pushed(self, kind: int, body: Any) -> None:
        if kind == Kind.ASSIGNED and isinstance(body, AssignedPush):
            self._core.push(time.monotonic(), body)


def _answering(ask: Ask) -> Any:
    return lambda call: ask.then(time.monotonic(), call.reply, call.frames, call.error)

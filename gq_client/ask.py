"""A request as data: what an operation yields to the shell that runs it.

An operation is a generator that yields an Ask and is sent (reply body, reply frames), or has the error thrown into it; or yields a
list of Asks, which go out together, and is sent a list with a pair or an error each. It is written once; the sync
and the asyncio shell both run it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gq_client.routing import To
from gq_client.session import Call
from gq_proto.messages import Body, Kind


@dataclass(slots=True)
class Ask:
    """See gq_client.session.Call."""

    kind: Kind
    body: Body
    to: To
    payload: Sequence[Any] = ()
    epoch: int = -1
    safe: bool = True

    def call(self, deadline: float, then: Callable[[Call], None] | None = None) -> Call:
        return Call(self.kind, self.body, self.to, deadline, then, self.payload, epoch=self.epoch, safe=self.safe)


Asks = list[Ask]

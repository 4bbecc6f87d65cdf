"""What a consumer's core wants asked: a request as data, and where its answer goes.

The shells send it and call `then(now, body, frames, error)` exactly once, on the thread (or task) that owns the core. Asks to
one daemon are sent in the order in which they were made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gq_client.routing import To
from gq_proto.errors import GoQueueError
from gq_proto.messages import Body, Kind

Then = Callable[[float, Any, Any, GoQueueError | None], None]


@dataclass(slots=True)
class Ask:
    """One request. `frames` of an answer are buffers."""

    to: To
    kind: Kind
    body: Body
    then: Then
    timeout_s: float = 5.0
    topic_id: int = 0
    partition: int = -1

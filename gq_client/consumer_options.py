"""How to consume, checked: what an app says, and what the core is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gq_proto import limits
from gq_proto.errors import BadRequest
from gq_proto.messages import EARLIEST
from gq_proto.names import check_name


@dataclass(frozen=True)
class ConsumerOptions:
    """How to consume. Times in the unit of their suffix; visibility_ms 0 is the topic's, mode "" what the group has."""

    group: str
    topics: tuple[str, ...]
    mode: str = ""
    start: str = EARLIEST
    ack: str = "auto"                  # "auto": when the next is asked for; "manual"; "none": as it is handed out
    visibility_ms: int = 0
    max_poll: int = limits.POLL_MESSAGES
    hold: bool = False
    session_ms: int = 0                # 0: as the node is configured
    client: str = ""
    read_ahead: bool = True

    def __post_init__(self) -> None:
        if self.ack not in ("auto", "manual", "none"):
            raise BadRequest(f"ack={self.ack!r}: use auto, manual or none")
        if self.mode not in ("", "partitioned", "shared"):
            raise BadRequest(f"mode={self.mode!r}: use partitioned or shared")
        if not 1 <= self.max_poll <= limits.MAX_IN_FLIGHT:
            raise BadRequest(f"max_poll={self.max_poll}: use 1 to {limits.MAX_IN_FLIGHT}")
        if not self.topics:
            raise BadRequest("name at least one topic to consume")


def options_of(topics: str | Sequence[str], group: str, *, mode: str = "", start: str | float | int | datetime = EARLIEST,
               ack: str = "auto", visibility: float | None = None, max_poll: int = limits.POLL_MESSAGES, hold: bool = False,
               session: float | None = None, client: str = "", read_ahead: bool = True) -> ConsumerOptions:
    """An app's words as options. `mode` and `start` count for a new group only: start is "earliest", "latest", a time (Unix seconds
    or datetime). `visibility` and `session` are seconds; None: as the topic, the node is configured. `hold`: leases live on to
    their deadline when the consumer leaves. `client`: how people are told who it is."""
    if isinstance(start, datetime):
        start = start.timestamp()
    begin = start if isinstance(start, str) else str(int(start * 1_000_000))
    return ConsumerOptions(check_name("group", group), (topics,) if isinstance(topics, str) else tuple(topics), mode, begin, ack,
                           _milliseconds(visibility), max_poll, hold, _milliseconds(session), client, read_ahead)


def _milliseconds(seconds: float | None) -> int:
    return 0 if seconds is None else max(1, round(seconds * 1000))

"""A hand-played groupd and logd for the consumer's core: no socket, no clock."""

from array import array
from typing import Any

from gq_client.consumer import ConsumerCore
from gq_client.consumer_lease import Message
from gq_client.consumer_options import ConsumerOptions
from gq_proto import codec
from gq_proto.messages import Assigned, Fetched, FetchReply, JoinReply, Kind, Lease, PollReply
from gq_proto.ranges import pack

TOPIC_ID, EPOCH = 77, 5


class Hub:
    asleep = False

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def confirm(self, lease: Any, offset: int) -> Any:
        raise AssertionError("unused here")


def log(low: int, count: int) -> bytes:
    """Records [low, low + count) as logd returns them."""
    builder = codec.BatchBuilder()
    for i in range(low, low + count):
        builder.add(b"k", b"v%d" % i)
    frame = bytearray(builder.seal())
    codec.stamp(frame, low, 1_000_000)
    return bytes(frame)


class Play:
    """The core and the daemons it talks to, played by the test."""

    node_session_ms = 30_000

    def __init__(self, **options: Any) -> None:
        self.now = 100.0
        self.hub = Hub()
        self.core = ConsumerCore(ConsumerOptions("g", ("t",), **({"ack": "manual"} | options)), self.hub)
        self.hub.core = self.core

    def asked(self, kind: Kind) -> list[Any]:
        return [ask for ask in self.core.outbox if ask.kind == kind]

    def pop(self, kind: Kind) -> Any:
        ask = self.asked(kind)[0]
        self.core.outbox.remove(ask)
        return ask

    def answer(self, kind: Kind, body: Any = None, frames: Any = (), error: Any = None) -> Any:
        ask = self.pop(kind)
        ask.then(self.now, body, list(frames), error)
        return ask

    def joined(self, member: str = "m1") -> "Play":
        if not self.asked(Kind.JOIN):
            self.core.start(self.now)
        self.answer(Kind.JOIN, JoinReply(member, 1, [Assigned(TOPIC_ID, "t", 0, EPOCH)], 3000, 9,
                                         self.core.options.session_ms or self.node_session_ms))
        return self

    def leased(self, number: int, *ranges: int, delivery: int = 1, epoch: int = EPOCH, packed: bool = False) -> "Play":
        lease = Lease(number, 42, TOPIC_ID, "t", 0, epoch, delivery, list(ranges), 30_000)
        if packed:
            lease.ranges, lease.packed = [], pack(array("q", ranges))
        self.answer(Kind.POLL, PollReply([lease]))
        return self

    def bytes_by_ranges(self) -> "Play":
        ask = next(a for a in self.asked(Kind.FETCH) if a.body.parts[0].ranges)
        self.core.outbox.remove(ask)
        parts, frames = [], []
        for part in ask.body.parts:
            ranges = part.ranges
            frames.append(b"".join(log(low, n) for low, n in zip(ranges[::2], ranges[1::2], strict=True)))
            parts.append(Fetched(0, status=[0] * (len(ranges) // 2), covered=len(ranges) // 2,
                                 next_offset=ranges[-2] + ranges[-1]))
        ask.then(self.now, FetchReply(parts), frames, None)
        return self

    def taken(self) -> list[int]:
        held = self.core.take(self.now)
        return [m.offset for m in held.view] if held else []

    def walk(self, n: int) -> list[Message]:
        """What an app does: n messages, one after the other."""
        out: list[Message] = []
        while len(out) < n:
            held = self.core.take(self.now)
            assert held, f"only {len(out)} of {n}"
            for message in held.view:
                held.cursor += 1
                out.append(message)
                if len(out) == n:
                    break
        return out

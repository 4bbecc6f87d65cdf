"""What gRPC's handlers talk to, played by tests: a call's context, the gateway, a consumer's hub, leases. No socket, no clock."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import grpc

from gq_client.consumer_lease import HeldLease, Message
from gq_client.routing import To
from gq_gateway.counts import Book
from gq_gateway.door import Door
from gq_gateway.rpc.guard import Caller
from gq_proto import codec
from gq_proto.access import Access
from gq_proto.errors import GoQueueError, StaleReceipt
from gq_proto.messages import Lease
from gq_proto.receipt import Receipt, parse_receipt

TOPIC_ID = 77


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await work

    asyncio.run(bounded())


async def settled(turns: int = 40) -> None:
    """Let everything happen that can."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Context:
    """A call: `requests` are read, then its end, unless it stays `open`; `written` is what it was answered."""

    def __init__(self, *requests: Any, metadata: tuple[tuple[str, str], ...] = (), open: bool = False,
                 remaining: float | None = None) -> None:
        self.requests = deque(requests)
        self.written: list[Any] = []
        self.read_count = 0
        self.aborted: tuple[Any, ...] = ()
        self.remaining = remaining
        self.gate = asyncio.Event()
        self.gate.set()                     # cleared: the caller does not read
        self._metadata, self._open = metadata, open

    async def read(self) -> Any:
        await asyncio.sleep(0)
        if self.requests:
            self.read_count += 1
            return self.requests.popleft()
        if self._open:
            await asyncio.Event().wait()
        return grpc.aio.EOF

    async def write(self, message: Any) -> None:
        await asyncio.sleep(0)
        await self.gate.wait()
        self.written.append(message)

    async def abort(self, code: Any, details: str, trailing_metadata: Any) -> None:
        self.aborted = code, details, trailing_metadata
        raise grpc.aio.AbortError

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float | None:
        return self.remaining

    def done(self) -> bool:
        return False

    cancelled = done


class Client:
    """The gateway's: `answer(kind, body)` plays the daemons (raise to refuse), `settle` the coordinator."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.settled: list[tuple[int, list[Receipt], int, str]] = []
        self.answer: Callable[[int, Any], Any] = lambda kind, body: None
        self.outcomes: dict[int, GoQueueError] = {}        # by offset

    async def call(self, kind: int, body: Any, payload: Any = (), *, to: To, timeout: float = 0,
                   safe: bool = True) -> tuple[Any, Any]:
        self.asked.append((int(kind), body))
        answer = self.answer(int(kind), body)
        if asyncio.isfuture(answer):
            answer = await answer
        return answer if isinstance(answer, tuple) else (answer, ())

    async def settle(self, op: int, receipts: list[Receipt], *, arg_ms: int = -1, reason: str = "") -> list[GoQueueError | None]:
        self.settled.append((op, receipts, arg_ms, reason))
        return [self.outcomes.get(receipt.offset) for receipt in receipts]


class Gateway:
    def __init__(self) -> None:
        self.client = Client()
        self.draining = asyncio.Event()
        self.asked: list[tuple[str, str]] = []
        self.refuse: dict[str, GoQueueError] = {}          # by resource
        self.calls = 0
        self.book = Book()
        self.door = Door()                                 # open to everyone

    def taken(self) -> None:
        self.calls += 1

    async def authorize(self, request: Any, verb: str, topic: str = "", group: str = "") -> Access:
        resource = topic or group
        self.asked.append((verb, resource))
        if resource in self.refuse:
            raise self.refuse[resource]
        return self.door.admit(request, verb, topic, group)


class Hub:
    """A consumer: confirms what it was told once `gate` is open; `stale` offsets come too late, `failure` is what it says."""

    def __init__(self) -> None:
        self.asleep = False
        self.woken = 0
        self.confirmed: list[int] = []
        self.stale: list[int] = []
        self.failure: GoQueueError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    def wake(self) -> None:
        self.woken += 1

    async def confirm(self, held: HeldLease, offset: int) -> None:
        await self.gate.wait()
        self.confirmed.append(offset)
        if self.failure:
            raise self.failure
        held.stale += [number for stale in self.stale for number in (stale, 1)]
        if offset in self.stale:
            raise StaleReceipt("too late")


def lease_of(*ranges: int, number: int = 5, delivery: int = 1) -> Lease:
    return Lease(number, 4242, TOPIC_ID, "orders", 1, 3, delivery, list(ranges), 30_000)


def held_of(*ranges: int, number: int = 5, hub: Any = None, delivery: int = 1) -> HeldLease:
    return HeldLease(lease_of(*ranges, number=number, delivery=delivery), hub or Hub(), 2, 9)


def message_of(held: HeldLease, offset: int) -> Message:
    return Message(held.lease.topic, held.lease.partition, offset, owner=held, delivery=held.lease.delivery)


def receipt_of(offset: int, topic: str = "orders") -> Receipt:
    """Of nobody here."""
    return parse_receipt(Receipt(topic, 1, offset, 1, 2, 9, 999, 1).text())


def records(*offsets: int) -> bytes:
    """As logd returns them."""
    frames = []
    for offset in offsets:
        builder = codec.BatchBuilder()
        builder.add(b"k", b"v%d" % offset)
        frame = bytearray(builder.seal())
        codec.stamp(frame, offset, 1_000_000)
        frames.append(bytes(frame))
    return b"".join(frames)


def caller(context: Context) -> Caller:
    return Caller(context)

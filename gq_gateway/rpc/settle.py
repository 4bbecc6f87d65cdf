"""Ack, Nack, Reject, Extend, and Settle, which is all of them as a stream.

A receipt whose lease a subscriber of this gateway holds goes to that subscriber's consumer, which joins acks into ranges and sends
them together; any other is sent to the group's coordinator as it is. Answered when durable. What is settled twice is answered as
the first time.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from gq_client.consumer_lease import HeldLease, intersect
from gq_gateway import goqueue_pb2 as pb
from gq_gateway.gateway import Gateway
from gq_gateway.rpc.convert import milliseconds, parsed, receipts_of
from gq_gateway.rpc.duplex import Duplex, Rights
from gq_gateway.rpc.guard import PATIENCE_S, Caller
from gq_gateway.rpc.leases import Leases, Sent
from gq_gateway.rpc.status import as_message
from gq_proto import limits
from gq_proto.errors import BadRequest, GoQueueError, StaleReceipt, TimedOut
from gq_proto.messages import Op
from gq_proto.receipt import Receipt

PENDING_MAX: Final = 20_000         # receipts of a stream without a result
RESULTS_MAX: Final = 5_000          # in one response
LATE: Final = "too late: it was handed out again, or settled"


@dataclass(frozen=True, slots=True)
class Deed:
    """What is to become of messages. arg_ms and reason: see gq_proto.messages.Op."""

    op: Op
    arg_ms: int = -1
    reason: str = ""


ACK: Final = Deed(Op.ACK)


class Place:
    """One receipt of a request, on its way to a result. `here`: the lease and the offset, when a subscriber of ours holds it."""

    __slots__ = ("error", "here", "offset", "receipt", "sent")

    def __init__(self, receipt: Receipt | None, sent: Sent | None, offset: int, error: GoQueueError | None) -> None:
        self.receipt, self.sent, self.offset, self.error = receipt, sent, offset, error


class Settling:
    def __init__(self, gateway: Gateway, leases: Leases) -> None:
        self._gateway, self._leases = gateway, leases

    async def ack(self, request: pb.AckRequest, caller: Caller) -> pb.SettleResponse:
        return await self._answer(request.receipts, ACK, caller)

    async def nack(self, request: pb.NackRequest, caller: Caller) -> pb.SettleResponse:
        return await self._answer(request.receipts, deed_of(Op.NACK, request.delay_ms if request.HasField("delay_ms") else None,
                                                            request.reason), caller)

    async def reject(self, request: pb.RejectRequest, caller: Caller) -> pb.SettleResponse:
        return await self._answer(request.receipts, deed_of(Op.REJECT, None, request.reason), caller)

    async def extend(self, request: pb.ExtendRequest, caller: Caller) -> pb.SettleResponse:
        return await self._answer(request.receipts, deed_of(Op.EXTEND, request.for_ms, ""), caller)

    async def stream(self, request: Any, caller: Caller) -> None:
        await SettleStream(self, self._gateway, caller).run()

    async def _answer(self, texts: Any, deed: Deed, caller: Caller) -> pb.SettleResponse:
        receipts = receipts_of(texts)
        errors = await self.settle(receipts, deed, Rights(self._gateway, caller, "consume"))
        if errors[0] and (len(errors) == 1 or all(error and error.retriable for error in errors)):
            raise errors[0]                     # one, or the node cannot answer at all: the call's own
        response = pb.SettleResponse()
        add_results(response.results, errors)
        return response

    async def settle(self, texts: list[str], deed: Deed, rights: Rights) -> list[GoQueueError | None]:
        """One op on messages named by receipts: None or an error for each, in order."""
        places = await self.begin(texts, deed, rights)
        await self.finish([(places, deed)])
        return [place.error for place in places]

    async def begin(self, texts: list[str], deed: Deed, rights: Rights) -> list[Place]:
        """Tell the consumers that hold them."""
        places = []
        for text in texts:
            found = self._leases.find(text)
            topic = found[0].held.lease.topic if found else ""
            receipt = None
            error: GoQueueError | None = None
            if found is None:
                receipt, error = _parsed(text)
                topic = receipt.topic if receipt else ""
            error = error or await rights.refusal(topic)
            place = Place(receipt, found[0] if found else None, found[1] if found else -1, error)
            if place.sent and error is None:
                _record(place.sent, place.offset, deed)
            places.append(place)
        return places

    async def finish(self, begun: list[tuple[list[Place], Deed]]) -> None:
        """Wait until all that was begun is durable, and put its outcome where it belongs."""
        last: dict[int, tuple[HeldLease, int]] = {}
        for places, _ in begun:
            for place in places:
                if place.sent and place.error is None:
                    last[id(place.sent.held.hub)] = place.sent.held, place.offset
        waits = [_confirmed(held, offset) for held, offset in last.values()]
        elsewhere = [self._by_receipt([place for place in places if place.receipt and place.error is None], deed)
                     for places, deed in begun if any(place.receipt for place in places)]
        outcomes = await asyncio.gather(*waits, *elsewhere)
        failed = {hub: error for hub, error in zip(last, outcomes, strict=False) if error}
        for places, deed in begun:
            self._note_stale(places)
            if failed:
                await self._undecided(places, deed, failed)

    def _note_stale(self, places: list[Place]) -> None:
        for place in places:
            sent = place.sent
            if sent and sent.held.stale and place.error is None and intersect([place.offset, 1], sent.held.stale):
                place.error = StaleReceipt(f"{sent.prefix}{place.offset}: {LATE}")

    async def _undecided(self, places: list[Place], deed: Deed, failed: dict[int, GoQueueError]) -> None:
        """Not confirmed in time; or their subscriber ended meanwhile: what became of them only the coordinator knows."""
        lost = []
        for place in places:
            error = failed.get(id(place.sent.held.hub)) if place.sent and place.error is None else None
            if isinstance(error, TimedOut):
                place.error = error
            elif error and place.sent:
                place.receipt, place.error = _parsed(place.sent.receipt(place.offset))
                lost.append(place)
        await self._by_receipt(lost, deed)

    async def _by_receipt(self, places: list[Place], deed: Deed) -> None:
        receipts = [place.receipt for place in places if place.receipt]
        if not receipts:
            return
        try:
            errors = await self._gateway.client.settle(deed.op, receipts, arg_ms=deed.arg_ms, reason=deed.reason)
        except GoQueueError as error:
            errors = [error] * len(receipts)
        for place, found in zip(places, errors, strict=True):
            place.error = found


class SettleStream(Duplex):
    """One call of Settle. While one group of receipts is being made durable, the next one gathers."""

    def __init__(self, settling: Settling, gateway: Gateway, caller: Caller) -> None:
        super().__init__(gateway, caller, "consume", PENDING_MAX)
        self._settling = settling
        self._pending: list[tuple[list[Place], Deed]] = []

    async def take(self, request: pb.SettleRequest) -> None:
        arg_ms = request.arg_ms if request.HasField("arg_ms") else None
        deed = deed_of(request.op, arg_ms, request.reason) if request.op else ACK
        places = await self._settling.begin(receipts_of(request.receipts), deed, self.rights)
        self._pending.append((places, deed))
        self.added(len(places))

    async def answer(self) -> int:
        group, self._pending = self._pending, []
        await self._settling.finish(group)
        errors = [place.error for places, _ in group for place in places]
        for some in sliced(errors, RESULTS_MAX):
            response = pb.SettleStreamResponse()
            add_results(response.results, some)
            await self.caller.context.write(response)
        return len(errors)


def deed_of(op: int, arg_ms: int | None, reason: str) -> Deed:
    """An op with its argument, checked."""
    if op == Op.EXTEND:
        return Deed(Op.EXTEND, milliseconds("for_ms", -1 if arg_ms is None else arg_ms))
    if op == Op.NACK:
        return Deed(Op.NACK, -1 if arg_ms is None else milliseconds("delay_ms", arg_ms, limits.DELAY_MS_MAX), reason)
    if op == Op.REJECT:
        return Deed(Op.REJECT, -1, reason)
    if op in (Op.ACK, Op.RELEASE):
        return Deed(Op(op))
    raise BadRequest(f"op: {op} is unknown, use {', '.join(pb.Op.keys())}")


def add_results(out: Any, errors: list[GoQueueError | None]) -> None:
    for error in errors:
        if error:
            out.add(error=as_message(error))
        else:
            out.add()


def sliced(items: list[Any], most: int) -> list[list[Any]]:
    return [items[at:at + most] for at in range(0, len(items), most)]


def _parsed(text: str) -> tuple[Receipt | None, GoQueueError | None]:
    found = parsed(text)
    return (None, found) if isinstance(found, BadRequest) else (found, None)


def _record(sent: Sent, offset: int, deed: Deed) -> None:
    held = sent.held
    if deed.op != Op.EXTEND:
        sent.settled(offset)
    if deed.op == Op.ACK:
        held.acked.append(offset)
        if held.hub.asleep:
            held.hub.wake()
    else:
        held.record(deed.op, offset, deed.arg_ms, deed.reason, False)


async def _confirmed(held: HeldLease, offset: int) -> GoQueueError | None:
    """None once everything its consumer was told is durable. Too late: noted in the lease."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await held.hub.confirm(held, offset)
    except TimeoutError:
        return TimedOut("the group's coordinator did not confirm it in time: it may or may not count")
    except StaleReceipt:
        pass
    except GoQueueError as error:
        return error
    return None

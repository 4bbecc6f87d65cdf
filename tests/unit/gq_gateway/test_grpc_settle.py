"""Acks go to the consumer that holds the lease, else to the coordinator; every receipt gets its own outcome, in order."""

import asyncio
from typing import Any

import pytest
from google.protobuf.message import Message as Proto

from gq_gateway import goqueue_pb2 as pb
from gq_gateway.rpc import settle as module
from gq_gateway.rpc.leases import Handed, Leases
from gq_gateway.rpc.settle import Settling, deed_of
from gq_proto.errors import (
    BadRequest,
    Closed,
    Forbidden,
    GoQueueError,
    StaleReceipt,
    TimedOut,
    Unauthorized,
    Unavailable,
)
from gq_proto.messages import Op
from tests.unit.gq_gateway.grpc_fakes import (
    Context,
    Gateway,
    Hub,
    caller,
    held_of,
    message_of,
    receipt_of,
    run,
    settled,
)


class Rig:
    """A subscriber with the lease [10, 13) and what settles."""

    def __init__(self) -> None:
        self.gateway, self.hub, leases = Gateway(), Hub(), Leases()
        self.held = held_of(10, 3, hub=self.hub)
        handed = Handed(leases)
        self.receipts = [handed.receipt(message_of(self.held, offset)) for offset in (10, 11, 12)]
        self.settling = Settling(self.gateway, leases)  # type: ignore[arg-type]

    async def ack(self, *receipts: str) -> list[str]:
        response = await self.settling.ack(pb.AckRequest(receipts=receipts), caller(Context()))
        return codes(response)


def codes(response: Any) -> list[str]:
    return [result.error.code for result in response.results]


def test_acks_of_a_subscriber_go_to_its_consumer_and_wait_for_it() -> None:
    async def play() -> None:
        rig = Rig()
        rig.hub.asleep = True
        rig.hub.gate.clear()
        answer = asyncio.ensure_future(rig.ack(*rig.receipts))
        await settled()
        assert rig.held.acked == [10, 11, 12] and rig.hub.woken and not answer.done()
        rig.hub.gate.set()
        assert await answer == ["", "", ""]
        assert rig.hub.confirmed == [12] and not rig.gateway.client.settled

    run(play())


def test_other_receipts_go_to_the_coordinator_and_outcomes_keep_their_places() -> None:
    async def play() -> None:
        rig = Rig()
        rig.hub.stale = [11]
        rig.gateway.client.outcomes[71] = StaleReceipt("late")
        far = [receipt_of(offset).text() for offset in (70, 71)]
        assert await rig.ack(far[0], rig.receipts[0], "nonsense", far[1], rig.receipts[1]) == [
            "", "", "bad_request", "stale_receipt", "stale_receipt"]
        [(op, receipts, _, _)] = rig.gateway.client.settled
        assert op == Op.ACK and [receipt.offset for receipt in receipts] == [70, 71]

    run(play())


def test_one_receipt_fails_the_call_several_do_not_unless_the_node_cannot_answer() -> None:
    async def play() -> None:
        rig = Rig()
        with pytest.raises(BadRequest):
            await rig.ack("nonsense")
        assert await rig.ack("nonsense", "nonsense") == ["bad_request"] * 2
        rig.gateway.client.outcomes = {70: Unavailable("down"), 71: Unavailable("down")}
        with pytest.raises(Unavailable):
            await rig.ack(receipt_of(70).text(), receipt_of(71).text())
        assert await rig.ack(receipt_of(70).text(), receipt_of(72).text()) == ["unavailable", ""]
        with pytest.raises(BadRequest, match="receipts"):
            await rig.ack()

    run(play())


@pytest.mark.parametrize("method, request_, op, arg_ms, reason", [
    ("nack", pb.NackRequest(), Op.NACK, -1, ""), ("nack", pb.NackRequest(delay_ms=0, reason="no"), Op.NACK, 0, "no"),
    ("reject", pb.RejectRequest(reason="bad"), Op.REJECT, -1, "bad"),
    ("extend", pb.ExtendRequest(for_ms=60_000), Op.EXTEND, 60_000, "")])
def test_each_op_says_the_same_here_and_there(method: str, request_: Proto, op: Op, arg_ms: int, reason: str) -> None:
    async def play() -> None:
        rig = Rig()
        request: Any = request_
        request.receipts[:] = [rig.receipts[0], receipt_of(70).text()]
        assert codes(await getattr(rig.settling, method)(request, caller(Context()))) == ["", ""]
        assert [(item.op, item.ranges, item.arg_ms, item.reason) for item in rig.held.ops] == [(op, [10, 1], arg_ms, reason)]
        [(there, receipts, there_ms, there_reason)] = rig.gateway.client.settled
        assert (there, [one.offset for one in receipts], there_ms, there_reason) == (op, [70], arg_ms, reason)

    run(play())


def test_a_subscriber_that_ends_meanwhile_leaves_the_answer_to_the_coordinator() -> None:
    async def play() -> None:
        rig = Rig()
        rig.hub.failure = Closed("the consumer was closed")
        rig.gateway.client.outcomes[11] = StaleReceipt("late")
        assert await rig.ack(*rig.receipts[:2]) == ["", "stale_receipt"]
        [(op, receipts, _, _)] = rig.gateway.client.settled
        assert op == Op.ACK and [one.offset for one in receipts] == [10, 11]

    run(play())


def test_a_coordinator_that_does_not_confirm_in_time_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        monkeypatch.setattr(module, "PATIENCE_S", 0.0)
        rig = Rig()
        rig.hub.gate.clear()
        with pytest.raises(TimedOut):
            await rig.ack(*rig.receipts[:2])
        assert not rig.gateway.client.settled

    run(play())


def test_a_topic_that_the_caller_may_not_consume_is_refused_and_not_touched() -> None:
    async def play() -> None:
        rig = Rig()
        rig.gateway.refuse["orders"] = Forbidden("no")
        assert await rig.ack(rig.receipts[0], receipt_of(70, "others").text()) == ["forbidden", ""]
        assert not rig.held.acked
        assert rig.gateway.asked == [("consume", "orders"), ("consume", "others")]
        rig.gateway.refuse["orders"] = Unauthorized("who are you?")
        with pytest.raises(Unauthorized):
            await rig.ack(*rig.receipts)

    run(play())


def test_a_stream_answers_in_order_while_more_gathers() -> None:
    async def play() -> None:
        rig = Rig()
        rig.hub.gate.clear()
        context = Context(pb.SettleRequest(receipts=rig.receipts[:1]), pb.SettleRequest(receipts=["nonsense"]),
                          pb.SettleRequest(receipts=rig.receipts[1:], op=pb.OP_NACK, arg_ms=5))
        stream = asyncio.ensure_future(rig.settling.stream(None, caller(context)))
        await settled()
        assert context.read_count == 3 and not context.written
        rig.hub.gate.set()
        await stream
        assert [code for response in context.written for code in codes(response)] == ["", "bad_request", "", ""]
        assert rig.held.acked == [10] and [op.ranges for op in rig.held.ops] == [[11, 1], [12, 1]]

    run(play())


def test_a_request_of_a_stream_that_means_nothing_ends_it_after_those_before() -> None:
    async def play() -> None:
        rig = Rig()
        context = Context(pb.SettleRequest(receipts=rig.receipts[:1]), pb.SettleRequest(receipts=rig.receipts[1:], op=9))  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="op: 9 is unknown, use OP_ACK"):
            await rig.settling.stream(None, caller(context))
        assert [codes(response) for response in context.written] == [[""]]

    run(play())


@pytest.mark.parametrize("op, arg_ms", [(Op.EXTEND, None), (Op.EXTEND, -1), (Op.EXTEND, 1 << 40), (Op.NACK, -1),
                                        (Op.NACK, 1 << 40), (77, 0)])
def test_an_argument_out_of_range_is_refused(op: int, arg_ms: int | None) -> None:
    with pytest.raises(GoQueueError) as caught:
        deed_of(op, arg_ms, "")
    assert caught.value.name == "bad_request"

"""Subscribe: one call, one consumer; backpressure from the caller, bounds in flight, and a clean end."""

import asyncio
from typing import Any

import pytest

from gq_gateway import goqueue_pb2 as pb
from gq_gateway.rpc import subscribe as module
from gq_gateway.rpc.leases import Leases
from gq_gateway.rpc.subscribe import Subscribing
from gq_proto.errors import BadRequest, Busy, Forbidden, GoQueueError, ModeMismatch, Unavailable, UnknownTopic
from gq_proto.messages import Op
from gq_proto.record import COMPRESSED
from tests.unit.gq_gateway.grpc_fakes import Context, Gateway, Hub, caller, held_of, message_of, run, settled


class Consumer:
    """Has `count` messages of one lease; then waits until it is closed."""

    def __init__(self, count: int, size: int = 1) -> None:
        self.held = held_of(0, count, hub=Hub())
        self.messages = [message_of(self.held, offset) for offset in range(count)]
        for message in self.messages:
            message.raw_value = b"x" * size
        self.member = "m1"
        self.joining = 0                    # polls until it is a member
        self.failed: GoQueueError | None = None
        self.polled: list[int] = []
        self.closed = asyncio.Event()
        self.options: dict[str, Any] = {}

    async def poll(self, most: int, timeout: float | None = None) -> list[Any]:
        if self.failed:
            raise self.failed
        if not self.member and self.joining:
            self.joining -= 1
            return []
        self.member = "m1"
        self.polled.append(most)
        found, self.messages = self.messages[:most], self.messages[most:]
        if not found and timeout is None:
            await self.closed.wait()
        return found

    async def close(self) -> None:
        self.closed.set()


class Rig:
    def __init__(self, consumer: Consumer, **request: Any) -> None:
        self.gateway, self.consumer, self.leases = Gateway(), consumer, Leases()
        self.topics = {"orders"}
        client: Any = self.gateway.client
        client.consumer, client.topic = self._consumer, self._topic
        self.subscribing = Subscribing(self.gateway, self.leases)  # type: ignore[arg-type]
        self.context = Context(open=True)
        self.request = pb.SubscribeRequest(**{"group": "g", "topics": ["orders"], **request})

    def _consumer(self, topics: list[str], group: str, **options: Any) -> Consumer:
        self.consumer.options = {"topics": topics, "group": group, **options}
        return self.consumer

    async def _topic(self, name: str) -> None:
        if name not in self.topics:
            raise UnknownTopic(name)

    def start(self) -> "asyncio.Task[None]":
        return asyncio.ensure_future(self.subscribing.subscribe(self.request, caller(self.context)))

    @property
    def offsets(self) -> list[list[int]]:
        return [[message.offset for message in response.messages] for response in self.context.written[1:]]

    async def cancel(self, call: "asyncio.Task[None]") -> None:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await self.subscribing.ended()


def test_it_greets_sends_and_leaves_with_its_caller() -> None:
    async def play() -> None:
        rig = Rig(Consumer(5), visibility_ms=1500, mode=pb.MODE_SHARED, start=pb.Start(time_us=2_500_000), client="me",
                  max_in_flight=40)
        call = rig.start()
        await settled()
        assert rig.context.written[0] == pb.SubscribeResponse(member="m1")
        assert rig.offsets == [[0, 1, 2, 3, 4]]
        assert rig.consumer.options == {"topics": ["orders"], "group": "g", "mode": "shared", "start": 2.5, "ack": "manual",
                                        "visibility": 1.5, "max_poll": 40, "client": "me"}
        receipt = rig.context.written[1].messages[3].receipt
        assert rig.leases.find(receipt) and rig.subscribing.count == 1
        await rig.cancel(call)
        assert rig.consumer.closed.is_set() and not rig.leases.by_nonce and rig.subscribing.count == 0

    run(play())


def test_it_greets_once_the_group_has_taken_it_in() -> None:
    async def play() -> None:
        consumer = Consumer(2)
        consumer.member, consumer.joining = "", 3
        rig = Rig(consumer)
        call = rig.start()
        await settled()
        assert rig.context.written[0] == pb.SubscribeResponse(member="m1") and rig.offsets == [[0], [1]]
        await rig.cancel(call)

    run(play())


def test_no_more_is_taken_than_the_caller_reads() -> None:
    async def play() -> None:
        rig = Rig(Consumer(1000), max_batch=10)
        call = rig.start()
        await settled(5)
        rig.context.gate.clear()
        await settled()
        polls = len(rig.consumer.polled)
        await settled(100)
        assert len(rig.consumer.polled) == polls and len(rig.consumer.messages) > 900
        rig.context.gate.set()
        await settled(300)
        assert [offset for some in rig.offsets for offset in some] == list(range(1000)) and max(map(len, rig.offsets)) <= 10
        await rig.cancel(call)

    run(play())


def test_no_more_is_in_flight_than_the_caller_wants() -> None:
    async def play() -> None:
        rig = Rig(Consumer(100), max_in_flight=7)
        call = rig.start()
        await settled()
        assert rig.offsets == [[0, 1, 2, 3, 4, 5, 6]]
        for message in rig.context.written[1].messages[:3]:
            sent, offset = rig.leases.find(message.receipt) or pytest.fail()
            sent.settled(offset)
        await settled()
        assert rig.offsets[1:] == [[7, 8, 9]]
        await rig.cancel(call)

    run(play())


def test_responses_stay_below_what_callers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        monkeypatch.setattr(module, "RESPONSE_BYTES", 1000)
        rig = Rig(Consumer(5, size=300))
        call = rig.start()
        await settled()
        assert rig.offsets == [[0, 1], [2, 3], [4]]
        await rig.cancel(call)

    run(play())


def test_a_message_that_does_not_decode_is_rejected_and_the_others_come() -> None:
    async def play() -> None:
        consumer = Consumer(3)
        consumer.messages[1].flags = COMPRESSED
        rig = Rig(consumer)
        call = rig.start()
        await settled()
        assert rig.offsets == [[0, 2]]
        assert [(op.op, op.ranges) for op in consumer.held.ops] == [(Op.REJECT, [1, 1])]
        await rig.cancel(call)

    run(play())


def test_a_gateway_that_stops_ends_it_and_leaves_the_group() -> None:
    async def play() -> None:
        rig = Rig(Consumer(1))
        call = rig.start()
        await settled()
        rig.gateway.draining.set()
        with pytest.raises(Unavailable):
            await call
        await rig.subscribing.ended()
        assert rig.consumer.closed.is_set()
        with pytest.raises(Unavailable):
            await rig.start()

    run(play())


def test_what_the_consumer_fails_with_is_the_call_s_error() -> None:
    async def play() -> None:
        rig = Rig(Consumer(0))
        rig.consumer.failed = ModeMismatch("it is shared")
        with pytest.raises(ModeMismatch):
            await rig.start()
        await rig.subscribing.ended()
        assert rig.consumer.closed.is_set()

    run(play())


def test_rights_come_before_everything_else() -> None:
    async def play() -> None:
        rig = Rig(Consumer(1), topics=["nothing", "orders"])
        rig.gateway.refuse["orders"] = Forbidden("no")
        with pytest.raises(Forbidden):
            await rig.start()
        assert rig.gateway.asked == [("consume", "g"), ("consume", "nothing"), ("consume", "orders")]
        rig.gateway.refuse.clear()
        with pytest.raises(UnknownTopic):
            await rig.start()
        assert not rig.consumer.options

    run(play())


@pytest.mark.parametrize("told", [True, False])
def test_rights_that_are_taken_away_end_it(monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    """At once when the gateway hears that keys changed, after a while in any case."""
    async def play() -> None:
        monkeypatch.setattr(module, "AUTHORIZED_S", 1e6 if told else 0.0)
        rig = Rig(Consumer(20), max_batch=1)
        rig.context.gate.clear()
        call = rig.start()
        await settled()
        rig.gateway.refuse["orders"] = Forbidden("no more")
        if told:
            rig.gateway.door.verifier.forget()
        rig.context.gate.set()
        with pytest.raises(Forbidden):
            await call
        await rig.subscribing.ended()
        assert not rig.offsets and rig.consumer.closed.is_set()

    run(play())


def test_there_are_no_more_subscribers_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        monkeypatch.setattr("resource.getrlimit", lambda which: (2 * module.DESCRIPTORS, -1))
        rig = Rig(Consumer(1))
        call = rig.start()
        await settled()
        with pytest.raises(Busy, match="1 subscribers"):
            await rig.start()
        await rig.cancel(call)
        assert rig.subscribing.count == 0

    run(play())


@pytest.mark.parametrize("request_, what", [({"topics": []}, "topics"), ({"max_in_flight": -1}, "max_in_flight"),
                                            ({"max_in_flight": 1001}, "max_in_flight"), ({"max_batch": 501}, "max_batch"),
                                            ({"visibility_ms": -5}, "visibility_ms"), ({"mode": 7}, "mode")])
def test_what_means_nothing_is_refused_by_name(request_: dict[str, Any], what: str) -> None:
    async def play() -> None:
        with pytest.raises(BadRequest, match=what):
            await Rig(Consumer(0), **request_).start()

    run(play())

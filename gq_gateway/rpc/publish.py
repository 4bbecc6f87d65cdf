"""Publish and PublishStream: messages into one producer for all calls.

The producer is eager: with nothing under way a message of a lone caller goes at once; with several at work, and while something is
under way, they gather and go together. So a caller that sends one and waits has no linger to pay, and the more callers there are,
or the faster one is, the fuller the batches.

Bounds: see Duplex; the bytes under way are those of the producer, whose send waits when its memory is full.
"""

from collections import deque
from typing import Any, Final

from gq_client.aio_producer import AsyncProducer
from gq_client.batch import ProducerOptions
from gq_client.delivery import AsyncDelivery
from gq_gateway import goqueue_pb2 as pb
from gq_gateway.gateway import Gateway
from gq_gateway.rpc.convert import acks_of, sending
from gq_gateway.rpc.duplex import STOPPING, Duplex
from gq_gateway.rpc.guard import Caller
from gq_gateway.rpc.status import as_message
from gq_proto.errors import GoQueueError, Unavailable

LINGER_S: Final = 0.005
UNANSWERED_MAX: Final = 20_000
RESULTS_MAX: Final = 2_000          # in one response


class Publishing:
    """One producer per acks, made when first needed."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._producers: dict[int, AsyncProducer] = {}

    async def publish(self, request: pb.PublishRequest, caller: Caller) -> pb.PublishResponse:
        message = request.message
        await self._gateway.authorize(caller, "publish", message.topic)
        found = await (await self.producer(request.acks).send(*sending(message)))
        return pb.PublishResponse(partition=found.partition, offset=found.offset, timestamp_us=found.timestamp)

    async def stream(self, request: Any, caller: Caller) -> None:
        await PublishStream(self, self._gateway, caller).run()

    def producer(self, acks: int) -> AsyncProducer:
        if self._gateway.draining.is_set():
            raise Unavailable(STOPPING)
        found = self._producers.get(acks)
        if found is None:
            client = self._gateway.client
            options = ProducerOptions(linger=LINGER_S, acks=acks_of(acks), timeout=client.timeout)
            found = self._producers[acks] = AsyncProducer(client, options, client.timeout, eager=True)
        return found


class PublishStream(Duplex):
    """One call. `_pending`: a delivery or an error for each message read and not answered, in their order."""

    def __init__(self, publishing: Publishing, gateway: Gateway, caller: Caller) -> None:
        super().__init__(gateway, caller, "publish", UNANSWERED_MAX)
        self._publishing = publishing
        self._pending: deque[AsyncDelivery | GoQueueError] = deque()

    async def take(self, request: pb.PublishStreamRequest) -> None:
        producer = self._publishing.producer(request.acks)
        for draft in request.messages:
            self._pending.append(await self._send(producer, draft))
            self.added(1)

    async def _send(self, producer: AsyncProducer, draft: pb.Draft) -> AsyncDelivery | GoQueueError:
        try:
            refused = await self.rights.refusal(draft.topic)
            return refused or await producer.send(*sending(draft))
        except GoQueueError as error:
            return error

    async def answer(self) -> int:
        head = self._pending[0]
        if isinstance(head, AsyncDelivery) and not head.done():
            await _known(head)
        response = self._results()
        await self.caller.context.write(response)
        return len(response.results)

    def _results(self) -> pb.PublishStreamResponse:
        """Of all that is known, in order."""
        response = pb.PublishStreamResponse()
        results, pending = response.results, self._pending
        while pending and len(results) < RESULTS_MAX:
            head = pending[0]
            if isinstance(head, GoQueueError):
                results.add(error=as_message(head))
            elif not head.batch.done:
                break
            elif head.batch.error:
                results.add(error=as_message(head.batch.error))
            else:
                found = head.batch.published(head.index)
                results.add(partition=found.partition, offset=found.offset, timestamp_us=found.timestamp)
            pending.popleft()
        return response


async def _known(delivery: AsyncDelivery) -> None:
    try:
        await delivery
    except GoQueueError:
        pass                                # it is the message's result

"""Publishing: one message, or many at once with a result each.

All of a gateway's publishes go through its shared producers: concurrent ones travel in one request. A batch is never half-applied
silently: the good ones are stored, each of the others is told what is wrong with it, and the status is 207.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gq_client.aio_producer import AsyncProducer
from gq_client.batch import Published
from gq_client.delivery import AsyncDelivery
from gq_gateway.call import Call, parse_body
from gq_gateway.content import Draft, NewMessage, draft_of
from gq_gateway.problems import Problem, Refused, invalid, problem_of
from gq_proto.errors import BadRecord, BadRequest, GoQueueError, PeerFault, TooLarge, UnknownPartition, UnknownTopicId

BATCH_MAX: Final = 10_000
ITEMS: Final = (BadRecord, BadRequest, TooLarge, UnknownPartition)     # what is wrong with one message only
Acks = Literal["none", "leader", "all"]


class PublishQuery(Struct, forbid_unknown_fields=True):
    acks: Annotated[Acks, Meta(description="who must have it before the answer: nobody, the leader, or all in sync")] = "leader"


class Batch(Struct, forbid_unknown_fields=True):
    """Messages to be published; up to 10,000."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=BATCH_MAX)]


class RawBatch(Struct, forbid_unknown_fields=True):
    messages: list[msgspec.Raw]


class Place(Struct):
    """Where a message lies. offset -1 with acks=none. timestamp: Unix microseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ItemResult(Struct):
    """Where a message lies, or the error: why it was not taken."""

    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class BatchResult(Struct):
    """One result an item, in order."""

    published: int
    failed: int
    results: list[ItemResult]


_messages = msgspec.json.Decoder(NewMessage)
_batch = msgspec.json.Decoder(Batch)
_raw_batch = msgspec.json.Decoder(RawBatch)


async def publish(call: Call) -> Place:
    topic, producer = call.topic, call.gateway.producer(call.query.acks)
    found = await _deliver(producer, topic, draft_of(call.body))
    return Place(topic, *found)


async def publish_any(call: Call) -> Place | BatchResult:
    """A message, or {"messages": [...]}."""
    if b'"messages"' in call.raw[:200] and _is_batch(call.raw):
        return await publish_batch(call)
    call.body = parse_body(call.raw, _messages)
    return await publish(call)


def _is_batch(raw: bytes) -> bool:
    try:
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except ValueError as error:
        raise invalid(error) from None
    return "messages" in found


async def publish_batch(call: Call) -> BatchResult:
    topic, producer = call.topic, call.gateway.producer(call.query.acks)
    outcomes = await _send_all(producer, topic, _drafts(call.raw))
    results, failed = [], 0
    for outcome in outcomes:
        if isinstance(outcome, GoQueueError):
            failed += 1
            results.append(ItemResult(error=problem_of(outcome)))
        else:
            results.append(ItemResult(*outcome))
    if failed:
        call.status = 207
    return BatchResult(len(results) - failed, failed, results)


# -- reading a batch -----------------------------------------------------------------------

def _drafts(raw: bytes) -> list[Draft | GoQueueError]:
    """All messages of a batch, or what is wrong with each; an error when it is no batch at all."""
    try:
        messages = _batch.decode(raw).messages
    except (msgspec.DecodeError, UnicodeDecodeError):      # invalid text: the one or, from msgspec 0.23 on, the other
        return [_draft(_messages.decode, one) for one in _split(raw)]
    return [_draft(_itself, message) for message in messages]


def _split(raw: bytes) -> list[msgspec.Raw]:
    items: list[msgspec.Raw] = parse_body(raw, _raw_batch).messages
    if not 1 <= len(items) <= BATCH_MAX:
        raise Refused(BadRequest(f"messages: a batch holds 1 to {BATCH_MAX} messages, not {len(items)}"), "messages")
    return items


def _draft(decode: Callable[[Any], NewMessage], item: Any) -> Draft | GoQueueError:
    try:
        return draft_of(decode(item))
    except GoQueueError as error:
        return error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return invalid(error)


def _itself(message: NewMessage) -> NewMessage:
    return message


# -- sending -------------------------------------------------------------------------------

async def _deliver(producer: AsyncProducer, topic: str, draft: Draft) -> Published:
    """One message; sent again when the topic was made anew meanwhile: then it lies nowhere."""
    try:
        return await (await _send(producer, topic, draft))
    except UnknownTopicId:
        return await (await _send(producer, topic, draft))


def _send(producer: AsyncProducer, topic: str, draft: Draft) -> Awaitable[AsyncDelivery]:
    if draft.plain:
        return producer.send(topic, draft.value, draft.key, partition=draft.partition)
    return producer.send(topic, draft.value, draft.key, draft.headers, draft.priority, draft.delay, draft.deliver_at,
                         draft.partition)


async def _send_all(producer: AsyncProducer, topic: str, drafts: list[Draft | GoQueueError]) -> list[Published | GoQueueError]:
    """What became of each. When none was written for a reason that is no item's, that reason is raised."""
    outcomes = await _round(producer, topic, drafts)
    again = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, UnknownTopicId)]
    if again:
        for i, outcome in zip(again, await _round(producer, topic, [drafts[i] for i in again])):
            outcomes[i] = outcome
    if all(isinstance(outcome, PeerFault) for outcome in outcomes):
        raise cast("PeerFault", outcomes[0])
    return outcomes


async def _round(producer: AsyncProducer, topic: str, drafts: list[Draft | GoQueueError]) -> list[Published | GoQueueError]:
    sent: list[AsyncDelivery | GoQueueError] = []
    common: GoQueueError | None = None
    for draft in drafts:
        if isinstance(draft, GoQueueError) or common:
            sent.append(draft if isinstance(draft, GoQueueError) else cast("GoQueueError", common))
            continue
        try:
            sent.append(await _send(producer, topic, draft))
        except ITEMS as error:
            sent.append(error)
        except GoQueueError as error:       # the node's or the topic's: it would be the same for the rest
            if all(isinstance(one, GoQueueError) for one in sent):
                raise
            common = error
            sent.append(error)
    return [await _outcome(one) for one in sent]


async def _outcome(sent: AsyncDelivery | GoQueueError) -> Published | GoQueueError:
    if isinstance(sent, GoQueueError):
        return sent
    try:
        return await sent
    except GoQueueError as error:
        return error

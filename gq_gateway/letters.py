"""Dead letters over HTTP: which there are, and giving them back, see gq_client.letters.

One request looks at LOOKED_MAX letters at most; `more` says that it did not come to all.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from gq_client.letters import LOOKED_MAX, Choice, Letter, choose, reopen, settle
from gq_gateway.call import Call
from gq_gateway.content import OffsetNumber, Partition, StoredMessage, stored
from gq_gateway.gateway import Gateway
from gq_gateway.problems import Refused
from gq_gateway.reading import Force
from gq_gateway.table import PUBLISH
from gq_proto.errors import BadRequest

PAGE: Final = 100
PAGE_MAX: Final = 1_000


class LettersQuery(Struct, forbid_unknown_fields=True):
    group: Annotated[str, Meta(description="those that this group failed")] = ""
    partition: Annotated[Partition | None, Meta(description="those in this partition")] = None
    reason: Annotated[str, Meta(description="those whose reason contains this")] = ""
    after: Annotated[str, Meta(description="those behind this one in the DLQ: partition:offset")] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="letters at most")] = PAGE
    encoding: Force = "auto"


class Redrive(Struct, forbid_unknown_fields=True):
    """Which letters; none named: all."""

    group: Annotated[str, Meta(description="those that this group failed")] = ""
    partition: Annotated[Partition | None, Meta(description="those in this partition")] = None
    offsets: Annotated[list[OffsetNumber], Meta(max_length=10_000, description="these, in the DLQ; needs partition")] = []
    reason: Annotated[str, Meta(description="those whose reason contains this")] = ""
    limit: Annotated[int, Meta(ge=1, le=LOOKED_MAX, description="letters at most")] = PAGE_MAX
    publish: Annotated[bool, Meta(description="to the topic, for everyone, instead of to the group that failed them")] = False


class Purge(Struct, forbid_unknown_fields=True):
    group: Annotated[str, Meta(description="those that this group failed")] = ""
    partition: Annotated[Partition | None, Meta(description="those in this partition")] = None
    offsets: Annotated[list[OffsetNumber], Meta(max_length=1_000, description="these, in the DLQ; needs partition")] = []
    reason: Annotated[str, Meta(description="those whose reason contains this")] = ""
    limit: Annotated[int, Meta(ge=1, le=LOOKED_MAX, description="letters at most")] = PAGE_MAX


class DeadLetter(Struct, rename="camel"):
    """partition and offset are those of the DLQ, origin... what was failed. deadAt: Unix microseconds; -1: not known."""

    partition: int
    offset: int
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group: str
    attempts: int
    reason: str
    dead_at: int
    message: StoredMessage


class DeadLetters(Struct):
    """more: there are further ones."""

    letters: list[DeadLetter]
    more: bool


class Redriven(Struct):
    """redriven went back to the group that failed them, published to the topic. more: ask again."""

    redriven: int
    published: int
    more: bool


class Purged(Struct):
    purged: int
    more: bool


async def list_letters(call: Call) -> DeadLetters:
    query, client = call.query, call.gateway.client
    chosen = Choice(query.group, query.partition, query.reason, query.limit, after=_after(query.after))
    found, more = await client.run(choose(client.routes, call.topic, chosen))
    messages = stored([letter.record for letter in found], query.encoding)
    return DeadLetters([DeadLetter(letter.record.partition, letter.record.offset, letter.topic, letter.partition, letter.offset,
                                   letter.group, letter.tries, letter.reason, letter.time_us, message)
                        for letter, message in zip(found, messages)], more)


def _after(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not text:
        return -1, -1
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (partition, offset)):
        raise Refused(BadRequest("after: write partition:offset of the last letter"), "after")
    return int(partition), int(offset)


def _offsets(said: Redrive | Purge) -> frozenset[int]:
    if said.offsets and said.partition is None:
        raise Refused(BadRequest("offsets need partition: they are a partition's own"), "offsets")
    return frozenset(said.offsets)


async def redrive(call: Call) -> Redriven:
    body: Redrive = call.body
    client = call.gateway.client
    chosen = Choice(body.group, body.partition, body.reason, body.limit, _offsets(body))
    found, more = await client.run(choose(client.routes, call.topic, chosen))
    back = [] if body.publish else await client.run(reopen(client.routes, found))
    given = {id(letter) for letter in back}
    rest = [letter for letter in found if id(letter) not in given]
    await _publish(call, rest)
    await client.run(settle(client.routes, call.topic, found))
    return Redriven(len(back), len(rest), more)


async def purge(call: Call) -> Purged:
    query, client = call.query, call.gateway.client
    chosen = Choice(query.group, query.partition, query.reason, query.limit, _offsets(query))
    found, more = await client.run(choose(client.routes, call.topic, chosen))
    await client.run(settle(client.routes, call.topic, found))
    return Purged(len(found), more)


async def _publish(call: Call, letters: list[Letter]) -> None:
    gateway: Gateway = call.gateway
    for topic in {letter.topic or call.topic for letter in letters}:
        await gateway.authorize(call.request, PUBLISH, topic)
    producer = gateway.producer("leader")
    sent = [await producer.send(letter.topic or call.topic, letter.record.value, letter.record.key, letter.record.headers,
                                letter.record.priority) for letter in letters]
    for one in sent:
        await one

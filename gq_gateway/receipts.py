"""Settling by receipt: ack, nack, reject, extend (visibility), release. One receipt, or many with a result each.

Below /groups/{group} only receipts of that group are taken: what a key may do with one group must not reach another.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from gq_gateway.call import Call
from gq_gateway.moments import Duration, milliseconds
from gq_gateway.problems import Problem, Refused, problem_of
from gq_gateway.table import CONSUME
from gq_proto import codec, limits
from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.messages import Op
from gq_proto.receipt import Receipt, parse_receipts

MOST: Final = 10_000
Texts = Annotated[list[str], Meta(min_length=1, max_length=MOST)]


class Receipts(Struct, forbid_unknown_fields=True):
    """One receipt, or a list of them."""

    receipt: str | UnsetType = UNSET
    receipts: Texts | UnsetType = UNSET


class Nack(Receipts, forbid_unknown_fields=True):
    delay: Annotated[Duration | None, Meta(description="until it comes back; without it the topic's backoff")] = None


class Reject(Receipts, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=1024, description="stands in the dead letter")] = ""


class Visibility(Receipts, forbid_unknown_fields=True, kw_only=True):
    timeout: Annotated[Duration, Meta(description="mine for so long from now")]


class Settled(Struct):
    """ok, or the error: why this message was not settled."""

    receipt: str
    ok: bool
    error: Problem | UnsetType = UNSET


class SettledAll(Struct):
    """One result a receipt, in order."""

    settled: int
    failed: int
    results: list[Settled]


def handler(op: Op, of_group: bool) -> Callable[[Call], Awaitable[SettledAll]]:
    """The handler of one op."""
    async def settle(call: Call) -> SettledAll:
        given = texts_of(call.body)
        parsed: list[Receipt | GoQueueError]
        parsed = [receipt if isinstance(receipt, Receipt) else Refused(receipt, "receipt") for receipt in parse_receipts(given)]
        await _authorize(call, parsed, of_group)
        arg_ms, reason = ARGUMENTS.get(op, _none)(call.body)
        outcomes = await _settle(call, op, parsed, arg_ms, reason)
        return _answer(call, given, outcomes)

    return settle


def texts_of(body: Receipts) -> list[str]:
    if (body.receipt is UNSET) == (body.receipts is UNSET):
        raise Refused(BadRequest("give one of receipt and receipts"), "receipts")
    return [body.receipt] if isinstance(body.receipt, str) else body.receipts or []


async def _settle(call: Call, op: Op, parsed: list[Receipt | GoQueueError], arg_ms: int,
                  reason: str) -> list[GoQueueError | None]:
    good = [receipt for receipt in parsed if isinstance(receipt, Receipt)]
    settled = iter(await call.gateway.client.settle(op, good, arg_ms=arg_ms, reason=reason) if good else [])
    return [next(settled) if isinstance(receipt, Receipt) else receipt for receipt in parsed]


def _answer(call: Call, given: list[str], outcomes: list[GoQueueError | None]) -> SettledAll:
    if isinstance(call.body.receipt, str) and outcomes[0] is not None:
        raise outcomes[0]
    peers = [outcome for outcome in outcomes if outcome is not None and outcome.retriable]
    if len(peers) == len(outcomes):
        raise peers[0]
    results = [Settled(text, outcome is None, UNSET if outcome is None else problem_of(outcome))
               for text, outcome in zip(given, outcomes)]
    failed = sum(not result.ok for result in results)
    if failed:
        call.status = 207
    return SettledAll(len(results) - failed, failed, results)


async def _authorize(call: Call, parsed: list[Receipt | GoQueueError], of_group: bool) -> None:
    """Who may consume each topic; of a group its own receipts only."""
    group = call.group if of_group else ""
    for topic in {receipt.topic for receipt in parsed if isinstance(receipt, Receipt)}:
        await call.gateway.authorize(call.request, CONSUME, topic, group)
    if not of_group:
        return
    partition = codec.partition_of(group.encode(), limits.GROUPS_PARTITIONS)
    for index, receipt in enumerate(parsed):
        if isinstance(receipt, Receipt) and not (receipt.groups_partition == partition
                                                 and await call.gateway.is_number_of(group, receipt.group_number)):
            parsed[index] = Refused(BadRequest(f"this receipt is not of group {group}"), "receipt")


# -- arguments -------------------------------------------------------------------------------

def _none(body: Any) -> tuple[int, str]:
    return -1, ""


def _of_nack(body: Nack) -> tuple[int, str]:
    return -1 if body.delay is None else milliseconds(body.delay, "delay", limits.DELAY_MS_MAX), ""


def _of_reject(body: Reject) -> tuple[int, str]:
    return -1, body.reason


def _of_visibility(body: Visibility) -> tuple[int, str]:
    return milliseconds(body.timeout, "timeout", limits.VISIBILITY_MS_MAX), ""


ARGUMENTS: Final[dict[Op, Callable[[Any], tuple[int, str]]]] = {Op.NACK: _of_nack, Op.REJECT: _of_reject, Op.EXTEND: _of_visibility}
BODIES: Final[dict[Op, type[Receipts]]] = {Op.ACK: Receipts, Op.NACK: Nack, Op.REJECT: Reject, Op.EXTEND: Visibility,
                                           Op.RELEASE: Receipts}
WORDS: Final = (("ack", Op.ACK, "Done with messages"), ("nack", Op.NACK, "Failed, counted: again after a delay or the backoff"),
                ("reject", Op.REJECT, "Straight to the dead letter queue"), ("visibility", Op.EXTEND, "Keep messages for longer"),
                ("release", Op.RELEASE, "Not mine after all: uncounted, back at once"))

"""`gqctl ack`, `nack`, `reject`, `extend`, `release`: what becomes of messages, named by the receipts that consume printed.

Receipts outlive the process that printed them. Each is settled on its own: those that come too late are named on stderr, and the
exit code is 1 then.
"""

import sys
from collections.abc import Callable
from typing import Any

import click

from gq_ctl.app import FAILED, Command, Quiet, settings
from gq_ctl.output import say
from gq_ctl.params import DURATION
from gq_proto.messages import Op

Function = Callable[..., None]


def _receipt_command(name: str) -> Callable[[Function], click.Command]:
    def made(function: Function) -> click.Command:
        argument: Callable[[Function], Function] = click.argument("receipts", nargs=-1, required=True, metavar="RECEIPT...")
        return click.command(name, cls=Command)(argument(function))
    return made


@_receipt_command("ack")
def ack_command(receipts: tuple[str, ...]) -> None:
    """Mark the messages as done. A - reads receipts from stdin, one a line."""
    settle(Op.ACK, receipts)


@_receipt_command("nack")
@click.option("--delay", type=DURATION, help="Come back after this long; without it the topic's backoff.")
def nack_command(receipts: tuple[str, ...], delay: int | None) -> None:
    """Give the messages back as failed: counted, and retried after a while."""
    settle(Op.NACK, receipts, -1 if delay is None else delay)


@_receipt_command("reject")
@click.option("--reason", default="", help="Stands in the dead letter.")
def reject_command(receipts: tuple[str, ...], reason: str) -> None:
    """Send the messages to the dead letter queue at once."""
    settle(Op.REJECT, receipts, reason=reason)


@_receipt_command("extend")
@click.option("--for", "duration", type=DURATION, required=True, help="From now.")
def extend_command(receipts: tuple[str, ...], duration: int) -> None:
    """Keep the messages for longer."""
    settle(Op.EXTEND, receipts, duration)


@_receipt_command("release")
def release_command(receipts: tuple[str, ...]) -> None:
    """Give the messages back uncounted: somebody else gets them at once."""
    settle(Op.RELEASE, receipts)


def settle(op: Op, receipts: tuple[str, ...], arg_ms: int = -1, reason: str = "") -> None:
    """One op on every receipt; prints each with what came of it."""
    from gq_proto.receipt import parse_receipt
    texts = _texts(receipts)
    parsed = [parse_receipt(text) for text in texts]
    with settings().client() as client:
        results = client.settle(op, parsed, arg_ms=arg_ms, reason=reason)
    rows: list[dict[str, Any]] = []
    for text, error in zip(texts, results):
        rows.append({"receipt": text, "op": op.name.lower(), "ok": error is None, "error": None if error is None else error.name})
        if error is not None:
            say(f"{text}: {error.message}")
    settings().output().rows(rows, "ok")
    if any(error is not None for error in results):
        raise Quiet(FAILED)


def _texts(receipts: tuple[str, ...]) -> list[str]:
    if "-" not in receipts:
        return list(receipts)
    given = sys.stdin.read().split()
    return [text for receipt in receipts for text in (given if receipt == "-" else [receipt])]

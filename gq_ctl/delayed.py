"""`gqctl delayed`: what waits for its time, and calling it off.

A message is named partition:offset, as `list -o value` prints it, or partition and offset, as `publish` does.
"""

import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from gq_ctl.app import FAILED, NOT_FOUND, Group, Quiet, exit_code, settings
from gq_ctl.completion import complete_topic
from gq_ctl.message import key_json, shown
from gq_ctl.output import Output, Row, Show, say
from gq_ctl.units import show_duration, show_time
from gq_proto.errors import GoQueueError
from gq_proto.messages import Fate

if TYPE_CHECKING:
    from gq_client import Client

PAGE: Final = 500
ASK_S: Final = 2.0
HEADER: Final = "PART  OFFSET      DUE                               REMAINING  KEY"
RESULTS: Final = {Fate.CANCELLED: "cancelled", Fate.ALREADY_CANCELLED: "already_cancelled", Fate.DELIVERED: "delivered",
                  Fate.NONE: "not_found"}
WHY: Final = {Fate.DELIVERED: "it came due before, and is delivered", Fate.NONE: "no delayed message lies there"}
Place = tuple[int, int]

_NAMED = re.compile(r"(\d{1,9}):(\d{1,19})", re.ASCII)
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)


@click.group("delayed", cls=Group)
def delayed_command() -> None:
    """List, cancel and count messages that wait for their time."""


# -- list ------------------------------------------------------------------------------------

@delayed_command.command("list")
@click.argument("topic", shell_complete=complete_topic)
@click.option("--partition", type=click.IntRange(0), help="Those in this partition.")
@click.option("--max", "most", type=click.IntRange(1), help="At most so many.")
def list_(topic: str, partition: int | None, most: int | None) -> None:
    """Show the messages of TOPIC that wait for their time, the next one first.

    \b
      gqctl delayed list orders -o value | gqctl delayed cancel orders -
    """
    out = settings().output()
    count = 0
    with settings().client() as client:
        for page in pages(client, topic, partition, most, keys=out.form != "value"):
            show(out, topic, page, header=not count)
            count += len(page)
    if out.form == "table" and not count:
        say("nothing waits")
    out.stdout.flush()


def pages(client: "Client", topic: str, partition: int | None, most: int | None, keys: bool) -> Iterator[list[Any]]:
    """What waits, up to `most` of it."""
    left = most
    page = client.delayed(topic, partition=partition, limit=_limit(left), keys=keys)
    while True:
        yield page.messages
        left = None if left is None else left - len(page.messages)
        if page.after is None or left == 0:
            return
        page = client.delayed(topic, partition=partition, after=page.after, limit=_limit(left), keys=keys)


def _limit(left: int | None) -> int:
    return PAGE if left is None else min(PAGE, left)


def show(out: Output, topic: str, page: list[Any], header: bool) -> None:
    """A page goes out as it comes: there may be millions."""
    now_us = time.time_ns() // 1000
    if out.form == "table" and header and page:
        out.line(HEADER)
    for row in page:
        left_ms = (row.due - now_us) // 1000
        if out.form == "value":
            out.line(f"{row.partition}:{row.offset}")
        elif out.form == "json":
            out.json({"topic": topic, "partition": row.partition, "offset": row.offset, **key_json(row.key), "due_us": row.due,
                      "remaining_ms": left_ms})
        else:
            out.line(f"{row.partition:>4}  {row.offset:<10}  {show_time(row.due):<32}  "
                     f"{show_duration(left_ms) if left_ms > 0 else 'due':<9}  {shown(row.key)}")
    out.stdout.flush()


# -- cancel -----------------------------------------------------------------------------------

@delayed_command.command("cancel")
@click.argument("topic", shell_complete=complete_topic)
@click.argument("messages", nargs=-1, required=True, metavar="PARTITION:OFFSET...")
def cancel(topic: str, messages: tuple[str, ...]) -> None:
    """Cancel messages of TOPIC before they are due: nobody gets them.

    Each is named PARTITION:OFFSET; PARTITION OFFSET... is understood as well, and a - reads more from stdin, a line at a time.
    Prints what became of each. Exit code 1 when one was delivered before, 4 when one is no delayed message.

    \b
      gqctl delayed cancel orders 0:17 2:4
      gqctl delayed cancel orders $(gqctl publish orders later --delay 1h -o value)
    """
    try:
        places = named(messages, sys.stdin)
    except ValueError as e:
        raise click.UsageError(str(e)) from None
    with settings().client() as client:
        fates = client.cancel_delayed(topic, places)
    rows: list[Row] = []
    for (partition, offset), fate in zip(places, fates, strict=True):
        result, why = (fate.name, fate.message) if isinstance(fate, GoQueueError) else (RESULTS[fate], WHY.get(fate))
        rows.append({"topic": topic, "partition": partition, "offset": offset, "result": result})
        if why:
            say(f"{topic} {partition}:{offset}: {why}")
    settings().output().rows(rows, "result", empty="nothing to cancel")
    if code := verdict(fates):
        raise Quiet(code)


def named(texts: Iterable[str], stdin: Iterable[str]) -> list[Place]:
    """The messages that arguments name; ValueError says what is wrong with them."""
    texts = list(texts)
    lines = [text for text in texts if text != "-"]
    found = _places(lines) if lines else []
    if len(lines) < len(texts):
        for line in stdin:
            found += _places(line.split()) if line.strip() else []
    return found


def _places(words: list[str]) -> list[Place]:
    if not any(":" in word for word in words) and len(words) > 1 and all(map(_NUMBER.fullmatch, words)):
        return [(int(words[0]), int(offset)) for offset in words[1:]]
    return [_place(word) for word in words]


def _place(word: str) -> Place:
    match = _NAMED.fullmatch(word)
    if not match:
        raise ValueError(f"{word!r} names no message: write PARTITION:OFFSET, as 0:17")
    return int(match[1]), int(match[2])


def verdict(fates: list[Any]) -> int:
    """The exit code: an error's own first, then delivered, then not found."""
    for fate in fates:
        if isinstance(fate, GoQueueError):
            return exit_code(fate)
    return FAILED if Fate.DELIVERED in fates else NOT_FOUND if Fate.NONE in fates else 0


# -- stats --------------------------------------------------------------------------------------

def _milliseconds(us: int | None) -> str:
    return "" if us is None else f"{us / 1000:.1f}ms"


SHOW: Final[dict[str, Show]] = {"next_due_us": lambda us: "" if us is None else show_time(us), "lateness_p50_us": _milliseconds,
                                "lateness_p99_us": _milliseconds}


@delayed_command.command("stats")
@click.argument("topic", required=False, shell_complete=complete_topic)
def stats(topic: str | None) -> None:
    """Count by partition what waits, and what came due, was cancelled or expired since its delayd serves it. All topics, or TOPIC.

    Lateness is from when a message was due to when its ready record was in the log.
    """
    with settings().client() as client:
        parts = client.delay_stats(topic)
    rows = [{"topic": part.topic, "partition": part.partition, "scheduled": part.scheduled, "overdue": part.overdue,
             "ready": part.ready, "cancelled": part.cancelled, "expired": part.expired, "next_due_us": _said(part.next_due_us),
             "lateness_p50_us": _said(part.lateness_p50_us), "lateness_p99_us": _said(part.lateness_p99_us),
             "loading": part.loading} for part in parts]
    settings().output().rows(rows, "scheduled", SHOW, empty="no topics")


def waiting(client: "Client", topic: str) -> dict[int, int]:
    """How many messages wait, by partition; what delayd does not tell at once is not there. A gauge beside other things: without
    delayd they are shown without it."""
    from gq_client.delayed import delay_stats
    try:
        parts = client.run(delay_stats(client.routes, topic), timeout=ASK_S)
    except GoQueueError:
        return {}
    return {part.partition: part.scheduled for part in parts if not part.loading}


def _said(number: int) -> int | None:
    return None if number < 0 else number

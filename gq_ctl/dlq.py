"""`gqctl dlq`: what was given up on, and giving it back."""

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from gq_ctl.app import Group, settings
from gq_ctl.completion import complete_group, complete_topic
from gq_ctl.letters import count, letters
from gq_ctl.message import shown
from gq_ctl.output import Row
from gq_ctl.units import show_time

if TYPE_CHECKING:
    from gq_client import Client
    from gq_client.letters import Letter

CUT: Final = 60
Function = Callable[..., None]
topic_name = click.argument("topic", shell_complete=complete_topic)


class Filter:
    """Which letters are meant."""

    def __init__(self, group: str | None, partition: int | None, offsets: tuple[int, ...], reason: str | None,
                 most: int | None) -> None:
        self.group, self.partition, self.offsets, self.reason, self.most = group, partition, offsets, reason, most
        if offsets and partition is None:
            raise click.UsageError("--offset needs --partition: offsets are a partition's")

    @property
    def everything(self) -> bool:
        return self.group is None and self.partition is None and self.reason is None and self.most is None

    def choose(self, client: "Client", topic: str) -> Iterator["Letter"]:
        found = (letter for letter in letters(client, topic, self.partition) if self._fits(letter))
        return itertools.islice(found, self.most)

    def _fits(self, letter: "Letter") -> bool:
        return ((self.group is None or letter.group == self.group) and (self.reason is None or self.reason in letter.reason)
                and (not self.offsets or letter.record.offset in self.offsets))


def _filter(function: Function) -> Function:
    def filtered(*args: Any, group: str | None, partition: int | None, offset: tuple[int, ...], reason: str | None,
                 most: int | None, **kwargs: Any) -> None:
        function(*args, chosen=Filter(group, partition, offset, reason, most), **kwargs)
    filtered.__doc__ = function.__doc__
    for option in (click.option("--max", "most", type=click.IntRange(1), help="At most so many."),
                   click.option("--reason", help="Those whose reason contains this."),
                   click.option("--offset", multiple=True, type=click.IntRange(0), help="This one (in the DLQ); may be repeated."),
                   click.option("--partition", type=click.IntRange(0), help="Those in this partition."),
                   click.option("--group", shell_complete=complete_group, help="Those that this group failed.")):
        filtered = option(filtered)
    return filtered


@click.group("dlq", cls=Group)
def dlq_command() -> None:
    """List, look at, redrive and purge dead letters.

    The dead letters of TOPIC lie in the topic TOPIC.dlq until they are redriven or purged.
    """


@dlq_command.command("list")
@click.argument("topic", required=False, shell_complete=complete_topic)
@_filter
def list_(topic: str | None, chosen: Filter) -> None:
    """Show where each dead letter came from and why; without TOPIC, how many each topic has."""
    with settings().client() as client:
        rows = _overview(client) if topic is None else [_row(letter) for letter in chosen.choose(client, topic)]
    settings().output().rows(rows, "topic" if topic is None else "_place", {"time": str}, empty="no dead letters")


def _overview(client: "Client") -> list[Row]:
    from gq_proto.names import is_dlq, topic_of_dlq
    topics = sorted(topic_of_dlq(topic.name) for topic in client.topics() if is_dlq(topic.name))
    return [{"topic": topic, "letters": found} for topic in topics if (found := count(client, topic))]


def _row(letter: "Letter") -> Row:
    message = letter.record
    return {"partition": message.partition, "offset": message.offset, "topic": letter.topic, "origin_partition": letter.partition,
            "origin_offset": letter.offset, "group": letter.group, "count": letter.tries, "reason": letter.reason,
            "time": show_time(letter.time_us) if letter.time_us >= 0 else None, "_place": f"{message.partition} {message.offset}"}


@dlq_command.command("peek")
@topic_name
@_filter
def peek(topic: str, chosen: Filter) -> None:
    """Show dead letters with their keys and values; they stay where they are."""
    from gq_ctl.message import to_json
    out = settings().output()
    table = []
    with settings().client() as client:
        for letter in chosen.choose(client, topic):
            if out.form == "value":
                out.stdout.write((letter.record.value or b"") + b"\n")
            elif out.form == "json":
                row = _row(letter)
                del row["_place"]
                out.json({**to_json(letter.record), **row})
            else:
                text = shown(letter.record.value)
                table.append({"partition": letter.record.partition, "offset": letter.record.offset, "reason": letter.reason,
                              "key": shown(letter.record.key), "value": text if len(text) <= CUT else text[:CUT - 3] + "..."})
    if out.form == "table":
        out.rows(table, "offset", empty="no dead letters")
    out.stdout.flush()


@dlq_command.command("redrive")
@topic_name
@click.option("--publish", is_flag=True, help="Publish them to the topic anew, for everyone.")
@_filter
def redrive(topic: str, publish: bool, chosen: Filter) -> None:
    """Give dead letters back to the group that failed them, with attempts from the start.

    One whose origin is gone (retention, deleted group or topic) is published to the topic instead. All, or those the options name.
    """
    from gq_ctl.redrive import Redrive
    with settings().client() as client:
        done = Redrive(client, topic, publish)
        done.run(chosen.choose(client, topic))
    settings().output().one({"topic": topic, "redriven": done.redriven, "published": done.published}, "redriven")


@dlq_command.command("purge")
@topic_name
@_filter
def purge(topic: str, chosen: Filter) -> None:
    """Forget dead letters for good. All, or those the options name."""
    from gq_ctl.redrive import settle
    with settings().client() as client:
        found = list(chosen.choose(client, topic))
        settle(client, topic, found)
        if chosen.everything:
            _drop(client, topic, found)
    settings().output().one({"topic": topic, "purged": len(found)}, "purged")


def _drop(client: "Client", topic: str, purged: list["Letter"]) -> None:
    """Their bytes too, up to the last one: letters may have come since."""
    from gq_proto.names import dlq_of
    ends: dict[int, int] = {}
    for letter in purged:
        ends[letter.record.partition] = letter.record.offset + 1
    for partition, end in ends.items():
        client.delete_before(dlq_of(topic), partition, end)

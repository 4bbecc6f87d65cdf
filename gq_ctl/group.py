"""`gqctl group`: what a group has done and holds, and the handles on it: reset, pause, resume, delete."""

from typing import TYPE_CHECKING, Any, Final

import click

from gq_ctl.app import USAGE, Failed, Group, settings
from gq_ctl.completion import complete_group, complete_topic
from gq_ctl.output import Row, Show, say
from gq_ctl.params import POSITION
from gq_ctl.units import Position, show_duration
from gq_proto.names import is_internal

if TYPE_CHECKING:
    from gq_client import Client

SHOW: Final[dict[str, Show]] = {"session_ms": show_duration, "heard_ms_ago": show_duration}
group_name = click.argument("group", shell_complete=complete_group)


@click.group("group", cls=Group)
def group_command() -> None:
    """List, describe, reset, pause and delete consumer groups."""


@group_command.command("list")
@click.option("--all", "every", is_flag=True, help="Internal groups too.")
def list_(every: bool) -> None:
    """List groups."""
    with settings().client() as client:
        groups = sorted(client.groups(), key=lambda group: group.group)
    rows = [{"group": group.group, "mode": group.mode, "members": group.members, "topics": group.topics, "paused": group.paused,
             "lag": group.lag} for group in groups if every or not is_internal(group.group)]
    settings().output().rows(rows, "group", empty="no groups")


@group_command.command("describe")
@group_name
def describe(group: str) -> None:
    """Show the members of GROUP, what they hold, and how far it is in each partition."""
    with settings().client() as client:
        found = client.describe_group(group)
    out = settings().output()
    row = {"group": found.group, "mode": found.mode, "state": found.state, "paused": found.paused, "generation": found.generation,
           "topics": found.topics, "lag": sum(part.lag for part in found.partitions)}
    members, partitions = [_member(member) for member in found.members], [_partition(part) for part in found.partitions]
    if out.form != "table":
        out.one(row | {"members": members, "partitions": partitions}, "state")
        return
    out.one(row, "state")
    for title, rows in (("members", members), ("partitions", partitions)):
        if rows:
            out.line("")
            out.line(f"{title}:")
            out.rows(rows, title[:-1], SHOW)


def _member(member: Any) -> Row:
    return {"member": member.member, "client": member.client, "session_ms": member.session_ms, "heard_ms_ago": member.age_ms,
            "in_flight": member.in_flight, "assignment": [f"{part.topic}/{part.partition}" for part in member.assignment]}


def _partition(part: Any) -> Row:
    return {"topic": part.topic, "partition": part.partition, "owner": part.owner or None, "committed": part.committed,
            "end": part.end, "log_start": part.log_start, "lag": part.lag, "in_flight": part.in_flight, "retrying": part.retrying,
            "acked_ahead": sum(part.acked_ahead[1::2]), "scheduled": part.scheduled, "expired": part.expired,
            "skipped_to": None if part.skipped_to < 0 else part.skipped_to}


@group_command.command("lag")
@group_name
@click.option("--topic", shell_complete=complete_topic, help="This topic only.")
def lag(group: str, topic: str | None) -> None:
    """Show by partition how many messages GROUP has not acked: ready, in flight, or waiting for a retry."""
    with settings().client() as client:
        found = client.describe_group(group)
    rows = []
    for part in found.partitions:
        if topic in (None, part.topic):
            row = _partition(part)
            rows.append({name: row[name] for name in ("topic", "partition", "committed", "end", "lag", "in_flight", "retrying")})
    settings().output().rows(rows, "lag", empty=f"{group} has no partitions yet")


@group_command.command("reset")
@group_name
@click.option("--to", "to", type=POSITION, required=True, metavar="POSITION", help="Offset, earliest, latest, or a time.")
@click.option("--topic", shell_complete=complete_topic, help="This topic only; needed when the group has several.")
@click.option("--partition", type=click.IntRange(0), help="This partition only.")
def reset(group: str, to: Position, topic: str | None, partition: int | None) -> None:
    """Move GROUP to a position: what is before it counts as done, what is at or after it comes (again). Works while it is active.

    A group that is not there yet is made, so a first consumer can be told where to begin.
    """
    from gq_ctl.positions import resolve
    rows = []
    with settings().client() as client:
        name = topic or _only_topic(client, group)
        for number, offset in resolve(client, name, partition, to).items():
            acked, again = client.reset(group, name, number, offset)
            rows.append({"topic": name, "partition": number, "offset": offset, "acked": acked, "again": again})
    settings().output().rows(rows, "offset")


def _only_topic(client: "Client", group: str) -> str:
    topics = sorted({part.topic for part in client.describe_group(group).partitions})
    if len(topics) != 1:
        raise Failed(f"group {group} has {len(topics)} topics ({', '.join(topics)}): say which with --topic", USAGE)
    return topics[0]


@group_command.command("pause")
@group_name
def pause(group: str) -> None:
    """Hand out nothing more to GROUP until it is resumed; what is out stays out."""
    _paused(group, True)


@group_command.command("resume")
@group_name
def resume(group: str) -> None:
    """Go on after a pause."""
    _paused(group, False)


def _paused(group: str, paused: bool) -> None:
    with settings().client() as client:
        client.pause_group(group, paused)
    settings().output().one({"group": group, "paused": paused}, "paused")


@group_command.command("delete")
@group_name
@click.option("--force", is_flag=True, help="Even while it has members.")
def delete(group: str, force: bool) -> None:
    """Forget GROUP and everything it acked."""
    with settings().client() as client:
        client.delete_group(group, force=force)
    say(f"group {group} is gone; its next consumer begins anew")
    settings().output().one({"group": group, "deleted": True}, "group")

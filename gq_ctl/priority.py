"""`gqctl priority`: how the lanes of each partition fill and drain, as groups see them."""

from typing import TYPE_CHECKING, Any, Final

import click

from gq_ctl.app import Group, settings
from gq_ctl.completion import complete_group, complete_topic
from gq_ctl.output import Row, Show
from gq_ctl.units import show_duration
from gq_proto.names import is_internal
from gq_proto.record import PRIORITY_NAMES

if TYPE_CHECKING:
    from gq_client import Client

SHOW: Final[dict[str, Show]] = {"last_served_ms_ago": lambda ms: "never" if ms is None else show_duration(ms)}


@click.group("priority", cls=Group)
def priority_command() -> None:
    """Show how the priorities of each partition fill and drain."""


@priority_command.command("stats")
@click.option("--group", shell_complete=complete_group, help="This group only.")
@click.option("--topic", shell_complete=complete_topic, help="This topic only.")
@click.option("--partition", type=click.IntRange(0), help="This partition only.")
def stats(group: str | None, topic: str | None, partition: int | None) -> None:
    """Show by group, partition and priority what is ready and in flight, what came and went, and when it was last served.

    Counts are since groupd started; rates a second, of about the last 10 seconds. Priorities that nothing is known of are left out.
    """
    with settings().client() as client:
        rows = [row for name in ([group] if group else _groups(client)) for row in _rows(client, name)
                if topic in (None, row["topic"]) and partition in (None, row["partition"])]
    settings().output().rows(rows, "ready", SHOW, empty="no messages of any priority yet; a group sees them once it was joined")


def _groups(client: "Client") -> list[str]:
    return sorted(group.group for group in client.groups() if not is_internal(group.group))


def _rows(client: "Client", group: str) -> list[Row]:
    found = client.describe_group(group, lanes=True)
    return [_row(found.group, part, lane) for part in found.partitions for lane in part.lanes]


def _row(group: str, part: Any, lane: Any) -> Row:
    return {"group": group, "topic": part.topic, "partition": part.partition, "priority": PRIORITY_NAMES[lane.priority],
            "ready": lane.ready, "in_flight": lane.in_flight, "retrying": lane.retrying, "enqueued": lane.enqueued,
            "dequeued": lane.dequeued, "enqueued_per_s": lane.enqueued_per_s, "dequeued_per_s": lane.dequeued_per_s,
            "last_served_ms_ago": None if lane.served_ms_ago < 0 else lane.served_ms_ago}

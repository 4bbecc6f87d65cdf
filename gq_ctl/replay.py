"""`gqctl replay TOPIC`: what lies in a log once more, for one group (rewound) or for everybody (published to another topic)."""

import time
from typing import TYPE_CHECKING, Any, Final

import click

from gq_ctl.app import Command, settings
from gq_ctl.completion import complete_group, complete_topic
from gq_ctl.message import due_of
from gq_ctl.output import Progress
from gq_ctl.params import POSITION
from gq_ctl.positions import resolve
from gq_ctl.reading import stretch
from gq_ctl.units import Position

if TYPE_CHECKING:
    from gq_client import Client

SLICE_S: Final = 0.05


@click.command("replay", cls=Command)
@click.argument("topic", shell_complete=complete_topic)
@click.option("--partition", type=click.IntRange(0), help="This partition only.")
@click.option("--from", "low", type=POSITION, default="earliest", show_default=True, metavar="POSITION",
              help="The first message: offset, earliest, latest, or a time.")
@click.option("--to", "high", type=POSITION, default="latest", show_default=True, metavar="POSITION", help="Up to here, exclusive.")
@click.option("--group", shell_complete=complete_group, help="Rewind this group: it gets exactly these messages again.")
@click.option("--to-topic", shell_complete=complete_topic, help="Publish them again, to this topic.")
@click.option("--rate", type=click.IntRange(1), metavar="N", help="With --to-topic: at most N messages a second.")
@click.option("--include-delayed", is_flag=True, help="With --to-topic: also those that are not due yet; so are the copies.")
def replay_command(topic: str, partition: int | None, low: Position, high: Position, group: str | None, to_topic: str | None,
                   rate: int | None, include_delayed: bool) -> None:
    """Deliver old messages of TOPIC again.

    --group rewinds a group, active or not: the messages count as new to it, attempts start over. --to-topic publishes copies
    (key, value, headers, priority) without touching any group. A delayed message that is not due yet is nobody's to deliver again:
    a group gets it when it is, and copies are made of it with --include-delayed alone.
    """
    if (group is None) == (to_topic is None):
        raise click.UsageError("give one of --group and --to-topic")
    if rate is not None and to_topic is None:
        raise click.UsageError("--rate goes with --to-topic")
    if include_delayed and to_topic is None:
        raise click.UsageError("--include-delayed goes with --to-topic: a group gets a delayed message when it is due")
    with settings().client() as client:
        lows, highs = resolve(client, topic, partition, low), resolve(client, topic, partition, high)
        ranges = {number: (lows[number], highs[number]) for number in lows if lows[number] < highs[number]}
        if group is not None:
            rows = [{"topic": topic, "partition": number, "from": first, "to": last, "group": group,
                     "messages": client.rewind(group, topic, number, first, last)} for number, (first, last) in ranges.items()]
        else:
            rows = Copy(client, topic, to_topic or "", rate, include_delayed).run(ranges)
    settings().output().rows(rows, "messages", empty="nothing lies between --from and --to")


class Copy:
    """Publishes ranges of one topic to another, partition by partition."""

    def __init__(self, client: "Client", topic: str, target: str, rate: int | None, delayed: bool = False) -> None:
        self.client, self.topic, self.target, self.rate, self.delayed = client, topic, target, rate, delayed
        self.start = time.monotonic()
        self.count = 0

    def run(self, ranges: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
        rows = []
        progress = Progress("replayed", time.monotonic)
        total = sum(last - first for first, last in ranges.values())
        with self.client.producer() as producer:
            for number, (first, last) in ranges.items():
                before = self.count
                self._copy(producer, number, first, last, lambda: progress.update(self.count, total))
                rows.append({"topic": self.topic, "partition": number, "from": first, "to": last, "to_topic": self.target,
                             "messages": self.count - before})
            producer.flush()
        progress.done()
        return rows

    def _copy(self, producer: Any, number: int, first: int, last: int, told: Any) -> None:
        for message in stretch(self.client, self.topic, number, first, last, self.delayed):
            due_us = due_of(message) if self.delayed else None
            producer.send(self.target, message.value, key=message.key, headers=message.headers, priority=message.priority,
                          deliver_at=None if due_us is None else due_us / 1_000_000)
            self.count += 1
            if not self.count & 0x3F:
                told()
            if self.rate:
                self._pace(self.rate)

    def _pace(self, rate: int) -> None:
        """Not faster than `rate`: sleep when more than a slice ahead."""
        ahead = self.count / rate - (time.monotonic() - self.start)
        if ahead > SLICE_S:
            time.sleep(ahead)

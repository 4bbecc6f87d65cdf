"""`gqctl consume`: messages on stdout, read alone or taken as a member of a group.

Owns when messages count as printed: they are acked after their bytes were handed to stdout, so a closed pipe loses nothing, and
Ctrl-C gives back at once what was not. Nothing is kept but the batch at hand.

    exit 0      --max was reached, the end was reached (without a group), or --timeout passed and there was no --max
    exit 124    --max was not reached before --timeout
"""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from gq_ctl.app import TIMED_OUT, Command, Quiet, settings
from gq_ctl.completion import complete_group, complete_topic
from gq_ctl.message import shown, to_json
from gq_ctl.output import Output, say
from gq_ctl.params import DURATION, POSITION, raw
from gq_ctl.units import Position, show_time
from gq_proto.errors import GoQueueError, StaleReceipt
from gq_proto.record import PRIORITY_NAMES

if TYPE_CHECKING:
    from gq_client import Client

BATCH: Final = 500
NEVER: Final = float("inf")


@click.command("consume", cls=Command)
@click.argument("topic", shell_complete=complete_topic)
@click.option("--group", "-g", shell_complete=complete_group, help="Be a member of this group; without it the topic is only read.")
@click.option("--from", "start", type=POSITION, default="earliest", show_default=True, metavar="POSITION",
              help="Where to begin: offset, earliest, latest, or a time. With --group: where a new group begins.")
@click.option("--partition", type=click.IntRange(0), help="Without --group: this partition only.")
@click.option("--max", "most", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--timeout", type=DURATION, help="Stop after this long; exit 124 if --max was not reached.")
@click.option("--follow", "-f", is_flag=True, help="At the end wait for more (with --group always).")
@click.option("--include-delayed", "delayed", is_flag=True, help="Without --group: those that are not due yet, too.")
@click.option("--ack", type=click.Choice(["auto", "manual", "none"]), default="auto", show_default=True,
              help="auto: when printed. manual: print receipts, for gqctl ack. none: give everything back.")
@click.option("--visibility", type=DURATION, help="With --group: how long a message is ours before others get it.")
@click.option("--session", type=DURATION, help="With --group: if we vanish, what we hold is others' after this.")
@click.option("--mode", type=click.Choice(["partitioned", "shared"]), help="Mode of a new group.")
@click.option("--exec", "command", metavar="CMD", help="Run CMD for each message, on its stdin: exit 0 acks, anything else nacks.")
@click.option("--key-separator", metavar="TEXT", help="With -o value: print the key and TEXT before each value.")
def consume_command(topic: str, **options: Any) -> None:
    """Print the messages of TOPIC.

    Without --group this is a simple read up to the present end: nothing is remembered. With --group the messages are shared
    with the group's other members, and acked.

    \b
      gqctl consume orders --max 10
      gqctl consume orders --group billing --max 100 --timeout 20s -o value
      gqctl consume jobs --group workers --exec ./work.sh
      gqctl consume jobs --group w --max 1 --ack manual -o value | while IFS=$'\\t' read -r receipt value; do
          gqctl ack "$receipt"; done
    """
    Consume(topic, **options).run()


class Consume:
    """One run of the command."""

    def __init__(self, topic: str, *, group: str | None, start: Position, partition: int | None, most: int | None,
                 timeout: int | None, follow: bool, delayed: bool, ack: str, visibility: int | None, session: int | None,
                 mode: str | None, command: str | None, key_separator: str | None) -> None:
        self.topic, self.group, self.start, self.partition, self.most = topic, group, start, partition, most
        self.follow, self.ack, self.visibility, self.mode, self.command = follow, ack, visibility, mode, command
        self.session, self.delayed = session, delayed
        self.timeout = None if timeout is None else timeout / 1000
        self.count = 0
        self.output = settings().output()
        self.show = Shower(self.output, ack == "manual", None if key_separator is None else raw(key_separator))
        self._check()

    def _check(self) -> None:
        if self.group is None:
            given = {"--visibility": self.visibility, "--session": self.session, "--mode": self.mode, "--exec": self.command,
                     "--ack manual": self.ack == "manual" or None}
            wrong = next((name for name, value in given.items() if value is not None), None)
            if wrong:
                raise click.UsageError(f"{wrong} goes with --group")
        else:
            if self.partition is not None:
                raise click.UsageError("--partition goes without --group: a group's members share all partitions")
            if self.delayed:
                raise click.UsageError("--include-delayed goes without --group: a group gets a delayed message when it is due")
            if self.start.offset >= 0:
                raise click.UsageError("--from of a group is earliest, latest or a time (@UNIXSECONDS, -1h); "
                                       "see gqctl group reset for offsets")
        if self.command is not None:
            from gq_ctl.execute import missing
            if self.ack != "auto":
                raise click.UsageError("--exec decides what is acked: leave --ack out")
            if program := missing(self.command):
                raise click.UsageError(f"--exec: there is no program {program!r}")

    # -- running -------------------------------------------------------------------------------

    def run(self) -> None:
        self.end = NEVER if self.timeout is None else time.monotonic() + self.timeout
        with settings().client() as client:
            client.topic(self.topic)        # consuming never makes a topic
            if self.group is None:
                self._read(client)
            elif self.command is not None:
                self._execute(client)
            else:
                self._consume(client)
        if self.most is not None and self.count < self.most and time.monotonic() >= self.end:
            say(f"{self.count} of {self.most} messages before the timeout")
            raise Quiet(TIMED_OUT)

    def _left(self) -> int:
        return BATCH if self.most is None else min(BATCH, self.most - self.count)

    def _patience(self) -> float | None:
        """Seconds until the timeout; None for ever."""
        return None if self.end == NEVER else max(0.0, self.end - time.monotonic())

    def _over(self) -> bool:
        return self.count == self.most or time.monotonic() >= self.end

    def _consumer(self, client: "Client", **options: Any) -> Any:
        start = self.start.name or str(self.start.time_us)
        if self.visibility is not None:
            options["visibility"] = self.visibility / 1000
        if self.session is not None:
            options["session"] = self.session / 1000
        return client.consumer([self.topic], group=self.group or "", start=start, mode=self.mode or "", ack="manual", **options)

    def _consume(self, client: "Client") -> None:
        """Print, then ack, batch by batch."""
        hold = self.ack == "manual"
        with self._consumer(client, hold=hold, max_poll=self._left()) as consumer:
            while not self._over():
                batch = consumer.poll(self._left(), timeout=self._patience())
                self.show(batch)
                self.output.stdout.flush()
                if self.ack == "auto":
                    for message in batch:
                        message.ack()
                self.count += len(batch)
            if self.ack == "auto":
                consumer.flush()

    def _execute(self, client: "Client") -> None:
        """One message at a time: its visibility timeout runs from when its command starts."""
        from gq_ctl import execute
        node = settings().environment()
        with self._consumer(client) as consumer:
            while not self._over():
                for message in consumer.poll(1, timeout=self._patience()):
                    env = execute.environment(message, self.group or "", message.receipt, node)
                    code = execute.run(self.command or "", message, env)
                    if code:
                        say(f"{_named(message)}: {'killed by signal' if code < 0 else 'exit code'} {abs(code)}")
                    self._settle(message.nack if code else message.ack, message)
                    self.count += 1

    def _settle(self, settle: Callable[..., Any], message: Any) -> None:
        """Recorded before the next command runs, so that a crash repeats one message at most."""
        try:
            settle(sync=True)
        except StaleReceipt:
            say(f"{_named(message)}: took longer than its visibility timeout, others have it now: raise --visibility")
        except GoQueueError as e:
            say(f"{_named(message)}: {e.message}")

    def _read(self, client: "Client") -> None:
        """Without a group: up to the present end, then, if told to wait, whatever comes."""
        from gq_ctl.reading import Reading
        with Reading(client, self.topic, self.partition, self.start, self.delayed) as reading:
            for batch in reading.present(BATCH):
                self._show(batch[:self._left()])
                if self._over():
                    break
            self.output.stdout.flush()
            while (self.follow or self.timeout is not None) and not self._over():
                self._show(reading.coming(self._left(), self._patience()))
                self.output.stdout.flush()

    def _show(self, batch: list[Any]) -> None:
        self.show(batch)
        self.count += len(batch)


def _named(message: Any) -> str:
    return f"{message.topic}/{message.partition}/{message.offset} delivery {message.delivery}"


class Shower:
    """Messages in the form that was asked for; a table goes out line by line, its widths can't wait for the end."""

    def __init__(self, output: Output, receipts: bool, separator: bytes | None) -> None:
        self._out, self._receipts, self._separator = output, receipts, separator
        self._header = True

    def __call__(self, messages: Iterable[Any]) -> None:
        if self._out.form == "value":
            self._values(messages)
        elif self._out.form == "json":
            for message in messages:
                more = {"delivery": message.delivery, "receipt": message.receipt} if self._receipts else {}
                self._out.json(to_json(message, **more))
        else:
            self._lines(messages)

    def _values(self, messages: Iterable[Any]) -> None:
        if not self._receipts and self._separator is None:
            values = [message.value or b"" for message in messages]
            if values:
                values.append(b"")
                self._out.stdout.write(b"\n".join(values))
            return
        for message in messages:
            receipt = message.receipt.encode() + b"\t" if self._receipts else b""
            key = (message.key or b"") + self._separator if self._separator is not None else b""
            self._out.stdout.write(receipt + key + (message.value or b"") + b"\n")

    def _lines(self, messages: Iterable[Any]) -> None:
        for message in messages:
            if self._header:
                self._out.line("PART  OFFSET      TIME                              PRIORITY    KEY                   VALUE")
                self._header = False
            self._out.line(f"{message.partition:>4}  {message.offset:<10}  {show_time(message.timestamp):<32}  "
                           f"{PRIORITY_NAMES[message.priority]:<10}  {shown(message.key):<20}  {shown(message.value)}")
            if self._receipts:
                self._out.line(f"      receipt {message.receipt}")

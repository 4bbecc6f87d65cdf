"""`gqctl publish`: one message from the command line or stdin, or one a line.

Owns the reading of stdin and what is said when something in it can't be published: the line is named, everything before it was
published, nothing after it, and the exit code is 1.
"""

import json
import time
from typing import TYPE_CHECKING, Any, Final

import click

from gq_ctl.app import Command, Failed, exit_code, settings
from gq_ctl.completion import complete_topic
from gq_ctl.message import Draft, Headers, from_json
from gq_ctl.output import Progress
from gq_ctl.params import DELAY, DELIVER_AT, HEADER, PRIORITY, raw
from gq_proto import limits
from gq_proto.errors import CallerFault, GoQueueError, TooLarge

if TYPE_CHECKING:
    from gq_client import Client

JSON_LINE_MAX: Final = 2      # a line of JSON may be so many times the largest value (base64, escapes), and a MiB
COMPRESSIONS: Final = ("none", "zstd")


@click.command("publish", cls=Command)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("value", required=False)
@click.option("-l", "--lines", "lines", is_flag=True, help="One message a line of stdin; its end (LF, CRLF) is not part of it.")
@click.option("--jsonl", is_flag=True, help="One JSON object a line: value, key, headers, priority, delay, deliver_at, partition.")
@click.option("--null", is_flag=True, help="A null value.")
@click.option("--key", help="The key: messages with the same key stay in order.")
@click.option("--key-separator", metavar="TEXT", help="With -l: the key stands before the first TEXT of a line.")
@click.option("--keep-cr", is_flag=True, help="With -l: a CR before the LF is part of the message.")
@click.option("--header", "-H", "headers", multiple=True, type=HEADER, metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option("--priority", type=PRIORITY, help="0-4 or critical, high, normal, low, background.")
@click.option("--delay", type=DELAY, help="Deliver after this long, 7d18h at most.")
@click.option("--at", type=DELIVER_AT, help="Deliver at this time; when it is past, now.")
@click.option("--partition", type=click.IntRange(0), help="This partition, whatever the key.")
@click.option("--acks", type=click.Choice(["none", "leader", "all"]), default="leader", show_default=True, help="Who must have it.")
@click.option("--compress", type=click.Choice(COMPRESSIONS), default="none", show_default=True, help="Compress values.")
def publish_command(topic: str, value: str | None, **options: Any) -> None:
    """Publish VALUE to TOPIC, or all of stdin as one message (-), or a message a line (-l, --jsonl).

    A topic that is not there is made. Prints partition and offset, or a summary for many messages.

    \b
      gqctl publish orders '{"id": 7}' --key customer-42
      seq 1 100000 | gqctl publish numbers -l
      gqctl consume orders -o json | gqctl publish copy --jsonl
    """
    Publish(topic, value, **options).run()


class Publish:
    """One run of the command."""

    def __init__(self, topic: str, value: str | None, *, lines: bool, jsonl: bool, null: bool, key: str | None,
                 key_separator: str | None, keep_cr: bool, headers: Headers, priority: int | None, delay: int | None,
                 at: int | None, partition: int | None, acks: str, compress: str) -> None:
        self.topic, self.value, self.lines, self.jsonl, self.null = topic, value, lines, jsonl, null
        self.separator = None if key_separator is None else raw(key_separator)
        self.keep_cr, self.acks, self.compress = keep_cr, acks, compress
        self.draft = Draft(None, None if key is None else raw(key), list(headers), priority, delay, at, partition)
        self._check()

    def _check(self) -> None:
        if sum((self.value is not None, self.lines, self.jsonl, self.null)) != 1:
            raise click.UsageError("give one of VALUE, - (stdin whole), -l (a message a line), --jsonl, --null")
        if (self.separator is not None or self.keep_cr) and not self.lines:
            raise click.UsageError("--key-separator and --keep-cr go with -l")
        if self.separator == b"":
            raise click.UsageError("--key-separator is empty")
        if self.draft.delay_ms is not None and self.draft.deliver_at_us is not None:
            raise click.UsageError("--delay and --at exclude each other")

    def run(self) -> None:
        if self.lines or self.jsonl:
            self._many()
        else:
            self._one()

    # -- one -----------------------------------------------------------------------------------

    def _one(self) -> None:
        value = None if self.null else _stdin() if self.value == "-" else raw(self.value or "")
        with settings().client() as client:
            got = client.publish(self.topic, value, acks=self.acks, compress=self.compression(), **arguments(self.draft))
        out = settings().output()
        if out.form == "json":
            out.json({"topic": self.topic, "partition": got.partition, "offset": got.offset})
        else:
            out.line(f"{got.partition} {got.offset}")
        out.stdout.flush()

    def compression(self) -> str | None:
        return None if self.compress == "none" else self.compress

    # -- many ----------------------------------------------------------------------------------

    def _many(self) -> None:
        start = time.monotonic()
        with settings().client() as client:
            sending = Sending(client, self)
            sending.run()
        seconds = time.monotonic() - start
        settings().output().one({"topic": self.topic, "published": sending.count, "bytes": sending.size,
                                 "seconds": round(seconds, 3), "msgs_per_s": round(sending.count / max(seconds, 1e-9))},
                                "published")


class Sending:
    """Lines of stdin on their way to the topic. `count` were published, of `size` bytes of values."""

    def __init__(self, client: "Client", command: Publish) -> None:
        self.client, self.command = client, command
        self.count = self.size = 0
        self.value_max = value_max(client, command.topic)
        self._number = 0        # of the line being sent

    def run(self) -> None:
        from gq_ctl.lines import LongLine, lines, read_stdin
        command = self.command
        bound = self.value_max + (limits.KEY_MAX if command.separator else 0)
        if command.jsonl:
            bound = JSON_LINE_MAX * (bound + limits.KEY_MAX + limits.USER_HEADERS_MAX) + limits.MIB
        send = self._send_json if command.jsonl else self._send_keyed if command.separator else self._send_plain
        progress = Progress("published", time.monotonic)
        wrong = ""
        with self.client.producer(acks=command.acks, compress=command.compression()) as producer:
            try:
                for some in lines(read_stdin, bound, command.keep_cr):
                    send(producer, some)
                    progress.update(self.count)
            except LongLine as e:
                wrong = self._too_long(e.number)
            except TooLarge as e:
                wrong = self._too_long(self._number) if "limit of" in e.message and "value" in e.message else \
                    f"line {self._number}: {e.message}"
            except (ValueError, CallerFault) as e:
                wrong = f"line {self._number}: {e}"
            self._flush(producer)
        progress.done()
        if wrong:
            raise Failed(f"{wrong}; the {self.count} before it were published, nothing after it")

    def _flush(self, producer: Any) -> None:
        try:
            producer.flush()
        except GoQueueError as e:
            raise Failed(f"not all of the {self.count} messages sent could be written: {e.message}", exit_code(e)) from None

    def _too_long(self, number: int) -> str:
        return (f"line {number} is longer than the topic's messages may be ({self.value_max} bytes, raise it with "
                f"`gqctl topic alter {self.command.topic} --max-message-bytes`)")

    def _send_plain(self, producer: Any, some: list[bytes]) -> None:
        send, topic, given = producer.send, self.command.topic, arguments(self.command.draft)
        start = self._number
        for self._number, line in enumerate(some, start + 1):
            send(topic, line, **given)
            self.count += 1
        self.size += sum(map(len, some))

    def _send_keyed(self, producer: Any, some: list[bytes]) -> None:
        separator, given, start = self.command.separator or b"", arguments(self.command.draft), self._number
        for self._number, line in enumerate(some, start + 1):
            key, found, value = line.partition(separator)
            given["key"], value = (key, value) if found else (self.command.draft.key, line)
            producer.send(self.command.topic, value, **given)
            self.count += 1
            self.size += len(value)

    def _send_json(self, producer: Any, some: list[bytes]) -> None:
        now_us, start = time.time_ns() // 1000, self._number
        for self._number, line in enumerate(some, start + 1):
            if not line.strip():
                continue
            draft = merged(parsed(line, now_us), self.command.draft)
            producer.send(self.command.topic, draft.value, **arguments(draft))
            self.count += 1
            self.size += len(draft.value or b"")


def arguments(draft: Draft) -> dict[str, Any]:
    """Of publish and send."""
    found: dict[str, Any] = {"key": draft.key, "headers": draft.headers or None, "partition": draft.partition}
    if draft.priority is not None:
        found["priority"] = draft.priority
    if draft.delay_ms is not None:
        found["delay"] = draft.delay_ms / 1000
    if draft.deliver_at_us is not None:
        found["deliver_at"] = draft.deliver_at_us / 1_000_000
    return found


def value_max(client: "Client", topic: str) -> int:
    """The topic's largest value; the default while it is not there."""
    from gq_proto.errors import UnknownTopic
    try:
        return int(client.topic(topic).config.max_message_bytes)
    except UnknownTopic:
        return limits.VALUE_MAX


def _stdin() -> bytes:
    from gq_ctl.lines import READ_BYTES, read_stdin
    parts = []
    while part := read_stdin(READ_BYTES):
        parts.append(part)
    return b"".join(parts)


def parsed(line: bytes, now_us: int) -> Draft:
    """A line of JSON; ValueError says what is wrong with it."""
    try:
        return from_json(json.loads(line, parse_constant=_constant), now_us)
    except RecursionError:
        raise ValueError("nested too deep") from None


def merged(draft: Draft, default: Draft) -> Draft:
    """What the line does not say is what the options said. Delay and time are two ways to say one thing."""
    said = {name: field for name, field in draft._asdict().items() if name == "value" or field not in (None, [])}
    if "delay_ms" in said or "deliver_at_us" in said:
        default = default._replace(delay_ms=None, deliver_at_us=None)
    return default._replace(**said)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")

"""The demo's workers: one process publishes source lines, others consume, note and ack them. `gq_ctl.demo` starts and kills them.

A worker tells of its progress in JSON lines on stdout. What a consumer got goes to its *notes* before it is acked, with one
write per batch, so that kill -9 at any moment loses no acked line; a note cut short by it is ignored, for its lines were not
acked and come again. Notes, end to end: partition u32, offset u64, delivery u32, key length u32, value length u32, key, value.

Both stop where the director says, until it says how to go on, so that its blows fall in the middle of the work on a quick machine
too: the publisher before a line, a consumer with a batch in hand that is noted and not acked.

Among the lines are two messages of the director's own, CRITICAL and DELAYED by their keys: who gets one tells at once how long
after it was published, or was due, that is.
"""

import argparse
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

TOPIC = "source-lines"
GROUP = "rebuild"
CRITICAL = b"/critical"          # no key of a line begins with a slash
DELAYED = b"/delayed"
OWN = (CRITICAL, DELAYED)
SKIPPED = {"__pycache__", "site-packages", "dist-packages"}
NOTE = struct.Struct(">IQIII")
TELL_S = 0.1
SESSION_S = 10.0         # how soon the lines of a killed consumer come back
NO_LIMIT: Final = sys.maxsize


class Note(NamedTuple):
    """A line as a consumer got it."""

    partition: int
    offset: int
    delivery: int
    key: bytes
    value: bytes


def source_files(root: Path) -> list[Path]:
    """Every Python file below `root`, relative to it, sorted; packages installed beside the library are left out."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED)
        found += [Path(folder, name).relative_to(root) for name in files if name.endswith(".py")]
    return sorted(found)


def source_lines(root: Path) -> Iterator[tuple[bytes, bytes]]:
    """(file name, line) of every line, newline included; the last line of a file may have none."""
    for path in source_files(root):
        key = os.fsencode(path)
        with open(root / path, "rb") as file:
            for line in file:
                yield key, line


def pack_notes(notes: Iterable[Note]) -> bytes:
    return b"".join(part for n in notes for part in (NOTE.pack(n.partition, n.offset, n.delivery, len(n.key), len(n.value)),
                                                     n.key, n.value))


def read_notes(data: bytes) -> Iterator[Note]:
    """The whole notes in `data`; one that is cut short ends it."""
    at = 0
    while at + NOTE.size <= len(data):
        partition, offset, delivery, key_length, value_length = NOTE.unpack_from(data, at)
        key_at = at + NOTE.size
        value_at = key_at + key_length
        at = value_at + value_length
        if at > len(data):
            return
        yield Note(partition, offset, delivery, data[key_at:value_at], data[value_at:at])


def overtaken(notes: Iterable[Note], key: bytes) -> int:
    """How many lines that lie before a message in its partition came after it, for the first time, to the consumer whose notes
    these are. 0 when it did not get that message."""
    rest = iter(notes)
    before: set[tuple[int, int]] = set()
    for note in rest:
        if note.key == key:
            partition, offset = note.partition, note.offset
            return len({(n.partition, n.offset) for n in rest if n.partition == partition and n.offset < offset} - before)
        before.add((note.partition, note.offset))
    return 0


def rebuild(notes: Iterable[Note]) -> tuple[dict[bytes, bytes], int, int]:
    """(file contents by name, lines, how many came again): a partition's lines in the order of their offsets, each once."""
    lines: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    names: dict[bytes, bytes] = {}
    again = 0
    for note in notes:
        if note.key in OWN:
            continue
        place = (note.partition, note.offset)
        again += note.delivery > 1 or place in lines
        lines[place] = (names.setdefault(note.key, note.key), note.value)
    files: dict[bytes, list[bytes]] = {}
    for place in sorted(lines):
        key, value = lines[place]
        files.setdefault(key, []).append(value)
    return {key: b"".join(values) for key, values in files.items()}, len(lines), again


class Teller:
    """Progress for the director, now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def tell(self, *, now: bool = False, **facts: Any) -> None:
        if now or time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_S
            print(json.dumps(facts), flush=True)


def publish(root: Path, hold_at: int) -> None:
    """Every line of `root`, keyed by its file's name. Stops before line `hold_at` until a line comes on stdin: the director has
    used the moment to kill a daemon under full sail."""
    import gq_client

    teller, held, sent, size = Teller(), 0.0, 0, 0
    start = time.monotonic()
    with gq_client.Client() as client, client.producer(timeout=60.0) as producer:
        for key, line in source_lines(root):
            if sent == hold_at:
                before = time.monotonic()
                teller.tell(now=True, sent=sent, holding=True)
                sys.stdin.readline()
                held = time.monotonic() - before
            producer.send(TOPIC, line, key=key)
            sent += 1
            size += len(line)
            if not sent & 0x3FF:
                teller.tell(sent=sent)
        producer.flush()
    teller.tell(now=True, sent=sent, done=True, bytes=size, seconds=time.monotonic() - start - held)


class Gate:
    """Where a consumer stands once it has taken `limit` lines, until a line on stdin says a higher limit. Without a director (stdin
    ended) there is none."""

    def __init__(self, teller: Teller, limit: int) -> None:
        self._teller, self._limit = teller, limit

    def pass_with(self, taken: int) -> None:
        while taken >= self._limit:
            self._teller.tell(now=True, taken=taken, holding=self._limit, since=time.monotonic())
            self._limit = int(sys.stdin.readline() or NO_LIMIT)


def consume(path: Path, hold_at: int) -> None:
    """Take lines, note them in `path`, ack each; until SIGTERM. Stops with the batch that makes it `hold_at` lines."""
    import gq_client

    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    teller, taken, first, last = Teller(), 0, 0.0, 0.0
    gate = Gate(teller, hold_at)
    told: set[bytes] = set()
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with gq_client.Client() as client, client.consumer([TOPIC], GROUP, ack="manual", session=SESSION_S) as consumer:
        while not stopping:
            batch = consumer.poll(timeout=0.25)
            if batch:
                write_all(notes, pack_notes(Note(m.partition, m.offset, m.delivery, m.key or b"", m.value or b"") for m in batch))
                lines = len(batch) - tell_own(batch, told, teller)
                taken += lines
                first = first or time.monotonic()
                gate.pass_with(taken)
                for message in batch:
                    message.ack()
                if lines:
                    last = time.monotonic()
            teller.tell(taken=taken)
    os.close(notes)
    teller.tell(now=True, taken=taken, done=True, first=first, last=last)


def tell_own(batch: Iterable[Any], told: set[bytes], teller: Teller) -> int:
    """Tell of the director's own messages in `batch`, of each once. How many there are."""
    own = [message for message in batch if message.key in OWN]
    for message in own:
        if message.key not in told:
            teller.tell(now=True, **{message.key.decode(): since_due(message)})
            told.add(message.key)
    return len(own)


def since_due(message: Any) -> float:
    """Seconds since it was due, or published."""
    from gq_ctl.message import due_of
    due_us = due_of(message)
    return time.time() - (message.timestamp if due_us is None else due_us) / 1e6


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gq_ctl.demo_work", description=__doc__)
    parser.add_argument("role", choices=["publish", "consume"])
    parser.add_argument("path", type=Path, help="publish: the folder of sources; consume: the file for the notes")
    parser.add_argument("--hold-at", type=int, default=NO_LIMIT, help="lines after which to wait for a line on stdin")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)      # Ctrl-C is the director's to handle
    if args.role == "publish":
        publish(args.path, args.hold_at)
    else:
        consume(args.path, args.hold_at)


if __name__ == "__main__":
    main()

"""`gqctl log verify PATH` and `log dump PATH`: log files alone, no daemon, running or not.

Owns how what `verify` found is shown, and the listing of records, control records included.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from gq_ctl.app import FAILED, NOT_FOUND, Failed, Group, Quiet, settings
from gq_ctl.message import headers_json, shown, to_json
from gq_ctl.output import Output, Progress, Row, plain, say
from gq_ctl.units import show_size, show_time
from gq_proto.names import is_internal

PATH: Final = click.Path(exists=True, path_type=Path)


@click.group("log", cls=Group)
def log_command() -> None:
    """Dump and verify log files; no daemon needed.

    PATH is a data directory, a topic's or a partition's folder in it, or a single segment.
    """


def _path(path: Path | None) -> Path:
    return path or Path(settings().local(), "logs")


@log_command.command("verify")
@click.argument("path", required=False, type=PATH)
def verify(path: Path | None) -> None:
    """Check every record: CRC, offsets in sequence, batches whole, derived files.

    Prints one line a partition with its counts; without PATH the node's data directory. Damage is named on stderr with file and
    position, and the exit code is 1. A torn tail is only mentioned: the daemon cuts it when it starts.
    """
    from gq_ctl.verify import Found, places, verify_place
    progress, seen = Progress("verified", time.monotonic), Found()

    def found() -> Iterator[tuple[Any, Any]]:
        for place in places(_path(path)):
            whole = verify_place(place, lambda count: progress.update(seen.messages + seen.control + count))
            seen.add(whole)
            progress.done()
            yield place, whole

    report(settings().output(), _path(path), found())


def report(output: Output, path: Path, partitions: Iterable[tuple[Any, Any]]) -> None:
    """Show (Place, Found) pairs. Failed when there are none, Quiet when they have problems."""
    from gq_ctl.verify import Found
    rows, total, internal = [], Found(), 0
    for place, found in partitions:
        for note in found.notes:
            say(f"{note} (a torn tail: no damage, the daemon sees to it)")
        for problem in found.problems:
            say(str(problem))
        rows.append(_verified(place, found))
        total.add(found)
        internal += found.messages if is_internal(place.topic) else 0
    if not rows:
        raise Failed(f"no segments below {path}: give a data directory, a partition's folder or a .log file", NOT_FOUND)
    output.rows(rows, "messages", {"bytes": show_size})
    say(f"{total.messages - internal:,} messages, {internal:,} internal ones, in {len(rows)} partitions: "
        f"{f'{len(total.problems)} problems' if total.problems else 'no damage'}")
    if total.problems:
        raise Quiet(FAILED)


def _verified(place: Any, found: Any) -> Row:
    return {"topic": place.topic, "partition": place.partition, "messages": found.messages, "control": found.control,
            "first_offset": found.first_offset if found.first_offset >= 0 else None, "next_offset": found.next_offset,
            "segments": found.segments, "bytes": found.size, "problems": len(found.problems)}


@log_command.command("dump")
@click.argument("path", type=PATH)
@click.option("--from", "start", type=click.IntRange(0), default=0, metavar="OFFSET", help="Begin at this offset.")
@click.option("--max", "most", type=click.IntRange(1), help="Stop after so many records.")
def dump(path: Path, start: int, most: int | None) -> None:
    """Print every record, control records and system headers included.

    -o value prints values only. Damage is named on stderr and passed over; the exit code is then 1.
    """
    from gq_ctl.records import records
    from gq_ctl.verify import places
    out, left, damaged = settings().output(), most if most is not None else -1, False
    table: list[Row] = []
    for place in places(path):
        for segment in place.segments:
            for record in records(segment, place, start):
                if left == 0:
                    break
                if record.problem:
                    say(str(record.problem))
                    damaged = True
                    continue
                left -= 1
                if out.form == "value":
                    out.stdout.write((record.message.raw_value if record.control else record.message.value) or b"")
                    out.stdout.write(b"\n")
                elif out.form == "json":
                    out.json(_json(record))
                else:
                    table.append(_row(record))
    if out.form == "table":
        out.rows(table, "offset", empty="no records")
    out.stdout.flush()
    if damaged:
        raise Quiet(FAILED)


def _json(record: Any) -> Row:
    more: Row = {"position": record.position, "size": record.size, "flags": record.flags}
    if record.message.system_headers:
        more["system_headers"] = headers_json(record.message.system_headers)
    if record.control:
        more["control"] = record.control
        found = to_json(record.message, **more)
        del found["key"], found["value"]
        found.pop("encoding", None)
        found.pop("key_encoding", None)
        return found
    return to_json(record.message, **more)


def _row(record: Any) -> Row:
    message = record.message
    value = plain(record.control) if record.control else shown(message.value)
    return {"offset": message.offset, "position": record.position, "time": show_time(message.timestamp), "size": record.size,
            "priority": message.priority, "flags": record.flags, "key": "" if record.control else shown(message.key),
            "value": value if len(value) <= 60 else value[:57] + "..."}

"""What a reader was asked for: the options of format("goqueue"), parsed and checked.

    path                a data directory, or several with commas between, or a JSON list of them
    topic               a name, several with commas between, or patterns (* ? [..]); all topics but the internal ones
    startingOffsets     earliest (batch's default) | latest (streaming's) | {"topic": {"partition": offset}}, -2 earliest, -1 latest
    endingOffsets       latest | the same JSON; the offset is the first one that is not read. Batch only
    startingTimestamp   RFC 3339 or Unix seconds: from the first record as new as that; endingTimestamp likewise, batch only
    isolation           read_committed | read_uncommitted
    includeDelayed      false: a delayed message comes where it became ready. true: it comes where it lies, due or not
    includeControl      false | true: control records are rows too
    failOnDataLoss      true | false: what is lost is a warning
    pushFilters         false | true: the query's filters on topic, partition, offset and timestamp choose what is read. Needs
                        spark.sql.python.filterPushdown.enabled, and a load() of its own for each query: see gq_spark.source
    minPartitions       into how many tasks at least to cut what is read
    maxOffsetsPerTrigger    how far, in offsets of all partitions together, a micro-batch goes. Streaming only

Names are case-insensitive, as Spark's are. An unknown name or a bad value is an error that names it.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from gq_proto import names
from gq_proto.errors import BadRequest
from gq_proto.record import TIMESTAMP_MAX

EARLIEST: Final = -2
LATEST: Final = -1
Offsets = int | Mapping[str, Mapping[int, int]]     # EARLIEST, LATEST, or by topic and partition

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_TRUTH: Final = {"true": True, "false": False}
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger",)
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "pushFilters")
KNOWN: Final = ("path", "paths", "topic", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "isolation",
                "includeDelayed", "includeControl", "failOnDataLoss", "pushFilters", "minPartitions", "maxOffsetsPerTrigger")


@dataclass(frozen=True)
class Options:
    """Timestamps are Unix microseconds."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] = ("*",)
    starting: Offsets = EARLIEST
    ending: Offsets = LATEST
    starting_us: int | None = None
    ending_us: int | None = None
    committed: bool = True
    include_delayed: bool = False
    include_control: bool = False
    fail_on_data_loss: bool = True
    push_filters: bool = False
    min_partitions: int = 0
    max_offsets: int | None = field(default=None)


def parse(given: Mapping[str, str], streaming: bool = False) -> Options:
    """BadRequest names the option and says what it takes."""
    known = {name.lower(): name for name in KNOWN}
    said = {}
    for name, value in given.items():
        if name.lower() not in known:
            raise BadRequest(f"option {name} is unknown: there are {', '.join(KNOWN)}")
        said[known[name.lower()]] = value.strip()
    for name in _BATCH_ONLY if streaming else _STREAM_ONLY:
        if name in said:
            raise BadRequest(f"option {name} is for {'spark.read' if streaming else 'spark.readStream'} only")
    for which in ("starting", "ending"):
        if f"{which}Offsets" in said and f"{which}Timestamp" in said:
            raise BadRequest(f"{which}Offsets and {which}Timestamp exclude each other")
    return Options(
        paths=_paths(said),
        topics=_topics(said.get("topic", "*")),
        starting=_offsets("startingOffsets", said.get("startingOffsets", "latest" if streaming else "earliest")),
        ending=_offsets("endingOffsets", said.get("endingOffsets", "latest")),
        starting_us=_time("startingTimestamp", said.get("startingTimestamp")),
        ending_us=_time("endingTimestamp", said.get("endingTimestamp")),
        committed=_choice("isolation", said, {"read_committed": True, "read_uncommitted": False}, "read_committed"),
        include_delayed=_choice("includeDelayed", said, _TRUTH, "false"),
        include_control=_choice("includeControl", said, _TRUTH, "false"),
        fail_on_data_loss=_choice("failOnDataLoss", said, _TRUTH, "true"),
        push_filters=_choice("pushFilters", said, _TRUTH, "false"),
        min_partitions=_count("minPartitions", said.get("minPartitions"), 0) or 0,
        max_offsets=_count("maxOffsetsPerTrigger", said.get("maxOffsetsPerTrigger"), 1),
    )


def _paths(said: Mapping[str, str]) -> tuple[str, ...]:
    text = said.get("paths") or said.get("path", "")
    found = _json("path", text) if text.startswith("[") else text.split(",")
    paths = tuple(path.strip().removeprefix("file://") for path in found if isinstance(path, str))
    if not all(paths) or not 0 < len(paths) == len(found):
        raise BadRequest("option path: name a data directory, or several with commas between")
    return paths


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(part.strip() for part in text.split(","))
    for topic in topics:
        if not is_pattern(topic):
            names.check_name("topic", topic)
    return topics


def is_pattern(topic: str) -> bool:
    """Whether it is more than a name."""
    return any(sign in topic for sign in "*?[")


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"option {name} is not JSON: {error}") from None


def _offsets(name: str, text: str) -> Offsets:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    found = _json(name, text)
    try:
        offsets = {topic: {_whole(int(number), 0): _whole(offset) for number, offset in parts.items()}
                   for topic, parts in found.items()}
    except (AttributeError, TypeError, ValueError):
        raise BadRequest(f'option {name}: use earliest, latest or {{"topic": {{"partition": offset}}}}') from None
    return offsets


def _whole(number: Any, least: int = EARLIEST) -> int:
    if type(number) is not int or not least <= number < 2**63:
        raise ValueError
    return number


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    for read in (_from_seconds, _from_words):
        with suppress(ValueError, OverflowError):
            if 0 <= (us := read(text)) <= TIMESTAMP_MAX:
                return us
    raise BadRequest(f"option {name}: {text!r:.80} is no time: use RFC 3339 with a zone, or Unix seconds")


def _from_seconds(text: str) -> int:
    return round(float(text) * 1_000_000)


def _from_words(text: str) -> int:
    return microseconds(datetime.fromisoformat(text))


def microseconds(moment: datetime) -> int:
    """Unix microseconds of an aware moment, exact; ValueError for one without a zone."""
    if moment.tzinfo is None:
        raise ValueError("a moment has a zone")
    whole = moment.replace(microsecond=0)
    return round(whole.timestamp()) * 1_000_000 + moment.microsecond


def _choice(name: str, said: Mapping[str, str], choices: Mapping[str, bool], default: str) -> bool:
    text = said.get(name, default).lower()
    if text not in choices:
        raise BadRequest(f"option {name}: {text!r:.80}: use {' or '.join(choices)}")
    return choices[text]


def _count(name: str, text: str | None, least: int) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18 or int(text) < least:
        raise BadRequest(f"option {name}: {text!r:.80}: use a whole number from {least}, of 18 digits at most")
    return int(text)

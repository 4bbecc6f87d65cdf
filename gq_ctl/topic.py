"""`gqctl topic`: create, list, describe, alter, delete, purge, partitions.

Owns the spelling of a topic's settings as options: SETTINGS is the one list, `create` and `alter` take the same ones.
"""

from collections.abc import Callable
from typing import Any, Final

import click

from gq_ctl.app import Group, settings
from gq_ctl.completion import complete_topic
from gq_ctl.output import Row, Show
from gq_ctl.params import DURATION, DURATION_OR_UNLIMITED, POSITION, SIZE, SIZE_OR_UNLIMITED
from gq_ctl.units import Position, show_duration, show_size, show_time
from gq_proto.names import is_dlq, is_internal

COUNT: Final = click.IntRange(1)

# option, key of TopicConfig (camelCase as it travels), type, help
SETTINGS: Final[list[tuple[str, str, Any, str]]] = [
    ("--retention", "retentionMs", DURATION_OR_UNLIMITED, "Keep messages this long, or unlimited."),
    ("--retention-bytes", "retentionBytes", SIZE_OR_UNLIMITED, "Keep at most this much a partition, or unlimited."),
    ("--segment-size", "segmentBytes", SIZE, "Size of a segment file."),
    ("--timestamp-type", "timestampType", click.Choice(["append", "create"]), "Whose clock stamps: logd's or the producer's."),
    ("--max-message-bytes", "maxMessageBytes", SIZE, "The largest value."),
    ("--min-insync", "minInsync", COUNT, "Replicas that must be in sync for acks=all."),
    ("--schema", "schema", click.Choice(["on", "off"]), "Check values against the topic's schema."),
    ("--visibility", "visibilityMs", DURATION, "How long a consumer may work on a message."),
    ("--max-retries", "maxRetries", COUNT, "The delivery that fails so often goes to the dead letter queue."),
    ("--dlq", "dlqEnabled", click.Choice(["on", "off"]), "off: failed messages are retried for ever."),
    ("--backoff-base", "backoffBaseMs", DURATION, "Wait before the first retry; doubles with each."),
    ("--backoff-max", "backoffMaxMs", DURATION, "The longest wait before a retry."),
]
SHOW: Final[dict[str, Show]] = {
    "retention": show_duration, "retention_ms": show_duration, "retention_bytes": show_size, "segment_bytes": show_size,
    "max_message_bytes": show_size, "visibility_ms": show_duration, "backoff_base_ms": show_duration, "bytes": show_size,
    "backoff_max_ms": show_duration, "created_us": show_time,
}

Function = Callable[..., None]


def _settings(function: Function) -> Function:
    for option, key, type_, text in reversed(SETTINGS):
        function = click.option(option, key, type=type_, help=text)(function)
    return function


def _config(given: dict[str, Any]) -> dict[str, Any]:
    """What was said, as CREATE_TOPIC and ALTER_TOPIC take it."""
    switches = {"on": True, "off": False}
    return {key: switches.get(value, value) if key in ("schema", "dlqEnabled") else value
            for key, value in given.items() if value is not None}


topic_name = click.argument("topic", shell_complete=complete_topic)
partitions_option = click.option("--partitions", type=COUNT, help="Number of partitions; it can only grow.")


@click.group("topic", cls=Group)
def topic_command() -> None:
    """Create, list, describe, alter, purge and delete topics."""


@topic_command.command("create")
@click.argument("topic")
@partitions_option
@click.option("--replication-factor", type=COUNT, help="Copies of each partition.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is fine.")
@_settings
def create(topic: str, partitions: int | None, replication_factor: int | None, if_not_exists: bool, **given: Any) -> None:
    """Create TOPIC. What is not said is the node's default (its goqueue.yaml)."""
    with settings().client() as client:
        made = client.create_topic(topic, partitions=partitions or 0, replication_factor=replication_factor or 0,
                                   config=_config(given), if_not_exists=if_not_exists)
    settings().output().one(_summary(made), "topic", SHOW)


@topic_command.command("list")
@click.option("--all", "every", is_flag=True, help="Internal topics too.")
def list_(every: bool) -> None:
    """List topics."""
    with settings().client() as client:
        topics = sorted(client.topics(), key=lambda topic: topic.name)
    rows = [_summary(topic) for topic in topics if every or not is_internal(topic.name)]
    settings().output().rows(rows, "topic", SHOW, empty="no topics")


def _summary(topic: Any) -> Row:
    return {"topic": topic.name, "partitions": len(topic.partitions), "replication_factor": topic.replication_factor,
            "retention_ms": topic.config.retention_ms, "is_dlq": is_dlq(topic.name), "_id": topic.id}


@topic_command.command("describe")
@topic_name
def describe(topic: str) -> None:
    """Show the settings and the size of TOPIC."""
    from gq_ctl.delayed import waiting
    with settings().client() as client:
        found, parts, counts = client.topic(topic), client.partitions(topic), waiting(client, topic)
    scheduled = sum(counts.values()) if len(counts) == len(found.partitions) else None
    row = {"topic": found.name, "id": found.id, "partitions": len(found.partitions),
           "replication_factor": found.replication_factor, "messages": sum(part.high_watermark - part.log_start for part in parts),
           "bytes": sum(part.size_bytes for part in parts), "scheduled": scheduled, "created_us": found.created_us}
    row |= {name: getattr(found.config, name) for name in found.config.__struct_fields__}
    settings().output().one(row, "topic", SHOW)


@topic_command.command("partitions")
@topic_name
def partitions_(topic: str) -> None:
    """Show each partition of TOPIC: leader, offsets, size, and how many of its messages wait for their time."""
    from gq_ctl.delayed import waiting
    with settings().client() as client:
        found, parts = client.topic(topic), {part.partition: part for part in client.partitions(topic)}
        scheduled = waiting(client, topic)
    rows = [_partition(topic, number, meta, parts.get(number), scheduled.get(number))
            for number, meta in enumerate(found.partitions)]
    settings().output().rows(rows, "partition", SHOW)


def _partition(topic: str, number: int, meta: Any, part: Any, scheduled: int | None) -> Row:
    row: Row = {"topic": topic, "partition": number, "leader": meta.leader, "epoch": meta.epoch, "online": False, "log_start": None,
                "high_watermark": None, "bytes": None, "segments": None, "scheduled": scheduled,
                "problem": "its logd does not answer"}
    if part is not None:
        row |= {"epoch": part.epoch, "online": part.online, "log_start": part.log_start, "high_watermark": part.high_watermark,
                "bytes": part.size_bytes, "segments": part.segments, "problem": part.problem}
    return row


@topic_command.command("alter")
@topic_name
@partitions_option
@_settings
def alter(topic: str, partitions: int | None, **given: Any) -> None:
    """Change settings of TOPIC, or give it more partitions (keys move to other partitions then)."""
    config = _config(given)
    if not config and partitions is None:
        raise click.UsageError("say what to change")
    with settings().client() as client:
        found = client.alter_topic(topic, partitions=partitions or 0, config=config)
    settings().output().one(_summary(found), "topic", SHOW)


@topic_command.command("delete")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topic)
@click.option("--if-exists", is_flag=True, help="A topic that is not there is fine.")
def delete(topics: tuple[str, ...], if_exists: bool) -> None:
    """Delete TOPICS with all their messages. There is no way back."""
    from gq_proto.errors import UnknownTopic
    rows = []
    with settings().client() as client:
        for topic in topics:
            try:
                client.delete_topic(topic)
            except UnknownTopic:
                if not if_exists:
                    raise
            else:
                rows.append({"topic": topic, "deleted": True})
    settings().output().rows(rows, "topic")


@topic_command.command("purge")
@topic_name
@click.option("--partition", type=click.IntRange(0), help="This partition only.")
@click.option("--before", type=POSITION, default="latest", show_default=True, metavar="POSITION",
              help="Keep what is at or after this offset or time.")
def purge(topic: str, partition: int | None, before: Position) -> None:
    """Remove the messages of TOPIC from the beginning on; groups go on behind them."""
    from gq_ctl.positions import resolve
    rows = []
    with settings().client() as client:
        for number, offset in resolve(client, topic, partition, before).items():
            rows.append({"topic": topic, "partition": number, "log_start": client.delete_before(topic, number, offset)})
    settings().output().rows(rows, "log_start")

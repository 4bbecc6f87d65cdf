"""Proto and the client's terms, both ways. Pure. What a message of the proto cannot mean is a BadRequest that names the field."""

from collections.abc import Iterable
from typing import Any, Final

from gq_client.draft import PRIORITIES_BY_NAME
from gq_gateway import goqueue_pb2 as pb
from gq_proto import limits
from gq_proto.codec import Record
from gq_proto.errors import BadRequest
from gq_proto.messages import EARLIEST, LATEST, Assigned, TopicConfig, TopicMeta
from gq_proto.receipt import Receipt, parse_receipt

ACKS: Final = {pb.ACKS_LEADER: "leader", pb.ACKS_ALL: "all", pb.ACKS_NONE: "none"}
MODES: Final = {pb.MODE_AS_IS: "", pb.MODE_PARTITIONED: "partitioned", pb.MODE_SHARED: "shared"}
RECEIPTS_MAX: Final = 10_000        # in one request
CONFIG: Final = [(field.name, "".join([part.capitalize() if i else part for i, part in enumerate(field.name.split("_"))]))
                 for field in pb.TopicConfig.DESCRIPTOR.fields]
assert {name for name, _ in CONFIG} == set(TopicConfig.__struct_fields__), "a topic setting without a field, or the reverse"
assert dict(pb.Priority.items()) == {f"PRIORITY_{name.upper()}": number for name, number in PRIORITIES_BY_NAME.items()}


def acks_of(acks: int) -> str:
    found = ACKS.get(acks)          # type: ignore[call-overload]
    if found is None:
        raise BadRequest(f"acks: {acks} is unknown, use {', '.join(pb.Acks.keys())}")
    return str(found)


def mode_of(mode: int) -> str:
    found = MODES.get(mode)         # type: ignore[call-overload]
    if found is None:
        raise BadRequest(f"mode: {mode} is unknown, use {', '.join(pb.Mode.keys())}")
    return str(found)


def start_of(start: pb.Start) -> str:
    """As gq_proto.messages.Join wants it."""
    kind = start.WhichOneof("at")
    if kind == "time_us":
        if start.time_us < 0:
            raise BadRequest(f"start.time_us: {start.time_us} is not a time in Unix microseconds")
        return str(start.time_us)
    return LATEST if kind == "latest" and start.latest else EARLIEST


# -- publishing -----------------------------------------------------------------------------------

def sending(draft: pb.Draft) -> tuple[Any, ...]:
    """The arguments of a producer's send. What is out of range there is its to say, but for what it could not see."""
    has = draft.HasField
    return (draft.topic,
            draft.value if has("value") else None,
            draft.key if has("key") else None,
            [(header.name, header.value) for header in draft.headers] if draft.headers else None,
            draft.priority if has("priority") else None,
            draft.delay_ms / 1000 if has("delay_ms") else None,
            draft.deliver_at_us / 1_000_000 if has("deliver_at_us") else None,
            _partition(draft.partition) if has("partition") else None)


def _partition(partition: int) -> int:
    if partition < 0:
        raise BadRequest(f"partition: {partition} is below 0")
    return partition


# -- consuming ------------------------------------------------------------------------------------

def add_message(out: Any, message: Record, receipt: str) -> None:
    """Append a message to a repeated field. BadRecord when it does not decode: then nothing is appended."""
    value, headers = message.value, message.headers if message.raw_headers else ()
    made = out.add(topic=message.topic, partition=message.partition, offset=message.offset, timestamp_us=message.timestamp,
                   key=message.key, value=value, priority=message.priority, delivery=message.delivery, receipt=receipt)
    for name, data in headers:
        made.headers.add(name=name, value=data)


def receipts_of(texts: Iterable[str]) -> list[str]:
    """BadRequest when there are none, or too many."""
    found = list(texts)
    if not 1 <= len(found) <= RECEIPTS_MAX:
        raise BadRequest(f"receipts: {len(found)} were given, use 1 to {RECEIPTS_MAX}")
    return found


def parsed(text: str) -> Receipt | BadRequest:
    try:
        return parse_receipt(text)
    except BadRequest as error:
        return error


def assignments(assigned: Iterable[Assigned]) -> list[pb.Assignment]:
    return [pb.Assignment(topic=one.topic, partition=one.partition) for one in assigned]


def milliseconds(name: str, value: int, most: int = limits.VISIBILITY_MS_MAX) -> int:
    """A time that is not negative and not endless."""
    if not 0 <= value <= most:
        raise BadRequest(f"{name}: {value} is out of range, use 0 to {most}")
    return value


# -- topics -----------------------------------------------------------------------------------------

def config_of(config: pb.TopicConfig) -> dict[str, Any]:
    """What was given, by the names of metad."""
    return {camel: getattr(config, name) for name, camel in CONFIG if config.HasField(name)}


def topic_of(topic: TopicMeta) -> pb.Topic:
    config = pb.TopicConfig(**{name: getattr(topic.config, name) for name, _ in CONFIG})
    return pb.Topic(name=topic.name, partitions=len(topic.partitions), replication_factor=topic.replication_factor, config=config,
                    created_us=topic.created_us)

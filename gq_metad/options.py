"""Options that only metad has; the shared ones are in gq_run/settings.py."""

from typing import Final

from gq_metad.topics import Defaults
from gq_proto import limits
from gq_proto.errors import BadConfig
from gq_proto.messages import TopicConfig
from gq_run.options import BYTES, Config, Option

OPTIONS: Final = (
    Option("metad.snapshotBytes", limits.MIB, BYTES, "the metadata log is replaced by a snapshot at this size",
           4 * limits.KIB, 1024 * limits.MIB),
)


def topic_defaults(config: Config) -> Defaults:
    """Of new topics; BadConfig when two options contradict each other."""
    hours = config.number("defaults.topic.retention.hours")
    if config.number("defaults.delivery.backoff.base") > config.number("defaults.delivery.backoff.max"):
        raise BadConfig("defaults.delivery.backoff.base is above defaults.delivery.backoff.max")
    if hours == 0:
        raise BadConfig("defaults.topic.retention.hours is 0: use 1 or more, or -1 (unlimited)")
    settings = TopicConfig(
        retention_ms=hours * 3_600_000 if hours > 0 else -1,
        retention_bytes=config.number("defaults.topic.retention.bytes"),
        segment_bytes=config.number("storage.segmentSize"),
        timestamp_type=config.text("defaults.topic.timestampType"),
        max_message_bytes=config.number("defaults.topic.maxMessageBytes"),
        min_insync=config.number("defaults.topic.minInsync"),
        visibility_ms=config.number("defaults.delivery.visibilityTimeout"),
        max_retries=config.number("defaults.delivery.maxRetries"),
        dlq_enabled=config.switch("defaults.delivery.dlqEnabled"),
        backoff_base_ms=config.number("defaults.delivery.backoff.base"),
        backoff_max_ms=config.number("defaults.delivery.backoff.max"))
    return Defaults(settings, config.number("defaults.topic.partitions"),
                    config.number("defaults.topic.replicationFactor"), config.switch("defaults.topic.autoCreateTopics"))

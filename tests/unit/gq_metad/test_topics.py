"""Settings of topics: each rule's edges, and that a refusal names the setting and what is legal."""

from typing import Any

import pytest

from gq_metad import topics
from gq_metad.options import OPTIONS, topic_defaults
from gq_proto import limits
from gq_proto.errors import BadConfig, BadRequest
from gq_proto.messages import TopicConfig
from gq_run.options import Config
from gq_run.settings import SHARED

DEFAULTS = TopicConfig()


@pytest.mark.parametrize(("name", "value", "says"), [
    ("retentionMs", 0, r"retentionMs is 0: use 1 to \d+ milliseconds, or -1 \(unlimited\)"),
    ("retentionMs", -2, "retentionMs is -2"),
    ("retentionMs", "7d", "retentionMs is '7d'"),
    ("retentionMs", 1.5, "retentionMs is 1.5"),
    ("retentionMs", True, "retentionMs is True"),
    ("retentionBytes", -2, "-1 .unlimited."),
    ("segmentBytes", limits.SEGMENT_BYTES_MIN - 1, "use 65536 to 1073741824 bytes"),
    ("segmentBytes", limits.SEGMENT_BYTES_MAX + 1, "use 65536 to"),
    ("segmentBytes", -1, "use 65536 to"),
    ("timestampType", "Append", "use append or create"),
    ("timestampType", [], "use append or create"),
    ("maxMessageBytes", limits.VALUE_CEILING + 1, "use 1 to 67108864 bytes"),
    ("minInsync", 2, "use 1 to 1"),
    ("schema", True, "use false"),
    ("schema", 0, "use false"),
    ("visibilityMs", 0, "use 1 to 43200000 milliseconds"),
    ("maxRetries", 0, "use 1 to"),
    ("dlqEnabled", 1, "use true or false"),
    ("backoffBaseMs", -1, "use 0 to"),
    ("backoffBaseMs", 60_001, "backoffBaseMs is 60001, above backoffMaxMs, 60000"),
    ("backoffMaxMs", 999, "backoffBaseMs is 1000, above backoffMaxMs, 999"),
    ("retentionMS", 5, r"unknown topic setting 'retentionMS' \(did you mean retentionMs\?\)"),
    ("retention_ms", 5, "unknown topic setting"),
    ("", 5, "unknown topic setting ''"),
])
def test_refusals(name: str, value: Any, says: str) -> None:
    with pytest.raises(BadRequest, match=says) as error:
        topics.changed(DEFAULTS, {name: value}, DEFAULTS)
    assert "\n" not in error.value.message


@pytest.mark.parametrize(("name", "value", "field"), [
    ("retentionMs", -1, "retention_ms"), ("retentionMs", 1, "retention_ms"), ("retentionBytes", 0, "retention_bytes"),
    ("segmentBytes", limits.SEGMENT_BYTES_MIN, "segment_bytes"), ("segmentBytes", limits.SEGMENT_BYTES_MAX, "segment_bytes"),
    ("timestampType", "create", "timestamp_type"), ("maxMessageBytes", limits.VALUE_CEILING, "max_message_bytes"),
    ("schema", False, "schema"), ("dlqEnabled", False, "dlq_enabled"), ("backoffBaseMs", 0, "backoff_base_ms"),
    ("visibilityMs", limits.VISIBILITY_MS_MAX, "visibility_ms"), ("maxRetries", 1, "max_retries"),
])
def test_what_is_legal(name: str, value: Any, field: str) -> None:
    assert getattr(topics.changed(DEFAULTS, {name: value}, DEFAULTS), field) == value


def test_null_is_the_default() -> None:
    own = TopicConfig(max_retries=9, retention_ms=5)
    assert topics.changed(own, {"maxRetries": None}, TopicConfig(max_retries=4)) == TopicConfig(max_retries=4, retention_ms=5)


def test_internal_settings_are_legal() -> None:
    assert topics.changed(DEFAULTS, topics.INTERNAL_CONFIG, DEFAULTS).retention_ms == -1


def config(**given: Any) -> Config:
    options = [*SHARED, *OPTIONS]
    return Config(options, {key.replace("__", "."): value for key, value in given.items()})


def test_defaults_of_the_options_are_those_of_the_format() -> None:
    assert topic_defaults(config()) == topics.Defaults()


def test_options_reach_new_topics() -> None:
    found = topic_defaults(config(defaults__topic__retention__hours=2, defaults__topic__partitions=8,
                                  defaults__topic__autoCreateTopics=False, storage__segmentSize=limits.MIB,
                                  defaults__delivery__visibilityTimeout=1500, defaults__delivery__dlqEnabled=False))
    assert (found.config.retention_ms, found.config.segment_bytes, found.config.visibility_ms) == (7_200_000, limits.MIB, 1500)
    assert (found.partitions, found.auto_create, found.config.dlq_enabled) == (8, False, False)
    assert topic_defaults(config(defaults__topic__retention__hours=-1)).config.retention_ms == -1


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(BadConfig, match=r"defaults\.delivery\.backoff\.base"):
        topic_defaults(config(defaults__delivery__backoff__base=60_001))
    with pytest.raises(BadConfig, match=r"retention\.hours is 0"):
        topic_defaults(config(defaults__topic__retention__hours=0))

"""Settings of a topic: which there are, what is legal, what they are when nobody says.

Owns the rules of TopicConfig, one row a setting. Input is what a caller sent: camelCase names, any msgpack value; null stands for
the default. Every refusal names the setting and what is legal. Pure.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gq_proto import limits
from gq_proto.errors import BadRequest
from gq_proto.messages import TopicConfig
from gq_proto.names import GROUPS_TOPIC, TXN_TOPIC

YEARS_100_MS: Final = 100 * 366 * 86_400_000
EXABYTE: Final = 1 << 60

# Nobody but the daemons writes these; retention would lose state.
INTERNAL_TOPICS: Final = (GROUPS_TOPIC, TXN_TOPIC)
INTERNAL_CONFIG: Final = {"retentionMs": -1, "retentionBytes": -1, "maxMessageBytes": limits.VALUE_CEILING, "dlqEnabled": False}


@dataclass(frozen=True)
class Rule:
    """A whole number within [low, high] (and -1 where `unlimited`), a text out of `choices`, or true and false."""

    unit: str = ""
    low: int = 0
    high: int = 0
    unlimited: bool = False
    choices: tuple[Any, ...] = ()

    def allows(self, value: object) -> bool:
        if self.choices:
            return any(value is choice or (type(value) is type(choice) and value == choice) for choice in self.choices)
        if type(value) is not int:
            return False
        return self.low <= value <= self.high or (self.unlimited and value == -1)

    @property
    def legal(self) -> str:
        if self.choices:
            return " or ".join(str(choice).lower() for choice in self.choices)
        return f"{self.low} to {self.high}{' ' + self.unit if self.unit else ''}{', or -1 (unlimited)' if self.unlimited else ''}"


RULES: Final[Mapping[str, Rule]] = {
    "retentionMs": Rule("milliseconds", 1, YEARS_100_MS, unlimited=True),
    "retentionBytes": Rule("bytes", 0, EXABYTE, unlimited=True),
    "segmentBytes": Rule("bytes", limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX),
    "timestampType": Rule(choices=("append", "create")),
    "maxMessageBytes": Rule("bytes", 1, limits.VALUE_CEILING),
    "minInsync": Rule("", 1, 1),             # grows with replication
    "schema": Rule(choices=(False,)),        # and this with schema checks
    "visibilityMs": Rule("milliseconds", 1, limits.VISIBILITY_MS_MAX),
    "maxRetries": Rule("", 1, 1_000_000),
    "dlqEnabled": Rule(choices=(True, False)),
    "backoffBaseMs": Rule("milliseconds", 0, YEARS_100_MS),
    "backoffMaxMs": Rule("milliseconds", 0, YEARS_100_MS),
}
_FIELDS: Final = {field.encode_name: field.name for field in msgspec.structs.fields(TopicConfig)}
assert _FIELDS.keys() == RULES.keys()


@dataclass(frozen=True)
class Defaults:
    """Of a new topic."""

    config: TopicConfig = field(default_factory=TopicConfig)
    partitions: int = 3
    replication_factor: int = 1
    auto_create: bool = True


def changed(config: TopicConfig, changes: Mapping[str, Any], defaults: TopicConfig) -> TopicConfig:
    """`config` with `changes`; BadRequest names the setting that is wrong."""
    values = {}
    for name, value in changes.items():
        rule = RULES.get(name)
        if rule is None:
            raise BadRequest(f"unknown topic setting {name!r:.100}{_nearest(name)}: use {', '.join(RULES)}")
        if value is not None and not rule.allows(value):
            raise BadRequest(f"topic setting {name} is {value!r:.100}: use {rule.legal}")
        values[_FIELDS[name]] = getattr(defaults, _FIELDS[name]) if value is None else value
    return _consistent(replace(config, **values))


def _consistent(config: TopicConfig) -> TopicConfig:
    if config.backoff_base_ms > config.backoff_max_ms:
        raise BadRequest(f"topic setting backoffBaseMs is {config.backoff_base_ms}, above backoffMaxMs, {config.backoff_max_ms}: "
                         "raise the one or lower the other")
    return config


def _nearest(name: object) -> str:
    close = difflib.get_close_matches(str(name), RULES, 1, 0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def check_partitions(count: int) -> int:
    if not 1 <= count <= limits.PARTITIONS_MAX:
        raise BadRequest(f"partitions is {count}: use 1 to {limits.PARTITIONS_MAX}")
    return count


def check_replication_factor(count: int) -> int:
    if count != 1:
        raise BadRequest(f"replicationFactor is {count}: use 1, this version keeps one copy")
    return count

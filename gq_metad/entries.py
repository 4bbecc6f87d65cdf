"""What metad logs: one struct a kind of fact, and the snapshot that stands for all facts before it.

Wire form (msgpack): an entry is an array whose first element is its tag; fields may be appended with defaults, never removed,
reordered or given another meaning; a tag is never reused. A facts' struct holds results, not requests: applying it needs
no decision, so that a replay ends where the first run did.
"""

from typing import Final

import msgspec
from msgspec import Struct

from gq_proto.messages import DaemonMeta, KeyMeta, TopicMeta


class Entry(Struct, frozen=True, array_like=True):
    """Base of all."""


class ClusterMade(Entry, frozen=True, tag=1):
    cluster_id: str


class TopicPut(Entry, frozen=True, tag=2):
    """The whole of a topic that was made or changed. Its `version` is set by apply."""

    topic: TopicMeta


class TopicDeleted(Entry, frozen=True, tag=3):
    topic_id: int


class DaemonRegistered(Entry, frozen=True, tag=4):
    """A logd gets a new epoch for every partition it leads, and those that have no leader."""

    node_id: str
    daemon: str
    endpoints: list[str]
    curve: str = ""


class ProducersReserved(Entry, frozen=True, tag=5):
    """Ids below `until` may have been given out."""

    until: int


class ProducerBumped(Entry, frozen=True, tag=6):
    producer_id: int
    epoch: int


class KeyPut(Entry, frozen=True, tag=7):
    """A key that was made: a hash of its secret, or a public CURVE key."""

    key: KeyMeta


class KeyRevoked(Entry, frozen=True, tag=8):
    id: str


AnyEntry = ClusterMade | TopicPut | TopicDeleted | DaemonRegistered | ProducersReserved | ProducerBumped | KeyPut | KeyRevoked


class Snapshot(Struct, frozen=True, array_like=True):
    """All hard state. Tombstones are [version, topic id] in the order of their deletion."""

    cluster_id: str
    version: int
    topics: list[TopicMeta]
    tombstones: list[tuple[int, int]]
    forgotten: int
    daemons: list[DaemonMeta]
    producers_until: int
    producer_epochs: list[tuple[int, int]]
    keys: list[KeyMeta] = []
    keys_version: int = 0


_encoder: Final = msgspec.msgpack.Encoder()
_entries: Final = msgspec.msgpack.Decoder(list[AnyEntry])
_snapshot: Final = msgspec.msgpack.Decoder(Snapshot)


def encode(entries: list[AnyEntry]) -> bytes:
    return _encoder.encode(entries)


def decode(data: bytes) -> list[AnyEntry]:
    """msgspec.DecodeError or UnicodeDecodeError for what is none."""
    return _entries.decode(data)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return _encoder.encode(snapshot)


def decode_snapshot(data: bytes) -> Snapshot:
    """msgspec.DecodeError or UnicodeDecodeError for what is none."""
    return _snapshot.decode(data)

"""The authoritative small files of a partition folder: partition.meta, checkpoint, leader-epochs, producers.snapshot.

    magic "GQ", kind u8 ("M" "C" "E" "P"), version u8 (1), payload size u32, payload, crc u32 (CRC-32C over all before it)
    partition.meta       topic id u64, partition u32, format u16, topic name (UTF-8) to the end
    checkpoint           log start u64, recovery point u64, high watermark u64, last stable offset u64, clean u8
    leader-epochs        (epoch u32, start offset u64)*, both ascending
    producers.snapshot   next offset u64, timestamp u64, producers u32, then per producer:
                         id u64, epoch u16, open transaction's first offset i64 (-1 none), timestamp u64, batches u8,
                         then per batch: base sequence u32, count u32, base offset u64

All big-endian. Others write them by atomic rename; whoever finds one damaged gets Corrupt and decides. A payload may grow at its
end within a version (readers ignore the rest, except where a list runs to the end); anything else is a new version.
"""

import struct
from itertools import pairwise
from typing import Final

from crc32c import crc32c
from msgspec import Struct

from gq_proto.errors import Corrupt
from gq_proto.limits import PRODUCER_WINDOW

PARTITION_META: Final = "partition.meta"
CHECKPOINT: Final = "checkpoint"
LEADER_EPOCHS: Final = "leader-epochs"
PRODUCERS: Final = "producers.snapshot"
FORMAT: Final = 1           # of the record log in the folder

_FRAME: Final = struct.Struct(">2scBI")
_META: Final = struct.Struct(">QIH")
_CHECKPOINT: Final = struct.Struct(">QQQQB")
_EPOCH: Final = struct.Struct(">IQ")
_SNAPSHOT: Final = struct.Struct(">QQI")
_PRODUCER: Final = struct.Struct(">QHqQB")
_BATCH: Final = struct.Struct(">IIQ")
_VERSION: Final = 1


class PartitionMeta(Struct, frozen=True):
    """Whose folder this is. The name is for people: identity is the id."""

    topic_id: int
    partition: int
    topic: str
    format: int = FORMAT


class Checkpoint(Struct, frozen=True):
    """Offsets. Below the recovery point the log is synced and was valid; `clean`: nothing follows that needs a scan."""

    log_start: int
    recovery_point: int
    high_watermark: int
    last_stable: int
    clean: bool = False


class LeaderEpoch(Struct, frozen=True):
    """From `start_offset` on the log is of `epoch`."""

    epoch: int
    start_offset: int


class BatchEntry(Struct, frozen=True):
    """One remembered batch of a producer."""

    base_sequence: int
    count: int
    base_offset: int


class ProducerEntry(Struct, frozen=True):
    """A producer's last batches, oldest first, at most PRODUCER_WINDOW."""

    producer_id: int
    epoch: int
    timestamp: int
    batches: tuple[BatchEntry, ...] = ()
    transaction_offset: int = -1


class ProducersSnapshot(Struct, frozen=True):
    """Sequence state of all producers after every record below `next_offset`; least recently used first."""

    next_offset: int
    timestamp: int
    producers: tuple[ProducerEntry, ...] = ()


def _framed(kind: bytes, payload: bytes) -> bytes:
    start = _FRAME.pack(b"GQ", kind, _VERSION, len(payload)) + payload
    return start + crc32c(start).to_bytes(4)


def _payload(raw: bytes, kind: bytes, name: str) -> bytes:
    if len(raw) < _FRAME.size + 4:
        raise Corrupt(f"{name} is cut short")
    magic, letter, version, size = _FRAME.unpack_from(raw)
    if magic != b"GQ" or letter != kind:
        raise Corrupt(f"{name} does not begin with its magic")
    if version != _VERSION:
        raise Corrupt(f"{name} has version {version}: this release reads {_VERSION}")
    if len(raw) != _FRAME.size + size + 4:
        raise Corrupt(f"{name} has {len(raw)} bytes, not {_FRAME.size + size + 4}")
    if crc32c(raw[:-4]) != int.from_bytes(raw[-4:]):
        raise Corrupt(f"{name} does not match its CRC")
    return raw[_FRAME.size : -4]


def encode_partition_meta(meta: PartitionMeta) -> bytes:
    return _framed(b"M", _META.pack(meta.topic_id, meta.partition, meta.format) + meta.topic.encode())


def decode_partition_meta(raw: bytes) -> PartitionMeta:
    payload = _payload(raw, b"M", PARTITION_META)
    try:
        topic_id, partition, format_ = _META.unpack_from(payload)
        return PartitionMeta(topic_id, partition, payload[_META.size :].decode(), format_)
    except (struct.error, UnicodeDecodeError):
        raise Corrupt(f"{PARTITION_META} is malformed") from None


def encode_checkpoint(mark: Checkpoint) -> bytes:
    return _framed(b"C", _CHECKPOINT.pack(mark.log_start, mark.recovery_point, mark.high_watermark, mark.last_stable, mark.clean))


def decode_checkpoint(raw: bytes) -> Checkpoint:
    payload = _payload(raw, b"C", CHECKPOINT)
    try:
        start, recovery, high, stable, clean = _CHECKPOINT.unpack_from(payload)
    except struct.error:
        raise Corrupt(f"{CHECKPOINT} is malformed") from None
    return Checkpoint(start, recovery, high, stable, bool(clean))


def encode_leader_epochs(epochs: list[LeaderEpoch]) -> bytes:
    return _framed(b"E", b"".join([_EPOCH.pack(entry.epoch, entry.start_offset) for entry in epochs]))


def decode_leader_epochs(raw: bytes) -> list[LeaderEpoch]:
    payload = _payload(raw, b"E", LEADER_EPOCHS)
    if len(payload) % _EPOCH.size:
        raise Corrupt(f"{LEADER_EPOCHS} is malformed")
    epochs = [LeaderEpoch(*entry) for entry in _EPOCH.iter_unpack(payload)]
    if any(a.epoch >= b.epoch or a.start_offset > b.start_offset for a, b in pairwise(epochs)):
        raise Corrupt(f"{LEADER_EPOCHS} does not ascend")
    return epochs


def encode_producers(snapshot: ProducersSnapshot) -> bytes:
    parts = [_SNAPSHOT.pack(snapshot.next_offset, snapshot.timestamp, len(snapshot.producers))]
    for producer in snapshot.producers:
        assert len(producer.batches) <= PRODUCER_WINDOW
        parts.append(_PRODUCER.pack(producer.producer_id, producer.epoch, producer.transaction_offset, producer.timestamp,
                                    len(producer.batches)))
        parts += [_BATCH.pack(batch.base_sequence, batch.count, batch.base_offset) for batch in producer.batches]
    return _framed(b"P", b"".join(parts))


def decode_producers(raw: bytes) -> ProducersSnapshot:
    payload = _payload(raw, b"P", PRODUCERS)
    try:
        next_offset, timestamp, count = _SNAPSHOT.unpack_from(payload)
        at, producers = _SNAPSHOT.size, []
        for _ in range(count):
            at, producer = _producer(payload, at)
            producers.append(producer)
    except struct.error:
        raise Corrupt(f"{PRODUCERS} is malformed") from None
    return ProducersSnapshot(next_offset, timestamp, tuple(producers))


def _producer(payload: bytes, at: int) -> tuple[int, ProducerEntry]:
    producer_id, epoch, transaction_offset, timestamp, count = _PRODUCER.unpack_from(payload, at)
    if count > PRODUCER_WINDOW:
        raise Corrupt(f"{PRODUCERS} names {count} batches of a producer")
    at += _PRODUCER.size
    batches = tuple(BatchEntry(*_BATCH.unpack_from(payload, at + number * _BATCH.size)) for number in range(count))
    return at + count * _BATCH.size, ProducerEntry(producer_id, epoch, timestamp, batches, transaction_offset)

"""The authoritative files: round trips; any damage is Corrupt, nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_proto import files as f
from gq_proto.errors import Corrupt

META = f.PartitionMeta(2**64 - 1, 7, "orders-☃")
MARK = f.Checkpoint(1, 2, 3, 2**63, True)
EPOCHS = [f.LeaderEpoch(1, 0), f.LeaderEpoch(3, 0), f.LeaderEpoch(4, 2**40)]
SNAPSHOT = f.ProducersSnapshot(99, 5, (
    f.ProducerEntry(1, 2, 3, tuple(f.BatchEntry(n, 10, 100 + n) for n in range(5)), 17), f.ProducerEntry(2**63 - 1, 0, 4)))
CASES = [
    (f.encode_partition_meta(META), f.decode_partition_meta, META),
    (f.encode_checkpoint(MARK), f.decode_checkpoint, MARK),
    (f.encode_leader_epochs(EPOCHS), f.decode_leader_epochs, EPOCHS),
    (f.encode_leader_epochs([]), f.decode_leader_epochs, []),
    (f.encode_producers(SNAPSHOT), f.decode_producers, SNAPSHOT),
    (f.encode_producers(f.ProducersSnapshot(0, 0)), f.decode_producers, f.ProducersSnapshot(0, 0)),
]


@pytest.mark.parametrize(("raw", "decode", "value"), CASES)
def test_round_trip(raw, decode, value):
    assert decode(raw) == value


@pytest.mark.parametrize(("raw", "decode", "value"), CASES)
def test_any_cut_flip_or_trailing_byte_is_corrupt(raw, decode, value):
    damaged = [raw[:cut] for cut in range(len(raw))] + [raw + b"\0"]
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for bad in damaged:
        with pytest.raises(Corrupt):
            decode(bad)


@pytest.mark.parametrize("decode", {case[1] for case in CASES}, ids=lambda decode: decode.__name__)
def test_another_files_bytes_are_corrupt(decode):
    for raw, own, _ in CASES:
        if own is not decode:
            with pytest.raises(Corrupt, match="magic"):
                decode(raw)


@given(st.sampled_from([b"M", b"C", b"E", b"P"]), st.binary(max_size=120))
def test_any_payload_with_a_right_crc(kind, payload):
    raw = f._framed(kind, payload)
    for _, decode, _ in CASES:
        try:
            decode(raw)
        except Corrupt:
            pass


def test_epochs_must_ascend():
    for epochs in ([(2, 0), (1, 5)], [(1, 5), (2, 4)], [(1, 0), (1, 0)]):
        with pytest.raises(Corrupt, match="ascend"):
            f.decode_leader_epochs(f.encode_leader_epochs([f.LeaderEpoch(*entry) for entry in epochs]))


def test_later_versions_are_refused_and_longer_payloads_read():
    raw = bytearray(f.encode_checkpoint(MARK))
    raw[3] = 2
    with pytest.raises(Corrupt, match="version 2"):
        f.decode_checkpoint(bytes(raw))
    with pytest.raises(Corrupt, match="malformed"):
        f.decode_checkpoint(f._framed(b"C", b"short"))

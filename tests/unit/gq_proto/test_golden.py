"""Golden files: the bytes of every shape of record and file, with what each means. A change here is a change of format.

`pytest --rewrite` writes them anew; the diff is the review. They are checked both ways: the samples encode to these bytes, and the
bytes in the file decode to the words beside them with both codecs.
"""

import re

import pytest

from gq_proto import files as f
from gq_proto import record as r
from gq_proto import segment as s
from gq_proto.control import decode_body
from tests.conftest import GOLDEN
from tests.samples import BASE, NOW, raw_record, samples, stamped

SAMPLES = samples()
DATA = re.compile(r"^  (?:[0-9a-f]{4,}  )?((?:[0-9a-f]{2} ?)+)(?: +\.\.\. .*)?$", re.M)
LONG = 600


def hexed(raw: bytes) -> str:
    """16 bytes a line; the middle of what is very long is left out and counted."""
    if len(raw) > LONG:
        return hexed(raw[:160]) + f"  ... {len(raw) - 192} bytes like the last, CRC-32C of all {crc(raw):08x}\n" + hexed(raw[-32:])
    return "".join(f"  {raw[at : at + 16].hex(' ')}\n" for at in range(0, len(raw), 16))


def crc(raw: bytes) -> int:
    from gq_proto.pure import crc32c
    return crc32c(raw)


def shorten(value: bytes | None) -> str:
    return repr(value) if value is None or len(value) < 100 else f"{len(value)} bytes"


def told(codec, raw: bytes) -> str:
    """What the records say, in words."""
    scan = codec.scan(raw)
    lines = [f"{scan.count} records, offsets {scan.first_offset}..{scan.next_offset - 1}, runs {scan.runs}, then {scan.reason}"]
    if scan.detail:
        lines.append(scan.detail)
    if scan.open_batch:
        lines.append(f"batch cut: {scan.open_batch.present} of {scan.open_batch.count} from position {scan.open_batch.position}")
    lines += [f"batch at {b.offset}: producer {b.producer_id} epoch {b.epoch} sequence {b.base_sequence} count {b.count}"
              for b in scan.batches]
    lines += [f"due: offset {offset} at {due}" for offset, due in zip(scan.due[::2], scan.due[1::2])]
    lines += [f"control at {c.offset}: type {c.type} {decode_body(c.type, c.body)}" for c in scan.controls]
    for m in codec.decode(raw[: scan.position]):
        names = ",".join(r.flag_names(m.flags)) or "none"
        lines.append(f"{m.offset}: time {m.timestamp} {r.PRIORITY_NAMES[m.priority]} flags {names} key {shorten(m.key)} "
                     f"value {shorten(m.value)}")
        lines += [f"    {name!r}: {shorten(value)}" for name, value in (*m.system_headers, *m.headers)]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("name", SAMPLES)
def test_records(golden, codec, name):
    sealed = SAMPLES[name]
    raw = stamped(sealed)
    golden(f"record-{name}.txt", f"sealed by a producer\n{hexed(sealed)}stamped at offset {BASE}, time {NOW}\n{hexed(raw)}means\n"
           + told(codec, raw))


@pytest.mark.parametrize("name", [name for name, sealed in SAMPLES.items() if len(sealed) < LONG])
def test_the_files_own_bytes_decode(codec, name):
    text = (GOLDEN / f"record-{name}.txt").read_text()
    block = text.split("time 1800000000000000\n", 1)[1].split("means\n")[0]
    raw = bytes.fromhex("".join(DATA.findall(block)))
    assert raw == stamped(SAMPLES[name])
    assert text.endswith("means\n" + told(codec, raw))


def test_torn_tail(golden, codec):
    raw = stamped(SAMPLES["idempotent"])
    text = "".join(f"cut at {cut} of {len(raw)}\n{hexed(raw[:cut])}{told(codec, raw[:cut])}" for cut in (len(raw) - 1, 70, 33, 0))
    golden("torn-tail.txt", text)


FIELDS = {"magic": 0, "version": 2, "flags": 3, "crc": 4, "offset": 15, "timestamp": 23, "priority": 24, "codec": 25,
          "key length": 27, "value length": 31, "headers length": 33, "key": 34, "value": 35}


def test_flipped_bits(golden, codec):
    first, second, third = (stamped(raw_record(key=b"%d" % n, value=b"value"), BASE + n) for n in range(3))
    text = f"three records, the middle one with the lowest bit of a byte flipped\n{hexed(first + second + third)}"
    for field, at in FIELDS.items():
        damaged = bytearray(second)
        damaged[at] ^= 1
        raw = first + damaged + third
        scan = codec.scan(raw)
        assert (scan.count, scan.position) == (1, len(first))
        goes_on = codec.find_valid(raw, scan.position + 1, scan.next_offset, 2**62)
        text += f"{field} (byte {at}): {scan.reason}: {scan.detail}; the next valid record is at {goes_on}\n"
    golden("flipped-bits.txt", text)


def test_files(golden):
    text = ""
    for name, raw in (
        (f.PARTITION_META, f.encode_partition_meta(f.PartitionMeta(77, 3, "orders"))),
        (f.CHECKPOINT, f.encode_checkpoint(f.Checkpoint(10, 20, 30, 25, True))),
        (f.LEADER_EPOCHS, f.encode_leader_epochs([f.LeaderEpoch(1, 0), f.LeaderEpoch(3, 20)])),
        (f.PRODUCERS, f.encode_producers(f.ProducersSnapshot(30, NOW, (
            f.ProducerEntry(77, 3, NOW, (f.BatchEntry(0, 10, 5), f.BatchEntry(10, 5, 20)), 20),)))),
    ):
        text += f"{name}\n{hexed(raw)}"
    golden("files.txt", text)


def test_derived_files(golden):
    text = ""
    for kind, entries, footer in (
        (s.Derived.INDEX, s.INDEX_ENTRY.pack(5, 4100), b""),
        (s.Derived.TIMEINDEX, s.pack_times([NOW, 45], 40), s.pack_max_timestamp(NOW)),
        (s.Derived.RUNS, s.RUN_ENTRY.pack(0, 5, 2) + s.RUN_ENTRY.pack(5, 1, 0x22),
         s.pack_lanes([s.Lane(0, -1), s.Lane(0, -1), s.Lane(5, 40), s.Lane(0, -1), s.Lane(0, -1)], 40)),
        (s.Derived.DUE, s.pack_due([43, NOW]), b""),
        (s.Derived.TXNINDEX, s.pack_ranges([41, 2]), b""),
    ):
        header, state = s.derived_header(kind, 40)
        block, state = s.derived_block(state, entries, 5000, 46)
        end, state = s.derived_block(state, footer, 5000, 46, footer=True)
        text += f"{s.segment_name(40, kind.value)}: header, block, footer block\n{hexed(header)}{hexed(block)}{hexed(end)}"
    golden("derived-files.txt", text)

"""`python -m tests.fuzz [--seconds N] [--seed S]`: random and mutated bytes into every decoder, within a bound of time.

Only typed errors may come out; both codecs must agree; a walk must never accept bytes whose CRC is wrong. A failure prints the
seed, the round and the input in hex and ends with 1: the same seed finds it again. A crash of the interpreter shows the round
in the last line of progress (--verbose prints each).
"""

import argparse
import importlib
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from gq_delayd import index
from gq_groupd import entries as journal
from gq_metad import entries as facts
from gq_metad.log import frame, read_frame
from gq_proto import control, files, headers, keys, messages, pure, segment
from gq_proto.compression import decompress
from gq_proto.errors import GoQueueError
from gq_proto.receipt import Receipt, parse_receipt, parse_receipts
from tests.samples import BASE, NOW, log, raw_record, samples, stamped

TOPIC, PARTITION = 9, 3       # of the delay index that blobs are of
EDGES = (0, 1, 2, 5, 6, 0x7F, 0x80, 0xFE, 0xFF)


def seeds() -> list[bytes]:
    """Valid inputs of every decoder, to begin from."""
    blobs = [sealed for sealed in samples().values() if len(sealed) < 5000]
    blobs += [stamped(sealed) for sealed in blobs]
    blobs += [log()[:4000], pure.encode_headers([("a", b"1"), ("gq-x", b""), ("é", b"\xff")])]
    blobs += [files.encode_partition_meta(files.PartitionMeta(1, 2, "t")), files.encode_checkpoint(files.Checkpoint(1, 2, 3, 4)),
              files.encode_leader_epochs([files.LeaderEpoch(1, 0), files.LeaderEpoch(2, 9)]),
              files.encode_producers(files.ProducersSnapshot(9, 9, (files.ProducerEntry(1, 1, 1, (files.BatchEntry(0, 1, 2),)),)))]
    for kind in segment.Derived:
        start, state = segment.derived_header(kind, 40)
        blobs.append(start + segment.derived_block(state, bytes(kind.entry.size * 3), 10, 43)[0])
    blobs += [messages.encode_request(kind, 1, types[0](*[_example(field) for field in _required(types[0])]))
              for kind, types in messages.BODIES.items() if types[0] is not None]
    return [*blobs, *_of_daemons()]


def _of_daemons() -> list[bytes]:
    """Of what one daemon writes for itself, and of what a caller hands in as text."""
    delays = bytearray()
    index.add_pending(delays, [41, NOW, 42, NOW, 50, NOW + 1])
    index.add_ranges(delays, index.State.DELIVERED, [41, 2])
    start = index.header(TOPIC, PARTITION)
    return [start + index.seal(pure.crc32c(start), delays, 60, 1)[0],
            journal.encode(journal.Acked(1, 9, 3, 7, [40, 2, 45, 1])),
            journal.encode(journal.PartSnapshot(1, 9, 3, 0, 1, b"x" * 30)),
            frame(1, 1, facts.encode([facts.ClusterMade("c"), facts.TopicDeleted(4)])),
            Receipt("t", 3, 41, 1, 5, 2, 7, 77).text().encode(), keys.make_token("0123456789ab", 2**150).encode()]


def _required(body: type) -> list[Any]:
    return [field for field in msgspec.structs.fields(body) if field.required]


def _example(field: Any) -> Any:
    kind = field.type if isinstance(field.type, type) else getattr(field.type, "__origin__", object)
    return kind() if kind in (int, str, bytes, list, dict, bool, float) else None


def mutate(random_: random.Random, blobs: list[bytes]) -> bytes:
    """One input: cut, flipped, overwritten, spliced, with lengths blown up, or just noise."""
    raw = bytearray(random_.choice(blobs))
    for _ in range(random_.choice((0, 1, 1, 1, 2, 4, 16))):
        at = random_.randrange(len(raw) + 1)
        way = random_.randrange(7)
        if way == 0:
            raw = raw[:at]
        elif way == 1:
            raw[at:at] = random_.randbytes(random_.randrange(1, 40))
        elif way == 2 and at < len(raw):
            raw[at] ^= 1 << random_.randrange(8)
        elif way == 3:
            size = random_.choice((1, 2, 4, 8))
            raw[at : at + size] = bytes([random_.choice(EDGES)]) * size
        elif way == 4:
            raw[at:] = random_.choice(blobs)[at:]
        elif way == 5:
            raw += random_.choice(blobs)
        else:
            del raw[at : at + random_.randrange(1, 9)]
    return bytes(raw[:20_000])


def recrc(random_: random.Random, raw: bytes) -> bytes:
    """The first record's CRC made right, so that what lies behind the CRC check is reached."""
    if len(raw) < 40:
        return raw
    cut = raw if random_.random() < 0.5 else raw[: random_.randrange(34, len(raw))]
    head = bytearray(cut)
    key, value, section = int.from_bytes(head[26:28]), int.from_bytes(head[28:32]), int.from_bytes(head[32:34])
    total = 34 + (0 if key == 0xFFFF else key) + (0 if value == 0xFFFFFFFF else value) + section
    if total > len(head):
        return bytes(head)
    head[4:8] = pure.crc_of(memoryview(head), 0, total).to_bytes(4)
    return bytes(head)


def built(random_: random.Random) -> bytes:
    """A record with a right CRC and a random header section and flags."""
    section = bytearray()
    count = random_.randrange(5)
    for _ in range(count):
        name = random_.choice((b"gq-batch", b"gq-delay", b"gq-deliver-at", b"gq-x", b"a", b"\xc3\xa9", b"\xff", b""))
        value = random_.randbytes(random_.choice((0, 1, 8, 8, 18, 18)))
        section += len(name).to_bytes(2) + name + len(value).to_bytes(2) + value
    encoded = (count + random_.choice((0, 0, 0, 1))).to_bytes(2) + bytes(section) if count else b""
    return raw_record(flags=random_.choice((0, 1, 2, 4, 8, 0x20, 0x24, random_.randrange(256))), priority=random_.randrange(6),
                      codec=random_.choice((0, 0, 0, 1, 2)), headers=encoded, key=random_.choice((None, b"", b"key!", b"\0\0\0\1")),
                      value=random_.choice((None, b"", random_.randbytes(9))), timestamp=random_.choice((0, NOW, 2**62)))


def outcome(call: Callable[..., Any], *args: Any, **fields: Any) -> Any:
    """The result, or a typed error; anything else goes up and fails the run."""
    try:
        return call(*args, **fields)
    except GoQueueError as error:
        return type(error), str(error)


def decoders(codec: Any, raw: bytes) -> list[Any]:
    """What one codec makes of `raw`, everywhere."""
    frame = bytearray(raw)
    found = outcome(codec.decode, raw, topic="t", skip=[3, 2, 41, 1])
    if isinstance(found, list):
        found = [(m.offset, m.timestamp, m.key, m.raw_value, m.raw_headers, outcome(lambda m=m: m.headers),
                  outcome(lambda m=m: m.value)) for m in found]
    return [
        *gathered(codec, raw), outcome(codec.stamp, frame, BASE, NOW, internal=True), bytes(frame),
        outcome(codec.stamp, bytearray(raw), BASE, NOW, create=True, max_value=50),
        codec.scan(raw), codec.scan(raw, min(7, len(raw)), 41), codec.check(raw), found, outcome(codec.columns, raw, 0, 60),
        outcome(codec.columns, raw, 3, 2**62, [4, 2, 41, 1], 0),
        codec.find_valid(raw, 0, 0, 100), codec.find_valid(raw, 1, 41, 2**62), codec.locate(raw, 0, 43),
        outcome(codec.decode_headers, raw), codec.crc32c(raw), codec.partition_of(raw, 6),
        codec.select_runs(raw, 40, 41, 60, 2, 5),
        codec.lane_counts(raw, 40, 41, 60),
        codec.lane_ranges(raw, 40, 41, 60, 2, 5), codec.lane_ranges(raw, 40, 0, 2**62, 0), codec.lane_totals(raw),
        codec.lanes_within(raw, 40, [38, 5, 50, 9]),
    ]


def gathered(codec: Any, raw: bytes) -> list[Any]:
    """From a file of these bytes, without an index and with one of these bytes, too."""
    file = os.memfd_create("fuzz")
    try:
        os.write(file, raw)
        points = raw[: len(raw) // 8 * 8]
        found = [codec.gather(file, 0, len(raw), ranges, *points_of, max_bytes=most)
                 for ranges in ([0, 2**40], [40, 2, 43, 1, 50, 100]) for points_of in ((), (points, 40)) for most in (1, 2**62)]
        return [(bytes(one.data), list(one.found), one.bad) for one in found]
    finally:
        os.close(file)


def of_daemons(raw: bytes) -> None:
    """What one daemon reads of its own, each with its own way to say no."""
    for block in index.blocks(raw, TOPIC, PARTITION):
        assert block.size <= len(raw)
        list(index.load(raw, block.size))
    for decode in (journal.decode, facts.decode, facts.decode_snapshot):
        try:
            decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    found = read_frame(raw, 0)
    assert found is None or found.end <= len(raw)
    text = raw.decode(errors="replace")
    outcome(parse_receipt, text)
    parse_receipts([text, text[:40]])
    keys.split(raw)


def others(raw: bytes) -> None:
    """Decoders that exist once."""
    for kind in segment.Derived:
        got = segment.read_derived(raw, kind, 40)
        assert got.size <= len(raw) and len(got.payload) % kind.entry.size == 0
    for decode in (files.decode_partition_meta, files.decode_checkpoint, files.decode_leader_epochs, files.decode_producers):
        outcome(decode, raw)
        outcome(decode, files._framed(decode.__name__.split("_")[1][:1].upper().encode(), raw[:200]))
    for type_ in (0, 1, 2, 3, 4, 5, 0x8000):
        outcome(control.decode_body, type_, raw)
    outcome(decompress, raw, 1, 10_000)
    outcome(headers.due_of, [("gq-delay", raw[:8])], 5)
    for decode, body in ((messages.decode_request, messages.request_body), (messages.decode_reply, messages.reply_body)):
        envelope = outcome(decode, raw)
        if not isinstance(envelope, tuple) and envelope.kind in messages.BODIES:     # the server refuses other kinds itself
            outcome(body, envelope)


def one_round(random_: random.Random, blobs: list[bytes], codecs: list[Any]) -> bytes:
    raw = built(random_) if random_.random() < 0.2 else mutate(random_, blobs)
    raw = recrc(random_, raw) if random_.random() < 0.3 else raw
    try:
        results = [decoders(codec, raw) for codec in codecs]
        assert all(result == results[0] for result in results), "the codecs disagree"
        others(raw)
        of_daemons(raw)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\ninput {raw.hex()}") from error
    return raw


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(argv)
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    codecs: list[Any] = [pure]
    try:
        codecs.append(importlib.import_module("gq_proto._codec"))
    except ImportError:
        pass
    print(f"seed {seed}, codecs {', '.join(codec.NAME for codec in codecs)}", flush=True)
    random_, blobs, end, rounds = random.Random(seed), seeds(), time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        if options.verbose:
            print(f"round {rounds}", flush=True)
        try:
            one_round(random_, blobs, codecs)
        except AssertionError as failure:
            print(f"seed {seed}, round {rounds}: {failure}", file=sys.stderr)
            return 1
        rounds += 1
    print(f"{rounds} rounds, nothing but typed errors")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""segment.txt: its example and its numbers are the code's."""

import re
from pathlib import Path

from gq_proto import limits, pure, segment
from gq_proto import record as r
from gq_proto.control import ControlType
from tests.samples import BASE

SPEC = Path(r.__file__).with_name("segment.txt").read_text()


def test_the_example_decodes():
    [(key, value, offset, raw)] = re.findall(r'example: key "(.*)", value "(.*)", offset (\d+)\n +([0-9a-f]+)\n', SPEC)
    [m] = pure.decode(bytes.fromhex(raw))
    assert (m.key, m.value, m.offset) == (key.encode(), value.encode(), int(offset)) and m.offset == BASE


def test_flags_priorities_types_and_suffixes():
    for bit, name in r.FLAG_NAMES.items():
        word = "first of an idempotent batch" if bit == r.BATCH else name
        assert re.search(rf"0x{bit:02x} {word}", SPEC), name
    for priority, name in enumerate(r.PRIORITY_NAMES):
        assert f"{priority} {name}" in SPEC
    for type_ in ControlType:
        assert re.search(rf"\b{type_.value} {type_.name.lower().replace('_', '-')}\b", SPEC), type_
    for kind in segment.Derived:
        assert kind.value in SPEC and f'"{kind.letter.decode()}"' in SPEC


def test_limits():
    assert f"At most {limits.BATCH_MESSAGES_MAX:,} messages, and {limits.BATCH_BYTES_MAX >> 20} MiB" in SPEC
    assert f"at most {limits.DELAY_MS_MAX * 1000:,}" in SPEC
    assert f"at most {limits.VALUE_CEILING >> 20} MiB" in SPEC
    assert f"every {limits.INDEX_INTERVAL_BYTES} bytes" in SPEC


def test_layout_of_the_header():
    at = 0
    for size, field in zip((2, 1, 1, 4, 8, 8, 1, 1, 2, 4, 2), ("magic", "version", "flags", "crc", "offset", "timestamp",
                                                              "priority", "codec", "key length", "value length", "headers length")):
        assert re.search(rf"^ +{at} +{size}  {field}", SPEC, re.M), field
        at += size
    assert at == r.HEADER_SIZE

"""Logs that were harmed while nobody ran: a torn tail is cut to the longest valid prefix and nothing acked is given out twice; a
flipped bit in the middle costs that record alone, is named with file and position, and the daemon serves all else."""

import struct
from pathlib import Path
from typing import Any

import pytest

from gq_client.routing import To
from gq_proto import codec
from gq_proto.errors import Corrupt
from gq_proto.limits import RECORD_HEADER
from gq_proto.messages import Fetch, FetchPart, Isolation, Kind, RangeStatus, TopicMeta
from tests.system.groups import find_topic, make_topic, read_all
from tests.system.harness import Node

FIELDS = {"magic": 0, "version": 2, "flags": 3, "crc": 4, "offset": 15, "timestamp": 23, "priority": 24, "codec": 25,
          "key length": 27, "value length": 31, "headers length": 33, "key": 34, "value": 37, "headers": 45}
COUNT = 20


def segment(node: Node, topic: str) -> Path:
    """The last one."""
    return max((node.data / "logs" / topic / "0").glob("*.log"))


def positions(path: Path) -> list[int]:
    """Where each record of a segment begins, and the end."""
    raw, found, at = path.read_bytes(), [], 0
    while at < len(raw):
        found.append(at)
        key, value, headers = struct.unpack_from(">HIH", raw, at + 26)
        at += RECORD_HEADER + (key if key != 0xFFFF else 0) + (value if value != 0xFFFFFFFF else 0) + headers
    return [*found, len(raw)]


def values(count: int = COUNT) -> list[bytes]:
    return [b"value %d" % n * 3 for n in range(count)]


def fill(client: Any, name: str, count: int = COUNT) -> TopicMeta:
    """Its records stand alone, each with a header; all are known to be on the disk when the node is stopped cleanly."""
    topic = make_topic(client, name, 1)
    for value in values(count):
        client.publish(name, value, b"key", headers=[("h", b"0123456789")], idempotent=False)
    return topic


def fetch(client: Any, topic: TopicMeta, offset: int = -1, ranges: list[int] | None = None) -> tuple[Any, Any]:
    body = Fetch([FetchPart(topic.id, 0, -1, offset, ranges or [])], isolation=Isolation.READ_COMMITTED)
    reply, frames = client.call(Kind.FETCH, body, to=To.leader(topic.id, 0))
    return reply.parts[0], frames[0]


def test_a_tail_cut_anywhere_is_cut_back_to_whole_records(node: Node) -> None:
    """One topic for each cut, so that one start recovers them all: every third byte of the last record, and where fields of the two
    before it begin. (Every byte of three records are tried on the core alone, in its unit tests.)"""
    with node.client() as client:
        first = fill(client, "cut-0", 5)
    node.terminate()
    source = segment(node, first.name)
    ends = positions(source)
    whole = source.read_bytes()
    last = range(ends[-2], ends[-1], 3)
    before = [end + at for end in ends[-4:-2] for at in (0, 1, 3, 8, 24, 33, 34, 40)]
    node.start()
    with node.client() as client:
        topics = {size: fill(client, f"cut-{size}", 5) for size in [*before, *last]}
    node.kill9()
    for size, topic in topics.items():
        path = segment(node, topic.name)
        assert positions(path) == ends and len(whole) == path.stat().st_size
        assert not (path.parent / "checkpoint").exists() or _forget(path)
        with path.open("r+b") as file:
            file.truncate(size)
    node.start()
    with node.client() as client:
        for size, topic in topics.items():
            kept = sum(end <= size for end in ends[1:]) - 1      # without the leader-change record
            assert [record.value for record in read_all(client, topic)] == values(5)[:kept], f"cut at {size}"
            at = client.publish(topic.name, b"new", b"key").offset
            assert at > kept, f"cut at {size}"
            assert [record.value for record in read_all(client, topic)] == [*values(5)[:kept], b"new"]
    node.gqctl("log", "verify")


def _forget(path: Path) -> bool:
    """A power loss before anything was synced: the checkpoint knows of nothing, derived files were not written."""
    for other in path.parent.iterdir():
        if other.name == "checkpoint" or other.suffix in (".index", ".timeindex", ".runs", ".due", ".txnindex"):
            other.unlink()
    return True


def test_offsets_that_were_acked_and_synced_are_not_given_out_again(node: Node) -> None:
    with node.client() as client:
        topic = fill(client, "used")
    node.terminate()
    path = segment(node, topic.name)
    ends = positions(path)
    with path.open("r+b") as file:
        file.truncate(ends[-3] + 7)
    node.start()
    with node.client() as client:
        found = find_topic(client, topic.name)
        assert found
        assert client.publish(topic.name, b"new").offset > COUNT
        assert [record.value for record in read_all(client, found)] == [*values()[:-2], b"new"]


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_a_flipped_bit_in_the_middle_costs_that_record_alone(node: Node, stop: str) -> None:
    with node.client() as client:
        topics = {field: fill(client, f"flip-{at}") for field, at in FIELDS.items()}
    node.kill9() if stop == "kill" else node.terminate()
    sizes, marks = {}, {}
    bad = 10                                                     # its offset; 0 is the leader-change record
    for field, topic in topics.items():
        path = segment(node, topic.name)
        data = bytearray(path.read_bytes())
        marks[field] = positions(path)[bad]
        data[marks[field] + FIELDS[field]] ^= 1
        path.write_bytes(data)
        sizes[path] = len(data)
    pids = node.start().pids
    with node.client() as client:
        for field, topic in topics.items():
            _damaged(node, client, topic, bad, marks[field], field)
    _told_by_verify(node, marks, topics)
    for path, size in sizes.items():
        assert path.stat().st_size >= size, "nothing was truncated"
    assert node.pids == pids
    node.crash()
    with node.client() as client:                                # and so it stays
        for field, topic in topics.items():
            _damaged(node, client, topic, bad, marks[field], field)


def _damaged(node: Node, client: Any, topic: TopicMeta, bad: int, position: int, field: str) -> None:
    path = segment_with_damage(node, topic.name)
    part, _ = fetch(client, topic, bad)
    assert part.error == Corrupt.code, field
    assert path.name in part.message and str(position) in part.message, (field, part.message)
    assert part.next_offset == bad + 1, field
    low, data = fetch(client, topic, 0)
    assert not low.error and low.next_offset == bad
    records = codec.decode(data, codec.Record, topic.name, 0)
    high, data = fetch(client, topic, bad + 1)
    assert not high.error, field
    records += codec.decode(data, codec.Record, topic.name, 0)
    assert [record.value for record in records][:COUNT - 1] == values()[:bad - 1] + values()[bad:], field
    some, data = fetch(client, topic, ranges=[bad - 2, 5])
    assert some.status == [RangeStatus.CORRUPT], field
    records = codec.decode(data, codec.Record, topic.name, 0)
    assert [record.offset for record in records] == [bad - 2, bad - 1, bad + 1, bad + 2], field
    at = client.publish(topic.name, b"new").offset
    assert at > COUNT, field
    _, data = fetch(client, topic, at)
    assert [record.value for record in codec.decode(data, codec.Record, topic.name, 0)] == [b"new"]


def _told_by_verify(node: Node, marks: dict[str, int], topics: dict[str, TopicMeta]) -> None:
    """Without a daemon, for all at once."""
    verified = node.gqctl("log", "verify", str(node.data / "logs"), check=False)
    assert verified.returncode == 1
    for field, topic in topics.items():
        named = f"{segment_with_damage(node, topic.name)}: position {marks[field]}:"
        assert named.encode() in verified.stderr, (field, verified.stderr)


def segment_with_damage(node: Node, topic: str) -> Path:
    return min((node.data / "logs" / topic / "0").glob("*.log"))


def test_a_bit_that_flips_under_a_running_daemon_is_told_by_a_fetch(node: Node) -> None:
    with node.client() as client:
        topic = fill(client, "rot")
        path = segment(node, topic.name)
        position = positions(path)[5]
        with path.open("r+b") as file:
            file.seek(position + FIELDS["value"])
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 0x40]))
        part, _ = fetch(client, topic, 5)
        assert part.error == Corrupt.code and path.name in part.message and str(position) in part.message
        with pytest.raises(Corrupt), client.reader(topic.name, 0, 0, stop_at_end=True) as reader:
            list(reader)
        with client.reader(topic.name, 0, 6, stop_at_end=True) as reader:
            assert [record.value for record in reader] == values()[5:]
        assert client.publish(topic.name, b"new").offset == COUNT + 1

"""What a topic's settings, clock and name promise, over restarts: stamps never decrease, retention takes whole sealed segments,
a topic made anew is another one."""

import time
from typing import Any

import pytest

from gq_client.routing import To
from gq_proto import codec
from gq_proto.errors import GoQueueError, UnknownTopicId
from gq_proto.messages import Kind, Produce, ProducePart
from tests.system.groups import alter_topic, delete_topic, find_topic, make_topic, put, read_all
from tests.system.harness import Node, until


def test_timestamps_never_decrease_over_restarts(node: Node) -> None:
    with node.client() as client:
        topic = make_topic(client, "stamps", 1)
        stamps = [client.publish("stamps", b"0").timestamp]
        for restart in (node.crash, node.restart, node.crash):
            restart("logd")
            stamps += [client.publish("stamps", b"x").timestamp for _ in range(3)]
        found = [record.timestamp for record in read_all(client, topic)]
        assert found == sorted(found)
        assert stamps == found, "also of what was sent twice"
        assert client.offset_for_time("stamps", 0, found[4]) <= read_all(client, topic)[4].offset


def test_a_clock_far_ahead_in_the_log_holds_stamps_up_but_nothing_else(node: Node) -> None:
    """As if the wall clock had been an hour ahead before a restart: the last record's stamp is later than now."""
    with node.client() as client:
        topic = make_topic(client, "ahead", 1, timestampType="create")
        ahead = time.time_ns() // 1000 + 3_000_000_000
        builder = codec.BatchBuilder()
        builder.add(b"k", b"ahead", timestamp=ahead)
        reply, _ = client.call(Kind.PRODUCE, Produce([ProducePart(topic.id, 0)]), [builder.seal()], to=To.leader(topic.id, 0))
        assert not reply.parts[0].error, reply.parts[0].message
        alter_topic(client, "ahead", timestampType="append")
        node.crash("logd")
        assert client.publish("ahead", b"behind").timestamp >= ahead
        assert client.publish("ahead", b"and on").timestamp >= ahead
        stamps = [record.timestamp for record in read_all(client, topic)]
        assert stamps[0] == ahead and stamps == sorted(stamps)
        with client.consumer("ahead", "ahead-g") as consumer:
            assert [m.value for m in consumer.poll(3, timeout=10)] == [b"ahead", b"behind", b"and on"]


def test_retention_by_size_takes_whole_sealed_segments(node: Node) -> None:
    with node.client() as client:
        topic = make_topic(client, "sized", 1, segmentBytes=65_536, retentionBytes=200_000)
        folder = node.data / "logs/sized/0"
        bases: set[int] = set()
        for n in range(60):
            put(client, topic, [b"%05d" % (n * 10 + i) + b"x" * 1000 for i in range(10)])
            bases |= {int(path.stem) for path in folder.glob("*.log")}
        last = until(lambda: _small_enough(client, 200_000 + 2 * 65_536), "old segments go", 10)
        assert last.log_start in bases, "a segment goes whole or not at all"
        assert last.high_watermark == 601 and last.size_bytes >= 200_000
        until(lambda: min(int(path.stem) for path in folder.glob("*.log")) == client.partitions("sized")[0].log_start,
              "their files are gone", 10)             # the start may have moved on since
        values = [int(record.value[:5]) for record in read_all(client, topic)]
        assert values == list(range(values[0], 600)) and values[0] + 1 in bases and values[0] >= last.log_start - 1
        node.crash("logd")                          # a start looks anew: the live segment counts as well
        left = [int(record.value[:5]) for record in read_all(client, topic)]
        assert left == values[-len(left):] and left[0] + 1 in bases
        assert client.partitions("sized")[0].size_bytes >= 200_000
        alter_topic(client, "sized", retentionBytes=1)
        until(lambda: client.partitions("sized")[0].segments == 1, "all but the live segment", 10)
        assert put(client, topic, [b"alive"]) == client.partitions("sized")[0].high_watermark


def _small_enough(client: Any, most: int) -> Any:
    [part] = client.partitions("sized")
    return part if part.size_bytes <= most and part.log_start > 0 else None


def test_a_topic_made_anew_is_another_topic(node: Node) -> None:
    with node.client() as client, node.client() as other:
        old = make_topic(client, "again", 2)
        put(client, old, [b"old"] * 10)
        other.publish("again", b"old", partition=1)
        delete_topic(client, "again")
        new = make_topic(client, "again", 1)
        assert new.id != old.id
        assert read_all(client, new) == []
        with pytest.raises(UnknownTopicId):
            put(client, old, [b"late"])
        assert other.publish("again", b"new").partition == 0, "who knew the old one finds the new one"
        node.crash()
        found = find_topic(client, "again")
        assert found and found.id == new.id
        assert [record.value for record in read_all(client, found)] == [b"new"]
        logs = node.data / "logs"
        until(lambda: not [*logs.glob("*.deleted"), *logs.glob("again/1")], "the old one's files go", 10)


def test_a_topic_deleted_while_logd_is_away_is_gone_when_it_is_back(node: Node) -> None:
    with node.client(timeout=3) as client:
        topic = make_topic(client, "away", 1)
        put(client, topic, [b"x"] * 10)
        node.kill9("logd")
        with pytest.raises(GoQueueError):
            delete_topic(client, "away")            # nobody there to apply it: it says so, and holds
        node.start("logd")
        until(lambda: find_topic(client, "away") is None, "deleted", 10)
        until(lambda: not (node.data / "logs/away").exists(), "its folder goes", 10)

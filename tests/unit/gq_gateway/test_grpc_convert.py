"""Proto and the client's terms: nothing is lost between null and empty, none of what is out of range passes."""

import pytest

from gq_gateway import goqueue_pb2 as pb
from gq_gateway.polls import size_of
from gq_gateway.rpc import convert
from gq_proto.codec import Record, encode_headers
from gq_proto.errors import BadRecord, BadRequest
from gq_proto.messages import PartitionMeta, TopicConfig, TopicMeta
from gq_proto.record import COMPRESSED


def test_null_and_empty_are_distinct_both_ways() -> None:
    assert convert.sending(pb.Draft(topic="t"))[:3] == ("t", None, None)
    assert convert.sending(pb.Draft(topic="t", value=b"", key=b""))[:3] == ("t", b"", b"")
    out = pb.PollResponse()
    for key, value in ((None, b""), (b"", None)):
        convert.add_message(out.messages, Record("t", 0, 1, 2, key=key, value=value), "r")
    first, second = out.messages
    assert (first.HasField("key"), first.HasField("value"), second.HasField("key"), second.HasField("value")) == (
        False, True, True, False)


def test_a_draft_becomes_the_arguments_of_send() -> None:
    draft = pb.Draft(topic="t", value=b"v", key=b"k", headers=[pb.Header(name="a", value=b"1"), pb.Header(name="a", value=b"2")],
                     priority=pb.PRIORITY_CRITICAL, partition=0, delay_ms=1500)
    assert convert.sending(draft) == ("t", b"v", b"k", [("a", b"1"), ("a", b"2")], 0, 1.5, None, 0)
    assert convert.sending(pb.Draft(topic="t", deliver_at_us=1_700_000_000_123_456))[6] == 1_700_000_000.123456
    with pytest.raises(BadRequest, match="partition: -1"):
        convert.sending(pb.Draft(topic="t", partition=-1))


def test_a_message_keeps_what_it_has() -> None:
    raw = encode_headers([("a", b"1"), ("a", b"\xff")])
    out = pb.PollResponse()
    convert.add_message(out.messages, Record("t", 2, 2**53 - 1, 7, 4, 0, b"k", b"v", raw, None, 3), "receipt")
    made = out.messages[0]
    assert (made.topic, made.partition, made.offset, made.timestamp_us, made.priority, made.delivery, made.receipt) == (
        "t", 2, 2**53 - 1, 7, pb.PRIORITY_BACKGROUND, 3, "receipt")
    assert [(header.name, header.value) for header in made.headers] == [("a", b"1"), ("a", b"\xff")]


def test_what_does_not_decode_is_said_before_anything_is_appended() -> None:
    broken = Record("t", 0, 1, 2, flags=COMPRESSED, value=b"no zstd frame")
    out = pb.PollResponse()
    with pytest.raises(BadRecord):
        convert.add_message(out.messages, broken, "r")
    with pytest.raises(BadRecord):
        size_of(broken)
    assert not out.messages


def test_size_of_is_never_less_than_what_a_message_takes() -> None:
    headers = encode_headers([("a" * 100, b"b")] * 50)
    large = Record("t", 1, 1, 1, key=b"k" * 999, value=b"v" * 9999, raw_headers=headers)
    for record in (Record("t" * 196, 1, 2**53, 2**53), large):
        out = pb.PollResponse()
        convert.add_message(out.messages, record, f"{record.topic}:1:{record.offset}:1:{'n' * 24}")
        assert out.ByteSize() <= size_of(record) + 2 * len(record.topic)


def test_settings_of_a_topic_there_and_back() -> None:
    config = TopicConfig(retention_ms=-1, timestamp_type="create", dlq_enabled=False, max_retries=9)
    topic = convert.topic_of(TopicMeta("t", 1, config, [PartitionMeta("n", 1)] * 3, 1, 99))
    assert (topic.name, topic.partitions, topic.replication_factor, topic.created_us) == ("t", 3, 1, 99)
    given = convert.config_of(topic.config)
    assert given["retentionMs"] == -1 and given["dlqEnabled"] is False and given["maxRetries"] == 9
    assert len(given) == len(TopicConfig.__struct_fields__)
    assert convert.config_of(pb.TopicConfig(max_retries=0)) == {"maxRetries": 0}


@pytest.mark.parametrize("start, said", [
    (pb.Start(), "earliest"), (pb.Start(latest=True), "latest"), (pb.Start(earliest=True), "earliest"), (pb.Start(time_us=5), "5")])
def test_where_a_group_begins(start: pb.Start, said: str) -> None:
    assert convert.start_of(start) == said


def test_what_is_out_of_range_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match=r"start\.time_us"):
        convert.start_of(pb.Start(time_us=-1))
    with pytest.raises(BadRequest, match="mode: 9 is unknown, use MODE_AS_IS"):
        convert.mode_of(9)
    with pytest.raises(BadRequest, match="acks: 9 is unknown"):
        convert.acks_of(9)
    with pytest.raises(BadRequest, match="receipts: 0 were given"):
        convert.receipts_of([])
    with pytest.raises(BadRequest, match="10001 were given"):
        convert.receipts_of(["r"] * 10_001)
    with pytest.raises(BadRequest, match="wait_ms: -1"):
        convert.milliseconds("wait_ms", -1)

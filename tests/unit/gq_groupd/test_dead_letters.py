"""Copying dead letters against a hand-played metad and logd."""

from typing import Any

from gq_groupd.dead_letters import DeadLetters
from gq_groupd.effects import CopyDeadLetters, DeadLetter, DeadLetterEnd, DeadLettersCopied, PrepareDeadLetters
from gq_proto import codec
from gq_proto.compression import compress
from gq_proto.errors import GoQueueError, Unavailable, UnknownTopicId
from gq_proto.messages import (
    Fetched,
    FetchReply,
    Kind,
    PartitionInfo,
    PartitionMeta,
    PartitionsReply,
    Produced,
    ProduceReply,
    RangeStatus,
    TopicConfig,
    TopicMeta,
    TopicReply,
)
from gq_proto.record import COMPRESSED

ORIGIN, DLQ = 7, 8


def topic(name: str, id: int, partitions: int, **config: Any) -> TopicMeta:
    return TopicMeta(name, id, TopicConfig(**config), [PartitionMeta("n", 1)] * partitions)


class Frame:
    def __init__(self, data: bytes) -> None:
        self.buffer = memoryview(data)


class Cluster:
    """Two partitions of records, a metad that knows two topics. `fail` names the request number that ends in doubt."""

    def __init__(self, dlq_partitions: int = 2) -> None:
        self.origin: dict[int, bytes] = {}
        self.status: dict[int, RangeStatus] = {}
        self.dlq: list[bytes] = []
        self.dlq_partitions = dlq_partitions
        self.origin_topic: TopicMeta | None = topic("t", ORIGIN, 2)
        self.kinds: list[Kind] = []
        self.calls: list[Any] = []
        self.fail = -1
        self.parts_max = 100

    def later(self, call: Any) -> None:
        self.calls.append(call)

    def run(self) -> None:
        while self.calls:
            self.calls.pop(0)()

    def topic(self, topic_id: int) -> TopicMeta | None:
        return self.origin_topic

    def to_metad(self, kind: Kind, body: Any, done: Any, timeout_s: float = 0) -> None:
        if kind == Kind.ALTER_TOPIC:
            self.dlq_partitions = body.partitions
        self._answer(kind, done, lambda: (TopicReply(topic("t.dlq", DLQ, self.dlq_partitions), 1), []))

    def to_leader(self, topic_id: int, partition: int, kind: Kind, body: Any, done: Any, frames: Any = (), **_: Any) -> None:
        assert partition == 1
        if kind == Kind.PARTITIONS:
            self._answer(kind, done, lambda: (PartitionsReply([info(1, len(self.dlq))]), []))
        elif kind == Kind.PRODUCE:
            self._answer(kind, done, lambda: (ProduceReply([Produced(0, base_offset=self.write(frames[0]))]), []))
        elif topic_id == ORIGIN:
            self._answer(kind, done, lambda: self._origin(body.parts[0]))
        else:
            self._answer(kind, done, lambda: self._dlq(body.parts[0]))

    def _answer(self, kind: Kind, done: Any, make: Any) -> None:
        self.kinds.append(kind)
        if len(self.kinds) - 1 == self.fail:
            self.calls.append(lambda: (make(), done(None, [], Unavailable("the line broke"))))
        else:
            self.calls.append(lambda: done(*make(), None))

    def put(self, offset: int, value: bytes, headers: Any = (), flags: int = 0, codec_: int = 0) -> None:
        builder = codec.BatchBuilder()
        builder.add(b"key", value, codec.encode_headers(headers), 4, flags, codec_)
        frame = bytearray(builder.seal())
        codec.stamp(frame, offset, 1)
        self.origin[offset] = bytes(frame)

    def write(self, frame: bytes) -> int:
        data = bytearray(frame)
        codec.stamp(data, len(self.dlq), 1, internal=True)
        base = len(self.dlq)
        for record in codec.decode(data, codec.Record):
            start = codec.locate(data, 0, record.offset)
            end = codec.locate(data, 0, record.offset + 1)
            self.dlq.append(bytes(data[start:end if end >= 0 else len(data)]))
        return base

    def _origin(self, part: Any) -> Any:
        asked = part.ranges[::2][:self.parts_max]
        status = [self.status.get(o, RangeStatus.OK if o in self.origin else RangeStatus.GONE) for o in part.ranges[::2]]
        data = b"".join(self.origin[o] for o in asked if self.status.get(o, 0) == RangeStatus.OK and o in self.origin)
        return FetchReply([Fetched(0, status=status, covered=len(asked))]), [Frame(data)]

    def _dlq(self, part: Any) -> Any:
        some = self.dlq[part.offset:part.offset + 2]
        return (FetchReply([Fetched(0, next_offset=part.offset + len(some), high_watermark=len(self.dlq))]),
                [Frame(b"".join(some))])

    def letters(self) -> list[codec.Record]:
        return codec.decode(b"".join(self.dlq), codec.Record)


def info(partition: int, end: int) -> PartitionInfo:
    return PartitionInfo(DLQ, "t.dlq", partition, 1, True, True, 0, end, end, 0, 1)


def ask(*offsets: int, scan: bool = False, end: int = 0, group: str = "g") -> CopyDeadLetters:
    return CopyDeadLetters(group, ORIGIN, "t", 1, DLQ, end, scan, tuple(DeadLetter(o, 3, "bad ü", 99) for o in offsets))


def copy(cluster: Cluster, wanted: CopyDeadLetters) -> DeadLettersCopied | GoQueueError:
    got: list[Any] = []
    DeadLetters(cluster).copy(wanted, lambda reply, error: got.append(reply or error))  # type: ignore[arg-type]
    cluster.run()
    assert len(got) == 1
    return got[0]  # type: ignore[no-any-return]


def test_a_copy_is_the_message_and_where_it_came_from() -> None:
    cluster = Cluster()
    cluster.put(5, b"value", [("x", b"1"), ("x", b"2")])
    plain = b"long " * 50
    cluster.put(6, compress(plain), flags=COMPRESSED, codec_=1)
    assert copy(cluster, ask(5, 6)) == DeadLettersCopied([5, 2], [])
    first, second = cluster.letters()
    assert (first.key, first.value, first.headers, first.priority) == (b"key", b"value", [("x", b"1"), ("x", b"2")], 4)
    assert first.system_headers == [
        ("gq-dlq-topic", b"t"), ("gq-dlq-partition", b"1"), ("gq-dlq-offset", b"5"), ("gq-dlq-count", b"3"),
        ("gq-dlq-reason", "bad ü".encode()), ("gq-dlq-time", b"99"), ("gq-dlq-group", b"g")]
    assert second.value == plain and second.flags & COMPRESSED


def test_gone_ones_are_said_and_damaged_ones_leave_their_place() -> None:
    cluster = Cluster()
    cluster.put(1, b"a")
    cluster.put(2, b"b")
    cluster.status[2] = RangeStatus.CORRUPT
    assert copy(cluster, ask(1, 2, 3)) == DeadLettersCopied([1, 2], [3, 1])
    damaged = cluster.letters()[1]
    assert damaged.key is None and damaged.value is None
    assert b"cannot be read" in dict(damaged.system_headers)["gq-dlq-reason"]


def test_many_are_copied_part_by_part() -> None:
    cluster = Cluster()
    for offset in range(10):
        cluster.put(offset, b"%d" % offset)
    cluster.parts_max = 4
    assert copy(cluster, ask(*range(10))) == DeadLettersCopied([0, 10], [])
    assert [r.value for r in cluster.letters()] == [b"%d" % i for i in range(10)]


def test_wherever_a_try_breaks_off_the_next_one_leaves_one_copy_each() -> None:
    for fail in range(8):
        cluster = Cluster()
        for offset in range(6):
            cluster.put(offset, b"%d" % offset)
        cluster.parts_max = 2
        copy(cluster, ask(0, 1, 2, group="other"))
        end = len(cluster.dlq)
        cluster.fail = len(cluster.kinds) + fail
        answer = copy(cluster, ask(*range(6), end=end))
        if fail <= 5:
            assert isinstance(answer, Unavailable)
        cluster.fail = -1
        assert copy(cluster, ask(*range(6), end=end, scan=True)) == DeadLettersCopied([0, 6], [])
        mine = [r for r in cluster.letters() if dict(r.system_headers)["gq-dlq-group"] == b"g"]
        assert sorted(r.value or b"" for r in mine) == [b"%d" % i for i in range(6)], f"broken off at request {fail}"


def prepared(cluster: Cluster) -> Any:
    got: list[Any] = []
    DeadLetters(cluster).prepare(PrepareDeadLetters(ORIGIN, "t", 1), lambda r, e: got.append(r or e))  # type: ignore[arg-type]
    cluster.run()
    assert len(got) == 1
    return got[0]


def test_the_dlq_is_made_and_grows_with_its_topic() -> None:
    cluster = Cluster(dlq_partitions=1)
    cluster.dlq = [b"x"] * 3
    assert prepared(cluster) == DeadLetterEnd(DLQ, 3)
    assert cluster.kinds == [Kind.CREATE_TOPIC, Kind.ALTER_TOPIC, Kind.PARTITIONS] and cluster.dlq_partitions == 2


def test_no_dlq_for_a_topic_that_is_gone() -> None:
    cluster = Cluster()
    cluster.origin_topic = None
    assert isinstance(prepared(cluster), UnknownTopicId)

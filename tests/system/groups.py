"""What tests of groups need beside a node: topics, messages, eyes on a group, and consumers in processes of their own.

All by raw requests, so that these tests stand on the protocol and the consumer alone.
"""

import itertools
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gq_client.routing import METAD, To
from gq_proto import codec, limits
from gq_proto.errors import UnknownGroup, UnknownTopicId
from gq_proto.messages import (
    AlterTopic,
    CreateTopic,
    DeleteBefore,
    DeleteTopic,
    DescribeGroup,
    Fetch,
    FetchPart,
    GroupInfo,
    GroupPartition,
    InitProducer,
    Isolation,
    Kind,
    Mark,
    Mark1,
    MemberInfo,
    Op,
    Pause,
    Produce,
    ProducePart,
    Receipt1,
    SettleReceipts,
    SettleResult,
    TopicMeta,
)
from gq_proto.receipt import parse_receipt
from tests.system.harness import Node, until

FAST = """
groupd:
  unnamedLease: 500ms
consumer:
  heartbeatInterval: 200ms
"""


def make_topic(client: Any, name: str, partitions: int = 1, **config: Any) -> TopicMeta:
    """config in camelCase: visibilityMs=300, backoffBaseMs=50, maxRetries=3 ..."""
    reply, _ = client.call(Kind.CREATE_TOPIC, CreateTopic(name, partitions, config=config), to=METAD)
    client.routes.add(reply.topic)
    return reply.topic  # type: ignore[no-any-return]


def delete_topic(client: Any, name: str) -> None:
    client.call(Kind.DELETE_TOPIC, DeleteTopic(name), to=METAD)


def alter_topic(client: Any, name: str, **config: Any) -> None:
    client.call(Kind.ALTER_TOPIC, AlterTopic(name, config=config), to=METAD)


def put(client: Any, topic: TopicMeta, values: Iterable[bytes], partition: int = 0, headers: bytes = b"") -> int:
    """Append, once each whatever breaks; the offset after the last."""
    builder, end, sequence = codec.BatchBuilder(), 0, 0
    producer, _ = client.call(Kind.INIT_PRODUCER, InitProducer(), to=METAD)
    for chunk in batched(values, 5000):
        for value in chunk:
            builder.add(b"k", value, headers)
        frame = builder.seal(producer.producer_id, producer.epoch, sequence)
        builder.clear()
        sequence += len(chunk)
        reply, _ = client.call(Kind.PRODUCE, Produce([ProducePart(topic.id, partition)]), [frame],
                               to=To.leader(topic.id, partition))
        part = reply.parts[0]
        assert not part.error, part.message
        end = part.base_offset + len(chunk)
    return end


def batched(values: Iterable[bytes], count: int) -> Iterator[list[bytes]]:
    left = iter(values)
    while chunk := list(itertools.islice(left, count)):
        yield chunk


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % i for i in range(low, high)]


def read_all(client: Any, topic: TopicMeta, partition: int = 0) -> list[codec.Record]:
    """Everything a partition holds, without a group."""
    offset, out = 0, []
    while True:
        part = FetchPart(topic.id, partition, -1, offset)
        body = Fetch([part], isolation=Isolation.READ_COMMITTED)
        reply, frames = client.call(Kind.FETCH, body, to=To.leader(topic.id, partition))
        got = reply.parts[0]
        if got.error and offset < got.log_start:
            offset = got.log_start
            continue
        if got.error == UnknownTopicId.code:
            return out                       # just made: its logd is about to hear of it
        assert not got.error, got.message
        out += codec.decode(frames[0], codec.Record, topic.name, partition)
        if got.next_offset <= offset or got.next_offset >= got.high_watermark:
            return out
        offset = got.next_offset


def find_topic(client: Any, name: str) -> TopicMeta | None:
    from gq_proto.messages import Metadata
    reply, _ = client.call(Kind.METADATA, Metadata(0), to=METAD)
    client.routes.merge(reply)
    return next((topic for topic in reply.topics if topic.name == name), None)


def dead_letters(client: Any, topic: str) -> list[codec.Record]:
    """All of `{topic}.dlq`; [] while there is none."""
    dlq = find_topic(client, f"{topic}.dlq")
    if dlq is None:
        return []
    return [record for partition in range(len(dlq.partitions)) for record in read_all(client, dlq, partition)]


def origin(record: codec.Record) -> dict[str, str]:
    """The gq-dlq- headers of a dead letter, without that prefix."""
    return {name.removeprefix("gq-dlq-"): value.decode() for name, value in record.system_headers if name.startswith("gq-dlq-")}


# -- eyes and hands on a group ----------------------------------------------------------------

def describe(client: Any, group: str) -> GroupInfo:
    reply, _ = client.call(Kind.DESCRIBE_GROUP, DescribeGroup(group), to=To.group(group))
    return reply  # type: ignore[no-any-return]


def members(client: Any, group: str) -> list[MemberInfo]:
    """[] while there is no such group."""
    try:
        return list(describe(client, group).members)
    except UnknownGroup:
        return []


def part_of(client: Any, group: str, partition: int = 0, topic: str | None = None) -> GroupPartition:
    return next(p for p in describe(client, group).partitions if p.partition == partition and topic in (None, p.topic))


def total(client: Any, group: str, field: str) -> int:
    """The sum over the group's partitions of "lag", "in_flight", "retrying" ..."""
    return sum(getattr(p, field) for p in describe(client, group).partitions)


def mark(client: Any, group: str, topic: TopicMeta, partition: int, ack: bool, low: int, high: int, create: bool = False) -> int:
    reply, _ = client.call(Kind.MARK, Mark(group, [Mark1(topic.id, partition, ack, low, high)], create), to=To.group(group))
    return int(reply.changed[0])


def pause_group(client: Any, group: str, paused: bool) -> None:
    client.call(Kind.PAUSE, Pause(group, paused), to=To.group(group))


def delete_before(client: Any, topic: TopicMeta, partition: int, offset: int) -> int:
    reply, _ = client.call(Kind.DELETE_BEFORE, DeleteBefore(offset), to=To.leader(topic.id, partition))
    return int(reply.log_start)


def settle_receipt(client: Any, text: str, op: Op = Op.ACK, arg_ms: int = -1) -> SettleResult:
    r = parse_receipt(text)
    item = Receipt1(op, r.topic, r.partition, r.offset, r.delivery, r.group_number, r.lease, r.random, arg_ms)
    reply, _ = client.call(Kind.SETTLE_RECEIPTS, SettleReceipts([item]), to=To.groups(r.groups_partition))
    return reply.settled[0]  # type: ignore[no-any-return]


def drain(consumer: Any, count: int, timeout: float = 20.0, ack: bool = True) -> list[Any]:
    """Exactly `count` messages, acked unless told otherwise; AssertionError when they do not come."""
    out: list[Any] = []
    end = time.monotonic() + timeout
    while len(out) < count:
        messages = consumer.poll(min(count - len(out), limits.POLL_MESSAGES), timeout=0.5)
        assert messages or time.monotonic() < end, f"{len(out)} of {count} messages came"
        for message in messages:
            if ack:
                message.ack()
        out += messages
    return out


def nothing_comes(consumer: Any, timeout: float = 0.5) -> bool:
    return consumer.poll(1, timeout=timeout) == []


def number(message: Any) -> int:
    """Of those that numbers() made. Offsets also count the log's own records."""
    return int(message.value)


def numbers_of(messages: Sequence[Any]) -> list[int]:
    return sorted(number(m) for m in messages)


# -- consumers that can be killed -----------------------------------------------------------------

WORKER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)    # whoever started the tests may have it ignored
import gq_client
from gq_proto.errors import GoQueueError
topic, group, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
do = sys.argv[4]
with gq_client.Client() as client, client.consumer(topic, group, ack="manual", **options) as consumer:
    print("up", consumer.member, flush=True)
    for message in consumer:
        if do.startswith("find") and int(message.value) != int(do.split()[1]):
            message.ack()
            continue
        print("got", message.partition, message.value.decode(), message.delivery, message.receipt, flush=True)
        if do == "hang" or do.startswith("find"):
            sys.stdin.readline()
            message.ack()
        elif do == "ack":
            message.ack()
        elif do == "late":
            sys.stdin.readline()
            try:
                message.ack(sync=True)
                print("acked", message.value.decode(), flush=True)
            except GoQueueError as e:
                print("refused", e.name, flush=True)
"""


class Worker:
    """A consumer process. `do`: "ack" each, "hang" on each until told to go on, "late": as hang, and say how the ack went;
    "find N": ack all but message N, and hang on that."""

    def __init__(self, node: Node, topic: str, group: str, do: str = "ack", **options: Any) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", WORKER, topic, group, repr(options), do], env=node.env,
                                        cwd=node.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines: list[str] = []
        self._said: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.expect("up")

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._said.put(line)
        self._said.put("")

    def expect(self, word: str, timeout: float = 60.0) -> list[str]:
        """Read on to a line that begins with `word`; its fields. AssertionError when it ends or says nothing without that."""
        while line := self._next(timeout):
            self.lines.append(line)
            fields = re.split(r"\s+", line.strip())
            if fields[0] == word:
                return fields
        raise AssertionError(f"the worker ended or is silent without {word!r}: {self.lines[-5:]}")

    def _next(self, timeout: float) -> str:
        try:
            return self._said.get(timeout=timeout)
        except queue.Empty:
            return ""

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            self.process.wait(15)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def eventually(check: Callable[[], Any], what: str, timeout: float = 20.0) -> Any:
    return until(check, what, timeout)

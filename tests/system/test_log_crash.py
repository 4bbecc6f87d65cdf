"""kill -9 of daemons while producers write: every message once, in order, in every fsync mode."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gq_proto import codec, messages
from gq_proto.errors import NotLeader
from gq_proto.messages import Kind, Produce, Produced, ProducePart, Runs, TopicMeta
from tests.system.groups import make_topic, read_all
from tests.system.harness import Node, until

StartNode = Callable[..., Node]


class Load:
    """A thread that sends numbered messages to all partitions in turn, until stopped; every delivery is kept."""

    def __init__(self, client: Any, topic: TopicMeta) -> None:
        self.sent: list[Any] = []
        self._client, self._topic = client, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        count = len(self._topic.partitions)
        with self._client.producer(batch_messages=200) as producer:
            while not self._stop.is_set():
                n = len(self.sent)
                self.sent.append(producer.send(self._topic.name, b"%d" % n, partition=n % count))
                if n % 500 == 499:
                    self._stop.wait(0.002)              # a load, not a benchmark
            producer.flush(30)

    def acked(self) -> int:
        """How many are known to be written, of those sent by now."""
        return sum(delivery.done() for delivery in list(self.sent))

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def everything_once(client: Any, topic: TopicMeta, load: Load) -> None:
    count = len(topic.partitions)
    for number in range(count):
        wanted = [b"%d" % n for n in range(number, len(load.sent), count)]
        records = read_all(client, topic, number)
        assert [record.value for record in records] == wanted, "each once, in the order in which they were sent"
        assert [record.offset for record in records] == [load.sent[n].result().offset for n in range(number, len(load.sent), count)]
        stamps = [record.timestamp for record in records]
        assert stamps == sorted(stamps), "timestamps never decrease"


@pytest.mark.parametrize("mode", ["none", "interval", "every"])
def test_killed_under_load_loses_and_doubles_nothing(start_node: StartNode, mode: str) -> None:
    node = start_node(config=f"storage:\n  fsync:\n    mode: {mode}\n  segmentSize: 1MiB\n")
    with node.client() as client:
        topic = make_topic(client, "load", 3)
        with Load(client, topic) as load:
            for names in [("logd",), ("metad",), ("logd", "metad")]:
                seen = load.acked()
                until(lambda seen=seen: load.acked() > seen + 1000, "it is under way", 20)
                node.kill9(*names)
                node.start(*names)
            seen = load.acked()
            until(lambda: load.acked() > seen + 1000, "it goes on", 20)
        everything_once(client, topic, load)
    node.gqctl("log", "verify")


def test_every_daemon_killed_at_once_under_load(node: Node) -> None:
    with node.client() as client:
        topic = make_topic(client, "load", 2)
        with Load(client, topic) as load:
            for _ in range(2):
                seen = load.acked()
                until(lambda seen=seen: load.acked() > seen + 1000, "it is under way", 20)
                node.crash()
        everything_once(client, topic, load)


def test_one_at_a_time_with_fsync_every(start_node: StartNode) -> None:
    node = start_node(config="storage:\n  fsync:\n    mode: every\n")
    with node.client() as client:
        topic = make_topic(client, "synced", 2)
        for n in range(200):
            client.publish("synced", b"%d" % n, partition=n % 2)
        node.crash()
        for number in (0, 1):
            assert [record.value for record in read_all(client, topic, number)] == [b"%d" % n for n in range(number, 200, 2)]
        assert {p.high_watermark for p in client.partitions("synced")} == {101}      # and a leader-change record each


def test_what_means_an_epoch_that_is_over_is_refused(node: Node) -> None:
    """A writer that knows the partition from before a restart has to hear of it before anything of his is taken."""
    def put(epoch: int) -> Produced:
        builder = codec.BatchBuilder()
        builder.add(b"k", b"epoch %d" % epoch)
        [head, *_] = node.ask("logd", Kind.PRODUCE, Produce([ProducePart(topic.id, 0, epoch)]), builder.seal())
        return messages.reply_body(messages.decode_reply(head)).parts[0]  # type: ignore[no-any-return]

    with node.client() as client:
        topic = make_topic(client, "epochs", 1)
        old = topic.partitions[0].epoch
        assert put(old).error == 0
        node.crash("logd")
        new = client.topic("epochs").partitions[0].epoch
        assert new > old
        assert [put(epoch).error for epoch in (old, new + 1)] == [NotLeader.code] * 2
        assert put(new).error == 0
        [head, *_] = node.ask("logd", Kind.RUNS, Runs(0), topic_id=topic.id, partition=0, epoch=old)
        assert messages.decode_reply(head).error == NotLeader.code
        assert [record.value for record in read_all(client, topic)] == [b"epoch %d" % old, b"epoch %d" % new]

"""The Python client against real daemons: byte-exact, in order, exactly once, from threads and forks, whatever is killed."""

import asyncio
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gq_proto.errors import (
    BadRecord,
    Busy,
    Closed,
    GoQueueError,
    TimedOut,
    TooLarge,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from gq_proto.limits import KEY_MAX, USER_HEADERS_MAX, VALUE_MAX
from tests.system.harness import Node, until

DAEMONS = ("metad", "logd")
HEADERS_FULL = [("h", b"x" * (USER_HEADERS_MAX - 7))]
names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("client"), daemons=DAEMONS) as made:
        yield made.start()


@pytest.fixture
def topic() -> str:
    return next(names)


def everything(client: Any, topic: str) -> list[list[Any]]:
    """All messages by partition."""
    found = []
    for partition in range(len(client.topic(topic).partitions)):
        with client.reader(topic, partition, stop_at_end=True) as reader:
            found.append(list(reader))
    return found


@pytest.mark.parametrize(("key", "value", "headers"), [
    (None, None, []), (b"", b"", []), (b"", None, []), (None, b"", []), (b"\xff\xfe\x00", b"\x80" * 3, [("a", b"1"), ("a", b"2")]),
    (b"k" * KEY_MAX, b"v", []), (b"k", bytes(range(256)) * (VALUE_MAX // 256), []), (b"k", b"v", HEADERS_FULL),
    (b"k" * KEY_MAX, b"v" * VALUE_MAX, HEADERS_FULL)])
@pytest.mark.parametrize("how", ["publish", "send", "compress"])
def test_any_bytes_come_back(node: Node, topic: str, how: str, key: Any, value: Any, headers: Any) -> None:
    with node.client() as client:
        if how == "publish":
            where = client.publish(topic, value, key=key, headers=headers, priority="high")
        else:
            with client.producer(compress="zstd" if how == "compress" else None) as producer:
                where = producer.send(topic, value, key=key, headers=headers, priority=1).result(10)
        with client.reader(topic, where.partition, where.offset) as reader:
            [message] = reader.poll(1, timeout=10)
    assert (message.key, message.value, message.headers, message.priority) == (key, value, headers, 1)
    assert (message.partition, message.offset, message.timestamp) == where


def test_a_producer_takes_priorities_as_it_takes_none(node: Node, topic: str) -> None:
    """By number and by name, with and without a partition; a wrong one is refused, also once the topic is known."""
    given = [0, 1, 2, 3, 4, "critical", "background", None]
    with node.client() as client, client.producer() as producer:
        for wrong in (5, -1, 1.0, "urgent", [2]):
            for _ in range(2):
                with pytest.raises(BadRecord):
                    producer.send(topic, b"", priority=wrong)          # type: ignore[arg-type]
            producer.send(topic, b"x", partition=0)
        places = [producer.send(topic, b"%d" % number, priority=priority, partition=partition)
                  for partition in (None, 1) for number, priority in enumerate(given)]
        producer.flush()
        assert [place.result().partition for place in places[8:]] == [1] * 8
        found = {(message.partition, message.offset): message.priority for part in everything(client, topic) for message in part}
        assert [found[place.result()[:2]] for place in places] == [0, 1, 2, 3, 4, 0, 4, 2] * 2


def test_one_byte_too_many_is_refused_and_everything_goes_on(node: Node, topic: str) -> None:
    with node.client() as client, client.producer() as producer:
        for key, value, headers in [(b"k" * (KEY_MAX + 1), b"", None), (b"", b"v" * (VALUE_MAX + 1), None),
                                    (b"", b"", [("h", b"x" * (USER_HEADERS_MAX - 6))])]:
            for send in (client.publish, producer.send):
                with pytest.raises(TooLarge):
                    send(topic, value, key=key, headers=headers)
        producer.send(topic, b"fine")
        producer.flush()
        assert sum(map(len, everything(client, topic))) == 1


def test_order_per_key_and_places_of_a_hundred_thousand(node: Node, topic: str) -> None:
    with node.client() as client, client.producer() as producer:
        pairs = [(b"key-%d" % (i % 50), b"%d" % i) for i in range(100_000)]
        sent = [(key, value, producer.send(topic, value, key=key)) for key, value in pairs]
        producer.flush()
        stored = everything(client, topic)
        assert sum(map(len, stored)) == len(sent)
        for messages in stored:
            assert [int(m.value) for m in messages] == sorted(int(m.value) for m in messages)
        first = [messages[0].offset if messages else 0 for messages in stored]
        for key, value, delivery in sent[::101]:
            where = delivery.result()
            message = stored[where.partition][where.offset - first[where.partition]]
            assert (message.key, message.value, message.offset) == (key, value, where.offset)


def test_logd_killed_again_and_again_nothing_lost_nothing_twice(start_node: Callable[..., Node]) -> None:
    node = start_node(daemons=DAEMONS)
    client = node.client()
    client.create_topic("t", partitions=3)
    deliveries: list[Any] = []

    def send(producer: Any, number: int) -> None:
        for count in range(len(deliveries), len(deliveries) + number):
            deliveries.append(producer.send("t", b"%d" % count + b"x" * 200, key=b"key-%d" % (count % 20)))

    with client.producer() as producer:
        for _ in range(6):
            first = len(deliveries)
            send(producer, 2000)
            deliveries[first].result(20)             # the others are on their way
            node.kill9("logd")
            send(producer, 1000)
            node.start("logd")
        producer.flush(60)
    count = len(deliveries)
    stored = everything(client, "t")
    values = [[int(message.value.rstrip(b"x")) for message in messages] for messages in stored]
    assert sorted(itertools.chain(*values)) == list(range(count))
    for messages in stored:
        by_key: dict[bytes, int] = {}
        for message in messages:
            number = int(message.value.rstrip(b"x"))
            assert by_key.get(message.key, -1) < number
            by_key[message.key] = number
    at = {(message.partition, message.offset): int(message.value.rstrip(b"x")) for messages in stored for message in messages}
    assert [at[delivery.result()[:2]] for delivery in deliveries] == list(range(count))


def test_single_publishes_survive_kills_of_either_daemon(start_node: Callable[..., Node]) -> None:
    node = start_node(daemons=DAEMONS)
    client = node.client()
    offsets = []
    for number in range(12):
        if number % 3 == 1:
            node.crash("metad" if number % 2 else "logd")
        offsets.append(client.publish("t", b"%d" % number, partition=0).offset)
    [messages, *_] = everything(client, "t")
    assert [int(message.value) for message in messages] == list(range(12))
    assert [message.offset for message in messages] == offsets


def test_a_node_that_is_down_is_said_to_be(tmp_path: Any) -> None:
    import gq_client
    with gq_client.Client(data_dir=tmp_path) as client, pytest.raises(Unavailable, match="is the node up"):
        client.publish("t", b"", timeout=0.3)


def test_a_logd_that_is_down_delays_and_then_fails(start_node: Callable[..., Node]) -> None:
    node = start_node(daemons=DAEMONS)
    client = node.client()
    client.publish("t", b"before")
    node.kill9("logd")
    with pytest.raises(GoQueueError) as failed:
        client.publish("t", b"lost", timeout=0.5)
    assert failed.value.retriable
    with client.producer(timeout=0.5) as producer:
        delivery = producer.send("t", b"lost")
        assert isinstance(delivery.exception(5), Unavailable | TimedOut)
        with pytest.raises((Unavailable, TimedOut)):
            producer.flush()
    waiting = client.producer()
    delivery = waiting.send("t", b"patient")
    node.start("logd")
    assert delivery.result(20).offset >= 0
    waiting.close()


def test_memory_is_bounded_while_logd_stands_still(start_node: Callable[..., Node]) -> None:
    node = start_node(daemons=DAEMONS)
    client = node.client()
    client.publish("t", b"")
    producer = client.producer(buffer_bytes=1 << 20, block=0.2)
    node.freeze("logd")
    sent = []
    with pytest.raises(Busy):
        while len(sent) < 100_000:
            sent.append(producer.send("t", b"x" * 1000))
    assert 900 < len(sent) < 3000
    node.thaw("logd")
    producer.send("t", b"room again", key="k").result(20)
    producer.flush(20)
    assert sum(map(len, everything(client, "t"))) == len(sent) + 2
    producer.close()


def test_many_threads_share_a_client_and_a_producer(node: Node, topic: str) -> None:
    client = node.client()
    failed: list[BaseException] = []
    with client.producer(linger=0.001) as producer:
        def work(number: int) -> None:
            try:
                for i in range(200):
                    producer.send(topic, b"%d-%d" % (number, i), key=b"%d" % number)
                    if i % 20 == 0:
                        client.publish(topic, b"one", key=b"one")
                        producer.send(topic, b"waited", key=b"waited").result(20)
            except BaseException as error:
                failed.append(error)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    messages = list(itertools.chain(*everything(client, topic)))
    assert len(messages) == 8 * 220
    for number in range(8):
        mine = [m.value for m in messages if m.key == b"%d" % number]
        assert mine == [b"%d-%d" % (number, i) for i in range(200)]


def test_callbacks_are_called_once_from_wherever(node: Node, topic: str) -> None:
    with node.client() as client, client.producer(linger=0.001) as producer:
        called: queue.Queue[Any] = queue.Queue()
        for _ in range(10):
            producer.send(topic, b"").add_done_callback(called.put)
        producer.flush()
        done = producer.send(topic, b"")
        done.result(10)
        done.add_done_callback(called.put)
        deliveries = [called.get(timeout=10) for _ in range(11)]
        assert all(delivery.done() and delivery.result().offset >= 0 for delivery in deliveries) and called.empty()


def test_a_callback_that_fails_harms_nobody(node: Node, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with node.client() as client, client.producer(linger=0.001) as producer:
        producer.send(topic, b"").add_done_callback(lambda delivery: 1 // 0)
        producer.flush()
        assert producer.send(topic, b"").result(10).offset >= 0
    assert "ZeroDivisionError" in caplog.text


def test_a_lingering_message_goes_out_by_itself(node: Node, topic: str) -> None:
    with node.client() as client, client.producer(linger=0.02) as producer:
        for _ in range(3):
            done = threading.Event()
            producer.send(topic, b"").add_done_callback(lambda delivery, done=done: done.set())
            assert done.wait(10), "nobody asked for it"
            until(lambda: producer._wake_at > time.monotonic() + 1, "the thread is fast asleep before the next")


def test_without_linger_answers_come_while_the_app_goes_on_sending(node: Node, topic: str) -> None:
    pace = threading.Event()             # never set: a steady sender
    with node.client() as client, client.producer(linger=0) as producer:
        first = producer.send(topic, b"first")
        end = time.monotonic() + 5
        while not first.done():
            assert time.monotonic() < end, "the first message is written before anybody flushes"
            pace.wait(0.001)
            producer.send(topic, b"another")


def test_where_publishing_makes_no_topics_a_missing_one_is_said_to_be(start_node: Callable[..., Node]) -> None:
    node = start_node(daemons=DAEMONS, config="defaults: {topic: {autoCreateTopics: false}}")
    with node.client() as client, client.producer() as producer:
        for send in (client.publish, producer.send):
            with pytest.raises(UnknownTopic, match=r"no topic missing, and .*autoCreateTopics is off: create it first"):
                send("missing", b"lost")
        done = node.gqctl("publish", "missing", "lost", check=False)
        assert done.returncode == 4 and done.stderr.decode().count("\n") == 1 and b"autoCreateTopics is off" in done.stderr
        assert not node.gqctl("topic", "list", "-o", "value").stdout
        node.gqctl("topic", "create", "missing", "--partitions", "1")
        assert producer.send("missing", b"1").result(10).partition == client.publish("missing", b"2").partition == 0
        assert [m.value for m in everything(client, "missing")[0]] == [b"1", b"2"]


def test_after_a_fork_the_child_is_told(node: Node, topic: str) -> None:
    client = node.client()
    client.publish(topic, b"parent")
    producer = client.producer()
    producer.send(topic, b"parent")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        said = []
        for use in (lambda: client.publish(topic, b"child"), lambda: producer.send(topic, b"child"), producer.flush, client.topics):
            try:
                use()
                said.append("worked")
            except Closed as error:
                said.append("fork" if "fork" in str(error) else str(error))
            except BaseException as error:
                said.append(repr(error))
        os.write(writing, ",".join(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "fork,fork,fork,fork"
    assert os.waitpid(child, 0)[1] == 0
    producer.flush()
    assert sum(map(len, everything(client, topic))) == 2
    producer.close()


def test_a_topic_made_anew_is_found(node: Node, topic: str) -> None:
    with node.client() as client, node.client() as other:
        client.publish(topic, b"old")
        other.delete_topic(topic)
        other.create_topic(topic, partitions=1)
        where = client.publish(topic, b"new")
        assert (where.partition, [m.value for m in everything(client, topic)[0]]) == (0, [b"new"])
        with pytest.raises(UnknownTopic):
            client.reader("never-made", 0)


def test_partitions_that_were_added_are_found(node: Node, topic: str) -> None:
    with node.client() as client, node.client() as other, client.producer() as producer:
        client.create_topic(topic, partitions=1)
        client.publish(topic, b"")
        producer.send(topic, b"").result(10)
        other.alter_topic(topic, partitions=4)
        assert client.publish(topic, b"", partition=3).partition == 3
        assert producer.send(topic, b"", partition=2).result(10).partition == 2
        for send in (client.publish, producer.send):
            with pytest.raises(UnknownPartition):
                send(topic, b"", partition=4)

        async def work() -> None:
            async with node.async_client() as third:
                await third.publish(topic, b"")
                other.alter_topic(topic, partitions=5)
                assert (await third.publish(topic, b"", partition=4)).partition == 4

        asyncio.run(work())


def test_closed_things_say_so(node: Node, topic: str) -> None:
    client = node.client()
    producer = client.producer()
    delivery = producer.send(topic, b"")
    client.close()
    assert delivery.result().offset >= 0, "closing a client flushes its producers"
    for use in (lambda: client.publish(topic, b""), lambda: producer.send(topic, b""), producer.flush, client.producer):
        with pytest.raises(Closed):
            use()
    client.close()
    producer.close()


def test_asyncio(node: Node, topic: str) -> None:
    async def work() -> None:
        async with node.async_client() as client:
            places = await asyncio.gather(*[client.publish(topic, b"%d" % i, key="k") for i in range(500)])
            assert [place.offset - places[0].offset for place in places] == list(range(500))
            async with client.producer(linger=0.001, buffer_bytes=1 << 20) as producer:
                deliveries = [await producer.send(topic, b"x" * 500, key="k") for _ in range(5000)]
                await producer.flush()
                assert {delivery.done() for delivery in deliveries} == {True}
                last = await (await producer.send(topic, b"last", key="k"))
            async with await client.reader(topic, last.partition, last.offset) as reader:
                [message] = await reader.poll(1, timeout=10)
                assert message.value == b"last"
            with pytest.raises(TooLarge):
                await client.publish(topic, b"x" * (VALUE_MAX + 1))
            assert sum([len([m async for m in await client.reader(topic, p, stop_at_end=True)]) for p in range(3)]) == 5501

    asyncio.run(work())


def test_asyncio_survives_a_killed_logd(start_node: Callable[..., Node]) -> None:
    node = start_node(daemons=DAEMONS)

    async def work() -> None:
        async with node.async_client() as client:
            await client.publish("t", b"first", partition=0)
            pending = [asyncio.ensure_future(client.publish("t", b"%d" % i, partition=0)) for i in range(200)]
            await asyncio.to_thread(node.crash, "logd")
            more = [asyncio.ensure_future(client.publish("t", b"%d" % i, partition=0)) for i in range(200, 400)]
            await asyncio.gather(*pending, *more)
            async with await client.reader("t", 0, stop_at_end=True) as reader:
                values = [message.value async for message in reader]
            assert values == [b"first", *[b"%d" % i for i in range(400)]]

    asyncio.run(work())

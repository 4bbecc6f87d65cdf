"""Priorities on real daemons: shares, order, and nothing lost between streams, retries, delays and kills."""

import random
import threading
import time
from collections import Counter, defaultdict
from typing import Any

from gq_client import Client
from tests.system.harness import Node

WEIGHTS = (50, 25, 15, 7, 3)


def publish(client: Client, topic: str, lanes: list[int], size: int = 100, first: int = 0) -> None:
    with client.producer() as producer:
        for number, lane in enumerate(lanes, first):
            producer.send(topic, b"%d " % number + bytes(size), priority=lane)


def number_of(message: Any) -> int:
    return int(message.value.split(b" ", 1)[0])


def test_the_shares_of_full_lanes_and_the_order_in_each(shared_node: Node) -> None:
    chance = random.Random(1)
    lanes = [chance.randrange(5) for _ in range(60_000)]
    with shared_node.client() as client:
        client.create_topic("full", partitions=3)
        publish(client, "full", lanes)
        got: list[Any] = []
        with client.consumer(["full"], "full-g", ack="manual") as consumer:
            for message in consumer.messages(timeout=30):
                got.append((message.partition, message.priority, message.offset, number_of(message)))
                message.ack()
                if len(got) == 10_000:
                    break
    shares = Counter(lane for _, lane, _, _ in got)
    assert all(abs(shares[lane] / 100 - weight) < 1.5 for lane, weight in enumerate(WEIGHTS)), shares
    order: dict[tuple[int, int], list[int]] = defaultdict(list)
    for partition, lane, offset, number in got:
        assert lanes[number] == lane
        order[partition, lane].append(offset)
    assert all(offsets == sorted(offsets) for offsets in order.values())


def test_nothing_is_lost_or_early_where_everything_happens_at_once(start_node: Any) -> None:
    """Random priorities and sizes, some delayed, some nacked, groupd and logd killed on the way."""
    node = start_node()
    chance = random.Random(2)
    count = 12_000
    with node.client() as client:
        client.create_topic("storm", partitions=3)
        with client.producer() as producer:
            for number in range(count):
                late = chance.uniform(0.2, 3.0) if chance.random() < 0.02 else None
                producer.send("storm", b"%d " % number + bytes(chance.choice((10, 1000, 20_000))), priority=chance.randrange(5),
                              delay=late)
        seen: Counter[int] = Counter()
        failed = {number for number in range(count) if chance.random() < 0.01}
        lock, over = threading.Lock(), threading.Event()

        def work(member: int) -> None:
            with node.client() as mine, mine.consumer(["storm"], "storm-g", ack="manual") as consumer:
                last = time.monotonic()
                while not over.is_set() and time.monotonic() < last + 15:
                    for message in consumer.poll(1, timeout=0.5):
                        last, number = time.monotonic(), number_of(message)
                        with lock:
                            seen[number] += 1
                            first = number in failed
                            failed.discard(number)
                            if len(seen) == count and not failed:
                                over.set()
                        if first:
                            message.nack(delay=0.1)
                        else:
                            message.ack()
                consumer.flush()

        threads = [threading.Thread(target=work, args=(member,)) for member in range(2)]
        for thread in threads:
            thread.start()
        for name in ("groupd", "logd", "groupd"):
            target = len(seen) + count // 8
            while len(seen) < min(target, count * 9 // 10) and any(thread.is_alive() for thread in threads):
                threads[0].join(0.05)
            node.kill9(name)
            node.start(name)
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        missing = set(range(count)) - seen.keys()
        assert not missing and not failed, f"{len(missing)} never came: {sorted(missing)[:20]}"

"""Delayed messages in figures: one JSON object a row.

    python -m bench.delays                     all of them (about three minutes)
    python -m bench.delays pending error       these

    pending     1M messages due in 1 to 24 h: how fast they are published and scheduled, delayd's resident memory, and the seconds
                from its start to ready: after an orderly end, after kill -9, and without its index
    schedule    how fast one delayd learns what is in a log already: the same messages, nothing else under way
    error       2,000 delays uniform in 1 to 5 s while 20,000 msg/s are published and consumed: delivery less due time, where it
                is consumed
    burst       100,000 messages due in the same second: from its end until the last one is consumed, and until all are acked
"""

import argparse
import multiprocessing
import random
import shutil
import statistics
import time
from typing import Any

from bench import ground
from tests.system.harness import Node, until

TOPIC, LOAD = "later", "load"
PATIENCE_S = 300.0


def scheduled(node: Node) -> int:
    status = node.status("delayd", timeout=60.0)
    return int(status.facts["scheduled"]) if status and "scheduled" in status.facts else -1


def publish_delayed(data: str, count: int, size: int, low_s: float, high_s: float, rate: float = 0.0, since: float = 0.0) -> float:
    """`count` messages due evenly spread in [low, high] from `since` (0: now) on, in random order, the due time as value; the
    seconds it took."""
    import gq_client
    chance, body = random.Random(3), "x" * max(size - 20, 0)
    start, now = time.monotonic(), since or time.time()
    with gq_client.Client(data_dir=data) as client, client.producer(linger=0.005 if not rate else 0) as producer:
        for i in range(count):
            if rate:
                time.sleep(max(0.0, start + i / rate - time.monotonic()))
                now = time.time()
            due = now + chance.uniform(low_s, high_s)
            producer.send(TOPIC, f"{due:.6f} {body}", deliver_at=due)
        producer.flush()
    return time.monotonic() - start


def restart(node: Node, count: int) -> float:
    """Start delayd and wait until it is ready and has all of them."""
    start = time.monotonic()
    node.start("delayd")
    seconds = time.monotonic() - start
    assert scheduled(node) == count, f"{scheduled(node)} of {count} after the restart"
    return round(seconds, 2)


def pending(args: argparse.Namespace) -> dict[str, Any]:
    with ground.node(args.dir) as node:
        node.client().create_topic(TOPIC, partitions=3)
        empty = ground.rss_mb(node.pid("delayd"))
        start = time.monotonic()
        seconds = ground.apart(publish_delayed, str(node.data), args.messages, args.size, 3_600.0, 86_400.0)
        until(lambda: scheduled(node) == args.messages, "all are scheduled", PATIENCE_S)
        figures = {"count": args.messages, "size": args.size, "publish_msgs_per_s": round(args.messages / seconds),
                   "scheduled_behind_s": round(time.monotonic() - start - seconds, 2), "empty_mb": empty,
                   **{f"{name}_cpu_s": round(ground.cpu_s(node.pid(name)), 2) for name in ("logd", "delayd")},
                   "delayd_mb": ground.rss_mb(node.pid("delayd")), "delayd_peak_mb": ground.peak_mb(node.pid("delayd"))}
        node.terminate("delayd")
        figures["restart_s"] = restart(node, args.messages)
        figures["restarted_mb"] = ground.rss_mb(node.pid("delayd"))
        node.kill9("delayd")
        figures["restart_after_kill_s"] = restart(node, args.messages)
        node.kill9("delayd")
        shutil.rmtree(node.data / "delays")
        figures["restart_without_index_s"] = restart(node, args.messages)
        figures["peak_without_index_mb"] = ground.peak_mb(node.pid("delayd"))
        return figures


def schedule(args: argparse.Namespace) -> dict[str, Any]:
    with ground.node(args.dir) as node:
        node.client().create_topic(TOPIC, partitions=3)
        node.kill9("delayd")
        ground.apart(publish_delayed, str(node.data), args.messages, args.size, 3_600.0, 86_400.0)
        start = time.monotonic()
        seconds = restart(node, args.messages)
        return {"count": args.messages, "msgs_per_s": round(args.messages / seconds), "seconds": round(time.monotonic() - start, 2)}


# -- error --------------------------------------------------------------------------------------

def load(data: str, rate: float, seconds: float) -> int:
    """Publish 1 KB messages at a steady rate."""
    import gq_client
    bodies, sent, start = ground.bodies(1024), 0, time.monotonic()
    with gq_client.Client(data_dir=data) as client, client.producer() as producer:
        while time.monotonic() < start + seconds:
            for _ in range(min(int((time.monotonic() - start) * rate) - sent, 2_000)):
                producer.send(LOAD, bodies[sent & 1023], key=ground.KEYS[sent % 10_000])
                sent += 1
            time.sleep(0.002)
        producer.flush()
    return sent


def consume_load(data: str, seconds: float) -> int:
    """Consume and ack it."""
    import gq_client
    end, taken = time.monotonic() + seconds, 0
    with gq_client.Client(data_dir=data) as client, client.consumer([LOAD], "load", ack="manual") as consumer:
        while time.monotonic() < end:
            for message in consumer.poll(500, timeout=0.2):
                message.ack()
                taken += 1
    return taken


def consume_delayed(data: str, count: int, ready: Any, figures: Any) -> None:
    """Errors in ms of each of `count` messages, in order of arrival, when the last came, and when it was acked."""
    import gq_client
    errors: list[float] = []
    with gq_client.Client(data_dir=data) as client, client.consumer([TOPIC], "later", ack="manual") as consumer:
        consumer.poll(1, timeout=1.0)
        ready.set()
        while len(errors) < count:
            for message in consumer.poll(500, timeout=5.0):
                errors.append((time.time() - float(message.value[:17])) * 1000)
                message.ack()
        last = time.time()
        consumer.flush()
        figures.put((errors, last, time.time()))


def consumed(node: Node, count: int, publish: Any) -> tuple[list[float], float, float]:
    """What consume_delayed measured, beside `publish()`."""
    context = multiprocessing.get_context("spawn")
    ready, figures = context.Event(), context.Queue()
    worker = context.Process(target=consume_delayed, args=(str(node.data), count, ready, figures))
    worker.start()
    ready.wait(30)
    publish()
    found: tuple[list[float], float, float] = figures.get(timeout=PATIENCE_S)
    worker.join()
    return found


def error(args: argparse.Namespace) -> dict[str, Any]:
    with ground.node(args.dir) as node:
        for topic in (TOPIC, LOAD):
            node.client().create_topic(topic, partitions=3)
        context = multiprocessing.get_context("spawn")
        with context.Pool(2) as pool:
            publisher = pool.apply_async(load, (str(node.data), args.rate, 16.0))
            consumer = pool.apply_async(consume_load, (str(node.data), 18.0))
            time.sleep(4)
            errors, _, _ = consumed(node, 2_000, lambda: ground.apart(publish_delayed, str(node.data), 2_000, 128, 1.0, 5.0, 1e3))
            sent, taken = publisher.get(), consumer.get()
        return {"count": len(errors), **spread(errors), "load_rate": round(sent / 16), "load_consumed": round(taken / sent, 2)}


def spread(errors: list[float]) -> dict[str, float]:
    cut = statistics.quantiles(errors, n=1000)
    return {"earliest_ms": round(min(errors), 3), "p50_ms": round(cut[499], 2), "p99_ms": round(cut[989], 2),
            "max_ms": round(max(errors), 2)}


def burst(args: argparse.Namespace) -> dict[str, Any]:
    """Published well before; due within one second."""
    with ground.node(args.dir) as node:
        node.client().create_topic(TOPIC, partitions=3)
        second = time.time() + args.lead
        errors, last, acked = consumed(node, args.burst, lambda: ground.apart(
            publish_delayed, str(node.data), args.burst, 128, 0.0, 1.0, 0.0, second))
        return {"count": args.burst, "delivered_s": round(last - second - 1.0, 3), "acked_s": round(acked - second - 1.0, 3),
                **spread(errors)}


ROWS = {"pending": pending, "schedule": schedule, "error": error, "burst": burst}


def main() -> None:
    parser = ground.parser("delays", __doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="that wait")
    parser.add_argument("--size", type=int, default=100, help="bytes of their values")
    parser.add_argument("--rate", type=float, default=20_000, help="msg/s of the load")
    parser.add_argument("--burst", type=int, default=100_000, help="messages due in the same second")
    parser.add_argument("--lead", type=float, default=8.0, help="seconds from publishing them to that second")
    ground.run(parser, ROWS)


if __name__ == "__main__":
    main()

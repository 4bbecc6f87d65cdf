"""The rows of the speed table that `gqctl bench` has no word for: one JSON object a row.

    python -m bench.rows                       all of them (about ten minutes)
    python -m bench.rows fsync-1 idle          these
    python -m bench.rows --messages 500000 memory-one

    fsync-1, fsync-100          publish 1 KB with fsync=every, 1 and 100 partitions
    memory-one, memory-random   logd's resident memory with 5M messages in 100 partitions, one priority or random ones; and after
                                kill -9 of all daemons, the seconds until the last offset is fetched and a lease granted
    idle                        CPU of all daemons of a node with 100 topics that nobody uses
"""

import argparse
import time
from typing import Any

from bench import ground
from tests.system.harness import DAEMONS, Node

TOPIC = "bench"


def fsync(args: argparse.Namespace, partitions: int) -> dict[str, Any]:
    with ground.node(args.dir, GOQUEUE_STORAGE_FSYNC_MODE="every") as node:
        node.client().create_topic(TOPIC, partitions=partitions)
        ground.apart(ground.fill, str(node.data), TOPIC, 1024, 10_000)
        count, seconds = ground.apart(ground.fill, str(node.data), TOPIC, 1024, 0, args.seconds)
        return {"msgs_per_s": round(count / seconds), "count": count, "partitions": partitions, "size": 1024, "fsync": "every"}


def backlog(args: argparse.Namespace, priorities: str) -> dict[str, Any]:
    with ground.node(args.dir) as node:
        node.client().create_topic(TOPIC, partitions=100)
        before = ground.rss_mb(node.pid("logd"))
        count, seconds = ground.apart(ground.fill, str(node.data), TOPIC, args.size, args.messages, 0.0, priorities)
        ground.apart(_lease_some, str(node.data), 1000)
        figures = {"count": count, "partitions": 100, "size": args.size, "priorities": priorities,
                   "fill_msgs_per_s": round(count / seconds), "logd_empty_mb": before, "logd_mb": ground.rss_mb(node.pid("logd")),
                   "logd_peak_mb": ground.peak_mb(node.pid("logd")), "groupd_mb": ground.rss_mb(node.pid("groupd"))}
        figures |= _restart(node)
        return figures | {"logd_restarted_mb": ground.rss_mb(node.pid("logd"))}


def _lease_some(data: str, count: int) -> None:
    import gq_client
    with gq_client.Client(data_dir=data) as client, client.consumer([TOPIC], "bench", ack="manual") as consumer:
        for message in consumer:
            message.ack()
            count -= 1
            if not count:
                break
        consumer.flush()


def _restart(node: Node) -> dict[str, Any]:
    """kill -9 all, start all, and ask as a user would: the last message of a partition, and a lease."""
    last = max((part for part in node.client().partitions(TOPIC)), key=lambda part: part.high_watermark)
    node.kill9()
    start = time.monotonic()
    node.start(wait=False)
    client = node.client()
    with client.reader(TOPIC, last.partition, last.high_watermark - 1) as reader:
        next(iter(reader))
    fetched = time.monotonic() - start
    with client.consumer([TOPIC], "bench", ack="manual") as consumer:
        assert consumer.poll(timeout=60)
    leased = time.monotonic() - start
    node.wait_ready()
    return {"restart_fetch_s": round(fetched, 2), "restart_lease_s": round(leased, 2),
            "restart_ready_s": round(time.monotonic() - start, 2)}


def idle(args: argparse.Namespace) -> dict[str, Any]:
    with ground.node(args.dir) as node:
        client = node.client()
        for i in range(100):
            client.create_topic(f"idle-{i}")
        client.close()
        time.sleep(3)
        before = {name: ground.cpu_s(node.pid(name)) for name in DAEMONS}
        start = time.monotonic()
        time.sleep(args.idle_seconds)
        seconds = time.monotonic() - start
        used = {name: (ground.cpu_s(node.pid(name)) - before[name]) / seconds * 100 for name in DAEMONS}
        return {"cpu_percent": round(sum(used.values()), 2), "topics": 100,
                **{f"{name}_percent": round(share, 2) for name, share in used.items()}}


ROWS = {
    "fsync-1": lambda args: fsync(args, 1),
    "fsync-100": lambda args: fsync(args, 100),
    "memory-one": lambda args: backlog(args, "one"),
    "memory-random": lambda args: backlog(args, "random"),
    "idle": idle,
}


def main() -> None:
    parser = ground.parser("rows", __doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each publish run")
    parser.add_argument("--messages", type=int, default=5_000_000, help="of the memory rows")
    parser.add_argument("--size", type=int, default=100, help="bytes of their values")
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    ground.run(parser, ROWS)


if __name__ == "__main__":
    main()

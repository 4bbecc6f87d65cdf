"""Clients that do not read what they asked for: nobody else waits for them, and no daemon grows beyond a bound."""

import time
from pathlib import Path
from typing import Any

import zmq

from gq_proto import limits, messages
from gq_proto.messages import Empty, Fetch, FetchPart, Kind, Produce, ProducePart, Watch, WatchPart
from tests.system.groups import make_topic, read_all
from tests.system.harness import DAEMONS, Node, until

MIB = 1 << 20


def resident(node: Node, name: str) -> int:
    """Bytes that a daemon holds of its own, not shared with files."""
    status = Path(f"/proc/{node.pid(name)}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def stuck(line: "zmq.Socket[bytes]") -> None:
    """Its side of the connection takes in as little as it can."""
    line.setsockopt(zmq.RCVHWM, 1)
    line.setsockopt(zmq.RCVBUF, 4096)


def offer(line: "zmq.Socket[bytes]", frames: list[bytes], most: int) -> int:
    """Requests until the daemon takes no more; how many went."""
    for n in range(most):
        try:
            line.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            if not line.poll(200, zmq.POLLOUT):
                return n
    return most


def test_a_reader_that_never_reads_holds_up_nobody(node: Node) -> None:
    with node.client() as client:
        topic = make_topic(client, "t", 1)
        for _ in range(8):
            client.publish("t", b"x" * MIB, idempotent=False)
        before = resident(node, "logd")
        fetch = Fetch([FetchPart(topic.id, 0, -1, 0, max_bytes=8 * MIB)])
        head = messages.encode_request(Kind.FETCH, 1, fetch, topic_id=topic.id, partition=0)
        with zmq.Context() as context, context.socket(zmq.DEALER) as greedy:
            greedy.linger = 0
            stuck(greedy)
            greedy.connect(node.endpoint("logd"))
            sent = offer(greedy, [head], 200)
            assert sent > 20
            took = max(_timed(client, b"%d" % n) for n in range(100))
            assert took < 2, "a publish beside it"
            assert len(read_all(client, topic)) == 108
            grown = resident(node, "logd") - before
            bound = limits.UNREAD_BYTES_MAX + 8 * MIB + 64 * MIB         # one answer more, and what the allocator keeps
            assert grown < bound, f"{sent} unread answers hold {grown >> 20} MiB"
        assert node.alive("logd")


def _timed(client: Any, value: bytes) -> float:
    start = time.monotonic()
    client.publish("t", value)
    return time.monotonic() - start


def test_requests_without_end_whose_answers_nobody_takes(node: Node) -> None:
    """Small ones, to each daemon: what does not fit into the peer's queue is dropped, and counted."""
    for name in DAEMONS:
        before = resident(node, name)
        head = messages.encode_request(Kind.STATUS, 1, Empty())
        with zmq.Context() as context, context.socket(zmq.DEALER) as line:
            line.linger = 0
            stuck(line)
            line.connect(node.endpoint(name))
            offer(line, [head], 30_000)
            status = node.status(name)
            assert status and status.ready, f"{name} answers others"
            assert resident(node, name) - before < 100 * MIB


def test_long_polls_of_a_client_that_went_away_do_not_pile_up(node: Node) -> None:
    with node.client() as client:
        topic = make_topic(client, "t", 1)
        before = resident(node, "logd")
        watch = messages.encode_request(Kind.WATCH, 1, Watch([WatchPart(topic.id, 0, 0)], 1000), deadline_ms=2000)
        fetch = messages.encode_request(Kind.FETCH, 2, Fetch([FetchPart(topic.id, 0, -1, 0)], max_wait_ms=1500), deadline_ms=2000)
        for _ in range(20):
            with node.socket("logd") as line:
                for _ in range(200):
                    line.send(watch)
                    line.send(fetch)
                line.linger = 1000
        client.publish("t", b"x")
        assert [record.value for record in read_all(client, topic)] == [b"x"]
        assert resident(node, "logd") - before < 100 * MIB
        status = node.status("logd")
        assert status and status.ready


def test_a_stuck_consumer_does_not_hold_up_another_group(node: Node) -> None:
    with node.client() as client, node.client() as other:
        for n in range(100):
            client.publish("t", b"%d" % n, partition=0)
        with client.consumer("t", "stuck", ack="manual") as stuck_one, other.consumer("t", "quick") as quick:
            assert len(stuck_one.poll(100, timeout=10)) > 0            # and never comes back
            seen: list[bytes] = []
            end = time.monotonic() + 20
            while len(seen) < 200 and time.monotonic() < end:
                if len(seen) >= 100:
                    other.publish("t", b"%d" % len(seen), partition=0)
                for message in quick.poll(100, timeout=1):
                    seen.append(message.value)
                    message.ack()
            assert seen == [b"%d" % n for n in range(200)]


def test_what_is_too_large_for_any_frame_never_reaches_memory(node: Node) -> None:
    before = {name: resident(node, name) for name in DAEMONS}
    head = messages.encode_request(Kind.PRODUCE, 1, Produce([ProducePart(1, 0)]))
    blob = bytes(limits.FRAME_MAX + 1)
    for name in DAEMONS:
        with node.socket(name) as line:
            line.send_multipart([head, blob])
            assert not line.poll(300)
        until(lambda name=name: node.status(name), f"{name} answers", 10)
        assert resident(node, name) - before[name] < 100 * MIB

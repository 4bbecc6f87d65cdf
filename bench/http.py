"""HTTP figures: one JSON object a row. A node of their own as shipped, its gateway, and a loader in a process of its own.

    python -m bench.http                         all of them (about a minute)
    python -m bench.http publish batch           these
    python -m bench.http --profile poll          and py-spy's stacks of the gateway, in http-poll.txt (collapsed)

    publish     POST one message of --size bytes, acks=leader, on --connections kept connections: rate, p50 and p99 in ms
    batch       POST 500 messages a request: messages/s
    poll        long-poll 500, ack their receipts in one request: messages/s
    idle        --polls long polls that wait: memory of the gateway, and what a publish beside them takes

gateway_cpu, loader_cpu, logd_cpu, groupd_cpu: cores each was busy while it ran. The loader writes prepared bytes to raw sockets and
looks for the end of each answer only; on two cores it still takes its share of what is measured.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import ground
from tests.system.harness import Node, free_port

TOPIC = "bench"
GROUP = "bench"
BATCH = 500


# -- the loader: in a process of its own -----------------------------------------------------

class Line(asyncio.Protocol):
    """One kept connection: `ask` sends a whole request, awaits a whole answer: (status, body)."""

    def connection_made(self, transport: Any) -> None:
        self.transport, self.data, self.waiting = transport, bytearray(), None
        self.need = -1

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.need < 0:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self.data.index(b"content-length: ") + 16
            self.need = end + 4 + int(self.data[at:self.data.index(b"\r", at)])
            self.head = end + 4
        if len(self.data) >= self.need:
            answer = int(self.data[9:12]), bytes(self.data[self.head:])
            self.data, self.need = bytearray(), -1
            self.waiting.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting and not self.waiting.done():
            self.waiting.set_exception(ConnectionError("the gateway hung up"))

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.waiting


async def connect(port: int) -> Line:
    _, line = await asyncio.get_running_loop().create_connection(Line, "127.0.0.1", port)
    return line


def request(method: str, path: str, body: bytes = b"") -> bytes:
    return b"%b %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        method.encode(), path.encode(), len(body), body)


def text(size: int, seed: int) -> str:
    return random.Random(seed).randbytes(size).hex()[:size]


def messages(size: int, seed: int) -> bytes:
    return json.dumps({"messages": [{"value": text(size, BATCH * seed + i)} for i in range(BATCH)]}).encode()


async def publish(port: int, args: argparse.Namespace) -> dict[str, Any]:
    asks = [request("POST", f"/topics/{TOPIC}/publish", json.dumps({"value": text(args.size, i)}).encode()) for i in range(64)]
    took: list[float] = []
    counted = Counted(args)

    async def caller(number: int) -> None:
        line = await connect(port)
        while (now := time.perf_counter()) < counted.end:
            status, body = await line.ask(asks[number % 64])
            assert status == 200, body
            if now >= counted.begin:
                took.append(time.perf_counter() - now)
            number += 1

    await asyncio.gather(*[caller(i) for i in range(args.connections)])
    marks = statistics.quantiles(took, n=1000)
    return {"requests_per_s": round(len(took) / args.seconds), "p50_ms": round(marks[499] * 1000, 2),
            "p99_ms": round(marks[989] * 1000, 2), "p999_ms": round(marks[998] * 1000, 2), "connections": args.connections}


async def batch(port: int, args: argparse.Namespace) -> dict[str, Any]:
    asks = [request("POST", f"/topics/{TOPIC}/batch", messages(args.size, n)) for n in range(4)]
    counted = Counted(args)

    async def caller(number: int) -> None:
        line = await connect(port)
        while time.perf_counter() < counted.end:
            status, body = await line.ask(asks[number % 4])
            assert status == 200, body
            counted.note(BATCH)

    await asyncio.gather(*[caller(i) for i in range(args.callers)])
    return {"msgs_per_s": round(counted.count / args.seconds), "callers": args.callers}


async def poll(port: int, args: argparse.Namespace) -> dict[str, Any]:
    """Each caller is a member: its own partitions, its own leases."""
    counted = Counted(args)

    async def caller() -> None:
        line = await connect(port)
        _, joined = await line.ask(request("POST", f"/groups/{GROUP}/join", json.dumps({"topics": [TOPIC]}).encode()))
        ask = request("GET", f"/groups/{GROUP}/poll?member={json.loads(joined)['member']}&max={BATCH}&wait=5")
        while time.perf_counter() < counted.end:
            status, body = await line.ask(ask)
            assert status == 200, body
            receipts = [part[:part.index(b'"')] for part in body.split(b'"receipt":"')[1:]]
            if receipts:
                told = b'{"receipts":["' + b'","'.join(receipts) + b'"]}'
                status, body = await line.ask(request("POST", "/messages/ack", told))
                assert status == 200, body
                counted.note(len(receipts))

    await asyncio.gather(*[caller() for _ in range(args.callers)])
    return {"msgs_per_s": round(counted.count / args.seconds), "callers": args.callers}


async def fill(port: int, args: argparse.Namespace, count: int) -> None:
    line = await connect(port)
    ask = request("POST", f"/topics/{TOPIC}/batch", messages(args.size, 0))
    for _ in range(count // BATCH):
        status, body = await line.ask(ask)
        assert status == 200, body


async def idle(port: int, args: argparse.Namespace) -> dict[str, Any]:
    lines = [await connect(port) for _ in range(args.polls)]
    _, joined = await lines[0].ask(request("POST", "/groups/idle/join", b'{"topics":["quiet"],"mode":"shared"}'))
    waiting = [lines[0].ask(request("GET", f"/groups/idle/poll?member={json.loads(joined)['member']}&wait=60"))]
    waiting += [line.ask(request("GET", "/groups/idle/poll?topics=quiet&mode=shared&wait=60")) for line in lines[1:]]
    await asyncio.sleep(2)
    return {**await publish(port, args), "polls": args.polls, "answered": sum(one.done() for one in waiting)}


class Counted:
    """Messages between `begin` and `end`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.begin = time.perf_counter() + args.warm
        self.end = self.begin + args.seconds
        self.count = 0

    def note(self, count: int) -> None:
        if self.begin <= time.perf_counter() < self.end:
            self.count += count


def prepare(row: str, port: int, args: argparse.Namespace) -> None:
    if row == "poll":
        asyncio.run(fill(port, args, args.backlog))


LOADS: dict[str, Callable[[int, argparse.Namespace], Any]] = {"publish": publish, "batch": batch, "poll": poll, "idle": idle}


def load(row: str, port: int, args: argparse.Namespace) -> dict[str, Any]:
    import uvloop

    start = time.process_time()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(LOADS[row](port, args))
    return {**figures, "loader_cpu": round((time.process_time() - start) / (args.seconds + args.warm), 2)}


# -- the node ------------------------------------------------------------------------------

@contextmanager
def gateway(args: argparse.Namespace) -> Iterator[tuple[Node, int]]:
    port = free_port()
    with ground.node(args.dir, GOQUEUE_HTTP_ADDR=f"127.0.0.1:{port}", GOQUEUE_GRPC_ADDR="off", GOQUEUE_METRICS_ADDR="off",
                     GOQUEUE_GATEWAY_METRICS_ADDR="off") as node:
        node.start("gateway")
        node.client().create_topic(TOPIC, partitions=args.partitions)
        node.client().create_topic("quiet", partitions=4)
        yield node, port


def run(row: str, args: argparse.Namespace) -> dict[str, Any]:
    with gateway(args) as (node, port):
        ground.apart(prepare, row, port, args)
        before = {name: ground.cpu_s(node.pid(name)) for name in ("gateway", "logd", "groupd")}
        with profiled(node, row, args):
            figures = ground.apart(load, row, port, args)
        busy = {f"{name}_cpu": round((ground.cpu_s(node.pid(name)) - used) / (args.seconds + args.warm), 2)
                for name, used in before.items()}
        return {**figures, **busy, "gateway_mb": ground.rss_mb(node.pid("gateway")), "size": args.size}


@contextmanager
def profiled(node: Node, row: str, args: argparse.Namespace) -> Iterator[None]:
    if not args.profile:
        yield
        return
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
    argv = [spy, "record", "-p", str(node.pid("gateway")), "-o", f"http-{row}.txt", "-f", "raw", "-r", "500", "-n",
            "-d", str(round(args.warm + args.seconds))]
    watching = subprocess.Popen(argv, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        watching.wait(60)


def main() -> None:
    parser = ground.parser("http", __doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--warm", type=float, default=2.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--callers", type=int, default=4, help="connections of batch and poll")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--polls", type=int, default=1000)
    parser.add_argument("--backlog", type=int, default=500_000, help="messages that poll finds")
    parser.add_argument("--profile", action="store_true")
    ground.run(parser, {row: partial(run, row) for row in LOADS})


if __name__ == "__main__":
    main()

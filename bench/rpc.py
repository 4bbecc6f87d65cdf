"""gRPC figures: one JSON object a row. A node of their own as shipped, its gateway, and a loader in a process of its own.

    python -m bench.rpc                         all of them (about two minutes)
    python -m bench.rpc stream-100 unary        these
    python -m bench.rpc --profile subscribe     and py-spy's stacks of the gateway, in rpc-subscribe.txt (collapsed)

    stream-1, -10, -100    PublishStream, so many messages of --size bytes in a request; until the last result is here
    unary                  Publish, --callers at a time: rate, p50 and p99 in ms
    floor                  the same against a bare grpc.aio server that answers at once: what of unary is grpc's
    unary-h2load           Publish by h2load, a lean loader in C (see h2load.py): 16 connections, a call at a time on each
    unary-h2load-streams   the same over one connection, 16 calls at a time
    floor-h2load, floor-h2load-streams      these against the bare server
    subscribe              Subscribe and Settle: every message acked by its own receipt, a request of them per response
    subscribe-ack          the same with the unary Ack

Rows of h2load say what the calls came to: trailers_ok of 16 calls before (grpc-status 0), status_ok of all as the gateway counted
them, stored messages as they are read from the topic; a call that stored none, or more than one, is an error.

gateway_cpu, loader_cpu, logd_cpu, groupd_cpu: cores each was busy while it ran; gateway_us: microseconds of the gateway's processor
time for a message. But for h2load the loader is Python too, and costs about what the gateway does: on two cores it is half of what
is measured. Of the gateway's part of a unary call grpc.aio takes four fifths.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import ground, h2load
from tests.system.harness import DAEMONS, Node, free_port, until

TOPIC = "bench"
LEAN = {"unary-h2load": (16, 1), "unary-h2load-streams": (1, 16)}      # connections, streams on each
SAMPLE = 16
Row = Callable[[Any, argparse.Namespace], Awaitable[dict[str, Any]]]


# -- loaders: in a process of their own -----------------------------------------------------

def load(row: str, port: int, args: argparse.Namespace) -> dict[str, Any]:
    """Run a row's load against a gateway."""
    if row in LEAN:
        return h2load.load(port, message(args), args.messages // 20, *LEAN[row])
    import uvloop
    return uvloop.run(_load(row, port, args))


async def _load(row: str, port: int, args: argparse.Namespace) -> dict[str, Any]:
    import grpc
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        before, start = time.process_time(), time.monotonic()
        found = await LOADS[row](channel, args)
        seconds = found.pop("seconds", None) or time.monotonic() - start
        return {**found, "seconds": round(seconds, 3), "loader_cpu": round((time.process_time() - before) / seconds, 2)}


def _stream(messages: int) -> Row:
    async def run(channel: Any, args: argparse.Namespace) -> dict[str, Any]:
        from gq_gateway import goqueue_pb2 as pb
        values = ground.bodies(args.size)
        requests = [pb.PublishStreamRequest(messages=[pb.Draft(topic=TOPIC, value=values[(i * messages + j) % 1024],
                                                               key=ground.KEYS[(i * messages + j) * 7919 % 10_000])
                                                      for j in range(messages)]).SerializeToString() for i in range(64)]
        count = args.messages if messages > 1 else args.messages // 4
        call = channel.stream_stream("/goqueue.v1.GoQueue/PublishStream", None, pb.PublishStreamResponse.FromString)()
        answered = asyncio.ensure_future(_results(call))
        start = time.monotonic()
        for i in range(count // messages):
            await call.write(requests[i % 64])
        await call.done_writing()
        results = await answered
        seconds = time.monotonic() - start
        assert results == count // messages * messages, f"{results} results"
        return {"msgs_per_s": round(results / seconds), "count": results, "per_request": messages, "seconds": seconds}

    return run


async def _results(call: Any) -> int:
    count = 0
    async for response in call:
        count += len(response.results)
        for result in response.results:
            assert not result.error.code, result.error
    return count


async def _unary(channel: Any, args: argparse.Namespace) -> dict[str, Any]:
    from gq_gateway import goqueue_pb2 as pb
    values = ground.bodies(args.size)
    requests = [pb.PublishRequest(message=pb.Draft(topic=TOPIC, value=values[i], key=ground.KEYS[i])).SerializeToString()
                for i in range(64)]
    publish = channel.unary_unary("/goqueue.v1.GoQueue/Publish", None, pb.PublishResponse.FromString)
    times: list[float] = []
    left = args.messages // 20

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            start = time.perf_counter()
            await publish(requests[left % 64])
            times.append(time.perf_counter() - start)

    start = time.monotonic()
    await asyncio.gather(*[caller() for _ in range(args.callers)])
    seconds = time.monotonic() - start
    marks = statistics.quantiles(times, n=100)
    return {"msgs_per_s": round(len(times) / seconds), "count": len(times), "callers": args.callers, "seconds": seconds,
            "p50_ms": round(marks[49] * 1000, 2), "p99_ms": round(marks[98] * 1000, 2)}


async def _subscribe(channel: Any, args: argparse.Namespace) -> dict[str, Any]:
    from gq_gateway import goqueue_pb2 as pb
    from gq_gateway import goqueue_pb2_grpc as rpc
    stub = rpc.GoQueueStub(channel)
    settle = stub.Settle()
    settled = asyncio.ensure_future(_results(settle))

    async def ack(receipts: list[str]) -> None:
        await settle.write(pb.SettleRequest(receipts=receipts))

    count, responses, seconds = await _consume(stub, args.messages, "settle", ack, settle, settled)
    return {"msgs_per_s": round(count / seconds), "count": count, "responses": responses, "seconds": seconds}


async def _subscribe_ack(channel: Any, args: argparse.Namespace) -> dict[str, Any]:
    from gq_gateway import goqueue_pb2 as pb
    from gq_gateway import goqueue_pb2_grpc as rpc
    stub = rpc.GoQueueStub(channel)

    async def ack(receipts: list[str]) -> None:
        for result in (await stub.Ack(pb.AckRequest(receipts=receipts))).results:
            assert not result.error.code, result.error

    count, responses, seconds = await _consume(stub, args.messages, "ack", ack)
    return {"msgs_per_s": round(count / seconds), "count": count, "responses": responses, "seconds": seconds}


async def _consume(stub: Any, most: int, group: str, ack: Callable[[list[str]], Awaitable[None]], settle: Any = None,
                   settled: Any = None) -> tuple[int, int, float]:
    from gq_gateway import goqueue_pb2 as pb
    call = stub.Subscribe(pb.SubscribeRequest(group=group, topics=[TOPIC]))
    await call.read()
    start = time.monotonic()
    count = responses = 0
    while count < most:
        response = await call.read()
        responses += 1
        count += len(response.messages)
        await ack([message.receipt for message in response.messages])
    if settle:
        await settle.done_writing()
        assert await settled == count
    seconds = time.monotonic() - start
    call.cancel()
    return count, responses, seconds


def message(args: argparse.Namespace) -> bytes:
    """What h2load sends. Without a key: it repeats this one, and a key would have it all in one partition."""
    from gq_gateway import goqueue_pb2 as pb
    return pb.PublishRequest(message=pb.Draft(topic=TOPIC, value=ground.bodies(args.size)[0])).SerializeToString()


LOADS: dict[str, Row] = {"stream-1": _stream(1), "stream-10": _stream(10), "stream-100": _stream(100), "unary": _unary,
                         "subscribe": _subscribe, "subscribe-ack": _subscribe_ack}


# -- the floor -----------------------------------------------------------------------------------

def serve(port: int) -> None:
    """grpc.aio and nothing behind it, until it is ended."""
    import uvloop
    uvloop.run(_serve(port))


async def _serve(port: int) -> None:
    import grpc

    from gq_gateway import goqueue_pb2 as pb

    async def publish(request: Any, context: Any) -> Any:
        return pb.PublishResponse(partition=1, offset=request.message.partition, timestamp_us=1)

    method = grpc.unary_unary_rpc_method_handler(publish, pb.PublishRequest.FromString, pb.PublishResponse.SerializeToString)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("goqueue.v1.GoQueue", {"Publish": method}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def measure_floor(row: str, args: argparse.Namespace) -> dict[str, Any]:
    spawn, port, loader = multiprocessing.get_context("spawn"), free_port(), row.replace("floor", "unary")
    if loader in LEAN:
        h2load.needed()
    server = spawn.Process(target=serve, args=(port,), daemon=True)
    server.start()
    try:
        until(lambda: _accepts(port), "the server listens")
        assert server.pid
        before = ground.cpu_s(server.pid)
        with spawn.Pool(1) as pool:
            found: dict[str, Any] = pool.apply(load, (loader, port, args))
        return {"size": args.size, **found, "gateway_us": round((ground.cpu_s(server.pid) - before) / found["count"] * 1e6, 1)}
    finally:
        server.terminate()
        server.join()


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


# -- what they run against ---------------------------------------------------------------------

@contextmanager
def gateway(folder: str) -> Iterator[tuple[Node, int]]:
    """A node with its gateway, and the gRPC port."""
    port = free_port()
    with ground.node(folder, GOQUEUE_GRPC_ADDR=f"127.0.0.1:{port}", GOQUEUE_HTTP_ADDR="off", GOQUEUE_GATEWAY_ADDR="off",
                     GOQUEUE_GATEWAY_METRICS_ADDR=f"127.0.0.1:{free_port()}") as node:
        node.start("gateway")
        node.client().create_topic(TOPIC, partitions=3)
        yield node, port


def measure(row: str, args: argparse.Namespace) -> dict[str, Any]:
    with gateway(args.dir) as (node, port):
        if row.startswith("subscribe"):
            ground.apart(ground.fill, str(node.data), TOPIC, args.size, args.messages)
        trailers = sampled(port, args) if row in LEAN else []
        names = ("gateway", *DAEMONS)
        before = {name: ground.cpu_s(node.pid(name)) for name in names}
        spy = _spy(node.pid("gateway"), row) if args.profile else None
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found: dict[str, Any] = pool.apply(load, (row, port, args))
        if spy:
            spy.wait()
        cpu = {name: ground.cpu_s(node.pid(name)) - before[name] for name in names}
        used = {f"{name}_cpu": round(cpu[name] / found["seconds"], 2) for name in names}
        used["gateway_us"] = round(cpu["gateway"] / found["count"] * 1e6, 1)
        if trailers:
            found |= outcome(node, trailers, found["count"])
        return {"size": args.size, **found, **used, "gateway_mb": ground.rss_mb(node.pid("gateway"))}


def sampled(port: int, args: argparse.Namespace) -> list[str]:
    """The grpc-status of a few calls, as their trailers say."""
    h2load.needed()
    return h2load.statuses(port, message(args), SAMPLE)


def outcome(node: Node, trailers: list[str], count: int) -> dict[str, int]:
    """What the calls of h2load came to, those of the sample included: each must be OK, and one message stored."""
    found = {"trailers_ok": trailers.count("0"), "status_ok": _answered_ok(node), "stored": _stored(node)}
    wanted = {"trailers_ok": SAMPLE, "status_ok": SAMPLE + count, "stored": SAMPLE + count}
    assert found == wanted, f"{found} of {wanted}"
    return found


def _answered_ok(node: Node) -> int:
    with urllib.request.urlopen(f"http://{node.env['GOQUEUE_GATEWAY_METRICS_ADDR']}/metrics", timeout=10) as answer:
        found = re.search(r'^goqueue_grpc_requests_total\{method="Publish",status="OK"\} (\d+)', answer.read().decode(), re.M)
    return int(found[1]) if found else 0


def _stored(node: Node) -> int:
    """Messages in the topic: read one by one, as offsets count what producers note, too."""
    count = 0
    for part in node.client().partitions(TOPIC):
        with node.client().reader(TOPIC, part.partition, stop_at_end=True) as reader:
            count += sum(1 for _ in reader)
    return count


def _spy(pid: int, row: str) -> "subprocess.Popen[bytes]":
    spy = shutil.which("py-spy") or str(Path(sys.executable).parent / "py-spy")
    argv = [spy, "record", "-p", str(pid), "-d", "5", "-r", "200", "-f", "raw", "-o", f"rpc-{row}.txt"]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    parser = ground.parser("rpc", __doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="of a stream; unary: a twentieth, stream-1: a quarter")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a value")
    parser.add_argument("--callers", type=int, default=16, help="unary calls at a time")
    parser.add_argument("--profile", action="store_true", help="with py-spy")
    floors = [row.replace("unary", "floor") for row in ("unary", *LEAN)]
    ground.run(parser, {**{row: partial(measure, row) for row in (*LOADS, *LEAN)},
                        **{row: partial(measure_floor, row) for row in floors}})


if __name__ == "__main__":
    main()

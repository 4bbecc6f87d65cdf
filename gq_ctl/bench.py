"""The workloads of `gqctl bench`, each run by a process of its own: `python -m gq_ctl.bench WORKLOAD JSON`.

Owns what is done and how it is timed; `benchmark` starts the processes and puts their figures together. Clients and daemons run
as shipped: idempotent producers, CRC checks, metrics. Payloads and keys differ from message to message. A figure is printed as one
JSON object; throughput counts from the first call to the last confirmation, start-up left out. e2e stamps payloads with
CLOCK_MONOTONIC, which all processes of a host share.
"""

import json
import random
import struct
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gq_proto.limits import PRIORITIES

if TYPE_CHECKING:
    from gq_client import Client

Figures = dict[str, Any]

KEYS: Final = [b"key-%04d" % number for number in range(1000)]
BODIES: Final = 1024             # distinct payloads, in turn
STAMP: Final = struct.Struct(">Q")
SAMPLE_EVERY: Final = 64         # publish: every so many messages one's way to its confirmation is timed
GROUP: Final = "bench"
READY: Final = "ready"
PATIENCE_S: Final = 60.0         # without a single message: something is wrong


def bodies(size: int) -> list[bytes]:
    """Incompressible, the same in every process."""
    chance = random.Random(7)
    return [chance.randbytes(size) for _ in range(BODIES)]


def lanes(priorities: str) -> list[int | None]:
    """BODIES priorities, the same in every process: none said, as most apps do, or random ones."""
    return [*random.Random(11).choices(range(PRIORITIES), k=BODIES)] if priorities == "random" else [None] * BODIES


def quantiles(seconds: list[float]) -> Figures:
    """p50, p99 and p999 in milliseconds; None when nothing was timed."""
    if not seconds:
        return {"p50_ms": None, "p99_ms": None, "p999_ms": None}
    ordered = sorted(seconds)
    return {f"p{name}_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 4)
            for name, share in (("50", 0.5), ("99", 0.99), ("999", 0.999))}


def rates(count: int, size: int, seconds: float) -> Figures:
    return {"count": count, "seconds": round(seconds, 3), "msgs_per_s": round(count / seconds),
            "mb_per_s": round(count * size / seconds / 1e6, 2)}


def publish(client: "Client", topic: str, size: int, seconds: float, acks: str, priorities: str, **_: Any) -> Figures:
    """As fast as one producer goes; every message confirmed."""
    values, keys, sent, taken = bodies(size), KEYS, 0, list[float]()
    priority = lanes(priorities)
    now = time.perf_counter
    with client.producer(acks=acks) as producer:
        send = producer.send
        send(topic, values[0], key=keys[0]).result()        # connected, routes known
        start = now()
        end = start + seconds
        while now() < end:
            _timed(send(topic, values[sent % BODIES], key=keys[sent % 1000], priority=priority[sent % BODIES]), taken)
            for number in range(sent + 1, sent + SAMPLE_EVERY):
                send(topic, values[number % BODIES], key=keys[number % 1000], priority=priority[number % BODIES])
            sent += SAMPLE_EVERY
        producer.flush()
        took = now() - start
    return rates(sent, size, took) | {"count": sent + 1} | quantiles(taken)


def _timed(future: Any, taken: list[float]) -> None:
    start = time.perf_counter()
    future.add_done_callback(lambda _: taken.append(time.perf_counter() - start))


def latency(client: "Client", topic: str, size: int, seconds: float, acks: str, priorities: str, **_: Any) -> Figures:
    """One publish at a time, each confirmed before the next."""
    values, taken, now, priority = bodies(size), list[float](), time.perf_counter, lanes(priorities)
    client.publish(topic, values[0], key=KEYS[0], acks=acks)
    start = now()
    end = start + seconds
    while (before := now()) < end:
        client.publish(topic, values[len(taken) % BODIES], key=KEYS[len(taken) % 1000], priority=priority[len(taken) % BODIES],
                       acks=acks)
        taken.append(now() - before)
    return rates(len(taken), size, now() - start) | {"count": len(taken) + 1} | quantiles(taken)


def read(client: "Client", topic: str, size: int, count: int, **_: Any) -> Figures:
    """All that lies in the topic, partition by partition, key and value of each message touched."""
    found = touched = 0
    parts = len(client.topic(topic).partitions)
    start = time.perf_counter()
    for partition in range(parts):
        with client.reader(topic, partition, from_="earliest", stop_at_end=True) as reader:
            for message in reader:
                touched += len(message.key or b"") + len(message.value or b"")
                found += 1
    took = time.perf_counter() - start
    assert found == count, f"{found} messages read, {count} were published"
    return rates(found, size, took) | quantiles([])


def queue(client: "Client", topic: str, size: int, count: int, **_: Any) -> Figures:
    """Lease, fetch, ack each message by itself, until the topic is done and every ack confirmed."""
    done, start = 0, time.perf_counter()
    with client.consumer([topic], group=GROUP, ack="manual") as consumer:
        for message in consumer.messages(timeout=PATIENCE_S):
            message.ack()
            done += 1
            if done == count:
                break
        consumer.flush()
        took = time.perf_counter() - start
    assert done == count, f"{done} messages of {count} came"
    return rates(done, size, took) | quantiles([])


def e2e_produce(client: "Client", topic: str, size: int, seconds: float, rate: int, acks: str, priorities: str,
                **_: Any) -> Figures:
    """At a steady rate, each message stamped with the time at which it is sent."""
    values, count, priority = bodies(max(0, size - STAMP.size)), int(seconds * rate), lanes(priorities)
    with client.producer(linger=0, acks=acks) as producer:
        start = time.monotonic()
        for number in range(count):
            ahead = start + number / rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            producer.send(topic, STAMP.pack(time.monotonic_ns()) + values[number % BODIES], key=KEYS[number % 1000],
                          priority=priority[number % BODIES])
        producer.flush()
        took = time.monotonic() - start
    return rates(count, size, took)


def e2e_consume(client: "Client", topic: str, size: int, seconds: float, rate: int, **_: Any) -> Figures:
    """Ack each message; the time from its stamp to its arrival. The first tenth is warming up."""
    ages, count = list[float](), int(seconds * rate)
    now = time.monotonic_ns
    with client.consumer([topic], group=GROUP, ack="manual") as consumer:
        while not consumer.assignment:
            consumer.poll(1, timeout=0.1)
        print(READY, flush=True)
        start = time.monotonic()
        for message in consumer.messages(timeout=PATIENCE_S):
            ages.append((now() - STAMP.unpack_from(message.value or b"")[0]) / 1e9)
            message.ack()
            if len(ages) == count:
                break
        took = time.monotonic() - start
    assert len(ages) == count, f"{len(ages)} messages of {count} came"
    return rates(count, size, took) | quantiles(ages[count // 10:])


WORKLOADS: Final[dict[str, Callable[..., Figures]]] = {
    "publish": publish, "latency": latency, "read": read, "queue": queue, "e2e_produce": e2e_produce, "e2e_consume": e2e_consume,
}


def main(workload: str, arguments: str) -> None:
    """Run one; with "profile" in the arguments under cProfile, whose table goes to stderr."""
    from gq_client import Client
    from gq_proto.errors import GoQueueError
    given = json.loads(arguments)
    profiled = given.pop("profile", False)
    try:
        with Client(server=given.pop("server", None), data_dir=given.pop("data_dir", None)) as client:
            run = WORKLOADS[workload]
            figures = _profile(run, client, given) if profiled else run(client, **given)
    except GoQueueError as e:
        sys.exit(f"gqctl: {e.message}")
    print(json.dumps(figures), flush=True)


def _profile(run: Callable[..., Figures], client: "Client", given: dict[str, Any]) -> Figures:
    import cProfile
    import pstats
    profile = cProfile.Profile()
    figures: Figures = profile.runcall(run, client, **given)
    pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:3])

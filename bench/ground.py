"""What the benchmark rows share: a node of their own with shipped defaults, workers in their own processes, figures of a process,
a command line.

Nothing here is measured; see rows.py.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.system.harness import DAEMONS, Node, free_port

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
KEYS = [b"key-%05d" % i for i in range(10_000)]


@contextlib.contextmanager
def node(folder: str = "", **env: str) -> Iterator[Node]:
    """A running node below `folder` (default: the temporary folder), metrics on as shipped, removed afterwards."""
    home = Path(tempfile.mkdtemp(prefix="goqueue-bench-", dir=folder or None))
    metrics = {f"GOQUEUE_{name.upper()}_METRICS_ADDR": f"127.0.0.1:{free_port()}" for name in DAEMONS}
    try:
        with Node(home, env={**metrics, **env}) as made:
            yield made.start()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def apart(work: Callable[..., Any], *args: Any) -> Any:
    """work(*args) in a fresh process; its result."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, args)


def bodies(size: int, count: int = 1024) -> list[bytes]:
    """Incompressible, the same in every run."""
    chance = random.Random(size)
    return [chance.randbytes(size) for _ in range(count)]


def fill(data: str, topic: str, size: int, count: int = 0, seconds: float = 0.0, priorities: str = "one") -> tuple[int, float]:
    """Publish `count` messages, or for `seconds`, and wait until all are confirmed: (messages, seconds)."""
    import gq_client

    values = bodies(size)
    lanes = random.Random(1).choices(range(5), k=4096) if priorities == "random" else [2] * 4096
    sent, start = 0, time.monotonic()
    end = start + seconds if seconds else float("inf")
    with gq_client.Client(data_dir=data) as client, client.producer() as producer:
        while (sent < count or not count) and time.monotonic() < end:
            for i in range(sent, sent + 1000):
                producer.send(topic, values[i & 1023], key=KEYS[i * 7919 % 10_000], priority=lanes[i & 4095])
            sent += 1000
        producer.flush()
    return sent, time.monotonic() - start


def rss_mb(pid: int) -> float:
    """Resident memory: all, and of it what is the process's own rather than mapped files."""
    with open(f"/proc/{pid}/statm") as file:
        return round(int(file.read().split()[1]) * PAGE / 1e6, 1)


def peak_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        return round(next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024 / 1e6, 1)


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Each number's median, other values as in the first run."""
    return {key: statistics.median(run[key] for run in runs) if isinstance(value, int | float) else value
            for key, value in runs[0].items()}


def parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Of `python -m bench.NAME [ROW...]`; run() goes on with it."""
    made = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("rows", nargs="*", metavar="ROW", help="which; default all")
    made.add_argument("--dir", default="", help="where the node's data goes (on the disk to be measured)")
    made.add_argument("--repeat", type=int, default=1, help="medians of so many runs")
    return made


def run(made: argparse.ArgumentParser, rows: Mapping[str, Callable[[argparse.Namespace], dict[str, Any]]]) -> None:
    """Measure the rows that were named, and print each."""
    args = made.parse_args()
    unknown = set(args.rows) - rows.keys()
    if unknown:
        made.error(f"unknown row {min(unknown)}: use {', '.join(rows)}")
    for name in args.rows or rows:
        print(json.dumps({"row": name, **median([rows[name](args) for _ in range(args.repeat)])}), flush=True)

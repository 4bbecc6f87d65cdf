"""The speed table: every row measured, beside its floor and aim. JSON lines as they come, a markdown table at the end.

    python -m bench.table                    medians of 3, about half an hour
    python -m bench.table --repeat 1 --seconds 4 --messages 1000000

The first rows are `gqctl bench` on a node of their own, a fresh one per run; the rest is bench/rows.py. Floors bind on 2 cores.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from bench import ground, rows


class Row(NamedTuple):
    """`bench`: arguments of gqctl bench; or `own`: a row of bench/rows.py. `goals`: figure -> (floor, aim)."""

    title: str
    goals: dict[str, tuple[float, float]]
    bench: tuple[str, ...] = ()
    own: str = ""


TABLE = (
    Row("publish 1 KB", {"msgs_per_s": (250_000, 400_000)}, ("publish", "--size", "1024")),
    Row("publish 100 B", {"msgs_per_s": (700_000, 1_500_000)}, ("publish", "--size", "100")),
    Row("sequential read 1 KB", {"msgs_per_s": (450_000, 600_000)}, ("read", "--size", "1024")),
    Row("work queue 1 KB, each acked", {"msgs_per_s": (200_000, 350_000)}, ("queue", "--size", "1024")),
    Row("one publish at a time 1 KB", {"p50_ms": (0.6, 0.25), "p99_ms": (4, 0.7)}, ("latency", "--size", "1024")),
    Row("end to end at 1,000/s, acked", {"p50_ms": (1, 0.35), "p99_ms": (5, 2)}, ("e2e", "--size", "1024")),
    Row("fsync=every, 1 partition", {"msgs_per_s": (20_000, 20_000)}, own="fsync-1"),
    Row("fsync=every, 100 partitions", {"msgs_per_s": (20_000, 20_000)}, own="fsync-100"),
    Row("5M messages in 100 partitions, one priority", {"logd_mb": (200, 100), "restart_lease_s": (4, 1.5)}, own="memory-one"),
    Row("5M messages, random priorities", {"logd_mb": (400, 250), "restart_lease_s": (4, 1.5)}, own="memory-random"),
    Row("idle node, 100 topics", {"cpu_percent": (3, 1)}, own="idle"),
)
MORE_IS_BETTER = {"msgs_per_s"}


def gqctl_bench(row: Row, args: argparse.Namespace) -> dict[str, Any]:
    with ground.node(args.dir) as node:
        done = subprocess.run([sys.executable, "-m", "gq_ctl", "bench", *row.bench, "--seconds", str(args.seconds), "-o", "json"],
                              env=node.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        figures: dict[str, Any] = json.loads(done.stdout)
        return figures


def measure(row: Row, args: argparse.Namespace) -> dict[str, Any]:
    """Medians over `--repeat` runs; the long memory rows run once."""
    once: Callable[[], dict[str, Any]] = (lambda: rows.ROWS[row.own](args)) if row.own else (lambda: gqctl_bench(row, args))
    times = 1 if row.own.startswith("memory") else args.repeat
    return ground.median([once() for _ in range(times)])


def verdict(figure: str, value: float, floor: float, aim: float) -> str:
    sign = 1 if figure in MORE_IS_BETTER else -1
    return "aim" if sign * value >= sign * aim else "floor" if sign * value >= sign * floor else "BELOW"


def line(row: Row, figures: dict[str, Any]) -> str:
    cells = [(f"{figure} {figures[figure]:,}", f"{floor:,}", f"{aim:,}", verdict(figure, figures[figure], floor, aim))
             for figure, (floor, aim) in row.goals.items()]
    return f"| {row.title} | " + " | ".join("; ".join(column) for column in zip(*cells, strict=True)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.table", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="", help="where the nodes' data goes (on the disk to be measured)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=100, help="value bytes of the memory rows")
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--only", default="", help="rows whose title contains this")
    args = parser.parse_args()
    lines = []
    for row in TABLE:
        if args.only in row.title:
            figures = measure(row, args)
            print(json.dumps({"row": row.title, **figures}), flush=True)
            lines.append(line(row, figures))
    print("\n| | measured | floor | aim | |\n| --- | --- | --- | --- | --- |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""`gqctl bench`: what this machine and this node do, as one JSON object.

Owns the topics of a run, its processes and the settings that are printed with the figures; the workloads are `bench`'s.
Temporary topics are deleted afterwards; a topic named with --topic stays (for `gqctl log verify`, say).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from gq_ctl import bench
from gq_ctl.app import Failed, Group, settings
from gq_ctl.output import say
from gq_ctl.params import DURATION, SIZE

if TYPE_CHECKING:
    from gq_client import Client

Function = Callable[..., None]
PREFILL: Final = ("read", "queue")


def _options(function: Function) -> Function:
    for option in (
            click.option("--size", type=SIZE, default="1KiB", show_default=True, help="Bytes of a value."),
            click.option("--seconds", type=DURATION, default="5", show_default=True, help="How long to publish."),
            click.option("--partitions", type=click.IntRange(1), default=3, show_default=True, help="Of the topic."),
            click.option("--acks", type=click.Choice(["none", "leader", "all"]), default="leader", show_default=True),
            click.option("--priorities", type=click.Choice(["one", "random"]), default="one", show_default=True,
                         help="Of the messages: all normal, or random ones."),
            click.option("--topic", help="Use this topic, and keep it; else a new one, deleted afterwards."),
            click.option("--profile", is_flag=True, help="Profile the measured client; the table goes to stderr.")):
        function = option(function)
    return function


@click.group("bench", cls=Group)
def bench_command() -> None:
    """Measure publish, latency, read, queue and end to end.

    Prints msgs_per_s, mb_per_s, p50_ms, p99_ms, p999_ms, count and settings. Clients run in processes of their own.
    """


@bench_command.command("publish")
@_options
def publish(**given: Any) -> None:
    """One producer at full speed; latencies are from send to confirmation, of every 64th message."""
    Run("publish", **given).measure()


@bench_command.command("latency")
@_options
def latency(**given: Any) -> None:
    """One publish at a time, each confirmed before the next."""
    Run("latency", **given).measure()


@bench_command.command("read")
@_options
def read(**given: Any) -> None:
    """Publish for --seconds, then read all of it from the beginning, without a group."""
    Run("read", **given).measure()


@bench_command.command("queue")
@_options
def queue(**given: Any) -> None:
    """Publish for --seconds, then take all of it through a group and ack each message."""
    Run("queue", **given).measure()


@bench_command.command("e2e")
@_options
@click.option("--rate", type=click.IntRange(1), default=1000, show_default=True, help="Messages a second.")
def e2e(rate: int, **given: Any) -> None:
    """Publish at a steady rate while a consumer acks each message; latencies are from send to arrival."""
    Run("e2e", rate=rate, **given).measure()


class Run:
    """One measurement."""

    def __init__(self, workload: str, *, size: int, seconds: int, partitions: int, acks: str, topic: str | None, profile: bool,
                 priorities: str, rate: int = 0) -> None:
        self.workload, self.size, self.seconds, self.partitions = workload, size, seconds / 1000, partitions
        self.acks, self.topic, self.profile, self.rate, self.priorities = acks, topic, profile, rate, priorities
        if self.seconds <= 0:
            raise click.UsageError("--seconds is positive")
        if workload == "e2e" and size < bench.STAMP.size:
            raise click.UsageError(f"--size of e2e is at least {bench.STAMP.size}: a time stamp is in it")

    def measure(self) -> None:
        with settings().client() as client, self._topic(client) as topic:
            if self.workload in PREFILL:
                filled = self._run("publish", topic)
                figures = self._run(self.workload, topic, count=filled["count"], profile=self.profile)
            elif self.workload == "e2e":
                figures = self._end_to_end(topic)
            else:
                figures = self._run(self.workload, topic, profile=self.profile)
            found = client.topic(topic)
        order = ("msgs_per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms", "count", "seconds")
        row = {"workload": self.workload} | {name: figures.get(name) for name in order}
        settings().output().one(row | {"settings": self._settings(len(found.partitions))}, "msgs_per_s")

    def _settings(self, partitions: int) -> dict[str, Any]:
        from gq_proto import __version__, codec
        said = {"size": self.size, "partitions": partitions, "acks": self.acks, "clients": 2 if self.workload == "e2e" else 1,
                "keys": len(bench.KEYS), "priorities": self.priorities, "codec": codec.NAME, "version": __version__,
                "cpus": os.cpu_count(), "python": sys.version.split()[0]}
        return said | ({"rate": self.rate} if self.rate else {})

    @contextmanager
    def _topic(self, client: "Client") -> Iterator[str]:
        name = self.topic or f"bench-{self.workload}-{os.getpid()}-{time.time_ns() // 1_000_000}"
        client.create_topic(name, partitions=self.partitions, if_not_exists=bool(self.topic))
        try:
            yield name
        finally:
            if not self.topic:
                client.delete_topic(name)

    # -- processes -----------------------------------------------------------------------------

    def _start(self, workload: str, topic: str, **more: Any) -> "subprocess.Popen[str]":
        data_dir, server = settings().node()
        given = {"topic": topic, "size": self.size, "seconds": self.seconds, "acks": self.acks, "rate": self.rate,
                 "priorities": self.priorities,
                 "server": server or None, "data_dir": data_dir or None} | more
        path = os.pathsep.join(filter(None, [_here(), os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen([sys.executable, "-m", "gq_ctl.bench", workload, json.dumps(given)], stdout=subprocess.PIPE,
                                stdin=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONPATH": path})

    def _run(self, workload: str, topic: str, **more: Any) -> bench.Figures:
        with self._start(workload, topic, **more) as process:
            return _figures(workload, process)

    def _end_to_end(self, topic: str) -> bench.Figures:
        with self._start("e2e_consume", topic, profile=self.profile) as consumer:
            assert consumer.stdout is not None
            if consumer.stdout.readline().strip() != bench.READY:
                raise Failed("the consumer did not start: see what it said above")
            produced = self._run("e2e_produce", topic)
            figures = _figures("e2e_consume", consumer)
        if produced["msgs_per_s"] < 0.95 * self.rate:
            say(f"the producer reached {produced['msgs_per_s']} of {self.rate} messages a second: this machine is busy")
        return figures


def _figures(workload: str, process: "subprocess.Popen[str]") -> bench.Figures:
    out, _ = process.communicate()
    if process.returncode:
        raise Failed(f"the {workload} client ended with {process.returncode}: see what it said above")
    figures: bench.Figures = json.loads(out.splitlines()[-1])
    return figures


def _here() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

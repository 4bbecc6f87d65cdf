"""`bin/demo`: GoQueue on real input, under fire.

Every line of Python's standard library is published, keyed by its file's name, into a topic of six partitions. Three processes of
one group take and ack the lines. Meanwhile one of them is killed with -9, and so are logd, groupd, delayd and metad once each;
supervisor brings the daemons back. Then every file is rebuilt from what was consumed and compared byte for byte with its source.

A worker stands still at some points until the blow has fallen, so that this is the middle of the work on the quickest machine too:
the publisher at half of the lines, a consumer at each of SHARES.

Two messages of its own are among the lines: a delayed one, published just before delayd is killed, and a critical one, published
while others wait.

Owns the folder it works in (`--dir`: the node's data directory, the consumers' notes, the rebuilt files) and the workers.
Leaves the node running. Exit code 0 only if nothing is lost, every file is the same, the delayed message was not early, and every
daemon killed came back under another pid.
"""

import argparse
import contextlib
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gq_ctl import demo_work
from gq_ctl.demo_stage import Screen, Worker
from gq_ctl.demo_work import CRITICAL, DELAYED, GROUP, NO_LIMIT, TOPIC

if TYPE_CHECKING:
    from gq_client import Client

PARTITIONS = 6
CONSUMERS = 3
MARK = ".goqueue-demo"           # says that a folder is the demo's to delete
PATIENCE_S = 110.0
ASK_S = 0.25
DELAY_S = 10.0                   # due after the blows, while what the killed consumer held is still waited for
STAND_S = 1.0                    # so long one consumer stands for the others to come to that point
# Of all lines, what one consumer takes before the critical message and the kills of a consumer, of groupd and of metad.
SHARES = (1 / 20, 1 / 12, 1 / 6, 1 / 4)
assert SHARES[1] + CONSUMERS * SHARES[3] < 1, "the killed one and those that live cannot have taken all: one comes to each point"


class DemoFailed(Exception):
    """Something that should not happen; one line."""


class Kill(NamedTuple):
    """A kill -9 that was carried out."""

    what: str
    pid: int
    new_pid: int                 # 0: not back yet
    taken: float                 # share of the lines that consumers had by then
    back_s: float = 0.0


class Demo:
    """One run; see the module's text."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder, self.source = folder, source
        self.data, self.notes, self.rebuilt, self.logs = (folder / name for name in ("data", "notes", "rebuilt", "workers"))
        self.env = {name: value for name, value in os.environ.items() if name != "GOQUEUE_SERVER"}
        self.env["GOQUEUE_DATA_DIR"] = str(self.data)
        self.screen = Screen()
        self.total = 0
        self.publisher: Worker | None = None
        self.consumers: list[Worker] = []
        self.kills: list[Kill] = []
        self.partitions: set[int] = set()    # of the two messages of its own
        self.waiting = 0                     # lines that were not acked when the critical one was published
        self.stood_s = 0.0                   # how long all consumers stood
        self._limits = iter([0])
        self._limit = 0                      # lines that each consumer may take, for now
        self._ears = selectors.DefaultSelector()
        self._asked = 0.0
        self._end = 0.0

    # -- the node ---------------------------------------------------------------------------

    def gqctl(self, *args: str) -> str:
        done = subprocess.run([sys.executable, "-m", "gq_ctl", *args], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            raise DemoFailed(f"gqctl {' '.join(args)} exited {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def daemons(self) -> dict[str, int]:
        """Pids of the daemons that are ready."""
        return {row["daemon"]: row["pid"] for row in self._status() if row["health"] == "ready"}

    def _status(self) -> list[dict[str, Any]]:
        """Some may be down: that is no failure here."""
        done = subprocess.run([sys.executable, "-m", "gq_ctl", "status", "-o", "json"], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def prepare(self) -> None:
        """A fresh folder, a node in it, a topic."""
        if self.data.exists():
            with contextlib.suppress(DemoFailed):
                self.gqctl("down")
        clear(self.folder)
        for folder in (self.data, self.notes, self.rebuilt, self.logs):
            folder.mkdir()
        self.total = sum(1 for _ in demo_work.source_lines(self.source))
        self.screen.say(f"input: {self.total:,} lines of {len(demo_work.source_files(self.source)):,} files in {self.source}")
        self.gqctl("up")
        self.screen.say("a node is up: " + ", ".join(f"{name} {pid}" for name, pid in self.daemons().items()))
        self.gqctl("topic", "create", TOPIC, "--partitions", str(PARTITIONS))

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> bool:
        self.prepare()
        self._end = time.monotonic() + PATIENCE_S
        try:
            self._publish_and_consume()
            facts = self._finish_workers()
        finally:
            for worker in [*self.consumers, *([self.publisher] if self.publisher else [])]:
                worker.end()
        return self.report(facts)

    def _publish_and_consume(self) -> None:
        self._limits = iter([*(int(self.total * share) for share in SHARES), NO_LIMIT])
        self._limit = next(self._limits)
        for _ in range(CONSUMERS):
            self._start_consumer()
        self.publisher = self._worker("publisher", "publish", str(self.source), "--hold-at", str(self.total // 2))
        script = iter(self._script())
        step: tuple[str, Callable[[], bool], Callable[[], None]] | None = next(script)
        while step or not self._all_acked():
            self._listen()
            if step and step[1]():
                self.screen.say(step[0])
                step[2]()
                step = next(script, None)
            self._show()
            if time.monotonic() > self._end:
                raise DemoFailed(f"not done after {PATIENCE_S:g} s; see {self.logs} and {self.data / 'daemons'}")

    def _script(self) -> list[tuple[str, Callable[[], bool], Callable[[], None]]]:
        """(what, when, do) of each blow, in order."""
        return [
            (f"half of the lines are sent, and a message with a delay of {DELAY_S:g} s: kill -9 logd and delayd, "
             "the publisher goes on at once", self._publisher_holds, self._kill_logd_and_delayd),
            ("a critical message is published behind the lines that wait", self._all_stand, self._publish_critical),
            ("kill -9 one consumer of three, another takes its place; what it held comes back when its session ends, "
             f"{demo_work.SESSION_S:g} s from now", self._all_stand, self._kill_consumer),
            ("kill -9 groupd", self._one_stands, lambda: self._kill_daemons("groupd", then=self._go)),
            ("kill -9 metad", self._one_stands, lambda: self._kill_daemons("metad", then=self._go)),
        ]

    def _worker(self, name: str, *argv: str) -> Worker:
        worker = Worker(name, list(argv), self.env, self.logs / f"{name}.log")
        self._ears.register(worker.out, selectors.EVENT_READ, worker)
        return worker

    def _start_consumer(self) -> None:
        name = f"consumer-{len(self.consumers) + 1}"
        self.consumers.append(self._worker(name, "consume", str(self.notes / name), "--hold-at", str(self._limit)))

    def _listen(self) -> None:
        for key, _ in self._ears.select(0.05):
            worker: Worker = key.data
            if not worker.read():
                self._ears.unregister(worker.out)
                if not worker.killed and worker.process.wait():
                    raise DemoFailed(f"{worker.name} exited {worker.process.returncode}; see {self.logs / worker.name}.log")

    def _live(self) -> list[Worker]:
        return [worker for worker in self.consumers if not worker.killed]

    def _standing(self) -> list[Worker]:
        return [worker for worker in self._live() if worker.facts.get("holding") == self._limit]

    def _one_stands(self) -> bool:
        """Or all is taken: so few lines may come in one batch."""
        return bool(self._standing()) or self._taken() >= 1

    def _all_stand(self) -> bool:
        """Or one stands for long: the others may have nothing to take."""
        since = [worker.facts["since"] for worker in self._standing()]
        return self._one_stands() and (len(since) in (0, len(self._live())) or time.monotonic() > min(since) + STAND_S)

    def _go(self) -> None:
        """Let the consumers go on to the next point."""
        standing = self._standing()
        if standing and standing == self._live():
            self.stood_s += time.monotonic() - max(worker.facts["since"] for worker in standing)
        self._limit = next(self._limits)
        for worker in self._live():
            worker.go(self._limit)

    def _publisher_holds(self) -> bool:
        assert self.publisher
        return bool(self.publisher.facts.get("holding"))

    def _kill_logd_and_delayd(self) -> None:
        assert self.publisher
        with self._client() as client:
            self.partitions.add(client.publish(TOPIC, b"a delayed one", key=DELAYED, delay=DELAY_S).partition)
        self._kill_daemons("logd", "delayd", then=self.publisher.go)

    def _kill_daemons(self, *names: str, then: Callable[[], None] = lambda: None) -> None:
        """kill -9 by pid, and wait until supervisor's new ones are ready; the workers work on."""
        before = self.daemons()
        old = {name: before[name] for name in names}
        start = time.monotonic()
        for pid in old.values():
            os.kill(pid, signal.SIGKILL)
        self._listen()
        taken = self._taken()
        then()
        while old:
            now = self.daemons()
            for name, pid in [(name, pid) for name, pid in old.items() if now.get(name, pid) != pid]:
                self.kills.append(Kill(name, old.pop(name), now[name], taken, time.monotonic() - start))
                self.screen.say(f"{name} is back: pid {pid} is now {now[name]}, ready after {self.kills[-1].back_s:.1f} s")
            self._listen()
            if time.monotonic() > self._end:
                raise DemoFailed(f"{', '.join(old)} did not come back; see {self.data / 'daemons'}")

    def _client(self) -> "Client":
        from gq_client import Client
        return Client(data_dir=self.data)

    def _publish_critical(self) -> None:
        """Where the most lines wait; then the consumers go on."""
        with self._client() as client:
            parts = client.describe_group(GROUP).partitions
            where = max(parts, key=lambda part: part.lag).partition
            client.publish(TOPIC, b"a critical one", key=CRITICAL, priority="critical", partition=where)
        self._go()
        self.waiting = sum(part.lag for part in parts)
        self.partitions.add(where)

    def _told(self, key: bytes) -> float | None:
        """How long after it was published, or due, a consumer got that message; None: nobody did yet."""
        return min((worker.facts[key.decode()] for worker in self.consumers if key.decode() in worker.facts), default=None)

    def _victim(self) -> Worker:
        """A consumer to kill, with a batch in hand, that does not own the partitions of the demo's own messages: what it holds
        comes again only when its session has ended."""
        with self._client() as client:
            members = client.describe_group(GROUP).members
        owners = {int(member.client.rpartition(":")[2]) for member in members
                  if self.partitions & {part.partition for part in member.assignment}}
        able = self._standing() or self._live()
        return next((worker for worker in able if worker.process.pid not in owners), able[-1])

    def _kill_consumer(self) -> None:
        victim = self._victim()
        victim.kill()
        notes = self.notes / victim.name
        victim.facts["taken"] = sum(1 for _ in demo_work.read_notes(notes.read_bytes())) if notes.exists() else 0   # it told less
        taken = self._taken()
        self._go()
        self._start_consumer()
        self.kills.append(Kill("consumer", victim.process.pid, self.consumers[-1].process.pid, taken))

    def _taken(self) -> float:
        """Share of the lines; some came again, and are told of twice."""
        return min(1.0, sum(int(worker.facts.get("taken", 0)) for worker in self.consumers) / self.total)

    def _all_acked(self) -> bool:
        """Published, the group has no lag, and what was delayed came. Asked now and then."""
        if not (self.publisher and self.publisher.facts.get("done")) or time.monotonic() < self._asked + ASK_S:
            return False
        self._asked = time.monotonic()
        return self._taken() >= 1 and None not in (self._told(CRITICAL), self._told(DELAYED)) and self.lag() == 0

    def lag(self) -> int:
        rows = [json.loads(line) for line in self.gqctl("group", "lag", GROUP, "-o", "json").splitlines()]
        return sum(row["lag"] for row in rows)

    def _show(self) -> None:
        sent = self.publisher.facts.get("sent", 0) if self.publisher else 0
        self.screen.progress(f"published {sent:,}  consumed {round(self._taken() * self.total):,} of {self.total:,}")

    def _finish_workers(self) -> dict[str, Any]:
        """End the consumers politely and wait for their last word; the run's figures."""
        assert self.publisher
        alive = self._live()
        for worker in alive:
            worker.process.terminate()
        while not all(worker.facts.get("done") for worker in alive):
            self._listen()
            if time.monotonic() > self._end:
                raise DemoFailed(f"a consumer does not end; see {self.logs}")
        spans = [worker.facts for worker in alive if worker.facts["taken"]]
        seconds = max(f["last"] for f in spans) - min(f["first"] for f in spans) - self.stood_s if spans else 0.0
        return {"published": self.publisher.facts["sent"], "bytes": self.publisher.facts["bytes"],
                "publish_s": self.publisher.facts["seconds"], "consume_s": seconds}

    # -- the proof -------------------------------------------------------------------------------

    def report(self, facts: dict[str, Any]) -> bool:
        """Rebuild, compare, print; True if all is well."""
        self.screen.say("rebuilding the files from what was consumed")
        paths = sorted(self.notes.iterdir())
        files, lines, again = demo_work.rebuild(note for path in paths for note in demo_work.read_notes(path.read_bytes()))
        overtaken = max(demo_work.overtaken(demo_work.read_notes(path.read_bytes()), CRITICAL) for path in paths)
        soon, late = self._told(CRITICAL) or 0.0, self._told(DELAYED) or 0.0
        differing = self.compare(files)
        lost = facts["published"] - lines
        same_pids = [kill.what for kill in self.kills if kill.pid == kill.new_pid]
        compared = len(demo_work.source_files(self.source))
        print(f"published    {facts['published']:>9,} lines, {facts['bytes'] / 1e6:.1f} MB, in {facts['publish_s']:.1f} s: "
              f"{facts['published'] / facts['publish_s']:,.0f} lines/s with logd killed in the middle")
        print(f"consumed     {lines:>9,} lines, each acked, in {facts['consume_s']:.1f} s: "
              f"{lines / max(facts['consume_s'], 0.001):,.0f} lines/s with a consumer and each daemon killed")
        print(f"redelivered  {again:>9,}")
        print(f"lost         {lost:>9,}")
        print(f"critical     {overtaken:>9,} lines of its partition overtaken, {self.waiting:,} waited in all six: "
              f"taken {soon * 1000:,.0f} ms after it was published")
        print(f"delayed      {late * 1000:>9,.0f} ms after its {DELAY_S:g} s were over, with delayd killed meanwhile")
        print(f"rebuilt      {compared - len(differing):>9,} files of {compared:,}, the same byte for byte")
        for kill in self.kills:
            print(f"killed -9    {kill.what:>9} pid {kill.pid} -> {kill.new_pid} when {kill.taken:.0%} were consumed")
        for name in differing[:5]:
            print(f"DIFFERS      {name}: diff {self.source / name} {self.rebuilt / name}")
        return not differing and not lost and not same_pids and late >= 0

    def compare(self, files: dict[bytes, bytes]) -> list[Path]:
        """Write the rebuilt files; those that are not what their source is. An empty file has no line to send and is just made."""
        differing = []
        for path in demo_work.source_files(self.source):
            content = files.pop(os.fsencode(path), b"")
            target = self.rebuilt / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            if content != (self.source / path).read_bytes():
                differing.append(path)
        return differing + [Path(os.fsdecode(name)) for name in files]

    def next_steps(self) -> str:
        first = demo_work.source_files(self.source)[0]
        data, programs, source, copy = (shlex.quote(str(path)) for path in (
            self.data, Path(sys.executable).parent, self.source / first, self.rebuilt / first))
        return f"""
The node is still running. Try next:
  export GOQUEUE_DATA_DIR={data} PATH={programs}:$PATH
  gqctl status
  gqctl topic describe {TOPIC}
  gqctl group lag {GROUP}
  gqctl consume {TOPIC} --max 5
  gqctl publish hello world && gqctl consume hello --group me --max 1
  gqctl publish hello 'two seconds later' --delay 2s && gqctl delayed list hello && gqctl consume hello --group me --max 1
  diff {copy} {source} && echo the same
  gqctl down"""


def clear(folder: Path) -> None:
    """An empty folder with the demo's mark; DemoFailed when it holds what is not the demo's."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise DemoFailed(f"{folder} is not empty and not the demo's: name another folder with --dir")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def main() -> None:
    parser = argparse.ArgumentParser(prog="bin/demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path("goqueue-demo"), help="the folder to work in; made anew each time")
    parser.add_argument("--source", type=Path, default=Path(sysconfig.get_path("stdlib")), help="the folder whose lines to send")
    args = parser.parse_args()
    demo = Demo(args.dir.resolve(), args.source.resolve())
    try:
        good = demo.run()
    except DemoFailed as e:
        sys.exit(f"demo: {e}")
    except KeyboardInterrupt:
        sys.exit(f"demo: interrupted; the node may still run: gqctl --data-dir {demo.data} down")
    print(demo.next_steps())
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

"""One seed: a cluster, some simulated minutes of trouble, then quiet until everything is taken, then the reckoning.

Checkers run after every event that can have changed what they look at: answers and fetches as they happen, whole state every few
events, logs after every restart, the rest at the end.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gq_groupd.core import Settings
from gq_groupd.hosted import Hosted
from gq_logd.config import LogConfig
from gq_proto import messages as m
from gq_proto.messages import Kind
from gq_proto.names import GROUPS_TOPIC
from tests.sim.clients import Cluster, Consumer, Operator, Publisher
from tests.sim.daemons import Groupd, Logd, Metad
from tests.sim.oracle import Oracle
from tests.sim.world import World

CHECK_EVERY = 20            # events
CHECK_LAG_EVERY = 200
QUIET_S = 400.0             # until everything is taken, at most
SYNC_INTERVAL_S = 1.0
TROUBLE = {"consumer_trouble": 5.0, "mark": 1.0, "purge": 0.5, "restart_groupd": 1.0, "restart_logd": 0.7, "power_loss": 0.8,
           "recreate": 0.15, "grow": 0.3, "pause": 0.3, "wall_jump": 0.3, "poison": 0.1}
TOPICS = {"t": 3, "u": 1}
GROUPS = {"g": (["t"], "partitioned"), "h": (["t", "u"], "partitioned"), "s": (["t"], "shared")}


@dataclass
class Failed(Exception):
    """Which seed, when, why."""

    seed: int
    at: float
    events: int
    why: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.at:.3f} s, event {self.events}: {self.why}"


class Episode:
    """`only`: these troubles and no others, often; `fsync`: this mode (chosen by the seed else)."""

    def __init__(self, seed: int, trouble_s: float = 40.0, only: Sequence[str] = (), fsync: str = "") -> None:
        self.seed, self.trouble_s, self._only = seed, trouble_s, only
        self.world = world = World(seed)
        self.rng: random.Random = world.random
        self.fsync: Any = fsync or self.rng.choice(("every", "interval"))
        self.metad = Metad(world)
        config = LogConfig(fsync=self.fsync, fsync_interval_s=SYNC_INTERVAL_S, checkpoint_interval_s=1.0)
        self.logd = Logd(world, self.metad, config)
        settings = Settings(unnamed_lease_ms=2_500, heartbeat_ms=1_000, snapshot_records=self.rng.choice((150, 2_000, 10**6)))
        self.groupd = Groupd(world, self.metad, self.logd, settings)
        self.oracle = Oracle(self.metad, self.logd, self.groupd, {name: topics for name, (topics, _) in GROUPS.items()})
        self.groupd.watch_reply = lambda call, body: self.oracle.replied(call, body, world.now)
        self.groupd.on_drop = self._core_dropped
        self.cluster = Cluster(world, self.metad, self.logd, self.groupd, self.oracle)
        self.consumers: list[Consumer] = []
        self.publishers: list[Publisher] = []
        self._names = 0
        self.events = 0
        self._down: set[str] = set()
        self._logd_back_at = self._logd_killed_at = 0.0

    def run(self) -> Oracle:
        """Failed when anything that must be true is not."""
        try:
            self._begin()
            self._until(lambda: self.world.now >= self.trouble_s)
            self._heal()
            deadline = self.world.now + QUIET_S
            self._until(lambda: self.oracle.drained() or self.world.now > deadline)
            assert self.oracle.drained(), self._what_is_left()
            self._until(lambda until=self.world.now + 15.0: self.world.now >= until)   # type: ignore[misc]
            self.oracle.check_end()
            return self.oracle
        except Exception as error:
            raise Failed(self.seed, self.world.now, self.events, f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self.logd.disk.close()

    def _until(self, over: Callable[[], bool]) -> None:
        while not over():
            assert self.world.step(), "nothing happens any more"
            self.events += 1
            if self.events % CHECK_EVERY == 0:
                self.oracle.check_state(self.events % CHECK_LAG_EVERY == 0)

    def _begin(self) -> None:
        self.metad.create(GROUPS_TOPIC, 1, segment_bytes=65_536)
        for name, partitions in TOPICS.items():
            self.metad.create(name, partitions, **self._config())
        self.logd.start()
        self.groupd.start()
        # Groups are there before the first message, so that all of it is theirs.
        for group in GROUPS:
            self._consumer(group)
        self._until(lambda: self.world.now > 3.0)
        self.publishers = [Publisher(self.cluster, list(TOPICS)) for _ in range(2)]
        for group in GROUPS:
            for _ in range(self.rng.randint(0, 3)):
                self._consumer(group)
        self.world.loss = self.rng.choice((0.0, 0.0, 0.002))
        self._trouble_later()

    def _config(self) -> dict[str, object]:
        return {"segment_bytes": 65_536, "max_retries": self.rng.choice((2, 3, 5)), "backoff_base_ms": 200,
                "backoff_max_ms": 2_000, "retention_bytes": self.rng.choice((-1, -1, 200_000)), "visibility_ms": 2_000}

    def _consumer(self, group: str) -> None:
        topics, mode = GROUPS[group]
        self._names += 1
        self.consumers.append(Consumer(self.cluster, group, f"{group}{self._names}", topics, mode))

    # -- trouble ----------------------------------------------------------------------------------

    def _trouble_later(self) -> None:
        self.world.later(self.rng.expovariate(1.0 if self._only else 1.5), self._trouble)

    def _trouble(self) -> None:
        if self.world.now >= self.trouble_s:
            return
        kind = self.rng.choice(self._only) if self._only else self.rng.choices(list(TROUBLE), list(TROUBLE.values()))[0]
        getattr(self, "_" + kind)()
        self._trouble_later()

    def _consumer_trouble(self) -> None:
        alive = [consumer for consumer in self.consumers if not consumer.dead]
        if len(alive) < 8 and (self.rng.random() < 0.5 or not alive):
            self._consumer(self.rng.choice(list(GROUPS)))
        else:
            consumer = self.rng.choice(alive)
            self.rng.choice((consumer.kill, consumer.leave, lambda: consumer.stop(self.rng.uniform(0.5, 8.0))))()

    def _mark(self) -> None:
        Operator(self.cluster, self.rng.choice(list(GROUPS))).mark()

    def _pause(self) -> None:
        operator = Operator(self.cluster, self.rng.choice(list(GROUPS)))
        operator.pause(True)
        self.world.later(self.rng.uniform(0.1, 3.0), lambda: operator.pause(False))

    def _poison(self) -> None:
        """For a while consumers reject much."""
        self.cluster.reject_share = 0.3
        self.world.later(3.0, self._detox)

    def _detox(self) -> None:
        self.cluster.reject_share = 0.02

    def _wall_jump(self) -> None:
        self.world.wall_skew_us += self.rng.choice((-1, 1)) * 3_600_000_000

    def _purge(self) -> None:
        """DeleteBefore, somewhere."""
        topic = self.metad.named(self.rng.choice(list(TOPICS)))
        number = self.rng.randrange(len(topic.partitions)) if topic else 0
        partition = self.logd.partition((topic.id, number)) if topic else None
        if topic and partition:
            offset = self.rng.randint(partition.log.start, partition.high_watermark)
            self.cluster.logd_line().call(Kind.DELETE_BEFORE, m.DeleteBefore(offset), lambda *_: None, topic_id=topic.id,
                                          partition=number)

    def _grow(self) -> None:
        topic = self.metad.named(self.rng.choice(list(TOPICS)))
        if topic and "logd" not in self._down and len(topic.partitions) < 5:
            self.metad.grow(topic, len(topic.partitions) + 1)

    def _recreate(self) -> None:
        name = self.rng.choice(list(TOPICS))
        topic = self.metad.named(name)
        if topic and "logd" not in self._down:
            self.metad.delete(topic)
            self.world.later(self.rng.uniform(0.0, 1.0), lambda: self._create(name))

    def _create(self, name: str) -> None:
        """When logd is there to make it."""
        if "logd" in self._down:
            self.world.later(0.2, lambda: self._create(name))
        elif not self.metad.named(name):
            self.metad.create(name, TOPICS[name], **self._config())

    def _restart_groupd(self) -> None:
        if "groupd" not in self._down:
            self._down.add("groupd")
            self.groupd.kill()
            self.world.later(self.rng.uniform(0.0, 2.0), self._start_groupd)

    def _start_groupd(self) -> None:
        self._down.discard("groupd")
        self.groupd.start()

    def _restart_logd(self) -> None:
        if "logd" not in self._down:
            self._down.add("logd")
            self._note_retention()
            self.logd.kill()
            self._logd_killed_at = self.world.now
            self.world.later(self.rng.uniform(0.0, 2.0), self._start_logd)

    def _start_logd(self, power_lost_at: float = -1.0, kept_s: float = 0.0) -> None:
        self._down.discard("logd")
        self._logd_back_at = self.world.now
        self.logd.start()
        self.oracle.check_logs(power_lost_at, kept_s)

    def _kept_s(self) -> float:
        """Confirmations younger than this a power loss may take. What logd had not synced when it was killed is as young as it was
        then, until the next start has had the time to."""
        if self.fsync != "interval":
            return 0.0
        least = SYNC_INTERVAL_S + 0.2
        now = self.world.now
        return now - self._logd_killed_at + least if now - self._logd_back_at < least else least

    def _power_loss(self) -> None:
        if self._down:
            return
        self._down |= {"logd", "groupd"}
        self._note_retention()
        self.groupd.kill()
        self.logd.kill()
        self.logd.power_loss()
        now, kept_s = self.world.now, self._kept_s()
        self._logd_killed_at = now
        self.oracle.power_failed(now, kept_s)
        self.world.later(self.rng.uniform(0.0, 1.0), lambda: self._start_logd(now, kept_s))
        self.world.later(self.rng.uniform(0.0, 1.5), self._start_groupd)

    def _note_retention(self) -> None:
        for key, partition in self.logd.core.catalog.partitions.items() if self.logd.core else ():
            self.oracle.retention(key, partition)

    def _core_dropped(self, hosted: Hosted) -> None:
        if hosted._core and hosted.serving:
            self.oracle.core_dropped(hosted._confirmed >= hosted._core._desk.ticket)

    # -- quiet ----------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Everything runs, nothing is lost, every group has consumers that take and ack what there is."""
        self.world.loss = 0.0
        for publisher in self.publishers:
            publisher.stopped = True
        for consumer in self.consumers:
            if self.rng.random() < 0.5:
                consumer.kill()
            consumer.calm = True
        for group in GROUPS:
            Operator(self.cluster, group).pause(False)
            self._consumer(group)
            self.consumers[-1].calm = True
            self.world.later(5.0, lambda group=group: Operator(self.cluster, group).pause(False))  # type: ignore[misc]

    def _what_is_left(self) -> str:
        core = self.groupd.core
        if core is None:
            return "groupd never came back"
        left = [f"{part.group.name} {part.topic}[{part.partition}] stage {part.stage} lag {part.lag()} held {len(part.held)} "
                f"waiting {len(part.waiting.all)} dead {len(part.dead.all)} ({part.dead.stage}) handover {part.handover}"
                for group in core._desk.state.groups.values() for part in group.parts.values()
                if part.lag() or part.stage != "ready"]
        return "not all is taken: " + "; ".join(left)

"""Who uses the cluster: publishers, consumers that do everything a consumer can do, well and badly, and operators.

They speak the real messages over Lines, fetch real bytes, and tell the oracle what they did and heard.
"""

from collections.abc import Callable
from typing import Any

from gq_proto import codec
from gq_proto import messages as m
from gq_proto.errors import GoQueueError, StaleReceipt, UnknownMember
from gq_proto.messages import Kind, Op
from gq_proto.ranges import unpack
from tests.sim.daemons import Groupd, Logd, Metad
from tests.sim.oracle import Oracle, id_of
from tests.sim.world import Line, World

SESSION_MS = 4_000
VISIBILITY_MS = 2_000


class Cluster:
    """What a client may use."""

    def __init__(self, world: World, metad: Metad, logd: Logd, groupd: Groupd, oracle: Oracle) -> None:
        self.world, self.metad, self.logd, self.groupd, self.oracle = world, metad, logd, groupd, oracle
        self.ids = 0
        self.reject_share = 0.02

    def logd_line(self) -> Line:
        return Line(self.world, lambda: self.logd.server)

    def groupd_line(self, on_push: Callable[[int, Any], None] | None = None) -> Line:
        return Line(self.world, lambda: self.groupd.server, on_push)


class Publisher:
    def __init__(self, cluster: Cluster, topics: list[str]) -> None:
        self._cluster, self._topics = cluster, topics
        self._line = cluster.logd_line()
        self.stopped = False
        self._next()

    def _next(self) -> None:
        if not self.stopped:
            rng = self._cluster.world.random
            self._cluster.world.later(rng.expovariate(12), self._publish)

    def _publish(self) -> None:
        cluster, rng = self._cluster, self._cluster.world.random
        topic = cluster.metad.named(rng.choice(self._topics))
        if topic and not self.stopped:
            number = rng.randrange(len(topic.partitions))
            builder, ids = codec.BatchBuilder(), []
            padding = b"x" * rng.choice((10, 100, 3_000))
            for _ in range(rng.choice((1, 1, 5, 20))):
                cluster.ids += 1
                ids.append(cluster.ids)
                builder.add(None, b"%d:" % cluster.ids + padding, b"", rng.choice((2, 2, 2, 0, 4)))
            cluster.oracle.sent.update(ids)
            body = m.Produce([m.ProducePart(topic.id, number)])
            self._line.call(Kind.PRODUCE, body, lambda reply, frames, error: self._published((topic.id, number), ids, reply),
                            [builder.seal()], timeout_s=5.0)
        self._next()

    def _published(self, key: tuple[int, int], ids: list[int], reply: m.ProduceReply | None) -> None:
        if reply and not reply.parts[0].error:
            self._cluster.oracle.published(key, reply.parts[0].base_offset, ids, self._cluster.world.now)


class Held:
    """A lease in the consumer's hands: what of it is not settled yet."""

    def __init__(self, lease: m.Lease, hold: bool) -> None:
        self.lease, self.hold = lease, hold
        self.todo: list[tuple[int, int]] = []       # offset, id; not started
        self.started = 0
        self.old: list[tuple[int, int]] = []        # started, deliberately not settled


class Consumer:
    """One process. `calm`: acks everything and makes no trouble."""

    def __init__(self, cluster: Cluster, group: str, name: str, topics: list[str], mode: str) -> None:
        self._cluster, self.group, self.name, self._topics, self._mode = cluster, group, name, topics, mode
        self._rng = cluster.world.random
        self.calm = False
        self.dead = False
        self._stopped_until = 0.0
        self._joined = self._joining = self._polling = False
        self._generation = 0
        self._held: dict[int, Held] = {}
        self._line = cluster.groupd_line(self._pushed)
        self._fetch_line = cluster.logd_line()
        self._act_later()
        self._beat_later()

    # -- life ---------------------------------------------------------------------------------------

    def kill(self) -> None:
        """-9."""
        self.dead = True
        self._line.close()
        self._fetch_line.close()

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        self._stopped_until = self._cluster.world.now + seconds

    def leave(self) -> None:
        line = self._cluster.groupd_line()
        line.call(Kind.LEAVE, m.Leave(self.group, self.name), lambda *_: None)
        self.kill()

    def _act_later(self) -> None:
        self._cluster.world.later(self._rng.expovariate(30), self._act)

    def _awake(self, again: Callable[[], None]) -> bool:
        """A stopped process does nothing until it goes on."""
        if self.dead:
            return False
        if self._stopped_until > self._cluster.world.now:
            self._cluster.world.at(self._stopped_until, again)
            return False
        return True

    def _beat_later(self) -> None:
        self._cluster.world.later(1.0, self._beat)

    def _beat(self) -> None:
        if not self._awake(self._beat):
            return
        if self._joined:
            named = list(self._held)
            if not self.calm and self._rng.random() < 0.02:
                named = named[:-1]
            body = m.Heartbeat(self.group, self.name, self._generation, named, self._progress())
            self._line.call(Kind.HEARTBEAT, body, self._beaten, timeout_s=2.0)
        self._beat_later()

    def _progress(self) -> list[m.Progress]:
        return [m.Progress(id, held.started) for id, held in self._held.items() if held.started]

    def _beaten(self, reply: m.HeartbeatReply | None, frames: object, error: GoQueueError | None) -> None:
        if isinstance(error, UnknownMember):
            self._joined = False
        for id in reply.lost if reply else ():
            held = self._held.pop(id, None)
            if held and not self.calm and self._rng.random() < 0.5:
                self._settle(held, Op.ACK, held.old)        # late acks

    def _pushed(self, kind: int, push: m.AssignedPush) -> None:
        if self.dead:
            return
        self._generation = push.generation
        for id in push.revoked_leases:
            held = self._held.get(id)
            if held and held.todo and self._rng.random() < 0.8:
                self._settle(held, Op.RELEASE, held.todo)
                held.todo = []

    # -- work -------------------------------------------------------------------------------------------

    def _act(self) -> None:
        if not self._awake(self._act):
            return
        if not self._joined:
            self._join()
        elif not self._polling and self._rng.random() < 0.5:
            self._poll()
        else:
            self._work()
        self._act_later()

    def _join(self) -> None:
        if not self._joining:
            self._joining = True
            body = m.Join(self.group, self.name, self._topics, self._mode, session_ms=SESSION_MS)
            self._line.call(Kind.JOIN, body, self._has_joined, timeout_s=3.0)

    def _has_joined(self, reply: m.JoinReply | None, frames: object, error: GoQueueError | None) -> None:
        self._joining = False
        if reply:
            self._joined, self._generation = True, reply.generation

    def _poll(self) -> None:
        self._polling = True
        hold = not self.calm and self._rng.random() < 0.1
        body = m.Poll(self.group, self.name, self._generation, self._rng.choice((1, 10, 50, 500)),
                      self._rng.choice((0, 100, 1_000)), VISIBILITY_MS, hold, progress=self._progress(),
                      answers=self._rng.choice((1, 1, 5)), packed=self._rng.random() < 0.5)
        self._line.call(Kind.POLL, body, lambda reply, frames, error: self._polled(reply, error, hold), timeout_s=2.0)

    def _polled(self, reply: m.PollReply | None, error: GoQueueError | None, hold: bool) -> None:
        self._polling = bool(reply and reply.open)
        if isinstance(error, UnknownMember):
            self._joined = False
        for lease in reply.leases if reply else ():
            if lease.packed:
                assert not lease.ranges
                lease.ranges = list(unpack(lease.packed))
            held = self._held[lease.lease] = Held(lease, hold)
            self._fetch(held)

    def _fetch(self, held: Held) -> None:
        lease = held.lease
        part = m.FetchPart(lease.topic_id, lease.partition, lease.epoch, -1, lease.ranges)
        self._fetch_line.call(Kind.FETCH, m.Fetch([part]), lambda reply, frames, error: self._fetched(held, reply, frames),
                              timeout_s=2.0)

    def _fetched(self, held: Held, reply: m.FetchReply | None, frames: Any) -> None:
        lease = held.lease
        if reply is None or reply.parts[0].error:
            self._held.pop(lease.lease, None)
            if self._rng.random() < 0.5:
                self._send(held, Op.RELEASE, lease.ranges, [])
            return
        for record in codec.decode(frames[0].buffer, codec.Record):
            id = id_of(record.value)
            self._cluster.oracle.fetched(self.group, lease, record.offset, id)
            held.todo.append((record.offset, id))
        if not held.todo:
            self._held.pop(lease.lease, None)

    def _work(self) -> None:
        """Start some messages of some lease, and settle them, or not."""
        busy = [held for held in self._held.values() if held.todo or held.old]
        if not busy:
            return
        held = self._rng.choice(busy)
        n = len(held.todo) if self.calm else self._rng.randint(0, len(held.todo))
        started, held.todo = held.todo[:n], held.todo[n:]
        held.started += n
        if self.calm:
            self._settle(held, Op.ACK, started + held.old)
            self._held.pop(held.lease.lease, None)       # what is not settled by then returns: nobody names it
            return
        self._rng.shuffle(started)
        for op, share in ((Op.ACK, 0.75), (Op.NACK, 0.04), (Op.RELEASE, 0.04), (Op.REJECT, self._cluster.reject_share),
                          (Op.EXTEND, 0.03)):
            count = sum(self._rng.random() < share for _ in started)
            some, started = started[:count], started[count:]
            self._settle(held, op, some)
        held.old += started
        if held.old and self._rng.random() < 0.2:
            self._settle(held, Op.ACK, held.old)
            held.old = []
        if not held.todo and not held.old:
            self._held.pop(held.lease.lease, None)

    def _settle(self, held: Held, op: Op, messages: list[tuple[int, int]]) -> None:
        if messages:
            ranges: list[int] = []
            for offset, _ in sorted(messages):
                if ranges and ranges[-2] + ranges[-1] == offset:
                    ranges[-1] += 1
                else:
                    ranges += (offset, 1)
            if op == Op.ACK:
                self._cluster.oracle.acked_ever.update((self.group, id) for _, id in messages)
            self._send(held, op, ranges, messages)

    def _send(self, held: Held, op: Op, ranges: list[int], messages: list[tuple[int, int]], tries: int = 3) -> None:
        lease = held.lease
        asked_at = self._cluster.world.now
        arg = self._rng.choice((-1, 100, 1_500)) if op in (Op.NACK, Op.EXTEND) else -1
        if held.hold and self._rng.random() < 0.5 and len(messages) == 1:
            core = self._cluster.groupd.core
            group = core._desk.state.groups.get(self.group) if core else None
            receipt = m.Receipt1(op, lease.topic, lease.partition, messages[0][0], lease.delivery, group.number if group else 0,
                                 lease.lease, lease.random, arg)
            kind, body = Kind.SETTLE_RECEIPTS, m.SettleReceipts([receipt])
        else:
            whole = lease.random if op == Op.ACK and ranges == lease.ranges and lease.lease % 2 == 0 else 0
            item = m.Settle1(op, lease.lease, [] if whole else ranges, arg, "", whole)
            kind, body = Kind.SETTLE, m.Settle(self.group, self.name, [item])  # type: ignore[assignment]
        self._line.call(kind, body, lambda reply, frames, error: self._settled(held, op, ranges, messages, reply, tries, asked_at),
                        timeout_s=2.0)

    def _settled(self, held: Held, op: Op, ranges: list[int], messages: list[tuple[int, int]], reply: m.SettleReply | None,
                 tries: int, asked_at: float) -> None:
        oracle, now = self._cluster.oracle, self._cluster.world.now
        if reply is None:
            if tries and not self.dead:
                self._send(held, op, ranges, messages, tries - 1)
            else:
                self._held.pop(held.lease.lease, None)       # it gives up, and so names the lease no more
            return
        result = reply.settled[0]
        assert result.error in (0, StaleReceipt.code), result
        refused = result.stale or (ranges if result.error else [])
        stale = {o for low, n in zip(refused[::2], refused[1::2]) for o in range(low, low + n)}
        oracle.counts["stale"] += len(stale)
        if op == Op.ACK:
            for offset, id in messages:
                if offset not in stale:
                    oracle.ack_confirmed(self.group, (held.lease.topic_id, held.lease.partition), offset, id, asked_at, now)
            oracle.counts["acked"] += len(messages) - len(stale)


class Operator:
    """Marks, pauses, describes."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster, self._group = cluster, group

    def mark(self) -> None:
        cluster, rng = self._cluster, self._cluster.world.random
        topic = cluster.metad.named(rng.choice(cluster.oracle.groups[self._group]))
        core = cluster.groupd.core
        if topic is None or core is None:
            return
        key = topic.id, rng.randrange(len(topic.partitions))
        group = core._desk.state.groups.get(self._group)
        part = group.parts.get(key) if group else None
        if part is None or part.end == 0:
            return
        low = rng.randrange(part.end)
        high = min(low + rng.randint(1, 30), part.end)
        ack = rng.random() < 0.4
        mark = cluster.oracle.mark_asked(self._group, key, ack, low, high, cluster.world.now)

        def ended(*_: object) -> None:
            mark.until = cluster.world.now + 1.0
        cluster.groupd_line().call(Kind.MARK, m.Mark(self._group, [m.Mark1(*key, ack, low, high)]), ended, timeout_s=5.0)

    def pause(self, paused: bool) -> None:
        self._cluster.groupd_line().call(Kind.PAUSE, m.Pause(self._group, paused), lambda *_: None, timeout_s=5.0)

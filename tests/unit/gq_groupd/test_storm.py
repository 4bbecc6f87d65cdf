"""Ten thousand members that join, change their minds, leave, vanish, and groups that are paused: who owns what, and who rests."""

import random
from collections.abc import Iterator

from gq_groupd.core import Settings
from gq_proto.limits import HEARTBEAT_MS, REBALANCE_GRACE_MS
from gq_proto.messages import Kind, Lease, Leave, Pause
from tests.unit.gq_groupd.rig import Rig, offsets

EVENTS = 10_000
QUIET_EVERY = 50
SESSION_MS = 6_000
BEAT_MS = 2_000
MEMBERS = [f"m{i}" for i in range(12)]         # more than partitions, now and then
TOPICS = {"t": 5, "u": 3}
Key = tuple[str, int]


class Storm:
    """`live`: members that still beat. `moved`: when a partition's owner last changed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.r = Rig(TOPICS, Settings())
        self.live: set[str] = set()
        self.paused = False
        self.moved: dict[Key, int] = {}
        self.r.join("m0", ["t"], session_ms=SESSION_MS)
        self.live.add("m0")
        self.owners: dict[Key, str] = self.look()
        self.kept = self.settled = 0
        self.beaten = self.r.now

    def look(self) -> dict[Key, str]:
        """Who owns what. Nobody is told that something is his that is another's, too."""
        info = self.r.describe()
        assert {m.member for m in info.members} == self.live
        told = [(a.topic, a.partition) for m in info.members for a in m.assignment]
        owners = {(p.topic, p.partition): p.owner for p in info.partitions}
        assert len(told) == len(set(told)) and set(told) == {key for key, owner in owners.items() if owner}
        return owners

    # -- events ------------------------------------------------------------------------------

    def event(self) -> None:
        what = self.rng.choices(["join", "leave", "expire", "pause"], [45, 25, 20, 10])[0]
        someone = self.rng.choice(sorted(self.live)) if self.live else ""
        if what == "join" or not someone:
            self.join(self.rng.choice(MEMBERS))
        elif what == "leave":
            self.live.discard(someone)
            self.r.ask(Kind.LEAVE, Leave("g", someone))
        elif what == "expire":
            self.live.discard(someone)
            self.beat(SESSION_MS)
        else:
            self.pause(not self.paused)

    def join(self, member: str) -> None:
        self.r.join(member, self.rng.choice([["t"], ["u"], ["t", "u"]]), session_ms=SESSION_MS)
        self.live.add(member)

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.r.ask(Kind.PAUSE, Pause("g", paused))

    def beat(self, ms: int) -> None:
        self.r.beat(ms, *sorted(self.live))
        self.beaten = self.r.now

    def pass_time(self, ms: int) -> None:
        self.r.advance(ms)
        if self.r.now - self.beaten > BEAT_MS:
            for member in sorted(self.live):
                self.r.heartbeat(member)
            self.beaten = self.r.now

    # -- what must hold ------------------------------------------------------------------------

    def see(self) -> None:
        before, self.owners = self.owners, self.look()
        for key, owner in self.owners.items():
            if owner != before.get(key):
                self.moved[key] = self.r.now
        stayed = [key for key, owner in self.owners.items()
                  if owner and self.r.now - self.moved.get(key, -1_000_000) > REBALANCE_GRACE_MS]
        if stayed and not self.paused:
            self.serves(self.rng.choice(stayed))

    def serves(self, key: Key) -> None:
        """A partition that does not move: what comes there is in its owner's hands at once."""
        self.r.publish(1, *key)
        offset, owner = self.r.log(*key).end - 1, self.owners[key]
        leases = list(self.leases(owner))
        assert offset in offsets(lease for lease in leases if (lease.topic, lease.partition) == key), f"{key} of {owner} rests"
        self.kept += 1
        if self.rng.random() < 0.1:
            return                             # it holds them: who takes the partition over has to wait for that
        for lease in leases:
            self.r.settle(lease, member=owner)

    def leases(self, member: str) -> Iterator[Lease]:
        while leases := self.r.poll(member, 500):
            yield from leases

    def quiet(self) -> None:
        """Three heartbeats without an event: each partition has one owner, who lives and subscribes to it, and works."""
        self.beat(3 * HEARTBEAT_MS)
        self.see()
        topics = {m.member: m.topics for m in self.r.describe().members}
        for (topic, partition), owner in self.owners.items():
            wanting = {member for member in self.live if topic in topics[member]}
            assert owner in wanting if wanting else owner == ""
            told = {member for member in self.live
                    for a in self.r.heartbeat(member).assignment if (a.topic, a.partition) == (topic, partition)}
            assert told == ({owner} if owner else set())
        self.settled += 1

    def drain(self) -> None:
        """Nothing was lost on the way: all that is left comes to somebody."""
        self.pause(False)
        self.r.join("m0", list(TOPICS), session_ms=SESSION_MS)
        self.live.add("m0")
        for _ in range(3):
            self.beat(3 * HEARTBEAT_MS)
            for member in sorted(self.live):
                for lease in list(self.leases(member)):
                    self.r.settle(lease, member=member)
        assert sum(p.lag for p in self.r.describe().partitions) == 0


def test_ten_thousand_events_leave_one_live_owner_each_and_who_stays_never_rests() -> None:
    storm = Storm(10)
    for number in range(1, EVENTS + 1):
        storm.event()
        storm.see()
        storm.pass_time(storm.rng.choice([0, 1, 100, 600]))
        if number % QUIET_EVERY == 0:
            storm.quiet()
    assert storm.kept > EVENTS // 3 and storm.settled == EVENTS // QUIET_EVERY
    storm.drain()

"""Who is in a group and what is whose."""

import random

import pytest

from gq_groupd.core import Settings
from gq_proto.errors import BadName, BadRequest, GroupNotEmpty, ModeMismatch, UnknownGroup, UnknownMember
from gq_proto.limits import GROUP_EXPIRY_MS
from gq_proto.messages import DeleteGroup, Join, Kind, Leave, Op, Pause, Poll, Progress
from tests.unit.gq_groupd.rig import Rig, offsets


def owned(reply: object) -> list[int]:
    return [a.partition for a in reply.assignment]  # type: ignore[attr-defined]


def leave(r: Rig, member: str) -> None:
    r.ask(Kind.LEAVE, Leave("g", member))


def test_ranges_and_takeover_of_the_idle() -> None:
    r = Rig({"t": 2})
    assert owned(r.join("a")) == [0, 1]
    assert owned(r.join("b")) == [1]
    assert owned(r.join("c")) == []
    leave(r, "a")
    assert owned(r.heartbeat("c")) == [0] and owned(r.heartbeat("b")) == [1]
    assert r.pushes[-1].member == "c" and [a.partition for a in r.pushes[-1].assignment] == [0]


def test_in_shared_mode_all_work_on_one_partition() -> None:
    r = Rig()
    for member in "abc":
        r.join(member, mode="shared")
    r.publish(30)
    assert [offsets(r.poll(m, 10)) for m in "abc"] == [list(range(10)), list(range(10, 20)), list(range(20, 30))]


def test_a_session_ends_and_the_zombie_is_fenced() -> None:
    r = Rig()
    r.join("a")
    r.publish(3)
    [lease] = r.poll("a")
    r.advance(29_999)
    assert r.describe().members
    r.advance(1)
    assert r.describe().members == []
    with pytest.raises(UnknownMember):
        r.heartbeat("a")
    with pytest.raises(UnknownMember):
        r.poll("a")
    r.join("b")
    r.poll("b")
    assert r.settle(lease, member="a").stale == [0, 3]


def test_a_member_that_asks_for_no_session_gets_the_nodes() -> None:
    r = Rig(settings=Settings(session_ms=5_000))
    assert r.join("a").session_ms == 5_000 and r.join("b", session_ms=9_000).session_ms == 9_000
    r.advance(4_999)
    assert {member.member for member in r.describe().members} == {"a", "b"}
    r.advance(1)
    assert {member.member for member in r.describe().members} == {"b"}


def test_a_moved_partition_rests_until_its_old_owner_gave_back_what_is_unstarted() -> None:
    r = Rig({"t": 2})
    r.join("a")
    r.publish(10, partition=0)
    r.publish(10, partition=1)
    leases = {lease.partition: lease for lease in r.poll("a")}
    r.heartbeat("a", leases.values(), progress=[Progress(leases[1].lease, 3)])
    r.join("b")
    [push] = [push for push in r.pushes if push.member == "a" and push.generation == 2]
    assert push.revoked_leases == [leases[1].lease] and r.describe().state == "rebalancing"
    assert not r.poll("b")
    r.settle(leases[1], Op.RELEASE, [13 - 10, 7])
    assert offsets(r.poll("b")) == [3, 4, 5, 6, 7, 8, 9] and r.describe().state == "stable"
    assert r.settle(leases[1], ranges=[0, 3]).error == 0
    assert offsets(leases[0]) == list(range(10)) and r.settle(leases[0]).error == 0


def test_after_the_grace_it_is_taken() -> None:
    r = Rig({"t": 2})
    r.join("a")
    r.publish(10, partition=1)
    [lease] = r.poll("a")
    r.heartbeat("a", [lease], progress=[Progress(lease.lease, 1)])
    r.join("b")
    call = r.send(Kind.POLL, Poll("g", "b", 0, max_wait_ms=5_000), b"b")
    r.advance(499)
    assert r.answer_to(call) is None
    r.advance(1)
    assert offsets(r.answer_to(call).leases) == list(range(1, 10))


def test_who_keeps_a_partition_does_not_notice() -> None:
    r = Rig({"t": 2})
    r.join("a")
    r.publish(5, partition=0)
    r.publish(5, partition=1)
    lease = next(lease for lease in r.poll("a") if lease.partition == 0)
    r.join("b")
    r.publish(5, partition=0)
    assert offsets(r.poll("a")) == [5, 6, 7, 8, 9]
    assert r.settle(lease).error == 0


def test_polls_wait_and_wake() -> None:
    r = Rig()
    r.join("a")
    call = r.send(Kind.POLL, Poll("g", "a", 0, max_wait_ms=10_000), b"a")
    r.advance(9_000)
    assert r.answer_to(call) is None
    r.publish(1)
    assert offsets(r.answer_to(call).leases) == [0]
    call = r.send(Kind.POLL, Poll("g", "a", 0, max_wait_ms=10_000), b"a", patience_s=2)
    r.advance(1_980)
    assert r.answer_to(call).leases == []


def test_a_lease_that_reached_nobody_returns() -> None:
    r = Rig()
    r.join("a", mode="shared")
    r.join("b")
    r.publish(3)
    call = r.send(Kind.POLL, Poll("g", "a", 0), b"a")
    r.do(r.core.undelivered(r.now, r.wall, call, r.answer_to(call)))
    assert [(lease.delivery, offsets(lease)) for lease in r.poll("b")] == [(1, [0, 1, 2])]


def test_max_in_flight_is_backpressure() -> None:
    r = Rig()
    r.join("a")
    r.publish(3_000)
    first, second = r.poll("a"), r.poll("a")
    call = r.send(Kind.POLL, Poll("g", "a", 0, max_wait_ms=10_000), b"a")
    assert r.answer_to(call) is None
    r.settle(first[0], ranges=[0, 10])
    assert offsets(r.answer_to(call).leases) == list(range(1000, 1010))
    assert r.settle(second[0]).error == 0


def test_pause_and_resume() -> None:
    r = Rig()
    r.join("a")
    r.ask(Kind.PAUSE, Pause("g", True))
    r.publish(1)
    r.restart()
    call = r.send(Kind.POLL, Poll("g", "a", 0, max_wait_ms=5_000), b"a")
    assert r.answer_to(call) is None and r.describe().paused
    r.ask(Kind.PAUSE, Pause("g", False))
    assert offsets(r.answer_to(call).leases) == [0]


def test_refusals() -> None:
    r = Rig()
    r.join("a", mode="shared")
    with pytest.raises(ModeMismatch):
        r.join("b", mode="partitioned")
    for body, error in ((Join("__g", topics=["t"]), BadRequest), (Join("a/b", topics=["t"]), BadName), (Join("h"), BadRequest),
                        (Join("h", topics=["t"], mode="x"), BadRequest), (Join("h", topics=["t"], start="soon"), BadRequest)):
        with pytest.raises(error):
            r.ask(Kind.JOIN, body)
    with pytest.raises(UnknownGroup):
        r.describe("h")
    with pytest.raises(GroupNotEmpty):
        r.ask(Kind.DELETE_GROUP, DeleteGroup("g"))
    r.ask(Kind.DELETE_GROUP, DeleteGroup("g", True))
    with pytest.raises(UnknownGroup):
        r.poll("a")


def test_empty_groups_expire_and_a_restart_does_not_start_the_week_anew() -> None:
    r = Rig()
    r.join("a")
    leave(r, "a")
    r.advance(GROUP_EXPIRY_MS - 1_000)
    r.restart()
    assert r.describe().state == "empty"
    r.advance(1_000)
    with pytest.raises(UnknownGroup):
        r.describe()


def test_members_survive_a_restart_with_what_they_hold() -> None:
    r = Rig({"t": 3})
    r.join("a")
    r.join("b")
    r.publish(10)
    [lease] = r.poll("a")
    before = r.describe()
    r.restart()
    after = r.describe()
    assert (after.generation, after.partitions) == (before.generation, before.partitions)
    assert r.heartbeat("a", [lease]).lost == [] and r.settle(lease).error == 0 and r.part().lag == 0


def test_new_partitions_and_topics_made_anew() -> None:
    r = Rig()
    r.join("a", topics=["t", "later"])
    r.publish(5)
    [lease] = r.poll("a")
    r.create("later", 1)
    r.publish(2, "later", tell=False)
    r.tell_topics("later")
    assert [lease.topic for lease in r.poll("a")] == ["later"]
    old = r.topics["t"].id
    del r.logs[old, 0]
    r.create("t", 2)
    r.tell_topics("t")
    assert r.settle(lease).error != 0
    r.publish(4, partition=1)
    got = r.poll("a")
    assert [(lease.topic_id, offsets(lease)) for lease in got] == [(r.topics["t"].id, [0, 1, 2, 3])]
    assert {p.topic_id for p in r.describe().partitions} == {r.topics["t"].id, r.topics["later"].id}


def test_starts() -> None:
    r = Rig()
    r.publish(10)
    for start, first in (("earliest", 0), ("latest", 10), ("7", 7)):
        r.join("a", group=start, start=start)
        r.restart()
        assert r.part(group=start).committed == first
    r.publish(1)
    assert offsets(r.poll("a", group="latest")) == [10]
    r.logs[r.topics["t"].id, 1] = r.logs[r.topics["t"].id, 0].__class__()
    r.topics["t"].partitions.append(r.topics["t"].partitions[0])
    r.publish(3, partition=1, tell=False)
    r.tell_topics("t")
    assert offsets(r.poll("a", group="latest")) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_random_comings_and_goings_leave_every_partition_one_live_owner(seed: int) -> None:
    rng = random.Random(seed)
    r = Rig({"t": 4, "u": 3}, Settings())
    live: set[str] = set()
    for _ in range(1_000):
        member = rng.choice("abcdefgh")
        what = rng.random()
        if what < 0.4:
            r.join(member, topics=rng.choice([["t"], ["u"], ["t", "u"]]))
            live.add(member)
        elif what < 0.5 and member in live:
            leave(r, member)
            live.discard(member)
        elif what < 0.52:
            r.restart()
        else:
            r.advance(rng.choice([10, 600, 9_000]))
            live = {m.member for m in r.describe().members} if live else live
    if not live:
        r.join("a", topics=["t", "u"])
    live = {m.member for m in r.describe().members}
    r.beat(9_000, *live)
    info = r.describe()
    wanted = {m.member: set(m.topics) for m in info.members}
    for part in info.partitions:
        subscribers = {m for m, topics in wanted.items() if part.topic in topics}
        assert part.owner in subscribers if subscribers else part.owner == ""
    for m in info.members:
        assert {(a.topic, a.partition) for a in m.assignment} == {(p.topic, p.partition) for p in info.partitions
                                                                  if p.owner == m.member}

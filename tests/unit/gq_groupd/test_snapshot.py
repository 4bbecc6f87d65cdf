"""Snapshots and trimming: a journal that was cut short tells the same."""

import random

import pytest

from gq_groupd.core import Settings
from gq_groupd.entries import PartSnapshot, decode
from gq_groupd.snapshot import PIECE_BYTES
from gq_proto.messages import Op
from tests.unit.gq_groupd.rig import Rig


def busy(rng: random.Random, r: Rig, steps: int) -> None:
    for _ in range(steps):
        what = rng.randrange(8)
        group = rng.choice("gh")
        member = rng.choice("ab")
        if what == 0:
            r.publish(rng.randrange(1, 40), partition=rng.randrange(2))
        elif what == 1:
            r.advance(rng.choice([10, 700, 3_000]))
        elif what == 2:
            r.mark(rng.random() < 0.5, rng.randrange(20), rng.randrange(20, 40), partition=rng.randrange(2), group=group)
        else:
            r.join(member, group=group)
            for lease in r.poll(member, rng.randrange(1, 30), group=group, hold=rng.random() < 0.3):
                low, n = lease.ranges[0], lease.ranges[1]
                op = rng.choice([Op.ACK, Op.ACK, Op.NACK, Op.RELEASE, Op.REJECT])
                r.settle(lease, op, [low, rng.randrange(1, n + 1)], member, group)


def state(r: Rig) -> list[object]:
    return [[(p, g.state) for p in g.partitions] for g in (r.describe("g"), r.describe("h"))]


@pytest.mark.parametrize("seed", range(4))
def test_replaying_a_trimmed_journal_gives_the_same_state(seed: int) -> None:
    rng = random.Random(seed)
    r = Rig({"t": 2}, Settings(snapshot_records=60))
    twin = Rig({"t": 2}, Settings(snapshot_records=10**9))
    twin.ids = r.ids
    for _ in range(12):
        step = rng.randrange(10**9)
        busy(random.Random(step), r, 40)
        busy(random.Random(step), twin, 40)
        r.advance(5)
        twin.advance(5)
        if rng.random() < 0.5:
            r.restart()
            twin.restart()
        assert state(r) == state(twin)
    assert r.journal[0][0] > 0 and len(r.journal) < len(twin.journal)
    assert not any(value[:1] == b"" for _, _, value in r.journal)


def test_a_large_state_goes_in_pieces() -> None:
    r = Rig(settings=Settings(snapshot_records=1_500))
    r.join()
    r.publish(3_000_000)
    rng = random.Random(1)
    part = r.core._desk.state.groups["g"].parts[r.topics["t"].id, 0]
    for _ in range(40_000):
        low = rng.randrange(1, 3_000_000)
        part.acked.add(low, low + 1)
    for low in range(0, 3_000_000, 2_000):
        r.mark(True, low + 1_000, low + 1_001)
    pieces = [e for _, _, v in r.journal if isinstance(e := decode(v), PartSnapshot)]
    assert len(pieces) == 1 or all(len(p.data) <= PIECE_BYTES for p in pieces)
    lag, ahead = part.lag(), len(part.acked.ahead)
    r.restart()
    part = r.core._desk.state.groups["g"].parts[r.topics["t"].id, 0]
    assert len(part.acked.ahead) == ahead and part.lag() <= lag


def test_half_a_snapshot_at_the_end_of_the_journal_is_nothing() -> None:
    r = Rig(settings=Settings(snapshot_records=30))
    r.join()
    r.publish(100)
    for _ in range(40):
        r.settle(r.poll(most=1)[0])
        if any(isinstance(decode(v), PartSnapshot) for _, _, v in r.journal):
            break
    before = r.part()
    assert r.journal[0][0] > 0
    cut = [i for i, (_, _, v) in enumerate(r.journal) if isinstance(decode(v), PartSnapshot)]
    assert cut
    r.restart()
    assert r.part() == before

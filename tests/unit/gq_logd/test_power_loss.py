"""The log on a disk that forgets: whatever a power loss leaves, recovery makes a log of it that keeps its promises.

- fsync=every: what was answered is there. interval: what was answered before the last sync is there.
- What is there was written, in that order. (Unsynced segments may be torn each for itself: then something in the middle is lost.)
- A batch that is sent again because its answer was lost is there once; none that was lost is taken for a duplicate.
- Offsets, once known to be synced, are never given out twice.
"""

import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gq_logd.config import LogConfig
from gq_proto import messages
from gq_proto.messages import Kind
from tests.sim.disk import FakeDisk
from tests.unit.gq_logd.world import Call, World, batch_of, produce, values


class Life:
    """A world on a forgetful disk, and what it was promised. A message's value begins with its sequence."""

    def __init__(self, seed: int, mode: Any) -> None:
        self.random = random.Random(seed)
        self.disk = FakeDisk(self.random)
        self.world = World(Path("/w"), disk=self.disk, config=LogConfig(fsync=mode),  # type: ignore[arg-type]
                           settings={"segment_bytes": 1500})
        self.world.hold_syncs = True
        self.serial = 0
        self.sequence = 0
        self.sent: list[bytes] = []              # in the order of their offsets
        self.durable = 0                         # of them, how many must be there
        self.pending: list[tuple[int, list[bytes], bytes, Call]] = []

    def publish(self, count: int) -> None:
        self.serial += 1
        new = [b"%d " % (self.sequence + i) + b"%d." % self.serial * self.random.choice((1, 60)) for i in range(count)]
        batch = batch_of(*new, producer=1, sequence=self.sequence)
        call = produce(batch)
        self.world.send(call)
        self.sent += new
        self.sequence += count
        self.pending.append((len(self.sent), new, batch, call))

    def resend(self) -> None:
        """The last batch again: it is known, whether answered or not."""
        call = produce(self.pending[-1][2])
        self.world.send(call)
        if call.done:
            assert call.reply.parts[0].duplicate

    def note_answers(self) -> None:
        if self.world.config.fsync == "every":
            for end, _, _, call in self.pending:
                if call.done:
                    assert not call.reply.parts[0].error
                    self.durable = max(self.durable, end)

    def sync(self) -> None:
        self.world.sync()
        partition = self.world.partition
        if not partition.log.unsynced and not partition.working and self.world.config.fsync == "interval":
            self.durable = len(self.sent)
        self.note_answers()

    def end(self, power: bool) -> None:
        self.note_answers()
        self.world.core.files.pool.close()
        self.world.held.clear()
        if power:
            self.disk.power_loss()
        self.world.start()
        there = [value for value in values(self.world.read_all(self.world.partition.log.start)) if value is not None]
        left = iter(self.sent)
        assert all(value in left for value in there)                 # in order
        assert there[:self.durable] == self.sent[:self.durable]
        assert power or there == self.sent
        self.sent = there
        self._send_again()
        self.pending = []
        state = self.world.partition.producers.get(1)
        self.sequence = state.next_sequence if state else 0

    def _send_again(self) -> None:
        """A producer that got no answer sends its batch again: it is known only if all of it is there."""
        if not self.pending:
            return
        _, wanted, batch, _ = self.pending[-1]
        end = self.world.partition.log.end
        call = produce(batch)
        self.world.send(call)
        if self.world.partition.log.end > end + 1:                   # more than the leader-change record
            self.sent += wanted                                      # perhaps behind a half of it
        elif not (call.done and call.reply.parts[0].error):
            assert all(value in self.sent for value in wanted)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["every", "interval", "none"]),
       st.lists(st.sampled_from(["publish", "publish", "sync", "tick", "kill", "power", "resend"]), max_size=40))
def test_promises(seed: int, mode: str, steps: list[str]) -> None:
    life = Life(seed, mode)
    for step in steps:
        if step == "publish":
            life.publish(life.random.randint(1, 4))
        elif step == "sync":
            life.sync()
        elif step == "tick":
            life.world.tick(1.1)
        elif step in ("kill", "power"):
            life.end(step == "power")
        elif life.pending:
            life.resend()
    life.world.hold_syncs = False
    life.world.sync()
    life.world.tick(3)
    life.end(False)
    life.disk.close()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 12))
def test_offsets_that_were_synced_are_not_given_out_again(seed: int, before: int, after: int) -> None:
    life = Life(seed, "interval")
    for _ in range(before):
        life.publish(1)
    life.world.tick(1.1)
    life.sync()
    synced = life.world.partition.log.end
    for _ in range(after):
        life.publish(2)
    life.end(True)
    assert life.world.partition.log.end >= synced
    produced = life.world.publish(batch_of(b"x", producer=1, sequence=life.sequence))[0]
    assert not produced.error and not produced.duplicate and produced.base_offset >= synced
    reply = life.world.ask(Kind.END_OF_EPOCH, messages.EndOfEpoch(1))
    assert reply.end_offset <= produced.base_offset
    life.disk.close()

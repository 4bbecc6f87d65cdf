"""Everything at once: publishes, cancels, refusals, power losses, restarts, spoilt indexes, clocks that are set, retention.

Afterwards each message that still exists was made ready once, or cancelled, and whoever cancelled was told the truth. That nothing
is asked for early is checked with each marker (see rig).
"""

import random
from typing import Any

import pytest

from gq_delayd.effects import AskMarker
from gq_delayd.settings import Settings
from gq_proto import messages as m
from gq_proto.errors import DiskFull, GoQueueError, TimedOut, Unavailable
from gq_proto.messages import Fate, Kind
from tests.unit.gq_delayd.rig import DELAYED, MS, TOPIC, Call, Log, Play


class Storm:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.play = Play(Log(0), Log(1), settings=Settings(index_interval_s=0.05, ready_messages=7, due_page=13))
        self.cancels: list[tuple[Log, int, Call]] = []       # and the epoch it was asked in
        self.losses: dict[int, int] = {0: 0, 1: 0}

    @property
    def log(self) -> Log:
        return self.play.logs[TOPIC, self.chance.randrange(2)]

    def publish(self) -> None:
        delay = self.chance.choice([0, 5, 20, 100, 400, 2_000, 5_000])
        due = self.play.wall_us + self.chance.randrange(delay * MS + 1) - 2 * MS
        self.log.publish(self.chance.choice([None, due, due, due]), self.chance.choice([1, 1, 3, 20]))

    def cancel(self) -> None:
        log = self.log
        if log.end <= log.start:
            return
        low = self.chance.randrange(log.start, log.end)
        try:
            call = self.play.call(Kind.CANCEL_DELAYED, m.CancelDelayed([low, self.chance.choice([1, 5, 50])]), log.number, 1.0)
        except GoQueueError as error:
            assert error.retriable
        else:
            self.cancels.append((log, log.epoch, call))

    def refuse(self) -> None:
        errors = [DiskFull("full"), TimedOut("late"), Unavailable("gone")]
        share, lost = self.chance.random(), self.chance.random() < 0.5

        def refuse(ask: Any) -> GoQueueError | None:
            if self.chance.random() > share:
                return None
            error = self.chance.choice(errors)
            if isinstance(ask, AskMarker) and isinstance(error, TimedOut) and lost and ask.epoch == self.play.logs[ask.key].epoch:
                self.play.logs[ask.key].mark(ask.type, ask.ranges, self.play.wall_us)      # and the answer never came
            return error
        self.play.refuse = refuse

    def calm(self) -> None:
        self.play.refuse = lambda ask: None

    def lose(self) -> None:
        """A power loss of logd: some of the end is gone; then it leads anew."""
        log = self.log
        log.lose(self.chance.randrange(max(log.start, log.end - 15), log.end + 1))
        self.losses[log.number] = log.epoch + 1
        self.lead(log)

    def lead(self, log: Log | None = None) -> None:
        log = log or self.log
        log.lead()
        log.publish()            # the leader-change record

    def restart(self) -> None:
        self.play.now += self.chance.choice([0.0, 0.5])
        self.play.start()

    def spoil(self) -> None:
        """The index is lost or damaged, and the daemon begins anew."""
        for key, raw in list(self.play.files.items()):
            if self.chance.random() < 0.3:
                del self.play.files[key]
            elif raw:
                raw[self.chance.randrange(len(raw))] ^= 1 << self.chance.randrange(8)
        self.play.start()

    def clock(self) -> None:
        self.play.wall += self.chance.choice([-3_000, -200, -15, 15, 200, 3_000]) * MS

    def retain(self) -> None:
        log = self.log
        log.start = self.chance.randrange(log.start, log.end + 1) if self.chance.random() < 0.2 else log.start

    def run(self) -> None:
        steps = [self.publish] * 12 + [self.cancel] * 5 + [self.refuse, self.calm, self.calm, self.lose, self.lead, self.restart,
                                                           self.spoil, self.clock, self.retain]
        for _ in range(25):
            self.chance.choice(steps)()
            self.play.run(self.chance.choice([0.0, 0.001, 0.01, 0.1]), every=0.001)
        self.calm()
        self.play.run(60.0, every=0.5)

    def check(self) -> None:
        for log in self.play.logs.values():
            fired = self.play.fired(log)
            assert len(set(fired)) == len(fired)
            for offset in range(log.start, log.end):
                if log.records[offset][0] == DELAYED:
                    assert (offset in log.ready) != (offset in log.cancelled), f"{offset} is open or both"
            assert self.play.listed(log.number) == [] and self.play.stats(log.number).overdue == 0
        for log, epoch, call in self.cancels:
            if call.reply and epoch >= self.losses[log.number]:
                self.check_fates(log, call.reply.fates)

    def check_fates(self, log: Log, fates: list[int]) -> None:
        for low, count, fate in zip(fates[::3], fates[1::3], fates[2::3]):
            for offset in range(low, min(low + count, log.end)):
                if offset >= log.start and log.records[offset][0] == DELAYED and fate != Fate.NONE:
                    assert (offset in log.cancelled) == (fate in (Fate.CANCELLED, Fate.ALREADY_CANCELLED)), offset


@pytest.mark.parametrize("seed", range(25))
def test_after_a_storm_everything_is_as_it_should_be(seed: int) -> None:
    storm = Storm(seed)
    storm.run()
    storm.check()

"""A part's dead letters on their way to the DLQ. Hard: which, why, and the intent that covers some of them; soft: the stage.

A batch goes through tables.DEAD: learn where the DLQ ends, journal the intent, wait until that is durable, have it copied, ack.
A crash anywhere resumes at the copy, with a scan from the intent's dlq_end: so there is exactly one copy.
"""

from typing import NamedTuple

from pyroaring import BitMap64

from gq_groupd.effects import DeadLetter
from gq_groupd.tables import DEAD, step
from gq_proto.bitmaps import bitmap_of, ranges_of

BATCH = 100             # dead letters in one intent


class Pledge(NamedTuple):
    """An intent that was journaled."""

    ranges: list[int]
    dlq_topic_id: int
    dlq_end: int


class Dead:
    def __init__(self) -> None:
        self.all = BitMap64()
        self.letters: dict[int, DeadLetter] = {}
        self.intent: Pledge | None = None
        self.stage = "idle"
        self.scan = True            # an earlier try may have written copies
        self.ticket = 0             # of the intent
        self.rest_until_ms = 0

    def step(self, event: str) -> None:
        self.stage = step(DEAD, self.stage, event)

    def add(self, bitmap: BitMap64, count: int, reason: str, time_us: int) -> None:
        self.all |= bitmap
        for offset in bitmap:
            self.letters[offset] = DeadLetter(offset, count, reason, time_us)

    def remove(self, bitmap: BitMap64) -> None:
        """Copied, or nobody's business any more."""
        if not self.all or self.all.isdisjoint(bitmap):
            return
        for offset in self.all & bitmap:
            del self.letters[offset]
        self.all -= bitmap
        if self.intent and not self.pledged():
            self.intent = None

    def pledge(self, ranges: list[int], dlq_topic_id: int, dlq_end: int) -> None:
        self.intent = Pledge(ranges, dlq_topic_id, dlq_end)

    def pledged(self) -> tuple[DeadLetter, ...]:
        """What of the intent is still to be copied."""
        if not self.intent:
            return ()
        return tuple(self.letters[offset] for offset in bitmap_of(self.intent.ranges) & self.all)

    def next_batch(self) -> list[int]:
        """Ranges of the dead letters for the next intent."""
        return ranges_of(self.all[:BATCH])

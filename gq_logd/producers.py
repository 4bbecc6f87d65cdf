"""Idempotence: what was last heard of each producer in one partition.

Owns, per producer, its epoch, its latest sequence and the last PRODUCER_WINDOW batches with the offsets they got. A batch that
was seen is answered with its first offset; one that does not follow on is refused; an older epoch is fenced. A producer that is
not known here has to begin at sequence 0: a gap could hide a lost batch otherwise.

Checks never change the table: they return the producer's next state, which the caller hands to `apply` once the batch is
written completely. Several batches of one turn see each other through the `ahead` dict that collects those states.

Bound: PRODUCERS_PER_PARTITION_MAX producers, the least recently heard is forgotten. One that was forgotten and comes back gets a
SequenceGap and takes a new id.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from gq_proto.errors import Fenced, SequenceGap
from gq_proto.limits import PRODUCER_WINDOW, PRODUCERS_PER_PARTITION_MAX

SEQUENCES: Final = 2**31      # base sequences wrap here


class Window(NamedTuple):
    """One batch that was written."""

    base_sequence: int
    messages: int
    offset: int


class State(NamedTuple):
    """A producer: batches oldest first, at most PRODUCER_WINDOW; `next_sequence` follows the last."""

    epoch: int
    next_sequence: int
    batches: tuple[Window, ...]


class Producers:
    """The table of one partition, the least recently heard first."""

    __slots__ = ("_limit", "_states", "changed")

    def __init__(self, limit: int = PRODUCERS_PER_PARTITION_MAX) -> None:
        self._states: dict[int, State] = {}
        self._limit = limit
        self.changed = False         # since it was last saved

    def __len__(self) -> int:
        return len(self._states)

    def states(self) -> Iterable[tuple[int, State]]:
        return self._states.items()

    def get(self, producer_id: int) -> State | None:
        return self._states.get(producer_id)

    def check(self, producer_id: int, epoch: int, base_sequence: int, count: int, ahead: dict[int, State]) -> int:
        """-1: new, go on. Else the offset that this very batch got before. Fenced, SequenceGap."""
        state = ahead.get(producer_id) or self._states.get(producer_id)
        expected = 0
        if state:
            if epoch < state.epoch:
                raise Fenced(f"producer {producer_id} epoch {epoch} is fenced by epoch {state.epoch}: take a new one")
            if epoch == state.epoch:
                for batch in state.batches:
                    if batch.base_sequence == base_sequence and batch.messages == count:
                        return batch.offset
                expected = state.next_sequence
        if base_sequence != expected:
            raise SequenceGap(f"producer {producer_id} epoch {epoch} sent sequence {base_sequence}, expected {expected}"
                              + ("" if state else ": it is not known here, take a new producer id"))
        return -1

    def following(self, producer_id: int, epoch: int, base_sequence: int, count: int, offset: int,
                  ahead: dict[int, State]) -> State:
        """The state once this batch is written at `offset`."""
        state = ahead.get(producer_id) or self._states.get(producer_id)
        batches = state.batches if state and state.epoch == epoch else ()
        batch = Window(base_sequence, count, offset)
        return State(epoch, (base_sequence + count) % SEQUENCES, (*batches[1 - PRODUCER_WINDOW:], batch))

    def apply(self, states: dict[int, State]) -> None:
        """Take over what `following` gave, now that it is written."""
        for producer_id, state in states.items():
            self._states.pop(producer_id, None)
            self._states[producer_id] = state
        while len(self._states) > self._limit:
            del self._states[next(iter(self._states))]
        if states:
            self.changed = True

    def replay(self, producer_id: int, epoch: int, base_sequence: int, count: int, offset: int) -> None:
        """A batch found in the log: it was checked when it was written."""
        state = self._states.get(producer_id)
        if state and epoch < state.epoch:
            return
        self.apply({producer_id: self.following(producer_id, epoch, base_sequence, count, offset, {})})

    def fence(self, producer_id: int, epoch: int) -> None:
        """A transaction marker of this epoch was written: older ones are over."""
        state = self._states.get(producer_id)
        if state and state.epoch < epoch:
            self.apply({producer_id: State(epoch, 0, ())})

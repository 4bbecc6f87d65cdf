"""Deficit round robin over priority lanes: which lane's turn it is, and for how many messages.

In a round each lane may take as many messages as its weight says. Lanes are served in order, critical first; the round ends when
no lane that has messages has any of its weight left. The unit is the message, so a lane's deficit is what it has left of the round:
it is spent to the last one before the next round, and what an empty lane has left waits for messages that come in time
(M. Shreedhar, G. Varghese, Efficient Fair Queuing using Deficit Round Robin, 1995).

A reply takes the rounds' messages lane by lane. Each lane in it is a lease to make, to journal and to ack, and a poll of five
rounds would have every lane, the lowest with 15 messages. So a large poll is filled with few lanes: what the rounds give a lane is
due, and it may be some messages ahead of that or behind, never more than AHEAD_MAX. A small poll has what is due, to the message.

Pure arithmetic.
"""

from collections.abc import Sequence
from operator import add, sub
from typing import Final

AHEAD_MAX: Final = 75       # messages: of 10,000 three quarters of a point
LARGE: Final = 256          # messages of a poll that is filled with few lanes


class Shares:
    """`left`: of each lane's weight in this round. `owed`: messages of each lane that the rounds gave and no poll has had; below 0:
    that a poll has had before."""

    __slots__ = ("left", "owed", "weights")

    def __init__(self, weights: Sequence[int]) -> None:
        assert all(weight > 0 for weight in weights)
        self.weights = tuple(weights)
        self.left = list(weights)
        self.owed = [0] * len(weights)

    def fill(self, have: Sequence[int], room: int, more: Sequence[bool]) -> list[int]:
        """How many messages of each lane a poll gets: as many in all as split() says, and of no lane AHEAD_MAX more or less than if
        all polls so far had been split.

        The rounds go by what would be at hand then. Those that are due all they have come first; in a large poll then those that
        would be too far behind, and who is behind, in a small one the others in the order of the lanes."""
        lanes, owed = range(len(have)), self._still_owed(have)
        given = self.split(list(map(sub, have, owed)), room, more)
        due = list(map(add, owed, given))
        taken = [min(given[n], have[n]) if due[n] >= have[n] else max(0, due[n] - AHEAD_MAX) for n in lanes]
        rest = sum(given) - sum(taken)
        if room >= LARGE:
            order = sorted(lanes, key=lambda n: (due[n] < have[n], not taken[n], -owed[n]))
            self._add(taken, rest, order, list(map(min, have, [some + AHEAD_MAX for some in due])))
        elif rest:
            order = sorted(lanes, key=lambda n: (due[n] < have[n], n))
            self._add(taken, rest, order, due)
        self.owed = list(map(sub, due, taken))
        return taken

    @staticmethod
    def _add(taken: list[int], rest: int, order: Sequence[int], upto: Sequence[int]) -> None:
        """`rest` more, of each lane in this order up to so many."""
        for n in order:
            some = max(0, min(rest, upto[n] - taken[n]))
            taken[n] += some
            rest -= some

    def _still_owed(self, have: Sequence[int]) -> list[int]:
        """What is gone is owed no more, and nobody had it before his turn."""
        owed = list(map(min, self.owed, have))
        gone = -sum(owed)
        for n in range(len(owed)) if gone else ():
            some = max(0, min(gone, -owed[n]))
            owed[n] += some
            gone -= some
        return owed

    def split(self, have: Sequence[int], room: int, more: Sequence[bool]) -> list[int]:
        """How many messages of each lane fill `room`, when lane n has `have[n]` at hand. They are spent with that. Where more[n],
        lane n goes on behind those: no round begins while it has some of its weight left, for others would take what is its own."""
        taken = [0] * len(have)
        room = self._spend(have, room, taken)
        while room > 0:
            rest = [n for n in range(len(have)) if have[n] > taken[n]]
            dry = [n for n in range(len(have)) if more[n] and have[n] == taken[n]]
            if not rest or any(self.left[n] for n in dry):
                break
            if not dry:
                room -= self._whole_rounds(have, room, taken, rest)
            self.left = list(self.weights)
            room = self._spend(have, room, taken)
        return taken

    def _spend(self, have: Sequence[int], room: int, taken: list[int]) -> int:
        """This round, as far as it goes; what room is left."""
        for n in range(len(have)):
            some = min(self.left[n], have[n] - taken[n], room)
            if some > 0:
                taken[n] += some
                self.left[n] -= some
                room -= some
        return room

    def _whole_rounds(self, have: Sequence[int], room: int, taken: list[int], rest: list[int]) -> int:
        """Rounds in which all of these lanes spend their whole weight, at once, but for the last one. How many messages that is."""
        weights = self.weights
        rounds = min([(room - 1) // sum([weights[n] for n in rest]), *[(have[n] - taken[n] - 1) // weights[n] for n in rest]])
        for n in rest:
            taken[n] += rounds * weights[n]
        return rounds * sum([weights[n] for n in rest])

    def take(self, lane: int, most: int) -> int:
        """Out of turn: up to a round's worth."""
        some = min(self.weights[lane], most)
        self.left[lane] = max(0, self.left[lane] - some)
        return some

    def give_back(self, lane: int, count: int) -> None:
        """So many were not there."""
        self.left[lane] = min(self.weights[lane], self.left[lane] + count)

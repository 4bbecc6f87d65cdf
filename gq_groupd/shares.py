"""Deficit round robin over priority lanes: which lane's turn it is, and for how many messages.

In a round each lane may take as many messages as its weight says. Lanes are served in order, critical first; the round ends when
no lane that has messages has any of its weight left. The unit is the message, so a lane's deficit is what it has left of the round:
it is spent to the last one before the next round, and what an empty lane has left waits for messages that come in time
(M. Shreedhar, G. Varghese, Efficient Fair Queuing using Deficit Round Robin, 1995).

Pure arithmetic. A reply takes the rounds' messages lane by lane: the shares are those of the rounds, to the message.
"""

from collections.abc import Sequence


class Shares:
    """`left`: of each lane's weight in this round."""

    __slots__ = ("left", "weights")

    def __init__(self, weights: Sequence[int]) -> None:
        assert all(weight > 0 for weight in weights)
        self.weights = tuple(weights)
        self.left = list(weights)

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

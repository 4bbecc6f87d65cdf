"""How many messages of each priority a partition has for a group, and how fast they come and go. Figures only: nothing is decided
by them. Soft state.

`opened` counts, per lane, what is open below `counted`, which trails the scan where a stretch was scanned without its lanes and
some of it was acked already: such a stretch is counted run by run when somebody asks. Counters and rates begin with the core.
"""

import math
from typing import Final

from gq_proto.limits import PRIORITIES

RATE_MS: Final = 10_000     # a rate is that of about the last so many


class Rate:
    """Messages a second: what happened weighs less the longer ago it is. Exact for what is steady from the first on."""

    __slots__ = ("_at_ms", "_began_ms", "_weight")

    def __init__(self) -> None:
        self._weight, self._at_ms, self._began_ms = 0.0, 0, -1

    def add(self, count: int, now_ms: int) -> None:
        if self._began_ms < 0:
            self._began_ms = self._at_ms = now_ms
        self._weight = self._weight * math.exp((self._at_ms - now_ms) / RATE_MS) + count
        self._at_ms = now_ms

    def per_s(self, now_ms: int) -> float:
        if self._began_ms < 0:
            return 0.0
        window_ms = RATE_MS * (1 - math.exp((self._began_ms - now_ms) / RATE_MS))
        return 1000 * self._weight * math.exp((self._at_ms - now_ms) / RATE_MS) / max(window_ms, 1000)


class Census:
    __slots__ = ("came", "came_rates", "closely_to", "counted", "known_to", "opened", "served_ms", "wanted", "went",
                 "went_rates")

    def __init__(self, start: int) -> None:
        self.came, self.went = [0] * PRIORITIES, [0] * PRIORITIES
        self.came_rates, self.went_rates = [Rate() for _ in range(PRIORITIES)], [Rate() for _ in range(PRIORITIES)]
        self.served_ms = [-1] * PRIORITIES
        self.wanted = False                 # somebody asked for what is not counted
        self.known_to = -1                  # messages from here on are new when they are seen; -1: not one was seen yet
        self.reset(start)

    def reset(self, start: int) -> None:
        """Nothing is open below `start`, and what lies behind is to be counted anew."""
        self.opened = [0] * PRIORITIES
        self.counted = self.closely_to = start

    def see(self, end: int) -> None:
        """The log ends there now: what is there already did not come."""
        if self.known_to < 0:
            self.known_to = end

    def arrived(self, counts: list[int], now_ms: int) -> None:
        for lane, count in enumerate(counts):
            if count:
                self.came[lane] += count
                self.came_rates[lane].add(count, now_ms)

    def departed(self, counts: list[int], now_ms: int) -> None:
        """Done with."""
        for lane, count in enumerate(counts):
            if count:
                self.depart(lane, count, now_ms)

    def depart(self, lane: int, count: int, now_ms: int) -> None:
        """Messages of one lane."""
        self.went[lane] += count
        self.went_rates[lane].add(count, now_ms)

    def count(self, counts: list[int], upto: int) -> None:
        """So many are open between `counted` and `upto`."""
        for lane, count in enumerate(counts):
            self.opened[lane] += count
        self.counted, self.wanted = upto, False

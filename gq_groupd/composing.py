"""What one poll gets: messages of its member's partitions, lane by lane.

Owns the order. Of groups that only ever saw one lane: partition by partition, beginning behind where the last poll began. Where
lanes are mixed, deficit round robin (`shares`) says how many messages of each lane fill the poll, over all partitions of the
member; each lane takes them from its partitions in turn. A lane of a partition that was passed over for starvation_ms goes first,
with what its weight gives it in a round. A shared group has one set of shares, else each member its own.

Picks are of one partition and one lane. Which lane a message is of, and whether it is free, is the part's to know.
"""

from collections.abc import Iterator

from gq_groupd.group import SHARED, Group, Member
from gq_groupd.part import Part, Pick
from gq_groupd.settings import Settings
from gq_groupd.shares import AHEAD_MAX, Shares
from gq_proto.limits import PRIORITIES

RETRIES_MAX = 16            # messages that failed before in one reply: a lease each, so that one that kills harms no other
NO_MORE = [False] * PRIORITIES


class Composing:
    """One poll with room for `room` messages. `picks` has to be run through, each pick granted as it comes; `touched` are the
    parts that may have something to do then."""

    def __init__(self, group: Group, member: Member, room: int, now_ms: int, settings: Settings) -> None:
        self._group, self._member, self._now_ms, self._settings = group, member, now_ms, settings
        self.room = room
        self._retries = RETRIES_MAX
        self._first: Part | None = None      # that gave something
        self.touched: dict[Part, None] = {}

    def picks(self) -> Iterator[tuple[Part, Pick]]:
        lanes = self._group.lanes
        if lanes & (lanes - 1):
            if parts := list(self._parts()):
                yield from self._mixed(parts)
        elif lanes:
            yield from self._plain(lanes.bit_length() - 1)
        if self._first:
            self._member.turn = (self._member.keys.index(self._first.key) + 1) % len(self._member.keys)

    def _parts(self) -> Iterator[Part]:
        """Those that serve, in turn."""
        group, keys, turn = self._group, self._member.keys, self._member.turn
        for number in range(turn, turn + len(keys)):
            part = group.parts.get(keys[number % len(keys)])
            if part is not None and part.serving and not part.handover:
                yield part

    def _plain(self, lane: int) -> Iterator[tuple[Part, Pick]]:
        for part in self._parts():
            if self.room <= 0:
                return
            if part.has(lane):
                yield from self._take(part, lane, self.room)

    def _take(self, part: Part, lane: int, most: int) -> Iterator[tuple[Part, Pick]]:
        self.touched[part] = None
        for pick in part.take(lane, most, self._retries):
            self._first = self._first or part
            self._retries -= pick.delivery > 1
            self.room -= pick.total
            part.census.served_ms[lane] = self._now_ms
            yield part, pick

    # -- lanes -------------------------------------------------------------------------------

    def _mixed(self, parts: list[Part]) -> Iterator[tuple[Part, Pick]]:
        shares = self._shares()
        stocks = [part.stock() for part in parts]
        for _, at, lane in self._starved(parts, stocks):
            most = shares.take(lane, min(self.room, stocks[at][lane]))
            yield from self._served(parts[at], stocks[at], lane, most)
        before: list[list[int]] = []
        while self.room > 0 and stocks != before:        # some of a stock may be done with already: less was there
            before = [list(stock) for stock in stocks]
            have = [sum(lane) for lane in zip(*stocks)]
            more = NO_MORE                   # of a lane with enough at hand it does not matter
            if min(have) < self.room + AHEAD_MAX:
                more = [any(part.lanes.lanes[lane].more for part in parts) for lane in range(PRIORITIES)]
            for lane, wanted in enumerate(shares.fill(have, self.room, more)):
                left = wanted
                for part, stock in zip(parts, stocks) if left else ():
                    if stock[lane] and left:
                        room = self.room
                        yield from self._served(part, stock, lane, left)
                        left -= room - self.room
                if left:
                    shares.give_back(lane, left)

    def _served(self, part: Part, stock: list[int], lane: int, most: int) -> Iterator[tuple[Part, Pick]]:
        """The lane's messages, `most` at most; its stock afterwards."""
        room = self.room
        yield from self._take(part, lane, most)
        took = room - self.room
        stock[lane] = stock[lane] - took if took == most else 0
        if took:
            part.since[lane] = self._now_ms

    def _starved(self, parts: list[Part], stocks: list[list[int]]) -> list[tuple[int, int, int]]:
        """(since when, which part, which lane), the longest first. Time in which nobody polled is no waiting."""
        now, limit, starved = self._now_ms, self._settings.starvation_ms, []
        for at, (part, stock) in enumerate(zip(parts, stocks)):
            if now - part.looked_ms >= limit:
                part.since = [now] * PRIORITIES
            part.looked_ms = now
            for lane, have in enumerate(stock):
                if not have:
                    part.since[lane] = now
                elif now - part.since[lane] >= limit:
                    starved.append((part.since[lane], at, lane))
        return sorted(starved)

    def _shares(self) -> Shares:
        owner: Group | Member = self._group if self._group.mode == SHARED else self._member
        if owner.shares is None:
            owner.shares = self._group.spare.pop() if self._group.spare else Shares(self._settings.weights)
        return owner.shares

"""What all parts of the core work at: the state, the clock of this step, timers, and what the step wants done.

Owns the order of a step's effects: the Append of its entries first, then everything else as it was emitted. Timers are calls that
look whether they still matter; none is ever taken back.
"""

import heapq
from collections.abc import Callable
from itertools import count as counter
from typing import Any

from gq_groupd import entries as e
from gq_groupd.ages import Ages
from gq_groupd.effects import Append, Call, Effect, Fail, Reply
from gq_groupd.group import Group, Key
from gq_groupd.part import Part
from gq_groupd.settings import Settings
from gq_groupd.state import State
from gq_proto.errors import GoQueueError
from gq_proto.messages import Body, TopicConfig, TopicMeta


class Desk:
    def __init__(self, partition: int, rand32: Callable[[], int], settings: Settings) -> None:
        self.partition, self.rand32, self.settings = partition, rand32, settings
        self.state = State()
        self.now_ms = self.wall_us = 0
        self.ticket = self.confirmed = 0
        self.next_lease = 1
        self.topics: dict[int, TopicMeta] = {}
        self.names: dict[str, int] = {}
        self.touched: dict[Part, None] = {}         # look what they need before the step ends
        self.hungry: dict[Group, None] = {}         # something may be there for their parked polls
        self.changed: dict[Group, None] = {}        # to be exported
        self.advanced = False                       # errands may go on
        self.parts_changed = False                  # what is watched
        self.ages = Ages()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = counter()
        self._effects: list[Effect] = []
        self._records: list[tuple[bytes, bytes]] = []

    # -- the clock -------------------------------------------------------------------------

    def at_time(self, now_ms: int, wall_us: int) -> None:
        self.now_ms = self.state.now_ms = max(self.now_ms, now_ms)
        self.wall_us = wall_us

    def at(self, when_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (when_ms, next(self._order), call))

    def run_due(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_ms:
            heapq.heappop(self._timers)[2]()

    def next_deadline(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    # -- what the step does --------------------------------------------------------------------

    def commit(self, group: Group, entry: e.AnyEntry) -> None:
        """Decided: to the journal, and done."""
        self._records.append((group.name.encode(), e.encode(entry)))
        self.state.apply(group.name, entry)
        self.changed[group] = None

    def journal(self, name: str, entry: e.AnyEntry) -> None:
        """commit, where there is no group yet."""
        self._records.append((name.encode(), e.encode(entry)))
        self.state.apply(name, entry)

    def pending(self) -> int:
        """The ticket after which all that was decided so far is durable."""
        ticket = self.ticket + bool(self._records)
        return ticket if ticket > self.confirmed else 0

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def reply(self, call: Call, body: Body) -> None:
        """Once everything decided so far is durable."""
        self._effects.append(Reply(call, body, self.pending()))

    def fail(self, call: Call, error: GoQueueError) -> None:
        self._effects.append(Fail(call, error))

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        if self._records:
            self.ticket += 1
            effects.insert(0, Append(self.ticket, self._records))
            self._records = []
        return effects

    @property
    def journal_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self._records)

    @property
    def journal_records(self) -> int:
        return len(self._records)

    # -- short cuts ------------------------------------------------------------------------------

    def touch(self, part: Part) -> None:
        self.touched[part] = None

    def wake(self, group: Group) -> None:
        if group.parked:
            self.hungry[group] = None

    def config(self, part: Part) -> TopicConfig:
        topic = self.topics.get(part.topic_id)
        return topic.config if topic else TopicConfig()

    def epoch_of(self, key: Key) -> int:
        """What metad says, while logd has not been heard."""
        topic = self.topics.get(key[0])
        return topic.partitions[key[1]].epoch if topic and key[1] < len(topic.partitions) else -1

    def known(self, part: Part) -> bool:
        """Its topic exists."""
        return part.topic_id in self.topics

    def alive(self, part: Part) -> bool:
        """It is still the group's."""
        group: Any = self.state.numbers.get(part.group.number)
        return group is part.group and group.parts.get(part.key) is part

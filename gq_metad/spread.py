"""Who knows which version: a change of keys is answered when every daemon that follows the metadata has it in force.

Owns soft state: the version that each follower said it has, and the changes that wait for them. A daemon that says nothing holds an
answer up for SPREAD_S at most; the answer names it. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gq_metad.effects import Call, Fail, Reply
from gq_proto.errors import GoQueueError
from gq_proto.messages import Body

SPREAD_S: Final = 2.0
Who = tuple[str, str]              # daemon, node id


@dataclass
class Change:
    """Answered by `answer(late)`: the daemons that have not said in time that they know it."""

    call: Call
    version: int
    until: float
    answer: Callable[[list[str]], Body]


class Spread:
    """`is_up(who, now)`: was the daemon heard of lately. Who is not up holds nothing up."""

    def __init__(self, is_up: Callable[[Who, float], bool]) -> None:
        self._is_up = is_up
        self._known: dict[Who, int] = {}
        self._changes: list[Change] = []

    def __len__(self) -> int:
        return len(self._changes)

    def know(self, now: float, who: Who, version: int) -> list[Reply]:
        """A follower has `version` in force."""
        self._known[who] = version
        return self.due(now)

    def wait(self, now: float, change: Change) -> list[Reply]:
        change.until = min(change.until, now + SPREAD_S)
        self._changes.append(change)
        return self.due(now)

    def due(self, now: float) -> list[Reply]:
        """Answers to those whose change all know, or that waited long enough."""
        waiting, self._changes = self._changes, []
        replies = []
        for change in waiting:
            late = [who for who, known in self._known.items() if known < change.version and self._is_up(who, now)]
            if late and now < change.until:
                self._changes.append(change)
            else:
                replies.append(Reply(change.call, change.answer(["/".join(who) for who in sorted(late)])))
        return replies

    def next_deadline(self) -> float | None:
        return min((change.until for change in self._changes), default=None)

    def restore(self, version: int, error: GoQueueError) -> list[Fail]:
        """Changes after `version` did not happen."""
        lost = [change for change in self._changes if change.version > version]
        self._changes = [change for change in self._changes if change.version <= version]
        self._known = {who: min(known, version) for who, known in self._known.items()}
        return [Fail(change.call, error) for change in lost]

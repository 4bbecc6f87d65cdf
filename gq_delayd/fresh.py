"""Requests that wait until a log is read up to where it ended when they came: what was published before them is known then.

Owns who waits. A wait always ends by its `then` unless who asked gave up: also when the part is gone, which `then` looks for.
"""

from collections.abc import Callable

from gq_delayd.desk import Desk
from gq_delayd.effects import Call
from gq_delayd.part import Part


class Wait:
    """`looking`: the Due under way, or a later one, was asked after it came."""

    __slots__ = ("call", "looking", "then")

    def __init__(self, call: Call, then: Callable[[], None], looking: bool) -> None:
        self.call, self.then, self.looking = call, then, looking


class Fresh:
    """`look(part)` asks what came since; False while an ask is under way that may have been sent before."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.look: Callable[[Part], bool] = lambda part: False
        self._waits: dict[int, list[Wait]] = {}          # by part id

    def wait(self, part: Part, call: Call, then: Callable[[], None]) -> None:
        self._waits.setdefault(part.id, []).append(Wait(call, then, self.look(part)))

    def read(self, part: Part) -> None:
        """The log is read up to where it ended when that was asked for."""
        waits = self._waits.pop(part.id, [])
        late = [wait for wait in waits if not wait.looking]     # they came while it was on its way
        if late:
            self._waits[part.id] = late
            asked = bool(part.asking) or self.look(part)
            for wait in late:
                wait.looking = asked
        for wait in waits:
            if wait not in late:
                wait.then()

    def expire(self) -> None:
        """Forget those who gave up, and do not let those wait whose part is not what it was."""
        for id in list(self._waits):
            if id not in self._desk.by_id:
                for wait in self._waits.pop(id):
                    wait.then()
                continue
            self._waits[id] = [wait for wait in self._waits[id] if wait.call.deadline > self._desk.now]
            if not self._waits[id]:
                del self._waits[id]

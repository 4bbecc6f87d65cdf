"""Requests that need more than this moment: marks, descriptions, joins that wait for the logs to be known.

An errand is tried when it comes and whenever something advanced, until it is done or its caller's patience ends.
"""

from collections.abc import Callable
from functools import partial

from gq_groupd import entries as e
from gq_groupd.desk import Desk
from gq_groupd.effects import Call, Effect, Fail
from gq_groupd.group import Group, Key
from gq_groupd.loading import Loading
from gq_groupd.part import Part
from gq_proto.errors import Busy, Unavailable, UnknownGroup, UnknownPartition, UnknownTopicId
from gq_proto.messages import Mark1, MarkReply

ERRANDS_MAX = 1_000
PATIENCE_MS = 3_000         # a description that waits for partitions nobody leads tells what it knows then
UNHEARD_MS = 2_000          # a topic that was just made may be news here for so long
NEVER_MS = 2**31            # the caller's patience is all that counts
ANSWER_EARLY_MS = 50


class Errand:
    """`attempt()` is True when it has answered; `at_last()` answers when time is up."""

    def __init__(self, call: Call, attempt: Callable[[], bool], at_last: Callable[[], object]) -> None:
        self.call, self.attempt, self.at_last = call, attempt, at_last


class Errands:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._all: dict[Errand, None] = {}

    def run(self, errand: Errand, patience_ms: int = NEVER_MS) -> None:
        if errand.attempt():
            return
        if len(self._all) >= ERRANDS_MAX:
            raise Busy("too many requests wait for partitions that cannot be read now")
        self._all[errand] = None
        until = min(int(errand.call.deadline * 1000) - ANSWER_EARLY_MS, self._desk.now_ms + patience_ms)
        self._desk.at(until, partial(self._overdue, errand))

    def advance(self) -> None:
        for errand in list(self._all):
            if errand.attempt():
                self._all.pop(errand, None)

    def _overdue(self, errand: Errand) -> None:
        if errand in self._all:
            del self._all[errand]
            errand.at_last()

    def abandon(self) -> list[Effect]:
        return [Fail(errand.call, Unavailable("the group's coordinator starts over, ask again")) for errand in self._all]


class Marking:
    """One Mark request: its items in order, each when its partition is known to the end. `unheard`: of topics that are not known,
    or not yet."""

    def __init__(self, desk: Desk, loading: Loading, call: Call, group: Group) -> None:
        self._desk, self._loading, self._call, self._group = desk, loading, call, group
        self._items: list[Mark1] = call.body.items
        self._changed: list[int] = []
        self._before: int | None = None     # open in the item's range before it was un-acked
        self.unheard = self._items
        self._make_known()

    def _make_known(self) -> None:
        topics = self._desk.topics
        heard = [item for item in self.unheard if item.topic_id in topics]
        self.unheard = [item for item in self.unheard if item.topic_id not in topics]
        for item in heard:
            self._make(item)

    def _make(self, item: Mark1) -> None:
        key = item.topic_id, item.partition
        topic = self._desk.topics[item.topic_id]
        if not 0 <= item.partition < len(topic.partitions):
            raise UnknownPartition(f"{topic.name} has partitions 0..{len(topic.partitions) - 1}, not {item.partition}")
        if key not in self._group.parts:
            self._group.placing.pop(key, None)
            self._loading.make(self._group, key, 0)
            self._desk.touch(self._group.parts[key])

    def attempt(self) -> bool:
        if self.unheard:
            try:
                self._make_known()
            except UnknownPartition as e:
                self._desk.fail(self._call, e)
                return True
            if self.unheard:
                return False
        while len(self._changed) < len(self._items):
            item = self._items[len(self._changed)]
            part = self._part((item.topic_id, item.partition))
            if part is None:
                self._desk.fail(self._call, UnknownGroup("the group or the topic was deleted meanwhile"))
                return True
            if part.stage != "ready":
                return False
            low, high = self._range(part, item)
            if self._before is not None:
                self._changed.append(max(0, _open_in(part, low, high) - self._before))
                self._before = None
            elif low >= high:
                self._changed.append(0)
            elif item.ack:
                self._changed.append(_open_in(part, low, high))
                self._mark(part, True, low, high)
            else:
                self._before = _open_in(part, low, high)
                self._mark(part, False, low, high)
                if part.scanned < part.end:
                    part.step("fall behind")
        self._desk.reply(self._call, MarkReply(self._changed))
        return True

    def _part(self, key: Key) -> Part | None:
        group = self._desk.state.numbers.get(self._group.number)
        return group.parts.get(key) if group is self._group else None

    def _range(self, part: Part, item: Mark1) -> tuple[int, int]:
        """Within what exists. An ack of what is below the log start is no change."""
        high = part.end if item.high < 0 else min(item.high, part.end)
        return max(item.low, part.log_start, 0), high

    def _mark(self, part: Part, ack: bool, low: int, high: int) -> None:
        self._desk.commit(part.group, e.Marked(part.group.number, *part.key, ack, low, high))
        self._desk.touch(part)
        self._desk.wake(part.group)

    def at_last(self) -> None:
        error = (UnknownTopicId(f"no topic has the id {self.unheard[0].topic_id}") if self.unheard else
                 Unavailable("a partition cannot be read now, nobody leads it: ask again"))
        self._desk.fail(self._call, error)


def _open_in(part: Part, low: int, high: int) -> int:
    if low >= high:
        return 0
    anchored = sum(len(bitmap) for ready, bitmap in part.anchors.open.items() if low <= ready < high)
    return int(part.open.range_cardinality(low, high)) + anchored

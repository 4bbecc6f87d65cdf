"""What the pieces of the core share: time, the wheel, the parts, and the effects of this turn."""

from collections.abc import Iterator
from typing import Any

from gq_delayd.effects import Effect, Key, Note
from gq_delayd.part import Part
from gq_delayd.settings import Settings
from gq_delayd.wheel import Wheel


class Desk:
    """`touched`: parts that may have something to send, to save or to answer at the end of the turn."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0.0
        self.wall_us = 0
        self.wheel = Wheel()
        self.parts: dict[Key, Part] = {}
        self.by_id: dict[int, Part] = {}
        self.touched: dict[Part, None] = {}
        self.effects: list[Effect] = []
        self.learnt_at = -1e9        # when a delayed message was last heard of
        self._last_id = self._last_number = 0

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def note(self, level: str, text: str, **fields: Any) -> None:
        self.effects.append(Note(level, text, fields))

    def next_number(self) -> int:
        """Of an ask."""
        self._last_number += 1
        return self._last_number

    def touch(self, part: Part) -> None:
        self.touched[part] = None

    def add(self, part: Part) -> None:
        self.parts[part.key] = part
        self.reset(part)

    def reset(self, part: Part) -> None:
        """It is nothing but a name from here on; its old id is nobody's."""
        self._forget(part)
        self._last_id += 1
        part.reset(self._last_id)
        self.by_id[part.id] = part

    def remove(self, part: Part) -> None:
        self._forget(part)
        self.touched.pop(part, None)
        del self.parts[part.key]

    def _forget(self, part: Part) -> None:
        if self.by_id.pop(part.id, None):
            self.wheel.drop(part.id)

    def of_topic(self, topic_id: int) -> Iterator[Part]:
        """In order of partitions."""
        return iter(sorted((part for part in self.parts.values() if part.topic_id == topic_id), key=lambda part: part.number))

"""What a query's filters leave to be read: topics, partitions, offsets, times. Spark evaluates every filter again, so a filter that
is not understood costs time, never a row.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gq_spark.options import microseconds

EVERY: Final = 2**63 - 1
Test = Callable[[Any], bool]


@dataclass(frozen=True)
class Window:
    """Rows with offset in [low, high) and timestamp in [oldest, newest), microseconds, of topics and partitions that pass."""

    topic: tuple[Test, ...] = ()
    partition: tuple[Test, ...] = ()
    low: int = 0
    high: int = EVERY
    oldest: int = 0
    newest: int = EVERY

    def holds(self, topic: str, partition: int) -> bool:
        return all(test(topic) for test in self.topic) and all(test(partition) for test in self.partition)


def window_of(filters: Iterable[Any]) -> Window:
    """Of PySpark's filters, all of which a row must pass."""
    tests: dict[str, list[Test]] = {"topic": [], "partition": []}
    limits: dict[str, list[int]] = {"offset": [0, EVERY], "timestamp": [0, EVERY]}
    for given in filters:
        kind = type(given).__name__
        column: tuple[str, ...] = getattr(given, "attribute", ())
        if len(column) != 1:
            continue
        if column[0] in tests and kind in _TESTS:
            tests[column[0]].append(_Test(kind, given.value))
        elif column[0] in limits and kind in _LIMITS:
            _narrow(limits[column[0]], kind, given.value)
    return Window(tuple(tests["topic"]), tuple(tests["partition"]), *limits["offset"], *limits["timestamp"])


_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": lambda row, value: bool(row == value), "EqualNullSafe": lambda row, value: bool(row == value),
    "In": lambda row, value: row in value, "StringStartsWith": lambda row, value: row.startswith(value),
    "GreaterThan": lambda row, value: bool(row > value), "GreaterThanOrEqual": lambda row, value: bool(row >= value),
    "LessThan": lambda row, value: bool(row < value), "LessThanOrEqual": lambda row, value: bool(row <= value),
}


@dataclass(frozen=True)
class _Test:
    kind: str
    value: Any

    def __call__(self, row: Any) -> bool:
        try:
            return _TESTS[self.kind](row, self.value)
        except TypeError:
            return True


# What a filter leaves of [low, high)
_LIMITS: Final[dict[str, Callable[[int, int], tuple[int, int]]]] = {
    "EqualTo": lambda low, high: (low, high + 1), "EqualNullSafe": lambda low, high: (low, high + 1),
    "In": lambda low, high: (low, high + 1),
    "GreaterThan": lambda low, high: (low + 1, EVERY), "GreaterThanOrEqual": lambda low, high: (low, EVERY),
    "LessThan": lambda low, high: (0, high), "LessThanOrEqual": lambda low, high: (0, high + 1),
}


def _narrow(limits: list[int], kind: str, value: Any) -> None:
    values = [_number(one) for one in (value if isinstance(value, tuple | list) else (value,))]
    known = [one for one in values if one is not None]
    if not known or len(known) < len(values):
        return
    low, high = _LIMITS[kind](min(known), max(known))
    limits[:] = max(limits[0], low), min(limits[1], high)


def _number(value: Any) -> int | None:
    """An offset or microseconds; None for what is neither."""
    if isinstance(value, datetime):
        return microseconds(value) if value.tzinfo else None
    return value if type(value) is int else None

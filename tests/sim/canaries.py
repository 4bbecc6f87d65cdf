"""Deliberate bugs. Each must be found by the checkers within a bounded number of seeds; see test_sim."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CANARIES: dict[str, Callable[[], Any]] = {}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    yield

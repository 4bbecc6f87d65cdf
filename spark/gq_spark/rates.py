"""How far a micro-batch of at most so many offsets goes: each partition gets its share by what waits in it, and at least one."""

from collections.abc import Mapping
from typing import TypeVar

_K = TypeVar("_K")


def shared_out(begins: Mapping[_K, int], ends: Mapping[_K, int], most: int) -> dict[_K, int]:
    """Ends within `ends`; `most` is passed by less than one offset a partition."""
    waiting = {key: end - begins[key] for key, end in ends.items()}
    total = sum(waiting.values())
    if total <= most:
        return dict(ends)
    return {key: begins[key] + (max(most * count // total, 1) if count else 0) for key, count in waiting.items()}

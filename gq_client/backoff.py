"""How long to wait before another try: the one rule for requests and for batches."""

from typing import Final

FIRST_S: Final = 0.02
MAX_S: Final = 1.0


def backoff(attempt: int, chance: float) -> float:
    """Seconds before try number `attempt` + 1 (1 = the first try failed): doubling, capped, half of it at random (chance in
    [0, 1)), so that clients which failed together do not come back together."""
    whole = min(MAX_S, FIRST_S * (1 << min(attempt - 1, 16)))
    return whole * (0.5 + 0.5 * chance)

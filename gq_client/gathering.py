"""What an eager producer does before a request, when several senders are at work: it lets some turns of the loop pass.

A request costs its daemon and its sender about the same with one message as with twenty. While there is work to do, turns bring
messages of others, who then travel along; while there is none, they pass in no time (a few microseconds each): so nothing waits
for a clock, whose steps of a millisecond would be longer than a request takes. Who sends alone, as the last request's messages
tell, is not held up at all. The producer's linger bounds it all.
"""

from collections.abc import Callable
from typing import Any, Final

TURNS: Final = 40


class Gathering:
    """`soon(call)` calls in the next turn of the loop; `then()` is told when the turns have passed."""

    def __init__(self, soon: Callable[[Callable[[], None]], Any], then: Callable[[], None]) -> None:
        self._soon, self._then = soon, then
        self._left = 0              # turns; 0: not begun
        self._alone, self._over = True, False

    def over(self) -> bool:
        """May the request go? If not, turns pass from now on."""
        if self._alone or self._over:
            return True
        if not self._left:
            self._left = TURNS
            self._soon(self._turn)
        return False

    def sent(self, messages: int) -> None:
        """It went, with so many."""
        self._alone, self._over = messages <= 1, False

    def _turn(self) -> None:
        self._left -= 1
        if self._left:
            self._soon(self._turn)
        else:
            self._over = True
            self._then()

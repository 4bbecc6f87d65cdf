"""An eager producer's pause: who gathers, for how long, and who is not held up."""

from collections import deque
from collections.abc import Callable

from gq_client.gathering import TURNS, Gathering


class Turns:
    """A loop's call_soon, turned by hand."""

    def __init__(self) -> None:
        self._soon: deque[Callable[[], None]] = deque()
        self.passed = 0                             # gatherings that came to their end
        self.gathering = Gathering(self._soon.append, self._then)

    def _then(self) -> None:
        self.passed += 1

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self._soon.popleft()()

    @property
    def idle(self) -> bool:
        return not self._soon


def test_a_lone_sender_is_never_held() -> None:
    turns = Turns()
    for _ in range(3):
        assert turns.gathering.over()
        turns.gathering.sent(1)
    assert turns.idle


def test_several_gather_for_some_turns_and_the_producer_is_told() -> None:
    turns = Turns()
    turns.gathering.sent(2)
    assert not turns.gathering.over()
    turns.turn(TURNS - 1)
    assert not turns.gathering.over() and not turns.passed
    turns.turn()
    assert turns.gathering.over() and turns.passed == 1 and turns.idle


def test_asking_again_does_not_begin_again() -> None:
    turns = Turns()
    turns.gathering.sent(2)
    for _ in range(TURNS):
        assert not turns.gathering.over()
        turns.turn()
    assert turns.gathering.over() and turns.idle


def test_each_request_is_gathered_for_until_one_goes_alone() -> None:
    turns = Turns()
    for messages in (2, 20, 1):
        turns.gathering.sent(messages)
        if messages > 1:
            assert not turns.gathering.over()
            turns.turn(TURNS)
        assert turns.gathering.over()
    assert turns.passed == 2

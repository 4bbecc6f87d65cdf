"""A loop, a short place for sockets, and turning the loop until something is so: no test here sleeps."""

import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from gq_run.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def endpoint() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="gq") as folder:
        yield f"ipc://{folder}/s.sock"


@pytest.fixture
def turn_until(loop: Loop) -> Callable[[Callable[[], Any]], None]:
    def turn_until(check: Callable[[], Any]) -> None:
        end = time.monotonic() + 10
        while not check():
            assert time.monotonic() < end, "nothing happened"
            loop.turn(0.02)

    return turn_until

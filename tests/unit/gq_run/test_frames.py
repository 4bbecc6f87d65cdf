"""Messages of several frames over a connection that comes and goes."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from gq_run import frames
from gq_run.frames import receive, send

Socket = zmq.Socket[bytes]
WAIT_MS = 10_000


class Peers:
    """A DEALER and the ROUTER it talks to, which can be killed and made anew."""

    def __init__(self, context: zmq.Context[Socket], endpoint: str) -> None:
        self._context, self._endpoint = context, endpoint
        self.dealer: Any = context.socket(zmq.DEALER)
        self.dealer.immediate, self.dealer.linger, self.dealer.reconnect_ivl = 1, 0, 1
        self._monitor = self.dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self.dealer.connect(endpoint)
        self.router: Any = None
        self.up()

    def up(self) -> None:
        self.router = self._context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.router.bind(self._endpoint)
        self._await(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        assert self.dealer.poll(WAIT_MS, zmq.POLLOUT)       # the event comes before the dealer has its pipe

    def wait_for_the_end(self) -> None:
        self._await(zmq.EVENT_DISCONNECTED)

    def down(self) -> None:
        self.router.close()
        self.wait_for_the_end()
        assert not self.dealer.poll(0)        # it has seen that its pipe is gone

    def wait_for_nobody(self) -> None:
        """The event comes before the dealer has given up its pipe."""
        until = time.monotonic() + WAIT_MS / 1000
        while self.dealer.poll(0, zmq.POLLOUT):
            assert time.monotonic() < until, "there is still somebody"

    def _await(self, wanted: int) -> None:
        while self._monitor.poll(WAIT_MS):
            if recv_monitor_message(self._monitor)["event"] == wanted:
                return
        raise AssertionError("nothing happened")

    def came(self) -> list[bytes]:
        assert self.router.poll(WAIT_MS), "nothing came"
        return [frame.bytes for frame in receive(self.router)[1:]]


class Broken(list[bytes]):
    """Frames of which number `at` is taken when `breaks` was called."""

    def __init__(self, frames: list[bytes], at: int, breaks: Callable[[], None]) -> None:
        super().__init__(frames)
        self._at, self._breaks = at, breaks

    def __iter__(self) -> Iterator[bytes]:
        for number, frame in enumerate(super().__iter__()):
            if number == self._at:
                self._breaks()
            yield frame


@pytest.fixture
def peers(context: zmq.Context[Socket], endpoint: str) -> Peers:
    return Peers(context, endpoint)


def test_a_message_arrives_whole(peers: Peers) -> None:
    large = bytes(100_000)
    [(size, tracker)] = send(peers.dealer, [b"head", large, b""], track=True)
    assert peers.came() == [b"head", large, b""] and size == len(large)
    tracker.wait(10)
    assert receive(peers.dealer) == []


def test_nobody_there_is_said(peers: Peers) -> None:
    peers.down()
    peers.wait_for_nobody()
    with pytest.raises(zmq.Again):
        send(peers.dealer, [b"head", b"payload"])


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_connection_that_breaks_in_a_message_does_not_swallow_the_next(peers: Peers, at: int) -> None:
    """ZeroMQ drops frames up to the last of a message: of the one that broke, not of the first on the new connection."""
    try:
        send(peers.dealer, Broken([b"0", b"1", b"2", b"3"], at, peers.down))
    except zmq.Again:
        pass                     # that, or it is dropped without a word
    peers.up()
    send(peers.dealer, [b"the", b"next"])
    assert peers.came() == [b"the", b"next"]


def test_a_connection_that_breaks_while_a_message_is_taken_leaves_it_whole(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ looks at connections with each hundredth frame, be it the second of a message, and has no good end then."""
    send(peers.dealer, [b"hello"])
    assert peers.router.poll(WAIT_MS)
    me = receive(peers.router)[0].bytes
    for _ in range(49):
        send(peers.router, [me, b"head", b"payload"])
        assert peers.dealer.poll(WAIT_MS) and len(receive(peers.dealer)) == 2 and receive(peers.dealer) == []
    send(peers.router, [me, b"head", b"payload"])
    assert peers.dealer.poll(WAIT_MS)
    taken = 0

    def take(*how: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == 2:
            peers.router.close()
            peers.wait_for_the_end()
        return as_before(*how)

    as_before = frames._recv
    monkeypatch.setattr(frames, "_recv", take)
    assert [frame.bytes for frame in receive(peers.dealer)] == [b"head", b"payload"]
    assert receive(peers.dealer) == []

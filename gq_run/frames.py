"""Multipart messages in and out of a ZeroMQ socket, without waiting.

pyzmq's own recv_multipart and send_multipart do arithmetic on enums: twice the price of the call itself, on every hop of every
request. These use the methods below them, with plain numbers.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import zmq

ZERO_COPY_BYTES: Final = 65_536      # larger frames are handed over, not copied; below, the bookkeeping costs more than the copy
_NOW: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT) | int(zmq.SNDMORE)
_recv: Any = zmq.backend.Socket.recv
_send: Any = zmq.backend.Socket.send


def receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame]:
    """The next message; [] when there is none. Call it until then: ZeroMQ looks for broken connections when it has nothing, and at
    each hundredth frame since (socket_base.cpp, `inbound_poll_rate`). One that breaks in the middle of a message takes the rest of
    it along, or, before it is quite gone, the process (fq.cpp, `_more`)."""
    try:
        frame = _recv(socket, _NOW, False)
        frames = [frame]
        while frame.more:
            frame = _recv(socket, _NOW, False)
            frames.append(frame)
    except zmq.Again:
        return []
    return frames


def send(socket: zmq.Socket[bytes], frames: Sequence[Any], track: bool = False) -> list[Any]:
    """zmq.Again when the peer's queue is full or nobody is there; then none of it was sent. With `track`, (size, tracker) of each
    frame that was handed over: tracker.done says that ZeroMQ is through with it."""
    last, tracked = len(frames) - 1, []
    for i, frame in enumerate(frames):
        size = len(frame)
        copy = size <= ZERO_COPY_BYTES
        try:
            tracker = _send(socket, frame, _NOW if i == last else _MORE, copy, track and not copy)
        except zmq.Again:
            if i:
                _end(socket, last - i)
            raise
        if track and not copy:
            tracked.append((size, tracker))
    return tracked


def _end(socket: zmq.Socket[bytes], left: int) -> None:
    """The connection broke in the middle of a message. ZeroMQ drops what is still to come of it, and does so until it has seen the
    last frame: of the next message, if it is not told (libzmq's lb.cpp, `_dropping`)."""
    for i in range(1, left + 1):
        with contextlib.suppress(zmq.Again):
            _send(socket, b"", _NOW if i == left else _MORE, True, False)

"""Garbage on each daemon's socket: an error reply or silence, the same process goes on, and another client notices nothing."""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq

from gq_proto import limits, messages
from gq_proto.errors import BadRequest, BadVersion, UnknownKind
from gq_proto.messages import BODIES, Empty, Kind
from tests.system.groups import describe, make_topic, put, read_all
from tests.system.harness import DAEMONS, Node, until

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
SEED = 20


@pytest.fixture(scope="module")
def node(shared_node: Node) -> Iterator[Node]:
    """Every test leaves the daemons it found: same pids, and they answer."""
    yield shared_node


@pytest.fixture(autouse=True)
def unharmed(node: Node) -> Iterator[None]:
    pids = node.pids
    with node.client() as client:
        topic = make_topic(client, f"unharmed-{random.SystemRandom().getrandbits(40)}", 1)
        end = put(client, topic, [b"before"])
        with client.consumer(topic.name, f"{topic.name}-g") as consumer:
            assert consumer.poll(1, timeout=10)[0].value == b"before"
            yield
            assert put(client, topic, [b"behind"]) == end + 1, "with the same connections as before"
            assert [record.value for record in read_all(client, topic)] == [b"before", b"behind"]
            assert consumer.poll(1, timeout=10)[0].value == b"behind"
            assert len(describe(client, f"{topic.name}-g").members) == 1
    assert node.pids == pids
    for name in DAEMONS:
        assert "Traceback" not in node.log(name)


@contextlib.contextmanager
def raw(node: Node, name: str) -> Iterator[socket.socket]:
    """A bare stream socket to a daemon."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(10)
        line.connect(node.endpoint(name).removeprefix("ipc://"))
        yield line


def spit(node: Node, name: str, data: bytes) -> None:
    """Send it and go; a daemon that has hung up already is fine."""
    with raw(node, name) as line, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        line.sendall(data)


def greeted(node: Node, name: str, data: bytes) -> None:
    """As a ZeroMQ peer whose greeting and handshake are good, send `data` as it is."""
    with raw(node, name) as line, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        line.sendall(GREETING)
        got = b""
        while len(got) < 64:
            got += line.recv(64 - len(got))
        line.sendall(READY)
        assert line.recv(2)[:1] == b"\x04", "the handshake was taken"
        line.sendall(data)


@pytest.mark.parametrize("name", DAEMONS)
def test_random_bytes_on_the_bare_socket(node: Node, name: str) -> None:
    rng = random.Random(SEED)
    for size in (0, 1, 9, 10, 63, 64, 65, 1000, 100_000):
        spit(node, name, rng.randbytes(size))
        spit(node, name, GREETING[:min(size, 64)] + rng.randbytes(size))
    spit(node, name, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


@pytest.mark.parametrize("name", DAEMONS)
def test_zeromq_frames_that_are_cut_or_lie_about_their_length(node: Node, name: str) -> None:
    rng = random.Random(SEED)
    good = messages.encode_request(Kind.STATUS, 1, Empty())
    frames = [
        b"\x00",                                            # a flag and nothing
        b"\x00" + bytes([len(good)]) + good[:-3],           # a message cut short
        b"\x01" + bytes([len(good)]) + good,                # more to come, and it never does
        b"\x02" + struct.pack(">Q", 2**63 - 1) + b"x",      # lengths beyond all reason
        b"\x02" + struct.pack(">Q", 2**64 - 1) + b"x",
        b"\x02" + struct.pack(">Q", limits.FRAME_MAX + 1) + b"x" * 1000,
        b"\x02" + struct.pack(">Q", limits.FRAME_MAX) + b"x" * 1000,
        b"\x00\x00" * 2000,                                 # empty messages
        b"\x01\x00" * 2000,                                 # one of 2,000 empty frames, without an end
        b"\xff\xff\xff",
        b"\x04\x05\x04PING",
        b"\x04\xff" + rng.randbytes(255),
    ]
    for data in frames:
        greeted(node, name, data)
    for _ in range(50):
        greeted(node, name, rng.randbytes(rng.randrange(1, 300)))


def requests_that_are_none() -> list[list[bytes]]:
    rng = random.Random(SEED)
    status = messages.encode_request(Kind.STATUS, 1, Empty())
    found = [[b""], [b"\xc1"], [b"", b""], [b"\x00" * 1000], [status[:-1]], [status + b"x"], [b"\x99" + status[1:]],
             [msgspec.msgpack.encode({"version": 1})], [b"\xdd\xff\xff\xff\xff"], [b"\x91" * 100_000], [b"\xc6\xff\xff\xff\xff"]]
    found += [[rng.randbytes(rng.randrange(1, 200))] for _ in range(200)]
    found += [[status[:at]] for at in range(len(status))]
    return found


@pytest.mark.parametrize("name", DAEMONS)
def test_messages_that_are_no_requests(node: Node, name: str) -> None:
    with node.socket(name) as line:
        for frames in requests_that_are_none():
            line.send_multipart(frames)
            answer(line)
        for number in range(1, 40):                         # many frames, none wanted
            line.send_multipart([messages.encode_request(Kind.STATUS, number, Empty()), *[b"x"] * number])
        until(lambda: answer(line) == 39, "what is a request is still answered")


def answer(line: Any) -> int:
    """Take what has come; the id of the last request that was answered. Every error is one of the protocol's, in one line."""
    last = 0
    while line.poll(0):
        reply = messages.decode_reply(line.recv_multipart()[0])
        if reply.error:
            assert reply.error in (BadRequest.code, BadVersion.code, UnknownKind.code), reply.message
            assert reply.message and "\n" not in reply.message
        last = reply.id
    return last


@pytest.mark.parametrize("name", DAEMONS)
def test_old_versions_and_unknown_kinds_get_typed_errors(node: Node, name: str) -> None:
    def error(version: int, kind: int) -> int:
        with node.socket(name) as line:
            line.send(msgspec.msgpack.encode((version, kind, 7, 5000, b"", 0, -1, -1, [])))
            assert line.poll(5000), f"version {version}, kind {kind} is not answered"
            return messages.decode_reply(line.recv()).error
    for version in (0, 2, 255, 2**40):
        assert error(version, Kind.STATUS) in (BadVersion.code, BadRequest.code), version
    assert error(0, Kind.STATUS) == BadVersion.code
    for kind in (0, 2, 9, 200, 255, 65_535, Kind.ASSIGNED, Kind.REPLICA_FETCH):
        assert error(1, kind) == UnknownKind.code, kind
    other = {"metad": Kind.PRODUCE, "logd": Kind.JOIN, "groupd": Kind.CREATE_TOPIC, "delayd": Kind.PRODUCE}[name]
    with node.socket(name) as line:
        line.send(msgspec.msgpack.encode((1, int(other), 7, 5000, b"", 0, -1, -1, _smallest(other))))
        assert line.poll(5000)
        reply = messages.decode_reply(line.recv())
        assert reply.id == 7 and reply.error == UnknownKind.code, reply.message


def _smallest(kind: Kind) -> Any:
    """A body that decodes."""
    return {Kind.PRODUCE: [[]], Kind.JOIN: ["g"], Kind.CREATE_TOPIC: ["t"]}[kind]


VALUES: list[Any] = [0, -1, 1, 2**31, 2**63 - 1, -2**63, 2**64 - 1, "", "x", "__groups", "../x", "\x00", b"", b"x", [], [[]], {},
                     None, True, 1.5, [-1, -1], [0, 2**62, 5, -1], ["x"] * 3]


@pytest.mark.parametrize("name", DAEMONS)
def test_bodies_of_any_shape(node: Node, name: str) -> None:
    """Every request kind with bodies that may decode and make no sense: an answer each, or silence, and no crash."""
    rng = random.Random(SEED)
    harmful = {Kind.REGISTER, Kind.METADATA}        # these speak for the node itself: what they do is right
    with node.socket(name) as line:
        line.setsockopt(zmq.SNDHWM, 100_000)
        for kind in BODIES:
            if kind in harmful:
                continue
            for _ in range(60):
                body = [rng.choice(VALUES) for _ in range(rng.randrange(8))]
                at = (rng.choice([0, 1, 2**62, -1]), rng.choice([-1, 0, 2**30]), rng.choice([-1, 0, 2**40]))
                frames = [rng.randbytes(rng.randrange(50)) for _ in range(rng.randrange(3))]
                line.send_multipart([msgspec.msgpack.encode((1, int(kind), 5, 100, b"", *at, body)), *frames])
            while line.poll(0):                         # who never reads is not answered for ever
                assert "\n" not in messages.decode_reply(line.recv_multipart()[0]).message

        def served() -> bool:
            line.send(messages.encode_request(Kind.STATUS, 99, Empty()))     # again: a reply that finds the queue full is dropped
            while line.poll(100):
                reply = messages.decode_reply(line.recv_multipart()[0])
                assert "\n" not in reply.message
                if reply.id == 99:
                    return True
            return False
        until(served, f"{name} comes to the request behind them")

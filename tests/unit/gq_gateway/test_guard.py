"""The guarded protocol on a transport that a test holds: slow, large, wrong and too many callers; answers that nobody reads."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gq_gateway.guard import HEAD_MAX, LINGER_S, STALL_S, Bounds, GuardedProtocol


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call = at, call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """An event loop of which protocols use call_later, call_soon and create_task only: time is the test's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.soon: list[Callable[[], None]] = []
        self.apps: list[Any] = []

    def call_later(self, delay: float, call: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(self.now + delay, lambda: call(*args))
        self.timers.append(timer)
        return timer

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def create_task(self, work: Any, **options: Any) -> Any:
        self.apps.append(work)
        work.close()
        return asyncio.Future(loop=_loop)

    def run(self, seconds: float = 0.0) -> None:
        self.now += seconds
        while self.soon:
            self.soon.pop(0)()
        for timer in [timer for timer in self.timers if timer.at <= self.now]:
            self.timers.remove(timer)
            if not timer.cancelled:
                timer.call()
        while self.soon:
            self.soon.pop(0)()


class Transport:
    def __init__(self) -> None:
        self.written, self.unread = bytearray(), 0
        self.closed = self.aborted = self.ended = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


_loop: asyncio.AbstractEventLoop


class Caller:
    def __init__(self, state: ServerState) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None: ...

        config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None, timeout_keep_alive=75)
        config.load()
        self.clock, self.transport = Clock(), Transport()
        clock: Any = self.clock
        self.protocol = GuardedProtocol(Bounds(1000, 2, 10.0), config=config, server_state=state, app_state={}, _loop=clock)
        transport: Any = self.transport
        self.protocol.connection_made(transport)
        self.clock.run()

    def says(self, *data: bytes, every: float = 0.0) -> "Caller":
        for piece in data:
            if not self.transport.is_closing():
                self.protocol.data_received(piece)
            self.clock.run(every)
        return self

    @property
    def refusal(self) -> tuple[int, str]:
        head, _, body = bytes(self.transport.written).partition(b"\r\n\r\n")
        problem = json.loads(body)
        assert b"connection: close" in head and b"application/problem+json" in head
        assert int(head.split()[1]) == problem["status"] and f"content-length: {len(body)}".encode() in head
        return problem["status"], problem["code"]


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    global _loop
    _loop = asyncio.new_event_loop()
    yield
    _loop.close()


@pytest.fixture
def caller() -> Caller:
    return Caller(ServerState())


GET = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


def test_a_whole_request_is_taken_and_has_no_timer(caller: Caller) -> None:
    caller.says(GET).clock.run(60)
    assert len(caller.clock.apps) == 1 and not caller.transport.written and not caller.transport.closed


@pytest.mark.parametrize("pieces", [[b"G"], [GET[:-2]], [POST], [POST, b"123"]])
def test_what_is_not_whole_in_time_is_refused(caller: Caller, pieces: list[bytes]) -> None:
    caller.says(*pieces).clock.run(9.9)
    assert not caller.transport.written
    caller.clock.run(0.2)
    assert caller.refusal == (408, "request_timeout")


def test_a_byte_now_and_then_does_not_help(caller: Caller) -> None:
    caller.says(*[bytes([byte]) for byte in GET], every=1.0)
    assert caller.refusal == (408, "request_timeout")


def test_who_connects_and_says_nothing_is_hung_up_on(caller: Caller) -> None:
    caller.clock.run(10.1)
    assert caller.transport.closed and not caller.transport.written


def test_the_next_request_has_its_own_time(caller: Caller) -> None:
    caller.says(POST, b"12", every=4.0).says(b"34")
    caller.protocol.cycle.response_complete = True
    caller.says(POST).clock.run(9.9)
    assert not caller.transport.written
    caller.clock.run(0.2)
    assert caller.transport.written


def test_a_head_has_a_bound(caller: Caller) -> None:
    caller.says(b"GET /x HTTP/1.1\r\n", *[b"X-%d: %s\r\n" % (n, b"y" * 1000) for n in range(HEAD_MAX // 1000 + 1)])
    assert caller.refusal == (431, "headers_too_large")


def test_a_body_that_says_it_is_too_large_is_not_waited_for(caller: Caller) -> None:
    caller.says(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n" + b"x" * 500)
    assert caller.refusal == (413, "too_large") and not caller.clock.apps


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00", b"HELLO\r\n\r\n", b"GET /x HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                                     b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
                                     b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"])
def test_what_is_no_http_is_told_so(caller: Caller, garbage: bytes) -> None:
    caller.says(garbage)
    assert caller.refusal == (400, "malformed_request")


def test_more_connections_than_allowed_are_turned_away() -> None:
    state = ServerState()
    callers = [Caller(state) for _ in range(3)]
    assert [bool(one.transport.written) for one in callers] == [False, False, True]
    assert callers[2].refusal == (503, "too_many_connections")
    callers[0].protocol.connection_lost(None)
    callers[2].protocol.connection_lost(None)
    assert not Caller(state).transport.written


def test_after_a_refusal_the_rest_is_thrown_away_and_the_connection_ends(caller: Caller) -> None:
    caller.says(b"nonsense\r\n\r\n")
    said = bytes(caller.transport.written)
    assert caller.transport.ended and not caller.transport.closed
    caller.says(GET, b"x" * 100_000)
    assert bytes(caller.transport.written) == said and not caller.clock.apps
    caller.clock.run(LINGER_S)
    assert caller.transport.closed


def test_an_answer_under_way_when_its_caller_is_refused_goes_nowhere(caller: Caller) -> None:
    """A second request on the connection is no HTTP while the first one is being answered."""
    caller.says(GET + b"nonsense\r\n\r\n")
    said = bytes(caller.transport.written)
    assert caller.refusal == (400, "malformed_request")
    caller.protocol.transport.write(b"the first one's answer")
    caller.clock.run()
    assert bytes(caller.transport.written) == said


@pytest.mark.parametrize("version", [b"0.9", b"2.0", b"3.0"])
def test_other_versions_are_not_spoken(caller: Caller, version: bytes) -> None:
    caller.says(b"GET /x HTTP/%b\r\nHost: x\r\n\r\n" % version)
    assert caller.refusal == (400, "malformed_request") and not caller.clock.apps


def test_an_answer_that_nobody_reads_ends_the_connection(caller: Caller) -> None:
    caller.says(GET)
    caller.protocol.pause_writing()
    caller.clock.run(STALL_S - 1)
    caller.protocol.resume_writing()
    caller.protocol.pause_writing()
    caller.clock.run(STALL_S - 1)
    assert not caller.transport.aborted
    caller.clock.run(1)
    assert caller.transport.aborted


def test_an_idle_connection_with_an_unread_answer_is_aborted_not_closed(caller: Caller) -> None:
    caller.transport.unread = 10
    caller.protocol.timeout_keep_alive_handler()
    assert caller.transport.aborted

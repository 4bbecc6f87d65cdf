"""gq_run's loop on asyncio: the same face, and an exception that nobody catches ends it."""

import asyncio
import os
import threading

import pytest
import zmq

from gq_gateway.loop import AsyncLoop
from gq_run.server import Server


@pytest.fixture
def loop():
    made = AsyncLoop()
    yield made
    made.close()


def test_timers_run_in_order_and_may_be_cancelled(loop: AsyncLoop) -> None:
    seen: list[str] = []

    def second() -> None:
        seen.append("second")
        loop.stop()

    loop.call_later(0.1, second)          # a machine that does other things as well may rest between this line and the next
    loop.call_later(0.001, lambda: seen.append("first"))
    loop.call_later(0.001, lambda: seen.append("never")).cancel()
    loop.run()
    assert seen == ["first", "second"]


def test_posts_of_other_threads_arrive(loop: AsyncLoop) -> None:
    threading.Thread(target=lambda: loop.post(loop.stop)).start()
    loop.run()


def test_a_stop_before_the_run_counts(loop: AsyncLoop) -> None:
    loop.stop()
    loop.run()


def test_descriptors_are_watched(loop: AsyncLoop) -> None:
    reader, writer = os.pipe()

    def readable() -> None:
        os.read(reader, 1)
        loop.remove_reader(reader)
        loop.stop()

    loop.add_reader(reader, readable)
    os.write(writer, b"x")
    loop.run()
    os.close(reader)
    os.close(writer)


def test_a_server_answers_on_it_however_many_ask_at_once(loop: AsyncLoop) -> None:
    """Its descriptor is edge-triggered: what comes while it is being read must not be left lying."""
    from gq_proto import messages

    with zmq.Context() as context:
        server = Server(loop, context, lambda incoming: incoming.reply(messages.Empty()) and None)
        server.bind("inproc://door")
        with context.socket(zmq.DEALER) as caller:
            caller.linger = 0
            caller.connect("inproc://door")
            for number in range(600):
                caller.send(messages.encode_request(messages.Kind.LEAVE, number + 1, messages.Leave("g", "m")))
            got: list[int] = []

            def look() -> None:
                while caller.poll(0):
                    got.append(messages.decode_reply(caller.recv()).id)
                if len(got) == 600:
                    loop.stop()
                else:
                    loop.call_later(0.001, look)

            look()
            loop.run()
            assert got == list(range(1, 601))
        server.close()


def test_a_bug_in_a_callback_ends_the_run(loop: AsyncLoop) -> None:
    loop.call_later(0, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.run()


def test_a_bug_while_a_callers_connection_is_read_ends_that_connection_only(loop: AsyncLoop) -> None:
    class Buggy(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError

    async def serve() -> None:
        server = await loop.aio.create_server(Buggy, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        assert await reader.read() == b""
        writer.close()
        server.close()

    loop.complete(serve())
    loop.call_later(0.01, loop.stop)
    loop.run()


def test_a_bug_in_a_task_ends_the_run_and_a_broken_connection_does_not(loop: AsyncLoop) -> None:
    async def fails(error: Exception) -> None:
        raise error

    def broken() -> None:
        raise ConnectionResetError("a caller is gone")

    loop.call_later(0, broken)
    loop.call_later(0.01, lambda: loop.spawn(fails(KeyError("bug"))))
    with pytest.raises(KeyError):
        loop.run()

"""The table of methods, and what surrounds each call."""

import asyncio
import logging
from typing import Any

import grpc
import pytest

from gq_gateway import goqueue_pb2 as pb
from gq_gateway.counts import Book, Counts
from gq_gateway.rpc import guard
from gq_gateway.rpc.guard import Caller
from gq_gateway.rpc.service import DESCRIPTOR, NAME, Service
from gq_proto.errors import BY_CODE, BadRequest, Fenced, GoQueueError, Internal
from tests.unit.gq_gateway.grpc_fakes import Context, Gateway, run
from tests.unit.gq_gateway.test_grpc_status import documented

SPEC = "CreateTopic DeleteTopic ListTopics Publish PublishStream Subscribe Ack Nack Reject Extend Commit Poll Join Leave Heartbeat"


def test_every_method_of_the_proto_is_served_and_every_one_of_the_specification_is_there() -> None:
    service = Service(Gateway())  # type: ignore[arg-type]
    assert NAME == "goqueue.v1.GoQueue"
    assert {method.name for method in DESCRIPTOR.methods} == {*SPEC.split(), "Settle"} == set(service._methods)
    publish: Any = service.handler(DESCRIPTOR.methods_by_name["Publish"])
    assert publish.request_deserializer(pb.PublishRequest(acks=pb.ACKS_ALL).SerializeToString()).acks == pb.ACKS_ALL


@pytest.mark.parametrize("wrap", [guard.unary, guard.stream])
def test_what_is_no_message_is_refused_as_such(wrap: Any) -> None:
    async def method(request: Any, caller: Caller) -> None:
        raise AssertionError("it is not called")

    async def play() -> None:
        read = guard.reader(pb.PublishRequest.FromString)
        context = Context()
        with pytest.raises(grpc.aio.AbortError):
            await wrap(method, Counts())(read(b"\xff\xff\xff"), context)
        assert context.aborted[0] is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(BadRequest):
            [_ async for _ in guard.each(Context(read(b"\xff")))]

    run(play())


async def outcome(method: Any, wrap: Any = guard.unary) -> tuple[Any, ...]:
    context = Context()
    with pytest.raises(grpc.aio.AbortError):
        await wrap(method, Counts())(None, context)
    return context.aborted


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=lambda kind: kind.name)
def test_every_error_comes_out_of_every_method_as_documented(kind: type[GoQueueError]) -> None:
    async def method(request: Any, caller: Caller) -> None:
        raise kind("why")

    async def play() -> None:
        service = Service(Gateway())  # type: ignore[arg-type]
        for one in DESCRIPTOR.methods:
            service._methods[one.name] = method
            handler: Any = service.handler(one)
            context = Context()
            with pytest.raises(grpc.aio.AbortError):
                await (handler.unary_unary or handler.unary_stream or handler.stream_stream)(None, context)
            assert context.aborted[0].name == documented()[kind.name] and context.aborted[2][0] == ("goqueue-code", kind.name)

    run(play())


@pytest.mark.parametrize("wrap", [guard.unary, guard.stream])
def test_our_errors_are_statuses_with_trailers(wrap: Any) -> None:
    async def method(request: Any, caller: Caller) -> None:
        raise Fenced("a newer one exists")

    async def play() -> None:
        assert await outcome(method, wrap) == (grpc.StatusCode.ABORTED, "a newer one exists",
                                               (("goqueue-code", "fenced"), ("goqueue-retriable", "false")))

    run(play())


def test_a_bug_is_logged_and_the_caller_is_told_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    async def bug(request: Any, caller: Caller) -> None:
        raise ZeroDivisionError("secret")

    async def internal(request: Any, caller: Caller) -> None:
        raise Internal("secret")

    async def play() -> None:
        for method in (bug, internal):
            status, details, trailers = await outcome(method)
            assert status is grpc.StatusCode.INTERNAL and "secret" not in details and trailers[0] == ("goqueue-code", "internal")

    logging.getLogger("goqueue").propagate = True
    with caplog.at_level(logging.ERROR, "goqueue.gateway"):
        run(play())
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


def test_a_cancelled_call_unwinds() -> None:
    async def forever(request: Any, caller: Caller) -> None:
        await asyncio.Event().wait()

    async def play() -> None:
        for remaining, status in ((None, "CANCELLED"), (5.0, "CANCELLED"), (0.0, "DEADLINE_EXCEEDED")):
            context, counts = Context(remaining=remaining), Counts()
            call = asyncio.ensure_future(guard.unary(forever, counts)(None, context))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert not context.aborted and counts.by_status == {status: 1}

    run(play())


def test_calls_are_counted_by_what_they_end_with_and_streams_while_they_are_open() -> None:
    async def play() -> None:
        gate = asyncio.Event()
        outcomes: list[Any] = [None, Fenced("no"), ZeroDivisionError("a bug"), grpc.aio.AbortError()]

        async def method(request: Any, caller: Caller) -> None:
            await gate.wait()
            outcome = outcomes.pop(0)
            if outcome:
                raise outcome

        book = Book()
        for wrap, counts in ((guard.unary, book.method("Ack", False)), (guard.stream, book.method("Settle", True))):
            outcomes = [None, Fenced("no"), ZeroDivisionError("a bug"), grpc.aio.AbortError()]
            gate.clear()
            calls = [asyncio.ensure_future(wrap(method, counts)(None, Context())) for _ in range(4)]
            await asyncio.sleep(0)
            assert counts.open == (4 if counts.stream else 0)
            gate.set()
            await asyncio.gather(*calls, return_exceptions=True)
            assert counts.by_status == {"OK": 1, "ABORTED": 1, "INTERNAL": 1, "CANCELLED": 1} and counts.open == 0
        told = {(metric.name, labels): value for metric, labels, value in book.samples()}
        assert told["goqueue_grpc_requests_total", ("Ack", "ABORTED")] == 1 and told["goqueue_grpc_streams", ("Settle",)] == 0
        latency: Any = told["goqueue_grpc_request_seconds", ("Ack",)]
        assert sum(latency.counts) == 4 and ("goqueue_grpc_request_seconds", ("Settle",)) not in told

    run(play())


def test_a_caller_s_key_and_patience() -> None:
    async def play() -> None:
        caller = Caller(Context(metadata=(("authorization", "Bearer k"), ("x-bin", "y")), remaining=2.0))
        assert caller.get_header("Authorization") == "Bearer k" and caller.get_header("x-api-key") is None
        assert caller.patience(30.0) == pytest.approx(1.9) and caller.patience(1.0) == 1.0
        assert Caller(Context(remaining=0.05)).patience(30.0) == 0.0
        assert Caller(Context()).patience(30.0) == 30.0

    run(play())

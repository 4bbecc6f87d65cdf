"""Streams of requests and answers: bounded, in order, and ended for a reason."""

import asyncio
from typing import Any

import pytest

from gq_gateway.rpc.duplex import Duplex, Rights
from gq_proto.errors import BadRequest, Forbidden, Unauthorized, Unavailable
from tests.unit.gq_gateway.grpc_fakes import Context, Gateway, caller, run, settled


class Echo(Duplex):
    """Answers numbers by themselves, one at a time; refuses 13."""

    def __init__(self, gateway: Gateway, context: Context, most: int = 3) -> None:
        super().__init__(gateway, caller(context), "publish", most)  # type: ignore[arg-type]
        self.kept: list[int] = []

    async def take(self, request: Any) -> None:
        if request == 13:
            raise BadRequest("13")
        self.kept.append(request)
        self.added(1)

    async def answer(self) -> int:
        await self.caller.context.write(self.kept.pop(0))
        return 1


def test_everything_read_is_answered_in_order() -> None:
    async def play() -> None:
        context = Context(*range(10))
        await Echo(Gateway(), context).run()
        assert context.written == list(range(10))

    run(play())


def test_a_caller_that_does_not_read_is_not_read_either() -> None:
    async def play() -> None:
        context = Context(*range(100, 200))
        context.gate.clear()
        call = asyncio.ensure_future(Echo(Gateway(), context, most=3).run())
        await settled(100)
        assert context.read_count == 3
        context.gate.set()
        await call
        assert context.written == list(range(100, 200))

    run(play())


def test_a_bad_request_ends_the_stream_once_those_before_are_answered() -> None:
    async def play() -> None:
        context = Context(1, 2, 13, 4)
        with pytest.raises(BadRequest):
            await Echo(Gateway(), context).run()
        assert context.written == [1, 2]

    run(play())


def test_a_gateway_that_stops_answers_what_it_has_read_and_says_so() -> None:
    async def play() -> None:
        context, gateway = Context(1, 2, open=True), Gateway()
        context.gate.clear()
        call = asyncio.ensure_future(Echo(gateway, context).run())
        await settled()
        gateway.draining.set()
        await settled()
        assert not call.done()
        context.gate.set()
        with pytest.raises(Unavailable):
            await call
        assert context.written == [1, 2]

    run(play())


def test_a_cancelled_call_leaves_no_task_behind() -> None:
    async def play() -> None:
        call = asyncio.ensure_future(Echo(Gateway(), Context(1, open=True)).run())
        await settled()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await settled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(play())


def test_rights_are_asked_once_a_topic_until_refreshed() -> None:
    async def play() -> None:
        gateway = Gateway()
        rights = Rights(gateway, caller(Context()), "publish")  # type: ignore[arg-type]
        gateway.refuse["b"] = Forbidden("no")
        rights.refresh(100.0)
        assert [await rights.refusal(topic) for topic in "abab"] == [None, gateway.refuse["b"]] * 2
        assert gateway.asked == [("publish", "a"), ("publish", "b")]
        gateway.refuse = {"a": Unauthorized("revoked")}
        rights.refresh(104.9)
        assert await rights.refusal("a") is None
        rights.refresh(105.1)
        assert await rights.refusal("b") is None
        with pytest.raises(Unauthorized):
            await rights.refusal("a")
        gateway.refuse.clear()
        assert await rights.refusal("b") is None
        gateway.refuse["b"] = Forbidden("no")
        gateway.door.verifier.forget()                    # keys changed
        rights.refresh(105.2)
        assert await rights.refusal("b") is gateway.refuse["b"]

    run(play())


def test_a_stream_is_for_those_who_may_use_some_topic() -> None:
    async def play() -> None:
        gateway = Gateway()
        gateway.refuse[""] = Unauthorized("who are you?")
        context = Context(1, 2)
        with pytest.raises(Unauthorized):
            await Duplex(gateway, caller(context), "publish", 10).run()  # type: ignore[arg-type]
        assert context.read_count == 0

    run(play())

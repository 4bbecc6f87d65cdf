"""Long polls: what reaches the caller is its own to the deadline; what does not goes back at once, uncounted."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from gq_client.consumer_lease import to_ranges
from gq_gateway import polls as module
from gq_gateway.polls import Polls, Question
from gq_proto.errors import Busy, Forbidden, NotLeader, Unavailable, UnknownMember, UnknownTopicId
from gq_proto.messages import Fetched, FetchReply, Kind, Lease, Op, PollReply, RangeStatus, SettleReply
from tests.unit.gq_gateway.grpc_fakes import Client, lease_of, records, run, settled

GROUP_NUMBER = 9


class Daemons:
    """groupd with some leases, logd with their bytes. `hold`: a future to wait for before a kind is answered."""

    def __init__(self, *leases: Lease) -> None:
        self.client, self.draining = Client(), asyncio.Event()
        self.after: list[asyncio.Future[None]] = []
        self.polls = Polls(self.client, self.draining, lambda work: self.after.append(asyncio.ensure_future(work)))  # type: ignore[arg-type]
        self.most_bytes = 1 << 20
        self.leases = list(leases)
        self.hold: dict[int, asyncio.Future[Any]] = {}
        self.status: dict[int, RangeStatus] = {}           # by offset of a range
        self.error = 0
        self.forbidden = ""
        self.value = b""
        self.client.answer = self._answer

    def _answer(self, kind: int, body: Any) -> Any:
        return self.hold.get(kind) or self.reply(kind, body)

    def reply(self, kind: int, body: Any) -> Any:
        if kind == Kind.POLL:
            leases, self.leases = self.leases, []
            return PollReply(leases, generation=4, group_number=GROUP_NUMBER), ()
        if kind == Kind.FETCH:
            return self._fetched(body)
        return SettleReply([]), ()

    def _fetched(self, body: Any) -> Any:
        parts, frames = [], []
        for part in body.parts:
            status = [self.status.get(low, RangeStatus.OK) for low in part.ranges[::2]]
            good = [offset for low, count, one in zip(part.ranges[::2], part.ranges[1::2], status)
                    for offset in range(low, low + count) if one == RangeStatus.OK]
            end = max(part.ranges[::2]) + max(part.ranges[1::2])
            parts.append(Fetched(self.error, status=status, covered=len(status), next_offset=end))
            frames.append(records(*good))
        return FetchReply(parts), frames

    async def poll(self, most: int = 10, wait_s: float = 0.0, gone: Any = None) -> list[Any]:
        found = await self.polls.poll(Question("g", "m", most, wait_s, 0, self.most_bytes), self._may, gone)
        assert found.receipts == [message.receipt for message in found.messages]
        return found.messages

    async def _may(self, topics: set[str]) -> None:
        if self.forbidden in topics:
            raise Forbidden("not yours")

    async def ended(self) -> None:
        await asyncio.gather(*self.after)

    async def released(self) -> list[int]:
        """The offsets that went back, as ranges."""
        await self.ended()
        items = [item for kind, body in self.client.asked if kind == Kind.SETTLE for item in body.items]
        assert all(item.op == Op.RELEASE for item in items)
        offsets = [low + i for item in items for low, count in zip(item.ranges[::2], item.ranges[1::2]) for i in range(count)]
        return to_ranges(offsets) if offsets else []


def test_messages_come_with_receipts_that_name_the_group_and_nothing_goes_back() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 2, delivery=3))
        messages = await daemons.poll()
        assert [(one.offset, one.value, one.delivery) for one in messages] == [(10, b"v10", 3), (11, b"v11", 3)]
        assert messages[0].receipt.startswith("orders:1:10:3:")
        assert messages[0].owner.group_number == GROUP_NUMBER
        assert await daemons.released() == []
        asked = dict(daemons.client.asked)[Kind.POLL]
        assert asked.hold and asked.member == "m" and asked.max_messages == 10

    run(play())


def test_a_caller_that_leaves_while_it_waits_costs_nobody_a_message() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 2))
        daemons.hold[Kind.POLL] = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(daemons.poll(wait_s=30.0))
        await settled()
        call.cancel()
        await settled()
        assert call.cancelled()
        daemons.hold[Kind.POLL].set_result(daemons.reply(Kind.POLL, None))
        await settled()
        assert await daemons.released() == [10, 2]

    run(play())


def test_a_caller_that_leaves_while_bytes_are_fetched_costs_nobody_a_message() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 2))
        daemons.hold[Kind.FETCH] = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(daemons.poll())
        await settled()
        call.cancel()
        await settled()
        assert await daemons.released() == [10, 2]
        daemons.hold[Kind.FETCH].cancel()

    run(play())


def test_a_caller_who_is_seen_to_leave_costs_nobody_a_message_either() -> None:
    async def play(kind: Kind) -> None:
        daemons = Daemons(lease_of(10, 2))
        gone = asyncio.get_running_loop().create_future()
        held = daemons.hold[kind] = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(daemons.poll(wait_s=30.0, gone=gone))
        await settled()
        gone.set_result(None)
        assert await call == []
        if kind == Kind.POLL:
            held.set_result(daemons.reply(kind, None))
        else:
            assert held.cancelled()
        assert await daemons.released() == [10, 2]
        assert [what for what, _ in daemons.client.asked].count(Kind.POLL) == 1

    run(play(Kind.POLL))
    run(play(Kind.FETCH))


def test_a_question_that_was_left_behind_is_not_renewed() -> None:
    async def play() -> None:
        daemons = Daemons()
        daemons.hold[Kind.POLL] = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(daemons.poll(wait_s=30.0))
        await settled()
        call.cancel()
        await settled()
        daemons.hold[Kind.POLL].set_result((PollReply([]), ()))
        await daemons.ended()
        assert [what for what, _ in daemons.client.asked] == [Kind.POLL]

    run(play())


def test_an_answer_that_comes_as_the_caller_leaves_goes_back() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 2))
        daemons.hold[Kind.POLL] = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(daemons.poll(wait_s=30.0))
        await settled()
        daemons.hold[Kind.POLL].set_result(daemons.reply(Kind.POLL, None))
        await settled(2)
        call.cancel()
        await settled()
        assert call.cancelled() and await daemons.released() == [10, 2]

    run(play())


def test_a_coordinator_that_does_not_answer_now_is_asked_again_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)

    async def play() -> None:
        daemons = Daemons(lease_of(10, 2))
        tries = 0

        def refuse_twice(kind: int, body: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries <= 2:
                raise Busy("loading")
            return daemons.reply(kind, body)

        daemons.client.answer = refuse_twice
        assert [one.offset for one in await daemons.poll(wait_s=30.0)] == [10, 11]
        tries = 0
        with pytest.raises(Busy):
            await daemons.poll(wait_s=0.0)

    run(play())


def test_a_log_that_does_not_answer_is_told_and_all_goes_back() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 2))

        def refuse(kind: int, body: Any) -> Any:
            if kind == Kind.FETCH:
                raise Unavailable("logd starts")
            return daemons.reply(kind, body)

        daemons.client.answer = refuse
        with pytest.raises(Unavailable):
            await daemons.poll()
        assert await daemons.released() == [10, 2]

    run(play())


def test_what_was_fetched_is_gone_with_the_answer() -> None:
    """Without the collector, which comes seldom: an answer is megabytes."""
    async def play() -> weakref.ref[Any]:
        daemons = Daemons(lease_of(10, 2), lease_of(20, 2, number=6))
        daemons.most_bytes = 350
        messages = await daemons.poll()
        return weakref.ref(messages[0].owner.hub)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(play())() is None
    finally:
        gc.enable()


def test_what_is_here_does_not_wait_for_what_cannot_be_had() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 1, 20, 1))
        daemons.status = {20: RangeStatus.NOT_YET}
        assert [one.offset for one in await daemons.poll()] == [10]
        assert await daemons.released() == [20, 1]

    run(play())


def test_a_gateway_that_stops_ends_a_poll_with_nothing() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 2))
        daemons.hold[Kind.POLL] = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(daemons.poll(wait_s=30.0))
        await settled()
        daemons.draining.set()
        assert await call == []
        daemons.hold[Kind.POLL].set_result(daemons.reply(Kind.POLL, None))
        await settled()
        assert await daemons.released() == [10, 2]

    run(play())


def test_what_does_not_fit_an_answer_goes_back() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 3), lease_of(50, 2, number=6))
        daemons.most_bytes = 400
        assert [one.offset for one in await daemons.poll()] == [10, 11]
        assert await daemons.released() == [12, 1, 50, 2]

    run(play())


def test_what_retention_took_is_skipped_and_what_is_damaged_goes_to_the_dead_letters() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 1, 20, 1, 30, 1))
        daemons.status = {10: RangeStatus.GONE, 20: RangeStatus.CORRUPT}
        assert [one.offset for one in await daemons.poll()] == [30]
        await daemons.ended()
        [(_, settle)] = [asked for asked in daemons.client.asked if asked[0] == Kind.SETTLE]
        assert [(item.op, item.ranges, item.reason) for item in settle.items] == [(Op.REJECT, [20, 1], "corrupt")]

    run(play())


def test_a_lease_of_an_old_epoch_goes_back_and_one_of_a_topic_that_is_gone_is_dropped() -> None:
    async def play(error: int, back: list[int]) -> None:
        daemons = Daemons(lease_of(10, 2))
        daemons.error = error
        assert await daemons.poll() == []
        assert await daemons.released() == back

    run(play(NotLeader.code, [10, 2]))
    run(play(UnknownTopicId.code, []))


def test_a_member_that_is_unknown_is_told_so() -> None:
    async def play() -> None:
        daemons = Daemons()

        def refuse(kind: int, body: Any) -> Any:
            raise UnknownMember("join again")

        daemons.client.answer = refuse
        with pytest.raises(UnknownMember):
            await daemons.poll(wait_s=30.0)

    run(play())


def test_what_another_s_member_holds_goes_back_when_the_caller_may_not_see_it() -> None:
    async def play() -> None:
        daemons = Daemons(lease_of(10, 2))
        daemons.forbidden = "orders"
        with pytest.raises(Forbidden):
            await daemons.poll()
        assert await daemons.released() == [10, 2]
        assert Kind.FETCH not in dict(daemons.client.asked)

    run(play())

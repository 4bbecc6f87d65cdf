"""The long poll, against a coordinator and a log that a test plays: whose leases go back, when, and what the caller gets."""

import asyncio
import time
from typing import Any

import pytest

from gq_gateway import polling, polls
from gq_proto import errors as e
from gq_proto.messages import (
    Empty,
    Fetched,
    FetchReply,
    JoinReply,
    Kind,
    Lease,
    Op,
    PollReply,
    RangeStatus,
    SettleReply,
)
from gq_proto.receipt import parse_receipt
from tests import samples
from tests.unit.gq_gateway.rig import Rig

OK, GONE, NOT_YET, CORRUPT = RangeStatus.OK, RangeStatus.GONE, RangeStatus.NOT_YET, RangeStatus.CORRUPT


def lease(ranges: list[int], number: int = 1, delivery: int = 1) -> Lease:
    return Lease(number, 99, 7, "t", 0, 3, delivery, ranges, 30_000)


class Node:
    """groupd and logd, played: the leases that polls are given, the parts that fetches are."""

    def __init__(self, *replies: Any) -> None:
        self.rig = Rig()
        self.rig.client.add_topic("t", 1)
        self.replies = list(replies)
        self.parts: list[Any] = []
        self.settled: list[tuple[int, list[int]]] = []
        answers = self.rig.client.answers
        answers[Kind.JOIN] = JoinReply("m1", 1, [], 3000, 5)
        answers[Kind.LEAVE] = Empty()
        answers[Kind.POLL] = lambda body: self.replies.pop(0) if self.replies else PollReply([], group_number=5)
        answers[Kind.FETCH] = lambda body: self.parts.pop(0)
        answers[Kind.SETTLE] = self._settle

    def _settle(self, body: Any) -> SettleReply:
        self.settled += [(item.op, item.ranges) for item in body.items]
        return SettleReply([])

    def poll(self, query: str = "member=m&wait=0", **more: Any) -> Any:
        return self.rig.ask("GET", "/groups/g/poll", None, query, **more)

    def asked(self, kind: Kind) -> list[Any]:
        return [body for what, body in self.rig.client.asked if what == kind]


def fetched(*status: int, covered: int = -1, next_offset: int = 0, hidden: list[int] | None = None) -> Fetched:
    return Fetched(0, status=list(map(int, status)), covered=len(status) if covered < 0 else covered, next_offset=next_offset,
                   hidden=hidden or [])


def stamped(low: int, count: int) -> bytes:
    """Records as they lie in a log from offset `low` on."""
    return samples.stamped(samples.batch([{"key": b"k", "value": b"%d" % i} for i in range(low, low + count)]), low)


def test_messages_come_with_receipts_and_hold_leases() -> None:
    node = Node(PollReply([lease([4, 3], number=8, delivery=2)], group_number=5))
    node.parts = [(FetchReply([fetched(OK, next_offset=7)]), [stamped(4, 3)])]
    answer = node.poll("member=m&max=10&visibility=5s&wait=0")
    assert [message["offset"] for message in answer.json["messages"]] == [4, 5, 6]
    assert [message["delivery"] for message in answer.json["messages"]] == [2, 2, 2]
    receipt = parse_receipt(answer.json["messages"][1]["receipt"])
    assert receipt[:4] == ("t", 0, 5, 2) and receipt[5:] == (5, 8, 99)
    [asked] = node.asked(Kind.POLL)
    assert (asked.member, asked.max_messages, asked.visibility_ms, asked.hold) == ("m", 10, 5000, True)
    [fetch] = node.asked(Kind.FETCH)
    assert (fetch.parts[0].epoch, fetch.parts[0].ranges) == (3, [4, 3])
    assert not node.settled and not node.asked(Kind.JOIN)


def test_without_a_member_it_joins_and_leaves() -> None:
    node = Node(PollReply([lease([0, 1])], group_number=5))
    node.parts = [(FetchReply([fetched(OK, next_offset=1)]), [stamped(0, 1)])]
    assert len(node.poll("topics=t&mode=shared&wait=0").json["messages"]) == 1
    [joined] = node.asked(Kind.JOIN)
    assert (joined.topics, joined.mode) == (["t"], "shared")
    assert [body.member for body in node.asked(Kind.LEAVE)] == ["m1"]
    assert not node.settled, "a hold lease outlives its member"


def test_nothing_there_is_an_empty_answer() -> None:
    assert Node().poll().json == {"messages": [], "paused": False}
    assert Node(PollReply([], paused=True)).poll().json["paused"] is True


def test_a_long_wait_asks_the_coordinator_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "SLICE_MS", 1)
    node = Node()
    node.poll("member=m&wait=200ms")
    waits = [body.max_wait_ms for body in node.asked(Kind.POLL)]
    assert len(waits) > 2 and max(waits) <= 1


def test_a_caller_who_left_before_the_answer_loses_nothing_to_others() -> None:
    node = Node(PollReply([lease([4, 3]), lease([9, 1], 2)], group_number=5))
    node.parts = [(FetchReply([fetched(OK, next_offset=7), fetched(OK, next_offset=10)]), [stamped(4, 3), stamped(9, 1)])]
    node.poll(gone=True)
    assert sorted(node.settled) == [(Op.RELEASE, [4, 3]), (Op.RELEASE, [9, 1])]


def test_what_comes_after_the_caller_left_goes_back_too() -> None:
    async def late(body: Any) -> PollReply:
        await asyncio.sleep(0.01)
        return PollReply([lease([4, 3])], group_number=5)

    node = Node()
    node.rig.client.answers[Kind.POLL] = lambda body: late(body)
    node.poll("member=m&wait=5", gone=True)
    assert node.settled == [(Op.RELEASE, [4, 3])]


def test_a_drain_ends_the_wait_with_an_empty_answer() -> None:
    async def scenario() -> tuple[Any, float, Node]:
        node = Node()

        async def slow(body: Any) -> PollReply:
            node.rig.gateway.draining.set()
            await asyncio.sleep(0.05)
            return PollReply([lease([4, 3])], group_number=5)

        node.rig.client.answers[Kind.POLL] = lambda body: slow(body)
        begun = time.monotonic()
        return await node.rig.asks("GET", "/groups/g/poll", None, "member=m&wait=30"), time.monotonic() - begun, node

    answer, took, node = asyncio.run(scenario())
    assert (answer.status, answer.json["messages"]) == (200, []) and took < 5
    assert node.settled == [(Op.RELEASE, [4, 3])], "what the question still brought went back"


def test_when_the_log_does_not_answer_all_goes_back_and_the_caller_hears_503() -> None:
    node = Node(PollReply([lease([4, 3])], group_number=5))
    node.rig.client.answers[Kind.FETCH] = e.Unavailable("logd starts")
    answer = node.poll()
    assert (answer.status, answer.code) == (503, "unavailable")
    assert node.settled == [(Op.RELEASE, [4, 3])]


def test_of_another_epoch_or_not_there_yet_goes_back() -> None:
    node = Node(PollReply([lease([4, 3]), lease([9, 2], 2)], group_number=5))
    node.parts = [(FetchReply([Fetched(e.NotLeader.code, "moved"), fetched(OK, NOT_YET)]), [b"", b""])]
    node.replies[0].leases[1].ranges = [9, 1, 20, 2]
    node.parts = [(FetchReply([Fetched(e.NotLeader.code, "moved"), fetched(OK, NOT_YET, next_offset=10)]), [b"", stamped(9, 1)]),
                  (FetchReply([Fetched(e.NotLeader.code, "moved"), fetched(NOT_YET)]), [b"", b""])]
    answer = node.poll()
    assert [message["offset"] for message in answer.json["messages"]] == [9]
    assert sorted(node.settled) == [(Op.RELEASE, [4, 3]), (Op.RELEASE, [20, 2])]


def test_gone_is_left_to_the_coordinator_corrupt_is_rejected_hidden_is_not_shown() -> None:
    node = Node(PollReply([lease([0, 2, 5, 1, 10, 3])], group_number=5))
    node.parts = [(FetchReply([fetched(GONE, CORRUPT, OK, next_offset=13, hidden=[11, 1])]), [stamped(10, 3)])]
    assert [message["offset"] for message in node.poll().json["messages"]] == [10, 12]
    assert node.settled == [(Op.REJECT, [5, 1])]


def test_an_answer_that_is_full_gives_the_rest_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "ANSWER_BYTES", 140)
    node = Node(PollReply([lease([0, 10])], group_number=5))
    node.parts = [(FetchReply([fetched(OK, covered=1, next_offset=2)]), [stamped(0, 2)]),
                  (FetchReply([fetched(OK, covered=1, next_offset=4)]), [stamped(2, 2)])]
    offsets = [message["offset"] for message in node.poll().json["messages"]]
    assert offsets == [0] and not node.parts, "it stops fetching when there is enough, and one is always handed out"
    assert node.settled == [(Op.RELEASE, [1, 9])]


@pytest.mark.parametrize(("query", "field"), [("wait=61", "wait"), ("member=m&wait=soon", "wait"), ("max=0&topics=t", "max"),
                                              ("max=1001&topics=t", "max"), ("wait=0", "topics"), ("topics=&wait=0", "topics"),
                                              ("topics=a/b&wait=0", "topics"), ("topics=t&start=7&wait=0", "start"),
                                              ("topics=t&mode=x", "mode"), ("member=m&visibility=13h", "visibility")])
def test_bad_parameters(query: str, field: str) -> None:
    answer = Node().poll(query)
    assert (answer.status, answer.json["field"]) == (400, field)


def test_unknown_members_and_groups_are_told() -> None:
    for error in (e.UnknownMember("join again"), e.UnknownGroup("no group")):
        node = Node()
        node.rig.client.answers[Kind.POLL] = error
        assert node.poll().code == error.name


def test_topics_may_be_given_with_commas_or_again() -> None:
    for query in ("topics=a,b&wait=0", "topics=a&topics=b&wait=0"):
        node = Node()
        node.poll(query)
        assert node.asked(Kind.JOIN)[0].topics == ["a", "b"]
        assert ("consume", "b") in node.rig.authorized


def test_who_may_not_any_more_gets_nothing_and_it_goes_back() -> None:
    """The key was revoked while the poll waited, or the member is another key's."""
    node = Node()

    def leased(body: Any) -> PollReply:
        node.rig.verdict = e.Unauthorized("revoked")
        return PollReply([lease([10, 2])], group_number=5)

    node.rig.client.answers[Kind.POLL] = leased
    assert node.poll().code == "unauthorized"
    assert node.settled == [(Op.RELEASE, [10, 2])] and node.asked(Kind.FETCH) == []

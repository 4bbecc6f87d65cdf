"""A poll that allows several answers: until they, its messages or its time are used up."""

from typing import Any

from gq_groupd import effects as fx
from gq_proto import messages as m
from gq_proto.messages import Kind
from tests.unit.gq_groupd.rig import Call, Rig, offsets


def poll(rig: Rig, answers: int = 3, most: int = 10, wait_ms: int = 5_000) -> Call:
    return rig.send(Kind.POLL, m.Poll("g", "a", 0, most, wait_ms, answers=answers), b"a")


def came(rig: Rig, call: Call) -> tuple[list[int], bool] | None:
    """What the last answer said, once."""
    body: Any = rig.answers.pop(call, None)
    return (offsets(body.leases), body.open) if body else None


def test_each_news_is_an_answer_to_the_last_that_was_allowed() -> None:
    rig = Rig()
    rig.join("a")
    call = poll(rig)
    assert came(rig, call) is None
    seen = []
    for _ in range(4):
        rig.publish(1)
        seen.append(came(rig, call))
    assert seen == [([0], True), ([1], True), ([2], False), None]


def test_what_is_there_already_is_the_first_answer_and_max_messages_are_for_all() -> None:
    rig = Rig()
    rig.join("a")
    rig.publish(3)
    call = poll(rig, most=5)
    assert came(rig, call) == ([0, 1, 2], True)
    rig.publish(4)
    assert came(rig, call) == ([3, 4], False)
    rig.publish(1)
    assert came(rig, call) is None


def test_its_time_ends_it() -> None:
    rig = Rig()
    rig.join("a")
    call = poll(rig)
    rig.publish(1)
    assert came(rig, call) == ([0], True)
    rig.advance(5_001)
    assert came(rig, call) == ([], False)
    rig.publish(1)
    assert came(rig, call) is None


def test_without_patience_there_is_one_answer() -> None:
    rig = Rig()
    rig.join("a")
    rig.publish(1)
    assert came(rig, poll(rig, wait_ms=0)) == ([0], False)


def test_a_shared_group_is_answered_once_so_that_others_can_start_what_comes() -> None:
    rig = Rig()
    rig.join("a", mode="shared")
    call = poll(rig)
    rig.publish(1)
    assert came(rig, call) == ([0], False)


def test_who_has_all_it_may_have_waits_and_goes_on_when_it_acked() -> None:
    rig = Rig()
    rig.join("a")
    rig.publish(1_000)
    first = rig.poll("a", 1_000)
    call = poll(rig)
    assert came(rig, call) is None
    rig.publish(1)
    assert came(rig, call) is None
    rig.settle(first[0])
    assert came(rig, call) == ([1_000], True)


def test_an_answer_that_reached_nobody_ends_it_and_its_leases_return() -> None:
    rig = Rig()
    rig.join("a")
    call = poll(rig)
    rig.publish(1)
    body: Any = rig.answers.pop(call)
    rig.do(rig.core.undelivered(rig.now, rig.wall, call, body))  # type: ignore[arg-type]
    rig.publish(1)
    assert came(rig, call) is None
    assert offsets(rig.poll("a")) == [0, 1]


def test_a_retry_is_handed_out_once_the_failure_behind_it_is_on_record() -> None:
    rig = Rig(backoff_base_ms=0)
    rig.join("a")
    rig.publish(2)
    [lease] = rig.poll("a")
    rig.settle(lease, m.Op.NACK, [0, 1], arg_ms=0)
    rig.hold |= {fx.Append, fx.Reply}
    poll(rig)
    [append, reply] = rig.held
    assert (reply.after, offsets(reply.body.leases)) == (append.ticket, [0])
    rig.held = [append]
    rig.release(fx.Append, fx.Reply)
    rig.hold |= {fx.Append, fx.Reply}
    rig.publish(1)
    assert [reply.after for reply in rig.held if isinstance(reply, fx.Reply)] == [0], "a first attempt waits for nothing"

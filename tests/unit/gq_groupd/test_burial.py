"""Dead letters: exactly one copy, wherever it breaks."""

import pytest

from gq_groupd import effects as fx
from gq_proto.errors import OffsetOutOfRange, Unavailable, UnknownTopicId
from gq_proto.messages import Op
from tests.unit.gq_groupd.rig import Rig


def reject(r: Rig, n: int = 3) -> None:
    r.join()
    r.publish(n)
    r.settle(r.poll()[0], Op.REJECT, reason="no good")


def offsets(r: Rig) -> list[int]:
    return [entry[3] for entry in r.dlq]


@pytest.mark.parametrize("at", [fx.PrepareDeadLetters, fx.CopyDeadLetters])
def test_a_crash_before_the_step_is_done(at: type) -> None:
    r = Rig()
    r.hold.add(at)
    reject(r)
    r.hold.clear()
    r.restart()
    assert offsets(r) == [0, 1, 2] and r.part().lag == 0


def test_a_crash_between_the_copy_and_its_ack_copies_nothing_twice() -> None:
    r = Rig()
    r.hold.add(fx.CopyDeadLetters)
    reject(r)
    [ask] = r.held
    assert not ask.scan
    r.copy(ask)
    r.hold.clear()
    r.restart()
    assert offsets(r) == [0, 1, 2] and r.part().lag == 0


def test_nothing_is_copied_before_the_intent_is_durable() -> None:
    r = Rig()
    r.hold.add(fx.Append)
    r.hold.add(fx.CopyDeadLetters)
    r.hold.discard(fx.Append)
    r.join()
    r.publish(1)
    [lease] = r.poll()
    r.hold.add(fx.PrepareDeadLetters)
    r.settle(lease, Op.REJECT)
    [ask] = r.held
    effects = r.core.answer(r.now, r.wall, ask, fx.DeadLetterEnd(9, 5), None)
    [append] = [e for e in effects if isinstance(e, fx.Append)]
    assert not any(isinstance(e, fx.CopyDeadLetters) for e in effects)
    [copy] = [e for e in r.core.appended(r.now, r.wall, append.ticket, 99) if isinstance(e, fx.CopyDeadLetters)]
    assert (copy.dlq_topic_id, copy.dlq_end, [i.offset for i in copy.items]) == (9, 5, [0])


def test_failures_are_tried_again_with_a_scan() -> None:
    r = Rig()
    r.copy_error = Unavailable("fate unknown")
    reject(r)
    assert r.part().lag == 3
    r.copy_error = None
    r.advance(1_000)
    assert offsets(r) == [0, 1, 2] and r.part().lag == 0


def test_a_dlq_that_was_deleted_is_made_again() -> None:
    r = Rig()
    r.copy_error = UnknownTopicId("gone")
    reject(r)
    r.copy_error = None
    r.hold.add(fx.PrepareDeadLetters)
    r.advance(1_000)
    assert [type(e) for e in r.held] == [fx.PrepareDeadLetters]
    r.release(fx.PrepareDeadLetters)
    assert offsets(r) == [0, 1, 2]


def test_messages_that_are_gone_count_as_expired() -> None:
    r = Rig()
    r.hold.add(fx.CopyDeadLetters)
    reject(r)
    [ask] = r.held
    r.held.clear()
    r.do(r.core.answer(r.now, r.wall, ask, fx.DeadLettersCopied([0, 1], [1, 2]), None))
    assert (r.part().lag, r.part().expired) == (0, 2)
    [gauge] = r.core.gauges()
    assert (gauge.dead_lettered, gauge.expired) == (1, 2)


def test_many_go_in_batches() -> None:
    r = Rig()
    reject(r, 250)
    assert offsets(r) == list(range(250)) and r.part().lag == 0


@pytest.mark.parametrize("error", [UnknownTopicId("deleted"), OffsetOutOfRange("holds offsets 0 to 8, not 10")])
def test_a_dlq_that_is_gone_or_was_cut_back_before_the_intent_is_begun_with_anew(error: Exception) -> None:
    r = Rig()
    r.copy_error = error  # type: ignore[assignment]
    reject(r)
    assert offsets(r) == [] and r.part().lag == 3
    r.copy_error = None
    r.hold.add(fx.PrepareDeadLetters)
    r.advance(2_000)
    assert [type(effect) for effect in r.held] == [fx.PrepareDeadLetters], "an intent of the old end is none"
    r.release(fx.PrepareDeadLetters)
    assert offsets(r) == [0, 1, 2] and r.part().lag == 0

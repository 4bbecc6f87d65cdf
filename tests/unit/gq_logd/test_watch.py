"""Watch: told when something is new, all of a turn at once, with the runs where they are few."""

from pathlib import Path
from typing import Any

from gq_proto import messages
from gq_proto.messages import Kind
from tests.unit.gq_logd.world import TOPIC, Call, World, batch_of, produce


def watch(*ends: int, epoch: int = -1, peer: bytes = b"w", wait_ms: int = 1000, topic_id: int = TOPIC) -> Call:
    parts = [messages.WatchPart(topic_id, number, end, epoch) for number, end in enumerate(ends)]
    return Call(Kind.WATCH, messages.Watch(parts, wait_ms), peer=peer)


def told(call: Call) -> list[tuple[Any, ...]]:
    return [(part.partition, part.end, part.runs, part.error) for part in call.reply.parts]


def test_what_differs_already_is_told_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=2)
    world.publish(batch_of(b"a", b"b"))
    call = watch(0, 0)
    world.send(call)
    assert told(call) == [(0, 3, [0, 1, 34, 1, 2, 2], 0)]
    assert [c.type for c in call.reply.parts[0].controls] == [2]


def test_all_changes_of_a_turn_in_one_answer(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=3)
    for partition in range(3):
        world.publish(batch_of(b"a"), partition=partition)
    call = watch(2, 2, 2)
    world.send(call)
    assert not call.done
    world.send(produce(batch_of(b"b"), partition=0), produce(batch_of(b"c"), partition=2), produce(batch_of(b"c"), partition=2))
    assert told(call) == [(0, 3, [2, 1, 2], 0), (2, 4, [2, 2, 2], 0)]


def test_nothing_new_is_told_at_the_end_of_the_wait(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    call = watch(2)
    world.send(call)
    world.tick(0.9)
    assert not call.done
    world.tick(0.2)
    assert told(call) == []


def test_a_new_question_of_a_connection_replaces_the_old_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    old, new, other = watch(2), watch(2), watch(2, peer=b"x")
    world.send(old)
    world.send(other)
    world.send(new)
    assert told(old) == [] and not new.done
    world.publish(batch_of(b"b"))
    assert told(new) == told(other) == [(0, 3, [2, 1, 2], 0)]
    world.tick(5)


def test_a_new_epoch_is_told_even_if_nothing_else_is_new(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    call = watch(2, epoch=1)
    world.send(call)
    assert not call.done
    world.lead()
    assert call.reply.parts[0].epoch == 2 and call.reply.parts[0].runs == []


def test_a_moved_log_start_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    call = watch(2)
    world.send(call)
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(-1))
    assert call.reply.parts[0].log_start == 2


def test_many_runs_are_left_to_be_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(*[b"x"] * 100, priorities=range(5)))
    call = watch(1)
    world.send(call)
    assert told(call) == [(0, 101, [], 0)]


def test_unknown_partitions_do_not_make_it_spin(tmp_path: Path) -> None:
    world = World(tmp_path)
    call = watch(0, topic_id=5)
    world.send(call)
    assert not call.done
    world.tick(1.1)
    assert told(call) == [(0, 0, [], 22)]


def test_a_deleted_topic_is_told_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    call = watch(2)
    world.send(call)
    world.apply(deleted=[TOPIC])
    assert told(call) == [(0, 2, [], 22)]


def test_a_topic_that_appears_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, lead=False)
    call = watch(0, wait_ms=5000)
    world.send(call)
    world.lead()
    world.publish(batch_of(b"a"))
    assert told(call)[0][:2] == (0, 2)


def test_only_what_is_stable_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, fsync="every")
    world.publish(batch_of(b"a"))
    call = watch(2)
    world.send(call)
    world.hold_syncs = True
    world.send(produce(batch_of(b"b")))
    assert not call.done
    world.sync()
    assert told(call) == [(0, 3, [2, 1, 2], 0)]


def test_several_answers_to_one_question_each_of_what_is_new_since_the_last(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=2)
    for partition in range(2):
        world.publish(batch_of(b"a"), partition=partition)
    call = watch(2, 2)
    call.body.answers = 3
    world.send(call)
    seen = []
    for partition in (0, 1, 0, 1):
        world.publish(batch_of(b"b"), partition=partition)
        seen.append((told(call), call.reply.open))
    assert seen[:3] == [([(0, 3, [2, 1, 2], 0)], True), ([(1, 3, [2, 1, 2], 0)], True), ([(0, 4, [3, 1, 2], 0)], False)]
    assert seen[3] == seen[2], "after the last answer nothing is said"


def test_several_answers_end_with_the_wait(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    call = watch(2)
    call.body.answers = 3
    world.send(call)
    world.publish(batch_of(b"b"))
    assert call.reply.open
    world.tick(1.1)
    assert told(call) == [] and not call.reply.open


def test_a_log_start_that_moved_while_nobody_asked_is_told_to_who_knew_another(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a", b"b"))
    first = watch(0)
    world.send(first)
    world.ask(Kind.DELETE_BEFORE, messages.DeleteBefore(-1))
    assert world.partition.log.start == 3

    def asked(log_start: int) -> Call:
        part = messages.WatchPart(TOPIC, 0, 3, first.reply.parts[0].epoch, log_start)
        call = Call(Kind.WATCH, messages.Watch([part], 1000), peer=b"w")
        world.send(call)
        return call
    assert [part.log_start for part in asked(first.reply.parts[0].log_start).reply.parts] == [3]
    assert not asked(3).done and not asked(-1).done

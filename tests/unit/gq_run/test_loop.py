"""The loop: order within a turn, timers on a clock of the test's own, posts from elsewhere."""

import os
import threading

from gq_run.loop import Loop


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_timers_run_when_due_in_order_of_time_then_of_making() -> None:
    clock = Clock()
    loop, ran = Loop(clock), []
    loop.call_later(2, lambda: ran.append("b"))
    loop.call_later(1, lambda: ran.append("a"))
    loop.call_at(102.0, lambda: ran.append("c"))
    loop.turn()
    assert ran == []
    clock.time = 101.0
    loop.turn()
    assert ran == ["a"]
    clock.time = 110.0
    loop.turn()
    assert ran == ["a", "b", "c"]
    loop.close()


def test_a_cancelled_timer_does_not_run_nor_wake() -> None:
    clock = Clock()
    loop, ran = Loop(clock), []
    loop.call_later(1, lambda: ran.append("x")).cancel()
    assert loop._wait_ms(5.0) == 5000
    clock.time = 200.0
    loop.turn()
    assert ran == []
    loop.close()


def test_a_timer_set_by_a_timer_waits_for_its_time() -> None:
    clock = Clock()
    loop, ran = Loop(clock), []

    def again() -> None:
        ran.append(clock.time)
        loop.call_later(1, again)

    loop.call_later(1, again)
    for _ in range(3):
        clock.time += 1
        loop.turn()
    assert ran == [101.0, 102.0, 103.0]
    loop.close()


def test_it_waits_for_the_next_timer_but_no_longer_than_asked() -> None:
    clock = Clock()
    loop = Loop(clock)
    assert loop._wait_ms(60.0) == 60_000
    loop.call_later(0.0101, lambda: None)
    assert loop._wait_ms(60.0) == 11           # rounded up: never polls twice for one deadline
    assert loop._wait_ms(0.001) == 1
    clock.time += 1
    assert loop._wait_ms(60.0) == 0
    loop.close()


def test_order_within_a_turn() -> None:
    clock = Clock()
    loop, ran = Loop(clock), []
    reader, writer = os.pipe()
    loop.add_reader(reader, lambda: ran.append("socket") or os.read(reader, 1))
    loop.each_turn(lambda: ran.append("hook"))
    loop.post(lambda: ran.append("post"))
    loop.call_later(0, lambda: ran.append("timer"))
    os.write(writer, b"x")
    loop.turn()
    assert ran == ["timer", "socket", "post", "hook"]
    loop.remove_reader(reader)
    os.write(writer, b"x")
    loop.turn()
    assert ran[4:] == ["hook"]
    os.close(reader), os.close(writer)
    loop.close()


def test_hooks_see_what_timers_did_at_once() -> None:
    """A turn in which a timer ran does not go on to wait for sockets before its hooks run."""
    clock = Clock()
    loop, seen = Loop(clock), []
    loop.call_later(0, lambda: seen.append("timer"))
    loop.each_turn(lambda: seen.append("hook"))
    alarm = threading.Timer(5, loop.post, [lambda: seen.append("too late")])
    alarm.start()
    loop.turn(60.0)
    alarm.cancel()
    assert seen == ["timer", "hook"]
    loop.close()


def test_slices_that_post_the_next_let_sockets_in_between() -> None:
    loop, ran = Loop(), []
    reader, writer = os.pipe()
    loop.add_reader(reader, lambda: ran.append("socket") or os.read(reader, 1))

    def slice() -> None:
        ran.append("slice")
        loop.post(slice)

    loop.post(slice)
    os.write(writer, b"xy")
    loop.turn(), loop.turn()
    assert ran == ["socket", "slice", "socket", "slice"]
    loop.remove_reader(reader)
    os.close(reader), os.close(writer)
    loop.close()


def test_a_post_from_another_thread_wakes_it() -> None:
    loop, ran = Loop(), []
    thread = threading.Thread(target=loop.post, args=(lambda: ran.append(1) or loop.stop(),))
    thread.start()
    loop.run()
    thread.join()
    assert ran == [1]
    loop.close()

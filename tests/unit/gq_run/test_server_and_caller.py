"""A daemon's front door and the line to it: what is no request, who is gone, what is late."""

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import zmq

from gq_proto import limits, messages
from gq_proto.errors import BadRequest, BadVersion, Busy, GoQueueError, NotFound, TimedOut, Unavailable, UnknownKind
from gq_proto.messages import Empty, Kind
from gq_run.caller import Caller
from gq_run.loop import Loop
from gq_run.server import Incoming, Server

Context = zmq.Context[zmq.Socket[bytes]]
TurnUntil = Callable[[Callable[[], Any]], None]
STATUS = messages.StatusReply("logd", "n1", "0", "pure", 1, 0.0, True)


class Door:
    """A server that keeps what came; `answer` decides what becomes of it."""

    def __init__(self, loop: Loop, context: Context) -> None:
        self.came: list[Incoming] = []
        self.answer: Callable[[Incoming], Any] = lambda incoming: incoming.reply(STATUS)
        self.server = Server(loop, context, self.handle)

    def handle(self, incoming: Incoming) -> None:
        self.came.append(incoming)
        self.answer(incoming)


@pytest.fixture
def door(loop: Loop, context: Context, endpoint: str) -> Iterator[Door]:
    made = Door(loop, context)
    made.server.bind(endpoint)
    yield made
    made.server.close()


@pytest.fixture
def caller(loop: Loop, context: Context, endpoint: str, door: Door, turn_until: TurnUntil) -> Iterator[Caller]:
    made = Caller(loop, context, endpoint)
    turn_until(lambda: made.connected)
    yield made
    made.close()


class Results(list[tuple[Any, list[bytes], GoQueueError | None]]):
    def __call__(self, body: Any, frames: list[zmq.Frame], error: GoQueueError | None) -> None:
        self.append((body, [frame.bytes for frame in frames], error))


@pytest.fixture
def raw(context: Context, endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    """A connection that sends what it likes."""
    with context.socket(zmq.DEALER) as socket:
        socket.linger, socket.rcvhwm = 0, 1
        socket.connect(endpoint)
        yield socket


# -- the door -----------------------------------------------------------------------------

def test_a_request_and_its_answer_with_payloads(caller: Caller, door: Door, turn_until: TurnUntil) -> None:
    results = Results()
    large = os.urandom(200_000)
    door.answer = lambda incoming: incoming.reply(messages.FetchReply([]), [b"", incoming.frames[1].buffer])
    caller.call(Kind.FETCH, messages.Fetch([]), results, [b"small", large], topic_id=5, partition=2, epoch=9, timeout_s=3)
    turn_until(lambda: results)
    came = door.came[0]
    assert (came.kind, came.topic_id, came.partition, came.epoch, came.body) == (Kind.FETCH, 5, 2, 9, messages.Fetch([]))
    assert not came.frames[1].buffer.readonly            # stamped in place
    assert results == [(messages.FetchReply([]), [b"", large], None)]


def test_a_refusal_arrives_as_it_was_raised(caller: Caller, door: Door, turn_until: TurnUntil) -> None:
    def refuse(incoming: Incoming) -> None:
        raise NotFound("there is no such thing")

    results = Results()
    door.answer = refuse
    caller.call(Kind.STATUS, Empty(), results)
    turn_until(lambda: results)
    assert isinstance(results[0][2], NotFound) and results[0][2].message == "there is no such thing"
    assert (door.server.taken, door.server.refused) == (1, 1)


def test_a_bug_in_a_handler_is_not_hidden(caller: Caller, door: Door, turn_until: TurnUntil) -> None:
    door.answer = lambda incoming: 1 // 0
    caller.call(Kind.STATUS, Empty(), Results())
    with pytest.raises(ZeroDivisionError):
        turn_until(lambda: False)


def envelope(**changes: Any) -> bytes:
    fields = {"version": 1, "kind": int(Kind.STATUS), "id": 3, "deadline": 5000, "token": b"", "topic": 0, "partition": -1,
              "epoch": -1, "body": []} | changes
    return msgspec.msgpack.encode(list(fields.values()))


@pytest.mark.parametrize(("frames", "error", "id"), [
    ([], BadRequest, 0),
    ([b""], BadRequest, 0),
    ([b"\xc1garbage"], BadRequest, 0),
    ([b"\xdf\xff\xff\xff\xff"], BadRequest, 0),                      # a map of 4 G entries
    ([b"\x99" * 100_000], BadRequest, 0),                            # nested beyond reason
    ([envelope()[:-3]], BadRequest, 0),
    ([envelope(version=2)], BadVersion, 0),
    ([envelope(kind=9999)], UnknownKind, 3),
    ([envelope(kind=int(Kind.ASSIGNED))], UnknownKind, 3),           # a push is no request
    ([envelope(kind=int(Kind.POLL))], BadRequest, 3),                # lacks its fields
    ([envelope(kind=int(Kind.POLL), body="x")], BadRequest, 3),
    ([envelope(kind=2**40)], UnknownKind, 3),
])
def test_what_is_no_request_is_answered_and_harms_nobody(raw: zmq.Socket[bytes], door: Door, caller: Caller, turn_until: TurnUntil,
                                                         frames: list[bytes], error: type[GoQueueError], id: int) -> None:
    raw.send_multipart(frames) if frames else raw.send(b"")
    turn_until(lambda: raw.poll(0))
    reply = messages.decode_reply(raw.recv_multipart()[0])
    assert (reply.error, reply.id) == (error.code, id)
    assert door.came == [] and door.server.refused == 1
    results = Results()
    caller.call(Kind.STATUS, Empty(), results)
    turn_until(lambda: results)
    assert results[0][2] is None


def test_random_bytes_never_take_it_down(raw: zmq.Socket[bytes], door: Door, turn_until: TurnUntil) -> None:
    chance, good = random.Random(7), envelope()
    for _ in range(200):
        mutated = bytearray(good)
        mutated[chance.randrange(len(good))] = chance.randrange(256)
        raw.send_multipart([chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(1, 4))])
        raw.send(bytes(mutated[:chance.randrange(len(mutated) + 1)]))
    raw.send(envelope(id=77))
    turn_until(lambda: any(incoming.id == 77 for incoming in door.came))


def test_a_request_past_its_deadline_is_dropped(raw: zmq.Socket[bytes], door: Door, turn_until: TurnUntil) -> None:
    raw.send(envelope(deadline=0))
    raw.send(envelope(deadline=-5))
    raw.send(envelope(id=4))
    turn_until(lambda: door.came)
    assert [incoming.id for incoming in door.came] == [4]


def test_replies_to_who_is_gone_are_counted_and_dropped(raw: zmq.Socket[bytes], door: Door, turn_until: TurnUntil) -> None:
    door.answer = lambda incoming: None
    raw.send(envelope())
    turn_until(lambda: door.came)
    raw.close()
    turn_until(lambda: not door.came[0].reply(Empty()))
    assert not door.server.push(door.came[0].peer, Kind.ASSIGNED, messages.AssignedPush("g", "m", 1, []))
    assert door.server.unsent == 2


def test_a_peer_that_does_not_read_costs_a_bound_and_no_more(raw: zmq.Socket[bytes], door: Door, turn_until: TurnUntil) -> None:
    door.answer = lambda incoming: None
    raw.send(envelope())
    turn_until(lambda: door.came)
    sent = 0
    while door.came[0].reply(messages.Empty(), [b"x" * 10_000]):
        sent += 1
        assert sent < 100_000
    assert door.server.unsent == 1


def test_large_replies_that_nobody_reads_are_bounded_in_bytes(raw: zmq.Socket[bytes], door: Door, turn_until: TurnUntil) -> None:
    large = bytes(8 * limits.MIB)
    raw.setsockopt(zmq.RCVBUF, 4096)
    door.answer = lambda incoming: incoming.reply(Empty(), [large])
    ids = range(1, 201)
    for id in ids:
        raw.send(envelope(id=id))
    received: list[tuple[int, int]] = []
    turn_until(lambda: door.server.taken > 1)
    for _ in ids:                                        # nothing is read meanwhile
        door.server._loop.turn()
    most = limits.UNREAD_BYTES_MAX // len(large) + 1
    assert door.server.taken <= 2 * most, "what the kernel and the other side take in comes on top"

    def read() -> bool:
        while raw.poll(0):
            head, *frames = raw.recv_multipart()
            reply = messages.decode_reply(head)
            received.append((reply.error, sum(map(len, frames))))
        return len(received) == len(ids)

    turn_until(read)
    assert {error for error, size in received if not size} == {Busy.code}
    assert sum(size > 0 for _, size in received) == door.server.taken < len(ids)
    raw.send(envelope(id=500))
    turn_until(lambda: door.came[-1].id == 500)
    turn_until(lambda: raw.poll(0))
    assert len(raw.recv_multipart()) == 2, "who reads is served again"


def test_bind_says_what_is_in_the_way(loop: Loop, context: Context, door: Door) -> None:
    bound = door.server.bind("tcp://127.0.0.1:0")
    assert bound in door.server.endpoints and not bound.endswith(":0")
    other = Server(loop, context, lambda incoming: None)
    with pytest.raises(OSError, match=f"cannot listen at {bound}: Address already in use"):
        other.bind(bound)
    assert other.endpoints == []
    other.close()


def test_close_removes_the_socket_file(loop: Loop, context: Context, endpoint: str) -> None:
    server = Server(loop, context, lambda incoming: None)
    server.bind(endpoint)
    path = endpoint.removeprefix("ipc://")
    assert os.path.exists(path)
    server.close()
    assert not os.path.exists(path)


# -- the line ------------------------------------------------------------------------------

def test_nobody_there_fails_at_once_but_never_within_the_call(loop: Loop, context: Context, endpoint: str) -> None:
    caller, results = Caller(loop, context, endpoint), Results()
    caller.call(Kind.STATUS, Empty(), results)
    assert results == []
    loop.turn()
    assert isinstance(results[0][2], Unavailable)
    caller.close()


def test_a_broken_connection_fails_what_is_unanswered(caller: Caller, door: Door, loop: Loop, turn_until: TurnUntil) -> None:
    results, downs = Results(), []
    caller.on_down = lambda: downs.append(1)
    door.answer = lambda incoming: None
    caller.call(Kind.STATUS, Empty(), results)
    turn_until(lambda: door.came)
    door.server.close()
    turn_until(lambda: results and downs)
    assert isinstance(results[0][2], Unavailable) and not caller.connected


def test_it_comes_back_by_itself(caller: Caller, door: Door, loop: Loop, context: Context, endpoint: str,
                                 turn_until: TurnUntil) -> None:
    ups: list[int] = []
    caller.on_up = lambda: ups.append(1)
    door.server.close()
    turn_until(lambda: not caller.connected)
    again = Door(loop, context)
    again.server.bind(endpoint)
    turn_until(lambda: ups)
    results = Results()
    caller.call(Kind.STATUS, Empty(), results)
    turn_until(lambda: results)
    assert results == [(STATUS, [], None)]
    again.server.close()


def test_no_answer_in_time(context: Context, endpoint: str) -> None:
    clock = [50.0]
    loop = Loop(lambda: clock[0])
    door = Door(loop, context)
    door.server.bind(endpoint)
    door.answer = lambda incoming: None
    caller, early, late = Caller(loop, context, endpoint), Results(), Results()
    while not caller.connected:
        loop.turn(0.02)
    caller.call(Kind.STATUS, Empty(), late, timeout_s=20)
    caller.call(Kind.STATUS, Empty(), early, timeout_s=2)
    while len(door.came) < 2:
        loop.turn(0.02)
    clock[0] += 1.9
    loop.turn()
    assert early == []
    clock[0] += 0.2
    loop.turn()
    assert isinstance(early[0][2], TimedOut) and late == []
    door.came[1].reply(Empty())                      # too late: nobody is told twice
    clock[0] += 18
    while not late:
        loop.turn(0.02)
    assert isinstance(late[0][2], TimedOut) and len(early) == 1
    caller.close(), door.server.close(), loop.close()


def test_more_than_a_connection_queues_comes_whole_and_in_order(caller: Caller, door: Door, turn_until: TurnUntil) -> None:
    results, count = Results(), 5 * limits.HIGH_WATER_MARK
    asked = [messages.OffsetForTime(i) for i in range(count)]
    door.answer = lambda incoming: incoming.reply(messages.OffsetForTimeReply(incoming.body.timestamp_us, 0))
    for body in asked:
        caller.call(Kind.OFFSET_FOR_TIME, body, results)
    turn_until(lambda: len(results) == count)
    assert [incoming.body for incoming in door.came] == asked
    assert [body.offset for body, _, _ in results] == list(range(count)) and not door.server.unsent


def test_what_is_asked_while_others_wait_comes_after_them(caller: Caller, door: Door, turn_until: TurnUntil) -> None:
    results, late = Results(), Results()

    def more(*args: Any) -> None:
        if not results:
            caller.call(Kind.OFFSET_FOR_TIME, messages.OffsetForTime(-7), late)
        results(*args)
    for _ in range(limits.UNANSWERED_MAX + 10):
        caller.call(Kind.STATUS, Empty(), more)
    turn_until(lambda: late)
    assert [incoming.kind for incoming in door.came[-2:]] == [Kind.STATUS, Kind.OFFSET_FOR_TIME]


def test_what_was_not_even_sent_in_time_says_so(context: Context, endpoint: str) -> None:
    clock = [50.0]
    loop = Loop(lambda: clock[0])
    door = Door(loop, context)
    door.server.bind(endpoint)
    door.answer = lambda incoming: None
    caller, results = Caller(loop, context, endpoint), Results()
    while not caller.connected:
        loop.turn(0.02)
    for i in range(limits.UNANSWERED_MAX + 2):
        caller.call(Kind.STATUS, Empty(), results, timeout_s=9 if i < limits.UNANSWERED_MAX else 2)
    while len(door.came) < limits.UNANSWERED_MAX:
        loop.turn(0.02)
    clock[0] += 2.1
    loop.turn()
    assert [type(error) for _, _, error in results] == [Busy, Busy]
    clock[0] += 7
    loop.turn()
    caller.call(Kind.STATUS, Empty(), results)           # there is room again
    while len(door.came) == limits.UNANSWERED_MAX:
        loop.turn(0.02)
    caller.close(), door.server.close(), loop.close()


def test_a_broken_connection_fails_what_waits_for_room_too(caller: Caller, door: Door, turn_until: TurnUntil) -> None:
    results, count = Results(), limits.UNANSWERED_MAX + 10
    door.answer = lambda incoming: None
    for _ in range(count):
        caller.call(Kind.STATUS, Empty(), results)
    turn_until(lambda: len(door.came) == limits.UNANSWERED_MAX)
    door.server.close()
    turn_until(lambda: len(results) == count)
    assert {type(error) for _, _, error in results} == {Unavailable}


def test_long_polls_do_not_wake_an_idle_loop(caller: Caller, door: Door, loop: Loop, turn_until: TurnUntil) -> None:
    door.answer = lambda incoming: None
    caller.call(Kind.STATUS, Empty(), Results(), timeout_s=30)
    turn_until(lambda: door.came)
    assert loop._wait_ms(60.0) > 20_000


def test_several_answers_to_one_call(caller: Caller, door: Door, turn_until: TurnUntil) -> None:
    def answer(incoming: Incoming) -> None:
        for end, more in ((1, True), (2, True), (3, False), (4, False)):
            incoming.reply(messages.WatchReply([messages.Watched(1, 0, 0, 0, end)], more))
    door.answer = answer
    results = Results()
    caller.call(Kind.WATCH, messages.Watch([], answers=3), results)
    turn_until(lambda: len(results) == 3)
    caller.call(Kind.WATCH, messages.Watch([], answers=3), results)
    turn_until(lambda: len(results) == 6)
    assert [body.parts[0].end for body, _, _ in results] == [1, 2, 3, 1, 2, 3], "after the last nothing is heard"


def test_garbage_from_a_daemon_is_counted_and_dropped(caller: Caller, door: Door, turn_until: TurnUntil) -> None:
    results, pushes = Results(), []
    caller.on_push = lambda kind, body: pushes.append(body)
    door.answer = lambda incoming: door.server.socket.send_multipart([incoming.peer, b"\xc1"])
    caller.call(Kind.STATUS, Empty(), results)
    turn_until(lambda: caller.refused == 1)
    peer = door.came[0].peer
    door.server.socket.send_multipart([peer, messages.encode_reply(Kind.ASSIGNED, 0, Empty())])      # a push that is none
    door.server.push(peer, Kind.ASSIGNED, messages.AssignedPush("g", "m", 1, []))
    door.server.send(peer, messages.encode_reply(Kind.STATUS, 12345, Empty()))                       # answers nothing
    turn_until(lambda: pushes)
    assert [push.group for push in pushes] == ["g"] and results == []


def test_close_ends_every_call(caller: Caller, door: Door, loop: Loop) -> None:
    results = Results()
    caller.call(Kind.STATUS, Empty(), results)
    caller.close()
    assert isinstance(results[0][2], Unavailable)
    caller.close = lambda: None                      # type: ignore[method-assign]  # the fixture's

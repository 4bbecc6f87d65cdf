"""The client's requests: ids, routes, retries, deadlines. Pure: no socket, no clock, no chance of its own.

Owns every request that is not finished. A Call ends exactly once, by `then(call)`: with `reply` and `frames`, or with `error`.
(One that asked for several answers sees `then` with each of them; it is not `done` before the last.)
It is the one place where requests are retried: errors that say so, within the deadline, with backoff; a request that fell to
a moved or unknown partition waits for fresh metadata first; one whose connection broke (its fate is unknown) is sent again only
if it is `safe`: doing it twice is as good as once. (Batches of a producer are the exception: they keep an order between them,
so gq_client.batches asks for single tries and repeats them itself, by the same backoff.)

A shell does this, in any order, and never more than one thing at a time:

    session.submit(now, Call(...))          something to ask
    session.outbox                          (endpoint, frames, call) to send, emptied by the shell; unsent(now, call) if it can't
    session.dial                            endpoints to connect to, emptied by the shell; then up(now, endpoint), down(...)
    session.received(now, endpoint, frames) a message came
    session.due(now) at session.next_due    deadlines and retries

Pushes (id 0) go to `on_push(kind, body)`.

A daemon drops replies that its connection cannot queue. So no more than UNANSWERED_MAX requests, long polls aside, are under way on
one; the rest wait here, in order: what is asked of each of thousands of partitions at once comes whole.
"""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from gq_client.backoff import backoff
from gq_client.routing import METAD, Routes, To
from gq_proto import limits, messages
from gq_proto.errors import (
    Busy,
    Closed,
    GoQueueError,
    NotCoordinator,
    NotLeader,
    TimedOut,
    Unavailable,
    UnknownPartition,
    UnknownTopicId,
    error_of,
)
from gq_proto.messages import Body, Kind

NEVER: Final = float("inf")
CONNECT_S: Final = 5.0            # patience with a node that was never reached
NEXT_METAD_S: Final = 1.0         # then another metad of several is tried
MOVED: Final = (NotLeader, NotCoordinator, UnknownTopicId, UnknownPartition)
Message = tuple[str, list[Any], "Call"]


class Call:
    """One request. `deadline` is monotonic seconds. `safe`: may be repeated when nobody knows whether it was done.
    `single`: never repeated. `silent`: no reply will come. The envelope's topic id and partition are those of `to`. `tag` is the
    caller's."""

    __slots__ = ("attempts", "body", "counted", "deadline", "done", "endpoint", "epoch", "error", "frames", "id", "kind", "last",
                 "payload", "reply", "retry_at", "safe", "silent", "single", "tag", "then", "to", "unknown_fate")

    def __init__(self, kind: Kind, body: Body, to: To, deadline: float, then: Callable[["Call"], None] | None = None,
                 payload: Sequence[Any] = (), *, epoch: int = -1, safe: bool = True, single: bool = False, silent: bool = False,
                 tag: Any = None) -> None:
        self.kind, self.body, self.to, self.deadline, self.then, self.payload = kind, body, to, deadline, then, payload
        self.epoch, self.safe, self.single, self.silent, self.tag = epoch, safe, single, silent, tag
        self.id = 0
        self.attempts = 0
        self.endpoint = ""                       # where it was sent last, or waits to be
        self.retry_at = NEVER
        self.last: GoQueueError | None = None    # why the last try failed
        self.done = False
        self.counted = not silent and not getattr(body, "max_wait_ms", 0)    # among those under way
        self.unknown_fate = False                # it was sent, and nobody knows whether it was done
        self.reply: Any = None
        self.frames: Sequence[Any] = ()          # the reply's
        self.error: GoQueueError | None = None

    def result(self) -> tuple[Any, Sequence[Any]]:
        """(reply body, frames), or the error raised."""
        if self.error:
            raise self.error
        return self.reply, self.frames


class Session:
    """One line of a client: see the module's text. `routes` may be shared; `chance()` is in [0, 1). `now`: of the last input."""

    def __init__(self, routes: Routes, token: bytes = b"", chance: Callable[[], float] = lambda: 0.5) -> None:
        self.routes, self._token, self._chance = routes, token, chance
        self.now = 0.0
        self.outbox: list[Message] = []
        self.dial: list[str] = []
        self.next_due = NEVER
        self.on_push: Callable[[int, Any], None] = lambda kind, body: None
        self._ids = itertools.count(1)
        self._open: dict[Call, None] = {}              # every unfinished call, oldest first
        self._sent: dict[int, Call] = {}
        self._out: dict[str, int] = {}                 # by endpoint: counted ones of these
        self._queued: dict[str, deque[Call]] = {}      # by endpoint: wait until it has answered others, or for nothing any more
        self._up: set[str] = set()
        self._dialled: set[str] = set()
        self._homeless: list[Call] = []                # wait for news of the routes
        self._refresh: Call | None = None

    def __len__(self) -> int:
        """Unfinished calls."""
        return len(self._open)

    # -- what the shell brings -----------------------------------------------------------

    def submit(self, now: float, call: Call) -> Call:
        self.now = now
        self._open[call] = None
        self._remind(call.deadline)
        self._try(call)
        return call

    def cancel(self, call: Call) -> None:
        """Nobody waits any more: the reply will be dropped, `then` is not called. It may make room: look at the outbox."""
        if not call.done:
            call.done = True
            self._open.pop(call, None)
            self._pop_sent(call.id)

    def received(self, now: float, endpoint: str, frames: Sequence[Any]) -> None:
        """A message; what is none, or an answer to nothing, is dropped."""
        self.now = now
        head = frames[0]
        try:
            reply = messages.decode_reply(head if isinstance(head, bytes) else head.buffer)
            body: Any = None if reply.error else messages.reply_body(reply)
        except GoQueueError:
            return
        if not reply.id:
            self.on_push(reply.kind, body)
            return
        if getattr(body, "open", False):
            call = self._sent.get(reply.id)
            if call and call.then:
                call.reply, call.frames = body, frames[1:]
                call.then(call)
            return
        call = self._pop_sent(reply.id)
        if call is None:
            return
        if reply.error:
            self._failed(call, error_of(reply.error, reply.message))
            return
        call.reply, call.frames = body, frames[1:]
        if call.kind == Kind.METADATA:
            self.routes.merge(body)
        self._finish(call, None)

    def up(self, now: float, endpoint: str) -> None:
        """A connection stands: what waits for it goes out, in order."""
        self.now = now
        self._up.add(endpoint)
        for call in [call for call in self._open if call.endpoint == endpoint and not call.id]:
            self._send(call, endpoint)

    def down(self, now: float, endpoint: str) -> None:
        """A connection broke: nobody knows what became of what was sent over it."""
        self.now = now
        self._up.discard(endpoint)
        self._out.pop(endpoint, None)
        self._queued.pop(endpoint, None)         # they wait for the line again
        if endpoint in self.routes.bootstrap:
            self.routes.next_bootstrap()
        else:
            self.refresh(now)
        for call in [call for call in self._sent.values() if call.endpoint == endpoint]:
            if not call.done:
                self._sent.pop(call.id, None)
                error = Unavailable(f"the connection to {call.to} broke: what was asked may or may not have happened")
                self._failed(call, error, unknown_fate=True)

    def unsent(self, now: float, call: Call) -> None:
        """The shell could not send it: the queue to that peer is full or the connection is gone."""
        self.now = now
        if self._pop_sent(call.id):
            self._failed(call, Busy(f"the queue to {call.to} is full"))

    def due(self, now: float) -> None:
        """Deadlines that passed, retries whose time has come."""
        self.now = now
        if now < self.next_due:
            return
        for call in list(self._open):
            if call.done:
                continue
            if now >= call.deadline:
                self._expire(call)
            elif now >= call.retry_at:
                self._retry(call)
        self.next_due = min((min(call.deadline, call.retry_at) for call in self._open), default=NEVER)

    def refresh(self, now: float) -> Call:
        """Ask for news of the routes, once at a time."""
        if self._refresh is None or self._refresh.done:
            deadline = now + limits.REQUEST_DEADLINE_MS / 1000
            self._refresh = Call(Kind.METADATA, messages.Metadata(self.routes.version), METAD, deadline, self._refreshed)
            self.submit(now, self._refresh)
        return self._refresh

    @property
    def refreshing(self) -> bool:
        """News of the routes is on its way."""
        return self._refresh is not None and not self._refresh.done

    def reaches(self, to: To) -> bool:
        """A connection to it stands."""
        return self.routes.endpoint(to) in self._up

    def close(self, error: GoQueueError | None = None) -> None:
        """End every call."""
        for call in list(self._open):
            if not call.done:
                self._finish(call, error or Closed("the client was closed"))

    # -- one call: try, send, fail, try again, finish --------------------------------------------

    def _try(self, call: Call) -> None:
        endpoint = self.routes.endpoint(call.to)
        if endpoint is None:
            self._wait_for_news(call)
        elif endpoint in self._up:
            self._send(call, endpoint)
        else:
            self._wait_for_line(call, endpoint)

    def _wait_for_news(self, call: Call) -> None:
        call.id, call.endpoint = 0, ""
        self._homeless.append(call)
        self.refresh(self.now)

    def _wait_for_line(self, call: Call, endpoint: str) -> None:
        call.id, call.endpoint = 0, endpoint
        if call.to is METAD and not self.routes.version:
            call.deadline = min(call.deadline, self.now + CONNECT_S)
            self._remind(call.deadline)
        if call.to is METAD and len(self.routes.bootstrap) > 1:
            call.retry_at = self.now + NEXT_METAD_S
            self._remind(call.retry_at)
        if endpoint not in self._dialled:
            self._dialled.add(endpoint)
            self.dial.append(endpoint)

    def _send(self, call: Call, endpoint: str) -> None:
        """Now, or when there is room."""
        if not call.counted:
            self._send_now(call, endpoint)
        elif self._out.get(endpoint, 0) < limits.UNANSWERED_MAX and endpoint not in self._queued:
            self._out[endpoint] = self._out.get(endpoint, 0) + 1
            self._send_now(call, endpoint)
        else:
            call.id, call.endpoint, call.retry_at = 0, endpoint, NEVER
            self._queued.setdefault(endpoint, deque()).append(call)

    def _pop_sent(self, id: int) -> Call | None:
        """It is not under way any more: there is room for another."""
        call = self._sent.pop(id, None)
        if call and call.counted and call.endpoint in self._up:
            self._out[call.endpoint] -= 1
            if call.endpoint in self._queued:
                self._send_queued(call.endpoint)
        return call

    def _send_queued(self, endpoint: str) -> None:
        queued = self._queued[endpoint]
        while queued and self._out[endpoint] < limits.UNANSWERED_MAX:
            call = queued.popleft()
            if not call.done and not call.id and call.endpoint == endpoint:
                self._out[endpoint] += 1
                self._send_now(call, endpoint)
        if not queued:
            del self._queued[endpoint]

    def _send_now(self, call: Call, endpoint: str) -> None:
        call.id, call.endpoint, call.retry_at = next(self._ids), endpoint, NEVER
        call.attempts += 1
        to = call.to
        head = messages.encode_request(call.kind, call.id, call.body, deadline_ms=max(1, int((call.deadline - self.now) * 1000)),
                                       token=self._token, topic_id=to.topic_id, partition=to.partition, epoch=call.epoch)
        self.outbox.append((endpoint, [head, *call.payload], call))
        if call.silent:
            self._finish(call, None)
        else:
            self._sent[call.id] = call

    def _failed(self, call: Call, error: GoQueueError, unknown_fate: bool = False) -> None:
        """Finish the call, or see to the next try."""
        call.last, call.id, call.unknown_fate = error, 0, unknown_fate or isinstance(error, TimedOut)
        moved = isinstance(error, MOVED) and (error.retriable or call.to.role == "leader")
        if moved:
            self.refresh(self.now)
        if call.single or not (error.retriable or moved) or (call.unknown_fate and not call.safe):
            self._finish(call, error)
        elif moved:
            self._wait_for_news(call)
        else:
            self._later(call)

    def _later(self, call: Call) -> None:
        call.endpoint = ""
        call.retry_at = self.now + backoff(max(1, call.attempts), self._chance())
        self._remind(call.retry_at)

    def _retry(self, call: Call) -> None:
        call.retry_at = NEVER
        if call.to is METAD and call.endpoint:
            self.routes.next_bootstrap()         # that one did not even let us connect
        self._try(call)

    def _refreshed(self, refresh: Call) -> None:
        """News, or none to be had: look again at whoever waited for it, and at whoever waits for a line elsewhere now."""
        self._refresh = None
        waiting, self._homeless = self._homeless, []
        waiting += [call for call in self._open if call.endpoint and not call.id and call.to is not METAD
                    and self.routes.endpoint(call.to) != call.endpoint]
        for call in waiting:
            if call.done:
                continue
            if refresh.error:
                self._finish(call, refresh.error)
            elif call.to.role in ("leader", "delays") and not self.routes.knows(call.to):
                self._finish(call, call.last or UnknownTopicId(f"{call.to} is gone: the topic was deleted, or never made"))
            elif call.last or self.routes.endpoint(call.to) is None:
                call.attempts += not call.last
                call.last = call.last or Unavailable(f"{call.to} is not known yet: is it running?")
                self._later(call)
            else:
                self._try(call)

    def _expire(self, call: Call) -> None:
        if call.id:
            call.unknown_fate = True
            self._finish(call, TimedOut(f"no answer from {call.to} in time: what was asked may or may not have happened"))
        elif call.last:
            self._finish(call, call.last)
        elif call.endpoint in self._up:
            self._finish(call, Busy(f"{call.to} has not answered what was asked before: {limits.UNANSWERED_MAX} requests"))
        else:
            whom = f"{call.to} at {call.endpoint}" if call.endpoint else f"metad at {self.routes.endpoint(METAD)}"
            plain = "tcp://" in whom and not self.routes.bootstrap_key
            hint = " (one that wants API keys is reached with its CURVE key only)" if plain else ""
            self._finish(call, Unavailable(f"cannot reach {whom}: is the node up?{hint}"))

    def _finish(self, call: Call, error: GoQueueError | None) -> None:
        call.done, call.error = True, error
        if error:
            call.reply, call.frames = None, ()       # of an answer before the last
        self._open.pop(call, None)
        if call.id:
            self._pop_sent(call.id)
        if call.then:
            call.then(call)

    def _remind(self, when: float) -> None:
        if when < self.next_due:
            self.next_due = when

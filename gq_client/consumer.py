"""A consumer's decisions: membership, leases, hand-out, heartbeats, when to ask for more. Pure: no socket, clock or thread.

Owns the member's life (see STATES), the leases it holds and their order, and when what is due. Bytes are the Fetcher's, ops the
Settler's. The shells carry out `outbox` (Asks), bring answers, pushes and the time, and hand `take()`n messages to the app.

Invariants: one Poll is outstanding at most; every lease that may still be settled is named in each heartbeat; a lease that was
lost is not handed out any further, and of one that was revoked only what the app had started stays; what a newer lease holds too
is handed out from there alone.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from gq_client.consumer_ask import Ask
from gq_client.consumer_fetch import Fetcher
from gq_client.consumer_lease import Batch, HeldLease, Hub, Message
from gq_client.consumer_options import ConsumerOptions
from gq_client.consumer_settle import Settler, Ticket, progress_of
from gq_client.routing import To
from gq_proto import codec, limits
from gq_proto.errors import Closed, Fenced, GoQueueError, UnknownGroup, UnknownMember
from gq_proto.messages import (
    Assigned,
    AssignedPush,
    Body,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Kind,
    Leave,
    Op,
    Poll,
    PollReply,
    Settle1,
)

VIEW: Final = 128              # messages handed out between two looks at the sockets
LINGER_S: Final = 0.01         # an op waits this long for company
JOIN_ACKS: Final = 32          # so many acks are company enough
QUIET_FLUSHES: Final = 5       # after so many with nothing to send, the flush timer rests until the app wakes it
POLL_WAIT_MS: Final = 10_000
ANSWERS: Final = 64            # to one Poll, which asks for a number of messages however they come
BACKOFF_S: Final = (0.02, 0.05, 0.1, 0.25, 0.5)
PACE_S: Final = 1.0            # a member of a shared group asks for about so much work at a time
FIRST_ASK: Final = 64          # ... and for so much while its pace is not known
NEVER: Final = float("inf")

NEW, JOINING, MEMBER, LEAVING, LEFT = "new", "joining", "member", "leaving", "left"
STATES: Final = {
    NEW: {"start": JOINING, "leave": LEFT},
    JOINING: {"joined": MEMBER, "leave": LEAVING, "failed": LEFT},
    MEMBER: {"expired": JOINING, "leave": LEAVING, "failed": LEFT},
    LEAVING: {"joined": LEAVING, "leave": LEAVING, "left": LEFT, "failed": LEFT},
    LEFT: {"leave": LEFT, "left": LEFT, "failed": LEFT, "expired": LEFT, "joined": LEFT},
}


class ConsumerCore:
    """See the module's text. `hub` is what messages turn to; now is monotonic seconds throughout."""

    def __init__(self, options: ConsumerOptions, hub: Hub) -> None:
        self.options, self.hub = options, hub
        self.state = NEW
        self.member, self.generation, self.group_number = "", 0, 0
        self.assignment: list[Assigned] = []
        self.failed: GoQueueError | None = None
        self.paused = self.group_paused = False
        self.wanted = 0                    # messages the app waits for
        self.held: dict[int, HeldLease] = {}
        self.queue: deque[HeldLease] = deque()
        self.outbox: list[Ask] = []
        self.groups_partition = codec.partition_of(options.group.encode(), limits.GROUPS_PARTITIONS)
        self.settler = Settler(options.group, self.groups_partition, self.held, self.send, self._finished)
        self.fetcher = Fetcher(self, self.queue, options.read_ahead and options.mode != "shared")
        self.on_assigned: Callable[[list[Assigned]], None] = lambda assignment: None
        self.reachable: Callable[[], bool] = lambda: True    # False while no daemon of the cluster was ever reached
        self._polling = False
        self._poll_at = self._join_at = 0.0
        self._heartbeat_at = self._flush_at = NEVER
        self._heartbeat_s, self._session_s = limits.HEARTBEAT_MS / 1000, limits.SESSION_MS / 1000
        self._failures = self._quiet = 0
        self._pace: float | None = None
        self._served, self._served_at = 0, 0.0
        self._asked_at, self._away = NEVER, False      # when the app asked last; it does not come back

    # -- membership -------------------------------------------------------------------------

    def _become(self, event: str) -> None:
        self.state = STATES[self.state][event]

    def start(self, now: float) -> None:
        """Join."""
        self._become("start")
        self._join(now)

    def _join(self, now: float) -> None:
        self._join_at = NEVER
        o = self.options
        self._ask(Kind.JOIN, Join(o.group, self.member, list(o.topics), o.mode, o.start, o.session_ms, o.client), self._joined)

    def _joined(self, now: float, body: JoinReply | None, frames: Any, error: GoQueueError | None) -> None:
        if body is None:
            self.member = ""
            if self.state == LEAVING:
                self._become("left")
            elif error is not None and not self.reachable():
                self._fail(error)
            else:
                self._join_at = self._after_failure(now, error)
            return
        self._failures = 0
        self.member = self.settler.member = body.member
        self.settler.whole = True
        self.group_number, self._heartbeat_s = body.group_number, body.heartbeat_ms / 1000
        self._session_s = body.session_ms / 1000
        self._become("joined")
        self._heartbeat_at = now + self._heartbeat_s
        self._assigned(body.generation, body.assignment)
        if self.state == LEAVING:
            self._send_leave()
        self.pump(now)

    def _assigned(self, generation: int, assignment: list[Assigned]) -> None:
        changed = assignment != self.assignment
        self.generation, self.assignment = generation, assignment
        self.fetcher.keep({(a.topic_id, a.partition) for a in assignment})
        if changed:
            self.on_assigned(assignment)

    def _expired(self, now: float) -> None:
        """The session is over: what we held is others'. Join anew; one that leaves waits for the answer to that instead."""
        if self.state == LEAVING:
            return
        self.member = self.settler.member = ""
        for held in list(self.held.values()):
            self._lose(held)
        self._heartbeat_at, self._polling = NEVER, False
        self._become("expired")
        if self.state == JOINING:
            self._join(now)

    def _after_failure(self, now: float, error: GoQueueError | None) -> float:
        """When to try again; an error that no retry helps ends the consumer."""
        if error is not None and not error.retriable:
            self._fail(error)
            return NEVER
        self._failures += 1
        return now + BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1]

    def _fail(self, error: GoQueueError) -> None:
        self.failed = error
        self._become("failed")
        self.settler.give_up(error)

    def leave(self, now: float) -> None:
        """Settle what is decided, give the rest back, be gone: done when state is LEFT."""
        was = self.state
        for held in list(self.held.values()):
            if self.options.hold:
                self._give_back(held)       # groupd keeps hold leases; what nobody saw is not to wait for their deadline
            else:
                held.cut()
        self.queue.clear()
        self.settler.flush(now)
        self._become("leave")
        if was == MEMBER:
            self._send_leave()

    def _send_leave(self) -> None:
        self._ask(Kind.LEAVE, Leave(self.options.group, self.member), self._left)

    def _left(self, now: float, body: Body | None, frames: Any, error: GoQueueError | None) -> None:
        self._become("left")
        self.settler.give_up(error or Closed("the consumer was closed"))

    # -- what comes unasked or by time ----------------------------------------------------------

    def push(self, now: float, body: AssignedPush) -> None:
        """The target of our member changed."""
        if body.member != self.member:
            return
        self._assigned(body.generation, body.assignment)
        for number in body.revoked_leases:
            held = self.held.get(number)
            if held:
                self._give_back(held)
        if body.revoked_leases:
            self.settler.flush(now)
        self.pump(now)

    def due(self, now: float) -> None:
        """Do what is due by time."""
        if now >= self._join_at and self.state == JOINING:
            self._join(now)
        if now >= self._heartbeat_at:
            self._heartbeat(now)
        if now >= self._flush_at or now >= self.settler.retry_at:
            self.flush(now)
        self.pump(now)

    def next_deadline(self) -> float:
        return min(self._join_at, self._heartbeat_at, self._flush_at, self.settler.retry_at, self.fetcher.retry_at,
                   self._poll_at if self._may_poll() else NEVER)

    def _heartbeat(self, now: float) -> None:
        self._heartbeat_at = now + self._heartbeat_s
        if now - self._asked_at > self._session_s and not any(held.at_work for held in self.held.values()):
            self._away = True                # it works on nothing and asks for nothing: let others have what waits here
            for held in list(self.held.values()):
                self._give_back(held)
            self.settler.flush(now)
        body = Heartbeat(self.options.group, self.member, self.generation, list(self.held), progress_of(self.held, now))
        member = self.member
        self._ask(Kind.HEARTBEAT, body, lambda *a: self._heartbeat_answered(member, *a))

    def _heartbeat_answered(self, member: str, now: float, body: HeartbeatReply | None, frames: Any,
                            error: GoQueueError | None) -> None:
        if member != self.member or not member:
            return
        if isinstance(error, UnknownMember | UnknownGroup):
            self._expired(now)
        elif body is not None:
            self._assigned(body.generation, body.assignment)
            for number in body.lost:
                if number in self.held:
                    self._lose(self.held[number])
        self.pump(now)

    def flush(self, now: float) -> None:
        """Send the ops that wait; after a while without any, rest until a message wakes us."""
        self.hub.asleep = self._quiet >= QUIET_FLUSHES
        busy = self.settler.flush(now)
        self._quiet = 0 if busy else self._quiet + 1
        if busy:
            self.hub.asleep = False
        self._flush_at = NEVER if self.hub.asleep or not (self.held or self.settler.late) else now + LINGER_S
        if self._flush_at == NEVER:
            self.hub.asleep = True
        for held in [held for held in self.held.values() if held.done] if self.settler.idle else ():
            self._finished(held)

    def flush_due(self, now: float) -> None:
        """flush, if its time has come."""
        if now >= self._flush_at:
            self.flush(now)

    def awake(self, now: float) -> None:
        """A message was settled while the flush timer rested."""
        self.hub.asleep, self._quiet = False, 0
        self._flush_at = min(self._flush_at, now + LINGER_S)

    # -- leases ---------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Keep bytes and leases coming."""
        self.fetcher.pump(now)
        if now >= self._poll_at and self._may_poll():
            self._poll(now)

    def _may_poll(self) -> bool:
        """At most one lease waits while the app works on another."""
        if self._polling or self.state != MEMBER or not self._takes_leases:
            return False
        waiting = sum([held.count for held in self.queue if not held.batch.begun])
        return waiting < max(1, self.options.max_poll // 4)

    @property
    def _takes_leases(self) -> bool:
        return not (self.paused or self._away or (self.options.hold and not self.wanted))

    def _poll(self, now: float) -> None:
        if self._unsent() >= JOIN_ACKS:
            self.settler.flush(now)          # room for what is asked for; fewer acks wait for company
        self._polling = True
        o, member = self.options, self.member
        answers = 1 if o.hold else ANSWERS
        body = Poll(o.group, member, self.generation, self._ask_for(), POLL_WAIT_MS, o.visibility_ms, o.hold, [],
                    progress_of(self.held, now), answers, packed=True)
        self._ask(Kind.POLL, body, lambda *a: self._polled(member, *a), POLL_WAIT_MS / 1000 + 5)

    def _unsent(self) -> int:
        """Acks that wait."""
        return sum(len(held.acked) for held in self.held.values())

    def _ask_for(self) -> int:
        """Members of a shared group take what they can do soon, so that no one hoards what others could start; the clock of a hold
        lease runs from when it is granted, so no more than is waited for."""
        o = self.options
        if o.hold:
            return min(o.max_poll, self.wanted)
        if o.mode != "shared":
            return o.max_poll
        return max(1, min(o.max_poll, FIRST_ASK if self._pace is None else int(self._pace * PACE_S)))

    def _polled(self, member: str, now: float, body: PollReply | None, frames: Any, error: GoQueueError | None) -> None:
        if member != self.member or not member:
            return
        self._polling = body is not None and body.open
        if body is None:
            self._poll_failed(now, error)
            return
        self._failures = 0
        self.group_paused = body.paused
        batches: dict[tuple[int, int], Batch] = {}
        for lease in body.leases:
            batch = batches.setdefault((lease.topic_id, lease.partition), Batch())
            self._take_lease(HeldLease(lease, self.hub, self.groups_partition, self.group_number, batch), now)
        self.pump(now)

    def _take_lease(self, held: HeldLease, now: float) -> None:
        self.held[held.lease.lease] = held
        if self.state != MEMBER or not self._takes_leases:
            self._give_back(held)
            self.awake(now)
            return
        for older in self.queue:
            if older.overlaps(held):         # groupd took it back, or lost it with the journal's end, before we heard of it
                older.yield_to(held.open)
        self.queue.append(held)
        self.fetcher.add(held, now)

    def _poll_failed(self, now: float, error: GoQueueError | None) -> None:
        if isinstance(error, UnknownMember | UnknownGroup):
            self._expired(now)
        elif isinstance(error, Fenced):
            self._poll_at = now + BACKOFF_S[0]
            self._heartbeat(now)
        else:
            self._poll_at = self._after_failure(now, error)

    def take(self, now: float, most: int = VIEW) -> HeldLease | None:
        """A lease whose `view` (never empty) the app may walk next; None while there is nothing: set `wanted` to 0 when the app
        does not wait for it."""
        self.wanted, self._asked_at, self._away = 0, now, False
        self._note_pace(now)
        blocked = set()
        for held in list(self.queue):
            if held.key in blocked:
                continue
            if held.next_view(most, now):
                self._served, self._served_at = len(held.view), now
                self.awake(now)
                return held
            if held.unserved:
                blocked.add(held.key)
            else:
                self._served_up(held, now)
        self.wanted = most
        return None

    def _note_pace(self, now: float) -> None:
        """The app came back for more: how fast was it?"""
        if self._served:
            pace = self._served / max(now - self._served_at, 1e-6)
            self._pace = pace if self._pace is None else 0.7 * self._pace + 0.3 * pace
            self._served = 0

    def _served_up(self, held: HeldLease, now: float) -> None:
        """With the last of a batch its acks go: the poll that is out may wait for the room."""
        self.queue.remove(held)
        if held.done:
            self._finished(held)
        elif self._polling and self._unsent() >= JOIN_ACKS and not any(other.batch is held.batch for other in self.queue):
            self.flush(now)

    def _finished(self, held: HeldLease) -> None:
        self.held.pop(held.lease.lease, None)

    def pause(self, now: float, paused: bool) -> None:
        """While paused nothing is handed out; what was not started goes back at once."""
        self.paused = paused
        if paused:
            for held in list(self.held.values()):
                self._give_back(held)
            self.flush(now)
        self.pump(now)

    def give_back(self, held: HeldLease, now: float) -> None:
        """For the fetcher: its unstarted rest cannot be had in this epoch."""
        self._give_back(held)
        self.awake(now)

    def _give_back(self, held: HeldLease) -> None:
        rest = held.cut()
        if rest:
            held.ops.append(Settle1(Op.RELEASE, held.lease.lease, rest))
        if held in self.queue:
            self.queue.remove(held)

    def drop(self, held: HeldLease) -> None:
        """For the fetcher: its topic is gone."""
        self._lose(held)

    def _lose(self, held: HeldLease) -> None:
        self.held.pop(held.lease.lease, None)
        held.forget(held.cut())
        if held in self.queue:
            self.queue.remove(held)
        self.settler.lose(held)

    # -- plumbing -------------------------------------------------------------------------------

    def confirm(self, now: float, held: HeldLease, offset: int) -> Ticket:
        """Flush now; the ticket is resolved when the op on `offset` is durable."""
        ticket = self.settler.ticket(held, offset)
        if self.state in (LEFT, NEW):
            ticket.resolve(self.failed or Closed("the consumer was closed"))
        self.settler.flush(now)
        return ticket

    def send(self, ask: Ask) -> None:
        self.outbox.append(ask)

    def _ask(self, kind: Kind, body: Body, then: Any, timeout_s: float = 5.0) -> None:
        self.send(Ask(To.groups(self.groups_partition), kind, body, then, timeout_s, partition=self.groups_partition))


def ack_all(held: HeldLease, messages: list[Message]) -> None:
    """What auto and none do for the app: those it decided otherwise are left alone."""
    decided = held.decided
    held.acked.extend([m.offset for m in messages if m.offset not in decided] if decided else [m.offset for m in messages])


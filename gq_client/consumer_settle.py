"""Sending what the app decided: acks and the rest, batched, in order, until confirmed.

Owns the batches in flight and the tickets of those who wait for one. A batch whose fate is unknown is sent again: settling
twice is harmless. A lease that groupd no longer knows may still be settled by receipt ("a late ack counts while the message has
not been handed out again"); what comes too late even so is counted in `stale`.

Never knows sockets or threads: it asks through `send`.
"""

from collections.abc import Callable
from typing import Any, Final

from gq_client.consumer_ask import Ask
from gq_client.consumer_lease import HeldLease, intersect, pairs
from gq_client.routing import To
from gq_proto.errors import GoQueueError, StaleReceipt, UnknownMember
from gq_proto.messages import Kind, Progress, Receipt1, Settle, Settle1, SettleReceipts, SettleReply

IN_FLIGHT_MAX: Final = 16      # batches on their way
LATE_MAX: Final = 1_000        # leases that are lost while the app still works on some of their messages
RETRY_S: Final = 0.1
Item = tuple[HeldLease, Settle1]


class Ticket:
    """Somebody waits for the op on one message to be durable."""

    __slots__ = ("call", "done", "error", "held", "offset")

    def __init__(self, held: HeldLease, offset: int) -> None:
        self.held, self.offset = held, offset
        self.done = False
        self.error: GoQueueError | None = None
        self.call: Callable[[], None] = lambda: None

    def resolve(self, error: GoQueueError | None = None) -> None:
        if error is None and intersect([self.offset, 1], self.held.stale):
            error = StaleReceipt(f"{self.held.lease.topic}[{self.held.lease.partition}] offset {self.offset}: too late, "
                                 "it was handed out again")
        self.done, self.error = True, error
        self.call()


class Batch:
    """What one request settles, and who waits for it. `whole`: some of it without naming it."""

    __slots__ = ("items", "tickets", "whole")

    def __init__(self, items: list[Item], tickets: list[Ticket]) -> None:
        self.items, self.tickets, self.whole = items, tickets, False


class Settler:
    """`held` is the consumer's table of leases by number, shared with it."""

    def __init__(self, group: str, groups_partition: int, held: dict[int, HeldLease], send: Callable[[Ask], None],
                 finished: Callable[[HeldLease], None]) -> None:
        self.group, self.groups_partition = group, groups_partition
        self.member = ""
        self.whole = True              # acks of whole leases name no ranges, until the coordinator shows that it knows none
        self._held, self._send, self._finished = held, send, finished
        self.late: dict[tuple[int, int], HeldLease] = {}
        self.stale = 0
        self._flying: list[Batch] = []
        self._again: list[Item] = []
        self._tickets: list[Ticket] = []
        self._not_before = 0.0
        self._held_up = False          # a flush found the window full: there is more to take

    @property
    def idle(self) -> bool:
        return not (self._flying or self._again or self._tickets or self._held_up)

    @property
    def retry_at(self) -> float:
        """When to flush again what failed; infinity: nothing failed."""
        return self._not_before if self._again and not self._flying else float("inf")

    def ticket(self, held: HeldLease, offset: int) -> Ticket:
        """Flush after this; it is resolved once the op is durable."""
        ticket = Ticket(held, offset)
        self._tickets.append(ticket)
        return ticket

    def lose(self, held: HeldLease) -> None:
        """Its lease is gone; what the app has of it may still be settled by receipt."""
        held.lost = True
        if held.open or held.acked or held.ops:
            self.late[held.lease.lease, held.lease.random] = held
            while len(self.late) > LATE_MAX:
                del self.late[next(iter(self.late))]

    def flush(self, now: float) -> bool:
        """Send all that waits. True when there was something."""
        self._held_up = bool(self.member) and len(self._flying) >= IN_FLIGHT_MAX
        if not self.member or now < self._not_before or self._held_up:
            return bool(self._again or self._tickets)
        items, self._again = self._again, []
        for held in list(self._held.values()):
            if held.acked or held.ops:
                items += [(held, op) for op in held.take_ops()]
        receipts = [item for item in items if item[0].lost]
        receipts += self._take_late()
        items = [item for item in items if not item[0].lost]
        if not items and not receipts:
            self._attach_tickets()
            return False
        tickets, self._tickets = self._tickets, []
        if receipts:
            self._send_receipts(receipts, [] if items else tickets)
        if items:
            self._send_settle(items, tickets, now)
        return True

    def _take_late(self) -> list[Item]:
        out: list[Item] = []
        for key, held in list(self.late.items()):
            if held.acked or held.ops:
                out += [(held, op) for op in held.take_ops()]
            if not held.open:
                del self.late[key]
        return out

    def _attach_tickets(self) -> None:
        """Their ops are under way already, or answered."""
        tickets, self._tickets = self._tickets, []
        if self._flying:
            self._flying[-1].tickets += tickets
            return
        for ticket in tickets:
            ticket.resolve()

    def _send_settle(self, items: list[Item], tickets: list[Ticket], now: float) -> None:
        batch = Batch(items, tickets)
        self._flying.append(batch)
        ops = [op if self.whole or not op.whole else _named(held, op) for held, op in items]
        batch.whole = any(op.whole for op in ops)
        body = Settle(self.group, self.member, ops, progress_of(self._held, now))
        self._ask(Kind.SETTLE, body, batch)

    def _send_receipts(self, items: list[Item], tickets: list[Ticket]) -> None:
        batch = Batch([(held, Settle1(op.op, op.lease, [offset, 1], op.arg_ms, op.reason))
                       for held, op in items for low, high in pairs(held.named(op)) for offset in range(low, high)], tickets)
        self._flying.append(batch)
        body = SettleReceipts([_receipt(held, op) for held, op in batch.items])
        self._ask(Kind.SETTLE_RECEIPTS, body, batch)

    def _ask(self, kind: Kind, body: Settle | SettleReceipts, batch: Batch) -> None:
        self._send(Ask(To.groups(self.groups_partition), kind, body, lambda *a: self._settled(batch, *a),
                       partition=self.groups_partition))

    def _settled(self, batch: Batch, now: float, body: SettleReply | None, frames: Any, error: GoQueueError | None) -> None:
        self._flying.remove(batch)
        if error is not None and (error.retriable or isinstance(error, UnknownMember)):
            self._resend(batch, error, now)
            return
        if batch.whole and isinstance(body, SettleReply) and not body.whole:
            self.whole = False         # an older groupd took over: it acked nothing
            self._again += batch.items
            self._tickets += batch.tickets
            self.flush(now)
            return
        results = body.settled if body else []
        for (held, op), result in zip(batch.items, results, strict=False):
            if result.error:
                refused = result.stale or held.named(op)
                held.stale += refused
                self.stale += sum(refused[1::2])
        for ticket in batch.tickets:
            ticket.resolve(error)
        for held in {id(held): held for held, _ in batch.items}.values():
            if held.done:
                self._finished(held)
        if self._tickets or self._held_up:
            self.flush(now)

    def _resend(self, batch: Batch, error: GoQueueError, now: float) -> None:
        if isinstance(error, UnknownMember):
            for held, _ in batch.items:
                held.lost = True
        else:
            self._not_before = now + RETRY_S
        self._again += batch.items
        self._tickets += batch.tickets
        if isinstance(error, UnknownMember):
            self.flush(now)

    def give_up(self, error: GoQueueError) -> None:
        """The consumer ends: nobody waits any longer."""
        for ticket in [t for batch in self._flying for t in batch.tickets] + self._tickets:
            ticket.resolve(error)
        self._tickets = []


def progress_of(held: dict[int, HeldLease], now: float) -> list[Progress]:
    """How far the app has started in each lease where that changed since it was last said. Where all is settled nobody asks."""
    out = []
    for number, lease in list(held.items()):
        if not lease.open:
            continue
        started = lease.started()
        if started != lease.reported:
            lease.reported = started
            out.append(Progress(number, started, max(0, int((now - lease.at) * 1000))))
    return out


def _named(held: HeldLease, op: Settle1) -> Settle1:
    """An ack of the whole lease for a coordinator that knows none."""
    return Settle1(op.op, op.lease, held.named(op), op.arg_ms, op.reason)


def _receipt(held: HeldLease, op: Settle1) -> Receipt1:
    lease = held.lease
    return Receipt1(op.op, lease.topic, lease.partition, op.ranges[0], lease.delivery, held.group_number, lease.lease,
                    lease.random, op.arg_ms, op.reason)

"""What subscribers of this gateway were handed and have not settled: so that a receipt that comes back here goes to the consumer
that holds its lease, where acks become ranges, instead of to the coordinator one by one. Pure.

Soft: a receipt that is not found here (another gateway's, one of before a restart, one of Poll) is settled by its text. Bounded by
what is in flight: leases are forgotten when they are done with or lost, at the latest with their subscriber.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gq_client.consumer_lease import HeldLease, Message, intersect

NONCE_CHARS: Final = 24
SWEEP_FROM: Final = 64          # leases of one subscriber; beyond twice what was left last time it looks which are over


class Sent:
    """One lease. `open`: its messages that were sent and are not settled, as far as is known here."""

    __slots__ = ("handed", "held", "open", "prefix", "suffix")

    def __init__(self, handed: "Handed", held: HeldLease, receipt: str) -> None:
        self.handed, self.held = handed, held
        self.open: set[int] = set()
        self.prefix = f"{held.lease.topic}:{held.lease.partition}:"
        self.suffix = f":{held.lease.delivery}:{receipt[-NONCE_CHARS:]}"

    def receipt(self, offset: int) -> str:
        return f"{self.prefix}{offset}{self.suffix}"

    def settled(self, offset: int) -> None:
        self.open.discard(offset)
        self.handed.on_room()

    def offset(self, receipt: str) -> int:
        """Of a message of this lease while its consumer holds it; -1 when the receipt names none."""
        if not (receipt.startswith(self.prefix) and receipt.endswith(self.suffix)) or self.over:
            return -1
        digits = receipt[len(self.prefix):-len(self.suffix)]
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or (digits[0] == "0" and len(digits) > 1):
            return -1
        offset = int(digits)
        ranges = self.held.ranges
        if len(ranges) == 2:
            return offset if ranges[0] <= offset < ranges[0] + ranges[1] else -1
        return offset if intersect([offset, 1], sorted_pairs(ranges)) else -1

    @property
    def over(self) -> bool:
        """Its consumer has no more to do with it."""
        return self.held.lost or self.held.done


class Leases:
    """Of all subscribers, by the nonce of their receipts."""

    def __init__(self) -> None:
        self.by_nonce: dict[str, Sent] = {}

    def find(self, receipt: str) -> tuple[Sent, int] | None:
        """The lease that it names, if that was handed out here, and the offset."""
        sent = self.by_nonce.get(receipt[-NONCE_CHARS:])
        if sent is None:
            return None
        offset = sent.offset(receipt)
        return (sent, offset) if offset >= 0 else None


class Handed:
    """One subscriber's part of Leases. `in_flight`: messages sent and not settled, as far as is known here."""

    def __init__(self, leases: Leases) -> None:
        self.on_room: Callable[[], None] = lambda: None         # called when one was settled
        self._all = leases.by_nonce
        self._mine: dict[HeldLease, str] = {}
        self._sweep_at = SWEEP_FROM
        self._last: Sent | None = None

    def receipt(self, message: Message) -> str:
        """Of a message that is about to be sent: from now on it is in flight."""
        sent = self._last
        if sent is None or sent.held is not message.owner:
            sent = self._last = self._sent(message.owner, message)
        sent.open.add(message.offset)
        return f"{sent.prefix}{message.offset}{sent.suffix}"

    def _sent(self, held: HeldLease, message: Message) -> Sent:
        nonce = self._mine.get(held)
        if nonce is None:
            if len(self._mine) >= self._sweep_at:
                self.sweep()
            receipt = message.receipt
            nonce = self._mine[held] = receipt[-NONCE_CHARS:]
            self._all[nonce] = Sent(self, held, receipt)
        return self._all[nonce]

    def in_flight(self) -> int:
        return sum([len(self._all[nonce].open) for nonce in self._mine.values()])

    def sweep(self) -> None:
        """Forget the leases that are over."""
        for held, nonce in list(self._mine.items()):
            if self._all[nonce].over:
                del self._mine[held], self._all[nonce]
        self._last = None
        self._sweep_at = max(SWEEP_FROM, 2 * len(self._mine))

    def clear(self) -> None:
        """The subscriber is gone."""
        for nonce in self._mine.values():
            del self._all[nonce]
        self._mine.clear()
        self._last = None


def sorted_pairs(ranges: Sequence[int]) -> list[int]:
    """Flattened ranges, ascending."""
    pairs = sorted(zip(ranges[::2], ranges[1::2], strict=True))
    return [number for pair in pairs for number in pair]

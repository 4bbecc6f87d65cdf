"""Deliberate bugs, planted in the real code while an episode runs. Each must be found by the checkers; see test_sim."""

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from gq_groupd import entries as e
from gq_groupd.burial import Burial
from gq_groupd.core import Core
from gq_groupd.desk import Desk
from gq_groupd.lease import Lease
from gq_groupd.loading import Loading
from gq_groupd.part import Part
from gq_groupd.retries import Attempts
from gq_groupd.settling import Settling
from gq_proto import codec
from gq_proto.record import HEADER, HEADER_SIZE
from tests.sim.disk import FakeDisk


def apply_skipped() -> Any:
    """At a restart acks are read and not applied."""
    replay = Core.replay

    def bad(self: Core, offset: int, key: bytes, value: bytes) -> None:
        if not isinstance(e.decode(value), e.Acked):
            replay(self, offset, key, value)
    return patch.object(Core, "replay", bad)


def stale_accepted() -> Any:
    """Whoever ever held a message may ack it."""
    ack = Settling._ack

    def bad(self: Settling, lease: Lease, messages: Any, ranges: Any) -> Any:
        left = ack(self, lease, messages, ranges)
        if left:
            self._desk.commit(lease.part.group, e.Acked(lease.part.group.number, *lease.part.key, lease.id, e_ranges(left)))
        return type(left)()
    return patch.object(Settling, "_ack", bad)


def e_ranges(bitmap: Any) -> list[int]:
    return [number for offset in bitmap for number in (offset, 1)]


def epoch_unchecked() -> Any:
    """A new leader epoch is taken over without asking where the last one ended."""
    meet = Loading._meet

    def bad(self: Loading, part: Part, epoch: int, log_start: int, end: int) -> bool:
        if epoch > part.epoch >= 0:
            self._desk.commit(part.group, e.EpochMoved(part.group.number, *part.key, epoch, -1))
            part.end = max(part.acked.below, end)
        return meet(self, part, epoch, log_start, end)
    return patch.object(Loading, "_meet", bad)


def crc_unchecked() -> Any:
    """What a power loss leaves of a file's tail is believed: the bytes are garbled and their CRCs fit."""
    init = FakeDisk.__init__

    def bad(self: FakeDisk, rng: Any) -> None:
        init(self, rng)
        self.garble = lambda tail: forged(tail, rng)
    return patch.object(FakeDisk, "__init__", bad)


def forged(tail: bytes, rng: Any) -> bytes:
    """Publishers' records in it keep their headers and get other values, and CRCs to match."""
    data, at = bytearray(tail), tail.find(b"GQ\x01")
    while 0 <= at <= len(data) - HEADER_SIZE:
        head = HEADER.unpack_from(data, at)
        key, value, headers = head[8], head[9], head[10]
        start = at + HEADER_SIZE + (0 if key == 0xFFFF else key)
        end = start + (0 if value == 0xFFFFFFFF else value)
        if end + headers > len(data) or value == 0xFFFFFFFF or not data[start:start + 2].isdigit():
            at = tail.find(b"GQ\x01", at + 1)
            continue
        data[start:start + 2] = b"9%d" % rng.randrange(10)
        body = bytes(data[at:end + headers])
        crc = codec.crc32c(body[24:])
        for part in (body[:4], body[16:24], body[8:16]):
            crc = codec.crc32c(part, crc)
        struct.pack_into(">I", data, at + 4, crc)
        at = end + headers if data[end + headers:end + headers + 3] == b"GQ\x01" else tail.find(b"GQ\x01", at + 1)
    return bytes(data)


def expiry_uncounted() -> Any:
    """Messages that retention took are forgotten without a word."""
    return patch.object(Part, "lost_below", lambda self, log_start: 0)


def answered_early() -> Any:
    """Acks are confirmed before they are durable."""
    return patch.object(Desk, "pending", lambda self: 0)


def copied_blindly() -> Any:
    """A dead letter is copied without a look whether an earlier try got that far."""
    copy = Burial._copy

    def bad(self: Burial, part: Part) -> None:
        part.dead.scan = False
        copy(self, part)
    return patch.object(Burial, "_copy", bad)


def leased_twice() -> Any:
    """What is in a lease is handed out again when the lanes pass it anew."""
    def usable(self: Part, number: int, anchor: int, most: int) -> tuple[list[int], int]:
        lane = self.lanes.lanes[number]
        ranges, count = lane.peek(most)
        lane.pass_to(ranges[-2] + ranges[-1])
        return ranges, count
    return patch.object(Part, "_usable", usable)


def attempts_forgotten() -> Any:
    """Some messages start again after their second failure."""
    of = Attempts.of
    return patch.object(Attempts, "of", lambda self, offset: 0 if offset % 3 == 0 and of(self, offset) >= 2 else of(self, offset))


def replay_skips() -> Any:
    """What was not served yet is forgotten when something ahead of it is to be replayed."""
    def rescan(self: Part, low: int) -> None:
        original(self, low)
        for lane in self.lanes.lanes:
            lane.cut(0)
            lane.upto = self.scanned
    original = Part.rescan
    return patch.object(Part, "rescan", rescan)


class Canary(NamedTuple):
    """The bug, and the troubles (see episode) that bring it to light soonest."""

    plant: Callable[[], Any]
    only: tuple[str, ...]
    fsync: str = "interval"


CANARIES: dict[str, Canary] = {
    "answered-early": Canary(answered_early, ("restart_logd", "restart_groupd")),
    "apply-skipped": Canary(apply_skipped, ("restart_groupd",)),
    "attempts-forgotten": Canary(attempts_forgotten, ("consumer_trouble",)),
    "copied-blindly": Canary(copied_blindly, ("restart_logd", "restart_logd", "poison")),
    "crc-unchecked": Canary(crc_unchecked, ("power_loss",)),
    "epoch-unchecked": Canary(epoch_unchecked, ("power_loss",)),
    "expiry-uncounted": Canary(expiry_uncounted, ("purge",)),
    "leased-twice": Canary(leased_twice, ("mark",)),
    "replay-skips": Canary(replay_skips, ("mark",)),
    "stale-accepted": Canary(stale_accepted, ("consumer_trouble",)),
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The bug is there while the context lasts."""
    with ExitStack() as stack:
        if name:
            stack.enter_context(CANARIES[name].plant())
        yield

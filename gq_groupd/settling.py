"""What becomes of leased messages: acks and the other ops, clocks that run out, members that are lost.

Decides; every change is an entry. A failure is counted (`Failed`): nack, time out, lost while started, reject. Given back is not
(`Returned`): release, a clean leave, unstarted when the member is lost or the partition moves.
"""

from collections.abc import Sequence
from functools import partial

from pyroaring import BitMap64

from gq_groupd import entries as e
from gq_groupd.desk import Desk
from gq_groupd.entries import How
from gq_groupd.group import Group, Member
from gq_groupd.lease import Lease
from gq_groupd.part import Part
from gq_groupd.retries import backoff_ms
from gq_proto import codec, limits, names
from gq_proto.bitmaps import Told, bitmap_of, clipped, ranges_of, tell
from gq_proto.errors import BadRequest, StaleReceipt
from gq_proto.messages import Op, Progress, Receipt1, Settle1, SettleResult

RANGES_MAX = 100_000        # in one item
REASON_MAX = 1_024          # characters
_STALE = "handed out again, settled, or void: the message is not this lease's any more"


class Settling:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # -- requests -----------------------------------------------------------------------------

    def settle(self, group: Group, member: str, items: list[Settle1]) -> list[SettleResult]:
        """One result an item, in order."""
        return [self._whole(self._lease_of(group, member, item.lease), item.whole) if item.whole and item.op == Op.ACK else
                self._item(self._lease_of(group, member, item.lease), item.op, item.ranges, item.arg_ms, item.reason)
                for item in items]

    def receipt(self, receipt: Receipt1) -> SettleResult:
        """The same for one message named by its receipt."""
        lease = self._desk.state.leases.get(receipt.lease)
        if lease and (receipt.random, receipt.delivery, receipt.topic, receipt.partition, receipt.group_number) != (
                lease.random, lease.delivery, lease.part.topic, lease.part.partition, lease.part.group.number):
            lease = None
        return self._item(lease, receipt.op, [receipt.offset, 1], receipt.arg_ms, receipt.reason)

    def progress(self, group: Group, member: str, items: list[Progress], journal: bool = False) -> None:
        """How far the app has started; journal: also over a restart."""
        now = self._desk.now_ms
        for item in items:
            lease = self._lease_of(group, member, item.lease)
            if lease is None or item.started <= lease.started:
                continue
            started = min(item.started, lease.total)
            lease.progress(started, now - min(max(item.ago_ms, 0), lease.visibility_ms) + lease.visibility_ms)
            if journal and lease.open:
                self._desk.commit(group, e.Started(*_of(lease.part), lease.id, started))
            self.arm(lease)
            self._desk.touch(lease.part)

    def _lease_of(self, group: Group, member: str, id: int) -> Lease | None:
        lease = self._desk.state.leases.get(id)
        return lease if lease and lease.part.group is group and lease.member == member else None

    def _whole(self, lease: Lease | None, random: int) -> SettleResult:
        """Every message of it is acked."""
        if lease is None or lease.random != random:
            return SettleResult(StaleReceipt.code, _STALE)
        messages = lease.open if len(lease.open) == lease.total else bitmap_of(lease.ranges)
        left = self._ack(lease, messages, lease.ranges if lease.ascends else None)
        self._desk.touch(lease.part)
        return SettleResult(StaleReceipt.code, _STALE, ranges_of(left)) if left else SettleResult()

    def _item(self, lease: Lease | None, op: int, ranges: list[int], arg_ms: int, reason: str) -> SettleResult:
        _check(ranges)
        if lease is None:
            return SettleResult(StaleReceipt.code, _STALE, ranges)
        messages, outside = clipped(ranges, lease.low, lease.high)
        if op == Op.ACK:
            left = self._ack(lease, messages, ranges if not outside and codec.ranges_ascend(ranges) else None)
        elif op == Op.NACK:
            left = self._nack(lease, messages, arg_ms, reason)
        elif op == Op.REJECT:
            left = self._reject(lease, messages, reason)
        elif op == Op.EXTEND:
            left = self._extend(lease, messages, arg_ms)
        elif op == Op.RELEASE:
            left = self._release(lease, messages)
        else:
            raise BadRequest(f"op {op} is unknown: use 0 ack, 1 nack, 2 reject, 3 extend, 4 release")
        self._desk.touch(lease.part)
        stale = ranges_of(left) + outside
        return SettleResult(StaleReceipt.code, _STALE, stale) if stale else SettleResult()

    # -- ops; each answers with what was refused --------------------------------------------------

    def _ack(self, lease: Lease, messages: BitMap64, ranges: Sequence[int] | None) -> BitMap64:
        """ranges: those of all of them, where they are at hand and ascend."""
        if messages is lease.open:
            good, left = messages, BitMap64()
        else:
            good = messages & lease.open
            left = messages - good
        if left:
            good |= left & lease.lapsed
            left = left - good - lease.acked
        if good:
            if len(good) < len(lease.open):
                lease.progress(lease.reach_of(good), self._desk.now_ms + lease.visibility_ms)
            if lease.anchor < 0:
                self._desk.ages.acked(lease.part.group.name, lease.part.topic, lease.part.key, good, self._desk.now_ms)
            if len(good) < len(messages):
                ranges = None
            self.ack(lease.part, lease.id, good, How.ACKED, lease.anchor, ranges, lease.told if ranges is lease.ranges else None)
            self.arm(lease)
        return left

    def ack(self, part: Part, lease: int, messages: BitMap64, how: How, anchor: int,
            ranges: Sequence[int] | None = None, told: Told | None = None) -> None:
        """Done with them; a ready record with its last message. ranges, told: theirs, where they are at hand."""
        commit, group = self._desk.commit, part.group
        if ranges is None:
            ranges = ranges_of(messages)
        if told is None:
            told = tell(ranges)
        part.lately = ranges, told, messages
        commit(group, e.Acked(*_of(part), lease, told, how, anchor))
        if anchor >= 0 and part.anchors.finished(anchor):
            commit(group, e.Acked(*_of(part), 0, [anchor, 1], How.ANCHOR))

    def _nack(self, lease: Lease, messages: BitMap64, delay_ms: int, reason: str) -> BitMap64:
        good = messages & lease.open
        if good:
            delay = min(delay_ms, limits.DELAY_MS_MAX) if delay_ms >= 0 else -1
            self._fail(lease, good, How.NACKED, delay, reason)
        return messages - good - lease.lapsed - lease.acked

    def _reject(self, lease: Lease, messages: BitMap64, reason: str) -> BitMap64:
        good = messages & (lease.open | lease.lapsed)
        if good:
            self._fail(lease, good, How.REJECTED, -1, reason)
        dead = messages & lease.part.dead.all
        return messages - good - lease.acked - dead

    def _release(self, lease: Lease, messages: BitMap64) -> BitMap64:
        good = messages & lease.open
        self.give_back(lease, good)
        return messages - good - lease.lapsed - lease.acked

    def _extend(self, lease: Lease, messages: BitMap64, for_ms: int) -> BitMap64:
        good = messages & lease.open
        if good:
            for_ms = min(for_ms, limits.VISIBILITY_MS_MAX) if for_ms >= 0 else lease.visibility_ms
            lease.progress(lease.reach_of(good), self._desk.now_ms + lease.visibility_ms)
            lease.extend(good, self._desk.now_ms + for_ms)
            if lease.hold:
                until = self._desk.wall_us + for_ms * 1000
                self._desk.commit(lease.part.group, e.Extended(*_of(lease.part), lease.id, ranges_of(good), until, for_ms))
            self.arm(lease)
        return messages - good

    # -- failures and returns -----------------------------------------------------------------------

    def _fail(self, lease: Lease, messages: BitMap64, how: How, delay_ms: int = -1, reason: str = "") -> None:
        """The delivery failed; delay_ms -1: as the rules say."""
        part, count = lease.part, lease.delivery
        config = self._desk.config(part)
        buries = config.dlq_enabled and not names.is_dlq(part.topic) and not names.is_internal(part.topic)
        spent = count >= config.max_retries or how == How.REJECTED
        if delay_ms < 0:
            delay_ms = config.backoff_max_ms if spent else backoff_ms(config, count) if how == How.NACKED else 0
        self._desk.commit(part.group, e.Failed(*_of(part), lease.id, ranges_of(messages), count, delay_ms, self._desk.wall_us,
                                               how, buries and spent, reason[:REASON_MAX] or _WHY[how]))
        self._desk.touch(part)
        self._desk.wake(part.group)

    def give_back(self, lease: Lease, messages: BitMap64) -> None:
        """Uncounted."""
        if messages:
            self._desk.commit(lease.part.group, e.Returned(*_of(lease.part), lease.id, ranges_of(messages)))
            self._desk.touch(lease.part)
            self._desk.wake(lease.part.group)

    def lose(self, member: Member) -> None:
        """Its session ran out. What it had started failed, the message it most likely died on included: of its oldest lease the
        first that is not settled. The rest returns. Hold leases stay."""
        oldest = True
        for lease in sorted(member.leases.values(), key=lambda lease: lease.id):
            if lease.hold or not lease.open:
                continue
            started = max(lease.started, lease.first_open() + 1) if oldest else lease.started
            oldest = False
            failed = lease.first(started) & lease.open
            rest = lease.open - failed
            if failed:
                self._fail(lease, failed, How.LOST)
            self.give_back(lease, rest)

    def leave(self, member: Member) -> None:
        """It says good-bye: everything returns, hold leases stay."""
        for lease in list(member.leases.values()):
            if not lease.hold:
                self.give_back(lease, lease.open.copy())

    # -- clocks -----------------------------------------------------------------------------------------

    def arm(self, lease: Lease) -> None:
        """See to it that due() comes when its next message is."""
        due = lease.deadline_ms()
        if due is not None and (lease.armed_ms is None or due < lease.armed_ms):
            lease.armed_ms = due
            self._desk.at(due, partial(self._lease_due, lease.id))

    def _lease_due(self, id: int) -> None:
        lease = self._desk.state.leases.get(id)
        if lease is None or not lease.open:
            return
        lease.armed_ms = None
        due = lease.take_due(self._desk.now_ms)
        if due:
            self._fail(lease, due, How.TIMED_OUT)
            # The app is stuck in it: whoever is not gets what it has not started.
            self.give_back(lease, lease.unstarted())
        self.arm(lease)

    def restart(self, lease: Lease) -> None:
        """After replay: its clock is known now, what ran before is not."""
        now = self._desk.now_ms
        lease.named_ms = now
        if lease.hold:
            left = max(0, lease.deadline_us - self._desk.wall_us) // 1000
            lease.clocks = [(lease.total, now + min(left, lease.longest_ms))]
        elif lease.started:
            lease.clocks = [(lease.started, now + lease.visibility_ms)]
        self.arm(lease)


_WHY = {How.NACKED: "nacked", How.TIMED_OUT: "visibility timeout", How.LOST: "its consumer was lost", How.REJECTED: "rejected"}


def _of(part: Part) -> tuple[int, int, int]:
    return part.group.number, part.topic_id, part.partition


def _check(ranges: list[int]) -> None:
    if len(ranges) <= 2 * RANGES_MAX and codec.ranges_ascend(ranges) and (not ranges or ranges[-2] < 2**62):
        return
    if len(ranges) % 2 or len(ranges) > 2 * RANGES_MAX:
        raise BadRequest(f"ranges are [low, count, ...], {RANGES_MAX} at most: {len(ranges)} numbers came")
    if ranges and (min(ranges[::2]) < 0 or min(ranges[1::2]) < 1 or max(ranges) >= 2**62):
        raise BadRequest("an offset below 0, a count below 1 or a number out of range in ranges")



"""Dead letters on their way: drives tables.DEAD for each part. See `dead` for why there is exactly one copy."""

from functools import partial

from pyroaring import BitMap64

from gq_groupd import entries as e
from gq_groupd.desk import Desk
from gq_groupd.effects import CopyDeadLetters, DeadLetterEnd, DeadLettersCopied, PrepareDeadLetters
from gq_groupd.entries import How
from gq_groupd.part import Part
from gq_groupd.settling import Settling
from gq_proto.bitmaps import bitmap_of
from gq_proto.errors import GoQueueError, NotFound, OffsetOutOfRange

REST_MS = 1_000         # after a step failed


class Burial:
    def __init__(self, desk: Desk, settling: Settling) -> None:
        self._desk, self._settling = desk, settling
        self._asked: dict[PrepareDeadLetters | CopyDeadLetters, list[Part]] = {}
        self._intending: list[Part] = []

    def tend(self, part: Part) -> None:
        """Begin with what is dead, or go on after a restart."""
        dead = part.dead
        resting = dead.stage not in ("idle", "resting") or dead.rest_until_ms > self._desk.now_ms
        if not dead.all or resting or part.stage != "ready":
            return
        if dead.pledged():
            dead.step("resume")
            self._copy(part)
        else:
            dead.step("find")
            self._ask(part, PrepareDeadLetters(part.topic_id, part.topic, part.partition))

    def _ask(self, part: Part, ask: PrepareDeadLetters | CopyDeadLetters) -> None:
        """Groups that ask the same at the same time share the answer."""
        waiting = self._asked.setdefault(ask, [])
        waiting.append(part)
        if len(waiting) == 1:
            self._desk.emit(ask)

    def _copy(self, part: Part) -> None:
        dead = part.dead
        assert dead.intent is not None
        self._ask(part, CopyDeadLetters(part.group.name, part.topic_id, part.topic, part.partition, dead.intent.dlq_topic_id,
                                        dead.intent.dlq_end, dead.scan, dead.pledged()))

    def answer(self, ask: PrepareDeadLetters | CopyDeadLetters, reply: DeadLetterEnd | DeadLettersCopied | None,
               error: GoQueueError | None) -> None:
        for part in self._asked.pop(ask, ()):
            if not self._desk.alive(part):
                continue
            if error or reply is None:
                self._failed(part, error)
            elif isinstance(reply, DeadLetterEnd):
                self._prepared(part, reply)
            else:
                self._copied(part, reply)
            self._desk.touch(part)

    def _failed(self, part: Part, error: GoQueueError | None) -> None:
        dead = part.dead
        if dead.stage == "copying" and isinstance(error, NotFound | OffsetOutOfRange):
            # The DLQ is gone, or a power loss cut it back to before the intent's end: what was copied since is gone too.
            dead.step("lose topic")
            dead.intent = None
        else:
            dead.step("fail")
            dead.scan = True
        dead.rest_until_ms = self._desk.now_ms + REST_MS
        self._desk.at(dead.rest_until_ms, partial(self._desk.touch, part))

    def _prepared(self, part: Part, end: DeadLetterEnd) -> None:
        dead = part.dead
        ranges = dead.next_batch()
        if not ranges:
            dead.step("fail")
            return
        dead.step("prepare")
        self._desk.commit(part.group, e.Intent(part.group.number, *part.key, ranges, end.dlq_topic_id, end.end_offset))
        dead.ticket = self._desk.ticket + 1
        self._intending.append(part)

    def durable(self, ticket: int) -> None:
        """Intents up to there are on record: copy."""
        for part in [part for part in self._intending if part.dead.ticket <= ticket]:
            self._intending.remove(part)
            if not self._desk.alive(part):
                continue
            part.dead.step("be durable")
            part.dead.scan = False
            if part.dead.pledged():
                self._copy(part)
            else:
                part.dead.step("finish")
                self._desk.touch(part)

    def _copied(self, part: Part, done: DeadLettersCopied) -> None:
        part.dead.step("finish")
        part.dead.scan = True
        self._done(part, bitmap_of(done.copied) & part.dead.all, How.DEAD_LETTERED)
        self._done(part, bitmap_of(done.gone) & part.dead.all, How.EXPIRED)

    def _done(self, part: Part, messages: BitMap64, how: How) -> None:
        anchored = messages & part.anchors.all() if part.anchors.open else BitMap64()
        if messages - anchored:
            self._settling.ack(part, 0, messages - anchored, how, -1)
        for ready, offsets in list(part.anchors.open.items()):
            if offsets & anchored:
                self._settling.ack(part, 0, offsets & anchored, how, ready)

"""The journal of one `__groups` partition: taking it over, reading it from its start, appending to it.

Owns the idempotent producer of the partition and the batches in flight. Taking over goes: read what is there (the last batch's
header names the producer), have metad give that producer its next epoch, append one record in the new epoch, a record with a null
key that says nothing. From there on an older groupd that still lives is fenced, and what it wrote before is in the log before that
record: read on up to it, and the state is whole.

A record that `replay` cannot read (msgspec.DecodeError, ValueError) ends it too: Corrupt, which names the record.

Never retries an append: a refused one, or one whose fate is unknown, ends this journal (`failed`); its owner drops the state it
fed and takes over anew. Invariant: batches are confirmed in the order in which they were sent.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from gq_proto import codec, limits
from gq_proto.errors import Corrupt, GoQueueError, OffsetOutOfRange, Unavailable, error_of
from gq_proto.messages import (
    DeleteBefore,
    Fetch,
    FetchPart,
    FetchReply,
    InitProducer,
    InitProducerReply,
    Isolation,
    Kind,
    Produce,
    ProducePart,
    ProduceReply,
)
from gq_proto.record import BATCH, BATCH_HEADER, BATCH_VALUE
from gq_run.peers import Peers

READ_BYTES: Final = 4 * limits.MIB
BATCH_BYTES: Final = 1 * limits.MIB
BATCH_RECORDS: Final = 10_000
SEQUENCES: Final = 2**31
ReplayRecord = Callable[[int, bytes, bytes], None]


class Journal:
    """`replay(offset, key, value)` is called for each record, then `ready(end_offset)`; `appended(ticket, end_offset)` as batches
    are confirmed; `failed(error)` at most once, after which nothing is called any more."""

    def __init__(self, peers: Peers, topic_id: int, partition: int, replay: ReplayRecord, ready: Callable[[int], None],
                 appended: Callable[[int, int], None], failed: Callable[[GoQueueError], None]) -> None:
        self._peers, self._topic_id, self._partition = peers, topic_id, partition
        self._replay, self._ready, self._appended, self._failed = replay, ready, appended, failed
        self._closed = False
        self.newer = False                # it failed because a newer release wrote it
        self._producer = (-1, -1)         # ours
        self._producer_id = -1            # of the last batch in the log
        self._sequence = 0
        self._offset = 0                  # read up to here
        self._upto = -1                   # the takeover record's end: read to there and be ready
        self._pending: deque[tuple[int, bytes, bytes]] = deque()      # ticket, key, value
        self._flying: deque[int] = deque()                            # last ticket that ends within each batch
        self._builder = codec.BatchBuilder()

    def close(self) -> None:
        """Nothing is called back any more."""
        self._closed = True

    def open(self) -> None:
        self._read()

    # -- taking over ------------------------------------------------------------------------

    def _ask(self, kind: Kind, body: Any, done: Callable[[Any, Sequence[Any]], None], frames: Sequence[Any] = ()) -> None:
        def answered(reply: Any, reply_frames: Sequence[Any], error: GoQueueError | None) -> None:
            if self._closed:
                return
            if error:
                self._fail(error)
            else:
                done(reply, reply_frames)
        if kind == Kind.INIT_PRODUCER:
            self._peers.to_metad(kind, body, answered)
        else:
            self._peers.to_leader(self._topic_id, self._partition, kind, body, answered, frames)

    def _fail(self, error: GoQueueError) -> None:
        if not self._closed:
            self._closed = True
            self._failed(error)

    def _read(self) -> None:
        part = FetchPart(self._topic_id, self._partition, -1, self._offset, max_bytes=READ_BYTES)
        self._ask(Kind.FETCH, Fetch([part], isolation=Isolation.READ_UNCOMMITTED), self._got)

    def _got(self, reply: FetchReply, frames: Sequence[Any]) -> None:
        part = reply.parts[0]
        if part.error == OffsetOutOfRange.code and self._offset < part.log_start:
            self._offset = part.log_start
            self._read()
            return
        if part.error:
            self._fail(error_of(part.error, part.message))
            return
        for record in codec.decode(frames[0].buffer, codec.Record):
            self._note_producer(record)
            if record.key is not None and not self._replayed(record.offset, record.key, record.value or b""):
                return
        moved = part.next_offset > self._offset
        self._offset = max(part.next_offset, self._offset)
        self._read_on(moved, part.high_watermark)

    def _replayed(self, offset: int, key: bytes, value: bytes) -> bool:
        try:
            self._replay(offset, key, value)
        except (msgspec.DecodeError, ValueError) as error:
            self.newer = True
            self._fail(Corrupt(f"record {offset} of it was not written by this release ({error}): start the newer gq_groupd that "
                               "wrote it"))
            return False
        return True

    def _read_on(self, moved: bool, end: int) -> None:
        if self._upto >= 0 and self._offset >= self._upto:
            self._ready(self._upto)
        elif moved and self._offset < max(end, self._upto):
            self._read()
        elif self._upto < 0:
            self._init_producer()
        else:
            self._fail(Unavailable("the journal ends before what was just appended to it"))

    def _note_producer(self, record: codec.Record) -> None:
        if not record.flags & BATCH:
            return
        for name, value in record.system_headers:
            if name == BATCH_HEADER:
                self._producer_id = BATCH_VALUE.unpack(value)[0]

    def _init_producer(self) -> None:
        """The next epoch, whichever that is: a takeover that ended before its record was written has used one up already."""
        self._ask(Kind.INIT_PRODUCER, InitProducer(self._producer_id), self._take_over)

    def _take_over(self, reply: InitProducerReply, frames: Sequence[Any]) -> None:
        self._producer, self._sequence = (reply.producer_id, reply.epoch), 0
        self._builder.add(None, b"takeover")
        self._send(1, self._took_over)

    def _took_over(self, base_offset: int, count: int) -> None:
        self._upto = base_offset + count
        if self._offset >= self._upto:
            self._ready(self._upto)
        else:
            self._read()

    # -- appending ---------------------------------------------------------------------------------

    def append(self, ticket: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Confirmed by appended(ticket, ...). Goes out with the next flush."""
        self._pending.extend([(0, key, value) for key, value in records[:-1]])
        key, value = records[-1]
        self._pending.append((ticket, key, value))

    @property
    def pending(self) -> bool:
        """True while records wait to be sent."""
        return bool(self._pending)

    def flush(self) -> None:
        """Send what waits, as few batches as possible, some in flight at once."""
        while self._pending and len(self._flying) < limits.IN_FLIGHT_BATCHES_MAX and not self._closed:
            self._flush_batch()

    def _flush_batch(self) -> None:
        builder, pending, last = self._builder, self._pending, 0
        while pending and builder.count < BATCH_RECORDS and (not builder.count or builder.size + len(pending[0][2]) < BATCH_BYTES):
            ticket, key, value = pending.popleft()
            builder.add(key, value)
            last = ticket or last
        self._flying.append(last)
        self._send(builder.count, self._confirmed)

    def _send(self, count: int, done: Callable[[int, int], None]) -> None:
        frame = self._builder.seal(*self._producer, self._sequence)
        self._builder.clear()
        self._sequence = (self._sequence + count) % SEQUENCES
        body = Produce([ProducePart(self._topic_id, self._partition)], internal=True)
        self._ask(Kind.PRODUCE, body, lambda reply, frames: self._produced(reply, count, done), [frame])

    def _produced(self, reply: ProduceReply, count: int, done: Callable[[int, int], None]) -> None:
        part = reply.parts[0]
        if part.error:
            self._fail(error_of(part.error, part.message))
        else:
            done(part.base_offset, count)

    def _confirmed(self, base_offset: int, count: int) -> None:
        ticket = self._flying.popleft()
        self._offset = base_offset + count
        if ticket:
            self._appended(ticket, self._offset)
        if not self._closed:
            self.flush()

    def trim(self, offset: int) -> None:
        """Nobody needs what lies below."""
        self._peers.to_leader(self._topic_id, self._partition, Kind.DELETE_BEFORE, DeleteBefore(offset),
                              lambda reply, frames, error: None)

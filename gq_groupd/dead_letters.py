"""Copying dead letters: the one place where groupd touches payloads.

Owns nothing for longer than one copy; which letters are dead, and that each is copied once per group, is the core's to know (see
effects.CopyDeadLetters). A copy reads the DLQ from the intent's end for what an earlier try already wrote, fetches the origins,
appends them with their origin headers, and answers. Any step that fails, or whose fate is unknown, ends the copy with that error.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from gq_groupd.effects import CopyDeadLetters, DeadLetter, DeadLetterEnd, DeadLettersCopied, PrepareDeadLetters
from gq_proto import codec, limits
from gq_proto.errors import GoQueueError, Unavailable, UnknownTopicId, error_of
from gq_proto.messages import (
    AlterTopic,
    CreateTopic,
    Fetch,
    FetchPart,
    FetchReply,
    Isolation,
    Kind,
    PartitionInfo,
    Partitions,
    PartitionsReply,
    Produce,
    ProducePart,
    ProduceReply,
    RangeStatus,
    TopicConfig,
    TopicReply,
)
from gq_proto.names import dlq_of
from gq_proto.ranges import of_offsets
from gq_proto.record import CODEC_NONE, CODEC_ZSTD, COMPRESSED
from gq_run.peers import Peers

READ_BYTES: Final = 4 * limits.MIB
REASON_BYTES_MAX: Final = 1_024
H_TOPIC, H_PARTITION, H_OFFSET, H_COUNT, H_REASON, H_TIME, H_GROUP = (
    "gq-dlq-topic", "gq-dlq-partition", "gq-dlq-offset", "gq-dlq-count", "gq-dlq-reason", "gq-dlq-time", "gq-dlq-group")
NUMBER_BYTES_MAX: Final = 20
Done = Callable[[Any, GoQueueError | None], None]

assert (sum(len(name) + 4 for name in (H_TOPIC, H_PARTITION, H_OFFSET, H_COUNT, H_REASON, H_TIME, H_GROUP))
        + 2 * limits.NAME_MAX + 4 * NUMBER_BYTES_MAX + REASON_BYTES_MAX <= limits.SYSTEM_HEADERS_MAX), "a letter's headers"


class DeadLetters:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def prepare(self, ask: PrepareDeadLetters, done: Done) -> None:
        """done(DeadLetterEnd, None), or done(None, error)."""
        _Prepare(self._peers, ask, done).start()

    def copy(self, ask: CopyDeadLetters, done: Done) -> None:
        """done(DeadLettersCopied, None), or done(None, error)."""
        _Copy(self._peers, ask, done).start()


class _Steps:
    """Requests one after the other; the first error ends it all."""

    def __init__(self, peers: Peers, done: Done) -> None:
        self._peers, self._done = peers, done

    def _then(self, step: Callable[[Any, Sequence[Any]], None]) -> Callable[[Any, Sequence[Any], GoQueueError | None], None]:
        def answered(reply: Any, frames: Sequence[Any], error: GoQueueError | None) -> None:
            if error:
                self._done(None, error)
                return
            try:
                step(reply, frames)
            except GoQueueError as e:
                self._done(None, e)
        return answered


class _Prepare(_Steps):
    def __init__(self, peers: Peers, ask: PrepareDeadLetters, done: Done) -> None:
        super().__init__(peers, done)
        self._ask = ask

    def start(self) -> None:
        origin = self._peers.topic(self._ask.topic_id)
        if origin is None:
            self._peers.later(lambda: self._done(None, UnknownTopicId(f"topic {self._ask.topic} is gone")))
            return
        self._count = len(origin.partitions)
        config: dict[str, Any] = {}
        if origin.config.max_message_bytes != TopicConfig().max_message_bytes:
            config["maxMessageBytes"] = origin.config.max_message_bytes
        body = CreateTopic(dlq_of(self._ask.topic), self._count, config=config, if_not_exists=True)
        self._peers.to_metad(Kind.CREATE_TOPIC, body, self._then(self._created))

    def _created(self, reply: TopicReply, frames: object) -> None:
        if len(reply.topic.partitions) >= self._count:
            self._find_end(reply, frames)
        else:
            self._peers.to_metad(Kind.ALTER_TOPIC, AlterTopic(reply.topic.name, self._count), self._then(self._find_end))

    def _find_end(self, reply: TopicReply, frames: object) -> None:
        self._topic_id = reply.topic.id
        self._peers.to_leader(self._topic_id, self._ask.partition, Kind.PARTITIONS, Partitions([self._topic_id]),
                              self._then(self._found_end))

    def _found_end(self, reply: PartitionsReply, frames: object) -> None:
        info: PartitionInfo | None = next((p for p in reply.partitions if p.partition == self._ask.partition), None)
        if info is None or not info.online:
            raise Unavailable(f"{dlq_of(self._ask.topic)}[{self._ask.partition}] is not there yet")
        self._done(DeadLetterEnd(self._topic_id, info.high_watermark), None)


class _Copy(_Steps):
    def __init__(self, peers: Peers, ask: CopyDeadLetters, done: Done) -> None:
        super().__init__(peers, done)
        self._ask = ask
        self._letters: dict[int, DeadLetter] = {letter.offset: letter for letter in ask.items}
        self._copied: list[int] = []
        self._gone: list[int] = []
        self._scanned = ask.dlq_end

    def start(self) -> None:
        self._peers.later(self._scan if self._ask.scan else self._fetch)

    # -- what is there already --------------------------------------------------------------------

    def _scan(self) -> None:
        part = FetchPart(self._ask.dlq_topic_id, self._ask.partition, -1, self._scanned, max_bytes=READ_BYTES)
        self._peers.to_leader(self._ask.dlq_topic_id, self._ask.partition, Kind.FETCH,
                              Fetch([part], isolation=Isolation.READ_UNCOMMITTED), self._then(self._scanned_some))

    def _scanned_some(self, reply: FetchReply, frames: Sequence[Any]) -> None:
        part = reply.parts[0]
        if part.error and self._scanned < part.log_start:      # retention took what lay there: it had been copied
            self._scanned = part.log_start
            self._scan()
            return
        _raise(part)
        for record in codec.decode(frames[0].buffer, codec.Record):
            offset = self._offset_of(record)
            if offset in self._letters:
                del self._letters[offset]
                self._copied.append(offset)
        if part.next_offset > self._scanned and part.next_offset < part.high_watermark:
            self._scanned = part.next_offset
            self._scan()
        else:
            self._fetch()

    def _offset_of(self, record: codec.Record) -> int:
        """The origin offset of a dead letter of this very group and partition; -1 of another's."""
        headers = dict(record.system_headers)
        mine = (self._ask.group, self._ask.topic, str(self._ask.partition))
        found = tuple(headers.get(name, b"").decode(errors="replace") for name in (H_GROUP, H_TOPIC, H_PARTITION))
        return int(headers[H_OFFSET]) if found == mine and headers.get(H_OFFSET, b"").isdigit() else -1

    # -- the copy ------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        if not self._letters:
            self._end()
            return
        self._asked = sorted(self._letters)
        ranges = [x for offset in self._asked for x in (offset, 1)]
        part = FetchPart(self._ask.topic_id, self._ask.partition, -1, -1, ranges, READ_BYTES)
        self._peers.to_leader(self._ask.topic_id, self._ask.partition, Kind.FETCH, Fetch([part]), self._then(self._fetched))

    def _fetched(self, reply: FetchReply, frames: Sequence[Any]) -> None:
        part = reply.parts[0]
        _raise(part)
        records = {record.offset: record for record in codec.decode(frames[0].buffer, codec.Record)}
        builder = codec.BatchBuilder()
        taken = []
        for offset, status in zip(self._asked[:part.covered], part.status, strict=False):
            letter = self._letters[offset]
            if status == RangeStatus.GONE:
                self._gone.append(offset)
                del self._letters[offset]
            elif status == RangeStatus.CORRUPT:
                self._add(builder, letter, None)
                taken.append(offset)
            elif offset in records:
                self._add(builder, letter, records[offset])
                taken.append(offset)
        if taken:
            self._append(builder, taken)
        elif self._gone:
            self._fetch()
        else:
            raise Unavailable(f"{self._ask.topic}[{self._ask.partition}] does not give out its dead letters yet")

    def _add(self, builder: codec.BatchBuilder, letter: DeadLetter, record: codec.Record | None) -> None:
        """A damaged origin leaves a letter without key and value, so that its place is known."""
        headers = [*self._origin(letter, record is None), *(record.headers if record else ())]
        if record is None:
            builder.add(None, None, codec.encode_headers(headers))
            return
        flags = record.flags & COMPRESSED
        builder.add(record.key, record.raw_value, codec.encode_headers(headers), record.priority, flags,
                    CODEC_ZSTD if flags else CODEC_NONE)

    def _origin(self, letter: DeadLetter, damaged: bool) -> list[tuple[str, bytes]]:
        reason = f"{letter.reason} (the record itself cannot be read)" if damaged else letter.reason
        cut = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
        return [(H_TOPIC, self._ask.topic.encode()), (H_PARTITION, b"%d" % self._ask.partition), (H_OFFSET, b"%d" % letter.offset),
                (H_COUNT, b"%d" % letter.count), (H_REASON, cut), (H_TIME, b"%d" % letter.time_us),
                (H_GROUP, self._ask.group.encode())]

    def _append(self, builder: codec.BatchBuilder, taken: list[int]) -> None:
        body = Produce([ProducePart(self._ask.dlq_topic_id, self._ask.partition)], internal=True)
        self._peers.to_leader(self._ask.dlq_topic_id, self._ask.partition, Kind.PRODUCE, body,
                              self._then(lambda reply, frames: self._appended(reply, taken)), [builder.seal()])

    def _appended(self, reply: ProduceReply, taken: list[int]) -> None:
        _raise(reply.parts[0])
        for offset in taken:
            del self._letters[offset]
            self._copied.append(offset)
        self._fetch()

    def _end(self) -> None:
        self._done(DeadLettersCopied(of_offsets(self._copied), of_offsets(self._gone)), None)


def _raise(part: Any) -> None:
    if part.error:
        raise error_of(part.error, part.message)

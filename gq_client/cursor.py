"""A simple read of one partition, as both shells do it: where it stands, what to ask next, what came. Pure.

Owns the next offset and the records that came and were not handed out. One fetch is kept ahead: it is asked for as soon as the last
one's records are here, so its bytes travel while the app works. Bounded: two fetches' worth of records.

What lies below the log start is skipped and counted in `skipped`: retention took it. A corrupt stretch raises Corrupt (seek behind
it to go on); an offset above the end OffsetOutOfRange.
"""

from datetime import datetime
from typing import Any, Final

from gq_client import admin
from gq_client.ask import Ask
from gq_client.routing import Routes, To
from gq_proto import codec, limits
from gq_proto.errors import BadRequest, OffsetOutOfRange, error_of
from gq_proto.messages import EARLIEST, LATEST, Fetch, Fetched, FetchPart, Isolation, Kind, TopicMeta

WAIT_MS: Final = 10_000             # one long poll; the daemon answers at once when something comes
PATIENCE_S: Final = 30.0            # for one fetch, retries included
RETRY_S: Final = 0.05
Start = str | int | float | datetime


def locate(routes: Routes, name: str, partition: int, start: Start) -> admin.Operation[tuple[TopicMeta, int]]:
    """The topic, and the offset of "earliest", "latest", an offset (int) or a time (datetime, or Unix seconds as float)."""
    topic = yield from admin.topic(routes, name)
    routes.check_partition(topic, partition)
    if isinstance(start, datetime):
        start = start.timestamp()
    if isinstance(start, float):
        return topic, (yield from admin.offset_for_time(routes, name, partition, int(start * 1_000_000)))
    if isinstance(start, int):
        if start < 0:
            raise BadRequest(f"offset {start}: use 0 or more, a datetime, earliest or latest")
        return topic, start
    if start == EARLIEST:
        return topic, 0
    if start == LATEST:
        return topic, (yield from admin.partitions(routes, name))[partition].high_watermark
    raise BadRequest(f"cannot start at {start!r}: use earliest, latest, an offset or a time")


class Cursor:
    """At `offset` of a partition. With stop_at_end it is `ended` once everything that was there has been taken."""

    def __init__(self, topic: TopicMeta, partition: int, offset: int, *, stop_at_end: bool = False, committed: bool = True,
                 include_delayed: bool = False, max_bytes: int = limits.FETCH_BYTES_DEFAULT) -> None:
        self.topic, self.partition, self.next = topic.name, partition, offset
        self.to = To.leader(topic.id, partition)
        self.stop_at_end, self.ended = stop_at_end, False
        self.skipped = 0
        self.records: list[codec.Record] = []
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._include_delayed, self._max_bytes = include_delayed, max_bytes

    def ask(self) -> Ask:
        """The next fetch."""
        part = FetchPart(self.to.topic_id, self.partition, -1, self.next, [], self._max_bytes)
        wait_ms = 0 if self.stop_at_end else WAIT_MS
        return Ask(Kind.FETCH, Fetch([part], self._max_bytes, 1, wait_ms, self._isolation, self._include_delayed), self.to)

    def took(self, fetched: Fetched, frame: Any) -> bool:
        """Take an answer. False: the partition moves or rests, ask again after RETRY_S."""
        if fetched.error:
            return self._refused(fetched)
        records = codec.decode(frame, codec.Record, self.topic, self.partition, None, 1, self.next, 2**63 - 1, fetched.hidden)
        self.records = self.records + records if self.records else records
        self.next = max(self.next, fetched.next_offset)
        end = fetched.last_stable if self._isolation == Isolation.READ_COMMITTED else fetched.high_watermark
        self.ended = self.stop_at_end and self.next >= end
        return True

    def _refused(self, fetched: Fetched) -> bool:
        error = error_of(fetched.error, fetched.message)
        if isinstance(error, OffsetOutOfRange) and self.next < fetched.log_start:
            self.skipped += fetched.log_start - self.next
            self.next = fetched.log_start
            return True
        if error.retriable:
            return False
        raise error

    def take(self, most: int) -> list[codec.Record]:
        """Up to `most` of the records that are here."""
        if most >= len(self.records):
            records, self.records = self.records, []
            return records
        records = self.records[:most]
        del self.records[:most]
        return records

    def seek(self, offset: int) -> None:
        """Go on at `offset`; what is here is dropped."""
        if offset < 0:
            raise BadRequest(f"offset {offset}: use 0 or more")
        self.next, self.records, self.ended = offset, [], False

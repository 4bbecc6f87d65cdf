"""A simple read of one partition, as both shells do it: where it stands, what to ask next, what came. Pure.

Owns the next offset and the records that came and were not handed out. One fetch is kept ahead: it is asked for as soon as the last
one's records are here, so its bytes travel while the app works. Bounded: two fetches' worth of records.

A delayed message that is due comes where it lies. One that is not yet is passed, and comes when the reader meets its ready record;
so does one from before the offset where reading began. A read that stops at the end looks at what is there: it does not do that.

What lies below the log start is skipped and counted in `skipped`: retention took it. A corrupt stretch raises Corrupt (seek behind
it to go on); an offset above the end OffsetOutOfRange.
"""

from datetime import datetime
from typing import Any, Final

from gq_client import admin
from gq_client.ask import Ask
from gq_client.passed import Passed
from gq_client.routing import Routes, To
from gq_proto import codec, limits
from gq_proto import ranges as rng
from gq_proto.errors import BadRequest, OffsetOutOfRange, error_of
from gq_proto.messages import EARLIEST, LATEST, Fetch, Fetched, FetchPart, Isolation, Kind, TopicMeta

WAIT_MS: Final = 10_000             # one long poll; the daemon answers at once when something comes
PATIENCE_S: Final = 30.0            # for one fetch, retries included
RETRY_S: Final = 0.05
FAR: Final = 2**63 - 1
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
        self._passed: Passed | None = None
        self._ready: list[int] = []          # what the ready record at `next` names and has not come yet
        self._begin(offset)

    def _begin(self, offset: int) -> None:
        self._passed = None if self.stop_at_end or self._include_delayed else Passed(offset)

    @property
    def position(self) -> int:
        """Where reading goes on behind the records that were taken: at the ready record for one that came there."""
        if not self.records:
            return self.next
        first = self.records[0]
        return int(first.offset) if first.owner is None else first.owner    # type: ignore[return-value]

    def ask(self) -> Ask:
        """The next fetch."""
        offset, wait_ms = (-1, 0) if self._ready else (self.next, 0 if self.stop_at_end else WAIT_MS)
        part = FetchPart(self.to.topic_id, self.partition, -1, offset, self._ready, self._max_bytes)
        return Ask(Kind.FETCH, Fetch([part], self._max_bytes, 1, wait_ms, self._isolation, self._include_delayed), self.to)

    def took(self, fetched: Fetched, frame: Any) -> bool:
        """Take an answer. False: the partition moves or rests, ask again after RETRY_S."""
        if fetched.error:
            return self._refused(fetched)
        if self._ready:
            self._came(fetched, frame)
            return True
        end, self._ready = self._passed.ready(frame, self.next) if self._passed else (-1, [])
        high, following = (end, end) if self._ready else (FAR, max(self.next, fetched.next_offset))
        self._keep(codec.decode(frame, codec.Record, self.topic, self.partition, None, 1, self.next, high, fetched.hidden))
        if self._passed:
            self._passed.add(rng.clip(fetched.hidden, self.next, following))
        self.next = following
        last = fetched.last_stable if self._isolation == Isolation.READ_COMMITTED else fetched.high_watermark
        self.ended = self.stop_at_end and self.next >= last
        return True

    def _came(self, fetched: Fetched, frame: Any) -> None:
        """What came due, `next` being its ready record. They are told from others by their owner, that record."""
        self._keep(codec.decode(frame, codec.Record, self.topic, self.partition, self.next, 1, 0, FAR, fetched.hidden))
        self._ready = rng.clip(self._ready, fetched.next_offset, FAR) if fetched.covered else []
        if not self._ready:
            self.next += 1

    def _keep(self, records: list[codec.Record]) -> None:
        self.records = self.records + records if self.records else records

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
        self.next, self.records, self.ended, self._ready = offset, [], False, []
        self._begin(offset)

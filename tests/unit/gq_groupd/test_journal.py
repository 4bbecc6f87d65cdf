"""The journal against a hand-played logd and metad: taking over, reading, appending in order, ending at the first doubt."""

from collections.abc import Callable
from typing import Any

import pytest

from gq_groupd.entries import Paused, decode, encode
from gq_groupd.journal import BATCH_RECORDS, Journal
from gq_proto import codec, limits
from gq_proto.errors import Corrupt, Fenced, GoQueueError, OffsetOutOfRange, SequenceGap, Unavailable
from gq_proto.messages import Fetched, FetchReply, InitProducerReply, Kind, Produced, ProduceReply
from gq_proto.record import BATCH_HEADER, BATCH_VALUE


class Frame:
    def __init__(self, data: bytes) -> None:
        self.buffer = memoryview(data)


class Logd:
    """One partition in memory; answers are given when the test says so."""

    def __init__(self) -> None:
        self.log: list[bytes] = []          # one record each
        self.start = 0
        self.asked: list[tuple[Kind, Any, Any, list[bytes]]] = []
        self.epoch = -1

    def to_metad(self, kind: Kind, body: Any, done: Any, timeout_s: float = 0) -> None:
        self.asked.append((kind, body, done, []))

    def to_leader(self, topic_id: int, partition: int, kind: Kind, body: Any, done: Any, frames: Any = (), **_: Any) -> None:
        assert (topic_id, partition) == (5, 3)
        self.asked.append((kind, body, done, [bytes(f) for f in frames]))

    def run(self) -> None:
        """Answer all, and what that leads to."""
        while self.asked:
            self.answer()

    def answer(self, error: GoQueueError | None = None) -> Any:
        kind, body, done, frames = self.asked.pop(0)
        if error:
            done(None, [], error)
        elif kind == Kind.INIT_PRODUCER:
            if body.producer_id >= 0 and body.epoch not in (-1, self.epoch):
                done(None, [], Fenced("a newer one has taken over"))
            else:
                self.epoch += 1
                done(InitProducerReply(body.producer_id if body.producer_id >= 0 else 70, self.epoch), [], None)
        elif kind == Kind.FETCH:
            done(*self._fetch(body.parts[0]), None)
        elif kind == Kind.PRODUCE:
            done(ProduceReply([Produced(0, base_offset=self.write(frames[0]))]), [], None)
        return body

    def _fetch(self, part: Any) -> Any:
        end = self.start + len(self.log)
        if part.offset < self.start:
            return FetchReply([Fetched(OffsetOutOfRange.code, "gone", log_start=self.start)]), [Frame(b"")]
        some = self.log[part.offset - self.start:][:4]
        return (FetchReply([Fetched(0, log_start=self.start, high_watermark=end, next_offset=part.offset + len(some))]),
                [Frame(b"".join(some))])

    def write(self, frame: bytes) -> int:
        base, data = self.start + len(self.log), bytearray(frame)
        codec.stamp(data, base, 1, internal=True)
        at = 0
        for _ in codec.decode(data, codec.Record):
            following = codec.locate(data, at, self.start + len(self.log) + 1)
            self.log.append(bytes(data[at:following if following > 0 else len(data)]))
            at = following
        return base


class Played:
    def __init__(self, logd: Logd | None = None, read: Callable[[bytes], Any] = bytes) -> None:
        """read: of each record's value."""
        self.logd = logd or Logd()
        self.records: list[tuple[int, bytes, bytes]] = []
        self.ready: list[int] = []
        self.appended: list[tuple[int, int]] = []
        self.failed: list[GoQueueError] = []
        self.journal = Journal(self.logd, 5, 3, lambda offset, key, value: self.records.append(  # type: ignore[arg-type]
            (offset, key, read(value))), self.ready.append,
                               lambda *a: self.appended.append(a), self.failed.append)
        self.journal.open()

    def append(self, ticket: int, *values: bytes) -> None:
        self.journal.append(ticket, [(b"g", value) for value in values])


def test_an_empty_journal_is_taken_over_and_written() -> None:
    play = Played()
    play.logd.run()
    assert play.ready == [1] and play.records == []
    play.append(1, b"a", b"b")
    play.append(2, b"c")
    assert not play.logd.asked, "goes out with the flush"
    play.journal.flush()
    play.logd.run()
    assert play.appended == [(2, 4)], "one batch, confirmed by its last ticket"


@pytest.mark.parametrize("error", [Unavailable("the partition moved"), None])
def test_a_takeover_that_ended_in_the_middle_stops_no_other(error: GoQueueError | None) -> None:
    """It had its epoch from metad, and nothing of it is in the log."""
    first = Played()
    first.logd.run()
    second = Played(first.logd)
    while first.logd.asked[0][0] != Kind.PRODUCE:
        first.logd.answer()
    if error:
        first.logd.answer(error)
        assert second.failed == [error]
    else:
        second.journal.close()
        first.logd.asked.clear()
    third = Played(first.logd)
    first.logd.run()
    assert third.ready == [2] and not third.failed


@pytest.mark.parametrize("value", [b"\x93\x14\x01\x02", b"\xc1", encode(Paused(1, True))[:-1] + b"\xc4", b"\x92\x7a\x01"])
def test_a_journal_of_a_newer_release_is_said_to_be_one(value: bytes) -> None:
    """And nothing is written to it: it is not this one's to take over."""
    first = Played()
    first.logd.run()
    first.append(1, encode(Paused(1, True)), value)
    first.journal.flush()
    first.logd.run()
    second = Played(first.logd, decode)
    second.logd.run()
    assert len(second.records) == 1 and not second.ready and first.logd.epoch == 0
    [error] = second.failed
    assert isinstance(error, Corrupt) and "record 2 of it" in str(error) and "newer gq_groupd" in str(error)
    assert second.journal.newer and not first.journal.newer


def test_the_next_owner_reads_everything_and_fences_the_last() -> None:
    first = Played()
    first.logd.run()
    for ticket in range(1, 8):
        first.append(ticket, b"%d" % ticket)
        first.journal.flush()
        first.logd.run()
    second = Played(first.logd)
    second.logd.run()
    assert [(key, value) for _, key, value in second.records] == [(b"g", b"%d" % t) for t in range(1, 8)]
    assert second.ready == [first.appended[-1][1] + 1]
    header = dict(codec.decode(first.logd.log[-1], codec.Record)[0].system_headers)[BATCH_HEADER]
    assert BATCH_VALUE.unpack(header) == (70, 1, 0, 1), "the same producer, its next epoch, from sequence 0"


def test_what_the_fenced_one_wrote_last_is_read_too() -> None:
    first = Played()
    first.logd.run()
    second = Played(first.logd)
    second.logd.answer()           # has read, asks for the producer
    first.append(1, b"late")
    first.journal.flush()
    first.logd.asked.reverse()
    first.logd.answer()
    second.logd.run()
    assert [value for _, _, value in second.records] == [b"late"]


def test_a_trimmed_journal_is_read_from_its_start() -> None:
    play = Played()
    play.logd.run()
    for ticket in range(1, 6):
        play.append(ticket, b"%d" % ticket)
        play.journal.flush()
        play.logd.run()
    play.logd.log, play.logd.start = play.logd.log[3:], 3
    again = Played(play.logd)
    again.logd.run()
    assert [(offset, value) for offset, _, value in again.records] == [(3, b"3"), (4, b"4"), (5, b"5")]


def test_some_batches_fly_at_once_and_are_confirmed_in_order() -> None:
    play = Played()
    play.logd.run()
    for ticket in range(1, 9):
        play.append(ticket, b"x")
        play.journal.flush()
    assert len(play.logd.asked) == limits.IN_FLIGHT_BATCHES_MAX
    play.logd.run()
    assert [ticket for ticket, _ in play.appended] == [1, 2, 3, 4, 5, 8], "the rest was joined"


def test_large_appends_are_cut_between_records() -> None:
    play = Played()
    play.logd.run()
    play.append(1, *[b"v"] * (BATCH_RECORDS + 5))
    play.append(2, b"w" * limits.VALUE_MAX)
    play.journal.flush()
    assert len(play.logd.asked) == 3
    play.logd.run()
    assert [ticket for ticket, _ in play.appended] == [1, 2] and play.appended[-1][1] == 1 + BATCH_RECORDS + 6


@pytest.mark.parametrize("error", [SequenceGap("gap"), Unavailable("gone")])
def test_the_first_failed_append_is_the_end(error: GoQueueError) -> None:
    play = Played()
    play.logd.run()
    play.append(1, b"x")
    play.journal.flush()
    play.append(2, b"y")
    play.journal.flush()
    play.logd.answer(error)
    play.logd.run()
    assert play.failed == [error] and play.appended == []


def test_a_closed_journal_says_nothing_more() -> None:
    play = Played()
    play.journal.close()
    play.logd.run()
    assert not play.ready and not play.failed

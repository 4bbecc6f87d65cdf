"""A simple read: where it goes on, what it skips, when it ends."""

from typing import Any

import pytest

from gq_client.cursor import Cursor
from gq_proto import codec
from gq_proto import messages as m
from gq_proto.errors import Busy, Corrupt, NotLeader, OffsetOutOfRange
from tests.unit.gq_client.wire_fakes import topic


def frame(first: int, count: int) -> bytes:
    builder = codec.BatchBuilder()
    for number in range(count):
        builder.add(b"k", b"%d" % (first + number))
    data = bytearray(builder.seal())
    codec.stamp(data, first, 1_000_000)
    return bytes(data)


def fetched(next_offset: int, end: int = 100, **more: Any) -> m.Fetched:
    return m.Fetched(0, "", 1, 0, end, more.pop("last_stable", end), next_offset, **more)


def offsets(records: list[codec.Record]) -> list[int]:
    return [record.offset for record in records]


def test_it_goes_on_where_the_answer_says() -> None:
    cursor = Cursor(topic(), 1, 3)
    ask = cursor.ask()
    assert (ask.to.topic_id, ask.to.partition, ask.body.parts[0].offset) == (5, 1, 3) and ask.body.max_wait_ms > 0
    assert cursor.took(fetched(8), frame(0, 8))
    assert offsets(cursor.records) == [3, 4, 5, 6, 7], "the frame begins before what was asked"
    assert cursor.ask().body.parts[0].offset == 8 and not cursor.ended


def test_hidden_ranges_are_left_out_and_control_records_passed() -> None:
    cursor = Cursor(topic(), 0, 0)
    cursor.took(fetched(12, hidden=[2, 3]), frame(0, 8))
    assert offsets(cursor.take(100)) == [0, 1, 5, 6, 7] and cursor.next == 12


def test_taking_some_leaves_the_rest() -> None:
    cursor = Cursor(topic(), 0, 0)
    cursor.took(fetched(4), frame(0, 4))
    assert [offsets(cursor.take(3)), offsets(cursor.take(3)), cursor.take(3)] == [[0, 1, 2], [3], []]


def test_the_end_is_that_of_committed_data_unless_told() -> None:
    committed, raw = Cursor(topic(), 0, 0, stop_at_end=True), Cursor(topic(), 0, 0, stop_at_end=True, committed=False)
    for cursor in (committed, raw):
        cursor.took(fetched(4, end=8, last_stable=4), frame(0, 4))
    assert committed.ended and not raw.ended
    assert committed.ask().body.max_wait_ms == 0


def test_what_retention_took_is_skipped_and_counted() -> None:
    cursor = Cursor(topic(), 0, 3)
    assert cursor.took(m.Fetched(OffsetOutOfRange.code, "below", log_start=10), b"")
    assert (cursor.next, cursor.skipped) == (10, 7)


@pytest.mark.parametrize("error", [NotLeader, Busy])
def test_a_resting_partition_is_asked_again(error: Any) -> None:
    cursor = Cursor(topic(), 0, 3)
    assert not cursor.took(m.Fetched(error.code, "wait"), b"")
    assert cursor.next == 3


@pytest.mark.parametrize("error", [Corrupt, OffsetOutOfRange])
def test_what_will_not_get_better_is_raised(error: Any) -> None:
    cursor = Cursor(topic(), 0, 300)
    with pytest.raises(error):
        cursor.took(m.Fetched(error.code, "at byte 7", log_start=2), b"")


def test_seek_drops_what_is_here() -> None:
    cursor = Cursor(topic(), 0, 0, stop_at_end=True)
    cursor.took(fetched(4, end=4), frame(0, 4))
    cursor.seek(2)
    assert cursor.next == 2 and not cursor.ended and cursor.take(9) == []

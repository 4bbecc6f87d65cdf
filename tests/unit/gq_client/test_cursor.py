"""A simple read: where it goes on, what it skips, when it ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_client.cursor import Cursor
from gq_proto import codec, control
from gq_proto import messages as m
from gq_proto.control import ControlType
from gq_proto.errors import Busy, Corrupt, NotLeader, OffsetOutOfRange
from gq_proto.ranges import clip, of_offsets, pairs
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


# -- delayed messages ----------------------------------------------------------------------

READY, CANCELLED = ControlType.DELAY_READY, ControlType.DELAY_CANCELLED


def log(first: int, *items: int | tuple[ControlType, list[int]]) -> bytes:
    """Numbers are messages; the others are control records that name ranges."""
    frames = []
    for offset, item in enumerate(items, first):
        builder = codec.BatchBuilder()
        if isinstance(item, tuple):
            builder.add(control.control_key(item[0]), control.encode_body(*item), flags=control.control_flags(item[0]))
        else:
            builder.add(None, b"%d" % item)
        data = bytearray(builder.seal())
        codec.stamp(data, offset, 1_000_000, internal=True)
        frames.append(bytes(data))
    return b"".join(frames)


def values(cursor: Cursor) -> list[bytes | None]:
    return [record.value for record in cursor.take(100)]


def by_ranges(*ranges: int, **more: Any) -> m.Fetched:
    return fetched(ranges[-2] + ranges[-1], covered=len(ranges) // 2, status=[0] * (len(ranges) // 2), **more)


def test_what_was_passed_comes_at_its_ready_record_in_its_place() -> None:
    cursor = Cursor(topic(), 0, 0)
    cursor.took(fetched(4, hidden=[1, 2]), log(0, 0, 1, 2, 3))
    assert values(cursor) == [b"0", b"3"]
    tail = log(4, 4, (READY, [1, 2]), 6)
    cursor.took(fetched(7), tail)
    assert values(cursor) == [b"4"] and cursor.position == 5
    part = cursor.ask().body.parts[0]
    assert (part.offset, part.ranges) == (-1, [1, 2]) and cursor.ask().body.max_wait_ms == 0
    cursor.took(by_ranges(1, 2), log(1, 1, 2))
    assert cursor.position == 5, "who goes on there gets them again"
    assert values(cursor) == [b"1", b"2"] and cursor.ask().body.parts[0].offset == cursor.position == 6
    cursor.took(fetched(7), tail)
    assert values(cursor) == [b"6"]
    cursor.took(fetched(8), log(7, (READY, [1, 2])))
    assert cursor.ask().body.parts[0].offset == 8, "once"


def test_what_was_due_when_the_reader_came_by_does_not_come_again() -> None:
    cursor = Cursor(topic(), 0, 0)
    cursor.took(fetched(4), log(0, 0, 1, (READY, [1, 1]), 3))
    assert values(cursor) == [b"0", b"1", b"3"] and cursor.ask().body.parts[0].offset == 4


def test_what_lies_before_the_beginning_comes_at_its_ready_record() -> None:
    cursor = Cursor(topic(), 0, 10)
    cursor.took(fetched(12), log(10, (READY, [2, 1, 7, 1]), 11))
    assert cursor.ask().body.parts[0].ranges == [2, 1, 7, 1]
    cursor.took(by_ranges(2, 1), log(2, 2))
    assert cursor.ask().body.parts[0].ranges == [7, 1], "an answer may be short"
    cursor.took(m.Fetched(NotLeader.code, "moved"), b"")
    cursor.took(by_ranges(7, 1), log(7, 7))
    assert values(cursor) == [b"2", b"7"] and cursor.next == 11


def test_cancelled_ones_never_come() -> None:
    cursor = Cursor(topic(), 0, 0)
    cursor.took(fetched(2, hidden=[0, 2]), log(0, 0, 1))
    cursor.took(fetched(4), log(2, (CANCELLED, [0, 1]), (READY, [1, 1])))
    assert cursor.ask().body.parts[0].ranges == [1, 1]


def test_a_frame_is_taken_up_to_the_ready_record_and_its_hidden_ones_too() -> None:
    cursor = Cursor(topic(), 0, 0)
    cursor.took(fetched(1, hidden=[0, 1]), log(0, 0))
    tail = log(1, 1, (READY, [0, 1]), 3)
    cursor.took(fetched(4, hidden=[1, 1, 3, 1]), tail)
    cursor.took(by_ranges(0, 1), log(0, 0))
    cursor.took(fetched(4), log(3, 3))
    assert values(cursor) == [b"0", b"3"], "3 came due between the two answers"
    cursor.took(fetched(5), log(4, (READY, [1, 1, 3, 1])))
    assert cursor.ask().body.parts[0].ranges == [1, 1]


def test_who_stops_at_the_end_or_includes_delayed_ones_sees_each_where_it_lies() -> None:
    for options in ({"stop_at_end": True}, {"include_delayed": True}):
        cursor = Cursor(topic(), 0, 3, **options)       # type: ignore[arg-type]
        cursor.took(fetched(6, hidden=[4, 1]), log(3, 3, 4, (READY, [1, 1])))
        cursor.took(fetched(7), log(6, (READY, [4, 1])))
        assert values(cursor) == [b"3"] and cursor.ask().body.parts[0].offset == 7
        assert cursor.ask().body.include_delayed == ("include_delayed" in options)


def test_seek_begins_anew() -> None:
    cursor = Cursor(topic(), 0, 0)
    cursor.took(fetched(2, hidden=[0, 2]), log(0, 0, 1))
    cursor.took(fetched(3), log(2, (READY, [0, 1])))
    cursor.seek(0)
    assert cursor.ask().body.parts[0].offset == 0
    cursor.took(fetched(3, hidden=[1, 1]), log(0, 0, 1, (READY, [0, 1])))
    assert values(cursor) == [b"0"] and cursor.ask().body.parts[0].offset == 3


class Log:
    """A partition as logd answers for it. Items are values; a delayed one is hidden until a ready record names it."""

    def __init__(self) -> None:
        self.items: list[int | tuple[ControlType, list[int]]] = []
        self.pending: set[int] = set()
        self.cancelled: set[int] = set()

    def publish(self, delayed: bool) -> None:
        if delayed:
            self.pending.add(len(self.items))
        self.items.append(len(self.items))

    def decide(self, type_: ControlType, offset: int) -> None:
        if offset in self.pending:
            self.pending.remove(offset)
            if type_ == CANCELLED:
                self.cancelled.add(offset)
            self.items.append((type_, [offset, 1]))

    def answer(self, cursor: Cursor, most: int) -> None:
        part = cursor.ask().body.parts[0]       # type: ignore[attr-defined]
        hidden = of_offsets(sorted(self.pending | self.cancelled))
        if part.offset < 0:
            some = [offset for low, end in pairs(part.ranges) for offset in range(low, end)][:most]
            frame = b"".join(log(offset, self.items[offset]) for offset in some)
            cursor.took(fetched(some[-1] + 1, covered=1, hidden=hidden), frame)
        else:
            items = self.items[part.offset:part.offset + most]
            following = part.offset + len(items)
            cursor.took(fetched(following, hidden=clip(hidden, part.offset, following)), log(part.offset, *items))


moves = st.lists(st.tuples(st.sampled_from("pdrcf"), st.integers(0, 30), st.integers(1, 5)), max_size=60)


@given(moves, moves)
def test_each_message_comes_once_and_none_before_it_is_due(before: list[Any], during: list[Any]) -> None:
    part, got = Log(), list[int]()

    def move(what: str, where: int, most: int, cursor: Cursor | None) -> None:
        if what in "pd":
            part.publish(what == "d")
        elif what in "rc":
            part.decide(READY if what == "r" else CANCELLED, where)
        elif cursor:
            part.answer(cursor, most)
            assert not part.pending & {record.offset for record in cursor.records}
            got.extend(record.offset for record in cursor.take(100))

    for what, where, most in before:
        move(what, where, most, None)
    start, waiting = len(part.items), set(part.pending)
    cursor = Cursor(topic(), 0, start)
    for what, where, most in during:
        move(what, where, most, cursor)
    while cursor.position < len(part.items):
        move("f", 0, 3, cursor)
    messages = {offset for offset in range(start, len(part.items)) if isinstance(part.items[offset], int)} | waiting
    assert sorted(got) == sorted(messages - part.pending - part.cancelled)

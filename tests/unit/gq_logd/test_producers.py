"""The idempotence table by itself, against a list of everything ever written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_logd.producers import SEQUENCES, Producers, State, Window
from gq_proto.errors import Fenced, SequenceGap


def write(table: Producers, producer: int, epoch: int, sequence: int, count: int, offset: int) -> int:
    known = table.check(producer, epoch, sequence, count, {})
    if known < 0:
        table.apply({producer: table.following(producer, epoch, sequence, count, offset, {})})
    return known


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 3)), max_size=60))
def test_against_a_list(steps: list[tuple[int, int, int]]) -> None:
    table, written = Producers(), dict[int, list[tuple[int, int, int]]]()
    for offset, (producer, sequence, count) in enumerate(steps):
        mine = written.setdefault(producer, [])
        expected = mine[-1][0] + mine[-1][1] if mine else 0
        known = [o for s, c, o in mine[-5:] if (s, c) == (sequence, count)]
        if known:
            assert write(table, producer, 0, sequence, count, offset) == known[0]
        elif sequence == expected:
            assert write(table, producer, 0, sequence, count, offset) == -1
            mine.append((sequence, count, offset))
        else:
            with pytest.raises(SequenceGap):
                write(table, producer, 0, sequence, count, offset)


def test_sequences_wrap() -> None:
    table = Producers()
    table.apply({1: State(0, SEQUENCES - 2, (Window(SEQUENCES - 4, 2, 7),))})
    assert write(table, 1, 0, SEQUENCES - 2, 5, 9) == -1
    assert write(table, 1, 0, 3, 1, 14) == -1
    assert write(table, 1, 0, SEQUENCES - 2, 5, 99) == 9


def test_the_least_recently_heard_is_forgotten() -> None:
    table = Producers(limit=3)
    for producer in (1, 2, 3):
        write(table, producer, 0, 0, 1, producer)
    write(table, 1, 0, 1, 1, 4)
    write(table, 4, 0, 0, 1, 5)
    assert [producer for producer, _ in table.states()] == [3, 1, 4]
    with pytest.raises(SequenceGap, match="not known"):
        write(table, 2, 0, 1, 1, 6)


def test_checks_change_nothing() -> None:
    table = Producers()
    ahead = {1: table.following(1, 0, 0, 2, 5, {})}
    assert len(table) == 0 and not table.changed
    assert table.check(1, 0, 0, 2, ahead) == 5
    assert table.check(1, 0, 2, 1, ahead) == -1
    with pytest.raises(SequenceGap):
        table.check(1, 0, 2, 1, {})


def test_fencing() -> None:
    table = Producers()
    write(table, 1, 3, 0, 1, 0)
    table.fence(1, 5)
    with pytest.raises(Fenced):
        write(table, 1, 4, 0, 1, 1)
    table.fence(1, 4)
    assert write(table, 1, 5, 0, 1, 1) == -1
    table.replay(1, 4, 0, 9, 2)
    state = table.get(1)
    assert state and state.epoch == 5 and state.next_sequence == 1

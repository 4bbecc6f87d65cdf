"""The index files: what goes in comes out, and what is damaged is not believed."""

from array import array

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gq_delayd import index
from gq_delayd.index import ENTRY, HEADER, State

DUE = 1_700_000_000_000_000


def made(*blocks: tuple[int, bytes], topic_id: int = 9, partition: int = 3) -> bytes:
    """A file of blocks (next offset, entries)."""
    out = index.header(topic_id, partition)
    crc = crc32c(out)
    for next_offset, entries in blocks:
        data, crc = index.seal(crc, entries, next_offset, 1)
        out += data
    return out


def entries(pending: list[int] = (), **ranges: list[int]) -> bytes:  # type: ignore[assignment]
    out = bytearray()
    index.add_pending(out, pending)
    for name, flat in ranges.items():
        index.add_ranges(out, State[name.upper()], flat)
    return bytes(out)


def loaded(raw: bytes, size: int) -> index.Loaded:
    *_, last = index.load(raw, size)
    assert last is not None
    return last


def flat(found: index.Loaded) -> list[int]:
    return [number for piece in found.pending for number in piece]


FILE = made((10, entries([1, DUE, 2, DUE, 3, DUE + 1])), (20, entries([12, DUE + 7], delivered=[1, 2], cancelled=[3, 1])),
            (30, entries(expired=[12, 1])))


def test_sizes_are_those_of_the_design() -> None:
    assert (HEADER.size, ENTRY.size) == (16, 32)
    assert len(FILE) == 16 + 32 * ((2 + 1) + (3 + 1) + (1 + 1))


def test_what_goes_in_comes_out() -> None:
    blocks = index.blocks(FILE, 9, 3)
    assert [(block.next_offset, block.epoch) for block in blocks] == [(10, 1), (20, 1), (30, 1)]
    assert blocks[-1].size == len(FILE)
    found = loaded(FILE, blocks[-1].size)
    assert flat(found) == [1, DUE, 2, DUE, 3, DUE + 1, 12, DUE + 7]
    assert (list(found.delivered), list(found.cancelled), list(found.expired)) == ([1, 2], [3], [12])
    first = loaded(FILE, blocks[0].size)
    assert flat(first) == [1, DUE, 2, DUE, 3, DUE + 1] and not first.delivered


def test_another_partitions_file_is_none() -> None:
    assert index.blocks(FILE, 9, 4) == index.blocks(FILE, 8, 3) == index.blocks(b"", 9, 3) == []


def test_cut_anywhere_the_whole_blocks_count() -> None:
    ends = [block.size for block in index.blocks(FILE, 9, 3)]
    for size in range(len(FILE)):
        assert [block.size for block in index.blocks(FILE[:size], 9, 3)] == [end for end in ends if end <= size]
    assert [block.size for block in index.blocks(FILE + bytes(50), 9, 3)] == ends


def test_a_flipped_bit_ends_what_is_believed_before_its_block() -> None:
    ends = [16, *(block.size for block in index.blocks(FILE, 9, 3))]
    for at in range(len(FILE)):
        for bit in (0x01, 0x80):
            bad = bytearray(FILE)
            bad[at] ^= bit
            good = [block.size for block in index.blocks(bytes(bad), 9, 3)]
            assert good == [end for end in ends[1:] if end <= at], at


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=60))
def test_neighbours_due_together_share_an_entry_and_no_message_is_lost(steps: list[tuple[int, int]]) -> None:
    offset, pending = 0, []
    for gap, due in steps:
        offset += gap + 1
        pending += [offset, DUE + due]
    raw = made((1000, entries(pending)))
    assert flat(loaded(raw, len(raw))) == pending


def test_a_block_may_be_written_in_pieces() -> None:
    start = index.header(9, 3)
    one, other = entries([1, DUE]), entries(delivered=[5, 2])
    data, _ = index.seal(crc32c(one, crc32c(start)), other, 40, 2, before=1)
    assert start + one + data == made((40, one + other)).replace(b"\x00\x00\x00\x01\x00\x00\x00\x00", b"", 0)[:16] + one + data
    assert [block.next_offset for block in index.blocks(start + one + data, 9, 3)] == [40]


def test_a_long_range_takes_several_entries() -> None:
    out = bytearray()
    index.add_ranges(out, State.DELIVERED, [0, 2**33])
    assert len(out) == 3 * ENTRY.size
    raw = made((2**40, bytes(out)))
    assert len(loaded(raw, len(raw)).delivered) == 2**33


@pytest.mark.parametrize("count", [1, index.SLICE, index.SLICE + 1])
def test_loading_goes_slice_by_slice(count: int) -> None:
    raw = made((count, entries([n for i in range(count) for n in (2 * i, DUE + i)])))
    pieces = list(index.load(raw, len(raw)))
    assert [piece is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert len(flat(loaded(raw, len(raw)))) == 2 * count
    assert all(isinstance(piece, array) for piece in loaded(raw, len(raw)).pending)

"""The delay index: what of a partition's log below some offset is delayed, until when, and what became of it. Only a cache.

    delays/{topic}/{partition}.index
    header   magic "GQ", kind "D", version u8 (1), partition u32, topic id u64                                       16 bytes
    entry    state u8, zero u24, count u32, offset u64, due us u64, zero u32, crc u32                                32 bytes
             1 PENDING     offsets [offset, offset + count), all due then
             2 DELIVERED   ready records name them       3 CANCELLED   cancelled records name them       (due 0)
             4 EXPIRED     retention took them before their time                                         (due 0)
            15 BLOCK       the entries since the last BLOCK, `count` of them, and all before are what the log says below
                           `offset`, as leader epoch `due` had it. Its crc, CRC-32C over header and every byte up to it,
                           crcs included; 0 in other entries

All big-endian. A reader keeps the blocks that are whole and right, as read_derived of gq_proto.segment does; entries after the last
BLOCK do not count. A later entry about an offset overrides an earlier one. Whoever compacts a file writes one block anew.
Pure: no file is touched here.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c
from pyroaring import BitMap64

VERSION: Final = 1
HEADER: Final = struct.Struct(">2scBIQ")
ENTRY: Final = struct.Struct(">B3xIQQII")
CRC_AT: Final = ENTRY.size - 4
COUNT_MAX: Final = 2**32 - 1
SLICE: Final = 20_000               # messages loaded at a time
assert HEADER.size == 16 and ENTRY.size == 32


class State(IntEnum):
    PENDING = 1
    DELIVERED = 2
    CANCELLED = 3
    EXPIRED = 4
    BLOCK = 15


class Block(NamedTuple):
    """The file up to byte `size` is what the log says below `next_offset`. `crc`: what the next block continues from."""

    size: int
    next_offset: int
    epoch: int
    crc: int


def header(topic_id: int, partition: int) -> bytes:
    return HEADER.pack(b"GQ", b"D", VERSION, partition, topic_id)


def add_pending(out: bytearray, flat: Sequence[int]) -> None:
    """Append entries for [offset, due us, ...]; neighbours that are due together share one."""
    pack, pending = ENTRY.pack, State.PENDING.value
    numbers = iter(flat)
    low, count, until = -1, 0, -1
    for offset, due in zip(numbers, numbers):
        if due == until and offset == low + count and count < COUNT_MAX:
            count += 1
            continue
        if count:
            out += pack(pending, count, low, until, 0, 0)
        low, count, until = offset, 1, due
    if count:
        out += pack(pending, count, low, until, 0, 0)


def add_ranges(out: bytearray, state: State, ranges: Sequence[int]) -> None:
    """Append entries for [low, count, ...]."""
    for at in range(0, len(ranges), 2):
        low, left = ranges[at], ranges[at + 1]
        while left > 0:
            out += ENTRY.pack(state, min(left, COUNT_MAX), low, 0, 0, 0)
            low, left = low + COUNT_MAX, left - COUNT_MAX


def seal(crc: int, entries: bytes | bytearray, next_offset: int, epoch: int, before: int = 0) -> tuple[bytes, int]:
    """`entries` as a block, and the crc that the next one continues from. `crc`: of everything before; `before`: entries of the
    same block that lie before these."""
    end = ENTRY.pack(State.BLOCK, before + len(entries) // ENTRY.size, next_offset, epoch, 0, 0)[:CRC_AT]
    said = crc32c(end, crc32c(entries, crc)).to_bytes(4)
    return b"".join((entries, end, said)), crc32c(said, crc32c(end, crc32c(entries, crc)))


def blocks(raw: bytes, topic_id: int, partition: int) -> list[Block]:
    """Those that are whole and right, in order; [] when it is not that partition's index."""
    found: list[Block] = []
    start = header(topic_id, partition)
    if raw[: HEADER.size] != start:
        return found
    view, states = memoryview(raw), raw[HEADER.size :: ENTRY.size]
    at, crc = HEADER.size, crc32c(start)
    number = states.find(State.BLOCK)
    while number >= 0:
        end = HEADER.size + (number + 1) * ENTRY.size
        if end > len(raw):
            break
        _, count, next_offset, epoch, _, said = ENTRY.unpack_from(raw, end - ENTRY.size)
        body = crc32c(view[at : end - 4], crc)
        if body != said or count != (end - at) // ENTRY.size - 1:
            break
        at, crc = end, crc32c(view[end - 4 : end], body)
        found.append(Block(end, next_offset, epoch, crc))
        number = states.find(State.BLOCK, number + 1)
    return found


class Loaded(NamedTuple):
    """`pending`: [offset, due us, ...] in pieces; of some of them the sets beside it say that they are decided."""

    pending: list["array[int]"]
    delivered: BitMap64
    cancelled: BitMap64
    expired: BitMap64
    entries: int


def load(raw: bytes, size: int) -> Iterator[Loaded | None]:
    """What blocks up to byte `size` say. Yields None now and then, for others to have their turn, and the result at last."""
    delivered, cancelled, expired = BitMap64(), BitMap64(), BitMap64()
    sets = {State.DELIVERED.value: delivered, State.CANCELLED.value: cancelled, State.EXPIRED.value: expired}
    pending: list[array[int]] = []
    pending_state, view = State.PENDING.value, memoryview(raw)
    for start in range(HEADER.size, size, SLICE * ENTRY.size):
        flat = array("Q")
        append = flat.append
        for state, count, offset, due, _, _ in ENTRY.iter_unpack(view[start : min(start + SLICE * ENTRY.size, size)]):
            if state == pending_state:
                for number in (offset,) if count == 1 else range(offset, offset + count):
                    append(number)
                    append(due)
            elif state in sets:
                sets[state].add_range(offset, offset + count)
        pending.append(flat)
        yield None
    yield Loaded(pending, delivered, cancelled, expired, (size - HEADER.size) // ENTRY.size)

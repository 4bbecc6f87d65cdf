"""The timer wheel: what is due when, 16 bytes a message. Ticks are 10 ms of the wall clock, counted from 1970.

    level    slots    one spans      found by
      0       256      10 ms         tick
      1        64      2.56 s        tick >> 8
      2        64      2.73 min      tick >> 14
      3        64      2.91 h        tick >> 20        671,088,640 ms in all

A message lies in the finest level that reaches its tick; a slot of a coarser one is split when its time begins (Varghese and Lauck,
1987). Slots are found by absolute numbers, so nothing is recomputed when the clock is set: what is due is due, however it came
to be. What is due when it is added waits in a slot of its own for the next advance. A slot holds one packed array per part: offset,
due microseconds, offset, ... Adding is O(1); there is no removing: who takes out what came due knows what of it still counts
(`sweep` takes the rest out when it has become too much).

The messages of a tick come due together, at its end, unless they are few: then those whose time has come need not wait for the
others (`early`).

A large slot is split ahead, bit by bit (`prepare`), so that a million messages of one slot do not stop everything at once.
Pure, and not thread-safe.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap64

TICK_US: Final = 10_000
STEP_US: Final = 2_000                      # of a tick with few messages: those come in steps of it
FEW: Final = 64                             # messages, of all parts
SHIFTS: Final = (0, 8, 14, 20)
REACH: Final = (256, 64, 64, 64)            # slots ahead that a level takes; the last takes everything
PAST: Final = 4                             # the level of the one slot for what is due already
EVER: Final = 2**48
AHEAD: Final = (0, 1 << 7, 1 << 13, 1 << 19)  # ticks before its time that a slot may be split
Slot = dict[int, "array[int]"]


def tick_of(due_us: int) -> int:
    """The first tick at or after it."""
    return -(-due_us // TICK_US)


class Place(NamedTuple):
    """A slot: holds ticks in [start, end)."""

    start: int
    end: int
    level: int
    key: int

    @property
    def splits(self) -> bool:
        """There are finer ones."""
        return 0 < self.level < PAST


class Wheel:
    def __init__(self, tick: int = 0) -> None:
        self.now = tick
        self._levels: tuple[dict[int, Slot], ...] = ({}, {}, {}, {}, {})
        self._sizes: dict[int, int] = {}             # messages of each part

    def size(self, part: int) -> int:
        """Messages, those that do not count any more included."""
        return self._sizes.get(part, 0)

    def __bool__(self) -> bool:
        return any(self._levels)

    # -- in and out ------------------------------------------------------------------------

    def add(self, part: int, flat: Sequence[int]) -> None:
        """[offset, due us, ...] in any order. What is due already comes with the next advance."""
        self._place(part, flat, 3)
        self._sizes[part] = self.size(part) + len(flat) // 2

    def _place(self, part: int, flat: Iterable[int], top: int) -> None:
        """Into the finest level that reaches, `top` at most. Neighbours mostly share a slot."""
        shift, key, append = 0, -1, None
        numbers = iter(flat)
        for offset, due in zip(numbers, numbers):
            tick = -(-due // TICK_US)
            if tick >> shift != key or append is None:
                shift, key, entries = self._find(part, tick, top)
                append = entries.append
            append(offset)
            append(due)

    def _find(self, part: int, tick: int, top: int) -> tuple[int, int, "array[int]"]:
        """(shift, tick >> shift, entries) of its slot."""
        now, level, shift = self.now, 0, 0
        if tick <= now:
            slot = self._levels[PAST].setdefault(0, {})
        else:
            while level < top and (tick >> SHIFTS[level]) - (now >> SHIFTS[level]) >= REACH[level]:
                level += 1
            shift = SHIFTS[level]
            slot = self._levels[level].setdefault(tick >> shift, {})
        entries = slot.get(part)
        if entries is None:
            entries = slot[part] = array("Q")
        return shift, tick >> shift, entries

    def advance(self, tick: int) -> list[tuple[int, int, "array[int]"]]:
        """It is `tick` now: (tick, part, entries) of all that is due, in order of ticks. The clock may go back."""
        self.now = tick
        past = self._levels[PAST].pop(0, {})
        for part in [part for part, entries in past.items() if max(entries[1::2]) > tick * TICK_US]:
            self._place(part, past.pop(part), 3)     # the clock was set back
        for level in (3, 2, 1):
            for key in self._begun(level, tick):
                for part, entries in self._levels[level].pop(key).items():
                    self._place(part, entries, level - 1)
        found = [(tick_of(min(entries[1::2])), part, entries)
                 for slot in (past, self._levels[PAST].pop(0, {})) for part, entries in slot.items()]
        for _, part, entries in found:
            self._sizes[part] -= len(entries) // 2
        for key in self._begun(0, tick):
            for part, entries in self._levels[0].pop(key).items():
                self._sizes[part] -= len(entries) // 2
                found.append((key, part, entries))
        return sorted(found, key=lambda one: one[0])

    def early(self, wall_us: int) -> list[tuple[int, int, "array[int]"]]:
        """As `advance`: of the tick that ends next what is due, if it has few messages."""
        tick, found = wall_us // TICK_US + 1, list[tuple[int, int, "array[int]"]]()
        if self.next_step(tick) > wall_us:
            return found
        slot = self._levels[0][tick]
        for part, entries in list(slot.items()):
            due = array("Q", [number for pair in pairs(entries) if pair[1] <= wall_us for number in pair])
            if due:
                found.append((tick, part, due))
                self._sizes[part] -= len(due) // 2
                slot[part] = array("Q", [number for pair in pairs(entries) if pair[1] > wall_us for number in pair])
                if not slot[part]:
                    del slot[part]
        if not slot:
            del self._levels[0][tick]
        return found

    def next_step(self, tick: int) -> int:
        """When the first of that tick's messages come, or whatever begins with it does, microseconds."""
        slot = self._levels[0].get(tick, {})
        if not 0 < sum(map(len, slot.values())) <= 2 * FEW:
            return tick * TICK_US
        return min(-(-min(entries[1::2]) // STEP_US) * STEP_US for entries in slot.values())

    def _begun(self, level: int, tick: int) -> list[int]:
        shift = SHIFTS[level]
        return sorted(key for key in self._levels[level] if key << shift <= tick)

    def next_tick(self) -> int | None:
        """When to advance next: something is due, or a slot begins."""
        if self._levels[PAST]:
            return self.now
        return min((min(slots) << shift for slots, shift in zip(self._levels, SHIFTS) if slots), default=None)

    # -- upkeep ------------------------------------------------------------------------------

    def prepare(self, budget: int) -> bool:
        """Split up to `budget` messages of slots that begin soon; True when there are more."""
        for level in (1, 2, 3):
            until = self.now + AHEAD[level]
            for key in self._begun(level, until):
                budget = self.refine(level, key, budget)
                if budget <= 0:
                    return True
        return False

    def refine(self, level: int, key: int, budget: int) -> int:
        """Move up to `budget` messages of a slot into finer ones; what is left of the budget."""
        slot = self._levels[level][key]
        for part in list(slot):
            entries = slot[part]
            count = min(len(entries) // 2, budget)
            if count <= 0:
                break
            self._place(part, entries[-2 * count:], level - 1)
            del entries[-2 * count:]
            budget -= count
            if not entries:
                del slot[part]
        if not slot:
            del self._levels[level][key]
        return budget

    def drop(self, part: int) -> None:
        """Forget all of a part."""
        self._sizes.pop(part, None)
        for slots in self._levels:
            for key in [key for key, slot in slots.items() if part in slot]:
                del slots[key][part]
                if not slots[key]:
                    del slots[key]

    def sweep(self, part: int, keep: BitMap64) -> None:
        """Take out messages of a part whose offset is not in `keep`."""
        kept = 0
        for slots in self._levels:
            for slot in slots.values():
                if part in slot:
                    entries = slot[part]
                    slot[part] = array("Q", [n for offset, due in pairs(entries) if offset in keep for n in (offset, due)])
                    kept += len(slot[part]) // 2
        self._sizes[part] = kept

    # -- looking ---------------------------------------------------------------------------------

    def places(self, parts: Iterable[int]) -> list[Place]:
        """The slots that hold something of these parts, by their start. They may overlap."""
        wanted = frozenset(parts)
        found = [Place(key << shift, (key + 1) << shift, level, key)
                 for level, (slots, shift) in enumerate(zip(self._levels, SHIFTS))
                 for key, slot in slots.items() if not wanted.isdisjoint(slot)]
        found += [Place(0, EVER, PAST, 0) for slot in self._levels[PAST].values() if not wanted.isdisjoint(slot)]
        return sorted(found)

    def entries(self, place: Place, part: int) -> "array[int]":
        """[offset, due us, ...] of a part in a slot. Not to be changed."""
        return self._levels[place.level].get(place.key, {}).get(part) or array("Q")

    def all_of(self, part: int) -> list["array[int]"]:
        """Copies of all entries of a part."""
        return [slot[part][:] for slots in self._levels for slot in slots.values() if part in slot]


def pairs(entries: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(offset, due) of each."""
    numbers = iter(entries)
    return zip(numbers, numbers)

"""What a Fetch answers for one partition: bytes by offset or by ranges, and what in them is hidden.

Owns no state. Everything that leaves was CRC-checked here; a damaged record ends the bytes before it, and is told as Corrupt with
file and position when it is the one asked for (by offset) or as the status of its range.
"""

from array import array
from collections.abc import Sequence

from gq_logd.partition import Partition
from gq_logd.segments import Damaged
from gq_proto import ranges as rng
from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.limits import PRIORITIES
from gq_proto.messages import Fetch, Fetched, FetchPart, Isolation, RangeStatus
from gq_proto.runs import ALL_LANES
from gq_proto.segment import RUN_ENTRY, Derived

Bytes = bytes | memoryview
LANE_RANGES = 2_048             # of one priority, read in one go: so many at most,
LANE_RANGES_MIN = 256           # and so many at least are looked for
RUNS_LOOKED_AT_MAX = 262_144    # of others, before somebody else has his turn
NOTHING: Bytes = b""


def failed(partition: Partition | None, error: GoQueueError) -> Fetched:
    """The answer for a part that cannot be served."""
    fetched = Fetched(error.code, error.message)
    if partition:
        _limits(fetched, partition)
    if isinstance(error, Damaged):
        fetched.next_offset = error.next_offset
    return fetched


def by_offset(partition: Partition, offset: int, max_bytes: int, isolation: int, include_delayed: bool) -> tuple[Fetched, Bytes]:
    """Whole records from `offset` on, as far as the segment and max_bytes go, but one at least if there is one."""
    partition.check_offset(offset)
    limit = partition.limit(isolation)
    fetched = empty(partition, offset)
    if offset >= limit:
        return fetched, b""
    part = partition.log.find(offset)
    low = offset
    if offset >= part.next_offset:          # lost at a power loss, and never given out again
        part = partition.log.find(partition.log.behind(part))
        low = part.base
    if low < limit:
        data, fetched.next_offset = part.read(low, limit, max_bytes)
        _hide(fetched, partition, low, fetched.next_offset, isolation, include_delayed)
    else:
        data, fetched.next_offset = memoryview(b""), low
    partition.stats.bytes_consumed += len(data)
    return fetched, data


def by_lane(partition: Partition, offset: int, lane: int, max_bytes: int, isolation: int) -> tuple[Fetched, Bytes]:
    """Records of one priority from `offset` on that are as they lie, as far as the segment and max_bytes go. Those of it that were
    aborted are hidden, not left out."""
    if not 0 <= lane < PRIORITIES:
        raise BadRequest(f"lane {lane} is none: use 0-4, or -1 for all")
    partition.check_offset(offset)
    limit = partition.limit(isolation)
    ranges, following = lane_within(partition, offset, limit, lane, _about(partition, offset, max_bytes))
    fetched = empty(partition, following)
    if not ranges:
        return fetched, NOTHING
    part = partition.log.find(ranges[0])
    data, found, _ = part.gather(ranges, max_bytes)
    if not found:
        part.read(ranges[0], limit, 1)           # says what is wrong with it
    if found != ranges and rng.count(found) < rng.count(ranges):
        fetched.next_offset = found[-2] + found[-1] if found else ranges[0]
    if isolation == Isolation.READ_COMMITTED:
        fetched.hidden = partition.transactions.aborted_within(part.base, fetched.next_offset)
    partition.stats.bytes_consumed += len(data)
    return fetched, data


def _about(partition: Partition, offset: int, max_bytes: int) -> int:
    """Ranges to look for: as many as there may be records in max_bytes, going by the mean size there; small ones of one priority
    may lie among large ones."""
    part = partition.log.find(offset)
    records = part.next_offset - part.base
    return min(LANE_RANGES, max(LANE_RANGES_MIN, max_bytes * records // max(part.size, 1)))


def lane_within(partition: Partition, offset: int, limit: int, lane: int, most: int) -> tuple["array[int]", int]:
    """(ranges of the priority's first records in [offset, limit), `most` at most and of one segment; where to go on). Without any
    it goes on where none was found; a part is looked at in one go."""
    looked = 0
    while offset < limit and looked < RUNS_LOOKED_AT_MAX:
        part = partition.log.find(offset)
        if offset >= part.next_offset:
            offset = partition.log.behind(part)
            continue
        ranges, following = part.lane(offset, min(limit, part.next_offset), lane, most)
        if ranges:
            return ranges, following
        looked += len(part.packed(Derived.RUNS)) // RUN_ENTRY.size
        offset = following if following > offset else part.next_offset
    return array("q"), min(offset, limit)


def by_ranges(partition: Partition, ranges: Sequence[int], max_bytes: int, isolation: int,
              include_delayed: bool) -> tuple[Fetched, Bytes]:
    """Exactly these ranges, as many as fit into max_bytes: `covered` of them were answered."""
    if not ranges:
        raise BadRequest("a fetch names an offset or at least one range")
    rng.check_ranges(ranges)
    limit = partition.limit(isolation)
    fetched = _limits(Fetched(0), partition)
    wanted = rng.inside(ranges, partition.log.start, limit)
    pieces: list[Bytes] = []
    found: Sequence[int] = []
    damaged: list[int] = []
    left = max_bytes
    for part in partition.log.walk(wanted[0], wanted[-2] + wanted[-1]) if wanted else ():
        inside = rng.inside(wanted, part.base, part.next_offset)
        if inside and left > 0:
            data, got, bad = part.gather(inside, left)
            pieces.append(data)
            found = rng.union(found, got) if found else got
            damaged = rng.union(damaged, bad) if bad else damaged
            left -= len(data)
    whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    _judge(fetched, partition, ranges, limit, found, damaged)
    if found:
        _hide(fetched, partition, found[0], found[-2] + found[-1], isolation, include_delayed)
    partition.stats.bytes_consumed += len(whole)
    return fetched, whole


def part_of(partition: Partition, part: FetchPart, left: int, body: Fetch) -> tuple[Fetched, Bytes]:
    """One part of a Fetch; errors of the partition become its answer. `left`: bytes the whole reply may still grow by."""
    try:
        partition.check_epoch(part.epoch)
        max_bytes = min(part.max_bytes, left)
        if part.offset < 0:
            return by_ranges(partition, part.ranges, max_bytes, body.isolation, body.include_delayed)
        if max_bytes <= 0:
            return empty(partition, part.offset), b""
        if part.lane != ALL_LANES:
            return by_lane(partition, part.offset, part.lane, max_bytes, body.isolation)
        return by_offset(partition, part.offset, max_bytes, body.isolation, body.include_delayed)
    except GoQueueError as e:
        return failed(partition, e), b""
    except OSError as e:
        return failed(partition, partition.judge(e)), b""


def empty(partition: Partition, offset: int) -> Fetched:
    """Nothing this time: the reader asks again."""
    fetched = _limits(Fetched(0), partition)
    fetched.next_offset = offset
    return fetched


def _limits(fetched: Fetched, partition: Partition) -> Fetched:
    fetched.epoch, fetched.log_start = partition.epoch, partition.log.start
    fetched.high_watermark, fetched.last_stable = partition.high_watermark, partition.last_stable
    return fetched


def _hide(fetched: Fetched, partition: Partition, low: int, high: int, isolation: int, include_delayed: bool) -> None:
    if partition.may_hide(low, high):
        fetched.hidden = partition.hidden(low, high, isolation, include_delayed)


def _judge(fetched: Fetched, partition: Partition, ranges: Sequence[int], limit: int, found: Sequence[int],
           damaged: Sequence[int]) -> None:
    """A status per range, and how far the answer goes. One pass: ranges, and what was found, ascend."""
    if rng.count(found) == rng.count(ranges):
        fetched.status, fetched.covered = [RangeStatus.OK] * (len(ranges) // 2), len(ranges) // 2
        fetched.next_offset = ranges[-2] + ranges[-1]
        return
    start = partition.log.start
    lost = partition.log.lost_within(ranges[0], ranges[-2] + ranges[-1])
    there = rng.union(rng.union(found, damaged), lost)
    whole, at = True, 0
    for low, high in rng.pairs(ranges):
        while at < len(there) and there[at] + there[at + 1] <= low:
            at += 2
        end = at
        while end < len(there) and there[end] < high:
            end += 2
        inside, answered = rng.clip([low, high - low], start, limit), rng.clip(there[at:end], low, high)
        if low < start or (lost and not rng.subtract(inside, lost) and inside):
            status = RangeStatus.GONE
        elif high > limit:
            status = RangeStatus.NOT_YET
        else:
            status = RangeStatus.CORRUPT if damaged and rng.clip(damaged, low, high) else RangeStatus.OK
        fetched.status.append(status)
        if not whole:
            continue
        whole = answered == inside
        if whole or answered:
            fetched.covered += 1
            fetched.next_offset = high if whole else answered[-2] + answered[-1]

"""Questions about one partition that change nothing: Runs, Due, OffsetForTime, EndOfEpoch; and sizes of all.

Owns no state. A question that would have to look at very much answers a part of it: next_offset says where to go on.
"""

from array import array
from operator import add
from typing import Final

from gq_logd.partition import Partition
from gq_logd.reading import RUNS_LOOKED_AT_MAX, lane_within
from gq_proto import codec, control, messages
from gq_proto import ranges as rng
from gq_proto import record as rec
from gq_proto.errors import BadRequest
from gq_proto.limits import PRIORITIES, PRIORITY_DEFAULT, RUNS_MAX
from gq_proto.runs import CONTROL_KIND, NO_LANES, clip, triples
from gq_proto.runs import controls as controls_in
from gq_proto.segment import Derived, due_within

NO_RANGES: Final = array("q")
CONTROLS_ONLY: Final = 7                 # a lane that no record is of
DUE_MAX: Final = 100_000
CONTROLS_MAX: Final = 1_024              # in one reply,
CONTROLS_BYTES_MAX: Final = 32_768       # and of their bodies, but one is always told
CONTROLS_READ: Final = 64                # at once


def runs(partition: Partition, asked: messages.Runs) -> messages.RunsReply:
    """OffsetOutOfRange above the end; below the log start it begins there."""
    if asked.lane not in range(NO_LANES, PRIORITIES):
        raise BadRequest(f"lane {asked.lane} is none: use 0-4, -1 for all, or -2 for all without their lanes")
    limit = max(min(asked.limit, RUNS_MAX), 1)
    offset = max(asked.offset, partition.log.start)
    partition.check_offset(offset)
    end = partition.last_stable
    ranges = NO_RANGES
    if asked.lane < 0 or not asked.packed:
        found, following = _collect(partition, offset, end, asked.lane, limit)
    else:
        ranges, following = lane_within(partition, offset, end, asked.lane, limit)
        found, following = _collect(partition, offset, following, CONTROLS_ONLY, limit)
    found, following, controls = _with_controls(partition, found, offset, following)
    counts = _counts(partition, offset, following) if asked.lane == NO_LANES else []
    if ranges and ranges[-2] + ranges[-1] > following:
        ranges = array("q", rng.clip(ranges, offset, following))
    return messages.RunsReply(found, following, partition.log.start, partition.high_watermark, end, partition.epoch, controls,
                              partition.transactions.aborted_within(offset, following), counts, rng.pack(ranges))


def _counts(partition: Partition, low: int, high: int) -> list[int]:
    counts = [0] * PRIORITIES
    for part in partition.log.walk(low, high) if low < high else ():
        counts = list(map(add, counts, codec.lane_counts(part.packed(Derived.RUNS), part.base, low, high)))
    return counts


def _collect(partition: Partition, offset: int, end: int, lane: int, limit: int) -> tuple[list[int], int]:
    """(runs, where to go on) over as many segments as it takes."""
    found: list[int] = []
    looked = 0
    while offset < end:
        part = partition.log.find(offset)
        if offset >= part.next_offset:
            offset = partition.log.behind(part)
            continue
        if lane == CONTROLS_ONLY and not part.flags & rec.CONTROL:
            offset = min(end, part.next_offset)
            continue
        got, following = part.runs(offset, min(end, part.next_offset), lane, limit - len(found) // 3)
        found += got
        looked += len(part.packed(Derived.RUNS)) // 9
        offset = following if following > offset else part.next_offset
        if len(found) >= 3 * limit or looked >= RUNS_LOOKED_AT_MAX:
            break
    return found, min(offset, end) if found or offset < end else end


def _with_controls(partition: Partition, found: list[int], low: int, high: int) -> tuple[list[int], int, list[messages.Control]]:
    """The bodies of the control records among the runs; fewer runs when they are too many, or too long."""
    if not any(kind & CONTROL_KIND for kind in set(found[2::3])):
        return found, high, []
    wanted = controls_in(found)
    controls, cut = _controls_of(partition, wanted)
    if cut < high and cut < wanted[-2] + wanted[-1]:
        found, high = clip(found, 0, cut), cut
    return found, high, tell_lanes(partition, controls)


def _controls_of(partition: Partition, wanted: list[int]) -> tuple[list[messages.Control], int]:
    """(the first of these control records, where the rest begins). Who asks has room for a few ready records at a time: to read,
    tell and take in all that follow would cost the square of them."""
    recent = partition.recent_controls(wanted[0], wanted[-2] + wanted[-1])
    found: list[messages.Control] = []
    size = 0
    for low, high in rng.pairs(wanted):
        for start in range(low, high, CONTROLS_READ):
            end = min(start + CONTROLS_READ, high)
            if recent is None:
                read = partition.read_controls([start, end - start])
            else:
                read = [record for record in recent if start <= record.offset < end]
            for record in read:
                size += len(record.body)
                if found and (size > CONTROLS_BYTES_MAX or len(found) >= CONTROLS_MAX):
                    return found, record.offset
                found.append(record)
    return found, wanted[-2] + wanted[-1]


def tell_lanes(partition: Partition, controls: list[messages.Control]) -> list[messages.Control]:
    """Of delay-ready records, which lanes the messages are of that they name; it stays with those in memory."""
    for record in controls:
        if record.type == control.ControlType.DELAY_READY and not record.lanes:
            named = control.decode_body(record.type, record.body)
            assert isinstance(named, list)
            record.lanes = _lanes_of(partition, rng.normal(rng.pairs(named)))
    return controls


def _lanes_of(partition: Partition, named: list[int]) -> list[int]:
    """Messages that are gone count as normal ones: whoever fetches them is told."""
    found: list[int] = []
    for part in partition.log.walk(named[0], named[-2] + named[-1]) if named else ():
        found += codec.lanes_within(part.packed(Derived.RUNS), part.base, named)
    if sum(found[1::3]) < rng.count(named):
        gone = rng.subtract(named, rng.normal((low, low + n) for low, n, _ in triples(found)))
        found += [number for low, end in rng.pairs(gone) for number in (low, end - low, PRIORITY_DEFAULT)]
        found = [number for piece in sorted(triples(found)) for number in piece]
    return found


def due(partition: Partition, asked: messages.Due) -> messages.DueReply:
    """Delayed records from an offset on, and the control records among them that decide about delays."""
    limit = max(min(asked.limit, DUE_MAX), 1)
    offset = max(asked.offset, partition.log.start)
    partition.check_offset(offset)
    end, found = partition.last_stable, list[int]()
    following = end
    for part in partition.log.walk(offset, end):
        if part.flags & rec.DELAYED:
            found += due_within(part.packed(Derived.DUE), offset, end, limit + 1 - len(found) // 2)
            if len(found) > 2 * limit:
                following = found[2 * limit]
                del found[2 * limit:]
                break
    controls = [c for c in partition.controls_within(offset, following) if c.type in (3, 4)]
    return messages.DueReply(found, following, controls, partition.epoch)


def offset_for_time(partition: Partition, asked: messages.OffsetForTime) -> messages.OffsetForTimeReply:
    """The first visible record at or after a time; the high watermark when there is none."""
    mark = partition.high_watermark
    for part in partition.log.walk(partition.log.start, mark):
        if part.newest_us < asked.timestamp_us:
            continue
        found = part.first_at(asked.timestamp_us, partition.log.start)
        if found and found[0] < mark:
            return messages.OffsetForTimeReply(*found)
    return messages.OffsetForTimeReply(mark, 0)


def end_of_epoch(partition: Partition, asked: messages.EndOfEpoch) -> messages.EndOfEpochReply:
    """What was lost at its end was never of that epoch."""
    epoch, end = partition.epochs.end_of(asked.of, partition.log.end)
    end = min(end, partition.log.end)
    lost = partition.log.lost_within(max(end - 1, 0), end) and partition.log.lost_within(partition.log.start, end)
    return messages.EndOfEpochReply(epoch, lost[-2] if lost else end)


def info(partition: Partition) -> messages.PartitionInfo:
    return messages.PartitionInfo(
        partition.topic_id, partition.topic, partition.number, partition.epoch, partition.leader, partition.online,
        partition.log.start, partition.high_watermark, partition.last_stable, partition.log.size_bytes,
        len(partition.log.segments), partition.problem)

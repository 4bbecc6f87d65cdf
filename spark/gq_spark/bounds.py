"""From where to where a partition is read: offsets out of earliest, latest, given offsets and times."""

from collections.abc import Iterable

from gq_proto.errors import BadRequest
from gq_spark.decided import replayed
from gq_spark.log import Log
from gq_spark.loss import lost
from gq_spark.options import EARLIEST, LATEST, Offsets, Options


def end_of(log: Log, committed: bool) -> int:
    """Behind what may be read. Committed: what the checkpoint vouches for, the high watermark and the last stable offset. Else,
    without a checkpoint, or when the log is shorter than that, behind the last complete valid record."""
    mark = log.place.mark
    if not log.segments:
        return log.start
    if committed and mark:
        limit = min(mark.high_watermark, mark.last_stable)
        if limit <= log.segments[-1].base or limit <= log.valid_end:
            return limit
    end = log.valid_end         # what was cut off may have been the end of a transaction
    if committed:
        open_from = replayed(log, end).open_from
        return open_from if open_from >= 0 else end
    return end


def check_named(options: Options, known: Iterable[tuple[str, int]]) -> None:
    """BadRequest when the options have offsets of another topic or partition than the `known`."""
    there = set(known)
    for option, offsets in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        named = () if isinstance(offsets, int) else ((topic, number) for topic, numbers in offsets.items() for number in numbers)
        for topic, number in named:
            if (topic, number) not in there:
                raise BadRequest(f"option {option} names {topic}/{number}: there is no such partition among what is read")


def start_in(log: Log, options: Options, end: int) -> int:
    """Where a reader begins; DataLoss for an offset that is gone."""
    if options.starting_us is not None:
        return log.first_at(options.starting_us, end)
    low = _given(options.starting, log, end, EARLIEST)
    if low < log.start:
        lost(options.fail_on_data_loss, f"{log.place.name}: offsets {low}-{log.start - 1} were asked for and are gone")
    return max(low, log.start)


def end_in(log: Log, options: Options, end: int) -> int:
    """Where a batch ends."""
    if options.ending_us is not None:
        return log.first_at(options.ending_us, end)
    return min(_given(options.ending, log, end, LATEST), end)


def _given(offsets: Offsets, log: Log, end: int, default: int) -> int:
    said = offsets if isinstance(offsets, int) else offsets.get(log.place.topic, {}).get(log.place.number, default)
    return log.start if said == EARLIEST else end if said == LATEST else said

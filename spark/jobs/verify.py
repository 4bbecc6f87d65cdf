"""verify: every record's CRC and all offsets in sequence, in parallel.

What `gqctl log verify` does and prints, on all cores or all executors. Exit code 1 on damage, with file and position on stderr.
"""

from collections.abc import Sequence
from pathlib import Path

from gq_ctl.log import report
from gq_ctl.output import Output
from gq_ctl.verify import Found, joined, places, small_files, verify_segment
from gq_spark.jobs import job


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row for each partition. Quiet(1) on damage, Failed when there is no log."""
    args = job.Parser(__doc__).parse_args(argv)
    found = [place for path in args.path.split(",") for place in places(Path(path))]
    small = [small_files(place) for place in found]          # before the segments: a daemon may be appending
    work = [(number, str(path), path == place.segments[-1]) for number, place in enumerate(found) for path in place.segments]
    judged: list[list[Found]] = [[] for _ in found]
    for number, segment in _judge(work):
        judged[number].append(segment)
    whole = (joined(*one) for one in zip(found, small, judged))
    report(Output(args.output), args.path, zip(found, whole))


def _judge(work: list[tuple[int, str, bool]]) -> list[tuple[int, Found]]:
    """In the order of `work`, one task a segment."""
    if not work:
        return []
    tasks = job.session().sparkContext.parallelize(work, len(work))
    return tasks.map(lambda one: (one[0], verify_segment(Path(one[1]), one[2]))).collect()


if __name__ == "__main__":
    job.run(main)

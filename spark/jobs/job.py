"""What the jobs share: the command line, the session, what is read, and how an error becomes one line and an exit code."""

import argparse
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gq_ctl import app, units
from gq_ctl.output import FORMS, Output, say
from gq_proto import errors
from gq_run import paths

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OURS: Final = re.compile(r"^gq_\w+(?:\.\w+)*\.(\w+): (.*)$", re.MULTILINE)
JAVAS: Final = re.compile(r"^An error occurred while calling .*\n: ")


class Parser(argparse.ArgumentParser):
    """`doc`: the job's module text, its name in front. A mistake is one line and exit code 2, as gqctl's."""

    def __init__(self, doc: str | None, topics: str = "") -> None:
        name, _, text = (doc or "").partition(": ")
        super().__init__(f"gqctl spark {name}", description=text[:1].upper() + text[1:],
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("--path", "--data-dir", default=paths.default_data_dir(), metavar="DIR",
                          help="data directory, or several with commas between (default: the node's, %(default)s)")
        self.add_argument("-o", "--output", choices=FORMS, default="table" if os.isatty(1) else "json",
                          help="form of what is printed (default: table on a terminal, json in a pipe)")
        if topics == REQUIRED:
            self.add_argument("--topic", required=True, help="name, several with commas between, or pattern")
        elif topics:
            self.add_argument("--topic", default=topics, help=f"name, several with commas between, or pattern (default: {topics})")

    def times(self) -> "Parser":
        """With --from and --to."""
        self.add_argument("--from", dest="low", type=_time, metavar="TIME", help="first moment: RFC 3339, Unix seconds, or -1h")
        self.add_argument("--to", dest="high", type=_time, metavar="TIME", help="up to this moment, exclusive")
        return self

    def error(self, message: str) -> NoReturn:
        say(f"{message} (see {self.prog} --help)")
        raise SystemExit(app.USAGE)


REQUIRED: Final = "?"


def _time(text: str) -> str:
    """As the source's options take it."""
    try:
        us = units.time_us(text, time.time_ns() // 1000)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return f"{us // 1_000_000}.{us % 1_000_000:06}"


def duration(text: str) -> int:
    """Milliseconds, for argparse."""
    try:
        found = units.duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not found:
        raise argparse.ArgumentTypeError("give a duration above 0")
    return found


def session() -> "SparkSession":
    """The running session, or a new one; it knows the format."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    import gq_spark
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)     # a page of JSON; the error says it in a line
    spark = SparkSession.builder.appName("goqueue").getOrCreate()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")     # the source's option pushFilters wants it
    gq_spark.register(spark)
    return spark


def size_of_row() -> "Column":
    """Bytes of key and value."""
    from pyspark.sql import functions as F
    return F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))


def read(args: argparse.Namespace, **options: str) -> "DataFrame":
    """The rows that --path, --topic, --from and --to name."""
    times = {"startingTimestamp": getattr(args, "low", None), "endingTimestamp": getattr(args, "high", None)}
    given = {name: value for name, value in times.items() if value is not None}
    return session().read.format("goqueue").options(topic=args.topic, **given, **options).load(args.path)


def show(args: argparse.Namespace, rows: list[dict[str, Any]], value: str, empty: str) -> None:
    """Rows as gqctl prints them; `*_us` are times for people in a table."""
    shown: dict[str, Callable[[Any], str]] = {"bytes": units.show_size, "share": "{:.1%}".format}
    if args.output != "value":
        rows = [{name.removesuffix("_us"): units.show_time(field) if name.endswith("_us") else field for name, field in row.items()}
                for row in rows]
    Output(args.output).rows(rows, value, shown, empty)


def run(main: Callable[[Sequence[str]], None]) -> NoReturn:
    """The script's end: main(command line), and its exit code."""
    try:
        main(sys.argv[1:])
        code = 0
    except errors.GoQueueError as error:
        code = _told(error)
    except app.Failed as error:
        say(str(error))
        code = error.code
    except app.Quiet as error:
        code = error.code
    except KeyboardInterrupt:
        code = app.INTERRUPTED
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        code = _told(of_spark(error))
    sys.exit(code)


def _told(error: errors.GoQueueError) -> int:
    say(app.one_line(error.message))
    return app.exit_code(error)


def of_spark(error: Exception) -> errors.GoQueueError:
    """The error of ours that Spark wraps in pages of traces; else one with the first line of Spark's own."""
    found = OURS.findall(str(error))
    kind = getattr(errors, found[-1][0], None) if found else None
    if isinstance(kind, type) and issubclass(kind, errors.GoQueueError):
        return kind(found[-1][1])
    if "JAVA_GATEWAY_EXITED" in str(error):
        return errors.Internal("Spark did not start, for the reason above: it needs Java 17, and --master as spark-submit has it")
    return errors.Internal(JAVAS.sub("", str(error)).strip().partition("\n")[0])

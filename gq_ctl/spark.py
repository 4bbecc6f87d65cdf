"""`gqctl spark JOB ...`: jobs over the log files with Spark. They are in gq_spark.jobs, each with a command line of its own.

Owns JOBS, finding PySpark and Java, and what a job's process is told. gqctl becomes that process: exit code and signals are the
job's.
"""

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from gq_ctl.app import Failed, Group, settings

JOBS: Final = {
    "export": "Messages to Parquet by date and topic, each of them once.",
    "traffic": "Messages, bytes and keys of each topic per window of time.",
    "dlq": "What groups gave up on, and why, per window of time.",
    "keys": "The heaviest keys, and how even a topic's partitions are.",
    "verify": "Every record's CRC and all offsets in sequence, in parallel.",
    "replay": "What fits a SQL expression, published to another topic.",
}
HELP: Final = ("-h", "--help")


def _pairs(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for one in given:
        if not one.partition("=")[0] or "=" not in one:
            raise click.BadParameter(f"{one!r} is no setting: write NAME=VALUE, as spark.driver.memory=4g")
    return given


@click.group("spark", cls=Group)
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Where Spark runs: here, or a cluster.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", callback=_pairs,
              help="A setting, spark.driver.memory=4g say; may be repeated.")
@click.pass_context
def spark_command(ctx: click.Context, master: str, conf: tuple[str, ...]) -> None:
    """Run jobs over the log files with Spark; only replay needs daemons.

    They read the data directory where it lies, a node may run on it or not. `gqctl spark JOB --help` tells what a job takes. Needs
    the extra: pip install 'goqueue[spark]', and Java 17.
    """
    told = ["--master", master, "--conf", f"spark.ui.showConsoleProgress={str(os.isatty(2)).lower()}"]
    ctx.meta["submit"] = shlex.join([*told, *(word for one in conf for word in ("--conf", one)), "pyspark-shell"])
    ctx.meta["local"] = master.startswith("local")


def _job(name: str, text: str) -> click.Command:
    """Takes whatever follows, --help too: it is the job's."""

    @click.command(name, help=f"{text}\n\n`gqctl spark {name} --help` tells what it takes.",
                   add_help_option=False, options_metavar="",
                   context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="...")
    @click.pass_context
    def job(ctx: click.Context, arguments: tuple[str, ...]) -> None:
        if not set(HELP) & set(arguments):
            _check()
        form = settings().form
        command = [sys.executable, "-P", "-m", f"gq_spark.jobs.{name}", *(["-o", form] if form else []), *arguments]
        os.execve(sys.executable, command, _environment(ctx.meta))

    return job


for _name, _text in JOBS.items():
    spark_command.add_command(_job(_name, _text))


def _check() -> None:
    """Failed, with how to get it, when what Spark needs is not there."""
    if not find_spec("pyspark") or not find_spec("pyarrow"):
        raise Failed(f"PySpark is not installed: {sys.executable} -m pip install 'goqueue[spark]'")
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise Failed(f"JAVA_HOME is {home}, where there is no bin/java: set it to a Java 17, or unset it")
    if not home and not shutil.which("java"):
        raise Failed("Spark needs Java 17: apt-get install openjdk-17-jre-headless, or set JAVA_HOME")


def _environment(meta: dict[str, Any]) -> dict[str, str]:
    """The worker's Python is this one, unless the workers are elsewhere and somebody said what is there."""
    spec = find_spec("gq_spark")
    if spec is None or not spec.submodule_search_locations:
        raise Failed("gq_spark is not installed: install goqueue anew (in a checkout: bin/setup)")
    told = {"PYSPARK_SUBMIT_ARGS": meta["submit"], "GOQUEUE_DATA_DIR": settings().local()}
    told |= {"PYSPARK_PYTHON": sys.executable} if meta["local"] else {}
    likely = {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(Path(spec.submodule_search_locations[0], "jobs", "conf"))}
    return {**likely, **os.environ, **told}

"""The tree of commands, the options all of them take, and how a failure becomes one line and an exit code.

Owns COMMANDS: name, module and one-line help of every top-level command. A module is imported when its command is asked for, so
`gqctl --help` costs little. `--data-dir`, `--server`, `--gateway` and `-o` are accepted at every level; the innermost wins.

    0 ok · 1 the operation failed · 2 usage · 3 cannot reach a daemon · 4 not found · 124 timed out
    130 interrupted · 141 stdout was closed · 143 terminated
"""

import os
import signal
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import click

from gq_ctl.output import FORMS, Output, StdoutClosed, say
from gq_proto import __version__, errors

if TYPE_CHECKING:
    from gq_client import Client

FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143
METAD_PORT: Final = 7400
GATEWAY: Final = {"url": "GOQUEUE_GATEWAY", "key": "GOQUEUE_KEY", "ca": "GOQUEUE_GATEWAY_CA", "cert": "GOQUEUE_GATEWAY_CERT"}

SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "The node": {
        "up": ("node", "Start the daemons and wait until all are ready."),
        "down": ("node", "Stop the daemons and wait until all have ended."),
        "restart": ("node", "Stop and start all daemons, or the named ones."),
        "status": ("node", "Show each daemon: pid, uptime, health, codec, version."),
        "topic": ("topic", "Create, list, describe, alter, purge and delete topics."),
        "key": ("key", "Make, list and revoke API keys."),
    },
    "Messages": {
        "publish": ("publish", "Publish messages to a topic."),
        "consume": ("consume", "Read messages of a topic, alone or as a member of a group."),
        "ack": ("receipts", "Mark messages as done, by receipt."),
        "nack": ("receipts", "Give messages back as failed, by receipt."),
        "reject": ("receipts", "Send messages to the dead letter queue, by receipt."),
        "extend": ("receipts", "Keep messages for longer, by receipt."),
        "release": ("receipts", "Give messages back uncounted, by receipt."),
        "replay": ("replay", "Publish old messages again, or rewind a group."),
        "delayed": ("delayed", "List, cancel and count messages that wait for their time."),
    },
    "Groups": {
        "group": ("group", "List, describe, reset, pause and delete consumer groups."),
        "dlq": ("dlq", "List, look at, redrive and purge dead letters."),
        "priority": ("priority", "Show how the priorities of each partition fill and drain."),
    },
    "Files and figures": {
        "log": ("log", "Dump and verify log files; no daemon needed."),
        "bench": ("benchmark", "Measure publish, latency, read, queue and end to end."),
        "spark": ("spark", "Run jobs over the log files with Spark: export, reports, replay."),
    },
    "The shell": {
        "completion": ("completion", "Print the completion script for a shell."),
        "manual": ("manual", "Write man pages into a folder."),
    },
}
COMMANDS: Final = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Failed(Exception):
    """The operation failed: one line, and the exit code to leave with."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class Quiet(Exception):
    """Everything was said already: leave with `code`."""

    def __init__(self, code: int) -> None:
        self.code = code


class Terminated(BaseException):
    """SIGTERM or SIGHUP: clean up as Ctrl-C would."""


class Settings:
    """What the common options said; each None until one does. Use the methods, they know the environment."""

    def __init__(self) -> None:
        self.data_dir: str | None = None
        self.server: str | None = None
        self.gateway: str | None = None
        self.gateway_key: str | None = None
        self.gateway_ca: str | None = None
        self.gateway_cert: str | None = None
        self.form: str | None = None

    def output(self) -> Output:
        return Output(self.form or ("table" if os.isatty(1) else "json"))

    def remote(self) -> dict[str, str]:
        """What remote.Remote takes, by the names of GATEWAY; {} when the node is meant itself."""
        given = {"url": self.gateway, "key": self.gateway_key, "ca": self.gateway_ca, "cert": self.gateway_cert}
        found = {name: given[name] or os.environ.get(variable, "") for name, variable in GATEWAY.items()}
        if self.data_dir is None and self.server is None and found["url"]:
            return found
        if self.gateway:
            raise click.UsageError("--gateway goes without --data-dir and --server: give one")
        return {}

    def environment(self) -> dict[str, str]:
        """The variables that make a gqctl in a command's command find the same node."""
        if remote := self.remote():
            return {GATEWAY[name]: value for name, value in remote.items() if value}
        data_dir, server = self.node()
        return {"GOQUEUE_SERVER": server} if server else {"GOQUEUE_DATA_DIR": data_dir}

    def node(self) -> tuple[str, str]:
        """(data directory, "") or ("", server): which node the user means."""
        if self.gateway:
            raise click.UsageError("this does not go through the gateway: use --server or --data-dir")
        if self.data_dir and self.server:
            raise click.UsageError("--data-dir and --server both name a node: give one")
        if self.data_dir is None and (server := self.server or os.environ.get("GOQUEUE_SERVER")):
            return "", ",".join(_with_port(one.strip()) for one in server.split(","))
        return self.directory(), ""

    def directory(self) -> str:
        """The data directory, absolute."""
        from gq_run import paths
        return os.path.abspath(self.data_dir or paths.default_data_dir())

    def local(self) -> str:
        """The data directory, for commands that only make sense on this machine."""
        if self.server or self.gateway:
            given = "--server" if self.server else "--gateway"
            raise click.UsageError(f"this command works on the node of a data directory: give --data-dir, not {given}")
        return self.directory()

    def client(self, **options: Any) -> "Client":
        """Connected lazily; Failed at once when plainly nothing runs there. Use as a context manager."""
        if remote := self.remote():
            from gq_ctl.remote import Remote
            return cast("Client", Remote(**remote, **options))
        from gq_ctl import line
        data_dir, server = self.node()
        if data_dir:
            line.check_up(data_dir)
        from gq_client import Client
        return Client(server=server, **options) if server else Client(data_dir=data_dir, **options)


def _with_port(server: str) -> str:
    """host:port as it is, a host alone with metad's port."""
    alone = ":" not in server or (server.startswith("[") and server.endswith("]"))
    return f"{server}:{METAD_PORT}" if alone else server


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        setattr(settings(ctx), param.name or "", value)


def settings(ctx: click.Context | None = None) -> Settings:
    return (ctx or click.get_current_context()).find_root().ensure_object(Settings)


def common() -> list[click.Parameter]:
    """Fresh objects each time: click ties a parameter to its command."""
    return [
        click.Option(["--data-dir", "data_dir"], metavar="DIR", expose_value=False, callback=_keep,
                     help="The node with this data directory (GOQUEUE_DATA_DIR)."),
        click.Option(["--server", "server"], metavar="HOST:PORT", expose_value=False, callback=_keep,
                     help="The node whose metad listens there (GOQUEUE_SERVER)."),
        click.Option(["--gateway", "gateway"], metavar="URL", expose_value=False, callback=_keep,
                     help="The node behind this gateway, by HTTP (GOQUEUE_GATEWAY)."),
        click.Option(["-o", "--output", "form"], type=click.Choice(FORMS), expose_value=False, callback=_keep,
                     help="Form of what is printed: table on a terminal, json in a pipe."),
    ]


class Command(click.Command):
    """A command with the common options behind its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 100})
        super().__init__(*args, **kwargs)
        self.params.extend(common())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """click's parser does not say of which command an option lacks its argument."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


class Group(Command, click.Group):
    """A family of commands."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With the whole first sentence of each: click cuts it to what fits in a line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(200)) for name in self.list_commands(ctx)
                                if (command := self.get_command(ctx, name))])


class Root(Group):
    """All commands, imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"gq_ctl.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """click knows only commands that are imported: what was meant is told here."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches
            close = get_close_matches(name, COMMANDS, 1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()])


@click.command(cls=Root, epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 no daemon there, 4 not found, 124 timed out.")
@click.option("--key", "gateway_key", metavar="KEY", expose_value=False, callback=_keep,
              help="The API key for --gateway (GOQUEUE_KEY).")
@click.option("--gateway-ca", metavar="FILE", expose_value=False, callback=_keep,
              help="Authorities (PEM) whose certificate the gateway may show, instead of the system's (GOQUEUE_GATEWAY_CA).")
@click.option("--gateway-cert", metavar="FILE", expose_value=False, callback=_keep,
              help="Certificate and key (PEM) to show to a gateway that wants one (GOQUEUE_GATEWAY_CERT).")
@click.version_option(__version__, prog_name="gqctl", message="%(prog)s %(version)s")
def root() -> None:
    """GoQueue from the shell: topics, messages, groups, and the daemons of a node.

    Durations are written 500ms 30s 5m 2h 7d, times 2026-05-01T12:00:00Z, Unix seconds or -1h.
    """


# -- running ---------------------------------------------------------------------------------

def exit_code(error: errors.GoQueueError) -> int:
    match error:
        case errors.NotFound(): return NOT_FOUND
        case errors.TimedOut(): return TIMED_OUT
        case errors.Unavailable(): return UNREACHABLE
        case errors.BadName() | errors.BadConfig(): return USAGE
    return FAILED


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; everything worth saying has been said."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGHUP, _terminate)
    try:
        code = root.main(argv, prog_name="gqctl", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except Quiet as e:
        return e.code
    except Failed as e:
        say(one_line(str(e)))
        return e.code
    except click.UsageError as e:
        if type(e).__name__ == "NoArgsIsHelpError":     # click >= 8.2
            click.echo(e.format_message(), err=True)
            return USAGE
        say(f"{one_line(e.format_message())} (see {e.ctx.command_path if e.ctx else 'gqctl'} --help)")
        return USAGE
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as e:
        say(one_line(e.format_message()))
        return e.exit_code
    except errors.GoQueueError as e:
        say(one_line(e.message))
        return exit_code(e)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except (StdoutClosed, BrokenPipeError):
        _drop_stdout()
        return BROKEN_PIPE
    except OSError as e:
        say(f"{e.filename}: {e.strerror}" if e.filename else one_line(str(e)))
        return FAILED


def one_line(text: str) -> str:
    return " ".join(text.split())


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def stdout_failed(error: OSError, code: int) -> int:
    """The exit code when the last of what click printed can't be written; said unless the command failed anyway."""
    _drop_stdout()
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if code == 0:
        say(f"stdout: {error.strerror}")
    return code or FAILED


def _drop_stdout() -> None:
    """What Python still holds for a pipe nobody reads would make it complain at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)

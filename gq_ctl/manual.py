"""Man pages, written from the help of every command: `gqctl manual DIR` makes gqctl.1, gqctl-publish.1, gqctl-topic-create.1 ...

Owns the roff. The text is that of --help, so the two can't drift apart.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import click

from gq_ctl.app import SECTIONS, Command, root, settings

EXIT_CODES = (("0", "ok"), ("1", "the operation failed"), ("2", "usage"), ("3", "cannot reach a daemon"), ("4", "not found"),
              ("124", "timed out"), ("130", "interrupted"), ("141", "stdout was closed"))
ENVIRONMENT = (("GOQUEUE_DATA_DIR", "the data directory of the node, unless --data-dir or --server says otherwise"),
               ("GOQUEUE_SERVER", "host:port of a node's metad"),
               ("GOQUEUE_RUNTIME_DIR", "where the sockets are"))


@click.command("manual", cls=Command)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def manual_command(directory: Path) -> None:
    """Write the man pages of all commands into DIRECTORY (say, ~/.local/share/man/man1)."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for names, command, ctx in _walk(("gqctl",), root, click.Context(root, info_name="gqctl")):
        path = directory / ("-".join(names) + ".1")
        path.write_text(page(names, command, ctx), encoding="utf-8")
        written.append({"page": str(path)})
    settings().output().rows(written, "page")


Found = tuple[tuple[str, ...], click.Command, click.Context]


def _walk(names: tuple[str, ...], command: click.Command, ctx: click.Context) -> Iterator[Found]:
    yield names, command, ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from _walk((*names, name), below, click.Context(below, info_name=name, parent=ctx))


def page(names: tuple[str, ...], command: click.Command, ctx: click.Context) -> str:
    """One man page in roff."""
    short = command.get_short_help_str(200).rstrip(".")
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [f'.TH "{"-".join(names).upper()}" "1" "" "GoQueue" "GoQueue manual"',
             ".SH NAME", f"{_text('-'.join(names))} \\- {_text(short)}",
             ".SH SYNOPSIS", f".B {_text(' '.join(names))}", _text(usage),
             ".SH DESCRIPTION", *_paragraphs(command.help or "")]
    options = [record for param in command.get_params(ctx) if (record := param.get_help_record(ctx))]
    lines += _definitions("OPTIONS", options)
    if command is root:
        for title, section in SECTIONS.items():
            lines += _definitions(title.upper(), [(f"gqctl {name}", text) for name, (_, text) in section.items()])
    elif isinstance(command, click.Group):
        lines += _definitions("COMMANDS", [(" ".join((*names, name)), command.commands[name].get_short_help_str(200))
                                           for name in command.list_commands(ctx)])
    lines += [*_definitions("EXIT STATUS", EXIT_CODES), *_definitions("ENVIRONMENT", ENVIRONMENT)]
    if names != ("gqctl",):
        lines += [".SH SEE ALSO", _text("-".join(names[:-1])) + "(1)"]
    return "\n".join(lines) + "\n"


def _definitions(title: str, pairs: object) -> list[str]:
    lines = [f'.SH "{title}"']
    for term, text in pairs:  # type: ignore[attr-defined]
        lines += [".TP", f".B {_text(term)}", _text(" ".join(text.split()))]
    return lines


def _paragraphs(text: str) -> list[str]:
    """\\b in help text keeps line breaks, as click has it."""
    lines: list[str] = []
    for paragraph in os.linesep.join(line.strip() if line.strip() != "\b" else "\b" for line in text.splitlines()).split("\n\n"):
        if paragraph.startswith("\b"):
            lines += [".PP", ".nf", *map(_text, paragraph.splitlines()[1:]), ".fi"]
        else:
            lines += [".PP", _text(" ".join(paragraph.split()))]
    return lines


def _text(text: str) -> str:
    """Text without meaning to roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text

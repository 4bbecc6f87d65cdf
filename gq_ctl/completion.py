"""Shell completion, and what can be completed: commands, options, and the names of topics and groups of the node.

click writes the scripts; they call gqctl back with _GQCTL_COMPLETE set. A node that is not there completes nothing, quietly.
"""

from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from gq_ctl.app import Command, root, settings
from gq_proto.names import is_internal

SHELLS: Final = ("bash", "zsh", "fish")
HOW: Final = """\b
  bash  gqctl completion bash > ~/.local/share/bash-completion/completions/gqctl
  zsh   gqctl completion zsh > ~/.zfunc/_gqctl      (a folder of your fpath)
  fish  gqctl completion fish > ~/.config/fish/completions/gqctl.fish"""


@click.command("completion", cls=Command, help=f"Print the completion script for a shell.\n\n{HOW}")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    found = get_completion_class(shell)
    assert found is not None
    out = settings().output()
    out.line(found(root, {}, "gqctl", "_GQCTL_COMPLETE").source())
    out.stdout.flush()


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topics of the node whose names begin so."""
    from gq_ctl import line
    try:
        names = line.topic_names(*settings(ctx).node())
    except Exception:
        return []       # completion never disturbs the line being typed
    shown = [name for name in names if name.startswith(incomplete) and (incomplete.startswith("_") or not name.startswith("__"))]
    return [CompletionItem(name) for name in sorted(shown)]


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Groups of the node whose names begin so."""
    try:
        with settings(ctx).client(timeout=0.5) as client:
            names = [group.group for group in client.groups() if not is_internal(group.group)]
    except Exception:
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]

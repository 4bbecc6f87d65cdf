"""`gqctl key`: API keys with what they may do, and the CURVE key by which this node is known.

A secret is printed once, on stdout, by `create`; nobody can show it again. Scopes are written VERB[:TOPICS[:GROUPS]].
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from gq_ctl.app import Failed, Group, exit_code, settings
from gq_ctl.output import Row, Show, plain, say
from gq_ctl.params import DURATION, Spelled
from gq_ctl.units import show_time
from gq_proto.errors import BadRequest, GoQueueError
from gq_proto.keys import check_curve, parse_scopes, show_scope
from gq_proto.messages import KeyMeta, Scope

if TYPE_CHECKING:
    from gq_client import Client


def _scopes(text: str) -> list[Scope]:
    try:
        return parse_scopes(text)
    except BadRequest as e:
        raise ValueError(e.message) from None


def _curve(text: str) -> str:
    try:
        return check_curve(text)
    except BadRequest as e:
        raise ValueError(e.message) from None


SCOPES: Final = Spelled("scope", _scopes)
CURVE: Final = Spelled("curve key", _curve)
SHOW: Final[dict[str, Show]] = {"created_us": show_time, "expires_us": lambda us: "never" if us is None else show_time(us),
                                "scopes": lambda scopes: plain(scopes) or "-"}


@click.group("key", cls=Group)
def key_command() -> None:
    """Make, list and revoke API keys; show this node's CURVE key.

    Callers on this machine need none. Listeners open to other machines want one with every request, and one to be there before
    they open: `create` works on the data directory of a node that does not run, too.
    """


@key_command.command("create")
@click.argument("name")
@click.option("--allow", type=SCOPES, multiple=True, metavar="SCOPE", help="What it may do; repeat for more.")
@click.option("--expires", type=DURATION, help="It ends so long from now.  [default: never]")
@click.option("--curve", type=CURVE, metavar="PUBLIC", help="For who has this CURVE key; there is no secret then.")
@click.option("--node", is_flag=True, help="For another node of this cluster (with --curve, as `gqctl key curve` says there).")
def create(name: str, allow: tuple[list[Scope], ...], expires: int | None, curve: str | None, node: bool) -> None:
    """Make a key called NAME and print its secret: now, and never again.

    A SCOPE is VERB[:TOPICS[:GROUPS]]: publish, consume, admin or all (the three), and patterns in which * stands for anything.
    Topics left out: all. Groups left out: all for consume and for admin of all topics, else none. Or metrics: for Prometheus.

    \b
      gqctl key create shop --allow 'publish:orders.*' -o value
      gqctl key create billing --allow 'consume:orders.*:billing' --expires 90d
      gqctl key create ops --allow all
    """
    _check(allow, curve, node)
    expires_us = time.time_ns() // 1000 + 1000 * expires if expires is not None else 0
    with _keeper() as client:
        made = client.create_key(name, [scope for scopes in allow for scope in scopes], expires_us=expires_us, curve=curve or "",
                                 node=node)
    _warn(made.unconfirmed, "do not know it yet")
    row = _row(made.key)
    if made.token:
        say("keep the key: it is not shown again")
        row["key"] = made.token
    settings().output().one(row, "key" if made.token else "id", SHOW)


@contextmanager
def _keeper() -> "Iterator[Client]":
    """A client of the node; of its metad alone, run for as long as this takes, when the node does not run."""
    data_dir, _ = ("", "") if settings().remote() else settings().node()
    if data_dir:
        from gq_ctl import line, offline
        if not line.runs(data_dir):
            say(f"no node runs on {data_dir}: the key is written there, for when it starts")
            with offline.metad(data_dir), settings().client() as client:
                yield client
            return
    with settings().client() as client:
        yield client


def _check(allow: tuple[list[Scope], ...], curve: str | None, node: bool) -> None:
    if node and not curve:
        raise click.UsageError("--node needs --curve: the key that `gqctl key curve` prints on that node")
    if node and allow:
        raise click.UsageError("--node and --allow exclude each other: a node's daemons may do anything")
    if not node and not allow:
        raise click.UsageError("give it something to do: --allow, such as --allow 'publish:orders.*'")


@key_command.command("list")
def list_() -> None:
    """List keys, their scopes and when they end; never their secrets."""
    with settings().client() as client:
        found = sorted(client.keys(), key=lambda key: key.name)
    settings().output().rows([_row(key) for key in found], "name", SHOW, empty="no keys")


@key_command.command("revoke")
@click.argument("keys", nargs=-1, required=True)
def revoke(keys: tuple[str, ...]) -> None:
    """Revoke KEYS, by name or id. Once it returns no daemon takes them any more, or it says which may."""
    code, rows = 0, []
    with settings().client() as client:
        for named in keys:
            try:
                gone = client.revoke_key(named)
            except GoQueueError as e:
                say(e.message)
                code = code or exit_code(e)
                continue
            _warn(gone.unconfirmed, f"may take {gone.key.name} until they hear of it, or are restarted")
            rows.append({"name": gone.key.name, "id": gone.key.id, "revoked": True})
    settings().output().rows(rows, "name")
    if code:
        raise Failed(f"{len(keys) - len(rows)} of {len(keys)} not revoked", code)


@key_command.command("curve")
def curve() -> None:
    """Print the public CURVE key of the node of this data directory; make the pair if there is none.

    Clients on other machines give it as GOQUEUE_CURVE_SERVER_KEY, other nodes as security.metadKey.
    """
    from gq_run import curve as curves
    data_dir = settings().local()
    os.makedirs(data_dir, mode=0o750, exist_ok=True)
    public, _ = curves.pair_of(data_dir)
    settings().output().one({"curve": public.decode(), "file": os.path.join(data_dir, curves.SECRET_FILE)}, "curve")


def _row(key: KeyMeta) -> Row:
    kind = "node" if key.node else "curve" if key.curve else "api"
    return {"name": key.name, "id": key.id, "kind": kind, "scopes": [show_scope(scope) for scope in key.scopes],
            "created_us": key.created_us, "expires_us": key.expires_us or None, **({"curve": key.curve} if key.curve else {})}


def _warn(unconfirmed: list[str], what: str) -> None:
    if unconfirmed:
        say(f"{', '.join(unconfirmed)} {what}")

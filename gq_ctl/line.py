"""One question to one daemon over a socket of its own: what `up`, `status` and completion need before a client can work.

Owns nothing between calls. Everything about messages, topics and groups goes through gq_client; here is only what must work
while a node is half there.
"""

import errno
import os
import socket
from typing import Any, Final

import zmq

from gq_proto import messages
from gq_proto.errors import Unavailable
from gq_proto.messages import Kind
from gq_run import paths

ASK_S: Final = 2.0


def ask(endpoint: str, kind: Kind, body: messages.Body, timeout_s: float = ASK_S, curve_key: str | None = None) -> Any:
    """The reply's body, None when none comes in time. The daemon's error is raised. `curve_key`: as metad told it, "": plain; None:
    as the environment says."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        token = _introduce(dealer, endpoint, curve_key)
        dealer.connect(endpoint)
        dealer.send(messages.encode_request(kind, 1, body, deadline_ms=max(1, int(timeout_s * 1000)), token=token))
        if not dealer.poll(int(timeout_s * 1000)):
            return None
        return messages.reply_body(messages.decode_reply(dealer.recv_multipart()[0]))


def _introduce(dealer: "zmq.Socket[bytes]", endpoint: str, curve_key: str | None) -> bytes:
    """The token for a daemon elsewhere; the socket speaks CURVE with it if need be."""
    if endpoint.startswith("ipc://"):
        return b""
    if "[" in endpoint:
        dealer.setsockopt(zmq.IPV6, 1)
    from gq_client import node
    routes = node.find(server=endpoint)
    key = routes.bootstrap_key if curve_key is None else curve_key
    if key:
        from gq_run import curve
        curve.call(dealer, key, zmq.curve_keypair())
    return node.token_of(None, routes)


def daemon_status(endpoint: str, timeout_s: float = ASK_S, curve_key: str | None = None) -> messages.StatusReply | None:
    """What a daemon says of itself; None when nobody answers there."""
    if endpoint.startswith("ipc://") and not listens(endpoint.removeprefix("ipc://")):
        return None
    reply = ask(endpoint, Kind.STATUS, messages.Empty(), timeout_s, curve_key)
    return reply if isinstance(reply, messages.StatusReply) else None


def listens(path: str) -> bool:
    """Does a process accept connections on this unix socket?"""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except OSError as e:
            return e.errno in (errno.EAGAIN, errno.ETIMEDOUT)       # its queue is full: it is there
        return True


def check_up(data_dir: str) -> None:
    """Unavailable, with what to do, when plainly no node runs on this data directory. A daemon that is being restarted is not
    that: the client waits for it."""
    if not runs(data_dir):
        raise Unavailable(f"no node runs on {data_dir}: start it with `gqctl --data-dir {quoted(data_dir)} up`")


def runs(data_dir: str) -> bool:
    """Does a node run there, or come up?"""
    return any(listens(paths.socket_path(data_dir, name)) for name in ("metad", "supervisor"))


def quoted(text: str) -> str:
    import shlex
    return shlex.quote(text)


def metad_endpoint(data_dir: str, server: str) -> str:
    """Of the node that --data-dir or --server names."""
    if not server:
        return paths.ipc_endpoint(data_dir, "metad")
    return server if "://" in server else paths.tcp_endpoint(server.split(",")[0])


def daemons(metad: str, timeout_s: float = ASK_S) -> list[messages.DaemonMeta]:
    """The daemons a metad knows; Unavailable when it does not answer."""
    reply = ask(metad, Kind.METADATA, messages.Metadata(topics=[]), timeout_s)
    if reply is None:
        raise Unavailable(f"{metad} does not answer: is the node up?")
    return list(reply.daemons)


def topic_names(data_dir: str, server: str, timeout_s: float = 0.5) -> list[str]:
    """For completion: none when the node is not there."""
    if data_dir and not os.path.exists(paths.socket_path(data_dir, "metad")):
        return []
    reply = ask(metad_endpoint(data_dir, server), Kind.METADATA, messages.Metadata(), timeout_s)
    return [topic.name for topic in reply.topics] if reply else []

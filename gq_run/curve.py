"""CURVE: a node's key pair, and who connects with which key.

A node has one pair, in `{data}/curve.key_secret` (mode 0600, the format of pyzmq's certificates): its daemons are servers and
clients by it. Whoever connects to a guarded listener must know the node's public key and proves to have the secret half of its
own; which client key that is, arrives with each message ("User-Id"), set here and by nobody else. Any client key may connect: what
it is worth, alone or with an API key, says gq_run.security.

Owns that file, and the socket that libzmq asks about new connections (ZAP, RFC 27).
"""

import os
import stat
from pathlib import Path
from typing import Any, Final

import zmq
from zmq.utils import z85

from gq_proto.errors import BadConfig
from gq_run.frames import receive
from gq_run.loop import Loop

SECRET_FILE: Final = "curve.key_secret"
ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
ZAP_DOMAIN: Final = b"goqueue"
ZAP_VERSION: Final = b"1.0"
USER_ID: Final = "User-Id"
_TEXT: Final = """\
#   ZeroMQ CURVE **Secret** Certificate of a GoQueue node
#   DO NOT PROVIDE THIS FILE TO OTHERS. Public key: `gqctl key curve`
metadata
curve
    public-key = "{public}"
    secret-key = "{secret}"
"""


def pair_of(data_dir: str, make: bool = True) -> tuple[bytes, bytes]:
    """The node's (public, secret) key, 40 bytes of z85 each; made if need be. BadConfig when the file is open to others or bad."""
    from zmq.auth import load_certificate  # takes longer to import than all the rest
    path = Path(data_dir, SECRET_FILE)
    if make and not path.exists():
        _make(path)
    mode = path.stat().st_mode
    if mode & 0o077:
        raise BadConfig(f"{path} is open to others (mode {stat.S_IMODE(mode):04o}): chmod 600 it, or remove it for a new one")
    try:
        public, secret = load_certificate(path)
    except ValueError:
        public, secret = b"", None
    if not public or not secret or zmq.curve_public(secret) != public:
        raise BadConfig(f"{path} holds no CURVE key pair: remove it for a new one")
    return public, secret


def _make(path: Path) -> None:
    """The first of several daemons that start at once decides."""
    public, secret = zmq.curve_keypair()
    temporary = f"{path}.{os.getpid()}"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(_TEXT.format(public=public.decode(), secret=secret.decode()))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    os.unlink(temporary)


def serve(socket: "zmq.Socket[bytes]", pair: tuple[bytes, bytes]) -> None:
    """What is bound from here on speaks CURVE."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, pair[0])
    socket.setsockopt(zmq.CURVE_SECRETKEY, pair[1])
    socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)


def call(socket: "zmq.Socket[bytes]", server_key: str, pair: tuple[bytes, bytes]) -> None:
    """What is connected from here on speaks CURVE, and only to who has the secret half of `server_key`."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, server_key.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, pair[0])
    socket.setsockopt(zmq.CURVE_SECRETKEY, pair[1])


class Zap:
    """Answers libzmq, on the loop, for all sockets of a context: any CURVE key may connect, nothing else may."""

    def __init__(self, loop: Loop, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self._loop = loop
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(ZAP_ENDPOINT)
        loop.add_reader(self._socket, self._drain)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _drain(self) -> None:
        while frames := receive(self._socket):
            self._socket.send_multipart(answer([frame.bytes for frame in frames]))


def answer(request: list[bytes]) -> list[bytes]:
    """[version, id, status, text, user id, metadata] to [version, id, domain, address, identity, mechanism, credentials ...]."""
    version, id, domain, _, _, mechanism, *credentials = [*request, b"", b"", b"", b"", b"", b""][:max(7, len(request))]
    if version == ZAP_VERSION and domain == ZAP_DOMAIN and mechanism == b"CURVE" and credentials and len(credentials[0]) == 32:
        return [ZAP_VERSION, id, b"200", b"OK", z85.encode(credentials[0]), b""]
    return [ZAP_VERSION, id, b"400", b"CURVE only", b"", b""]


def user_of(frame: Any) -> str:
    """The CURVE key of the connection that a frame came by, in z85."""
    user = frame.get(USER_ID)
    return user if isinstance(user, str) else user.decode("ascii", "replace")

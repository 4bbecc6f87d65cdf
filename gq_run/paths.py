"""Where things are: data directory, runtime directory, sockets, ports. The one place that knows.

A node is its data directory. Its sockets live in a runtime directory named after it, because a data directory's path may be
longer than a socket's may be (107 bytes) or lie on a file system that has no sockets:

    {base}/{12 hex digits of sha256(real path of the data directory)}/{metad,logd,groupd,...,supervisor}.sock

base is $GOQUEUE_RUNTIME_DIR, else $XDG_RUNTIME_DIR/goqueue, else /run/goqueue for root, else /tmp/goqueue-{uid}. The daemons of a
node may be started by systemd and gqctl from a login, whose bases differ: so the first daemon leaves its choice in
`{data}/.runtime`, and everybody without a $GOQUEUE_RUNTIME_DIR follows that while it exists and is that data directory's.
"""

import hashlib
import ipaddress
import os
import socket
import stat
from pathlib import Path
from typing import Final

from gq_proto.errors import BadConfig
from gq_proto.limits import SOCKET_PATH_MAX

DATA_DIR_ENV: Final = "GOQUEUE_DATA_DIR"
RUNTIME_DIR_ENV: Final = "GOQUEUE_RUNTIME_DIR"
TCP_PORTS: Final = {"metad": 7400, "logd": 7410, "groupd": 7420, "delayd": 7430}
METRICS_PORTS: Final = {"metad": 9091, "logd": 9092, "groupd": 9093, "delayd": 9094, "gateway": 9097}
LOOPBACK: Final = "127.0.0.1"
WILDCARDS: Final = ("", "*", "0.0.0.0", "::")
RECORDED: Final = ".runtime"             # in the data directory: the runtime directory in use
LONGEST_NAME: Final = "supervisor.sock"

StrPath = str | os.PathLike[str]


def default_data_dir() -> str:
    """$GOQUEUE_DATA_DIR, else /var/lib/goqueue for root, else ~/.local/share/goqueue."""
    named = os.environ.get(DATA_DIR_ENV)
    if named:
        return os.path.abspath(named)
    if os.getuid() == 0:
        return "/var/lib/goqueue"
    share = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(share, "goqueue")


def digest(data_dir: StrPath) -> str:
    """What names a data directory in the runtime directory: 12 hex digits."""
    return hashlib.sha256(os.fsencode(os.path.realpath(data_dir))).hexdigest()[:12]


def runtime_dir(data_dir: StrPath) -> str:
    """The runtime directory of a node, whether it exists or not."""
    name = digest(data_dir)
    recorded = "" if os.environ.get(RUNTIME_DIR_ENV) else _recorded(data_dir, name)
    return recorded or os.path.join(_base(name), name)


def make_runtime_dir(data_dir: StrPath) -> str:
    """The runtime directory, made if need be with mode 0700 and left in the data directory for others to find.

    BadConfig when somebody else owns it: then its sockets could not be trusted.
    """
    path = runtime_dir(data_dir)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.makedirs(path, mode=0o700, exist_ok=True)
    base, found = os.stat(os.path.dirname(path)), os.lstat(path)
    safe_base = base.st_uid in (0, os.geteuid()) or (os.geteuid() == 0 and not base.st_mode & 0o022)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or not safe_base:
        raise BadConfig(f"{path} is not this user's own directory: remove it or set {RUNTIME_DIR_ENV}")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(path, 0o700)
    record = Path(data_dir, RECORDED)
    if _recorded(data_dir, os.path.basename(path)) != path:
        temporary = record.with_name(f"{RECORDED}.{os.getpid()}")
        temporary.write_text(path + "\n")
        temporary.replace(record)
    return path


def socket_path(data_dir: StrPath, daemon: str) -> str:
    """`daemon` is "metad", "logd", ... or "supervisor"."""
    return os.path.join(runtime_dir(data_dir), daemon + ".sock")


def ipc_endpoint(data_dir: StrPath, daemon: str) -> str:
    return "ipc://" + socket_path(data_dir, daemon)


def tcp_endpoint(address: str) -> str:
    """tcp://... of "host:port"; a bare ":port" means all interfaces. BadConfig when it is neither."""
    host, port = split_address(address)
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host or '*'}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """("127.0.0.1", 7400) of "127.0.0.1:7400", ("::1", 7400) of "[::1]:7400", ("", 7400) of ":7400"."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadConfig(f"bad address {address!r}: use host:port, for example 127.0.0.1:7400")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadConfig(f"bad address {address!r}: put an IPv6 host in brackets, for example [::1]:7400")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Can only this machine reach it? A name other than localhost may mean anything, so it counts as public."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def advertised(endpoint: str, host: str) -> str:
    """How others reach a bound endpoint: a public tcp one by `host`, else by this machine's name where all interfaces are meant."""
    if not endpoint.startswith("tcp://"):
        return endpoint
    bound, port = split_address(endpoint.removeprefix("tcp://"))
    if is_loopback(bound) or (not host and bound not in WILDCARDS):
        return endpoint
    return tcp_endpoint(f"[{host}]:{port}" if ":" in host else f"{host or socket.gethostname()}:{port}")


def reachable_here(endpoint: str) -> bool:
    """False for an ipc endpoint whose socket is not on this machine; clients then take a tcp one."""
    return not endpoint.startswith("ipc://") or os.path.exists(endpoint.removeprefix("ipc://"))


def lock_path(data_dir: StrPath, daemon: str) -> str:
    """The file whose flock says that `daemon` runs on this data directory."""
    return os.path.join(data_dir, f".{daemon}.lock")


def _recorded(data_dir: StrPath, name: str) -> str:
    """The directory that a daemon left word of, while it exists and the data directory was not copied elsewhere; else ""."""
    try:
        path = Path(data_dir, RECORDED).read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    fits = os.path.basename(path) == name and len(os.fsencode(path)) + 1 + len(LONGEST_NAME) <= SOCKET_PATH_MAX
    return path if fits and os.path.isdir(path) else ""


def _base(name: str) -> str:
    named = os.environ.get(RUNTIME_DIR_ENV)
    if named:
        named = os.path.abspath(named)
        if not _short_enough(named, name):
            raise BadConfig(f"{RUNTIME_DIR_ENV}={named} is too long for a socket's path: use a shorter one")
        return named
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session) and os.access(session, os.W_OK) and _short_enough(session + "/goqueue", name):
        return os.path.join(session, "goqueue")
    return "/run/goqueue" if os.geteuid() == 0 else f"/tmp/goqueue-{os.getuid()}"


def _short_enough(base: str, name: str) -> bool:
    return len(os.fsencode(os.path.join(base, name, LONGEST_NAME))) <= SOCKET_PATH_MAX

"""Which node, and with which keys: from arguments, else the environment, else the default data directory. Answers with metad's
endpoints."""

import os
import socket
from typing import Final

from gq_client.routing import Routes
from gq_proto.keys import check_curve
from gq_run import paths

SERVER_ENV: Final = "GOQUEUE_SERVER"
KEY_ENV: Final = "GOQUEUE_KEY"
CURVE_ENV: Final = "GOQUEUE_CURVE_SERVER_KEY"


def find(data_dir: str | os.PathLike[str] | None = None, server: str | None = None, curve_server_key: str | None = None,
         curve_pair: tuple[str, str] | None = None) -> Routes:
    """`server`: "host:port" of any metad, several separated by commas. An argument wins over the environment, and there
    GOQUEUE_SERVER over GOQUEUE_DATA_DIR. Nothing is connected yet. BadRequest for what is no CURVE key."""
    if server is None and data_dir is None:
        server = os.environ.get(SERVER_ENV) or None
    if server:
        bootstrap = [one.strip() if "://" in one else paths.tcp_endpoint(one.strip()) for one in server.split(",")]
    else:
        bootstrap = [paths.ipc_endpoint(paths.default_data_dir() if data_dir is None else data_dir, "metad")]
    routes = Routes(bootstrap, paths.reachable_here)
    if any(endpoint.startswith("tcp://") for endpoint in bootstrap):
        key = os.environ.get(CURVE_ENV, "") if curve_server_key is None else curve_server_key
        routes.bootstrap_key = check_curve(key) if key else ""
    if curve_pair:
        routes.pair = check_curve(curve_pair[0]).encode(), check_curve(curve_pair[1]).encode()
    return routes


def token_of(key: str | None, routes: Routes) -> bytes:
    """What goes into each request. The environment's key is for other hosts: a local node asks for none."""
    if key is None and any(endpoint.startswith("tcp://") for endpoint in routes.bootstrap):
        key = os.environ.get(KEY_ENV)
    return (key or "").strip().encode("utf-8", "replace")


def whoami() -> str:
    """This process, for people: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"

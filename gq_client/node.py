"""Which node: from arguments, else the environment, else the default data directory. Answers with metad's endpoints."""

import os
import socket
from typing import Final

from gq_client.routing import Routes
from gq_run import paths

SERVER_ENV: Final = "GOQUEUE_SERVER"


def find(data_dir: str | os.PathLike[str] | None = None, server: str | None = None) -> Routes:
    """`server`: "host:port" of any metad, several separated by commas. An argument wins over the environment, and there
    GOQUEUE_SERVER over GOQUEUE_DATA_DIR. Nothing is connected yet."""
    if server is None and data_dir is None:
        server = os.environ.get(SERVER_ENV) or None
    if server:
        bootstrap = [one.strip() if "://" in one else paths.tcp_endpoint(one.strip()) for one in server.split(",")]
    else:
        bootstrap = [paths.ipc_endpoint(paths.default_data_dir() if data_dir is None else data_dir, "metad")]
    return Routes(bootstrap, paths.reachable_here)


def whoami() -> str:
    """This process, for people: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"

"""metad alone, for the length of one command, on the data directory of a node that does not run: a node that is open to other
machines wants a key before its first start.

Owns the process: it listens at its ipc socket only, and has ended when the command has. `up` and `down` wait meanwhile.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gq_ctl.app import Failed
from gq_ctl.line import daemon_status
from gq_ctl.node import STOP_S, alone, last_words, log_of
from gq_ctl.supervisor import Supervisor
from gq_proto.errors import BadRequest
from gq_run import options, paths, settings

START_S: Final = 60.0
POLL_S: Final = 0.03
CLOSED: Final = {"GOQUEUE_METAD_ADDR": "off", "GOQUEUE_METAD_METRICS_ADDR": "off"}


@contextmanager
def metad(data_dir: str) -> Iterator[None]:
    """BadRequest when the node's metad is elsewhere; Failed when it does not start."""
    os.makedirs(data_dir, mode=0o750, exist_ok=True)
    environment = {**Supervisor(data_dir).environment(), **CLOSED}
    elsewhere = options.load("gqctl", settings.SHARED, [], environment, data_dir, settings.ELSEWHERE).text("broker.metad")
    if elsewhere:
        raise BadRequest(f"the keys of {data_dir} are kept by {elsewhere} (broker.metad): make them there")
    with alone(data_dir), open(log_of(data_dir, "metad"), "ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "gq_metad"], env=environment, cwd=data_dir, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
        try:
            _wait_ready(data_dir, process)
            yield
        finally:
            _end(process)


def _wait_ready(data_dir: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_S
    while True:
        status = daemon_status(paths.ipc_endpoint(data_dir, "metad"))
        if status and status.ready and status.pid == process.pid:
            return
        if process.poll() is not None or time.monotonic() > end:
            raise Failed(f"metad does not start: {last_words(data_dir, 'metad') or 'no answer'}")
        time.sleep(POLL_S)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

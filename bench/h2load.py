"""A unary gRPC method asked by h2load (Debian: nghttp2-client), a lean loader in C, as wrk asks HTTP.

h2load repeats one prepared request, over `connections` with `streams` calls at a time on each. Of an answer it looks at the HTTP
status only, which gRPC leaves at 200 whatever became of the call. So `statuses` asks the same with nghttp, which shows trailers;
and who measures counts what the calls left behind.
"""

import collections
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

PATH = "/goqueue.v1.GoQueue/Publish"


def needed() -> None:
    for tool in ("h2load", "nghttp"):
        if not shutil.which(tool):
            raise SystemExit(f"{tool} is missing: apt-get install nghttp2-client")


def load(port: int, message: bytes, count: int, connections: int, streams: int) -> dict[str, Any]:
    """Ask so many times: rate, p50 and p99 in ms, cores that h2load was busy. For a process of its own: counts all its children."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        _run("h2load", port, message, f"-n{count}", f"-c{connections}", f"-m{streams}", f"--log-file={log}")
        begun, status, took = zip(*[map(int, line.split()) for line in log.read_text().splitlines()], strict=True)
    assert collections.Counter(status) == {200: count}, collections.Counter(status)
    seconds = (max(map(sum, zip(begun, took, strict=True))) - min(begun)) / 1e6
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    marks = statistics.quantiles(took, n=100)
    return {"msgs_per_s": round(count / seconds), "count": count, "connections": connections, "streams": streams,
            "p50_ms": round(marks[49] / 1000, 2), "p99_ms": round(marks[98] / 1000, 2), "seconds": round(seconds, 3),
            "loader_cpu": round((used.ru_utime + used.ru_stime) / seconds, 2)}


def statuses(port: int, message: bytes, count: int) -> list[str]:
    """The grpc-status in the trailers of so many calls."""
    said = _run("nghttp", port, message, "-nv", f"-m{count}")
    return re.findall(r"\) grpc-status: (\d+)", said)


def _run(tool: str, port: int, message: bytes, *options: str) -> str:
    with tempfile.NamedTemporaryFile() as body:
        body.write(b"\0" + len(message).to_bytes(4, "big") + message)
        body.flush()
        argv = [tool, *options, f"--data={body.name}", "-Hcontent-type: application/grpc", "-Hte: trailers",
                f"http://127.0.0.1:{port}{PATH}"]
        return subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True).stdout

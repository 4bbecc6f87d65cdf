"""The examples do what they say, against a real gateway."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.harness import DAEMONS, ROOT, Node, free_port

EXAMPLES = ROOT / "examples" / "grpc"
OFF = {"GOQUEUE_HTTP_ADDR": "off", "GOQUEUE_GATEWAY_METRICS_ADDR": "off", "GOQUEUE_METRICS_ADDR": "off"}
SAID = re.compile(r"published to partition [012] at offset \d+\npublished 1000 more, 0 failed\nconsumed 1001\n"
                  r"NOT_FOUND: unknown_topic, retriable false\n")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, str]]:
    address = f"127.0.0.1:{free_port()}"
    with Node(tmp_path_factory.mktemp("node"), daemons=(*DAEMONS, "gateway"), env={**OFF, "GOQUEUE_GRPC_ADDR": address}) as node:
        yield node.start(), address


def test_python(gateway: tuple[Node, str]) -> None:
    node, address = gateway
    done = subprocess.run([sys.executable, str(EXAMPLES / "python.py"), address, "of-python"], env=node.env, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0 and SAID.fullmatch(done.stdout), done.stdout + done.stderr


def test_javascript(gateway: tuple[Node, str]) -> None:
    node, address = gateway
    folder = packages()
    script = shutil.copy(EXAMPLES / "javascript" / "queue.js", folder)
    done = subprocess.run(["node", str(script), address, "of-javascript", str(ROOT / "gq_gateway/goqueue.proto")], env=node.env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and SAID.fullmatch(done.stdout), done.stdout + done.stderr


def packages() -> Path:
    """A folder, kept from run to run, in which the example's packages are installed."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("needs node and npm")
    folder = ROOT / ".cache" / "grpc-js"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = (EXAMPLES / "javascript" / "package.json").read_bytes()
    kept = folder / "package.json"
    if not kept.exists() or kept.read_bytes() != wanted or not (folder / "node_modules" / "@grpc" / "grpc-js").exists():
        kept.write_bytes(wanted)
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, capture_output=True,
                              text=True, timeout=300, env=dict(os.environ))
        if done.returncode:
            pytest.skip(f"npm could not install the example's packages: {done.stderr[-300:]}")
    return folder

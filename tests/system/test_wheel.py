"""An installed wheel, built without a compiler: all that is shipped is in it, and `gqctl up` in an empty folder needs no more."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.system.harness import ROOT, environment

LEFT_OUT = shutil.ignore_patterns(".*", "*.so", "_codec.c", "build", "__pycache__", "*.egg-info", "tests", "bench")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=LEFT_OUT)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", folder, folder / "source"],
                   env={**os.environ, "CC": "/bin/false"}, check=True, timeout=300)
    [path] = folder.glob("*.whl")
    return path


def test_the_wheel_holds_what_the_checkout_holds(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    for package in (*ROOT.glob("gq_*"), ROOT / "spark/gq_spark"):
        assert {f"{package.name}/{path.name}" for path in package.glob("*.py")} <= inside
    jobs = ROOT / "spark/jobs"
    assert {f"gq_spark/jobs/{path.relative_to(jobs)}" for path in [*jobs.glob("*.py"), *jobs.glob("conf/*")]} <= inside
    for folder in ("etc", "systemd"):
        assert {f"gq_ctl/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob("*") if path.is_file()} <= inside
    assert {"gq_proto/protocol.txt", "gq_proto/segment.txt", "gq_proto/py.typed"} <= inside
    assert not [name for name in inside if name.endswith(".so")], "there was a compiler after all"


def test_up_status_down_from_an_installed_wheel(wheel, tmp_path):
    site = tmp_path / "site packages"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel], check=True, timeout=300)
    env = environment(GOQUEUE_DATA_DIR=str(tmp_path / "data dir"), PYTHONPATH=str(site))

    def gqctl(*args: str) -> str:
        return subprocess.run([sys.executable, "-m", "gq_ctl", *args], env=env, cwd=tmp_path, check=True, timeout=100,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout

    assert gqctl("spark", "export", "--help").startswith("usage: gqctl spark export ")
    try:
        gqctl("up")
        rows = [json.loads(line) for line in gqctl("status", "-o", "json").splitlines()]
        assert {row["daemon"]: row["health"] for row in rows} == {"metad": "ready", "logd": "ready", "groupd": "ready",
                                                                       "delayd": "ready", "gateway": "ready"}
    finally:
        gqctl("down")

"""README's tour, run as it stands: every console block in one bash, every command's exit code checked, and what it prints compared
where the README shows it (`...` stands for anything). Python blocks are run where they stand. Without PySpark and Java the
section on Spark is left out."""

import fnmatch
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.harness import ROOT, commands, environment, free_port

README = ROOT / "README.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPARK = re.compile(r"^## Spark\n.*?^(?=## )", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    command: str
    shown: list[str]


def tour() -> list[Step]:
    steps: list[Step] = []
    whole = README.read_text()
    if not find_spec("pyspark") or not find_spec("pyarrow") or not shutil.which("java"):
        whole, found = SPARK.subn("", whole)
        assert found, "the section on Spark has another name"
    for language, text in BLOCK.findall(whole):
        if language == "python":
            steps.append(Step(f"python3 - <<'PYTHON'\n{text}PYTHON", []))
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:], []))
            else:
                steps[-1].shown.append(line)
    return steps


def script(steps: list[Step], out: Path) -> str:
    """Each step's stdout in a file of its own; the first that fails ends it and is named."""
    lines = ["set -o pipefail"]
    for number, step in enumerate(steps):
        lines += [f"{{ {step.command}\n}} >{out}/{number} </dev/null || {{ echo failed: step {number} >&2; exit 1; }}"]
    return "\n".join([*lines, ""])


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_tour_works_as_written(tmp_path):
    steps = tour()
    assert len(steps) > 20
    bin_dir, out = commands(tmp_path / "bin"), tmp_path / "out"
    out.mkdir()
    text = script(steps, out).replace("$PWD/.venv/bin", str(bin_dir)).replace("mktemp -d", f"mktemp -d -p {tmp_path}")
    http = f"127.0.0.1:{free_port()}"             # the gateway's own port may be another node's on this machine
    text = text.replace("127.0.0.1:8080", http)
    try:
        done = subprocess.run(["bash", "-c", text], env=environment(GOQUEUE_HTTP_ADDR=http), cwd=tmp_path,
                              capture_output=True, text=True, timeout=400)
    finally:
        for data in tmp_path.glob("tmp.*/node"):
            subprocess.run([sys.executable, "-m", "gq_ctl", "--data-dir", data, "down"], env=environment(), timeout=60)
    failed = re.search(r"failed: step (\d+)", done.stderr)
    assert not failed, f"$ {steps[int(failed[1])].command}\n{done.stderr}" if failed else ""
    assert done.returncode == 0, done.stderr
    for number, step in enumerate(steps):
        if step.shown:
            got, want = (out / str(number)).read_text(), "\n".join(step.shown).replace("[", "[[]").replace("...", "*")
            assert fnmatch.fnmatchcase(got.rstrip("\n"), want), f"$ {step.command}\nprinted:\n{got}"


def test_the_links_lead_somewhere():
    for name in (README, ROOT / "bench/README.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", name.read_text()):
            assert (name.parent / target).exists(), f"{name.name} links to {target}"

"""The demo on a small folder: its kills, its proof, and the node it leaves behind."""

import encodings
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.harness import commands, environment

SOURCE = Path(encodings.__file__).parent       # a second's work: gone before the first blow, did nobody wait


@pytest.fixture
def folder(tmp_path):
    """Where the demo works; its node is taken down afterwards."""
    place = tmp_path / "a demo"
    yield place
    subprocess.run([sys.executable, "-m", "gq_ctl", "--data-dir", place / "data", "down"], env=environment(), timeout=60)


def run_demo(folder: Path, source: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gq_ctl.demo", "--dir", folder, "--source", source], env=environment(),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150)


def number(text: str) -> int:
    """The one that it begins with."""
    return int(text.split()[0].replace(",", ""))


def test_every_file_comes_back_although_each_daemon_was_killed(folder, tmp_path):
    done = run_demo(folder, SOURCE)
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted(SOURCE.glob("**/*.py"))
    lines = sum(len(path.read_bytes().removesuffix(b"\n").split(b"\n")) for path in files if path.stat().st_size)
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line[:1].isalpha())
    assert said["published"].startswith(f"{lines:,} lines") and said["consumed"].startswith(f"{lines:,} lines")
    assert said["lost"] == "0"
    assert number(said["redelivered"]) > 0, "the killed consumer held some"
    assert number(said["critical"]) > 0 and "overtaken" in said["critical"]
    assert number(said["delayed"]) >= 0 and "delayd killed" in said["delayed"]
    assert said["rebuilt"].startswith(f"{len(files):,} files of {len(files):,}")
    killed = [line.split() for line in done.stdout.splitlines() if line.startswith("killed -9")]
    assert sorted(words[2] for words in killed) == ["consumer", "delayd", "groupd", "logd", "metad"]
    shares = {words[2]: int(words[8].removesuffix("%")) for words in killed}
    assert shares["logd"] < shares["consumer"] < shares["groupd"] < shares["metad"] < 100, "each in the middle of the work"
    for words in killed:
        old, new = int(words[4]), int(words[6])
        assert old != new
        assert words[2] == "consumer" or os.path.exists(f"/proc/{new}"), "the node is left running"
    for path in files:
        assert (folder / "rebuilt" / path.relative_to(SOURCE)).read_bytes() == path.read_bytes()
    steps = done.stdout[done.stdout.index("Try next:"):].splitlines()[1:]
    path = f"{commands(tmp_path / 'bin')}:{os.environ['PATH']}"
    tried = subprocess.run(["bash", "-ec", "\n".join(steps)], env=environment(PATH=path), stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=100)
    assert tried.returncode == 0, f"what the demo says to try next fails:\n{tried.stderr}"

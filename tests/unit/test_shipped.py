"""What is shipped beside the code: supervisor's configuration, systemd's units, and setup.cfg's lists of packages."""

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DAEMONS = sorted(path.parent.name for path in ROOT.glob("gq_*/__main__.py") if path.parent.name != "gq_ctl")
PACKAGES = {path.parent.name for where in ("", "spark/") for path in ROOT.glob(f"{where}gq_*/__init__.py")}


@pytest.fixture
def setup_cfg():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def test_supervisor_reads_its_configuration_and_runs_every_daemon(tmp_path, monkeypatch):
    from supervisor.options import ServerOptions
    data, sockets = tmp_path / "50% of the data", tmp_path / "run"
    (data / "daemons").mkdir(parents=True)
    sockets.mkdir()
    monkeypatch.setenv("GOQUEUE_PYTHON", "/opt/with space/python3")
    monkeypatch.setenv("GOQUEUE_DATA_DIR", str(data))
    monkeypatch.chdir(data)
    monkeypatch.setenv("GOQUEUE_SOCKETS", str(sockets))
    options = ServerOptions()
    # As supervisord does after it has read os.environ for the %(ENV_x)s of the file.
    options.environ_expansions = {f"ENV_{name}": value for name, value in os.environ.items()}
    options.realize(["-c", str(ROOT / "etc/supervisord.conf")])
    programs = {group.name: group.process_configs[0] for group in options.process_group_configs}
    assert sorted(f"gq_{name}" for name in programs) == DAEMONS
    for name, program in programs.items():
        assert program.command == f'"/opt/with space/python3" -m gq_{name}'
        assert program.stdout_logfile == f"daemons/{name}.log"
        assert program.autorestart and program.autostart and program.redirect_stderr
    assert options.pidfile == str(sockets / "supervisord.pid")


def test_the_target_wants_every_daemon():
    wants = re.findall(r"goqueue@(\w+)\.service", (ROOT / "systemd/goqueue.target").read_text())
    assert sorted(f"gq_{name}" for name in wants) == DAEMONS


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_accepts_the_units(tmp_path):
    for unit in (ROOT / "systemd").iterdir():
        text = unit.read_text().replace("/opt/goqueue/bin/python", "/bin/sh")   # verify wants the program to exist
        (tmp_path / unit.name).write_text(text)
    for name in ("goqueue.target", *(f"goqueue@{daemon.removeprefix('gq_')}.service" for daemon in DAEMONS)):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / name)], capture_output=True, text=True)
        complaints = [line for line in done.stderr.splitlines() if "goqueue" in line]
        assert done.returncode == 0 and not complaints, done.stderr


def test_the_shipped_folders_are_found_from_the_package_and_there_is_one_of_each():
    import gq_ctl
    for name in ("etc", "systemd"):
        inside = Path(gq_ctl.__file__).parent / name
        assert inside.is_symlink() and inside.resolve() == ROOT / name


def test_every_package_is_checked_and_has_its_layer(setup_cfg):
    assert set(setup_cfg["importlinter"]["root_packages"].split()) == PACKAGES
    assert set(setup_cfg["mypy"]["packages"].split(",")) == PACKAGES
    layers = re.findall(r"gq_\w+", setup_cfg["importlinter:contract:layers"]["layers"])
    assert sorted(layers) == sorted(PACKAGES)


def test_every_daemon_has_a_console_script(setup_cfg):
    scripts = dict(line.split(" = ") for line in setup_cfg["options.entry_points"]["console_scripts"].strip().splitlines())
    assert sorted(scripts) == sorted(["gqctl", *DAEMONS])

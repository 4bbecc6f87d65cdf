import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gq_ctl import app, spark


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """What gqctl would become: [(program, command, environment)]."""
    found = []
    monkeypatch.setattr(spark.os, "execve", lambda *call: found.append(call))
    monkeypatch.setattr(spark, "_check", lambda: None)
    monkeypatch.setenv("GOQUEUE_DATA_DIR", str(tmp_path))
    for name in ("PYSPARK_PYTHON", "SPARK_CONF_DIR", "GOQUEUE_SERVER"):
        monkeypatch.delenv(name, raising=False)
    return found


def gqctl(*args):
    return app.run(["spark", *args])


def test_a_job_runs_on_the_nodes_directory_with_this_python(ran, tmp_path):
    assert gqctl("export", "--topic", "t", "--to", "x y") == 0
    [(program, command, env)] = ran
    assert program == sys.executable and command[-5:] == ["gq_spark.jobs.export", "--topic", "t", "--to", "x y"]
    assert env["PYSPARK_PYTHON"] == sys.executable and env["GOQUEUE_DATA_DIR"] == str(tmp_path)
    assert (Path(env["SPARK_CONF_DIR"]) / "spark-defaults.conf").exists()
    assert shlex.split(env["PYSPARK_SUBMIT_ARGS"])[:2] == ["--master", "local[*]"]


def test_what_is_said_before_the_job_is_gqctls(ran, tmp_path):
    told = ["--data-dir", str(tmp_path / "d"), "-o", "value", "--master", "local[1]", "--conf", "a=b c"]
    assert gqctl(*told, "verify", "-o", "json") == 0
    [(_, command, env)] = ran
    assert command[-5:] == ["gq_spark.jobs.verify", "-o", "value", "-o", "json"] and env["GOQUEUE_DATA_DIR"] == str(tmp_path / "d")
    words = shlex.split(env["PYSPARK_SUBMIT_ARGS"])
    assert words[1] == "local[1]" and "a=b c" in words and words[-1] == "pyspark-shell"


def test_workers_elsewhere_have_the_python_they_were_given(ran, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python3")
    gqctl("verify")
    gqctl("--master", "spark://h:7077", "verify")
    assert [env["PYSPARK_PYTHON"] for _, _, env in ran] == [sys.executable, "/opt/python3"]


def test_what_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setattr(spark.os, "execve", lambda *call: pytest.fail("it ran"))
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    assert gqctl("verify") == app.FAILED
    assert "goqueue[spark]" in capsys.readouterr().err
    monkeypatch.setattr(spark, "find_spec", lambda name: object())
    monkeypatch.setattr(spark.shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert gqctl("verify") == app.FAILED
    assert "openjdk-17" in capsys.readouterr().err
    monkeypatch.setenv("JAVA_HOME", "/nowhere")            # Spark would take it, whatever PATH has
    monkeypatch.setattr(spark.shutil, "which", lambda name: "/usr/bin/java")
    assert gqctl("verify") == app.FAILED
    assert "JAVA_HOME is /nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["spark.driver.memory", "=4g", ""])
def test_a_setting_without_name_or_value_is_a_mistake(ran, capsys, setting):
    assert gqctl("--conf", setting, "verify") == app.USAGE
    assert not ran and "NAME=VALUE" in capsys.readouterr().err


def test_help_of_a_job_is_the_jobs_and_needs_no_spark(ran, monkeypatch):
    monkeypatch.setattr(spark, "_check", lambda: pytest.fail("help needs no Spark"))
    gqctl("keys", "--help")
    assert ran[0][1][-2:] == ["gq_spark.jobs.keys", "--help"]


def test_a_server_has_no_files(ran, capsys):
    assert gqctl("--server", "h:7400", "verify") == app.USAGE
    assert not ran and "--data-dir" in capsys.readouterr().err


def test_the_jobs_are_listed():
    result = CliRunner().invoke(spark.spark_command, ["--help"])
    assert all(f"  {name} " in result.output and text in result.output for name, text in spark.JOBS.items())

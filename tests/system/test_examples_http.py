"""The examples of the REST API do what they say."""

import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.system.harness import ROOT
from tests.system.web import Web

EXAMPLES = ROOT / "examples" / "http"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    made = Web(tmp_path_factory.mktemp("web"))
    try:
        yield made.start()
    finally:
        made.stop()


def run(web: Web, *argv: str) -> str:
    env = {**web.node.env, "GOQUEUE_URL": f"http://127.0.0.1:{web.port}"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_tour(web: Web) -> None:
    said = run(web, str(EXAMPLES / "tour.sh"), "tour")
    for word in ('"published":3', '"value":"resize cat.png"', '"encoding":"base64"', '"settled":1', "cannot read it",
                 '"redriven":1', '"code":"bad_request"'):
        assert word in said, said
    assert web.get("/topics/tour").status == 404


def test_the_worker(web: Web) -> None:
    worker = str(EXAMPLES / "worker.py")
    assert run(web, sys.executable, worker, "publish", "jobs", "a", "flaky", "b").count("published") == 3
    said = run(web, sys.executable, worker, "work", "jobs", "workers", "3").splitlines()
    assert sorted(said) == ["done a", "done b", "done flaky", "failed flaky"]
    assert web.get("/groups/workers/lag").json["lag"] == 0

"""Fixtures with real daemons. `node` is fresh for one test, `shared_node` serves all tests of a module (use topics of your own),
`start_node` makes as many as a test wants. When a test fails, the report shows the end of what its daemons printed.
"""

import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.harness import ROOT, Node

_nodes: list[Node] = []
# Of any JVM, `gqctl spark` included: half the CPU of a short run.
os.environ |= dict.fromkeys(("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"), "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quiet: goes by a clock of some tenths of a second; bin/test runs nothing beside it")


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """start_node(name="node", **options of Node): a started node, stopped after the test."""
    mine: list[Node] = []

    def start(name: str = "node", **options: Any) -> Node:
        made = Node(tmp_path / name, **options)
        mine.append(made)
        _nodes.append(made)
        return made.start()

    yield start
    _end(mine)


@pytest.fixture
def node(start_node: Callable[..., Node]) -> Node:
    return start_node()


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"))
    _nodes.append(made)
    try:
        yield made.start()
    finally:
        _end([made])


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local session for all tests, with format goqueue; its workers run this interpreter."""
    if not importlib.util.find_spec("pyspark") or not importlib.util.find_spec("pyarrow"):
        pytest.skip("no pyspark: bin/setup dev installs it")
    if not shutil.which("java"):
        pytest.skip("no Java 17: bin/setup dev says how to get it")
    from pyspark.sql import SparkSession

    import gq_spark
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "spark")])
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
                "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.sql.session.timeZone": "UTC"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # pyspark's own
        builder = SparkSession.builder.master("local[2]").appName("tests")
        session = builder.config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        gq_spark.register(session)
        yield session
        session.stop()


def _end(nodes: list[Node]) -> None:
    for made in nodes:
        _nodes.remove(made)
        made.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.failed:
        for made in _nodes:
            for name in made.processes:
                report.sections.append((f"{name} of {made.folder.name}", made.log(name)))
    return report

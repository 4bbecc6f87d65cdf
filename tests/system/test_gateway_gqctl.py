"""gqctl through a gateway: the same commands, output and exit codes as beside the node, with nothing of the node at hand."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.harness import environment, until
from tests.system.web import Web


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    made = Web(tmp_path_factory.mktemp("web"))
    try:
        yield made.start()
    finally:
        made.stop()


class Shell:
    """gqctl somewhere else: an environment that names the gateway only."""

    def __init__(self, web: Web, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{web.port}"
        self.env = environment(GOQUEUE_DATA_DIR=str(folder / "nothing here"), GOQUEUE_GATEWAY=self.url)

    def __call__(self, *argv: str, input: bytes = b"", code: int = 0) -> str:
        done = subprocess.run([sys.executable, "-m", "gq_ctl", *argv], env=self.env, input=input, capture_output=True, timeout=60)
        assert done.returncode == code, f"{argv} exited {done.returncode}: {done.stderr.decode()}"
        self.said = done.stderr.decode()
        return done.stdout.decode(errors="surrogateescape")

    def rows(self, *argv: str) -> list[Any]:
        return [json.loads(line) for line in self(*argv, "-o", "json").splitlines()]


@pytest.fixture
def gqctl(web: Web, tmp_path: Path) -> Shell:
    return Shell(web, tmp_path)


def test_topics(gqctl: Shell) -> None:
    [made] = gqctl.rows("topic", "create", "t-topics", "--partitions", "2", "--max-retries", "4")
    assert (made["topic"], made["partitions"]) == ("t-topics", 2)
    gqctl("topic", "create", "t-topics", code=1)
    assert gqctl.rows("topic", "alter", "t-topics", "--partitions", "3", "--retention", "1h")[0]["retention_ms"] == 3_600_000
    assert "t-topics" in gqctl("topic", "list", "-o", "value").split()
    gqctl("publish", "t-topics", "v", "--partition", "2")
    [described] = gqctl.rows("topic", "describe", "t-topics")
    assert (described["partitions"], described["max_retries"], described["messages"] >= 1) == (3, 4, True)
    assert [row["partition"] for row in gqctl.rows("topic", "partitions", "t-topics")] == [0, 1, 2]
    gqctl("topic", "purge", "t-topics", "--partition", "2")
    assert gqctl("consume", "t-topics") == ""
    gqctl("topic", "delete", "t-topics")
    gqctl("topic", "describe", "t-topics", code=4)
    gqctl("topic", "create", "no/topic", code=2)


def test_what_is_published_is_consumed(gqctl: Shell) -> None:
    gqctl("topic", "create", "t-flow", "--partitions", "2")
    assert gqctl("publish", "t-flow", "hello", "--key", "k", "-H", "a=1", "-o", "value").split()[1].isdigit()
    numbers = "".join(f"{i}\n" for i in range(1234)).encode()
    assert json.loads(gqctl("publish", "t-flow", "-l", input=numbers))["published"] == 1234
    gqctl("publish", "t-flow", "-", input=b"\xff\x00")
    gqctl("publish", "t-flow", "--null")
    read = gqctl.rows("consume", "t-flow")
    assert len(read) == 1237
    [first] = [row for row in read if row["value"] == "hello"]
    assert (first["key"], first["headers"], first["priority"]) == ("k", {"a": "1"}, 2)
    assert [row["value"] for row in read if row.get("encoding") == "base64"] == ["/wA="]
    assert [row["offset"] for row in gqctl.rows("consume", "t-flow", "--partition", str(first["partition"]), "--from",
                                                str(first["offset"]), "--max", "1")] == [first["offset"]]
    taken = gqctl("consume", "t-flow", "--group", "flow", "--max", "1237", "--timeout", "30s", "-o", "value")
    assert len(taken.splitlines()) == 1237 and {str(i) for i in range(1234)} <= set(taken.splitlines())
    assert gqctl("group", "lag", "flow", "-o", "value").split() == ["0", "0"]
    gqctl("consume", "t-flow", "--group", "flow", "--max", "1", "--timeout", "300ms", code=124)
    jsonl = json.dumps({"value": "again", "key": "k", "priority": "high"}).encode()
    gqctl("publish", "t-flow", "--jsonl", input=jsonl + b"\n")
    [again] = gqctl.rows("consume", "t-flow", "--group", "flow", "--max", "1", "--timeout", "20s")
    assert (again["value"], again["key"], again["priority"]) == ("again", "k", 1)
    gqctl("publish", "t-flow", "-l", input=b"ok\n" + b"x" * (1 << 21) + b"\nlater\n", code=1)
    assert "line 2" in gqctl.said


def test_receipts(gqctl: Shell) -> None:
    gqctl("topic", "create", "t-receipts", "--partitions", "1", "--backoff-base", "10ms")
    gqctl("publish", "t-receipts", "-l", input=b"a\nb\nc\nd\n")
    held = gqctl("consume", "t-receipts", "-g", "r", "--max", "4", "--timeout", "20s", "--ack", "manual", "-o", "value")
    receipts = {value: receipt for receipt, value in (line.split("\t") for line in held.splitlines())}
    assert gqctl.rows("extend", receipts["a"], "--for", "1m")[0]["ok"] is True
    gqctl("ack", receipts["a"])
    gqctl("nack", receipts["b"], "--delay", "10ms")
    gqctl("reject", receipts["c"], "--reason", "no good")
    gqctl("release", receipts["d"])
    again = gqctl("consume", "t-receipts", "-g", "r", "--max", "2", "--timeout", "20s", "-o", "value").split()
    assert sorted(again) == ["b", "d"]
    gqctl("ack", receipts["b"], code=1)
    assert "handed out again" in gqctl.said or "not this lease" in gqctl.said
    gqctl("publish", "t-receipts", "-l", input=b"1\n2\n")
    gqctl("consume", "t-receipts", "-g", "r", "--max", "3", "--timeout", "20s",
          "--exec", 'read v; test "$v" != 1 -o "$GOQUEUE_DELIVERY" != 1')
    assert gqctl("group", "lag", "r", "-o", "value").split() == ["0"]


def test_groups(gqctl: Shell) -> None:
    gqctl("topic", "create", "t-groups", "--partitions", "1")
    gqctl("publish", "t-groups", "-l", input=b"a\nb\nc\n")
    gqctl("consume", "t-groups", "-g", "many", "--max", "3", "--timeout", "20s")
    assert "many" in gqctl("group", "list", "-o", "value").split()
    assert gqctl.rows("group", "describe", "many")[0]["state"] == "empty"
    assert gqctl.rows("group", "reset", "many", "--to", "earliest")[0]["again"] == 3
    assert gqctl.rows("replay", "t-groups", "--group", "many", "--from", "earliest")[0]["messages"] == 0
    assert gqctl("consume", "t-groups", "-g", "many", "--max", "3", "--timeout", "20s", "-o", "value").split() == ["a", "b", "c"]
    gqctl("replay", "t-groups", "--to-topic", "t-groups-copy")
    assert gqctl("consume", "t-groups-copy", "-o", "value").split() == ["a", "b", "c"]
    gqctl("group", "pause", "many")
    gqctl("group", "resume", "many")
    gqctl("group", "delete", "many")
    gqctl("group", "describe", "many", code=4)


def test_dead_letters(gqctl: Shell) -> None:
    gqctl("topic", "create", "t-dlq", "--partitions", "1", "--max-retries", "1")
    gqctl("publish", "t-dlq", "-l", input=b"a\nb\nc\n")
    gqctl("consume", "t-dlq", "-g", "strict", "--max", "3", "--timeout", "20s", "--exec", "false")
    until(lambda: len(gqctl.rows("dlq", "list", "t-dlq")) == 3, "three dead letters")
    assert {row["topic"]: row["letters"] for row in gqctl.rows("dlq", "list")}["t-dlq"] == 3
    [first, *_] = gqctl.rows("dlq", "peek", "t-dlq", "--group", "strict")
    assert (first["value"], first["group"]) == ("a", "strict")
    assert gqctl.rows("dlq", "redrive", "t-dlq", "--partition", "0", "--offset", str(first["offset"]))[0]["redriven"] == 1
    assert gqctl("consume", "t-dlq", "-g", "strict", "--max", "1", "--timeout", "20s", "-o", "value") == "a\n"
    assert gqctl.rows("dlq", "redrive", "t-dlq", "--publish", "--max", "1")[0]["published"] == 1
    assert gqctl.rows("dlq", "purge", "t-dlq")[0]["purged"] == 1
    assert gqctl.rows("dlq", "list", "t-dlq") == []


def test_what_does_not_go_through_the_gateway_says_so(gqctl: Shell, tmp_path: Path) -> None:
    gqctl("delayed", "list", "t-none", code=1)
    assert "gateway" in gqctl.said
    for argv in (["--gateway", gqctl.url, "status"], ["--gateway", gqctl.url, "up"],
                 ["--gateway", gqctl.url, "--data-dir", str(tmp_path), "topic", "list"]):
        gqctl(*argv, code=2)
    gqctl("--gateway", "http://127.0.0.1:1", "topic", "list", code=3)
    assert "cannot reach the gateway" in gqctl.said
    assert gqctl("topic", "list", "--gateway", gqctl.url + "/v1", "-o", "value") is not None
    gqctl("--gateway", "ftp://x", "topic", "list", code=1)

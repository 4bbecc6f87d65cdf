"""The jobs on a node's directory: in this process with the shared session, and through `gqctl spark` as a user runs them."""

import json
import os
import shutil
import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gq_ctl import app
from gq_spark.jobs import dlq, export, keys, replay, traffic, verify
from tests.system.harness import Node, until, vouched

COUNT = 3000
HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def node(shared_node: Node) -> Node:
    """With `orders`: a heavy key, others, none at all; and two of `tasks` that a group gave up on."""
    client = shared_node.client()
    client.create_topic("orders", partitions=3, config={"segmentBytes": 65536})
    with client.producer(batch_messages=100) as producer:      # a batch lies in one segment
        for number in range(COUNT):
            key = None if number % 10 == 9 else b"heavy" if number % 2 else b"k%d" % (number % 100)
            headers = {"n": b"%d" % number, "pad": bytes(100)}
            producer.send("orders", b"order %d" % number, key=key, headers=headers, priority=number % 5)
    client.create_topic("tasks", partitions=1)
    for value in (b"good", b"bad", b"worse"):
        client.publish("tasks", value)
    with client.consumer(["tasks"], group="workers", ack="manual") as consumer:
        for _, message in zip(range(3), consumer.messages(timeout=20.0)):
            if message.value == b"good":
                message.ack(sync=True)
            else:
                message.reject("no such thing", sync=True)
    until(lambda: len(orders(shared_node, "tasks.dlq")) == 2, "the letters lie there")
    for topic in ("orders", "tasks", "tasks.dlq"):
        vouched(shared_node, topic)
    return shared_node


@pytest.fixture
def run(node: Node, spark, capfd):
    """run(job, *arguments): the rows it printed."""

    def job(module, *arguments: str, path: Path = node.data):
        module.main(["--path", str(path), "-o", "json", *arguments])
        return [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    return job


def orders(node: Node, topic: str = "orders"):
    client = node.client()
    return [message for part in client.partitions(topic)
            for message in client.reader(topic, part.partition, "earliest", stop_at_end=True)]


def test_traffic_counts_each_window(node, run):
    rows = run(traffic, "--topic", "orders")
    found = orders(node)
    windows = Counter(message.timestamp // HOUR_US for message in found)
    assert [row["messages"] for row in rows] == [windows[hour] for hour in sorted(windows)]
    assert [datetime.fromisoformat(row["start"]).timestamp() * 1e6 for row in rows] == [hour * HOUR_US for hour in sorted(windows)]
    assert sum(row["bytes"] for row in rows) == sum(len(message.value) + len(message.key or b"") for message in found)
    assert max(row["keys"] for row in rows) == pytest.approx(len({message.key for message in found} - {None}), abs=2)


def test_traffic_of_a_time_in_which_there_was_none(run):
    assert run(traffic, "--from", "2001-01-01T00:00:00Z", "--to", "2001-01-02T00:00:00Z") == []


def test_keys_names_the_heaviest_and_the_balance(node, run):
    rows = run(keys, "--topic", "orders", "--top", "2")
    found = orders(node)
    by_key = Counter(message.key for message in found)
    heavy = [row for row in rows if "key" in row]
    assert [(row["key"], row["messages"]) for row in heavy] == [("heavy", by_key[b"heavy"]), ("<null>", by_key[None])]
    assert heavy[0]["share"] == pytest.approx(by_key[b"heavy"] / COUNT)
    balance = {row["partition"]: row["messages"] for row in rows if "key" not in row}
    assert balance == Counter(message.partition for message in found)


def test_dlq_says_why(run):
    [row] = run(dlq, "--topic", "t*")
    assert (row["topic"], row["group"], row["reason"], row["letters"]) == ("tasks", "workers", "no such thing", 2)
    assert run(dlq, "--topic", "orders") == []


def test_verify_finds_what_gqctl_log_verify_finds(node, run):
    rows = run(verify)
    assert sum(row["messages"] for row in rows if row["topic"] == "orders") == COUNT
    assert max(row["segments"] for row in rows) > 1
    quiet = [row for row in rows if not row["topic"].startswith("__")]
    there = [json.loads(line) for line in node.gqctl("log", "verify", "-o", "json").stdout.splitlines()]
    assert quiet == [row for row in there if not row["topic"].startswith("__")]


def test_verify_names_damage_by_file_and_position(node, run, tmp_path, capfd):
    shutil.copytree(node.data / "logs" / "orders", tmp_path / "logs" / "orders")
    segments = max((sorted(folder.glob("*.log")) for folder in tmp_path.glob("logs/orders/*")), key=len)
    assert len(segments) > 2
    with segments[1].open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 0x10]))
    with pytest.raises(app.Quiet) as ended:
        run(verify, path=tmp_path)
    assert ended.value.code == 1
    assert f"{segments[1]}: position " in capfd.readouterr().err
    segments[1].unlink()
    with pytest.raises(app.Quiet):
        run(verify, path=tmp_path)
    assert f"{segments[2]}: position 0: " in capfd.readouterr().err


def test_verify_of_nothing(run, tmp_path):
    with pytest.raises(app.Failed, match="no segments below"):
        run(verify, path=tmp_path)


def parquet(spark, folder: Path):
    """{(partition, offset): (date, key, value, headers)}; each is there once."""
    rows = spark.read.parquet(str(folder)).collect()
    found = {(row.partition, row.offset): (str(row.date), row.key, row.value, [(h.key, h.value) for h in row.headers or []])
             for row in rows}
    assert len(found) == len(rows)
    return {place: (date, *(None if part is None else bytes(part) for part in rest[:2]), [(k, bytes(v)) for k, v in rest[2]])
            for place, (date, *rest) in found.items()}


def expected(found):
    return {(m.partition, m.offset): (str(datetime.fromtimestamp(m.timestamp // 1_000_000, UTC).date()), m.key, m.value, m.headers)
            for m in found}


def test_export_goes_on_where_it_stopped_in_any_time_zone(node, run, spark, tmp_path):
    client = node.client()
    client.create_topic("growing", partitions=2)
    for number in range(10):
        client.publish("growing", b"%d" % number, headers={"n": b"1"})
    vouched(node, "growing")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        assert run(export, "--topic", "growing", "--to", str(tmp_path / "out"))[0]["messages"] == 10
        for number in range(10, 15):
            client.publish("growing", b"%d" % number)
        vouched(node, "growing")
        assert run(export, "--topic", "growing", "--to", str(tmp_path / "out"))[0]["messages"] == 5
        assert run(export, "--topic", "growing", "--to", str(tmp_path / "out"))[0]["messages"] == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    found = orders(node, "growing")
    assert len(found) == 15 and parquet(spark, tmp_path / "out") == expected(found)
    assert {path.parent.name for path in (tmp_path / "out").glob("date=*/topic=*")} == {
        f"date={date}" for date, *_ in expected(found).values()}


def test_export_killed_in_the_middle_has_each_message_once(node, run, spark, tmp_path):
    out = tmp_path / "out"

    def steps() -> list[Path]:
        return list(out.glob("_checkpoint/commits/[0-9]*"))

    arguments = ["--topic", "orders", "--to", str(out)]
    gqctl = [sys.executable, "-m", "gq_ctl", "spark", "--master", "local[2]", "export", "--batch", "200"]
    process = node.spawn([*gqctl, *arguments], start_new_session=True)
    try:
        until(lambda: process.poll() is not None or len(steps()) >= 2, "two steps are done", 120)
        assert process.poll() is None, process.communicate()[0]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done = len(steps())
    assert 2 <= done < COUNT // 200, "it was to be killed in the middle"
    assert run(export, *arguments)[0]["messages"] < COUNT - 200, "it went on where it was killed"
    assert parquet(spark, out) == expected(orders(node))


def test_replay_publishes_what_fits(node, run):
    [row] = run(replay, "--topic", "orders", "--to-topic", "orders.some", "--where", "priority = 0 AND string(value) LIKE '%00'")
    copies = {(m.key, m.value, m.priority, dict(m.headers)["n"]) for m in orders(node, "orders.some")}
    assert copies == {(m.key, m.value, m.priority, dict(m.headers)["n"]) for m in orders(node)
                      if m.priority == 0 and m.value.endswith(b"00")}
    assert row == {"topic": "orders", "to_topic": "orders.some", "messages": len(copies)} and len(copies) == COUNT // 100 - 1


def test_gqctl_says_in_one_line_what_is_wrong(node, spark):
    failed = node.gqctl("spark", "--master", "local[1]", "keys", "--topic", "nope", check=False, timeout=120)
    lines = [line for line in failed.stderr.decode().splitlines() if not line.startswith("WARNING: Using incubator modules")]
    assert failed.returncode == app.NOT_FOUND and len(lines) == 1 and lines[0].startswith("gqctl: topic nope is not in ")

"""Starting and stopping: one daemon of a kind per data directory, paths of any length, readiness in any order, and what is left
behind by a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.groups import make_topic, put, read_all
from tests.system.harness import DAEMONS, Node, until


@pytest.mark.parametrize("name", DAEMONS)
def test_a_second_daemon_on_a_data_directory_refuses_with_one_line(shared_node: Node, name: str) -> None:
    pids = shared_node.pids
    done = subprocess.run([sys.executable, "-m", f"gq_{name}"], env=shared_node.env, cwd=shared_node.folder, timeout=30,
                          capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert str(shared_node.pid(name)) in done.stderr and str(shared_node.data) in done.stderr
    assert shared_node.pids == pids
    status = shared_node.status(name)
    assert status and status.pid == pids[name], "its socket is still the first one's"


def test_another_way_to_the_same_directory_is_the_same_node(shared_node: Node, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(shared_node.data)
    done = subprocess.run([sys.executable, "-m", "gq_logd"], env={**shared_node.env, "GOQUEUE_DATA_DIR": str(link)}, timeout=30,
                          capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("text", ["storage:\n  fsync:\n    mode: sometimes\n", "storage:\n  fsink: every\n", "nonsense: [1\n"])
def test_a_bad_config_is_one_line_and_exit_2(tmp_path: Path, text: str) -> None:
    node = Node(tmp_path / "node", config=text)
    done = subprocess.run([sys.executable, "-m", "gq_logd"], env=node.env, timeout=30, capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_path_longer_than_a_sockets_may_be_and_with_odd_characters(tmp_path: Path) -> None:
    data = tmp_path / ("long " * 20) / "d\xe4ta" / ("x" * 120)
    assert len(os.fsencode(data)) > 200
    with Node(tmp_path / "node", data=data) as node:
        node.start()
        with node.client() as client:
            topic = make_topic(client, "t", 1)
            put(client, topic, [b"1", b"2"])
            node.crash()
            assert [record.value for record in read_all(client, topic)] == [b"1", b"2"]
        assert node.gqctl("topic", "list", "-o", "value").stdout.split() == [b"t"]


def test_a_partition_that_cannot_be_read_is_said_and_keeps_nobody_from_the_others(node: Node) -> None:
    with node.client() as client:
        topic = make_topic(client, "half", 2)
        for number in (0, 1):
            put(client, topic, [b"%d" % number], number)
        node.terminate()
        meta = node.data / "logs" / "half" / "0" / "partition.meta"
        meta.unlink()
        meta.mkdir()
        node.start()
        assert [record.value for record in read_all(client, topic, 1)] == [b"1"]
        status = node.status("logd")
        assert status and status.detail == "1 partitions are offline, see the log"
        done = node.gqctl("consume", "half", check=False)
        assert done.returncode == 3 and done.stderr.startswith(b"gqctl: partition 0 of half has no leader now, or cannot be read")
        meta.rmdir()
        until(lambda: (s := node.status("logd")) is not None and not s.detail, "it is made again")
        assert [record.value for record in read_all(client, topic, 0)] == [b"0"]


def test_two_nodes_side_by_side_do_not_meet(node: Node, tmp_path: Path) -> None:
    with Node(tmp_path / "other") as other:
        other.start()
        with node.client() as one, other.client() as two:
            one.publish("t", b"one", partition=0)
            two.publish("t", b"two", partition=0)
            for client, value in ((one, b"one"), (two, b"two")):
                with client.reader("t", 0, stop_at_end=True) as reader:
                    assert [record.value for record in reader] == [value]


@pytest.mark.parametrize("order", [("logd", "groupd", "metad"), ("groupd", "metad", "logd")])
def test_daemons_start_in_any_order_and_answer_before_they_are_ready(tmp_path: Path, order: tuple[str, ...]) -> None:
    with Node(tmp_path / "node") as node:
        for name in order[:2]:
            node.start(name, wait=False)
        waiting = order[0]
        status = until(lambda: node.status(waiting, timeout=0.5), f"{waiting} answers", 20)
        assert not status.ready and status.detail, "it says what it waits for"
        node.start(order[2])
        node.wait_ready()
        with node.client() as client:
            assert client.publish("t", b"x", partition=0).offset >= 0


def test_an_orderly_stop_exits_0_and_leaves_no_socket(node: Node) -> None:
    with node.client() as client:
        client.publish("t", b"x")
    assert node.terminate() == dict.fromkeys(DAEMONS, 0)
    assert not list(node.runtime.glob("*d.sock"))


def test_a_kill_leaves_sockets_that_a_start_takes_over(node: Node) -> None:
    node.kill9()
    assert list(node.runtime.glob("*d.sock"))
    node.start()
    with node.client() as client:
        client.publish("t", b"x")


def test_a_frozen_daemon_is_waited_for_not_given_up(node: Node) -> None:
    with node.client(timeout=20) as client:
        client.publish("t", b"0", partition=0)
        node.freeze("logd")
        with client.producer() as producer:
            sent = [producer.send("t", b"%d" % n, partition=0) for n in range(1, 100)]
            assert not any(delivery.done() for delivery in sent)
            node.thaw("logd")
            assert [delivery.result(20).offset for delivery in sent] == list(range(2, 101))
        os.kill(node.pid("logd"), signal.SIGSTOP)
        assert node.status("metad"), "others answer meanwhile"
        assert node.status("groupd")
        node.thaw("logd")
        with client.reader("t", 0, stop_at_end=True) as reader:
            assert [record.value for record in reader] == [b"%d" % n for n in range(100)]

"""A disk that is full: publishes are refused with the retriable disk_full, reads and acks go on, and once there is room publishing
goes on in the same process with nothing acked lost. On a small tmpfs where the test may mount one, and with a limit on files."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gq_client.routing import To
from gq_proto import codec
from gq_proto.errors import DiskFull
from gq_proto.messages import Kind, Produce, ProducePart, TopicMeta
from tests.system.groups import describe, make_topic, read_all, total
from tests.system.harness import Node, until

SIZE = 24 << 20
VALUE = 100_000


def try_put(client: Any, topic: TopicMeta, value: bytes) -> int:
    """Append one message without any retry: its offset, or the error is raised."""
    builder = codec.BatchBuilder()
    builder.add(b"k", value)
    reply, _ = client.call(Kind.PRODUCE, Produce([ProducePart(topic.id, 0)]), [builder.seal()], to=To.leader(topic.id, 0))
    part = reply.parts[0]
    if part.error == DiskFull.code:
        raise DiskFull(part.message)
    assert not part.error, part.message
    return int(part.base_offset)


def fill_up(client: Any, topic: TopicMeta, most: int) -> list[bytes]:
    """Until it is refused; what was acked."""
    acked: list[bytes] = []
    for n in range(most):
        value = b"%08d" % n + b"x" * VALUE
        try:
            try_put(client, topic, value)
        except DiskFull as e:
            assert e.retriable and "\n" not in e.message
            return acked
        acked.append(value)
    raise AssertionError(f"{most} messages fitted")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds SIZE bytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("needs the right to mount a tmpfs; the limit on file sizes is tried instead")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_file_system(small_disk: Path, tmp_path: Path) -> None:
    with Node(tmp_path / "node", data=small_disk / "data") as node:
        node.start()
        pids = node.pids
        with node.client() as client:
            topic = make_topic(client, "t", 1, segmentBytes=1 << 20)
            with client.consumer("t", "g", ack="manual") as consumer:
                acked = fill_up(client, topic, SIZE // VALUE)
                assert len(acked) > 50
                taken = {}
                while len(taken) < 50:                                  # leases and acks are records too
                    for message in consumer.poll(10, timeout=10):
                        taken[message.offset] = message.value
                        message.ack(sync=True)
                assert list(taken.values()) == acked[:len(taken)]
                assert total(client, "g", "lag") == len(acked) - len(taken)
                assert [record.value for record in read_all(client, topic)] == acked
                with pytest.raises(DiskFull):
                    try_put(client, topic, b"x" * VALUE)
                filler = small_disk / "filler"                          # not even the reserve is left
                _fill_file(filler)
                with pytest.raises(DiskFull):
                    try_put(client, topic, b"x" * VALUE)
                assert [record.value for record in read_all(client, topic)] == acked
                filler.unlink()
                client.delete_before("t", 0, 40)
                until(lambda: _fits(client, topic, b"again"), "there is room again", 10)
                assert [record.value for record in read_all(client, topic)][-2:] == [acked[-1], b"again"]
                start = client.partitions("t")[0].log_start
                assert [r.value for r in read_all(client, topic)] == [*acked[start - 1:], b"again"]
                assert describe(client, "g").members
            assert node.pids == pids
        node.crash()
        with node.client() as client:
            start = client.partitions("t")[0].log_start
            assert [r.value for r in read_all(client, topic)] == [*acked[start - 1:], b"again"]
            assert total(client, "g", "lag") == len(acked) - len(taken) + 1


def test_a_waiting_producer_goes_on_once_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    with Node(tmp_path / "node", data=small_disk / "data") as node:
        node.start()
        with node.client() as client:
            topic = make_topic(client, "t", 1)
            filler = small_disk / "filler"
            _fill_file(filler)
            with client.producer() as producer:
                sent = [producer.send("t", b"%d" % n) for n in range(1000)]
                with pytest.raises(DiskFull):
                    try_put(client, topic, b"x" * VALUE)
                assert not any(delivery.done() for delivery in sent)
                filler.unlink()
                first = sent[0].result(20).offset
                assert [delivery.result(20).offset for delivery in sent] == list(range(first, first + 1000))
            assert [record.value for record in read_all(client, topic)] == [b"%d" % n for n in range(1000)]


def _fill_file(path: Path) -> None:
    """To the last byte."""
    with path.open("wb", buffering=0) as file:
        for chunk in (1 << 20, 4096):
            try:
                while file.write(b"x" * chunk) == chunk:
                    pass
            except OSError:
                continue


def _fits(client: Any, topic: TopicMeta, value: bytes) -> bool:
    try:
        return try_put(client, topic, value) > 0
    except DiskFull:
        return False


def test_a_limit_on_file_sizes(node: Node) -> None:
    """EFBIG in the middle of a write: as a full disk, and the file is whole afterwards."""
    pid = node.pid("logd")
    with node.client() as client:
        topic = make_topic(client, "t", 1)
        limit = 1_000_000
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        acked = fill_up(client, topic, 100)
        log = next((node.data / "logs/t/0").glob("*.log"))
        assert len(acked) == (limit - VALUE // 2) // (VALUE + 50)
        assert log.stat().st_size < limit, "what was half written is cut off"
        small = [b"small", b"", b"y" * 1000]
        for value in small:
            try_put(client, topic, value)
        assert [record.value for record in read_all(client, topic)] == [*acked, *small]
        with pytest.raises(DiskFull):
            try_put(client, topic, b"x" * VALUE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
        at = try_put(client, topic, b"x" * VALUE)
        assert at == len(acked) + len(small) + 1, "no offset was lost"
        assert node.pid("logd") == pid and node.alive("logd")
    node.crash("logd")
    with node.client() as client:
        assert [record.value for record in read_all(client, topic)] == [*acked, *small, b"x" * VALUE]
        node.gqctl("log", "verify")

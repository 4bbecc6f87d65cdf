"""Topics come, grow and go by metadata's word; folders go only by an explicit deletion."""

from pathlib import Path

import pytest

from gq_proto import messages
from gq_proto.errors import GoQueueError, PartitionOffline, UnknownPartition, UnknownTopicId
from gq_proto.messages import Kind
from tests.unit.gq_logd.world import NODE, TOPIC, Call, World, batch_of, values


def topic(id: int, name: str = "t", partitions: int = 1, epoch: int = 1, leader: str = NODE) -> messages.TopicMeta:
    return messages.TopicMeta(name, id, messages.TopicConfig(), [messages.PartitionMeta(leader, epoch) for _ in range(partitions)])


def folders(path: Path) -> list[str]:
    return sorted(p.name for p in (path / "logs").iterdir())


def test_a_topic_grows(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.count = 3
    world.lead()
    assert world.publish(batch_of(b"b"), partition=2)[0].error == 0
    assert values(world.read_all()) == [b"a"]
    with pytest.raises(UnknownPartition):
        world.ask(Kind.RUNS, messages.Runs(0), partition=3)


def test_deleting_removes_the_folder_and_a_new_topic_of_the_name_begins_empty(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.apply(deleted=[TOPIC], topics=[topic(88)])
    assert world.removed == [f"{tmp_path}/logs/t.{TOPIC}.deleted"] and folders(tmp_path) == ["t"]
    with pytest.raises(UnknownTopicId):
        world.ask(Kind.RUNS, messages.Runs(0))
    assert world.ask(Kind.RUNS, messages.Runs(0), topic_id=88).next_offset == 0
    world.tick(3)
    world.crash(lead=False)
    assert list(world.core.catalog.partitions) == [(88, 0)]


def test_a_deletion_cut_short_by_a_crash_is_finished(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.core.files.pool.close()
    (tmp_path / "logs/t").rename(tmp_path / f"logs/t.{TOPIC}.deleted")
    (tmp_path / "logs/odd.5.deleted/0").mkdir(parents=True)              # a topic may be called that
    (tmp_path / f"logs/t.{TOPIC}.deleted/0/partition.meta").rename(tmp_path / "meta")
    (tmp_path / "meta").rename(tmp_path / f"logs/t.{TOPIC}.deleted/0/partition.meta")
    world.start(lead=False)
    world.turn()
    assert folders(tmp_path) == []


def test_a_topic_named_like_a_deleted_one_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.apply(topics=[topic(99, "x.5.deleted")])
    world.crash(lead=False)
    world.turn()
    assert (99, 0) in world.core.catalog.partitions and "x.5.deleted" in folders(tmp_path)


def test_what_metadata_lacks_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.apply(full=True)
    assert folders(tmp_path) == ["t"] and world.removed == []
    assert world.fetch(0)[0].error == 52
    world.lead()
    assert values(world.read_all()) == [b"a"]


def test_the_same_name_with_another_id_moves_the_old_folder_aside(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.apply(topics=[topic(88)])
    assert folders(tmp_path) == ["t", f"t.{TOPIC}.orphan"]
    assert world.ask(Kind.RUNS, messages.Runs(0), topic_id=88).next_offset == 0
    world.crash(lead=False)
    assert list(world.core.catalog.partitions) == [(88, 0)] and any("left alone" in note for note in world.notes)


def test_a_lost_partition_meta_is_made_again_by_metadata(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.core.files.pool.close()
    (tmp_path / "logs/t/0/partition.meta").write_bytes(b"rubbish")
    world.start()
    assert values(world.read_all()) == [b"a"]
    world.crash()
    assert values(world.read_all()) == [b"a"] and not world.notes


def test_a_partition_meta_that_cannot_be_read_takes_no_other_partition_along(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.core.files.pool.close()
    meta = tmp_path / "logs/t/0/partition.meta"
    meta.unlink()
    meta.mkdir()
    world.crash(lead=False)
    world.apply(topics=[topic(TOPIC), topic(99, "u")], full=True)
    assert list(world.core.catalog.partitions) == [(99, 0)]
    assert isinstance(world.core.catalog.broken[TOPIC, 0], PartitionOffline)
    meta.rmdir()
    assert [partition.topic for partition in world.core.catalog.retry()] == ["t"]
    assert values(world.read_all()) == [b"a"]


def test_another_node_leads(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    world.apply(topics=[topic(TOPIC, epoch=9, leader="other"), topic(99, "else", leader="other")])
    assert world.fetch(0)[0].error == 52 and folders(tmp_path) == ["t"]
    info = world.ask(Kind.PARTITIONS, messages.Partitions([TOPIC])).partitions
    assert [(i.topic, i.leader, i.high_watermark) for i in info] == [("t", False, 2)]


def test_while_recovering_requests_are_put_off(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.core.recovered = False
    call = Call(Kind.RUNS, messages.Runs(0))
    with pytest.raises(GoQueueError, match="recovering"):
        world.send(call)
    assert call.error.retriable


def test_rubbish_in_the_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "logs/x").mkdir(parents=True)
    (tmp_path / "logs/file").write_text("hello")
    (tmp_path / "logs/t/0").mkdir(parents=True)
    (tmp_path / "logs/t/0/nonsense").write_text("hello")
    (tmp_path / "logs/t/0/checkpoint.tmp").write_text("half")
    world = World(tmp_path)
    world.publish(batch_of(b"a"))
    assert values(world.read_all()) == [b"a"]
    assert not (tmp_path / "logs/t/0/checkpoint.tmp").exists()

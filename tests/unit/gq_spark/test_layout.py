"""Which folder is which partition, and which of several replicas counts."""

import os
import shutil

import pytest

from gq_proto import files
from gq_proto.errors import BadRequest, Corrupt, UnknownTopic
from gq_spark.disk import Disk
from gq_spark.layout import find
from gq_spark.loss import DataLoss


def partition(folder, topic="t", number=0, *, id_=1, epoch=1, end=10, bases=(0,), named=None):
    home = folder / "logs" / (named or topic) / str(number)
    home.mkdir(parents=True)
    (home / files.PARTITION_META).write_bytes(files.encode_partition_meta(files.PartitionMeta(id_, number, topic)))
    (home / files.CHECKPOINT).write_bytes(files.encode_checkpoint(files.Checkpoint(0, end, end, end)))
    (home / files.LEADER_EPOCHS).write_bytes(files.encode_leader_epochs([files.LeaderEpoch(epoch, 0)]))
    for base in bases:
        (home / f"{base:020d}.log").write_bytes(b"x" * 7)
    return home


def found(*folders, topics=("*",)):
    return [(place.topic, place.number) for place in find(Disk(), [str(folder) for folder in folders], topics)]


def test_topics_by_name_list_and_pattern(tmp_path):
    for id_, topic in enumerate(("orders", "orders.dlq", "pay", "__groups")):
        for number in (0, 10, 2):
            partition(tmp_path, topic, number, id_=id_)
    assert found(tmp_path, topics=("orders",)) == [("orders", 0), ("orders", 2), ("orders", 10)]
    assert {topic for topic, _ in found(tmp_path)} == {"orders", "orders.dlq", "pay"}
    assert {topic for topic, _ in found(tmp_path, topics=("pay", "orders*"))} == {"orders", "orders.dlq", "pay"}
    assert {topic for topic, _ in found(tmp_path, topics=("__*",))} == {"__groups"}
    assert {topic for topic, _ in found(tmp_path, topics=("__groups",))} == {"__groups"}
    with pytest.raises(UnknownTopic, match="topic order is not in"):
        found(tmp_path, topics=("order", "pay"))
    for topics in (("pay",), ("*",)):
        with pytest.raises(BadRequest, match="nowhere is no data directory"):
            found(tmp_path, tmp_path / "nowhere", topics=topics)


def test_segments_are_in_order_and_know_the_next(tmp_path):
    home = partition(tmp_path, bases=(100, 0, 20))
    for name in ("00000000000000000000.index", "1.log", "notes.txt"):
        (home / name).write_bytes(b"")
    [place] = find(Disk(), [str(tmp_path)], ["t"])
    assert [(part.base, part.size, part.following) for part in place.segments] == [(0, 7, 20), (20, 7, 100), (100, 7, -1)]
    assert place.segments[1].path(".index") == f"{home}/00000000000000000020.index"
    assert place.epoch == 1 and place.mark.high_watermark == 10


def test_of_replicas_the_highest_epoch_then_the_longest(tmp_path):
    one, other, third = (partition(tmp_path / name, epoch=epoch, end=end)
                         for name, epoch, end in (("a", 2, 10), ("b", 3, 5), ("c", 3, 8)))
    paths = [str(tmp_path / name) for name in "abc"]

    def chosen():
        [place] = find(Disk(), paths, ["t"])
        return place.folder
    assert chosen() == str(third)
    shutil.rmtree(third)
    assert chosen() == str(other)
    shutil.rmtree(other)
    assert chosen() == str(one)


def test_folders_that_are_no_partition_of_the_topic(tmp_path):
    partition(tmp_path)
    partition(tmp_path, named="t.1.deleted")
    (tmp_path / "logs/t/1").mkdir()
    (tmp_path / "logs/t/x").mkdir()
    (tmp_path / "logs/file").write_bytes(b"")
    assert found(tmp_path) == [("t", 0)]


def test_of_topics_of_one_name_the_one_made_last(tmp_path, caplog):
    for number in range(2):
        partition(tmp_path / "a", number=number, id_=9, epoch=9)
    made = partition(tmp_path / "b", id_=5) / files.PARTITION_META
    os.utime(made, ns=(0, os.stat(made).st_mtime_ns + 10**9))
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    with pytest.raises(DataLoss, match=f"{tmp_path}/a/logs/t/0 is of another topic t"):
        find(Disk(), paths, ["t"])
    [place] = find(Disk(), paths, ["t"], fatal=False)
    assert (place.topic_id, place.number) == (5, 0) and caplog.text.count("going on with the rest") == 2


def test_damaged_small_files(tmp_path):
    home = partition(tmp_path)
    for name in (files.CHECKPOINT, files.LEADER_EPOCHS):
        (home / name).write_bytes(b"rubbish")
    [place] = find(Disk(), [str(tmp_path)], ["t"])
    assert place.mark is None and place.epoch == -1
    (home / files.PARTITION_META).write_bytes(b"rubbish")
    with pytest.raises(Corrupt, match=f"{home}: partition.meta"):
        find(Disk(), [str(tmp_path)], ["t"])
    os.remove(home / files.PARTITION_META)
    assert found(tmp_path) == []

"""The JSON files about groups."""

import json
import os
from pathlib import Path

from gq_groupd.exports import AHEAD_MAX, Exports
from gq_proto.messages import GroupInfo, GroupPartition


def info(committed: int, ahead: list[int], partitions: int = 2) -> GroupInfo:
    parts = [GroupPartition("t", 7, p, "m", committed, 100, 0, 5, 0, 0, ahead) for p in range(partitions)]
    return GroupInfo("g", 1, "shared", 2, False, [], parts, ["t"], "empty")


def test_files_follow_and_only_changed_ones_are_written(tmp_path: Path) -> None:
    said: list[str] = []
    exports = Exports(str(tmp_path), said.append)
    exports.write(info(3, [5, 2, 9, 1]))
    path = tmp_path / "offsets" / "g" / "t-1.offset"
    assert json.loads(path.read_text()) == {"topic": "t", "topicId": 7, "partition": 1, "committed": 3,
                                            "ackedAhead": [[5, 7], [9, 10]], "ackedAheadRanges": 2}
    group = tmp_path / "meta" / "consumer_groups" / "g.json"
    assert json.loads(group.read_text())["mode"] == "shared"
    before = path.stat().st_ino
    exports.write(info(3, [5, 2, 9, 1]))
    assert path.stat().st_ino == before
    exports.write(info(4, []))
    assert json.loads(path.read_text())["committed"] == 4
    exports.write(info(4, [], partitions=1))
    assert os.listdir(path.parent) == ["t-0.offset"]
    exports.remove("g")
    assert not group.exists() and not path.parent.exists() and not said


def test_very_many_ranges_are_counted_not_listed(tmp_path: Path) -> None:
    Exports(str(tmp_path), print).write(info(0, [x for i in range(AHEAD_MAX + 5) for x in (2 * i + 1, 1)], 1))
    text = json.loads((tmp_path / "offsets" / "g" / "t-0.offset").read_text())
    assert len(text["ackedAhead"]) == AHEAD_MAX and text["ackedAheadRanges"] == AHEAD_MAX + 5


def test_a_disk_that_refuses_is_said_once_per_file_and_survived(tmp_path: Path) -> None:
    (tmp_path / "offsets").write_text("a file where a folder should be")
    said: list[str] = []
    exports = Exports(str(tmp_path), said.append)
    exports.write(info(3, []))
    assert len(said) == 2 and "t-0.offset" in said[0]
    (tmp_path / "offsets").unlink()
    exports.write(info(3, []))
    assert (tmp_path / "offsets" / "g" / "t-1.offset").exists(), "tried again, although nothing changed"

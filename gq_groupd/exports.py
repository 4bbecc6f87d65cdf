"""State of the groups as JSON files, for eyes and scripts: nothing in GoQueue reads them.

    {data}/meta/consumer_groups/{group}.json             members, assignment, partitions
    {data}/offsets/{group}/{topic}-{partition}.offset    {"topic", "partition", "committed", "ackedAhead": [[from, to], ...]}

`to` is exclusive; of very many ranges only the first AHEAD_MAX are listed ("ackedAheadRanges" counts all).

Owns those files. Writes one only when its text changed, whole (a rename), not forced to the disk: after a power loss they are
written again with the group's next change. A disk that refuses costs the files, never the daemon.
"""

import json
import os
import shutil
from collections.abc import Callable
from typing import Any, Final

from gq_proto.messages import GroupInfo, GroupPartition

AHEAD_MAX: Final = 1_000


class Exports:
    def __init__(self, data_dir: str, complain: Callable[[str], None]) -> None:
        self._groups = os.path.join(data_dir, "meta", "consumer_groups")
        self._offsets = os.path.join(data_dir, "offsets")
        self._complain = complain
        self._written: dict[str, dict[str, str]] = {}     # group -> path -> text

    def write(self, info: GroupInfo) -> None:
        written = self._written.setdefault(info.group, {})
        wanted = {os.path.join(self._groups, f"{info.group}.json"): _group_text(info)}
        for part in info.partitions:
            wanted[os.path.join(self._offsets, info.group, f"{part.topic}-{part.partition}.offset")] = _offset_text(part)
        for path, text in wanted.items():
            if written.get(path) != text and self._write(path, text):
                written[path] = text
        for path in written.keys() - wanted.keys():
            self._try(os.unlink, path)
            del written[path]

    def remove(self, group: str) -> None:
        """The group is gone."""
        self._written.pop(group, None)
        self._try(os.unlink, os.path.join(self._groups, f"{group}.json"))
        self._try(shutil.rmtree, os.path.join(self._offsets, group))

    def _write(self, path: str, text: str) -> bool:
        def write(path: str) -> None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{path}.new", path)
        return self._try(write, path)

    def _try(self, call: Callable[[str], Any], path: str) -> bool:
        try:
            call(path)
        except FileNotFoundError:
            return False
        except OSError as e:
            self._complain(f"cannot export {path}: {e.strerror or e}")
            return False
        return True


def _offset_text(part: GroupPartition) -> str:
    flat = part.acked_ahead[: 2 * AHEAD_MAX]
    ahead = [[low, low + count] for low, count in zip(flat[::2], flat[1::2], strict=True)]
    return json.dumps({"topic": part.topic, "topicId": part.topic_id, "partition": part.partition, "committed": part.committed,
                       "ackedAhead": ahead, "ackedAheadRanges": len(part.acked_ahead) // 2}) + "\n"


def _group_text(info: GroupInfo) -> str:
    members = [{"member": m.member, "client": m.client, "topics": m.topics,
                "assignment": [f"{a.topic}-{a.partition}" for a in m.assignment]} for m in info.members]
    parts = [{"topic": p.topic, "partition": p.partition, "owner": p.owner, "committed": p.committed} for p in info.partitions]
    return json.dumps({"group": info.group, "mode": info.mode, "generation": info.generation, "paused": info.paused,
                       "state": info.state, "topics": info.topics, "members": members, "partitions": parts}, indent=1) + "\n"

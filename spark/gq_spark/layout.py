"""Where which partition lies: data directories -> places, one per partition.

A partition is known by its `partition.meta`, not by its folder's name: a deleted topic's folder is renamed before its files go, and
several directories may hold replicas of one partition. The one of the highest leader epoch counts, then the longest. Topics of one
name in several directories are different ones (made anew, while an old replica lies about; or of nodes that know nothing of each
other): the one made last is read, and the others are lost. Only lists and reads small files.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from gq_proto import files, segment
from gq_proto.errors import BadRequest, Corrupt, UnknownTopic
from gq_proto.names import INTERNAL_PREFIX, is_internal
from gq_spark.disk import Disk
from gq_spark.loss import lost
from gq_spark.options import is_pattern


class Segment(NamedTuple):
    """A log file. `following`: the base of the next one, -1 for the last. `size`: bytes when it was listed."""

    folder: str
    base: int
    size: int
    following: int

    def path(self, suffix: str = segment.LOG_SUFFIX) -> str:
        return f"{self.folder}/{segment.segment_name(self.base, suffix)}"


class Place(NamedTuple):
    """A partition's folder. `mark` is None when there is no checkpoint yet, or a damaged one."""

    topic: str
    topic_id: int
    number: int
    folder: str
    mark: files.Checkpoint | None
    epoch: int
    segments: tuple[Segment, ...]

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.number}"


def find(disk: Disk, paths: Iterable[str], topics: Iterable[str], fatal: bool = True, strict: bool = True) -> list[Place]:
    """The places of the topics that were asked for, by topic and number. UnknownTopic for a name that is nowhere, if `strict`;
    BadRequest for a path that is none; if `fatal`, DataLoss for topics of one name. A topic with no partition yet is there, and
    empty."""
    wanted = tuple(topics)
    found: dict[tuple[int, int], list[Place]] = {}
    seen: set[str] = set()
    for path in dict.fromkeys(paths):
        if not disk.is_folder(f"{path}/logs"):
            raise BadRequest(f"option path: {path} is no data directory, or not mounted here: there is no folder logs in it")
        for topic in disk.list_dir(f"{path}/logs"):
            if topic.folder and any(_matches(topic.name, pattern) for pattern in wanted):
                seen.add(topic.name)
                for place in _partitions(disk, f"{path}/logs/{topic.name}", topic.name):
                    found.setdefault((place.topic_id, place.number), []).append(place)
    for name in wanted:
        if strict and name not in seen and not is_pattern(name):
            raise UnknownTopic(f"topic {name} is not in {', '.join(paths)}: is option path a data directory of a node that has it?")
    last = _made_last(disk, [place for replicas in found.values() for place in replicas])
    for replicas in found.values():
        if replicas[0].topic_id != last[replicas[0].topic]:
            lost(fatal, f"{replicas[0].folder} is of another topic {replicas[0].topic} than the one that was made last")
    chosen = [_best(replicas) for replicas in found.values() if replicas[0].topic_id == last[replicas[0].topic]]
    return sorted(chosen, key=lambda place: (place.topic, place.number))


def _made_last(disk: Disk, places: Iterable[Place]) -> dict[str, int]:
    """The id by topic: by when partition.meta was written, which happens once."""
    made = {place.topic: set[tuple[int, int]]() for place in places}
    for place in places:
        made[place.topic].add((disk.modified(f"{place.folder}/{files.PARTITION_META}"), place.topic_id))
    return {topic: max(ids)[1] for topic, ids in made.items()}


def _matches(topic: str, pattern: str) -> bool:
    """Internal topics are there for those who say so."""
    return fnmatchcase(topic, pattern) and (not is_internal(topic) or pattern.startswith(INTERNAL_PREFIX))


def _partitions(disk: Disk, folder: str, topic: str) -> Iterable[Place]:
    for entry in disk.list_dir(folder):
        if entry.folder and entry.name.isascii() and entry.name.isdigit():
            place = _place(disk, f"{folder}/{entry.name}", topic, int(entry.name))
            if place:
                yield place


def _place(disk: Disk, folder: str, topic: str, number: int) -> Place | None:
    """None for one of a deleted topic, and one that is just being made."""
    raw = disk.read(f"{folder}/{files.PARTITION_META}")
    if not raw:
        return None
    try:
        meta = files.decode_partition_meta(raw)
    except Corrupt as error:
        raise Corrupt(f"{folder}: {error.message}") from None
    if meta.topic != topic or meta.partition != number:
        return None
    mark = _mark(disk.read(f"{folder}/{files.CHECKPOINT}"))     # before the listing: what it vouches for is in there
    return Place(topic, meta.topic_id, number, folder, mark, _epoch(disk.read(f"{folder}/{files.LEADER_EPOCHS}")),
                 _segments(disk, folder))


def _mark(raw: bytes) -> files.Checkpoint | None:
    try:
        return files.decode_checkpoint(raw) if raw else None
    except Corrupt:
        return None


def _epoch(raw: bytes) -> int:
    try:
        epochs = files.decode_leader_epochs(raw) if raw else []
    except Corrupt:
        epochs = []
    return epochs[-1].epoch if epochs else -1


def _segments(disk: Disk, folder: str) -> tuple[Segment, ...]:
    logs = [(base, entry.size) for entry in disk.list_dir(folder)
            if not entry.folder and (base := segment.base_offset_of(entry.name)) is not None]
    following = [base for base, _ in logs[1:]] + [-1]
    return tuple(Segment(folder, base, size, then) for (base, size), then in zip(logs, following))


def _best(replicas: list[Place]) -> Place:
    return max(replicas, key=lambda place: (place.epoch, place.mark.high_watermark if place.mark else 0,
                                            place.segments[-1][1:3] if place.segments else (-1, 0)))

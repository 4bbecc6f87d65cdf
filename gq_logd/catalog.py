"""Which partitions this process holds, and their folders: found at the start, made and deleted as the metadata says.

Owns `logs/`, the table of partitions and what is known of topics. A topic is its id: a folder of the same name with another id is
moved aside, never written to. A folder is removed only when its topic's id was deleted on purpose: it is renamed
`{topic}.{id}.deleted` first, so a crash in between is finished at the next start. What metadata merely lacks stays.
"""

import re
from collections.abc import Iterator
from typing import Final

from gq_logd.config import LogConfig
from gq_logd.effects import Effect, Remove, Write
from gq_logd.files import Files
from gq_logd.partition import FULL, Partition
from gq_logd.recovery import Recovery
from gq_proto import files as small
from gq_proto.errors import (
    Corrupt,
    DiskFull,
    GoQueueError,
    NotLeader,
    PartitionOffline,
    UnknownPartition,
    UnknownTopicId,
)
from gq_proto.messages import MetadataReply, TopicMeta

Key = tuple[int, int]
FOLDER: Final = "logs"
_DELETED: Final = re.compile(r"(.+)\.(\d{1,20})\.deleted")


class Catalog:
    """`notes` collects lines for the log: (level, text)."""

    def __init__(self, files: Files, config: LogConfig, data_dir: str, node_id: str, effects: list[Effect]) -> None:
        self._files, self._config, self._node_id, self._effects = files, config, node_id, effects
        self.folder = f"{data_dir}/{FOLDER}"
        self.partitions: dict[Key, Partition] = {}
        self.topics: dict[int, TopicMeta] = {}
        self.broken: dict[Key, GoQueueError] = {}        # partitions that could not be opened or made
        self.notes: list[tuple[str, str]] = []
        self._names: dict[str, int] = {}                 # topic folders in use

    # -- asking ------------------------------------------------------------------------

    def get(self, topic_id: int, number: int) -> Partition:
        """UnknownTopicId, UnknownPartition, NotLeader; or why it could not be opened."""
        partition = self.partitions.get((topic_id, number))
        if partition:
            return partition
        if (topic_id, number) in self.broken:
            raise self.broken[(topic_id, number)]
        topic = self.topics.get(topic_id)
        if not topic:
            raise UnknownTopicId(f"no topic has the id {topic_id} here: refresh metadata")
        if not 0 <= number < len(topic.partitions):
            raise UnknownPartition(f"{topic.name} has partitions 0-{len(topic.partitions) - 1}, not {number}")
        raise NotLeader(f"{topic.name}/{number} is not led here: refresh metadata")

    # -- the start -----------------------------------------------------------------------

    def found(self) -> Iterator[tuple[str, small.PartitionMeta]]:
        """(folder, whose it is) of every partition on the disk; leftovers of deletions are removed on the way."""
        disk = self._files.disk
        disk.make_dirs(self.folder)
        for name in disk.list_dir(self.folder):
            metas = [(folder, meta) for folder in self._subfolders(name) if (meta := self._meta(folder))]
            match = _DELETED.fullmatch(name)
            if match and all(str(meta.topic_id) == match[2] for _, meta in metas):
                self._effects.append(Remove(f"{self.folder}/{name}"))
                continue
            for folder, meta in metas:
                self._names[name] = meta.topic_id
                yield folder, meta

    def _subfolders(self, name: str) -> list[str]:
        return [f"{self.folder}/{name}/{sub}" for sub in self._files.disk.list_dir(f"{self.folder}/{name}") if sub.isdecimal()]

    def _meta(self, folder: str) -> small.PartitionMeta | None:
        try:
            raw = self._files.read(f"{folder}/{small.PARTITION_META}")
            return small.decode_partition_meta(raw) if raw else None
        except (Corrupt, OSError) as e:
            self.notes.append(("error", f"{folder}: {e}: left alone until metadata names its topic"))
            return None

    def open(self, folder: str, meta: small.PartitionMeta) -> Partition | None:
        """Recover one partition; an OSError makes it broken."""
        key = (meta.topic_id, meta.partition)
        if not folder.endswith(f"/{meta.topic}/{meta.partition}"):
            self.notes.append(("warning", f"{folder} holds {meta.topic}/{meta.partition}, moved aside: left alone"))
            return None
        recovery = Recovery(self._files, self._config, folder)
        try:
            partition = recovery.run(meta.topic_id, meta.topic, meta.partition)
        except OSError as e:
            self.notes.append(("error", f"{folder} cannot be opened: {e}"))
            self.broken[key] = PartitionOffline(f"{meta.topic}/{meta.partition} cannot be opened: {e.strerror or e}")
            return None
        self.notes += recovery.notes
        self.broken.pop(key, None)
        if not self._files.disk.exists(f"{folder}/{small.CHECKPOINT}"):      # on the disk with the first sync, if not before
            partition.birth = Write(f"{folder}/{small.PARTITION_META}", small.encode_partition_meta(meta), True)
        self.partitions[key] = partition
        return partition

    # -- metadata ------------------------------------------------------------------------

    def apply(self, reply: MetadataReply) -> list[Partition]:
        """Make, lead, follow, delete. The partitions about which something is new."""
        changed: list[Partition] = []
        for topic_id in reply.deleted:
            changed += self._delete(topic_id)
        if reply.full:
            here = {topic.id for topic in reply.topics}
            self.topics = {id: topic for id, topic in self.topics.items() if id in here}
            for (topic_id, _), partition in self.partitions.items():
                partition.leader = partition.leader and topic_id in here
        for topic in reply.topics:
            self.topics[topic.id] = topic
            changed += self._apply_topic(topic)
        return changed

    def _apply_topic(self, topic: TopicMeta) -> list[Partition]:
        changed: list[Partition] = []
        for number, meta in enumerate(topic.partitions):
            partition = self.partitions.get((topic.id, number))
            if meta.leader == self._node_id and not partition:
                partition = self._make(topic, number)
            if not partition:
                continue
            partition.settings = topic.config
            if meta.leader == self._node_id:
                partition.lead(meta.epoch)
            else:
                partition.leader = False
            changed.append(partition)
        return changed

    def retry(self) -> list[Partition]:
        """Try to make again what could not be made. What is new."""
        changed: list[Partition] = []
        for topic_id in {topic_id for topic_id, _ in self.broken}:
            topic = self.topics.get(topic_id)
            if topic:
                changed += self._apply_topic(topic)
        return changed

    def _make(self, topic: TopicMeta, number: int) -> Partition | None:
        """A partition that is led here for the first time, or whose partition.meta was lost."""
        folder = f"{self.folder}/{topic.name}/{number}"
        meta = small.PartitionMeta(topic.id, number, topic.name)
        try:
            self._move_aside(topic)
            self._files.disk.make_dirs(folder)
            self._files.disk.write_atomic(f"{folder}/{small.PARTITION_META}", small.encode_partition_meta(meta), durable=False)
            if not self._files.disk.exists(f"{folder}/{small.PRODUCERS}"):
                self._files.disk.write_atomic(f"{folder}/{small.PRODUCERS}", small.encode_producers(small.ProducersSnapshot(0, 0)),
                                              durable=False)
        except OSError as e:
            self.notes.append(("error", f"{folder} cannot be made: {e}"))
            error = DiskFull if e.errno in FULL else PartitionOffline
            self.broken[(topic.id, number)] = error(f"{topic.name}/{number} cannot be made yet: {e.strerror or e}")
            return None
        self._names[topic.name] = topic.id
        return self.open(folder, meta)

    def _move_aside(self, topic: TopicMeta) -> None:
        """The topic's folder, if it is another topic's that had the same name and was never deleted on purpose."""
        owner = self._names.get(topic.name, topic.id)
        if owner == topic.id:
            return
        for key in [key for key in self.partitions if key[0] == owner]:
            self.partitions.pop(key).log.close()
        aside = f"{self.folder}/{topic.name}.{owner}.orphan"
        self._files.disk.rename(f"{self.folder}/{topic.name}", aside)
        del self._names[topic.name]
        self.notes.append(("warning", f"{topic.name} is a new topic with id {topic.id}: the folder of id {owner} is {aside} now"))

    def _delete(self, topic_id: int) -> list[Partition]:
        """An explicit deletion."""
        self.topics.pop(topic_id, None)
        for key in [key for key in self.broken if key[0] == topic_id]:
            del self.broken[key]
        gone = [self.partitions.pop(key) for key in [key for key in self.partitions if key[0] == topic_id]]
        for partition in gone:
            partition.leader = False
            partition.online, partition.problem = False, "deleted"
            partition.log.close()
        name = next((name for name, owner in self._names.items() if owner == topic_id), None)
        if name:
            del self._names[name]
            doomed = f"{self.folder}/{name}.{topic_id}.deleted"
            try:
                self._files.disk.rename(f"{self.folder}/{name}", doomed)
                self._files.disk.sync_dir(self.folder)
            except OSError as e:
                self.notes.append(("error", f"{self.folder}/{name} cannot be deleted: {e}"))
                return gone
            self._effects.append(Remove(doomed))
        return gone

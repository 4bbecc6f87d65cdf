"""Giving dead letters back: see `letters` for the order of the two steps and what a crash between them means."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from gq_ctl.letters import BOOKS, Letter
from gq_ctl.remote import Remote
from gq_proto.errors import UnknownGroup, UnknownTopic
from gq_proto.messages import Mark1, TopicMeta
from gq_proto.names import dlq_of

if TYPE_CHECKING:
    from gq_client import Client

BATCH: Final = 500


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as (low, high), high exclusive."""
    found: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


def by_place(letters: Iterable[Letter]) -> Iterator[tuple[int, list[int]]]:
    """(partition, offsets) in the DLQ, BATCH letters at most each."""
    found = defaultdict(list)
    for letter in letters:
        found[letter.message.partition].append(letter.message.offset)
    for partition, offsets in found.items():
        for at in range(0, len(offsets), BATCH):
            yield partition, offsets[at:at + BATCH]


def settle(client: "Client", topic: str, done: list[Letter]) -> None:
    """These letters are no longer outstanding."""
    if isinstance(client, Remote):
        for partition, offsets in by_place(done):
            client.purge_letters(topic, partition, offsets)
        return
    if not done:
        return
    dlq = client.topic(dlq_of(topic))
    by_partition = defaultdict(list)
    for letter in done:
        by_partition[letter.message.partition].append(letter.message.offset)
    marks = [Mark1(dlq.id, partition, True, low, high)
             for partition, offsets in by_partition.items() for low, high in ranges(offsets)]
    client.mark(BOOKS, marks, create=True)


class Redrive:
    """One run; `redriven` went back to their groups, `published` to the topic."""

    def __init__(self, client: "Client", topic: str, publish: bool) -> None:
        self.client, self.topic, self._always_publish = client, topic, publish
        self.redriven = self.published = 0
        self._starts: dict[str, tuple[TopicMeta, dict[int, int]] | None] = {}

    def run(self, letters: Iterable[Letter]) -> None:
        if isinstance(self.client, Remote):
            self._remotely(self.client, letters)
            return
        source = iter(letters)
        while batch := list(itertools.islice(source, BATCH)):
            back = [] if self._always_publish else self._reopen([letter for letter in batch if self._is_there(letter)])
            given = {id(letter) for letter in back}
            rest = [letter for letter in batch if id(letter) not in given]
            self._publish(rest)
            settle(self.client, self.topic, batch)
            self.redriven += len(back)
            self.published += len(rest)

    def _remotely(self, client: Remote, letters: Iterable[Letter]) -> None:
        for partition, offsets in by_place(letters):
            redriven, published = client.redrive(self.topic, partition, offsets, self._always_publish)
            self.redriven += redriven
            self.published += published

    def _is_there(self, letter: Letter) -> bool:
        """Is the origin's record still that record? A topic that was made after the letter is another one of that name."""
        origin = self._origin(letter.topic)
        return bool(letter.group and origin and origin[0].created_us <= letter.time_us
                    and letter.offset >= origin[1].get(letter.partition, 2**63))

    def _origin(self, topic: str) -> tuple[TopicMeta, dict[int, int]] | None:
        """The topic and its log starts."""
        if topic not in self._starts:
            try:
                self._starts[topic] = (self.client.topic(topic),
                                       {part.partition: part.log_start for part in self.client.partitions(topic)})
            except UnknownTopic:
                self._starts[topic] = None
        return self._starts[topic]

    def _reopen(self, letters: list[Letter]) -> list[Letter]:
        """Those whose group is there, and has them again now."""
        by_group = defaultdict(list)
        for letter in letters:
            by_group[letter.group].append(letter)
        reopened: list[Letter] = []
        for group, some in by_group.items():
            try:
                self.client.mark(group, self._marks(some))
                reopened += some
            except UnknownGroup:
                continue
        return reopened

    def _marks(self, letters: list[Letter]) -> list[Mark1]:
        by_partition = defaultdict(list)
        for letter in letters:
            origin = self._origin(letter.topic)
            assert origin is not None
            by_partition[origin[0].id, letter.partition].append(letter.offset)
        return [Mark1(topic_id, partition, False, low, high)
                for (topic_id, partition), offsets in by_partition.items() for low, high in ranges(offsets)]

    def _publish(self, letters: list[Letter]) -> None:
        if not letters:
            return
        with self.client.producer() as producer:
            for letter in letters:
                message = letter.message
                producer.send(letter.topic or self.topic, message.value, key=message.key, headers=message.headers,
                              priority=message.priority)
            producer.flush()

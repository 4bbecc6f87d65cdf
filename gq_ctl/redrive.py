"""Giving dead letters back, a batch at a time: see gq_client.letters for the order of the two steps and why."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from gq_client import letters as operations
from gq_client.letters import Letter
from gq_ctl.remote import Remote

if TYPE_CHECKING:
    from gq_client import Client

BATCH: Final = 500


def by_place(letters: Iterable[Letter]) -> Iterator[tuple[int, list[int]]]:
    """(partition, offsets) in the DLQ, BATCH letters at most each."""
    found = defaultdict(list)
    for letter in letters:
        found[letter.record.partition].append(letter.record.offset)
    for partition, offsets in found.items():
        for at in range(0, len(offsets), BATCH):
            yield partition, offsets[at:at + BATCH]


def settle(client: "Client", topic: str, done: list[Letter]) -> None:
    """These letters are no longer outstanding."""
    if isinstance(client, Remote):
        for partition, offsets in by_place(done):
            client.purge_letters(topic, partition, offsets)
    else:
        client.run(operations.settle(client.routes, topic, done))


class Redrive:
    """One run; `redriven` went back to their groups, `published` to the topic."""

    def __init__(self, client: "Client", topic: str, publish: bool) -> None:
        self.client, self.topic, self._always_publish = client, topic, publish
        self.redriven = self.published = 0

    def run(self, letters: Iterable[Letter]) -> None:
        if isinstance(self.client, Remote):
            self._remotely(self.client, letters)
            return
        source = iter(letters)
        while batch := list(itertools.islice(source, BATCH)):
            back = [] if self._always_publish else self.client.run(operations.reopen(self.client.routes, batch))
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

    def _publish(self, letters: list[Letter]) -> None:
        if not letters:
            return
        with self.client.producer() as producer:
            for letter in letters:
                record = letter.record
                producer.send(letter.topic or self.topic, record.value, key=record.key, headers=record.headers,
                              priority=record.priority)
            producer.flush()

"""Reading without a group: all partitions of a topic, one after the other up to the present end, then whatever comes.

Owns the readers, one a partition. What comes later is looked for in all of them in turn, so nothing waits behind a quiet one. A
delayed message that is due is present where it lies; one that is not comes later, when it is.
"""

import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from gq_ctl.positions import resolve
from gq_ctl.units import LATEST, Position

if TYPE_CHECKING:
    from gq_client import Client

TURN_S: Final = 0.05        # a quiet topic of several partitions is looked at so often


class Reading:
    """Messages of `topic` from `start` on; first `present`, then `coming`. `delayed`: also those that are not due."""

    def __init__(self, client: "Client", topic: str, partition: int | None, start: Position, delayed: bool = False) -> None:
        self._client, self._topic, self._delayed = client, topic, delayed
        self._next = resolve(client, topic, partition, start)       # by partition: where reading goes on
        self._ends = resolve(client, topic, partition, Position(name=LATEST))
        self._readers: list[Any] = []

    def present(self, most: int) -> Iterator[list[Any]]:
        """What lies there now, up to `most` messages at a time, partition by partition."""
        for number, end in self._ends.items():
            with self._client.reader(self._topic, number, from_=self._next[number], stop_at_end=True,
                                     include_delayed=self._delayed) as reader:
                while reader.next_offset < end and (batch := reader.poll(most)):
                    if batch[-1].offset >= end:         # came since: it is for `coming`, with the ready records among it
                        batch = [message for message in batch if message.offset < end]
                    self._next[number] = batch[-1].offset + 1 if batch else end
                    yield batch
                self._next[number] = max(self._next[number], min(reader.next_offset, end))

    def coming(self, most: int, patience: float | None) -> list[Any]:
        """Up to `most` later messages of one partition; [] when there is none for `patience` seconds (None: for ever)."""
        end = None if patience is None else time.monotonic() + patience
        if not self._readers:
            self._readers = [self._client.reader(self._topic, number, from_=offset, include_delayed=self._delayed)
                             for number, offset in self._next.items()]
        while True:
            for reader in self._readers:
                batch: list[Any] = reader.poll(most, timeout=0)
                if batch:
                    return batch
            self._readers.append(self._readers.pop(0))
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return []
            turn = left if len(self._readers) == 1 else TURN_S if left is None else min(left, TURN_S)
            batch = self._readers[-1].poll(most, timeout=turn)
            if batch:
                return batch

    def __enter__(self) -> "Reading":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for reader in self._readers:
            reader.close()


def stretch(client: "Client", topic: str, partition: int, low: int, high: int, delayed: bool = False) -> Iterator[Any]:
    """The messages at offsets [low, high) of one partition that there are; `delayed`: those that are not due, too."""
    with client.reader(topic, partition, from_=low, stop_at_end=True, include_delayed=delayed) as reader:
        for message in reader:
            if message.offset >= high:
                return
            yield message

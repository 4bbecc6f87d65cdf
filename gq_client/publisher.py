"""Publishing one message and waiting for it: no thread, no linger, on a line of the caller's own.

Owns one Batcher on a line of the client's pool, so the same rules of order, retry and deduplication hold as for a producer. One
message is under way at a time. When a wait is given up (Ctrl-C, TimedOut) its owner throws the publisher away: what becomes of
that message is unknown, and the next one must not queue behind it.
"""

import random
import time
from collections.abc import Callable
from typing import Any

from gq_client import topics
from gq_client.batch import Batch, Lane, ProducerOptions, Published
from gq_client.batches import Batcher
from gq_client.delivery import Delivery
from gq_client.draft import Headers, When, prepared
from gq_client.line import Line
from gq_client.session import NEVER
from gq_proto.errors import UnknownPartition, UnknownTopicId

NONE = (None, None, None)


class Publisher:
    """`options.linger` does not matter."""

    def __init__(self, line: Line, options: ProducerOptions, timeout: float) -> None:
        self._line, self._options = line, options
        ids = options.idempotent and options.acks != "none"
        producer_id, epoch = line.run(topics.new_producer(), timeout) if ids else (-1, -1)
        self._batcher = Batcher(line.session, self, options, Delivery, producer_id, epoch, random.random)

    def publish(self, topic: str, value: Any, key: Any, headers: Headers, priority: int | str | None, delay: float | None,
                deliver_at: When, partition: int | None, timeout: float) -> Published:
        """Where the message lies. A topic that is not there is made; one that was made anew meanwhile is found."""
        end = time.monotonic() + timeout
        while True:
            lane = self._batcher.lanes.get(topic) or self._lane(topic, end)
            at = -1 if partition is None else partition
            try:
                if headers or (priority, delay, deliver_at) != NONE or topic not in self._batcher.adds:
                    now_us = time.time_ns() // 1000
                    stored, *rest = prepared(value, headers, priority, delay, deliver_at, self._options.compress, now_us)
                    ticket = lane.add(key, stored, at, *rest, now_us if lane.create else 0)
                else:
                    ticket = lane.add(key, value, at)
                return self._wait(ticket, end)
            except UnknownPartition:
                known = len(lane.homes)
                self._line.run(topics.news(self._line.routes, topic), end - time.monotonic())
                self._batcher.follow(lane)
                if len(lane.homes) == known:
                    raise
            except UnknownTopicId:
                if self._batcher.lanes.get(topic) is lane or time.monotonic() >= end:
                    raise

    def _lane(self, topic: str, end: float) -> Lane:
        return self._batcher.lane(self._line.run(topics.ensure(self._line.routes, topic), end - time.monotonic()))

    def _wait(self, ticket: Any, end: float) -> Published:
        batch: Batch = ticket.batch
        line, batcher = self._line, self._batcher
        now = time.monotonic()
        batcher.seal(now, batch.home.lane, batch.home.partition)
        batch.deadline = end
        if batcher.express(now, batch):
            line.wire.push()
            while batch in batch.home.flying:        # nothing else is under way: its answer is all there is to wait for
                line.pump()
        while not batch.done:
            batcher.step(time.monotonic())
            line.wire.push()
            if batch.done:
                break
            due = batcher.next_due
            line.pump(NEVER if due == NEVER else max(0.0, due - time.monotonic()))
        batcher.finished.clear()
        result: Published = ticket.result()
        return result

    def await_batch(self, batch: Batch, timeout: float | None = None) -> None:
        """Nobody holds a ticket of this one."""

    def tell(self, batch: Batch, call: Callable[[], Any]) -> None:
        """Nobody holds a ticket of this one."""

    # -- the accumulators' owner: one message a batch, sealed by _wait ------------------------------

    def wait(self) -> None:
        """Never gated: one batch at a time is within any bound."""

    def opened(self, lane: Lane, partition: int) -> None:
        """Nothing lingers."""

    def full(self, lane: Lane, partition: int) -> None:
        """A message that fills a batch alone is sealed by _wait like any other."""

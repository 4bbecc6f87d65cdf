"""What became of a message that was handed to a producer: a future as light as its place in a batch."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from gq_client.batch import Batch, Published
from gq_proto.accumulator import Ticket
from gq_proto.errors import GoQueueError


class Delivery(Ticket):  # type: ignore[misc]
    """A blocking producer's. Its message is sent sooner when somebody waits for it."""

    __slots__ = ()
    batch: Batch
    index: int

    def done(self) -> bool:
        return self.batch.done

    def result(self, timeout: float | None = None) -> Published:
        """Where the message lies, or its error raised; TimedOut when neither is known after `timeout` seconds."""
        if not self.batch.done:
            self.batch.home.lane.shell.await_batch(self.batch, timeout)
        return self.batch.published(self.index)

    def exception(self, timeout: float | None = None) -> GoQueueError | None:
        """The error, None when the message was written."""
        if not self.batch.done:
            self.batch.home.lane.shell.await_batch(self.batch, timeout)
        return self.batch.error

    def add_done_callback(self, call: Callable[["Delivery"], Any]) -> None:
        """call(self) once it is known, on whichever thread learns it; at once when it is known already. It must not block."""
        self.batch.home.lane.shell.tell(self.batch, lambda: call(self))


class AsyncDelivery(Ticket):  # type: ignore[misc]
    """An asyncio producer's: await it."""

    __slots__ = ()
    batch: Batch
    index: int

    def done(self) -> bool:
        return self.batch.done

    def result(self) -> Published:
        """Of one that is done."""
        if not self.batch.done:
            raise asyncio.InvalidStateError("the message is under way: await it")
        return self.batch.published(self.index)

    def exception(self) -> GoQueueError | None:
        """Of one that is done."""
        if not self.batch.done:
            raise asyncio.InvalidStateError("the message is under way: await it")
        return self.batch.error

    def add_done_callback(self, call: Callable[["AsyncDelivery"], Any]) -> None:
        """call(self) on the loop once it is known; at once when it is known already."""
        self.batch.home.lane.shell.tell(self.batch, lambda: call(self))

    def __await__(self) -> Generator[Any, None, Published]:
        if not self.batch.done:
            yield from self.batch.home.lane.shell.await_batch(self.batch).__await__()
        return self.batch.published(self.index)

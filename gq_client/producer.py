"""The batching producer: send() hands a message over and returns at once, batches travel in the background.

send() runs on the caller's thread all the way: partition, encode, and when a batch is full also the socket. The background thread
does what has no caller: batches whose linger is over, answers, retries. Both work under one lock; adding a message needs
none (the accumulator is atomic). Bounded: buffer_bytes of unanswered batches and one open batch a partition; above it send()
waits, up to `block` seconds, then raises Busy.

    with client.producer() as producer:
        for line in lines:
            producer.send("logs", line)
        producer.flush()            # raises if any message since the last flush could not be written
"""

import logging
import os
import random
import select
import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from gq_client import topics
from gq_client.batch import Batch, Lane, ProducerOptions
from gq_client.batches import Batcher
from gq_client.delivery import Delivery
from gq_client.draft import Headers, When, prepared, priority_of
from gq_client.session import NEVER
from gq_proto.errors import Busy, Closed, GoQueueError, Internal, TimedOut, UnknownPartition

if TYPE_CHECKING:
    from gq_client.sync import Client

log = logging.getLogger(__name__)
NAP_MS = 5           # the thread looks up so often while callers do its work


class Producer:
    """Made by Client.producer(). For any number of threads; order is kept per partition and thread."""

    def __init__(self, client: "Client", options: ProducerOptions, block: float) -> None:
        self._client, self._options, self._block = client, options, block
        ids = options.idempotent and options.acks != "none"
        producer_id, epoch = client.run(topics.new_producer(), options.timeout) if ids else (-1, -1)
        self._line = client.line()
        self._batcher = Batcher(self._line.session, self, options, Delivery, producer_id, epoch, random.random)
        self._adds = self._batcher.adds
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)      # batches were finished
        self._waiting = 0                                    # threads that wait for that
        self._error: GoQueueError | None = None              # first since the last flush
        self._closed = False
        self._busy = False                                   # callers fill batches, and take answers while they do
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watched = 0                                    # wire.dialled when it last went to sleep
        self._wake_at = 0.0                                  # when the thread will look at the linger again
        self._thread = threading.Thread(target=self._run, name="gq-producer", daemon=True)
        client.adopt(self)
        _producers.add(self)
        self._thread.start()

    # -- messages -------------------------------------------------------------------------------

    def send(self, topic: str, value: Any, key: Any = None, headers: Headers = None, priority: int | str | None = None,
             delay: float | None = None, deliver_at: When = None, partition: int | None = None) -> Delivery:
        """Hand over one message; see Client.publish for the arguments. Errors that can be known now are raised (TooLarge,
        BadRecord, Busy, ...), the others are the Delivery's."""
        add = self._adds.get(topic)
        if add is None or headers or delay is not None or deliver_at is not None:
            return self._send(topic, value, key, headers, priority, delay, deliver_at, partition)
        if partition is None and priority is None:
            return add(key, value)     # type: ignore[no-any-return]
        try:
            return add(key, value, -1 if partition is None else partition, b"", priority_of(priority))   # type: ignore[no-any-return]
        except UnknownPartition:
            return self._send(topic, value, key, headers, priority, delay, deliver_at, partition)

    def _send(self, topic: str, value: Any, key: Any, headers: Headers, priority: int | str | None, delay: float | None,
              deliver_at: When, partition: int | None) -> Delivery:
        """send, when there is something to prepare."""
        lane = self._lane(topic)
        now_us = time.time_ns() // 1000
        stored, *rest = prepared(value, headers, priority, delay, deliver_at, self._options.compress, now_us)
        if partition is not None and partition >= len(lane.homes):
            self._client.run(topics.news(self._client.routes, topic), self._options.timeout)
            with self._lock:
                self._batcher.follow(lane)
        ticket = lane.add(key, stored, -1 if partition is None else partition, *rest, now_us if lane.create else 0)
        return cast("Delivery", ticket)

    def _lane(self, topic: str) -> Lane:
        lane = self._batcher.lanes.get(topic)
        if lane is not None and not self._closed:
            return lane
        self._check()
        found = self._client.run(topics.ensure(self._client.routes, topic), self._options.timeout)
        with self._lock:
            return self._batcher.lane(found)

    def flush(self, timeout: float | None = None) -> None:
        """Send what is open and wait until every message handed over before is written. Raises the first error of a message since
        the last flush; TimedOut when some are still under way after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        self._check()
        with self._lock:
            self._batcher.seal_all(time.monotonic())
            finished = self._work()
        self._announce(finished)
        self._wait_until(lambda: not self._batcher.unfinished, end, "messages are still under way")
        error, self._error = self._error, None
        if error:
            raise error

    def close(self, timeout: float | None = None) -> None:
        """flush, then end the thread and the connections. Safe to repeat. What is not written after `timeout` seconds (None: the
        messages' own) fails with Closed."""
        if self._closed or not self._thread.is_alive():
            self._end()
            return
        try:
            self.flush(timeout)
        finally:
            self._end()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except GoQueueError:
            pass                         # the app's own error says more

    # -- what the accumulators say, on the thread that adds ----------------------------------------

    def opened(self, lane: Lane, partition: int) -> None:
        """A batch got its first message."""
        now = time.monotonic()
        self._batcher.opened(now, lane, partition)
        if not self._options.linger:
            self.full(lane, partition)
        elif now + self._options.linger < self._wake_at:
            self._wake_at = now
            os.eventfd_write(self._wake_fd, 1)

    def full(self, lane: Lane, partition: int) -> None:
        """A batch is full: off it goes."""
        with self._lock:
            self._busy = True
            self._batcher.seal(time.monotonic(), lane, partition)
            finished = self._work()
            self._rouse()
        if finished:
            self._announce(finished)

    def wait(self) -> None:
        """Memory is full: wait for room, or raise Busy."""
        self._check()
        if threading.current_thread() is self._thread:
            raise Busy("the producer's memory is full, and a callback must not wait for it: send from another thread")
        self._wait_until(lambda: not self._batcher.gated, time.monotonic() + self._block,
                         f"the producer's memory ({self._options.buffer_bytes} bytes) is full: the node does not keep up", Busy)

    # -- what deliveries ask ------------------------------------------------------------------------

    def await_batch(self, batch: Batch, timeout: float | None = None) -> None:
        """Until it is done. An open batch is sent now."""
        end = None if timeout is None else time.monotonic() + timeout
        if not batch.size:
            self.full(batch.home.lane, batch.home.partition)
        self._wait_until(lambda: batch.done, end, "the message is still under way")

    def tell(self, batch: Batch, call: Callable[[], Any]) -> None:
        """Call it once the batch is done."""
        with self._lock:
            if not batch.done:
                batch.callbacks.append(call)
                return
        call()

    # -- working --------------------------------------------------------------------------------------

    def _work(self) -> list[Batch]:
        """Under the lock: send what may go, take what has come. The batches that are done, for _announce."""
        batcher, wire, session = self._batcher, self._line.wire, self._line.session
        now = time.monotonic()
        batcher.step(now)
        if now >= session.next_due:
            session.due(now)
            batcher.step(now)
        wire.push()
        while wire.drain():
            batcher.step(time.monotonic())
            wire.push()
        finished, batcher.finished = batcher.finished, []
        for batch in finished:
            self._error = self._error or batch.error
        if finished and self._waiting:
            self._changed.notify_all()
        return finished

    def _announce(self, finished: list[Batch]) -> None:
        """Without the lock: callbacks. What they raise is theirs: it is logged, and the others are called."""
        for batch in finished:
            for call in batch.callbacks:
                try:
                    call()
                except Exception:
                    log.exception("a callback of a delivery failed")
            batch.callbacks.clear()

    def _wait_until(self, ready: Callable[[], bool], end: float | None, what: str,
                    error: type[GoQueueError] = TimedOut) -> None:
        with self._lock:
            self._waiting += 1
            self._prod()
            try:
                while not ready():
                    if self._closed:
                        raise Closed("the producer was closed")
                    if not self._changed.wait(None if end is None else max(0.0, end - time.monotonic())) and not ready():
                        raise error(what)
            finally:
                self._waiting -= 1

    def _rouse(self) -> None:
        """Under the lock: the thread may sleep longer than what was just sent allows, or without an eye on a new connection."""
        due = min(self._batcher.next_due, self._line.session.next_due)
        if self._wake_at and (due < self._wake_at or self._line.wire.dialled != self._watched):
            self._wake_at = due
            self._watched = self._line.wire.dialled
            self._prod()

    def _prod(self) -> None:
        """Have the thread look now: it may sleep although answers are due."""
        os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        """The thread. If it fails (a defect), nobody may wait for it."""
        try:
            self._serve()
        except BaseException as error:
            with self._lock:
                self._closed = True
                self._adds.clear()
                self._batcher.abandon(Internal(f"the producer's thread failed: {error!r}"))
                self._changed.notify_all()
            raise

    def _serve(self) -> None:
        """Linger, answers, retries."""
        line, batcher = self._line, self._batcher
        poll = line.poller
        line.watch(self._wake_fd)
        nap = select.poll()
        nap.register(self._wake_fd, select.POLLIN)
        while not self._closed:
            with self._lock:
                if self._closed:
                    return
                finished = self._work()
                self._wake_at = NEVER            # from here on opened() wakes us, whatever we are about to see
                due = self._wake_at = min(batcher.next_due, line.session.next_due)
                self._watched = line.wire.dialled
                busy, self._busy = self._busy and not self._waiting, False
            if finished:
                self._announce(finished)
                continue
            patience = None if due == NEVER else max(0, int((due - time.monotonic()) * 1000 + 0.999))
            if busy:
                nap.poll(NAP_MS if patience is None else min(NAP_MS, patience))
                patience = 0                 # callers take answers; that a connection stands or broke is seen here alone
            ready = poll.poll(patience)
            self._wake_at = 0.0
            if ready:
                self._came(ready)

    def _came(self, ready: list[tuple[int, int]]) -> None:
        with self._lock:
            for fd, _ in ready:
                if fd == self._wake_fd:
                    _clear(fd)
                elif not self._closed:
                    self._line.wire.ready(fd)

    # -- the end ------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._line.check_owner()
        if self._closed:
            raise Closed("the producer was closed")

    def _end(self) -> None:
        if self._closed or os.getpid() != self._line.pid:
            return
        with self._lock:
            self._closed = True
            self._adds.clear()
            self._batcher.abandon(Closed("the producer was closed before the message was written"))
            finished, self._batcher.finished = self._batcher.finished, []
            self._changed.notify_all()
        self._announce(finished)
        self._prod()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._client.drop(self._line)
        self._client.disown(self)

    def __del__(self) -> None:
        if hasattr(self, "_wake_fd"):
            os.close(self._wake_fd)


_producers: "weakref.WeakSet[Producer]" = weakref.WeakSet()


def _forked() -> None:
    """In the child: the fast way is shut, the other one says why."""
    for producer in list(_producers):
        producer._batcher.adds.clear()
        producer._batcher.lanes.clear()


def _clear(fd: int) -> None:
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        pass


os.register_at_fork(after_in_child=_forked)

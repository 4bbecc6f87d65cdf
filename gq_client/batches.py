"""A producer's batches: what is open, waiting, under way, and to be sent again. Pure: no socket or thread; the clock is handed in.

Owns order and exactly-once. Per partition, batches go out in the order in which they were sealed, fewer than IN_FLIGHT_BATCHES_MAX
after the oldest one unanswered: logd remembers so many, and would not know that one any more. When one fails, nothing more of its
partition is sent until all that is under way is answered; then the failed ones go again, in their order, same bytes, same sequence
numbers: logd knows those it has and answers with their offset.

Sequences count messages. They are fixed when a batch is first sent; one that failed for good, never having been written, gives its
numbers to the next. A batch whose time is up while nobody knows whether it was written is reported as TimedOut, and still sent
again until that is known: a hole in the numbers, or a second copy of what follows, cannot come of it. A partition whose numbers
logd does not know any more (SequenceGap at the head, Fenced) takes a new producer id.

Without idempotence one batch is under way a partition, and a broken connection may double it. Acks.NONE: sent and forgotten.
Bound: `buffer_bytes` of batches; above it `gate` closes the accumulators.
"""

from collections.abc import Callable
from typing import Any, Final

from gq_client.backoff import FIRST_S, backoff
from gq_client.batch import ACKS, Batch, Home, Lane, ProducerOptions, Shell, renumbered
from gq_client.routing import METAD, To
from gq_client.session import MOVED, NEVER, Call, Session
from gq_proto import limits
from gq_proto.errors import Closed, Fenced, GoQueueError, SequenceGap, TimedOut, UnknownTopicId, error_of
from gq_proto.messages import InitProducer, Kind, Produce, ProducePart, TopicMeta

SEQUENCES: Final = 2**31                # they wrap here
ATTEMPT_S: Final = 10.0                 # then a batch is sent again: logd knows it if it has it
MIN_ATTEMPT_S: Final = 1.0
REQUEST_BYTES_MAX: Final = 4 * limits.MIB
NEWS_S: Final = 30.0                    # how often a producer looks for more partitions


class Batcher:
    """See the module's text. `producer_id` -1: not idempotent. `finished` collects batches that are done, for the shell."""

    def __init__(self, session: Session, shell: Shell, options: ProducerOptions, ticket: type, producer_id: int = -1,
                 epoch: int = -1, chance: Callable[[], float] = lambda: 0.5) -> None:
        self._session, self._shell, self._options, self._ticket, self._chance = session, shell, options, ticket, chance
        self._producer_id, self._epoch = producer_id, epoch
        self._acks = ACKS[options.acks]
        self._window = limits.IN_FLIGHT_BATCHES_MAX if producer_id >= 0 or not self._acks else 1
        self.lanes: dict[str, Lane] = {}
        self.adds: dict[str, Callable[..., Any]] = {}    # the accumulators' add of lanes whose messages need no preparation
        self.open: dict[Home, float] = {}           # since when, oldest first
        self.finished: list[Batch] = []
        self.bytes = 0                              # of sealed batches that are not done with
        self.unfinished = 0                         # such batches
        self.gated = False
        self._ready: dict[Home, None] = {}          # something to send
        self._news_at = NEVER

    # -- filling ------------------------------------------------------------------------------

    def lane(self, topic: TopicMeta) -> Lane:
        """The lane of a topic, made when it is new (or the topic is another one of that name)."""
        lane = self.lanes.get(topic.name)
        if lane is None or lane.topic.id != topic.id:
            lane = Lane(self._shell, topic, self._ticket, self._options, self._producer_id, self._epoch)
            lane.accumulator.gate = self.gated
            self.lanes[topic.name] = lane
            if not lane.create and self._options.compress in (None, "none"):
                self.adds[topic.name] = lane.add
        return lane

    def opened(self, now: float, lane: Lane, partition: int) -> None:
        """A batch got its first message."""
        self.open.setdefault(lane.homes[partition], now)

    def seal(self, now: float, lane: Lane, partition: int) -> Batch | None:
        """Close the open batch of a partition and queue it; None when there is none."""
        home = lane.homes[partition]
        since = self.open.pop(home, now)
        sealed = lane.accumulator.seal(partition, Batch(home), home.producer_id, home.epoch, self._expected(home))
        if sealed is None:
            return None
        batch: Batch
        batch, batch.data, batch.count = sealed
        batch.opened_at, batch.deadline, batch.size = since, since + self._options.timeout, len(batch.data)
        if home.producer_id >= 0:
            batch.producer_id, batch.epoch, batch.sequence = home.producer_id, home.epoch, self._expected(home)
        home.queue.append(batch)
        self._ready[home] = None
        self.bytes += batch.size
        self.unfinished += 1
        self._gate()
        return batch

    def _expected(self, home: Home) -> int:
        """The sequence of the next batch, if all goes well."""
        if home.producer_id < 0:
            return -1
        last = home.queue[-1] if home.queue else None
        return (last.sequence + last.count) % SEQUENCES if last else home.next_sequence

    def seal_due(self, now: float) -> None:
        """Close what has lingered long enough."""
        linger = self._options.linger
        for home, since in list(self.open.items()):
            if now < since + linger:
                return
            self.seal(now, home.lane, home.partition)

    def seal_all(self, now: float) -> int:
        """Close all that is open; how many messages that were."""
        sealed = [self.seal(now, home.lane, home.partition) for home in list(self.open)]
        return sum(batch.count for batch in sealed if batch)

    def _gate(self) -> None:
        gated = self.bytes >= self._options.buffer_bytes
        if gated != self.gated:
            self.gated = gated
            for lane in self.lanes.values():
                lane.accumulator.gate = gated

    # -- sending ------------------------------------------------------------------------------

    @property
    def next_due(self) -> float:
        """When step() has something to do without news."""
        try:
            linger = next(iter(self.open.values()), NEVER) + self._options.linger
        except RuntimeError:            # a thread that adds opened one just now
            return 0.0
        waiting = min((min(home.queue[0].deadline, home.retry_at if self._sendable(home) else NEVER)
                       for home in self._ready if home.queue), default=NEVER)
        return min(linger, waiting, self._news_at)

    def step(self, now: float) -> None:
        """Seal what is due, send what may go."""
        if self.open:
            self.seal_due(now)
        if self._news_at == NEVER:
            self._news_at = now + NEWS_S
        elif now >= self._news_at:
            self._look_for_partitions(now)
        if self._ready:
            self._send(now)

    def _sendable(self, home: Home) -> bool:
        if home.asking or home.broken or not home.queue:
            return False
        batch = home.queue[0]
        number = batch.number if batch.attempts else home.launched + 1
        return not home.flying or number - home.flying[0].number < self._window

    def _send(self, now: float) -> None:
        while True:
            requests: dict[str | None, list[Batch]] = {}
            for home in list(self._ready):
                self._expire(now, home)
                if home.suspect:
                    self._judge(now, home)
                if not home.queue:
                    self._ready.pop(home, None)
                elif self._sendable(home) and now >= home.retry_at:
                    endpoint = self._session.routes.endpoint(To.leader(home.lane.topic.id, home.partition))
                    requests.setdefault(endpoint, []).append(self._launch(home))
            if not requests:
                return
            for batches in requests.values():
                self._request(now, batches)

    def express(self, now: float, batch: Batch) -> bool:
        """Send a batch that is alone in its partition, without a look at the others; False when step() is needed."""
        home = batch.home
        if self._news_at == NEVER:
            self._news_at = now + NEWS_S
        if len(home.queue) != 1 or home.flying or home.asking or home.suspect or now < home.retry_at or now >= self._news_at:
            return False
        self._ready.pop(home, None)
        self._session.submit(now, self._call(now, [self._launch(home)]))
        return True

    def _launch(self, home: Home) -> Batch:
        """The next batch of a partition, its numbers fixed."""
        batch = home.queue.popleft()
        if home.producer_id >= 0 and not batch.fixed:
            numbers = home.producer_id, home.epoch, home.next_sequence
            if numbers != (batch.producer_id, batch.epoch, batch.sequence):
                batch.producer_id, batch.epoch, batch.sequence = numbers
                batch.data = renumbered(batch.data, *numbers)
            home.next_sequence = (home.next_sequence + batch.count) % SEQUENCES
            batch.fixed = True
        if not batch.attempts:
            home.launched += 1
            batch.number = home.launched
        batch.attempts += 1
        home.flying.append(batch)
        return batch

    def _request(self, now: float, batches: list[Batch]) -> None:
        """One or several Produce of batches for one leader."""
        while batches:
            taken, size = 0, 0
            while taken < len(batches) and taken < limits.REQUEST_FRAMES_MAX and (not taken or size < REQUEST_BYTES_MAX):
                size += batches[taken].size
                taken += 1
            some, batches = batches[:taken], batches[taken:]
            self._session.submit(now, self._call(now, some))

    def _call(self, now: float, batches: list[Batch]) -> Call:
        first = batches[0].home
        parts = [ProducePart(batch.home.lane.topic.id, batch.home.partition) for batch in batches]
        latest = max([batch.deadline for batch in batches])
        deadline = latest if latest > now else now + MIN_ATTEMPT_S      # out of time already: sent to learn its fate
        if first.producer_id >= 0:
            deadline = min(deadline, now + ATTEMPT_S)
        to = To.leader(first.lane.topic.id, first.partition)
        return Call(Kind.PRODUCE, Produce(parts, self._acks), to, deadline, self._answered, [batch.data for batch in batches],
                    single=True, silent=not self._acks, tag=batches)

    # -- answers ------------------------------------------------------------------------------

    def _answered(self, call: Call) -> None:
        batches: list[Batch] = call.tag
        for i, batch in enumerate(batches):
            home = batch.home
            home.flying.remove(batch)
            part = None if call.error or call.silent else call.reply.parts[i]
            if call.error:
                self._failed(batch, call.error, call.unknown_fate)
            elif part and part.error:
                self._failed(batch, error_of(part.error, part.message), part.error == TimedOut.code)
            else:
                if part:
                    batch.base_offset, batch.timestamp = part.base_offset, part.timestamp_us
                home.attempts = 0
                self._finish(batch, None)
            if not home.flying:
                self._regroup(home)

    def _failed(self, batch: Batch, error: GoQueueError, unknown: bool) -> None:
        """Nothing more of its partition is sent until the rest is answered: see the module's text."""
        home = batch.home
        out_of_line = isinstance(error, SequenceGap | Fenced) and home.producer_id >= 0
        again = out_of_line or isinstance(error, MOVED) or error.retriable
        if out_of_line and not home.asking and _is_lost(batch, error):
            self._take_new_id(home)
        if isinstance(error, MOVED):
            home.suspect = not error.retriable
            self._session.refresh(self._session.now)
        home.broken = True
        if not out_of_line or batch.last is None:    # a gap is but the consequence of what went wrong before
            batch.last = error
        batch.unknown = bool(self._acks) and not out_of_line and again and (unknown or batch.unknown)
        if not batch.unknown and (home.resume < 0 or _distance(batch.sequence, home.resume) < 0):
            home.resume = batch.sequence
        if again:
            home.redo.append(batch)
        else:
            self._finish(batch, error)

    def _regroup(self, home: Home) -> None:
        """Everything under way is answered: what failed goes to the front of the queue again.

        logd takes numbers without gaps only. So the first batch that was certainly not written, and all behind it, lie nowhere and
        may get other numbers; those before it may be written, and keep theirs."""
        if home.broken:
            again = sorted(home.redo, key=lambda batch: batch.number)
            for batch in again:
                batch.fixed = home.resume < 0 or _distance(batch.sequence, home.resume) < 0
            if home.resume >= 0:
                home.next_sequence = home.resume
            home.queue.extendleft(reversed(again))
            home.redo, home.broken, home.resume = [], False, -1
            home.attempts += 1
            home.retry_at = self._session.now + backoff(home.attempts, self._chance())
        if home.queue:
            self._ready[home] = None

    def _take_new_id(self, home: Home) -> None:
        """logd does not know the numbers of this partition any more: begin anew, from 0."""
        home.asking = True
        self._session.submit(self._session.now, Call(Kind.INIT_PRODUCER, InitProducer(), METAD, self._session.now + ATTEMPT_S,
                                                     lambda call: self._new_id(home, call)))

    def _new_id(self, home: Home, call: Call) -> None:
        if isinstance(call.error, Closed):
            return
        if call.error:
            self._take_new_id(home)
            return
        home.asking = False
        home.producer_id, home.epoch, home.next_sequence, home.resume = call.reply.producer_id, call.reply.epoch, 0, -1
        for batch in home.queue:
            batch.fixed = False
        for batch in (*home.redo, *home.flying):
            batch.sequence, home.resume = 0, 0       # all unfixed at regroup
        if home.queue:
            self._ready[home] = None

    def _judge(self, now: float, home: Home) -> None:
        """Its topic or partition was said to be unknown: gone for good when fresh metadata says so too."""
        if self._session.refreshing:
            home.retry_at = max(home.retry_at, now + FIRST_S)
            return
        home.suspect = False
        if not self._session.routes.knows(To.leader(home.lane.topic.id, home.partition)):
            self.drop(now, home.lane, UnknownTopicId(f"topic {home.lane.topic.name} was deleted"))

    def drop(self, now: float, lane: Lane, error: GoQueueError) -> None:
        """The topic is gone: everything for it that is not under way fails, the next send looks for the topic anew."""
        if self.lanes.get(lane.topic.name) is lane:
            del self.lanes[lane.topic.name]
            self.adds.pop(lane.topic.name, None)
        for home in lane.homes:
            self.seal(now, lane, home.partition)
            while home.queue:
                self._finish(home.queue.popleft(), error)

    def abandon(self, error: GoQueueError) -> None:
        """Everything fails: the producer is closed and nobody waits any more."""
        for lane in list(self.lanes.values()):
            self.drop(self._session.now, lane, error)

    def _expire(self, now: float, home: Home) -> None:
        """Report what is out of time; what may have been written stays, to be sent until that is known."""
        kept: list[Batch] = []
        while home.queue and now >= home.queue[0].deadline:
            batch = home.queue.popleft()
            if batch.unknown and batch.fixed and home.producer_id >= 0:
                kept.append(batch)
                batch.deadline = NEVER
                self._report(batch, TimedOut(f"not known in time whether it was written: {batch.last}"))
            else:
                self._finish(batch, batch.last or TimedOut("not sent in time: the node does not keep up or is not reachable"))
        home.queue.extendleft(reversed(kept))

    def _finish(self, batch: Batch, error: GoQueueError | None) -> None:
        self.bytes -= batch.size
        batch.data = b""
        self._report(batch, error)
        if self.gated:
            self._gate()

    def _report(self, batch: Batch, error: GoQueueError | None) -> None:
        if not batch.done:
            batch.done, batch.error = True, error
            self.unfinished -= 1
            self.finished.append(batch)

    def _look_for_partitions(self, now: float) -> None:
        """Take up partitions that were added since, and ask for news."""
        self._news_at = now + NEWS_S
        for lane in self.lanes.values():
            self.follow(lane)
        self._session.refresh(now)

    def follow(self, lane: Lane) -> None:
        """Take up what the routing table knows of a topic."""
        topic = self._session.routes.by_id.get(lane.topic.id)
        if topic:
            lane.follow(topic)


def _is_lost(batch: Batch, error: GoQueueError) -> bool:
    """logd knows neither this batch nor where it belongs. A gap behind one that was sent before it, and failed or is not answered
    yet, is that one's; and what was sent with earlier numbers tells nothing about these."""
    home = batch.home
    if (batch.producer_id, batch.epoch) != (home.producer_id, home.epoch):
        return False
    if home.resume >= 0 and _distance(home.resume, batch.sequence) < 0:
        return False
    return isinstance(error, Fenced) or all(batch.number < other.number for other in (*home.flying, *home.redo))


def _distance(sequence: int, other: int) -> int:
    """How far `sequence` lies behind `other`, negative before it; they wrap."""
    return (sequence - other + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2

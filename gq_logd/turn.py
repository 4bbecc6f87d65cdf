"""One partition's share of a loop turn: batches and markers in order of arrival, one write, then the outcome of each.

    turn = Turn(partition, wall_us, space)
    for item in queue: turn.add(item)
    turn.write()                      # each item has its `produced` now

Owns the state between the first stamp and the complete write: the next offset, positions, producers and decisions of what is
stamped but not written (`ahead`). Items that fail alone are answered alone; when the write fails all that were in it are,
and the partition is as it was. The first append in a new leader epoch is preceded by a leader-change record.

Invariant: partition and log change in _written() only, which runs after the complete write and cannot fail.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gq_logd.partition import Partition
from gq_logd.producers import State
from gq_logd.space import Space
from gq_proto import codec, control
from gq_proto import ranges as rng
from gq_proto import record as rec
from gq_proto.errors import BadRecord, BadRequest, DiskFull, Fenced, GoQueueError, TooLarge
from gq_proto.found import Batch, Stamped
from gq_proto.limits import SEGMENT_BYTES_MAX, VALUE_CEILING
from gq_proto.messages import Produced

DECIDING: Final = (control.ControlType.DELAY_READY, control.ControlType.DELAY_CANCELLED)
NEAR: Final = 256                # offsets


class Item:
    """A batch to append, or with frame None a control record. `produced` is its outcome; `end` the offset behind it, which
    fsync=every waits for."""

    __slots__ = ("end", "error", "frame", "index", "internal", "produced", "ticket")

    def __init__(self, frame: Any, internal: bool, ticket: Any) -> None:
        self.frame, self.internal, self.ticket = frame, internal, ticket
        self.produced: Produced | None = None
        self.error: GoQueueError | None = None
        self.end = -1
        self.index = 0                   # of the part in its request

    def frame_for(self, turn: "Turn") -> Any:
        return self.frame


class MarkerItem(Item):
    """A control record to append. `taken`: the ranges that were not decided before, of ready and cancelled."""

    __slots__ = ("body", "taken", "type")

    def __init__(self, type_: int, body: bytes, ticket: Any) -> None:
        super().__init__(None, True, ticket)
        self.type, self.body = type_, body
        self.taken: list[int] = []

    def frame_for(self, turn: "Turn") -> Any:
        """None when nothing is left to write."""
        body = control.decode_body(self.type, self.body)
        if self.type in DECIDING and isinstance(body, list):
            self.taken = turn.undecided(body)
            if not self.taken:
                return None
            self.body = control.encode_body(self.type, self.taken)
        elif isinstance(body, control.Marker):
            turn.check_marker(body)
        else:
            raise BadRequest(f"a marker of type {self.type} is none that may be written")
        return control_frame(self.type, self.body)


class Turn:
    def __init__(self, partition: Partition, wall_us: int, space: Space) -> None:
        self._partition, self._wall_us, self._space = partition, wall_us, space
        self._ahead: dict[int, State] = {}
        self._decided: list[int] = []            # by markers of this turn
        self._items: list[tuple[Item, Stamped]] = []
        self._buffers: list[Any] = []
        self._echoes: list[Item] = []            # answered by what is stamped but not written
        self._start()

    def _start(self) -> None:
        live = self._partition.log.live
        self._position, self._next = live.size, live.next_offset
        self._index_position, self._time_point, self._max = live.last_index_position, live.last_time_point, live.max_timestamp

    # -- adding ----------------------------------------------------------------------

    def add(self, item: Item) -> None:
        try:
            if not self._partition.online:
                raise self._partition.offline_error()
            if not item.internal and not self._space.take(len(item.frame)):
                raise DiskFull("free disk space is down to the reserve: publishing waits until there is more")
            frame = item.frame_for(self)
            if frame is None:
                item.produced = Produced(0)
                if self._items:
                    self._echoes.append(item)        # what decided before it may have been stamped just now
            else:
                self._lead()
                self._stamp(item, frame)
        except GoQueueError as e:
            item.error = e
        except OSError as e:
            item.error = self._partition.judge(e)

    def undecided(self, wanted: Sequence[int]) -> list[int]:
        """What of `wanted` is a delayed record nobody decided about, also not earlier in this turn."""
        partition = self._partition
        found: list[int] = []
        inside = rng.clip(rng.union(wanted, ()), partition.log.start, partition.log.end)
        for near in _neighbourhoods(inside):
            delayed = partition.delayed_within(near[0], near[-2] + near[-1])
            found += partition.delays().undecided(near, delayed)
        return rng.subtract(found, self._decided)

    def check_marker(self, marker: control.Marker) -> None:
        state = self._ahead.get(marker.producer_id) or self._partition.producers.get(marker.producer_id)
        if state and marker.epoch < state.epoch:
            raise Fenced(f"producer {marker.producer_id} is at epoch {state.epoch}, not {marker.epoch}")

    def _lead(self) -> None:
        """Once per epoch: say in the log that it begins here."""
        partition = self._partition
        if partition.epoch > partition.written_epoch and not self._items:
            body = control.encode_body(control.ControlType.LEADER_CHANGE, control.LeaderChange(partition.epoch, self._next))
            self._stamp(Item(None, True, None), control_frame(control.ControlType.LEADER_CHANGE, body))

    def _stamp(self, item: Item, frame: Any) -> None:
        size = len(frame)
        self._make_room(size)
        partition = self._partition
        live, settings = partition.log.live, partition.settings
        create = settings.timestamp_type == "create"
        stamped = codec.stamp(
            frame, self._next, self._wall_us if create else max(self._wall_us, self._max), create=create and not item.internal,
            internal=item.internal, position=self._position, segment_base=live.base, last_index_position=self._index_position,
            max_value=VALUE_CEILING if item.frame is None else settings.max_message_bytes,
            last_timestamp=self._max, last_time_point=self._time_point,
            index_interval=partition.config.index_interval_bytes, time_interval_us=partition.config.time_interval_us)
        if stamped.batch and self._known(item, stamped, stamped.batch):
            return
        if stamped.flags & rec.TRANSACTIONAL and not stamped.batch and not stamped.controls:
            raise BadRecord("a transactional batch names no producer: send it with producer id, epoch and sequence")
        self._items.append((item, stamped))
        self._buffers.append(frame)
        if isinstance(item, MarkerItem):
            self._decided = rng.union(self._decided, item.taken)
        self._position += size
        self._next = stamped.next_offset
        self._index_position, self._time_point = stamped.last_index_position, stamped.last_time_point
        self._max = stamped.max_timestamp

    def _known(self, item: Item, stamped: Stamped, batch: Batch) -> bool:
        """True for a duplicate, which is answered with the offset and timestamp it got first."""
        producers = self._partition.producers
        offset = producers.check(batch.producer_id, batch.epoch, batch.base_sequence, batch.count, self._ahead)
        if offset < 0:
            self._ahead[batch.producer_id] = producers.following(
                batch.producer_id, batch.epoch, batch.base_sequence, batch.count, stamped.first_offset, self._ahead)
            return False
        item.produced = Produced(0, "", offset, self._timestamp_at(offset), self._partition.log.start, True)
        item.end = offset + batch.count
        if offset >= self._partition.log.end:
            self._echoes.append(item)
        return True

    def _timestamp_at(self, offset: int) -> int:
        """Of the first record of a batch that was written, or stamped in this turn."""
        if offset < self._partition.log.end:
            return self._partition.timestamp_at(offset)
        return next(rec.timestamp_of(frame) for (_, stamped), frame in zip(self._items, self._buffers, strict=True)
                    if stamped.first_offset == offset)

    def _make_room(self, size: int) -> None:
        """Roll when the frame does not fit, or when the segment's first record is past its retention."""
        settings, live = self._partition.settings, self._partition.log.live
        if size > SEGMENT_BYTES_MAX:
            raise TooLarge(f"a batch of {size} bytes is larger than any segment")
        old = 0 <= settings.retention_ms * 1000 < self._wall_us - live.first_timestamp and live.first_timestamp >= 0
        if self._position and (self._position + size > settings.segment_bytes or old):
            self.write()
            if not self._partition.online:
                raise self._partition.offline_error()
            if self._partition.log.live.size:
                self._partition.log.roll(self._partition.log.end)
                self._partition.rolled = True
            self._start()

    # -- writing ---------------------------------------------------------------------

    def write(self) -> None:
        """Write what was stamped. Every item has `produced` or `error` afterwards."""
        items, buffers, echoes = self._items, self._buffers, self._echoes
        if not items:
            return
        self._items, self._buffers, self._echoes = [], [], []
        try:
            self._partition.log.append(buffers)
        except OSError as e:
            error = self._partition.judge(e)
            for item in [*(item for item, _ in items), *echoes]:
                item.produced, item.error = None, error
            self._ahead.clear()
            self._decided.clear()
            self._start()
        else:
            self._written(items, buffers)

    def _written(self, items: list[tuple[Item, Stamped]], buffers: list[Any]) -> None:
        partition = self._partition
        live, stats = partition.log.live, partition.stats
        partition.producers.apply(self._ahead)
        self._ahead = {}
        for (item, stamped), frame in zip(items, buffers, strict=True):
            live.take(stamped, stamped.size)
            batch = stamped.batch
            if batch and stamped.flags & rec.TRANSACTIONAL:
                partition.transactions.wrote(batch.producer_id, stamped.first_offset, stamped.count)
            for found in stamped.controls:
                partition.wrote_control(found.offset, found.type, found.body, live)
            if not stamped.controls:            # those are the log's own
                stats.messages_produced += stamped.count
                stats.bytes_produced += stamped.size
            partition.log.size_bytes += stamped.size
            item.end = stamped.next_offset
            item.produced = Produced(0, "", stamped.first_offset, rec.timestamp_of(frame), partition.log.start)
        partition.changed = True


def _neighbourhoods(ranges: Sequence[int]) -> Iterator[Sequence[int]]:
    """Ranges in pieces without wide gaps: to look at a gap costs less than to look again behind it."""
    start = 0
    for at in range(2, len(ranges) + 2, 2):
        if at == len(ranges) or ranges[at] - ranges[at - 2] - ranges[at - 1] > NEAR:
            yield ranges[start:at]
            start = at


def control_frame(type_: int, body: bytes) -> bytearray:
    """One control record as a batch of its own, ready to be stamped."""
    builder = codec.BatchBuilder(256)
    builder.add(control.control_key(type_), body, flags=control.control_flags(type_))
    return bytearray(builder.seal())

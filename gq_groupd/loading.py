"""What a core knows of the logs: which partitions there are, where they begin and end, what lies in them, in which epoch.

Places new parts (at the earliest, the latest or a time), scans runs from the first unacked offset to the end, and on a new leader
epoch has everything dropped that the last one did not keep, before anything else happens to the part. Asks again by itself.

Serving comes before counting. A part first asks for the few runs that fill its lanes; what lies behind them is scanned without
lanes, where runs of random priorities are one, in slices of SCAN_RUNS of which SCANS_MAX are under way in all.

Invariant: nothing of a log is believed that does not carry the part's epoch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from gq_groupd import entries as e
from gq_groupd.desk import Desk
from gq_groupd.effects import AskEndOfEpoch, AskOffsetForTime, AskRuns, WatchSet
from gq_groupd.group import Group, Key
from gq_groupd.part import Part
from gq_groupd.stretch import lane_of
from gq_proto import ranges as rng
from gq_proto.bitmaps import ranges_of
from gq_proto.errors import GoQueueError
from gq_proto.limits import BUFFERED_RUNS, PRIORITIES
from gq_proto.messages import (
    EARLIEST,
    LATEST,
    EndOfEpochReply,
    OffsetForTimeReply,
    RunsReply,
    TopicMeta,
    Watched,
)
from gq_proto.record import TIMESTAMP_MAX, TRANSACTIONAL
from gq_proto.runs import ALL_LANES, CONTROL_KIND, NO_LANES

REST_MS = 250               # after an ask failed or brought nothing
LOAD_RUNS = 1_024           # of all lanes at once
SCAN_RUNS = 1_024           # a slice of the scan that only counts; about a millisecond
SCANS_MAX = 4               # slices under way
TRANSACTIONAL_KIND = TRANSACTIONAL << 2
Ask = AskRuns | AskEndOfEpoch | AskOffsetForTime


class Loading:
    """`on_placed(group)`: it has new parts."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.on_placed: Callable[[Group], None] = lambda group: None
        self._asked: dict[Ask, list[tuple[Part, str]]] = {}
        self._groups: dict[Key, list[Group]] = {}          # who watches what
        self._watched: frozenset[Key] = frozenset()
        self._scans = 0                                    # slices under way
        self._scan_later: dict[Part, None] = {}            # who waits for one

    # -- topics and placing ------------------------------------------------------------------

    def topics(self, topics: list[TopicMeta], deleted: list[int]) -> list[Group]:
        """The metadata changed. Groups whose parts did."""
        desk, affected = self._desk, {}
        gone = set(deleted)
        for topic in topics:
            known = desk.names.get(topic.name)
            if known is not None and known != topic.id:
                gone.add(known)
            gone |= {part.topic_id for group in desk.state.groups.values() for part in group.parts.values()
                     if part.topic == topic.name and part.topic_id != topic.id}
        for topic_id in gone:
            affected.update(dict.fromkeys(self._drop(topic_id)))
        for topic in topics:
            if topic.id not in gone:
                desk.topics[topic.id] = topic
                desk.names[topic.name] = topic.id
                for group in desk.state.groups.values():
                    if topic.name in group.topics() or any(key[0] == topic.id for key in group.parts):
                        self.place(group)
                        affected[group] = None
        desk.parts_changed = desk.advanced = True
        return list(affected)

    def _drop(self, topic_id: int) -> list[Group]:
        topic = self._desk.topics.pop(topic_id, None)
        if topic and self._desk.names.get(topic.name) == topic_id:
            del self._desk.names[topic.name]
            self._desk.ages.forget(topic=topic.name)
        affected = []
        for group in self._desk.state.groups.values():
            for key in [key for key in group.placing if key[0] == topic_id]:
                del group.placing[key]
            if any(key[0] == topic_id for key in (*group.parts, *group.owners)):
                self._desk.commit(group, e.TopicDropped(group.number, topic_id))
                affected.append(group)
        return affected

    def place(self, group: Group) -> None:
        """Make what parts are missing of the topics that members subscribe to or that the group has state of."""
        names = group.topics() | {part.topic for part in group.parts.values()}
        for name in sorted(names):
            topic_id = self._desk.names.get(name)
            if topic_id is None:
                continue
            seen = name in group.seen
            missing = [(topic_id, number) for number in range(len(self._desk.topics[topic_id].partitions))
                       if (topic_id, number) not in group.parts and (topic_id, number) not in group.placing]
            for key in missing:
                if seen or group.start == EARLIEST:
                    self.make(group, key, 0)
                else:
                    group.placing[key] = -1
                    self._place_by_start(group, key)
        self._desk.parts_changed = True

    def make(self, group: Group, key: Key, start: int) -> None:
        self._desk.commit(group, e.PartMade(group.number, *key, self._desk.topics[key[0]].name, start))
        self._desk.parts_changed = True

    def _place_by_start(self, group: Group, key: Key) -> None:
        ask = AskOffsetForTime(*key, _start_time(group))
        if ask not in self._asked:
            self._asked[ask] = []
            self._desk.emit(ask)

    def _placed(self, key: Key, offset: int, timestamp_us: int) -> None:
        """Where groups that start then begin in this partition. A topic's parts are made together: half of them must not be
        taken for all after a crash."""
        for group in list(self._desk.state.groups.values()):
            if group.placing.get(key) != -1 or _start_time(group) != timestamp_us:
                continue
            group.placing[key] = offset
            mine = [k for k in group.placing if k[0] == key[0]]
            if all(group.placing[k] >= 0 for k in mine):
                for k in mine:
                    self.make(group, k, group.placing.pop(k))
                self._desk.advanced = True
                self.on_placed(group)

    # -- watching --------------------------------------------------------------------------------

    def refresh_watch(self) -> None:
        """Say what is watched, when that changed."""
        groups: dict[Key, list[Group]] = {}
        for group in self._desk.state.groups.values():
            for key in (*group.parts, *group.placing):
                if key[0] in self._desk.topics:
                    groups.setdefault(key, []).append(group)
        self._groups = groups
        self._desk.ages.watch(groups)
        watched = frozenset(groups)
        # A group that is new to a partition has to hear of it, though the core does already: its part asks for itself.
        for group in self._desk.state.groups.values():
            for key, part in group.parts.items():
                if part.stage == "unseen" and key in groups:
                    self._desk.touch(part)
        if watched != self._watched:
            self._watched = watched
            self._desk.emit(WatchSet(watched))

    def watched(self, watched: Watched) -> None:
        if watched.error:
            return
        key = watched.topic_id, watched.partition
        for group in list(self._groups.get(key, ())):
            part = group.parts.get(key)
            if part:
                self._see(part, watched)

    def _see(self, part: Part, watched: Watched) -> None:
        if not self._meet(part, watched.epoch, watched.log_start, watched.end):
            return
        runs = watched.runs
        if runs and runs[0] <= part.scanned < part.end and not any(
                kind & TRANSACTIONAL_KIND and not kind & CONTROL_KIND for kind in runs[2::3]):
            part.scan(runs, watched.controls, [], runs[0], watched.end, now_ms=self._desk.now_ms)
            self._desk.wake(part.group)
        self._note(part)

    def _meet(self, part: Part, epoch: int, log_start: int, end: int) -> bool:
        """News of the partition's log. False while nothing further may be believed of it."""
        if epoch < part.epoch or epoch < part.new_epoch:
            return False
        if part.stage == "checking" or epoch > part.epoch >= 0:
            if epoch > max(part.epoch, part.new_epoch):
                part.new_end = part.new_log_start = 0
                part.step("see epoch")
            part.new_epoch = epoch
            part.new_end = max(part.new_end, end)
            part.new_log_start = max(part.new_log_start, log_start)
            self._desk.touch(part)
            return False
        if part.epoch < 0:
            self._desk.commit(part.group, e.EpochMoved(part.group.number, *part.key, epoch, -1))
            if log_start > part.acked.below:
                self._desk.commit(part.group, e.Gone(part.group.number, *part.key, log_start, 0))
        if part.stage == "unseen":
            part.step("see")
            part.census.see(end)
        self._extent(part, log_start, end)
        return True

    def _extent(self, part: Part, log_start: int, end: int) -> None:
        part.end = max(part.end, end)
        self._desk.ages.grew(part.key, part.end, self._desk.now_ms)
        if log_start > part.log_start:
            part.log_start = log_start
            if log_start > part.committed():
                self._desk.commit(part.group, e.Gone(part.group.number, *part.key, log_start, part.lost_below(log_start)))

    def _note(self, part: Part) -> None:
        """Is everything up to the end scanned?"""
        if part.serving:
            if part.scanned >= part.end:
                if part.stage != "ready":
                    self._caught_up(part)
                part.step("catch up")
            else:
                part.step("fall behind")
        self._desk.touch(part)

    def _caught_up(self, part: Part) -> None:
        self._desk.advanced = True
        vanished = part.vanished()
        if vanished:
            self._desk.commit(part.group, e.Acked(part.group.number, *part.key, 0, ranges_of(vanished), e.How.EXPIRED))

    # -- asking ---------------------------------------------------------------------------------------

    def tend(self, part: Part) -> None:
        """Ask what the part has to know next."""
        if not self._desk.known(part) or part.rest_until_ms > self._desk.now_ms:
            return
        if part.stage == "checking":
            self._ask(part, "epoch", AskEndOfEpoch(*part.key, part.epoch))
        elif part.stage == "unseen":
            self._ask(part, "scan", AskRuns(*part.key, part.scanned, LOAD_RUNS))
        else:
            self._load(part)
            if part.scanned < part.end:
                if part.stage == "ready":
                    part.step("fall behind")
                self._scan(part)
            elif part.census.wanted and part.census.counted < part.scanned:
                self._count(part)

    def _count(self, part: Part) -> None:
        """Figures come last. A stretch of which some is done is counted run by run."""
        census = part.census
        lane = ALL_LANES if census.counted < census.closely_to else NO_LANES
        self._slice(part, "count", AskRuns(*part.key, census.counted, SCAN_RUNS, lane))

    def _load(self, part: Part) -> None:
        """What lanes want that drain; each for itself, so that none waits for the others' runs to be read."""
        wants = part.lanes.wants(part.scanned)
        if len(wants) == PRIORITIES and len({part.lanes.lanes[lane].upto for lane in wants}) == 1:
            self._ask(part, "load", AskRuns(*part.key, part.lanes.upto, LOAD_RUNS))
            return
        for lane in wants:
            if "load" not in part.asking:
                self._ask(part, f"load {lane}", AskRuns(*part.key, part.lanes.lanes[lane].upto, BUFFERED_RUNS, lane))

    def _scan(self, part: Part) -> None:
        """Go on behind what is scanned: with the lanes while they have room for what comes."""
        if part.lanes.follow(part.scanned):
            self._ask(part, "scan", AskRuns(*part.key, part.scanned, LOAD_RUNS))
            return
        self._slice(part, "scan", AskRuns(*part.key, part.scanned, SCAN_RUNS, NO_LANES))

    def _slice(self, part: Part, slot: str, ask: AskRuns) -> None:
        if self._scans < SCANS_MAX or ask in self._asked or slot in part.asking:
            self._ask(part, slot, ask)
        else:
            self._scan_later[part] = None

    def _ask(self, part: Part, slot: str, ask: Ask) -> None:
        if slot in part.asking:
            return
        part.asking.add(slot)
        waiting = self._asked.setdefault(ask, [])
        waiting.append((part, slot))
        if len(waiting) == 1:
            self._scans += _is_slice(ask)
            self._desk.emit(ask)

    def answer(self, ask: Ask, reply: Any, error: GoQueueError | None) -> None:
        waiting = self._asked.pop(ask, [])
        self._scans -= _is_slice(ask)
        if isinstance(ask, AskOffsetForTime):
            self._time_answered(ask, reply, error)
        for part, slot in waiting:
            if not self._desk.alive(part):
                continue
            part.asking.discard(slot)
            self._desk.touch(part)
            if error or reply is None:
                self._rest(part)
            elif isinstance(ask, AskRuns):
                self._runs(part, ask, reply, slot)
            elif isinstance(ask, AskEndOfEpoch):
                self._checked(part, ask, reply)
        self._scan_more()

    def _scan_more(self) -> None:
        """Whose turn it is; the parts that were just answered come after those that wait."""
        while self._scan_later and self._scans < SCANS_MAX:
            part = next(iter(self._scan_later))
            del self._scan_later[part]
            if self._desk.alive(part):
                self.tend(part)

    def _rest(self, part: Part) -> None:
        part.rest_until_ms = self._desk.now_ms + REST_MS
        self._desk.at(part.rest_until_ms, partial(self._desk.touch, part))

    def _time_answered(self, ask: AskOffsetForTime, reply: OffsetForTimeReply | None, error: GoQueueError | None) -> None:
        key = ask.topic_id, ask.partition
        if reply and not error:
            self._placed(key, reply.offset, ask.timestamp_us)
        elif key[0] in self._desk.topics:
            self._desk.at(self._desk.now_ms + REST_MS, partial(self._ask_time_again, key))

    def _ask_time_again(self, key: Key) -> None:
        for group in self._desk.state.groups.values():
            if group.placing.get(key) == -1:
                self._place_by_start(group, key)

    def _runs(self, part: Part, ask: AskRuns, reply: RunsReply, slot: str) -> None:
        if not self._meet(part, reply.epoch, reply.log_start, min(reply.high_watermark, reply.last_stable)):
            return
        upto = max(reply.next_offset, ask.offset)
        if slot == "count":
            part.recount(reply.runs, ask.offset, upto, ask.lane, reply.counts)
            part.census.wanted = part.census.counted < part.scanned
            self._desk.advanced = self._desk.advanced or not part.census.wanted
        elif ask.lane >= 0:
            ranges = rng.unpack(reply.ranges)
            part.load(ask.lane, lane_of(ask.lane, ranges, reply.runs, reply.controls, reply.hidden), ask.offset, upto,
                      max(len(ranges) // 2, len(reply.runs) // 3) >= ask.limit)
        else:
            part.scan(reply.runs, reply.controls, reply.hidden, ask.offset, upto, ask.lane, reply.counts, self._desk.now_ms)
        if ask.lane != NO_LANES:
            self._desk.wake(part.group)
        if upto == ask.offset < part.end:
            self._rest(part)
        self._note(part)

    def _checked(self, part: Part, ask: AskEndOfEpoch, reply: EndOfEpochReply) -> None:
        if part.stage != "checking" or ask.of != part.epoch:
            return
        self._desk.commit(part.group, e.EpochMoved(part.group.number, *part.key, part.new_epoch, reply.end_offset))
        self._desk.ages.cut(part.key, reply.end_offset)
        part.step("check")
        part.log_start = 0
        self._extent(part, part.new_log_start, part.new_end)
        self._desk.wake(part.group)
        self._note(part)


def _is_slice(ask: Ask) -> bool:
    return isinstance(ask, AskRuns) and ask.limit == SCAN_RUNS


def _start_time(group: Group) -> int:
    """The first offset at or after it is where the group starts; nothing is as late as the latest."""
    return TIMESTAMP_MAX if group.start == LATEST else int(group.start)

"""gq_delayd's shell: sockets, clocks and files around the Core.

Owns nothing that matters. Every loop turn ends with one turn of the core, whose effects are carried out in order. Ready when all
partitions that this node leads have been read to their end, so that what came due while it was away goes out at once.
"""

from collections.abc import Iterator
from typing import Any, Final

from gq_delayd import effects as e
from gq_delayd.core import Core
from gq_delayd.files import Files
from gq_delayd.options import settings_of
from gq_proto import control
from gq_proto.errors import GoQueueError, UnknownKind
from gq_proto.messages import Body, Due, EndOfEpoch, Kind, MetadataReply, Watched, WriteMarker
from gq_proto.names import is_internal
from gq_run import logs
from gq_run import metrics as m
from gq_run.daemon import Daemon
from gq_run.directory import Directory
from gq_run.disk import Disk
from gq_run.loop import Timer
from gq_run.peers import Peers
from gq_run.server import Incoming
from gq_run.watcher import Watcher

ASK_TIMEOUT_S: Final = 10.0
QUIET_S: Final = 10.0            # after so long without a delayed message busy logs are looked at less often
QUIET_NOTICE_S: Final = 0.05
OURS: Final = frozenset((Kind.LIST_DELAYED, Kind.CANCEL_DELAYED, Kind.DELAY_STATS))


class DelayDaemon:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._loop = daemon, daemon.loop
        self._core = Core(settings_of(daemon.config))
        self._files = Files(Disk(), daemon.data_dir)
        self._directory = Directory(daemon, self._changed)
        self._peers = Peers(daemon, self._directory)
        self._notice_s = daemon.config.number("delay.noticeInterval") / 1000
        self._watcher = Watcher(daemon.loop, self._peers, lambda who, watched: self._watched(watched), self._notice_s)
        self._names: dict[int, str] = {}         # of topics, by id
        self._timer: Timer | None = None
        self._late: dict[str, m.Histogram] = {}

    def start(self) -> None:
        self._daemon.detail = "waits for metad"
        self._daemon.facts = self._facts
        self._daemon.metrics.add(self._samples)
        self._loop.each_turn(self._turn)
        self._directory.start()

    def stop(self) -> None:
        self._now()
        for effect in self._core.finish():
            self._do(effect)
        self._peers.close()
        self._directory.close()

    # -- inputs ---------------------------------------------------------------------------------

    def _now(self) -> Core:
        """The core, and it knows what time it is."""
        self._core.at(self._loop.now(), self._loop.wall_us())
        return self._core

    def handle(self, incoming: Incoming) -> None:
        if incoming.kind not in OURS:
            raise UnknownKind(f"request kind {incoming.kind} is not for delayd")
        self._now().request(incoming)

    def _changed(self, reply: MetadataReply) -> None:
        self._peers.refresh()
        topics = self._directory.topics
        gone = frozenset(self._names[id] for id in self._names.keys() - topics.keys())
        if not self._core.owned:
            self._files.tidy(topic.name for topic in topics.values())
        self._names = {topic.id: topic.name for topic in topics.values()}
        mine = {(topic.id, number): topic.name for topic in topics.values() if not is_internal(topic.name)
                for number, part in enumerate(topic.partitions) if part.leader == self._daemon.node_id}
        self._now().own(mine, gone)
        self._watcher.renew()

    def _watched(self, watched: Watched) -> None:
        self._now().watched(watched)

    # -- turns ------------------------------------------------------------------------------------

    def _turn(self) -> None:
        core = self._now()
        for effect in core.turn():
            self._do(effect)
        self._watcher.rest_s = self._notice_s if core.quiet_s() < QUIET_S else max(self._notice_s, QUIET_NOTICE_S)
        self._watcher.flush()
        for topic, late_us, count in core.take_late():
            self._late.setdefault(topic, m.Histogram()).observe(late_us / 1e6, count)
        if not self._daemon.is_ready and core.owned:
            self._look_ready(core)
        self._schedule(core)

    def _look_ready(self, core: Core) -> None:
        unread = len(core.unread())
        self._daemon.detail = f"{unread} partitions are being read"
        if not unread:
            self._daemon.ready()

    def _schedule(self, core: Core) -> None:
        """One timer for the core's next deadline; an earlier one that is set already will do, it looks again."""
        when = core.next_deadline()
        if when is None or (self._timer and self._timer.call and self._timer.when <= when):
            return
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._woken)

    def _woken(self) -> None:
        """The turn follows at the end of the loop's."""
        self._timer = None

    # -- effects ------------------------------------------------------------------------------------

    def _do(self, effect: e.Effect) -> None:
        if isinstance(effect, e.AskMarker):
            body = control.encode_body(effect.type, effect.ranges)
            self._ask(effect, Kind.WRITE_MARKER, WriteMarker(effect.type, body), effect.epoch)
        elif isinstance(effect, e.AskDue):
            self._ask(effect, Kind.DUE, Due(effect.offset, effect.limit))
        elif isinstance(effect, e.AskEndOfEpoch):
            self._ask(effect, Kind.END_OF_EPOCH, EndOfEpoch(effect.of))
        elif isinstance(effect, e.Reply):
            _incoming(effect.call).reply(effect.body)
        elif isinstance(effect, e.Fail):
            _incoming(effect.call).fail(effect.error)
        elif isinstance(effect, e.WatchSet):
            self._watcher.set(self, effect.keys)
        elif isinstance(effect, e.Note):
            getattr(self._daemon.log, effect.level)(effect.text, extra=logs.fields(**effect.fields))
        else:
            self._do_index(effect)

    def _ask(self, ask: e.AskMarker | e.AskDue | e.AskEndOfEpoch, kind: Kind, body: Body, epoch: int = -1) -> None:
        def answered(reply: Any, frames: object, error: GoQueueError | None) -> None:
            self._now().answer(ask, reply, error)
        self._peers.to_leader(*ask.key, kind, body, answered, timeout_s=ASK_TIMEOUT_S, epoch=epoch)

    def _do_index(self, effect: e.AskIndex | e.IndexWrite | e.IndexReplace | e.IndexRemove) -> None:
        if isinstance(effect, e.AskIndex):
            raw = self._files.read(effect.topic, effect.key[1])
            self._loop.post(lambda: self._now().answer(effect, raw, None))
            return
        try:
            if isinstance(effect, e.IndexWrite):
                self._files.write(effect)
            elif isinstance(effect, e.IndexReplace):
                self._files.replace(effect)
            else:
                self._files.remove(effect.topic)
        except OSError as error:
            self._daemon.log.warning("the delay index cannot be written, a restart will read more of the log",
                                     extra=logs.fields(topic=effect.topic, reason=str(error)))
            if not isinstance(effect, e.IndexRemove):
                self._core.index_failed(effect.id)

    # -- what it tells ---------------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        parts = list(self._core.parts())
        return {"partitions": len(parts), "unread": len(self._core.unread()), "scheduled": sum(part.scheduled() for part in parts),
                "overdue": sum(part.overdue() for part in parts), "clock_jumps": self._core.jumps}

    def _samples(self) -> Iterator[m.Sample]:
        totals: dict[str, list[int]] = {}
        for part in self._core.parts():
            labels = (part.topic, str(part.number))
            yield m.DELAY_SCHEDULED, labels, part.scheduled()
            yield m.DELAY_OVERDUE, labels, part.overdue()
            total = totals.setdefault(part.topic, [0, 0, 0])
            total[0] += part.total_ready()
            total[1] += part.total_cancelled()
            total[2] += part.counts.expired
        for topic, (ready, cancelled, expired) in totals.items():
            yield m.DELAY_READY, (topic,), ready
            yield m.DELAY_CANCELLED, (topic,), cancelled
            yield m.DELAY_EXPIRED, (topic,), expired
        for topic, histogram in self._late.items():
            yield m.DELAY_LATENESS, (topic,), histogram
        yield m.CLOCK_JUMPS, (), self._core.jumps


def _incoming(call: e.Call) -> Incoming:
    """What the core hands back is what it was handed."""
    assert isinstance(call, Incoming)
    return call

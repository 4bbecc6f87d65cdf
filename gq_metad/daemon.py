"""metad's shell: hands requests to the core, its entries to the log, its answers to the callers.

Owns the log, the export and the timer. Within a turn of the loop entries and answers are collected; at its end all entries go to
the disk at once (one frame, one sync), then the answers leave. When the disk is full the entries are refused, their answers
become errors, and the core goes on from what the log has. Any other write error is the end: a supervisor starts it anew, and
what counts is what can be read then.

`meta/topics.json` is for eyes and scripts: written a moment after a change, never read.
"""

import os
import secrets
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gq_metad import entries
from gq_metad.core import Core
from gq_metad.effects import Append, Effect, Fail, Reply
from gq_metad.log import MetaLog, Recovered
from gq_metad.options import topic_defaults
from gq_metad.state import State
from gq_proto.errors import Corrupt, DiskFull, GoQueueError
from gq_proto.messages import MetadataReply
from gq_proto.names import GROUPS_TOPIC
from gq_run import logs
from gq_run.daemon import Daemon
from gq_run.disk import Disk
from gq_run.loop import Timer
from gq_run.metrics import METADATA_VERSION, NODES, TOPICS, Sample
from gq_run.server import Incoming

EXPORT_S: Final = 0.2       # after a change
EXPORT_AGAIN_S: Final = 10.0     # after it failed
EXPORT: Final = "topics.json"


class MetaDaemon:
    """An App, see gq_run.daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._loop, self._disk = daemon, daemon.loop, Disk()
        self._folder = os.path.join(daemon.data_dir, "meta")
        self._log = MetaLog(self._disk, self._folder)
        self._core = Core(topic_defaults(daemon.config), secrets.randbits)
        self._snapshot_bytes = daemon.config.number("metad.snapshotBytes")
        self._pending: list[entries.AnyEntry] = []
        self._answers: list[Reply | Fail] = []
        self._timer: Timer | None = None
        self._keys_told = -1                    # version of the keys that this daemon's own guard has
        self._exported = -1                     # version in topics.json
        self._export_timer: Timer | None = None

    # -- App ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._core = Core(topic_defaults(self._daemon.config), secrets.randbits, self._recover())
        self._take(self._core.bootstrap(self._loop.now(), self._loop.wall_us()))
        self._flush()
        self._export()
        self._loop.each_turn(self._turn)
        self._daemon.metrics.add(self._samples)
        self._daemon.facts = self._facts
        self._tell_keys()
        self._daemon.ready()

    def handle(self, incoming: Incoming) -> None:
        self._take(self._core.step(self._loop.now(), self._loop.wall_us(), incoming))

    def stop(self) -> None:
        self._flush()
        self._export()
        self._log.close()

    # -- turns ---------------------------------------------------------------------------------

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                self._pending.append(effect.entry)
            else:
                self._answers.append(effect)

    def _turn(self) -> None:
        """At the end of each: write, answer, see to the timer."""
        self._flush()
        when = self._core.next_deadline()
        if self._timer and self._timer.when != when:
            self._timer.cancel()
            self._timer = None
        if when is not None and self._timer is None:
            self._timer = self._loop.call_at(when, self._due)

    def _due(self) -> None:
        self._timer = None
        self._take(self._core.due(self._loop.now()))

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            try:
                self._log.append(entries.encode(pending), len(pending))
            except DiskFull as e:
                self._refuse(e)
            if self._core.state.keys_version != self._keys_told:
                self._tell_keys()
        answers, self._answers = self._answers, []
        for answer in answers:
            if isinstance(answer, Reply):
                answer.call.reply(answer.body)                 # type: ignore[attr-defined]
            else:
                answer.call.fail(answer.error)                 # type: ignore[attr-defined]
        if pending:
            self._written()

    def _tell_keys(self) -> None:
        """What a caller may do here goes by the same keys as elsewhere."""
        state = self._core.state
        self._keys_told = state.keys_version
        told = MetadataReply(state.version, [], [], [], keys=list(state.keys.values()))
        self._daemon.take_keys(told, self._name_of)

    def _name_of(self, topic_id: int) -> str | None:
        topic = self._core.state.topics.get(topic_id)
        return topic.name if topic else None

    def _refuse(self, error: GoQueueError) -> None:
        """Nothing of this turn happened."""
        self._daemon.log.error("cannot write the metadata log", extra=logs.fields(reason=error.message))
        self._answers = [Fail(answer.call, error) for answer in self._answers]
        self._log.close()
        self._take(self._core.restore(self._recover(), error))

    def _written(self) -> None:
        if self._log.size > self._snapshot_bytes:
            try:
                self._log.snapshot(entries.encode_snapshot(self._core.state.snapshot()))
            except OSError as e:                               # the log still has everything
                self._daemon.log.error("cannot write a snapshot of the metadata", extra=logs.fields(reason=str(e)))
        if self._core.state.version != self._exported and self._export_timer is None:
            self._export_timer = self._loop.call_later(EXPORT_S, self._export)

    # -- the disk --------------------------------------------------------------------------------

    def _recover(self) -> State:
        """What the log adds up to."""
        found = self._log.open()
        self._check_not_lost(found)
        try:
            state = self._replay(found)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as e:
            raise Corrupt(f"{self._folder} holds what this version can't read: {e}") from None
        said = self._daemon.log.warning if found.cut else self._daemon.log.info
        said("metadata read", extra=logs.fields(index=self._log.index, version=state.version, topics=len(state.topics),
                                                torn_bytes=found.cut))
        return state

    def _check_not_lost(self, found: Recovered) -> None:
        """Corrupt when there is nothing although there was: whoever began anew would give topics new ids, and so leave aside all
        messages and what groups have done. The journal of groups is made on metad's word alone."""
        journal = os.path.join(self._daemon.data_dir, "logs", GROUPS_TOPIC)
        if not found.snapshot and not found.frames and self._disk.exists(journal):
            raise Corrupt(f"{self._folder} is empty, but {journal} is not of a new node: restore it, or move logs away")

    def _replay(self, found: Recovered) -> State:
        state = State.of(entries.decode_snapshot(found.snapshot)) if found.snapshot else State()
        for frame in found.frames:
            facts = entries.decode(frame.payload)
            if frame.index != self._log.index + 1:
                raise Corrupt(f"{self._folder}: entry {self._log.index + 1} is missing before {frame.index}")
            for fact in facts:
                state.apply(fact)
            self._log.took(len(facts))
        return state

    def _export(self) -> None:
        self._export_timer = None
        state = self._core.state
        if state.version == self._exported:
            return
        data = msgspec.json.format(msgspec.json.encode(_readable(state)), indent=2)
        try:
            self._disk.write_atomic(os.path.join(self._folder, EXPORT), data + b"\n", durable=False)
        except OSError as e:
            self._daemon.log.warning("cannot export the topics", extra=logs.fields(reason=str(e)))
            self._export_timer = self._loop.call_later(EXPORT_AGAIN_S, self._export)
            return
        self._exported = state.version

    # -- what is said about it ---------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        state = self._core.state
        up = self._core.up(self._loop.now())
        return {"cluster_id": state.cluster_id, "version": state.version, "topics": len(state.topics), "log_index": self._log.index,
                "daemons": {f"{daemon}/{node}": "up" if up[daemon, node] else "down" for daemon, node in state.daemons}}

    def _samples(self) -> Iterator[Sample]:
        state = self._core.state
        up = list(self._core.up(self._loop.now()).values())
        yield TOPICS, (), len(state.topics)
        yield METADATA_VERSION, (), state.version
        yield NODES, ("up",), sum(up)
        yield NODES, ("down",), len(up) - sum(up)


def _readable(state: State) -> dict[str, Any]:
    """topics.json."""
    topics = [{"name": t.name, "id": t.id, "version": t.version, "createdUs": t.created_us,
               "replicationFactor": t.replication_factor, "config": t.config,
               "partitions": [{"partition": i, "leader": p.leader, "epoch": p.epoch, "replicas": p.replicas, "isr": p.isr}
                              for i, p in enumerate(t.partitions)]}
              for t in sorted(state.topics.values(), key=lambda t: t.name)]
    daemons = [{"daemon": d.daemon, "nodeId": d.node_id, "endpoints": d.endpoints, "incarnation": d.incarnation}
               for d in state.daemons.values()]
    return {"clusterId": state.cluster_id, "version": state.version, "topics": topics, "daemons": daemons}

"""Snapshots: a group's whole hard state as entries, so that the journal before them can go.

One GroupSnapshot, then per part its state as msgpack, in pieces that fit a record. At replay a snapshot counts only where the
group or part is not known yet: in a journal that was trimmed. So writing one live changes nothing.
Bitmaps are in roaring's portable 64-bit format. Fields of the structs may be appended with defaults.
"""

from typing import Final

import msgspec
from msgspec import Struct
from pyroaring import BitMap64

from gq_groupd import entries as e
from gq_groupd.effects import DeadLetter
from gq_groupd.group import Group
from gq_groupd.lease import Lease
from gq_groupd.part import Part
from gq_proto.limits import PRIORITY_DEFAULT

PIECE_BYTES: Final = 256 * 1024


class LeaseState(Struct, array_like=True):
    id: int
    random: int
    member: str
    epoch: int
    delivery: int
    ranges: list[int]
    anchor: int
    hold: bool
    visibility_ms: int
    deadline_us: int
    started: int
    open: bytes
    lapsed: bytes
    acked: bytes
    longest_ms: int
    lane: int = PRIORITY_DEFAULT


class PartState(Struct, array_like=True):
    topic: str
    epoch: int
    below: int
    ahead: bytes
    attempts: list[tuple[int, bytes]]
    waiting: list[tuple[int, int, bytes]]           # at us, delay ms, offsets
    dead: list[tuple[int, int, str, int]]           # offset, count, reason, time us
    intent: tuple[list[int], int, int] | None
    anchors: list[tuple[int, bytes]]                # ready record, acked offsets
    leases: list[LeaseState]
    expired: int
    skipped_to: int
    marked: list[bytes] = []                        # offsets by lane, of what failed


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PartState)


def dump_group(group: Group) -> list[e.AnyEntry]:
    """Entries from which the group comes back as it is."""
    out: list[e.AnyEntry] = [e.GroupSnapshot(
        group.number, group.mode, group.start, group.paused, group.generation,
        [(m.id, m.topics, m.client, m.session_ms) for m in group.members.values()],
        [(topic_id, partition, member) for (topic_id, partition), member in group.owners.items()],
        sorted(group.seen), group.empty_since_us)]
    for part in group.parts.values():
        data = _encoder.encode(_dump(part))
        pieces = [data[at:at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
        out += [e.PartSnapshot(group.number, part.topic_id, part.partition, number, len(pieces), piece)
                for number, piece in enumerate(pieces)]
    return out


def _dump(part: Part) -> PartState:
    leases = {**part.leases, **part.lapsed}
    intent = part.dead.intent
    part.acked.ahead.run_optimize()
    return PartState(
        part.topic, part.epoch, part.acked.below, part.acked.ahead.serialize(),
        [(level, bitmap.serialize()) for level, bitmap in part.attempts.levels.items()],
        [(at_us, delay, bitmap.serialize()) for _, _, at_us, delay, bitmap in part.waiting.heap if bitmap],
        [(d.offset, d.count, d.reason, d.time_us) for d in part.dead.letters.values()],
        (intent.ranges, intent.dlq_topic_id, intent.dlq_end) if intent else None,
        [(ready, bitmap.serialize()) for ready, bitmap in part.anchors.acked.items()],
        [LeaseState(le.id, le.random, le.member, le.epoch, le.delivery, list(le.ranges), le.anchor, le.hold, le.visibility_ms,
                    le.deadline_us, le.started, le.open.serialize(), le.lapsed.serialize(), le.acked.serialize(), le.longest_ms,
                    le.lane)
         for le in leases.values()],
        part.expired, part.skipped_to, [(marked & part.attempts.any).serialize() for marked in part.marked])


def load_part(group: Group, key: tuple[int, int], data: bytes) -> tuple[Part, list[Lease]]:
    """The part, and its leases, not yet granted. msgspec.DecodeError or ValueError for what no release wrote."""
    state = _decoder.decode(data)
    part = Part(group, key[0], state.topic, key[1], state.below)
    part.epoch, part.expired, part.skipped_to = state.epoch, state.expired, state.skipped_to
    part.acked.ahead = BitMap64.deserialize(state.ahead)
    for level, raw in state.attempts:
        part.attempts.set(BitMap64.deserialize(raw), level)
    for at_us, delay, raw in state.waiting:
        part.waiting.add(BitMap64.deserialize(raw), 0, at_us, delay)
    for letter in state.dead:
        part.dead.letters[letter[0]] = DeadLetter(*letter)
        part.dead.all.add(letter[0])
    if state.intent:
        part.dead.pledge(*state.intent)
    for lane, raw in enumerate(state.marked):
        part.marked[lane] = BitMap64.deserialize(raw)
        group.lanes |= bool(part.marked[lane]) << lane
    part.anchors.acked = {ready: BitMap64.deserialize(raw) for ready, raw in state.anchors}
    return part, [_load_lease(part, lease) for lease in state.leases]


def _load_lease(part: Part, s: LeaseState) -> Lease:
    lease = Lease(s.id, s.random, part, s.member, s.epoch, s.delivery, s.ranges, s.anchor, s.hold, s.visibility_ms,
                  s.deadline_us, s.lane)
    lease.started, lease.longest_ms = s.started, s.longest_ms
    lease.open, lease.lapsed, lease.acked = map(BitMap64.deserialize, (s.open, s.lapsed, s.acked))
    return lease

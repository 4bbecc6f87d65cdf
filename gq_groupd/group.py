"""A group and its members. Hard: mode, start, paused, generation, members, owners, seen, parts. The rest is soft."""

from collections import deque
from typing import Any

from gq_groupd.lease import Lease
from gq_groupd.part import Part
from gq_groupd.shares import Shares

Key = tuple[int, int]       # topic id, partition

PARTITIONED = "partitioned"
SHARED = "shared"


class Member:
    """`peer` is the connection it was last heard on, `turn` where its next poll begins to look."""

    def __init__(self, id: str, topics: list[str], client: str, session_ms: int) -> None:
        self.id, self.topics, self.client, self.session_ms = id, topics, client, session_ms
        self.leases: dict[int, Lease] = {}      # with something open
        self.in_flight = 0
        self.peer = b""
        self.heard_ms = 0
        self.turn = 0
        self.keys: list[Key] = []               # what it may lease from
        self.shares: Shares | None = None


class Group:
    """`seen`: topics that were subscribed to before: what is new in them starts at their beginning, whatever `start` says."""

    def __init__(self, name: str, number: int, mode: str, start: str, empty_since_us: int) -> None:
        self.name, self.number, self.mode, self.start = name, number, mode, start
        self.paused = False
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.owners: dict[Key, str] = {}
        self.seen: set[str] = set()
        self.parts: dict[Key, Part] = {}
        self.pieces: dict[Key, list[bytes]] = {}    # of part snapshots, at replay
        self.empty_since_us = empty_since_us
        self.snapshot_at = 0
        self.placing: dict[Key, int] = {}       # parts not made yet: where they will start, -1 not known
        self.parked: deque[Any] = deque()       # serving.Parked
        self.changed = False                    # since the last export
        self.export_ms: int | None = None
        self.empty_at_ms = 0                    # on the clock of this core
        self.lanes = 0                          # bits of those that any message was ever seen in
        self.shares: Shares | None = None       # of all members' together, in a shared group
        self.spare: list[Shares] = []           # of members that are gone: who comes next goes on with their round
        self.rebalances = 0
        self.rebalance_ms = 0
        self.rebalance_from_ms: int | None = None

    @property
    def key(self) -> bytes:
        return self.name.encode()

    def topics(self) -> set[str]:
        """What members subscribe to."""
        return {topic for member in self.members.values() for topic in member.topics}

    def state(self) -> str:
        """As tables.GROUP has it."""
        if not self.members:
            return "empty"
        return "rebalancing" if self.rebalance_from_ms is not None else "stable"

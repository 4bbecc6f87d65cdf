"""What grows in the partitions that a daemon's cores watch: one long Watch per logd, its news handed to whoever watches.

Owns which core watches what, and per partition the (end, epoch, log start) last heard. A partition that a core begins to watch is
asked for from 0, so that it hears of it at once. A change of the set replaces the Watch under way: the answer to the old one
still counts.
Who can wait a little gives `rest_s`: so long after news no further ones are asked for, and a busy log is not asked all the time.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from gq_proto.errors import GoQueueError
from gq_proto.messages import Kind, Watch, Watched, WatchPart, WatchReply
from gq_run.loop import Loop
from gq_run.peers import Peers

WAIT_MS: Final = 1_000        # a lost hint costs this much at most
ANSWERS: Final = 64           # to one Watch: naming all that is watched costs more than most news
GRACE_S: Final = 5.0
RETRY_S: Final = 0.2
Key = tuple[int, int]


class Watcher:
    """`tell(watcher, watched)`: news for one of those that called set()."""

    def __init__(self, loop: Loop, peers: Peers, tell: Callable[[Any, Watched], None], rest_s: float = 0.0) -> None:
        self._loop, self._peers, self._tell, self.rest_s = loop, peers, tell, rest_s
        self._watchers: dict[Key, dict[Any, None]] = {}
        self._sets: dict[Any, frozenset[Key]] = {}
        self._known: dict[Key, tuple[int, int, int]] = {}
        self._asked: dict[str, int] = {}       # node -> number of the Watch that counts
        self._number = 0
        self._changed = False

    def set(self, watcher: Any, parts: frozenset[Key]) -> None:
        """All that `watcher` watches now."""
        old = self._sets.get(watcher, frozenset())
        for key in old - parts:
            watchers = self._watchers[key]
            watchers.pop(watcher, None)
            if not watchers:
                del self._watchers[key]
                self._known.pop(key, None)
        for key in parts - old:
            self._watchers.setdefault(key, {})[watcher] = None
            self._known[key] = (0, -1, -1)
        self._sets[watcher] = parts
        if not parts:
            self._sets.pop(watcher, None)
        self._changed = self._changed or parts != old

    def flush(self) -> None:
        """Once per turn: watch anew where the set changed."""
        if self._changed:
            self._changed = False
            self.renew()

    def renew(self) -> None:
        """Watch anew everywhere: leaders or the set changed."""
        for node, keys in self._by_node().items():
            self._watch(node, keys)

    def _by_node(self) -> dict[str, list[Key]]:
        nodes: dict[str, list[Key]] = {node: [] for node in self._asked}
        for key in self._watchers:
            leader = self._peers.leader_of(*key)
            if leader:
                nodes.setdefault(leader[0], []).append(key)
        return nodes

    def _watch(self, node: str, keys: Iterable[Key]) -> None:
        parts = [WatchPart(*key, *self._known[key]) for key in keys]
        self._number += 1
        number = self._number
        if not parts:
            self._asked.pop(node, None)
            return
        self._asked[node] = number
        self._peers.to_node(node, Kind.WATCH, Watch(parts, WAIT_MS, 1 if self.rest_s else ANSWERS),
                            lambda reply, frames, error: self._answered(node, number, reply, error), WAIT_MS / 1000 + GRACE_S)

    def _answered(self, node: str, number: int, reply: WatchReply | None, error: GoQueueError | None) -> None:
        for watched in reply.parts if reply else ():
            self._news(watched)
        if self._asked.get(node) != number or (reply and reply.open):
            return
        rest_s = RETRY_S if error else self.rest_s if reply and reply.parts else 0.0
        if rest_s:
            self._loop.call_later(rest_s, lambda: self._again(node, number))
        else:
            self._again(node, number)

    def _news(self, watched: Watched) -> None:
        key = watched.topic_id, watched.partition
        if key in self._watchers:
            if not watched.error:
                self._known[key] = watched.end, watched.epoch, watched.log_start
            for watcher in list(self._watchers[key]):
                self._tell(watcher, watched)

    def _again(self, node: str, number: int) -> None:
        if self._asked.get(node) == number:
            self._watch(node, self._by_node().get(node, []))

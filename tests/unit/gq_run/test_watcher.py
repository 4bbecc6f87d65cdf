"""Watching for the cores, with a hand-played logd."""

from typing import Any

from gq_proto.errors import Unavailable, UnknownTopicId
from gq_proto.messages import Watched, WatchReply
from gq_run.watcher import Watcher


class Peers:
    def __init__(self) -> None:
        self.leaders = {(7, 0): ("a", 1), (7, 1): ("b", 1), (8, 0): ("a", 1)}
        self.asked: list[tuple[str, list[tuple[int, ...]], Any]] = []
        self.starts: list[int] = []

    def leader_of(self, topic_id: int, partition: int) -> tuple[str, int] | None:
        return self.leaders.get((topic_id, partition))

    def to_node(self, node: str, kind: Any, body: Any, done: Any, timeout_s: float) -> None:
        self.asked.append((node, [(p.topic_id, p.partition, p.end, p.epoch) for p in body.parts], done))
        self.starts = [p.log_start for p in body.parts]

    def pop(self, node: str) -> Any:
        found = next(asked for asked in self.asked if asked[0] == node)
        self.asked.remove(found)
        return found


class Loop:
    def __init__(self) -> None:
        self.later: list[Any] = []

    def call_later(self, seconds: float, call: Any) -> None:
        self.later.append(call)


class Play:
    def __init__(self) -> None:
        self.peers, self.loop = Peers(), Loop()
        self.told: list[tuple[str, int, int]] = []
        self.watcher = Watcher(self.loop, self.peers, self._tell)  # type: ignore[arg-type]

    def _tell(self, who: str, watched: Watched) -> None:
        self.told.append((who, watched.topic_id, watched.end))

    def set(self, who: str, *parts: tuple[int, int]) -> None:
        self.watcher.set(who, frozenset(parts))
        self.watcher.flush()


def test_each_logd_is_asked_for_what_it_leads_and_news_reach_every_watcher() -> None:
    play = Play()
    play.set("x", (7, 0), (7, 1))
    assert sorted(asked[:2] for asked in play.peers.asked) == [("a", [(7, 0, 0, -1)]), ("b", [(7, 1, 0, -1)])]
    play.set("y", (7, 0))
    play.peers.asked.pop(0)
    _, _, done = play.peers.pop("a")
    assert play.peers.starts == [-1]
    done(WatchReply([Watched(7, 0, 1, 12, 40)]), [], None)
    assert sorted(play.told) == [("x", 7, 40), ("y", 7, 40)] and play.peers.starts == [12]
    assert play.peers.pop("a")[1] == [(7, 0, 40, 1)], "and goes on from there"


def test_the_answer_to_a_replaced_watch_counts_but_does_not_ask_again() -> None:
    play = Play()
    play.set("x", (7, 0))
    _, _, old = play.peers.pop("a")
    play.set("x", (7, 0), (8, 0))
    assert play.peers.asked[0][1] == [(7, 0, 0, -1), (8, 0, 0, -1)]
    old(WatchReply([Watched(7, 0, 1, 0, 9)]), [], None)
    assert play.told == [("x", 7, 9)] and len(play.peers.asked) == 1


def test_errors_are_told_and_waited_out() -> None:
    play = Play()
    play.set("x", (7, 0))
    _, _, done = play.peers.pop("a")
    done(WatchReply([Watched(7, 0, 1, 0, 0, error=UnknownTopicId.code)]), [], None)
    assert play.told == [("x", 7, 0)]
    _, parts, done = play.peers.pop("a")
    assert parts == [(7, 0, 0, -1)], "an error moves nothing"
    done(None, [], Unavailable("gone"))
    assert not play.peers.asked
    play.loop.later.pop()()
    assert play.peers.pop("a")


def test_nobody_watches_nothing_is_asked() -> None:
    play = Play()
    play.set("x", (7, 0))
    _, _, done = play.peers.pop("a")
    play.set("x")
    done(WatchReply([Watched(7, 0, 1, 0, 40)]), [], None)
    assert not play.told and not play.peers.asked


def test_who_can_wait_asks_again_only_after_a_rest_and_only_when_there_was_news() -> None:
    play = Play()
    play.watcher.rest_s = 0.05
    play.set("x", (7, 0))
    play.peers.pop("a")[2](WatchReply([Watched(7, 0, 1, 0, 40)]), [], None)
    assert not play.peers.asked and len(play.loop.later) == 1
    play.loop.later.pop()()
    play.peers.pop("a")[2](WatchReply([]), [], None)
    assert play.peers.asked and not play.loop.later

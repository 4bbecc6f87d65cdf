"""The REST API when things go away: callers in the middle of a long poll, the gateway itself, the daemons behind it."""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.ground import rss_mb
from tests.system.harness import until
from tests.system.web import Web, beside, reply

IDLE = 1000
CONFIG = "http: {answerTimeout: 700ms, drain: 5s}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Web]]:
    made: list[Web] = []

    def start(**env: str) -> Web:
        made.append(Web(tmp_path / f"web{len(made)}", CONFIG, **env))
        return made[-1].start()

    yield start
    for web in made:
        web.stop()


@pytest.mark.quiet
def test_who_leaves_in_the_middle_of_a_poll_takes_nothing_along(start: Callable[..., Web]) -> None:
    web = start()
    topic = web.topic()
    member = web.post("/groups/g/join", {"topics": [topic], "mode": "shared"}).json["member"]
    for query in (f"member={member}", f"topics={topic}&mode=shared"):
        left = [web.asking(f"/groups/g/poll?{query}&wait=30") for _ in range(5)]
        waits = until(lambda: _waiting(web) == 5, "five polls wait") and time.monotonic()
        for line in left:
            line.close()
        web.publish(topic, "precious")
        [message] = web.get("/groups/g/poll", topics=topic, mode="shared", wait=5).json["messages"]
        assert time.monotonic() - waits < 1 + 1, "available again within a second"
        assert (message["value"], message["delivery"]) == ("precious", 1), "and uncounted"
        web.post("/messages/ack", {"receipt": message["receipt"]})
    until(lambda: _waiting(web) == 0, "nobody waits any more")


@pytest.mark.quiet
def test_what_a_poll_delivered_lives_to_its_deadline_and_no_longer(start: Callable[..., Web]) -> None:
    web = start()
    topic = web.topic()
    web.publish(topic, "held")
    member = web.post("/groups/g/join", {"topics": [topic], "mode": "shared"}).json["member"]
    [held] = web.get("/groups/g/poll", member=member, visibility="1s", wait=5).json["messages"]
    begun = time.monotonic()
    assert web.post("/groups/g/leave", {"member": member}).status == 204
    assert web.get("/groups/g/poll", topics=topic, mode="shared", wait=0).json["messages"] == [], "its member left, it stays"
    [again] = web.get("/groups/g/poll", topics=topic, mode="shared", wait=5).json["messages"]
    assert 0.8 < time.monotonic() - begun < 3 and (again["value"], again["delivery"]) == ("held", 2)
    answer = web.post("/messages/ack", {"receipt": held["receipt"]})
    assert (answer.status, answer.code) == (409, "stale_receipt")


@pytest.mark.quiet
def test_many_idle_polls_cost_little_and_end_cleanly_with_the_gateway(start: Callable[..., Web]) -> None:
    web = start(GOQUEUE_HTTP_ANSWER_TIMEOUT="10s")           # each is a member: so many joins at once take a while
    topic, quiet = web.topic(), web.topic()
    member = web.post("/groups/idle/join", {"topics": [quiet], "mode": "shared"}).json["member"]
    before = rss_mb(web.node.pid("gateway"))
    lines = [web.asking(f"/groups/idle/poll?{'member=' + member if n < 10 else f'topics={quiet}&mode=shared'}&wait=60")
             for n in range(IDLE)]
    until(lambda: _waiting(web) == IDLE, "all of them wait")
    took = sorted(_timed(lambda: web.post(f"/topics/{topic}/publish", {"value": "v"})) for _ in range(100))
    assert took[50] < 0.05, "others do not notice"
    assert rss_mb(web.node.pid("gateway")) - before < IDLE * 0.1, "less than 100 KB each"
    stopping = time.monotonic()
    ended = beside(web.node.terminate, "gateway")
    answers = [reply(line) for line in lines]
    ended.join()
    assert [(answer.status, answer.json["messages"]) for answer in answers] == [(200, [])] * IDLE
    assert {answer.headers["Connection"] for answer in answers} == {"close"}
    assert time.monotonic() - stopping < 8 and web.node.processes["gateway"].returncode == 0
    assert '"level":"error"' not in web.node.log("gateway") and "Traceback" not in web.node.log("gateway")


def test_a_node_that_is_not_there_is_a_503_and_a_new_gateway_serves_when_it_is(start: Callable[..., Web]) -> None:
    web = start()
    topic = web.topic()
    web.node.kill9("logd")
    answer = web.post(f"/topics/{topic}/publish", {"value": "v"})
    assert answer.status == 503 and answer.code in ("unavailable", "timed_out")
    batch = web.post(f"/topics/{topic}/batch", {"messages": [{"value": "v"}]})
    assert batch.status == 503 and batch.code in ("unavailable", "timed_out")
    assert web.get("/admin/health").json["ready"] is True, "metad is there"
    web.node.kill9("metad", "groupd")
    until(lambda: web.get("/admin/health").status == 503, "not ready without metad")
    answer = web.get("/groups/g")
    assert answer.status == 503 and answer.code in ("unavailable", "timed_out")
    assert web.get("/admin/metrics").status == 200 and web.get("/docs").status == 200
    web.node.start("metad", "logd", "groupd")
    until(lambda: web.post(f"/topics/{topic}/publish", {"value": "after"}).status == 200, "it goes on by itself")
    until(lambda: web.get("/admin/health").status == 200, "ready again")
    assert [m["value"] for m in web.get(f"/topics/{topic}/messages").json["messages"]][-1] == "after"


def test_daemons_restart_under_load_and_no_acked_publish_is_lost(start: Callable[..., Web]) -> None:
    web = start()
    topic = web.topic(2)
    load = Load(web, topic)
    load.run(3)
    for name in ("logd", "groupd", "metad"):
        load.progress()
        web.node.crash(name)
    load.progress()
    web.node.terminate("gateway")
    web.node.start("gateway")
    web.find()
    load.progress()
    load.finish()
    stored = web.get(f"/topics/{topic}/messages", limit=10_000).json["messages"]
    assert load.published <= {m["value"] for m in stored}, "acked, and gone"
    assert load.published <= load.consumed, "acked, and not delivered"
    assert load.statuses <= {200, 503, 409}, load.statuses


class Load:
    """Publishers and a consumer that go on whatever happens, as apps do: 503 and broken connections are tried again."""

    def __init__(self, web: Web, topic: str) -> None:
        self.web, self.topic = web, topic
        self.published: set[str] = set()
        self.consumed: set[str] = set()
        self.statuses: set[int] = set()
        self._ended = threading.Event()
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._problem: BaseException | None = None

    def run(self, publishers: int) -> None:
        self._threads = [beside(self._guarded, self._publish) for _ in range(publishers)]
        self._consumer = beside(self._guarded, self._consume)

    def progress(self) -> None:
        """Until more was published and consumed."""
        published, consumed = len(self.published) + 20, len(self.consumed) + 20
        until(lambda: self._problem or (len(self.published) >= published and len(self.consumed) >= consumed), "the load goes on")
        self._check()

    def finish(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        until(lambda: self._problem or self.published <= self.consumed, "all that was published is consumed")
        self._problem = self._problem or StopIteration()
        self._consumer.join()

    def _check(self) -> None:
        if self._problem:
            raise self._problem

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._problem = error

    def _ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer's JSON; None when it is to be tried again."""
        try:
            answer = self.web.ask(method, path, body, **query)
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
            return None
        self.statuses.add(answer.status)
        if answer.status != 200:
            assert answer.code and answer.status in (503, 409), answer.body
            time.sleep(0.02)
            return None
        return answer.json

    def _publish(self) -> None:
        while not self._ended.is_set():
            value = f"m{next(self._numbers)}"
            while self._ask("POST", f"/topics/{self.topic}/publish", {"value": value}) is None and not self._ended.is_set():
                pass
            if not self._ended.is_set():
                self.published.add(value)

    def _consume(self) -> None:
        while not isinstance(self._problem, StopIteration):
            found = self._ask("GET", "/groups/load/poll", topics=self.topic, mode="shared", wait=1, visibility="2s")
            receipts = [m["receipt"] for m in found["messages"]] if found else []
            if receipts:
                self.consumed.update(m["value"] for m in found["messages"])
                self._acked(receipts)

    def _acked(self, receipts: list[str]) -> None:
        try:
            self.web.post("/messages/ack", {"receipts": receipts})       # what fails comes again
        except (OSError, http.client.HTTPException):
            pass


def _waiting(web: Web) -> int:
    for line in web.get("/admin/metrics").body.decode().splitlines():
        if line.startswith("goqueue_http_polls_waiting "):
            return int(float(line.split()[1]))
    return -1


def _timed(work: Callable[[], Any]) -> float:
    begun = time.monotonic()
    assert work().status == 200
    return time.monotonic() - begun


def test_a_second_gateway_on_the_node_takes_the_others_receipts(start: Callable[..., Web], tmp_path: Path) -> None:
    """Nothing is kept in a gateway: what one hands out another one settles."""
    web = start()
    topic = web.topic()
    web.publish(topic, "v")
    [message] = web.get("/groups/g/poll", topics=topic, wait=5).json["messages"]
    other = Web(tmp_path / "other", GOQUEUE_METAD=web.node.endpoint("metad"))
    other.node.daemons = ("gateway",)
    try:
        other.start()
        assert other.post("/groups/g/ack", {"receipt": message["receipt"]}).status == 200
        assert json.loads(other.get("/groups/g/lag").body)["lag"] == 0
    finally:
        other.stop()

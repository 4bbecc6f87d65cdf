"""The REST API against real daemons, with nothing but http.client: every endpoint, and every error a caller can bring about."""

import contextlib
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gq_gateway.openapi import COMMON, WITH_KEYS, codes
from gq_gateway.problems import HttpError
from gq_gateway.routes import ROUTES
from gq_proto.errors import PeerFault
from tests.system.harness import free_port, until
from tests.system.web import Web, reply

CONFIG = "http: {maxBodyBytes: 3MiB, requestTimeout: 400ms, maxConnections: 50}"
reached: set[str] = set()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    metrics = free_port()
    made = Web(tmp_path_factory.mktemp("web"), CONFIG, GOQUEUE_METRICS_ADDR=f"127.0.0.1:{metrics}",
               GOQUEUE_LOGD_METRICS_ADDR=f"127.0.0.1:{free_port()}", GOQUEUE_GROUPD_METRICS_ADDR=f"127.0.0.1:{free_port()}")
    made.metrics = metrics  # type: ignore[attr-defined]
    try:
        yield made.start()
    finally:
        made.stop()


def code(answer: Any, status: int, wanted: str) -> None:
    """The answer is this problem; noted as reached."""
    assert (answer.status, answer.code) == (status, wanted), answer.body
    reached.add(wanted)


def drain(web: Web, topic: str, group: str, count: int) -> list[dict[str, Any]]:
    """So many messages of a topic, polled one-shot."""
    found: list[dict[str, Any]] = []
    until(lambda: found.extend(web.get(f"/groups/{group}/poll", topics=topic, wait=1).json["messages"])
          or len(found) >= count, f"{count} messages of {topic}", 10)
    return found


# -- topics and messages ----------------------------------------------------------------------

def test_a_topic_from_cradle_to_grave(web: Web) -> None:
    made = web.post("/v1/topics", {"name": "life", "partitions": 2, "config": {"retentionMs": 1000, "maxRetries": 5}})
    assert (made.status, made.json["partitions"], made.json["config"]["maxRetries"]) == (201, 2, 5)
    code(web.post("/topics", {"name": "life"}), 409, "already_exists")
    assert web.post("/topics", {"name": "life", "ifNotExists": True}).json["id"] == made.json["id"]
    assert isinstance(made.json["id"], str)
    changed = web.ask("PATCH", "/topics/life", {"partitions": 3, "config": {"dlqEnabled": False}}).json
    assert (changed["partitions"], changed["config"]["dlqEnabled"], changed["config"]["maxRetries"]) == (3, False, 5)
    code(web.ask("PATCH", "/topics/life", {"partitions": 1}), 400, "bad_request")
    web.publish("life", "a", "b")
    found = web.get("/topics/life").json
    assert sum(part["highWatermark"] - part["logStart"] for part in found["partitionDetails"]) >= 2
    assert "life" in [topic["name"] for topic in web.get("/topics").json["topics"]]
    assert "__groups" not in [topic["name"] for topic in web.get("/topics").json["topics"]]
    assert "__groups" in [topic["name"] for topic in web.get("/topics", internal="true").json["topics"]]
    assert len(web.ask("POST", "/topics/life/purge").json["partitions"]) == 3
    assert web.post("/topics/life/purge", {"partition": 1, "before": 0}).json["partitions"][0]["partition"] == 1
    assert web.get("/topics/life/messages").json["messages"] == []
    assert web.ask("DELETE", "/topics/life").status == 204
    code(web.get("/topics/life"), 404, "unknown_topic")
    code(web.ask("DELETE", "/topics/life"), 404, "unknown_topic")
    code(web.post("/topics", {"name": "naïve"}), 400, "bad_name")
    code(web.post("/topics", {"name": "__own"}), 403, "forbidden")


def test_what_was_published_is_read_again(web: Web) -> None:
    topic = web.topic(2)
    place = web.post(f"/topics/{topic}/publish",
                     {"value": "héllo", "key": "k", "partition": 1, "headers": {"a": "1"}, "priority": "high"})
    assert (place.status, place.json["partition"], place.json["topic"]) == (200, 1, topic)
    web.post(f"/topics/{topic}/publish", {"value": "/w==", "encoding": "base64", "key": None, "partition": 0})
    web.post(f"/topics/{topic}/publish", {"value": None, "partition": 0})
    web.post(f"/topics/{topic}/messages", {"value": "", "partition": 0})
    [one] = web.get(f"/topics/{topic}/partitions/1/messages").json["messages"]
    assert one == {"topic": topic, "partition": 1, "offset": place.json["offset"], "timestamp": place.json["timestamp"], "key": "k",
                   "value": "héllo", "headers": {"a": "1"}, "priority": 1}
    zero = web.get(f"/topics/{topic}/messages", partition=0).json
    assert [(m["value"], m.get("encoding")) for m in zero["messages"]] == [("/w==", "base64"), (None, None), ("", None)]
    assert len(web.get(f"/topics/{topic}/messages").json["messages"]) == 4
    last = zero["messages"][-1]["offset"]
    page = web.get(f"/topics/{topic}/messages", partition=0, offset=last, limit=1).json
    assert [m["offset"] for m in page["messages"]] == [last] and page["partitions"][0]["nextOffset"] == last + 1
    assert web.get(f"/topics/{topic}/messages", partition=0, offset=last + 1).json["messages"] == []
    assert web.get(f"/topics/{topic}/messages", from_time=time.time() + 60).json["messages"] == []
    assert len(web.get(f"/topics/{topic}/messages", from_time=1).json["messages"]) == 4
    forced = web.get(f"/topics/{topic}/messages", partition=1, encoding="base64").json["messages"][0]
    assert (forced["value"], forced["encoding"]) == ("aMOpbGxv", "base64")
    code(web.get(f"/topics/{topic}/messages", partition=0, offset=last + 100), 400, "offset_out_of_range")
    code(web.get(f"/topics/{topic}/messages", partition=7), 404, "unknown_partition")
    code(web.get(f"/topics/{topic}/messages", offset=1), 400, "bad_request")
    code(web.get("/topics/none/messages"), 404, "unknown_topic")


def test_publishing_makes_the_topic_reading_does_not(web: Web) -> None:
    assert web.post("/topics/made-on-the-way/publish", {"value": "v"}).status == 200
    assert web.get("/topics/made-on-the-way").status == 200


def test_a_batch_is_answered_item_by_item(web: Web) -> None:
    topic = web.topic()
    items: list[Any] = [{"value": "a"}, {"value": "b", "partition": 9}, {"value": "c", "headers": {"gq-x": "1"}}, {"value": 1},
                        {"value": "x" * (1 << 20 | 1)}, {"value": "d"}]
    answer = web.post(f"/topics/{topic}/batch", {"messages": items})
    assert answer.status == 207
    assert [result.get("error", {}).get("code") for result in answer.json["results"]] == [
        None, "unknown_partition", "bad_record", "bad_request", "too_large", None]
    assert [m["value"] for m in web.get(f"/topics/{topic}/messages").json["messages"]] == ["a", "d"]
    assert web.post(f"/topics/{topic}/batch", {"messages": [{"value": "e"}]}, acks="none").json["results"][0]["offset"] == -1
    assert web.post(f"/topics/{topic}/messages", {"messages": [{"value": "f"}]}, acks="all").json["published"] == 1
    code(web.post(f"/topics/{topic}/publish", {"value": "v", "headers": {"gq-x": "1"}}), 400, "bad_record")
    code(web.post(f"/topics/{topic}/publish", {"value": "x" * (1 << 20 | 1)}), 413, "too_large")
    code(web.post(f"/topics/{topic}/publish", {"value": "v", "partition": 9}), 404, "unknown_partition")


def test_old_messages_are_replayed_to_a_topic(web: Web) -> None:
    topic, copy = web.topic(), web.topic()
    web.publish(topic, *"abcdef")
    low = web.get(f"/topics/{topic}/messages").json["messages"][1]["offset"]
    answer = web.post(f"/topics/{topic}/replay", {"toTopic": copy, "from": low, "to": low + 4, "limit": 3})
    assert answer.json["messages"] == 3 and answer.json["partitions"][0]["next"] == low + 3
    assert web.post(f"/topics/{topic}/replay", {"toTopic": copy, "from": low + 3, "to": low + 4}).json["messages"] == 1
    assert [m["value"] for m in web.get(f"/topics/{copy}/messages").json["messages"]] == list("bcde")
    code(web.post(f"/topics/{topic}/replay", {}), 400, "bad_request")
    code(web.post(f"/topics/{topic}/replay", {"group": "nobody"}), 404, "unknown_group")


# -- groups ---------------------------------------------------------------------------------------

def test_a_member_from_join_to_leave(web: Web) -> None:
    topic = web.topic(2)
    web.publish(topic, *map(str, range(20)))
    joined = web.post("/groups/team/join", {"topics": [topic], "client": "me"}).json
    assert joined["heartbeatSeconds"] > 0
    found: list[Any] = []
    while len(found) < 20:
        found += web.get("/groups/team/poll", member=joined["member"], max=15, wait=5, visibility="1m").json["messages"]
    assert sorted(int(m["value"]) for m in found) == list(range(20)) and {m["delivery"] for m in found} == {1}
    assert web.get("/groups/team/poll", member=joined["member"], wait=0).json["messages"] == []
    beat = web.post("/groups/team/heartbeat", {"member": joined["member"]}).json
    assert sorted(part["partition"] for part in beat["assignment"]) == [0, 1]     # at join groupd may not know of a topic so new
    assert joined["assignment"] in ([], beat["assignment"])
    described = web.get("/groups/team").json
    assert (described["members"][0]["client"], described["members"][0]["inFlight"], described["lag"]) == ("me", 20, 20)
    receipts = [m["receipt"] for m in found]
    assert web.post("/groups/team/ack", {"receipts": receipts[:10]}).json["settled"] == 10
    assert web.post("/messages/ack", {"receipts": receipts[10:]}).json["settled"] == 10
    assert web.get("/groups/team/lag").json["lag"] == 0
    assert web.get("/groups/team/lag", topic="other").json["partitions"] == []
    code(web.ask("DELETE", "/groups/team"), 409, "group_not_empty")
    code(web.post("/groups/team/join", {"topics": [topic], "mode": "shared"}), 409, "mode_mismatch")
    assert web.post("/groups/team/leave", {"member": joined["member"]}).status == 204
    code(web.post("/groups/team/heartbeat", {"member": joined["member"]}), 409, "unknown_member")
    code(web.get("/groups/team/poll", member="nobody", wait=0), 409, "unknown_member")
    assert "team" in [group["group"] for group in web.get("/groups").json["groups"]]
    assert web.ask("DELETE", "/groups/team", force="true").status == 204
    code(web.get("/groups/team"), 404, "unknown_group")


def test_what_becomes_of_messages(web: Web) -> None:
    topic = web.topic(backoffBaseMs=1, backoffMaxMs=1)
    web.publish(topic, "ack", "nack", "reject", "extend", "release")
    by_value = {m["value"]: m["receipt"] for m in drain(web, topic, "fates", 5)}
    assert web.post("/groups/fates/ack", {"receipt": by_value["ack"]}).status == 200
    assert web.post("/groups/fates/nack", {"receipt": by_value["nack"], "delay": "1ms"}).status == 200
    assert web.post("/messages/reject", {"receipt": by_value["reject"], "reason": "no good"}).status == 200
    assert web.post("/messages/visibility", {"receipt": by_value["extend"], "timeout": "1m"}).status == 200
    assert web.post("/messages/release", {"receipt": by_value["release"]}).status == 200
    again = {m["value"]: m for m in drain(web, topic, "fates", 2)}
    assert {value: m["delivery"] for value, m in again.items()} == {"nack": 2, "release": 1}
    code(web.post("/messages/ack", {"receipt": by_value["nack"]}), 409, "stale_receipt")
    code(web.post("/messages/ack", {"receipt": "nonsense"}), 400, "bad_request")
    web.post("/groups/other/join", {"topics": [topic]})
    code(web.post("/groups/other/ack", {"receipt": again["nack"]["receipt"]}), 400, "bad_request")
    many = web.post("/messages/ack", {"receipts": [again["nack"]["receipt"], by_value["nack"]]})
    assert (many.status, [result["ok"] for result in many.json["results"]]) == (207, [True, False])


def test_a_group_is_moved_rewound_and_paused(web: Web) -> None:
    topic = web.topic()
    web.publish(topic, *"abcd")
    first = web.get(f"/topics/{topic}/messages").json["messages"][0]["offset"]
    code(web.post("/groups/moved/pause", {}), 404, "unknown_group")
    assert web.post("/groups/moved/commit", {"offsets": [{"topic": topic, "partition": 0, "offset": first + 2}]}).status == 200
    assert [m["value"] for m in drain(web, topic, "moved", 2)] == ["c", "d"]
    reset = web.post("/groups/moved/reset", {"topic": topic, "to": first + 1}).json["partitions"][0]
    assert (reset["offset"], reset["again"]) == (first + 1, 1)
    assert [m["value"] for m in drain(web, topic, "moved", 3)] == ["b", "c", "d"]
    assert web.post(f"/topics/{topic}/replay", {"group": "moved", "from": first, "to": first + 1}).json["messages"] == 1
    assert [m["value"] for m in drain(web, topic, "moved", 1)] == ["a"]
    assert web.post("/groups/moved/reset", {"topic": topic, "to": "latest"}).status == 200
    assert web.get("/groups/moved/lag").json["lag"] == 0
    assert web.ask("POST", "/groups/moved/pause").status == 204 and web.get("/groups/moved").json["paused"] is True
    web.publish(topic, "e")
    assert web.get("/groups/moved/poll", topics=topic, wait=0).json == {"messages": [], "paused": True}
    assert web.ask("POST", "/groups/moved/resume").status == 204
    assert [m["value"] for m in drain(web, topic, "moved", 1)] == ["e"]
    code(web.post("/groups/moved/reset", {"topic": topic, "to": "soon"}), 400, "bad_request")


# -- delays and dead letters -----------------------------------------------------------------------

def test_a_delayed_message_waits_and_may_be_cancelled(web: Web) -> None:
    topic = web.topic()
    [one, two] = [web.post(f"/topics/{topic}/publish", {"value": str(i), "key": f"k{i}", "delay": "1h"}).json for i in range(2)]
    until(lambda: len(web.get(f"/topics/{topic}/delayed").json["messages"]) == 2, "both are known to wait")
    waiting = web.get(f"/topics/{topic}/delayed", limit=1).json
    assert [(m["offset"], m["key"]) for m in waiting["messages"]] == [(one["offset"], "k0")] and waiting["next"]
    rest = web.get(f"/topics/{topic}/delayed", after=waiting["next"]).json
    assert [m["offset"] for m in rest["messages"]] == [two["offset"]] and rest["next"] is None
    assert abs(rest["messages"][0]["due"] / 1e6 - time.time() - 3600) < 60
    path = f"/topics/{topic}/delayed/{one['partition']}/{one['offset']}"
    assert [web.ask("DELETE", path).json["fate"] for _ in range(2)] == ["cancelled", "already_cancelled"]
    code(web.ask("DELETE", f"/topics/{topic}/delayed/0/999"), 404, "not_found")
    stats = web.get("/delay/stats", topic=topic).json
    assert (stats["scheduled"], stats["partitions"][0]["cancelled"]) == (1, 1)
    assert web.get("/delay/stats").json["scheduled"] >= 1
    soon = web.post(f"/topics/{topic}/publish", {"value": "soon", "deliverAt": time.time() + 0.1}).json
    assert [m["offset"] for m in drain(web, topic, "late", 1)] == [soon["offset"]]


def test_dead_letters_are_listed_redriven_and_purged(web: Web) -> None:
    topic = web.topic()
    assert web.get(f"/topics/{topic}/dlq").json == {"letters": [], "more": False}
    web.publish(topic, *"abcd")
    for m in drain(web, topic, "strict", 4):
        assert web.post("/messages/reject", {"receipt": m["receipt"], "reason": f"bad {m['value']}"}).status == 200
    until(lambda: len(web.get(f"/topics/{topic}/dlq").json["letters"]) == 4, "four dead letters")
    [letter] = web.get(f"/topics/{topic}/dlq", reason="bad b", group="strict").json["letters"]
    assert (letter["originTopic"], letter["group"], letter["message"]["value"]) == (topic, "strict", "b")
    page = web.get(f"/topics/{topic}/dlq", limit=3).json
    assert page["more"] is True
    rest = web.get(f"/topics/{topic}/dlq", after=f"0:{page['letters'][-1]['offset']}").json
    assert [one["message"]["value"] for one in page["letters"] + rest["letters"]] == list("abcd")
    stats = web.get("/reliability/stats", group="strict").json["groups"]
    assert [(row["topic"], row["deadLetters"]) for row in stats] == [(topic, 4)]
    assert web.post(f"/topics/{topic}/dlq/redrive", {"partition": 0, "offsets": [letter["offset"]]}).json["redriven"] == 1
    assert [m["value"] for m in drain(web, topic, "strict", 1)] == ["b"]
    assert web.post(f"/topics/{topic}/dlq/redrive", {"reason": "bad c", "publish": True}).json["published"] == 1
    assert web.get(f"/topics/{topic}/messages").json["messages"][-1]["value"] == "c"
    assert web.ask("DELETE", f"/topics/{topic}/dlq", reason="bad a").json == {"purged": 1, "more": False}
    assert web.ask("POST", f"/topics/{topic}/dlq/redrive").json == {"redriven": 1, "published": 0, "more": False}
    assert web.get(f"/topics/{topic}/dlq").json["letters"] == []
    code(web.get("/topics/none/dlq"), 404, "unknown_topic")


def test_priorities_by_group_and_partition(web: Web) -> None:
    topic = web.topic()
    web.post(f"/topics/{topic}/batch", {"messages": [{"value": "a", "priority": "critical"}, {"value": "b", "priority": "low"},
                                                     {"value": "c", "priority": "low"}]})
    first, *_ = drain(web, topic, "sorted", 3)
    assert first["value"] == "a"
    web.post("/messages/ack", {"receipt": first["receipt"]})
    rows = {row["priority"]: row for row in web.get("/priority/stats", group="sorted", topic=topic).json["lanes"]}
    assert rows.keys() == {"critical", "low"} and rows["critical"]["lastServedSecondsAgo"] >= 0
    assert [(row["inFlight"], row["dequeued"]) for row in (rows["critical"], rows["low"])] == [(0, 1), (2, 0)]
    code(web.get("/priority/stats", group="nobody-here"), 404, "unknown_group")


# -- the node ---------------------------------------------------------------------------------------

def test_what_operators_ask(web: Web) -> None:
    assert web.get("/admin/health").json == {"live": True, "ready": True, "detail": ""}
    cluster = web.get("/v1/admin/cluster").json
    assert {"metad", "logd", "groupd", "delayd", "gateway"} == {daemon["daemon"] for daemon in cluster["daemons"]}
    assert all(daemon["ready"] and daemon["pid"] for daemon in cluster["daemons"])
    web.publish(web.topic(), "counted")
    for text in (web.get("/v1/admin/metrics").body.decode(),
                 web.ask("GET", "/metrics", port=web.metrics).body.decode()):  # type: ignore[attr-defined]
        assert 'goqueue_uptime_seconds{daemon="gateway"}' in text and 'goqueue_uptime_seconds{daemon="logd"}' in text
        assert "goqueue_messages_produced_total{" in text and "goqueue_http_requests_total{" in text
        assert text.count("# TYPE goqueue_uptime_seconds ") == 1
    assert web.ask("GET", "/ready", port=web.metrics).status == 200  # type: ignore[attr-defined]
    assert web.get("/openapi.json").json["openapi"] == "3.1.0"
    assert b"<!doctype html>" in web.get("/docs").body


# -- what is wrong with a request ---------------------------------------------------------------------

def test_what_http_itself_refuses(web: Web) -> None:
    code(web.get("/nothing"), 404, "no_such_path")
    code(web.ask("PUT", "/topics", {}), 405, "method_not_allowed")
    code(web.ask("POST", "/topics/t/publish", b"value=1", headers={"Content-Type": "text/plain"}), 415, "unsupported_media_type")
    code(web.post("/topics/t/publish", b"{"), 400, "bad_request")
    code(web.post("/topics/t/batch", b" " * (3 << 20 | 1)), 413, "too_large")
    code(web.ask("GET", "/topics", headers={"Sec-Fetch-Site": "cross-site"}), 403, "cross_site")
    code(reply(web.raw(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 40_000 + b"\r\n", b"Y: " + b"y" * 40_000)), 431, "headers_too_large")
    code(reply(web.raw(b"hello\r\n\r\n")), 400, "malformed_request")
    code(reply(web.raw(b"GET /top")), 408, "request_timeout")
    code(reply(web.raw(b"POST /topics/t/publish HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")), 408, "request_timeout")
    chunked = b"POST /topics/t/publish HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    code(reply(web.raw(chunked, b"300001\r\n", b" " * 0x300001, b"\r\n0\r\n\r\n")), 413, "too_large")


def test_more_callers_than_allowed_are_turned_away_and_the_others_served(web: Web) -> None:
    idle = [web.raw() for _ in range(50)]
    try:
        code(reply(web.raw()), 503, "too_many_connections")
    finally:
        for line in idle:
            line.close()
    until(lambda: web.get("/admin/health").status == 200, "callers are served again")


def test_nobody_who_dawdles_harms_the_others(web: Web) -> None:
    topic = web.topic()
    slow = [web.raw(b"POST /topics/x/publish HTTP/1.1\r\nContent-Le") for _ in range(20)]
    begun = time.monotonic()
    assert all(web.post(f"/topics/{topic}/publish", {"value": "v"}).status == 200 for _ in range(20))
    assert time.monotonic() - begun < 3
    for line in slow:
        code(reply(line, close=False), 408, "request_timeout")
        assert line.recv(1) == b"", "and the connection ends"
        line.close()


def test_whatever_comes_it_lives(web: Web) -> None:
    """Requests cut, joined, with bytes changed: each is answered or hung up on, and none does harm."""
    topic, seed = web.topic(), time.time_ns()
    print("seed", seed)
    chance = random.Random(seed)
    good = [b"POST /topics/%b/publish HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
            b'{"value":"v"}',
            b"GET /groups/fuzz/poll?topics=%b&wait=0 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"POST /topics/%b/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            b'1c\r\n{"messages":[{"value":"v"}]}\r\n0\r\n\r\n',
            b"GET /topics/%b HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"]
    for _ in range(400):
        data = bytearray(b"".join(chance.choices(good, k=chance.choice((1, 1, 2, 3)))).replace(b"%b", topic.encode()))
        for _ in range(chance.choice((0, 1, 1, 3))):
            at = chance.randrange(len(data) + 1)
            data[at:at + chance.choice((0, 1, 20))] = chance.randbytes(chance.choice((0, 1, 5)))
        cut = chance.randrange(len(data) + 1)
        with contextlib.suppress(OSError), web.raw(bytes(data[:cut]), bytes(data[cut:]), timeout=2) as line:
            if chance.random() < 0.2:
                line.recv(65536)
    assert web.node.alive("gateway") and web.get("/admin/health").json["ready"] is True
    assert not re.search('"level":"(error|critical)"', (web.node.out / "gateway.log").read_text())


def test_every_code_that_a_caller_can_bring_about_was_reached() -> None:
    """The rest is the node's: see test_gateway_failures.py and the unit tests, or needs keys."""
    theirs = {kind.name for kind in (*COMMON, *WITH_KEYS) if issubclass(kind, PeerFault) or kind in WITH_KEYS} | {"closed"}
    documented = set(codes(ROUTES))
    unbound = {"no_such_path", "method_not_allowed"}         # no route's own: there is none
    assert {kind.name for kind in HttpError.__subclasses__()} <= documented | unbound
    assert (documented | unbound) - theirs - reached == set()

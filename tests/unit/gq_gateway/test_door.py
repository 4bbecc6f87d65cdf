"""Keys at the gateway's two doors: who gets in, as whom, and what those who do not are told."""

import itertools
import logging
from typing import Any

import grpc
import pytest

from gq_gateway import goqueue_pb2 as pb
from gq_gateway.counts import Counts
from gq_gateway.door import EVERYTHING, Door, listening, open_door
from gq_gateway.routes import ROUTES
from gq_gateway.rpc import guard
from gq_gateway.rpc.service import DESCRIPTOR, Service
from gq_gateway.table import ADMIN, ANYONE, Route
from gq_proto import keys
from gq_proto import messages as m
from gq_proto.errors import BadConfig, Forbidden, Unauthorized
from gq_proto.messages import KeyMeta, Kind
from gq_run.options import Config
from gq_run.security import Verifier
from gq_run.settings import SHARED
from tests.unit.gq_gateway.grpc_fakes import Context, Gateway, receipt_of, run
from tests.unit.gq_gateway.rig import Answer, Rig

SALT = b"s" * 16
SCOPES = {"shop": "publish:orders.*", "billing": "consume:orders.*:billing", "ops": "all", "half": "admin:orders.*",
          "watch": "metrics"}
NUMBERS = {name: number for number, name in enumerate(SCOPES, 1)}
VALUES = {"topic": "orders.eu", "group": "billing", "partition": "1", "offset": "5"}


def token(name: str) -> str:
    return keys.make_token(f"{NUMBERS.get(name, 99):012x}", 2**200 + NUMBERS.get(name, 99))


def verifier(*names: str, wall_us: int = 1_000, expires_us: int = 0) -> Verifier:
    """That knows these keys (all of SCOPES, when none is named)."""
    made = Verifier(lambda: wall_us)
    made.take(m.MetadataReply(1, [], [], [], keys=[
        KeyMeta(f"{NUMBERS[name]:012x}", name, keys.parse_scopes(SCOPES[name]), 0, expires_us, salt=SALT,
                hash=keys.hash_of(token(name), SALT)) for name in names or SCOPES]))
    return made


def guarded(**more: Any) -> Door:
    return Door(("http", "grpc"), verifier(), **more)


class Request:
    def __init__(self, key: str = "", listener: str = "http", **headers: str) -> None:
        self.listener = listener
        self._headers = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        if key:
            self._headers["authorization"] = f"Bearer {token(key)}"

    def get_header(self, name: str) -> str | None:
        return self._headers.get(name.lower())


# -- the door --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("key", "verb", "topic", "group", "allowed"), [
    ("shop", "publish", "orders.eu", "", True), ("shop", "publish", "secret", "", False),
    ("shop", "consume", "orders.eu", "", False),
    ("billing", "consume", "orders.eu", "billing", True), ("billing", "consume", "orders.eu", "others", False),
    ("billing", "consume", "secret", "billing", False), ("billing", "consume", "", "billing", True),
    ("billing", "consume", "", "others", False), ("billing", "publish", "orders.eu", "", False),
    ("shop", "any", "", "", True), ("shop", "any", "orders.eu", "", True), ("shop", "any", "secret", "", False),
    ("ops", "admin", "", "", True), ("half", "admin", "orders.eu", "", True), ("half", "admin", "", "", False),
    ("shop", "admin", "", "", False), ("ops", "publish", "__groups", "", False), ("shop", "", "", "", True)])
def test_a_key_does_what_it_is_for(key: str, verb: str, topic: str, group: str, allowed: bool) -> None:
    door = guarded()
    if allowed:
        assert door.admit(Request(key), verb, topic, group).name == (key if verb else EVERYTHING.name)
    else:
        with pytest.raises(Forbidden) as error:
            door.admit(Request(key), verb, topic, group)
        assert "orders" not in error.value.message and "secret" not in error.value.message
    assert (door.forbidden, door.unauthorized) == (int(not allowed), 0)


def test_a_key_comes_in_two_ways() -> None:
    door, good = guarded(), token("shop")
    for headers in ({"authorization": f"Bearer {good}"}, {"authorization": f"bearer  {good} "}, {"x_api_key": good},
                    {"authorization": "Basic eDp5", "x_api_key": good}):
        assert door.admit(Request(**headers), "publish", "orders.eu", "").name == "shop"
    for headers in ({}, {"authorization": good}, {"authorization": "Bearer "}, {"authorization": f"Basic {good}"},
                    {"authorization": "Bearer nonsense", "x_api_key": good}, {"x_api_key": token("nobody")},
                    {"x_api_key": good[:-1] + ("A" if good[-1] != "A" else "B")}, {"x_api_key": "\udcff"}):
        with pytest.raises(Unauthorized) as error:
            door.admit(Request(**headers), "publish", "orders.eu", "")
        assert good not in error.value.message
    assert door.unauthorized == 8
    assert (door.unauthorized, door.forbidden) == (8, 0)


def test_a_trusted_listener_asks_nobody() -> None:
    door = Door(["grpc"], verifier())
    assert door.admit(Request(listener="http"), "admin", "", "") is EVERYTHING
    with pytest.raises(Unauthorized):
        door.admit(Request(listener="grpc"), "admin", "", "")


def test_keys_end_and_are_revoked() -> None:
    door = Door(["http"], verifier(wall_us=1_000, expires_us=1_001))
    assert door.admit(Request("shop"), "publish", "orders.eu", "")
    door.verifier.take(m.MetadataReply(2, [], [], [], keys=[]))
    with pytest.raises(Unauthorized):
        door.admit(Request("shop"), "publish", "orders.eu", "")
    with pytest.raises(Unauthorized):
        Door(["http"], verifier(wall_us=1_001, expires_us=1_001)).admit(Request("shop"), "publish", "orders.eu", "")


def test_the_log_is_told_now_and_then_and_no_key(caplog: pytest.LogCaptureFixture) -> None:
    clock = itertools.count(0, 4)
    log = logging.getLogger("test_door")
    door = guarded(log=log, now=lambda: float(next(clock)))
    with caplog.at_level(logging.DEBUG, "test_door"):
        for _ in range(6):
            with pytest.raises(Unauthorized):
                door.admit(Request(x_api_key=token("nobody")), "any", "", "")
    assert 1 < len(caplog.records) < 6
    assert token("nobody") not in str([record.__dict__ for record in caplog.records])


# -- which listeners -------------------------------------------------------------------------------

def config(**given: Any) -> Config:
    return Config(SHARED, {name.replace("_", "."): value for name, value in given.items()})


@pytest.mark.parametrize(("given", "names"), [
    ({}, set()), ({"http_address": "0.0.0.0:8080"}, {"http"}), ({"grpc_address": ":9000"}, {"grpc"}),
    ({"http_address": "10.0.0.1:80", "grpc_address": "[::]:9000"}, {"http", "grpc"}),
    ({"security_require": "tcp"}, {"http", "grpc", "metrics"}), ({"metrics_listeners_node": ":9090"}, {"metrics"}),
    ({"metrics_listeners_node": ":9090", "metrics_open": True}, set()),
    ({"metrics_listeners_node": ":9090", "metrics_enabled": False}, set()),
    ({"http_address": "0.0.0.0:8080", "security_insecure": True}, set()), ({"http_address": "off", "grpc_address": ""}, set())])
def test_public_listeners_are_guarded(given: dict[str, Any], names: set[str]) -> None:
    assert set(open_door(config(**given), logging.getLogger("test_door"))._guarded) == names


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(BadConfig):
        open_door(config(http_address="nowhere"), logging.getLogger("test_door"))


def test_what_is_open_or_in_clear_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "test_door"):
        log = logging.getLogger("test_door")
        open_door(config(http_address="127.0.0.1:80", security_require="tcp"), log)
        open_door(config(metrics_listeners_node=":80", metrics_open=True), log)
        open_door(Config(SHARED, {"http.address": ":80", "http.tls.certFile": "x"}), log)
        assert not caplog.records
        open_door(config(http_address=":80"), log)
        open_door(config(http_address=":80", security_insecure=True), log)
        open_door(config(metrics_listeners_node=":80"), log)
    assert [any(word in record.message for word in ("in clear", "open to everyone")) for record in caplog.records] == [True] * 3


def test_a_public_listener_without_any_key_is_an_error_once_that_is_known() -> None:
    for option in ("http_address", "grpc_address", "metrics_listeners_node"):
        door = Door(["http"])
        door.take(m.MetadataReply(1, [], [], []), config(**{option: ":80"}))         # nothing said of keys yet
        with pytest.raises(BadConfig, match="gqctl key create"):
            door.take(m.MetadataReply(1, [], [], [], keys=[]), config(**{option: ":80"}))
        door.take(m.MetadataReply(1, [], [], [], keys=[]), config(**{option: ":80"}, security_insecure=True))
        door.take(m.MetadataReply(1, [], [], [], keys=[]), config())
        assert listening(config(http_address="off")).keys() == {"grpc", "metrics"}


def test_metrics_are_for_who_may_read_them_and_who_owns_all() -> None:
    door = guarded()
    for name, let_in in (("watch", True), ("ops", True), ("half", False), ("shop", False)):
        if let_in:
            door.admit(Request(x_api_key=token(name)), "metrics", "", "")
        else:
            with pytest.raises(Forbidden):
                door.admit(Request(x_api_key=token(name)), "metrics", "", "")
    watch = door.verifier.access(token("watch"))
    assert not watch.sees("orders.eu") and not watch.sees_group("billing") and not watch.may("any")


# -- HTTP ------------------------------------------------------------------------------------------

def ask(rig: Rig, method: str, path: str, key: str = "", body: Any = None, query: str = "") -> Answer:
    return rig.ask(method, path, body, query, {"authorization": f"Bearer {token(key)}"} if key else {})


def guarded_rig() -> Rig:
    rig = Rig()
    rig.door = guarded()
    return rig


@pytest.mark.parametrize("route", [route for route in ROUTES if route.verb != ANYONE],
                         ids=lambda route: f"{route.method} {route.path}")
def test_no_route_does_anything_without_a_key_or_for_a_key_without_the_right(route: Route) -> None:
    path = route.path.format(**VALUES)
    for key, status, code in (("", 401, "unauthorized"), ("nobody", 401, "unauthorized")):
        rig = guarded_rig()
        answer = ask(rig, route.method, path, key, b"no json" if route.body else None)
        assert (answer.status, answer.code, answer.headers["www-authenticate"]) == (status, code, "Bearer")
        assert rig.client.asked == [] and rig.producer.sent == []
    if route.resource or route.verb == ADMIN:
        rig = guarded_rig()
        answer = ask(rig, route.method, path.replace("orders.eu", "secret").replace("billing", "others"), "shop",
                     b"no json" if route.body else None)
        assert (answer.status, answer.code) == (403, "forbidden")
        assert rig.client.asked == [] and rig.producer.sent == []


@pytest.mark.parametrize("path", [route.path for route in ROUTES if route.verb == ANYONE])
def test_health_and_documents_are_open(path: str) -> None:
    assert guarded_rig().ask("GET", path).status == 200


def test_before_the_keys_are_known_a_key_is_neither_good_nor_bad() -> None:
    rig = Rig()
    rig.door = Door(["http"])
    answer = ask(rig, "GET", "/topics", "shop")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "unavailable", "1")


def test_the_right_key_publishes() -> None:
    rig = guarded_rig()
    assert ask(rig, "POST", "/v1/topics/orders.eu/publish", "shop", {"value": "x"}).status == 200
    assert len(rig.producer.sent) == 1


def test_a_body_names_topics_and_groups_too() -> None:
    for path, body in (("/topics", {"name": "new"}), ("/groups/billing/join", {"topics": ["orders.eu", "secret"]}),
                       ("/groups/billing/commit", {"offsets": [{"topic": "secret", "partition": 0, "offset": 1}]}),
                       ("/groups/billing/ack", {"receipt": receipt_of(1, "secret").text()}),
                       ("/messages/ack", {"receipts": [receipt_of(1, "orders.eu").text(), receipt_of(1, "secret").text()]})):
        rig = guarded_rig()
        assert ask(rig, "POST", path, "billing", body).code == "forbidden", path
        assert rig.client.asked == []
    assert ask(guarded_rig(), "GET", "/groups/billing/poll", "billing", query="topics=secret").code == "forbidden"


def test_internal_groups_are_listed_when_asked_for() -> None:
    rig = Rig()
    rig.client.answers["groups"] = [m.GroupSummary("__dlq", "partitioned", 0, ["t.dlq"], False, 0)]
    assert rig.ask("GET", "/groups").json["groups"] == []
    assert len(rig.ask("GET", "/groups", query="internal=true").json["groups"]) == 1


def test_lists_show_what_the_key_has_to_do_with() -> None:
    rig = guarded_rig()
    rig.client.answers["topics"] = [rig.client.add_topic("orders.eu"), rig.client.add_topic("secret", id=8)]
    rig.client.answers["groups"] = [m.GroupSummary("billing", "partitioned", 1, ["orders.eu", "secret"], False, 3),
                                    m.GroupSummary("others", "partitioned", 1, ["orders.eu"], False, 3),
                                    m.GroupSummary("__dlq", "partitioned", 0, ["orders.eu.dlq"], False, 0)]
    assert [topic["name"] for topic in ask(rig, "GET", "/topics", "shop").json["topics"]] == ["orders.eu"]
    assert len(ask(rig, "GET", "/topics", "ops").json["topics"]) == 2
    assert [(group["group"], group["topics"]) for group in ask(rig, "GET", "/groups", "billing").json["groups"]] == \
        [("billing", ["orders.eu"])]
    assert ask(rig, "GET", "/groups", "shop").json == {"groups": []}
    assert len(ask(rig, "GET", "/groups", "ops", query="internal=true").json["groups"]) == 2


@pytest.mark.parametrize("path", ["/delay/stats", "/priority/stats", "/reliability/stats"])
def test_figures_of_what_a_key_may_not_see_are_refused_whether_it_is_there_or_not(path: str) -> None:
    for topic in ("secret", "nothing"):
        rig = guarded_rig()
        rig.client.add_topic("secret")
        assert ask(rig, "GET", path, "shop", query=f"topic={topic}").code == "forbidden"
        assert rig.client.asked == []


# -- gRPC ------------------------------------------------------------------------------------------

def requests(topic: str, group: str) -> dict[str, Any]:
    """One of each method that a key for `topic` and `group` is needed for."""
    receipts = [receipt_of(1, topic).text()]
    return {
        "CreateTopic": pb.CreateTopicRequest(name=topic), "DeleteTopic": pb.DeleteTopicRequest(name=topic),
        "ListTopics": pb.ListTopicsRequest(),
        "Publish": pb.PublishRequest(message=pb.Draft(topic=topic)), "PublishStream": None, "Settle": None,
        "Subscribe": pb.SubscribeRequest(group=group, topics=[topic]),
        "Ack": pb.AckRequest(receipts=receipts), "Nack": pb.NackRequest(receipts=receipts),
        "Reject": pb.RejectRequest(receipts=receipts), "Extend": pb.ExtendRequest(receipts=receipts, for_ms=1000),
        "Commit": pb.CommitRequest(group=group, positions=[pb.Position(topic=topic, partition=0, offset=1)]),
        "Join": pb.JoinRequest(group=group, topics=[topic]), "Poll": pb.PollRequest(group=group, member="m"),
        "Heartbeat": pb.HeartbeatRequest(group=group, member="m"), "Leave": pb.LeaveRequest(group=group, member="m"),
    }


async def refused(name: str, request: Any, key: str) -> tuple[Any, Gateway]:
    """The status of a call to a guarded gateway."""
    gateway = Gateway()
    gateway.door = guarded()
    method = DESCRIPTOR.methods_by_name[name]
    streams = method.client_streaming or method.server_streaming
    wrap: Any = guard.stream if streams else guard.unary
    context = Context(metadata=(("authorization", f"Bearer {token(key)}"),) if key else ())
    with pytest.raises(grpc.aio.AbortError):
        await wrap(Service(gateway)._methods[name], Counts())(request, context)  # type: ignore[arg-type]
    return context.aborted[0], gateway


@pytest.mark.parametrize("name", [method.name for method in DESCRIPTOR.methods])
def test_no_method_does_anything_without_a_key_or_for_a_key_without_the_right(name: str) -> None:
    async def play() -> None:
        for key, topic, group, status in (("", "orders.eu", "billing", grpc.StatusCode.UNAUTHENTICATED),
                                          ("nobody", "orders.eu", "billing", grpc.StatusCode.UNAUTHENTICATED),
                                          ("half", "secret", "others", grpc.StatusCode.PERMISSION_DENIED)):
            if (name, key) == ("ListTopics", "half"):
                continue                            # any key may; it is shown what it has to do with
            found, gateway = await refused(name, requests(topic, group)[name], key)
            assert found is status, key
            assert gateway.client.asked == [] and gateway.client.settled == []

    run(play())


def test_the_right_key_is_let_in() -> None:
    async def play() -> None:
        gateway = Gateway()
        gateway.door = guarded()
        gateway.client.answer = lambda kind, body: m.HeartbeatReply(3, [])
        context = Context(metadata=(("x-api-key", token("billing")),))
        request = requests("orders.eu", "billing")["Heartbeat"]
        reply = await guard.unary(Service(gateway)._methods["Heartbeat"], Counts())(request, context)  # type: ignore[arg-type]
        assert reply.generation == 3 and [kind for kind, _ in gateway.client.asked] == [Kind.HEARTBEAT]

    run(play())

"""The frame around handlers: routing with and without /v1, keys first, bodies, problems, what a bug looks like from outside."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from gq_gateway.openapi import errors_of
from gq_gateway.problems import HttpError, status_of
from gq_gateway.routes import ROUTES
from gq_gateway.table import ANYONE, Route
from gq_proto import errors as e
from tests.unit.gq_gateway.rig import BODY_MAX, Rig

VALUES = {"topic": "orders", "group": "billing", "partition": "1", "offset": "5"}


def path_of(route: Route) -> str:
    return route.path.format(**VALUES)


def raising(error: BaseException) -> Any:
    async def handler(call: Any) -> None:
        raise error
    return handler


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_every_path_answers_with_and_without_the_prefix(prefix: str, slash: str) -> None:
    rig = Rig()
    rig.client.answers["topics"] = []
    assert rig.ask("GET", prefix + "/topics" + slash).json == {"topics": []}
    assert rig.taken == 1


def test_what_no_route_answers() -> None:
    rig = Rig()
    assert (rig.ask("GET", "/nothing").status, rig.ask("GET", "/nothing").code) == (404, "no_such_path")
    answer = rig.ask("PUT", "/topics")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert {"GET", "POST"} <= set(answer.headers["allow"].split(", "))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_documented_error_of_every_route_comes_out_as_documented(route: Route) -> None:
    for kind in errors_of(route):
        rig = Rig([replace(route, handler=raising(kind("why")), raw=True, body=None, query=ROUTES[2].query)])
        answer = rig.ask(route.method, path_of(route))
        assert (answer.status, answer.code) == (status_of(kind("why")), kind.name)
        assert ("retry-after" in answer.headers) == answer.json["retriable"]
        assert ("www-authenticate" in answer.headers) == (answer.status == 401)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.verb != ANYONE],
                         ids=lambda route: f"{route.method} {route.path}")
def test_keys_come_first(route: Route) -> None:
    """Before anything is looked at or asked: a body that is none does not matter, nor whether the topic is there."""
    rig = Rig([route])
    rig.verdict = e.Forbidden("no")
    answer = rig.ask(route.method, path_of(route), b"no json" if route.body else None, "x=y")
    assert (answer.status, answer.code) == (403, "forbidden")
    assert rig.authorized == [(route.verb, VALUES.get(route.resource, ""))]
    assert rig.client.asked == []


@pytest.mark.parametrize("path", ["/admin/health", "/openapi.json", "/docs"])
def test_what_is_open_to_everyone(path: str) -> None:
    rig = Rig()
    assert rig.ask("GET", path).status == 200
    assert rig.authorized == [(ANYONE, "")]


def test_what_a_body_names_is_asked_for_too() -> None:
    for method, path, body, wanted in [
            ("POST", "/topics", {"name": "new"}, ("admin", "new")),
            ("POST", "/groups/g/join", {"topics": ["a"]}, ("consume", "a")),
            ("POST", "/groups/g/commit", {"offsets": [{"topic": "a", "partition": 0, "offset": 1}]}, ("consume", "a")),
            ("POST", "/groups/g/reset", {"topic": "a", "to": 0}, ("consume", "a")),
            ("POST", "/messages/ack", {"receipt": "a:0:0:1:AAAAAAABAAZhU957F2GkTDZl"}, ("consume", "a"))]:
        rig = Rig()
        rig.client.answers = dict.fromkeys(("refresh", 41, 70, 76, 77, "settle"), e.Busy("enough"))
        rig.client.add_topic("a")
        rig.client.answers[40] = rig.client.answers[19] = e.Busy("enough")
        rig.ask(method, path, body)
        assert wanted in rig.authorized, path


@pytest.mark.parametrize(("headers", "status"), [({"content-type": "text/plain"}, 415), ({"content-type": ""}, 415),
                                                 ({"content-type": "application/json; charset=utf-8"}, 200),
                                                 ({"content-type": "application/vnd.x+json"}, 200)])
def test_a_body_is_json_by_its_content_type(headers: dict[str, str], status: int) -> None:
    assert Rig().ask("POST", "/topics/t/publish", {"value": "v"}, headers=headers).status == status


def test_a_body_has_a_bound_however_it_comes() -> None:
    rig = Rig()
    exact = b'{"value":"' + b"v" * (BODY_MAX - 12) + b'"}'
    assert len(exact) == BODY_MAX and rig.ask("POST", "/topics/t/publish", exact).status == 200
    answer = rig.ask("POST", "/topics/t/publish", exact + b" ")
    assert (answer.status, answer.code, answer.headers["connection"]) == (413, "too_large", "close")
    pieces = [exact[:100], exact[100:], b" " * 10]
    assert rig.ask("POST", "/topics/t/publish", chunks=pieces).status == 413
    assert rig.ask("POST", "/topics/t/publish", chunks=[exact[:7], exact[7:]]).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"[" * 2000])
def test_a_bad_body_is_the_callers_fault(body: bytes) -> None:
    answer = Rig().ask("POST", "/topics/t/publish", body)
    assert (answer.status, answer.code) == (400, "bad_request")


@pytest.mark.parametrize(("query", "field"), [("acks=maybe", "acks"), ("acks=leader&acks=all", "acks"), ("ack=all", "ack"),
                                              ("acks", "acks")])
def test_a_bad_parameter_is_named(query: str, field: str) -> None:
    answer = Rig().ask("POST", "/topics/t/publish", {"value": "v"}, query)
    assert (answer.status, answer.json["field"]) == (400, field)


def test_a_bad_name_in_the_path_says_what_is_wrong_with_it() -> None:
    answer = Rig().ask("POST", "/topics/jöbs/publish", {"value": "v"})
    assert (answer.code, answer.json["field"]) == ("bad_name", "topic")
    assert "A-Z" in answer.json["detail"]
    assert Rig().ask("GET", "/topics/t/partitions/x/messages").json["field"] == "partition"
    assert Rig().ask("GET", f"/topics/t/partitions/{'9' * 30}/messages").json["field"] == "partition"


def test_a_bug_is_logged_and_told_as_internal_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig([replace(ROUTES[1], handler=raising(ZeroDivisionError("a secret")))])
    with caplog.at_level(logging.ERROR):
        answer = rig.ask("GET", "/topics")
    assert (answer.status, answer.code) == (500, "internal")
    assert b"secret" not in answer.body and b"Traceback" not in answer.body
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(("method", "headers", "status"), [
    ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
    ("POST", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
    ("GET", {"sec-fetch-site": "same-origin"}, 200)])
def test_pages_of_other_sites_may_not_use_it(method: str, headers: dict[str, str], status: int) -> None:
    rig = Rig()
    rig.client.answers["topics"] = []
    assert rig.ask(method, "/topics", {"name": "x"} if method == "POST" else None, headers=headers).status == status


def test_health_says_when_it_is_not_ready() -> None:
    rig = Rig()
    assert rig.ask("GET", "/admin/health").json["ready"] is True
    rig.is_ready = False
    answer = rig.ask("GET", "/admin/health")
    assert (answer.status, answer.json["live"], answer.json["ready"]) == (503, True, False)


def test_requests_are_counted_by_route_and_status() -> None:
    rig = Rig()
    rig.ask("GET", "/topics/jöbs")
    counted = {labels: value for metric, labels, value in rig.gateway.samples() if metric.name == "goqueue_http_requests_total"}
    assert counted == {("GET", "/topics/{topic}", "400"): 1}


def test_errors_of_http_have_a_status_of_their_own() -> None:
    assert all(kind.status in range(400, 600) and kind.name != "error" for kind in HttpError.__subclasses__())

"""The document: whole, consistent with the table, with every code; and the page made of it."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from gq_gateway.docs import render
from gq_gateway.openapi import codes, document
from gq_gateway.routes import ROUTES
from gq_gateway.table import ANYONE, Route
from tests.unit.gq_gateway.rig import Rig

DOCUMENT = document(ROUTES, "1.2.3")
SPECIFIED = """
POST /topics; GET /topics; GET /topics/{topic}; DELETE /topics/{topic}; PATCH /topics/{topic}; POST /topics/{topic}/publish
POST /topics/{topic}/messages; POST /topics/{topic}/batch; GET /topics/{topic}/messages
GET /topics/{topic}/partitions/{partition}/messages; POST /groups/{group}/join; POST /groups/{group}/leave
POST /groups/{group}/heartbeat; GET /groups/{group}/poll; POST /groups/{group}/commit; POST /groups/{group}/ack
POST /groups/{group}/nack; POST /groups/{group}/reject; POST /groups/{group}/visibility; GET /groups; GET /groups/{group}
GET /groups/{group}/lag; POST /groups/{group}/reset; DELETE /groups/{group}; POST /messages/ack; POST /messages/nack
POST /messages/reject; POST /messages/visibility; GET /topics/{topic}/delayed
DELETE /topics/{topic}/delayed/{partition}/{offset}; GET /delay/stats; GET /priority/stats
GET /reliability/stats; GET /topics/{topic}/dlq; POST /topics/{topic}/dlq/redrive; POST /topics/{topic}/replay
GET /admin/metrics; GET /admin/health; GET /admin/cluster
GET /openapi.json; GET /docs
"""


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []


def test_every_endpoint_of_the_specification_is_in_the_table() -> None:
    wanted = set(re.split(r";\s*|\n", SPECIFIED.strip()))
    assert wanted <= {f"{route.method} {route.path}" for route in ROUTES}


def test_no_two_routes_are_one() -> None:
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    ids = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(ids) == len(ROUTES)


def test_every_reference_leads_somewhere() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert {name.rpartition("/")[2] for name in references(DOCUMENT)} <= schemas.keys()
    assert all(name.startswith("#/components/schemas/") for name in references(DOCUMENT))


def test_it_is_served_as_it_is() -> None:
    answer = Rig().ask("GET", "/v1/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["paths"] == json.loads(json.dumps(DOCUMENT["paths"]))
    assert answer.json["openapi"].startswith("3.1")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_what_an_operation_says(route: Route) -> None:
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    named = {(one["in"], one["name"]) for one in operation.get("parameters", [])}
    assert named == {*(("path", name) for name in re.findall(r"\{(\w+)\}", route.path)),
                     *(("query", name) for name in route.query.__struct_encode_fields__)}
    assert ("requestBody" in operation) == (route.body is not None)
    statuses = set(map(int, operation["responses"]))
    assert {route.status, *route.also, 400, 403, 500, 503} <= statuses
    for status, answer in operation["responses"].items():
        assert answer["description"]
        if int(status) >= 400 and int(status) not in route.also:
            assert list(answer["content"]) == ["application/problem+json"]


def test_every_code_stands_in_the_schema_of_problems() -> None:
    known = DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]
    assert known == codes(ROUTES) and len(set(known)) == len(known)
    assert {"bad_request", "unknown_topic", "stale_receipt", "too_large", "unavailable", "request_timeout"} <= set(known)


def test_numbers_are_exact_in_javascript() -> None:
    """Whatever is an integer in a request ends below 2**53."""

    def bounds(node: Any) -> list[int]:
        if isinstance(node, dict):
            own = [node[name] for name in ("maximum", "exclusiveMaximum") if isinstance(node.get(name), int)]
            return own + [found for value in node.values() for found in bounds(value)]
        return [found for value in node for found in bounds(value)] if isinstance(node, list) else []

    limits = [bound for path, operations in DOCUMENT["paths"].items() for operation in operations.values()
              for bound in bounds(operation.get("parameters", [])) if "{offset}" not in path and "{partition}" not in path]
    assert max(limits + bounds(DOCUMENT["components"]["schemas"])) < 2**53
    assert DOCUMENT["components"]["schemas"]["Topic"]["properties"]["id"] == {"type": "string"}


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert tag not in ("script", "iframe", "img") and "src" not in found
        self.ids.add(found.get("id") or "")
        if tag == "a":
            self.links.add(found["href"] or "")
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_needs_nothing_from_elsewhere() -> None:
    page = Page()
    page.feed(render(DOCUMENT))
    assert not page.open
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= page.ids
    assert {link for link in page.links if not link.startswith("#")} == {"openapi.json"}
    for route in ROUTES:
        assert route.path in page.text and route.summary in page.text
    assert all(code in page.text for code in codes(ROUTES))
    assert "[[string, string | Binary], ...]" in page.text and '(default: "leader")' in page.text


def test_it_is_served_with_a_policy_that_lets_nothing_in() -> None:
    answer = Rig().ask("GET", "/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_key_can_be_given_in_two_ways_where_a_route_may_want_one(route: Route) -> None:
    found = document([route], "1")
    operation = found["paths"][route.path][route.method.lower()]
    assert operation.get("security") == (None if route.verb == ANYONE else [{}, {"bearer": []}, {"header": []}])
    assert set(found["components"]["securitySchemes"]) == {"bearer", "header"}
    assert ("401" in operation["responses"], "403" in operation["responses"]) == (route.verb != ANYONE, True)

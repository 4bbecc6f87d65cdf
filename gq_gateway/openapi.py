"""The OpenAPI 3.1 document of a table of routes. Pure.

Schemas come from the types that requests are checked against; parameters from those of path and query; answers from what a route
says plus COMMON: what any route may answer.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from gq_gateway.call import DIGITS_MAX
from gq_gateway.problems import (
    CONTENT_TYPE,
    TITLES,
    CrossSite,
    HeadersTooLarge,
    MalformedRequest,
    Problem,
    RequestTimeout,
    TooManyConnections,
    UnsupportedMediaType,
    status_of,
)
from gq_gateway.table import ANYONE, Route
from gq_proto import errors as e
from gq_proto import limits
from gq_proto.errors import GoQueueError

VERSION: Final = "3.1.0"
COMMON: Final[tuple[type[GoQueueError], ...]] = (
    e.BadRequest, MalformedRequest, CrossSite, RequestTimeout, HeadersTooLarge, e.Internal, e.Unavailable, e.TimedOut, e.NotLeader,
    e.NotCoordinator, e.Busy, e.DiskFull, e.PartitionOffline, e.Corrupt, e.Closed, TooManyConnections)
WITH_KEYS: Final = (e.Unauthorized, e.Forbidden)
WITH_BODY: Final = (e.TooLarge, UnsupportedMediaType)
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
SCHEMES: Final[dict[str, Any]] = {"bearer": {"type": "http", "scheme": "bearer"},
                                  "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
_NUMBERS: Final = ("partition", "offset")
_REFERENCE: Final = "#/components/schemas/{name}"


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The whole of it."""
    types = list(dict.fromkeys(kind for route in routes for kind in _types(route)))
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=_REFERENCE)
    of_type = dict(zip([*types, Problem], schemas))
    components["Problem"]["properties"]["code"]["enum"] = codes(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, of_type.__getitem__)
    return {
        "openapi": VERSION,
        "info": {"title": "GoQueue", "version": version, "description": ABOUT},
        "servers": [{"url": "/v1"}, {"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SCHEMES},
    }


ABOUT: Final = (
    "Values are UTF-8 text, or base64 with \"encoding\": \"base64\". Durations are seconds, or text with a unit (\"500ms\"); "
    "times RFC 3339 or Unix seconds; timestamps in answers integer microseconds. All numbers stay below 2^53. Errors are RFC 9457 "
    "problems with a stable code; one that says retriable may be asked again after Retry-After.")


def errors_of(route: Route) -> list[type[GoQueueError]]:
    """All that the route may answer with."""
    found = [*COMMON, *route.errors]
    if route.verb != ANYONE:
        found += WITH_KEYS
    if route.body:
        found += WITH_BODY
    return list(dict.fromkeys(found))


def codes(routes: Iterable[Route]) -> list[str]:
    """Every code of a problem that the document knows."""
    return sorted({error.name for route in routes for error in errors_of(route)})


def _types(route: Route) -> Iterable[type[Struct]]:
    yield from route.bodies or ((route.body,) if route.body else ())
    yield from route.replies or ((route.reply,) if isinstance(route.reply, type) else ())


def _operation(route: Route, schema: Callable[[type[Struct]], dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": _id(route), "summary": route.summary, "tags": [route.tag]}
    parameters = [_path_parameter(name) for name in _PARAMETER.findall(route.path)] + _query_parameters(route)
    if parameters:
        found["parameters"] = parameters
    if route.body:
        bodies = [schema(kind) for kind in route.bodies or (route.body,)]
        found["requestBody"] = {"required": not route.optional, "content": {"application/json": {"schema": _one_of(bodies)}}}
    if route.verb != ANYONE:
        found["security"] = [{}, *({name: []} for name in SCHEMES)]
    found["responses"] = _responses(route, schema)
    return found


def _id(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return route.method.lower() + "".join(word[:1].upper() + word[1:] for word in words)


def _path_parameter(name: str) -> dict[str, Any]:
    if name in _NUMBERS:
        schema: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 10**DIGITS_MAX - 1}
    else:
        schema = {"type": "string", "minLength": 1, "maxLength": limits.NAME_MAX, "pattern": "^[A-Za-z0-9._-]+$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    [_], components = msgspec.json.schema_components([route.query], ref_template=_REFERENCE)
    shape = components[route.query.__name__]
    return [_query_parameter(name, dict(schema), name in shape["required"]) for name, schema in shape["properties"].items()]


def _query_parameter(name: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "in": "query", "required": required}
    if "description" in schema:
        found["description"] = schema.pop("description")
    some = [one for one in schema.pop("anyOf", []) if one != {"type": "null"}]
    if some:
        schema |= some[0] if len(some) == 1 else {"anyOf": some}
    if schema.get("default", 0) is None:
        del schema["default"]
    if schema.get("type") == "array":
        found |= {"style": "form", "explode": False}
    return found | {"schema": schema}


def _responses(route: Route, schema: Callable[[type[Struct]], dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in (route.status, *route.also):
        found[str(status)] = {"description": "Done" if status < 300 else TITLES[status], **_content(route, schema)}
    by_status: dict[int, list[str]] = {}
    for error in errors_of(route):
        by_status.setdefault(status_of(error()), []).append(error.name)
    problem = {CONTENT_TYPE: {"schema": {"$ref": _REFERENCE.format(name="Problem")}}}
    for status, names in sorted(by_status.items()):
        known = found.setdefault(str(status), {"description": "", "content": {}})
        known["description"] = f"{TITLES[status]}: {', '.join(sorted(names))}"
        known["content"] = {**known.get("content", {}), **problem}
        if status == 503:
            known["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
    return found


def _content(route: Route, schema: Callable[[type[Struct]], dict[str, Any]]) -> dict[str, Any]:
    if route.reply is None:
        return {}
    if isinstance(route.reply, str):
        return {"content": {route.reply.partition(";")[0]: {"schema": {"type": "object"} if "json" in route.reply else
                                                            {"type": "string"}}}}
    return {"content": {"application/json": {"schema": _one_of([schema(kind) for kind in route.replies or (route.reply,)])}}}


def _one_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

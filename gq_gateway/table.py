"""What a row of the table of routes says. The table itself is in routes.py; routing, OpenAPI and the docs page come from it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from gq_gateway.call import Call
from gq_proto.errors import GoQueueError

PUBLISH: Final = "publish"
CONSUME: Final = "consume"
ADMIN: Final = "admin"
METRICS: Final = "metrics"        # or admin of everything
ANY_KEY: Final = "any"            # whoever has a key, or a right to the resource, whichever
ANYONE: Final = ""


class NoQuery(Struct, forbid_unknown_fields=True):
    """No parameters."""


class Raw(NamedTuple):
    """An answer that is not JSON."""

    content_type: str
    data: bytes


@dataclass(frozen=True)
class Route:
    """`resource`: the path's name that `verb` is about. `reply` None: no content. `also`: other statuses of success, with the same
    body. `raw`: the handler decodes the body itself. `errors`: beyond those that every route may answer with."""

    method: str
    path: str
    handler: Callable[[Call], Awaitable[Any]]
    summary: str
    tag: str
    verb: str = ANYONE
    resource: str = ""
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    reply: type[Struct] | str | None = None      # a str is a content type
    status: int = 200
    also: tuple[int, ...] = ()
    errors: tuple[type[GoQueueError], ...] = ()
    optional: bool = False
    raw: bool = False
    bodies: tuple[type[Struct], ...] = ()        # in place of `body` in the document: one of these
    replies: tuple[type[Struct], ...] = ()       # in place of `reply`

    @cached_property
    def required_query(self) -> bool:
        return any(field.required for field in msgspec.structs.fields(self.query))

    @cached_property
    def query_lists(self) -> frozenset[str]:
        """Names of parameters that are lists."""
        info = msgspec.inspect.type_info(self.query)
        assert isinstance(info, msgspec.inspect.StructType)
        return frozenset(field.encode_name for field in info.fields if _is_list(field.type))


    @cached_property
    def query_nullable(self) -> frozenset[str]:
        """Names of parameters that are left out rather than null."""
        info = msgspec.inspect.type_info(self.query)
        assert isinstance(info, msgspec.inspect.StructType)
        return frozenset(field.encode_name for field in info.fields if field.default is None)


def _is_list(kind: Any) -> bool:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _is_list(kind.type)
    return isinstance(kind, msgspec.inspect.ListType)

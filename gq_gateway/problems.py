"""Errors as callers see them: RFC 9457 problems with a stable code, and the HTTP status of each. Pure.

Every GoQueueError has its status here; what only HTTP knows (no such path, a body that is too slow) has codes of its own. `field`
names what is wrong: a path into the body ("messages[3].priority") or the name of a parameter.
"""

import re
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gq_proto import errors as e
from gq_proto.errors import GoQueueError

URN: Final = "urn:goqueue:problem:"
CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
_AT: Final = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_NAMED: Final = re.compile(r"(?:unknown|required) field `([^`]+)`")


class Problem(Struct, kw_only=True):
    """What went wrong, and whether asking again may help. `detail` is one line that says what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retriable: bool
    field: str | UnsetType = UNSET


class Refused(GoQueueError):
    """An error about one field of a request."""

    def __init__(self, error: GoQueueError, field: str) -> None:
        super().__init__(error.message)
        self.error, self.field = error, field


class HttpError(GoQueueError):
    """Base of what only HTTP knows. Never crosses a wire of ours: `code` is unused."""

    status = 500


class NoSuchPath(HttpError):
    name, status = "no_such_path", 404

class MethodNotAllowed(HttpError):
    name, status = "method_not_allowed", 405

    def __init__(self, message: str, allowed: str = "") -> None:
        super().__init__(message)
        self.allowed = allowed

class RequestTimeout(HttpError):
    """The request was not whole in time."""
    name, status, retriable = "request_timeout", 408, True

class UnsupportedMediaType(HttpError):
    name, status = "unsupported_media_type", 415

class HeadersTooLarge(HttpError):
    name, status = "headers_too_large", 431

class MalformedRequest(HttpError):
    """No HTTP."""
    name, status = "malformed_request", 400

class TooManyConnections(HttpError):
    name, status, retriable = "too_many_connections", 503, True


class CrossSite(HttpError):
    """A browser asked on behalf of a page of another site."""
    name, status = "cross_site", 403


STATUS: Final[dict[type[GoQueueError], int]] = {
    e.BadRequest: 400, e.BadName: 400, e.BadRecord: 400, e.BadVersion: 400, e.UnknownKind: 400, e.TimestampSkew: 400,
    e.OffsetOutOfRange: 400, e.BadConfig: 400,
    e.Unauthorized: 401, e.Forbidden: 403,
    e.NotFound: 404, e.UnknownTopic: 404, e.UnknownTopicId: 404, e.UnknownPartition: 404, e.UnknownGroup: 404,
    e.AlreadyExists: 409, e.StaleReceipt: 409, e.UnknownMember: 409, e.Fenced: 409, e.SequenceGap: 409, e.GroupNotEmpty: 409,
    e.ModeMismatch: 409, e.Locked: 409,
    e.TooLarge: 413,
    e.Unavailable: 503, e.TimedOut: 503, e.NotLeader: 503, e.Busy: 503, e.DiskFull: 503, e.PartitionOffline: 503,
    e.NotCoordinator: 503, e.Closed: 503,
    e.Corrupt: 500, e.Internal: 500,
}
TITLES: Final = {400: "Bad request", 401: "Not authenticated", 403: "Not allowed", 404: "Not found", 405: "Method not allowed",
                 408: "Request timeout", 409: "Conflict", 413: "Too large", 415: "Unsupported media type", 429: "Over quota",
                 431: "Headers too large", 500: "Internal error", 503: "Not available now"}


def status_of(error: GoQueueError) -> int:
    """The HTTP status of an error; that of its nearest declared ancestor, else 500."""
    if isinstance(error, HttpError):
        return error.status
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def problem_of(error: GoQueueError) -> Problem:
    """An error of ours, as a problem. An Internal one keeps its words to itself: they may tell of our insides."""
    field: str | UnsetType = UNSET
    if isinstance(error, Refused):
        field, error = error.field, error.error
    status = status_of(error)
    internal = isinstance(error, e.Internal) or type(error) is GoQueueError
    detail = "an error inside the gateway or the node: its log says more" if internal else error.message
    retriable = error.retriable or isinstance(error, e.Closed)      # the gateway stops: another one may answer
    return Problem(type=URN + error.name, title=TITLES[status], status=status, detail=detail, code=error.name, retriable=retriable,
                   field=field)


def invalid(error: Exception) -> GoQueueError:
    """What msgspec (or UTF-8) has to say about a body or parameters."""
    text = str(error)
    if isinstance(error, UnicodeError):
        return e.BadRequest("the body is not UTF-8: give bytes as base64 with \"encoding\": \"base64\"")
    if not isinstance(error, msgspec.ValidationError):
        return e.BadRequest(f"the body is not JSON: {text}")
    field, detail = field_of(text)
    return Refused(e.BadRequest(detail), field) if field else e.BadRequest(detail)


def field_of(text: str) -> tuple[str, str]:
    """("messages[1].value", what is wrong) of a message of msgspec's."""
    at, named = _AT.search(text), _NAMED.search(text)
    path = at[1] if at else ""
    detail = text[:at.start()] if at else text
    if named:
        path = f"{path}.{named[1]}" if path else named[1]
    if named and "missing" in detail:
        detail += ": write null for none" if named[1] in ("value",) else ""
    return path, f"{path}: {detail}" if path else detail


def encode(problem: Problem) -> bytes:
    return msgspec.json.encode(problem)

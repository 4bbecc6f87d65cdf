"""Errors as gRPC says them: a status, and in the trailers the stable name and whether a retry can help. Pure.

The table is repeated for callers at the top of goqueue.proto; a test compares. A class that is not in it has its base's status.
"""

from typing import Final

from grpc import StatusCode

from gq_gateway import goqueue_pb2 as pb
from gq_proto import errors as e

CODE_KEY: Final = "goqueue-code"
RETRIABLE_KEY: Final = "goqueue-retriable"

STATUS: Final[dict[type[e.GoQueueError], StatusCode]] = {
    e.GoQueueError: StatusCode.INTERNAL,
    e.CallerFault: StatusCode.INVALID_ARGUMENT,
    e.PeerFault: StatusCode.UNAVAILABLE,
    e.BadRequest: StatusCode.INVALID_ARGUMENT,
    e.BadName: StatusCode.INVALID_ARGUMENT,
    e.BadRecord: StatusCode.INVALID_ARGUMENT,
    e.TooLarge: StatusCode.INVALID_ARGUMENT,
    e.TimestampSkew: StatusCode.INVALID_ARGUMENT,
    e.BadConfig: StatusCode.INVALID_ARGUMENT,
    e.OffsetOutOfRange: StatusCode.OUT_OF_RANGE,
    e.NotFound: StatusCode.NOT_FOUND,
    e.AlreadyExists: StatusCode.ALREADY_EXISTS,
    e.StaleReceipt: StatusCode.FAILED_PRECONDITION,
    e.UnknownMember: StatusCode.FAILED_PRECONDITION,
    e.GroupNotEmpty: StatusCode.FAILED_PRECONDITION,
    e.ModeMismatch: StatusCode.FAILED_PRECONDITION,
    e.Locked: StatusCode.FAILED_PRECONDITION,
    e.Fenced: StatusCode.ABORTED,
    e.SequenceGap: StatusCode.ABORTED,
    e.Unauthorized: StatusCode.UNAUTHENTICATED,
    e.Forbidden: StatusCode.PERMISSION_DENIED,
    e.Busy: StatusCode.RESOURCE_EXHAUSTED,
    e.DiskFull: StatusCode.RESOURCE_EXHAUSTED,
    e.TimedOut: StatusCode.DEADLINE_EXCEEDED,
    e.Unavailable: StatusCode.UNAVAILABLE,
    e.NotLeader: StatusCode.UNAVAILABLE,
    e.NotCoordinator: StatusCode.UNAVAILABLE,
    e.PartitionOffline: StatusCode.UNAVAILABLE,
    e.Closed: StatusCode.UNAVAILABLE,
    e.Corrupt: StatusCode.DATA_LOSS,
    e.UnknownKind: StatusCode.UNIMPLEMENTED,
    e.BadVersion: StatusCode.UNIMPLEMENTED,
    e.Internal: StatusCode.INTERNAL,
}


def status_of(error: e.GoQueueError) -> StatusCode:
    """The status of a call that failed with it."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def is_retriable(error: e.GoQueueError) -> bool:
    """Closed is the gateway's own client, which stops: another gateway, or this one in a moment, will do."""
    return error.retriable or isinstance(error, e.Closed)


def trailers(error: e.GoQueueError) -> tuple[tuple[str, str], ...]:
    """The two trailers of a call that failed."""
    return (CODE_KEY, error.name), (RETRIABLE_KEY, str(is_retriable(error)).lower())


def as_message(error: e.GoQueueError) -> pb.Error:
    """For a result among several."""
    return pb.Error(code=error.name, retriable=is_retriable(error), message=error.message)

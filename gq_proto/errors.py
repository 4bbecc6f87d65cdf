"""Every error that crosses a process border: a wire code, a stable name, whether a retry can help.

Two families: CallerFault (the request is wrong or came too late) and PeerFault (a daemon, a disk or the network).
Anything else is a bug: assert and crash. A message is one line and says what to do. Codes are never reused.
"""

from typing import ClassVar


class GoQueueError(Exception):
    """Base of all. `code` goes over the wire, `name` into logs, JSON and metrics."""

    code: ClassVar[int] = 1
    name: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.name)

    @property
    def message(self) -> str:
        return str(self.args[0])


class CallerFault(GoQueueError):
    """The caller must change something."""


class PeerFault(GoQueueError):
    """The other side or the disk could not; mostly worth a retry."""


# -- the caller's ------------------------------------------------------------

class BadRequest(CallerFault):
    code, name = 10, "bad_request"

class BadName(CallerFault):
    code, name = 11, "bad_name"

class BadRecord(CallerFault):
    """A record or batch that does not follow the format, or a CRC that does not match."""
    code, name = 12, "bad_record"

class TooLarge(CallerFault):
    code, name = 13, "too_large"

class BadVersion(CallerFault):
    code, name = 14, "bad_version"

class UnknownKind(CallerFault):
    code, name = 15, "unknown_kind"

class NotFound(CallerFault):
    code, name = 20, "not_found"

class UnknownTopic(NotFound):
    code, name = 21, "unknown_topic"

class UnknownTopicId(NotFound):
    """The id is not that of a topic any more (deleted, perhaps made anew). Ask for metadata again."""
    code, name = 22, "unknown_topic_id"

class UnknownPartition(NotFound):
    code, name = 23, "unknown_partition"

class UnknownGroup(NotFound):
    code, name = 24, "unknown_group"

class AlreadyExists(CallerFault):
    code, name = 30, "already_exists"

class StaleReceipt(CallerFault):
    """The message was handed out again, acked, or its topic made anew."""
    code, name = 31, "stale_receipt"

class UnknownMember(CallerFault):
    """The session expired or the member left: join again."""
    code, name = 32, "unknown_member"

class Fenced(CallerFault):
    """A newer incarnation of this producer, member or leader exists."""
    code, name = 33, "fenced"

class SequenceGap(CallerFault):
    """An idempotent batch does not follow on the last one of its producer."""
    code, name = 34, "sequence_gap"

class OffsetOutOfRange(CallerFault):
    """Below the log start or above the end."""
    code, name = 35, "offset_out_of_range"

class TimestampSkew(CallerFault):
    code, name = 36, "timestamp_skew"

class GroupNotEmpty(CallerFault):
    code, name = 37, "group_not_empty"

class ModeMismatch(CallerFault):
    """The group lives in the other mode (partitioned, shared)."""
    code, name = 38, "mode_mismatch"

class Unauthorized(CallerFault):
    code, name = 40, "unauthorized"

class Forbidden(CallerFault):
    code, name = 41, "forbidden"

class Closed(CallerFault):
    """The client, producer or consumer was closed."""
    code, name = 42, "closed"


# -- the other side's ----------------------------------------------------------

class Unavailable(PeerFault):
    """Not reachable, not ready, or shutting down."""
    code, name, retriable = 50, "unavailable", True

class TimedOut(PeerFault):
    """No answer within the deadline; what was asked may or may not have happened."""
    code, name, retriable = 51, "timed_out", True

class NotLeader(PeerFault):
    """Another broker leads the partition now, or the epoch is old: refresh metadata."""
    code, name, retriable = 52, "not_leader", True

class Busy(PeerFault):
    """A queue or a memory bound is full: back off."""
    code, name, retriable = 53, "busy", True

class DiskFull(PeerFault):
    code, name, retriable = 54, "disk_full", True

class Corrupt(PeerFault):
    """Stored bytes do not match their CRC; the message names file and position."""
    code, name = 55, "corrupt"

class PartitionOffline(PeerFault):
    """An I/O error took the partition offline until its daemon restarts."""
    code, name, retriable = 56, "partition_offline", True

class NotCoordinator(PeerFault):
    """Another groupd owns the group, or this one is still replaying."""
    code, name, retriable = 57, "not_coordinator", True

class Internal(PeerFault):
    code, name = 58, "internal"

class BadConfig(CallerFault):
    """An option is unknown, malformed or out of range; the message names it."""
    code, name = 60, "bad_config"

class Locked(CallerFault):
    """Another daemon holds the data directory."""
    code, name = 61, "locked"


def _family(base: type[GoQueueError]) -> dict[int, type[GoQueueError]]:
    found = {base.code: base} if "code" in base.__dict__ else {}
    for sub in base.__subclasses__():
        deeper = _family(sub)
        assert not found.keys() & deeper.keys(), f"error code used twice below {base.__name__}"
        found |= deeper
    return found


BY_CODE: dict[int, type[GoQueueError]] = _family(GoQueueError)
BY_NAME: dict[str, type[GoQueueError]] = {e.name: e for e in BY_CODE.values()}
assert len(BY_NAME) == len(BY_CODE)


def error_of(code: int, message: str) -> GoQueueError:
    """The error that `code` stands for; an unknown code (a newer peer) becomes Internal and keeps its number in the text."""
    known = BY_CODE.get(code)
    return known(message) if known else Internal(f"error {code}: {message}")

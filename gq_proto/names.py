"""Names of topics, groups, members and files, and which of them are legal.

A topic, group or tenant name is 1-196 of `A-Z a-z 0-9 . _ -`, not `.` or `..`; names that begin with `__` are internal:
apps may read them but neither create nor write them.
"""

import re
from typing import Final

from gq_proto.errors import BadName
from gq_proto.limits import NAME_MAX

GROUPS_TOPIC: Final = "__groups"
TXN_TOPIC: Final = "__txn"
DLQ_SUFFIX: Final = ".dlq"
INTERNAL_PREFIX: Final = "__"

_LEGAL = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_MAX}}}", re.ASCII)


def check_name(what: str, name: str) -> str:
    """`name` if it is legal; BadName says what is wrong with it otherwise. `what` is "topic", "group", ..."""
    if not isinstance(name, str) or not _LEGAL.fullmatch(name) or name in (".", ".."):
        raise BadName(f"bad {what} name {name!r:.220}: use 1-{NAME_MAX} of A-Z a-z 0-9 . _ - and neither '.' nor '..'")
    return name


def is_internal(name: str) -> bool:
    """True for topics that only daemons write."""
    return name.startswith(INTERNAL_PREFIX)


def is_dlq(name: str) -> bool:
    """True for a dead letter queue: nothing in it is dead-lettered again."""
    return name.endswith(DLQ_SUFFIX)


def dlq_of(topic: str) -> str:
    """The dead letter topic of `topic`; BadName when that name would be too long."""
    return check_name("dead letter topic", topic + DLQ_SUFFIX)


def topic_of_dlq(dlq: str) -> str:
    """The topic whose dead letters `dlq` holds."""
    assert is_dlq(dlq)
    return dlq[: -len(DLQ_SUFFIX)]

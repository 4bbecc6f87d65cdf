"""State machines as tables: {state: {event: next state}}. An unknown pair is a bug.

MESSAGE is what a delayed message goes through; protocol.txt draws it. It is kept in bitmaps and never stepped one by one. PART is
stepped: a part's view of its log.
"""

from typing import Final

Table = dict[str, dict[str, str]]

MESSAGE: Final[Table] = {
    "scheduled": {"be due": "ready", "cancel": "cancelled", "gone": "expired"},
    "ready": {}, "cancelled": {}, "expired": {},
}

# Fires in "serving" only. "lose": something below `known` is not in the log any more.
PART: Final[Table] = {
    "opening": {"find index": "checking index", "find none": "reading"},
    "checking index": {"check": "loading", "find none": "reading"},
    "loading": {"load": "reading"},
    "reading": {"catch up": "serving", "see epoch": "checking", "lose": "opening"},
    "serving": {"see epoch": "checking", "lose": "opening"},
    "checking": {"check": "reading", "see epoch": "checking", "lose": "opening"},
}


def step(state: str, event: str) -> str:
    """The next state of a part."""
    assert event in PART[state], f"{event!r} cannot happen in state {state!r}"
    return PART[state][event]

"""State machines as tables: {state: {event: next state}}. An unknown pair is a bug.

MESSAGE is what a message of a group goes through; protocol.txt draws it. The core keeps messages in bitmaps, one per state, and
never steps one by itself: the table is what the bitmaps' checker and the simulation hold them to. PART and DEAD are stepped.
"""

from typing import Final

Table = dict[str, dict[str, str]]

MESSAGE: Final[Table] = {
    "ready": {"lease": "leased", "late ack": "acked", "late reject": "dead",
              "mark ack": "acked", "gone": "expired", "mark unack": "ready"},
    "leased": {"ack": "acked", "nack": "retrying", "time out": "ready", "lose": "ready", "back off": "retrying",
               "use up": "dead", "reject": "dead", "release": "ready", "extend": "leased", "mark ack": "acked",
               "mark unack": "ready", "gone": "expired"},
    "retrying": {"be due": "ready", "late ack": "acked", "late reject": "dead", "mark ack": "acked", "mark unack": "ready",
                 "gone": "expired"},
    "dead": {"copy": "acked", "mark ack": "acked", "mark unack": "ready", "gone": "expired"},
    "acked": {"mark unack": "ready", "mark ack": "acked", "gone": "acked"},
    "expired": {},
}

GROUP: Final[Table] = {
    "empty": {"join": "stable", "expire": "gone", "delete": "gone"},
    "stable": {"join": "stable", "leave": "stable", "leave last": "empty", "move": "rebalancing", "delete": "gone"},
    "rebalancing": {"settle": "stable", "join": "rebalancing", "leave": "rebalancing", "leave last": "empty",
                    "move": "rebalancing", "delete": "gone"},
    "gone": {},
}

# A part's view of its log. It serves in "scanning" and "ready".
PART: Final[Table] = {
    "unseen": {"see": "scanning", "see epoch": "checking"},
    "scanning": {"catch up": "ready", "fall behind": "scanning", "see epoch": "checking"},
    "ready": {"catch up": "ready", "fall behind": "scanning", "see epoch": "checking"},
    "checking": {"check": "scanning", "see epoch": "checking"},
}

# One batch of dead letters of a part.
DEAD: Final[Table] = {
    "idle": {"find": "preparing", "resume": "copying"},
    "preparing": {"prepare": "intending", "fail": "idle"},
    "intending": {"be durable": "copying"},
    "copying": {"finish": "idle", "fail": "resting", "lose topic": "idle"},
    "resting": {"resume": "copying", "find": "preparing"},
}


def step(table: Table, state: str, event: str) -> str:
    """The next state."""
    assert event in table[state], f"{event!r} cannot happen in state {state!r}"
    return table[state][event]

"""gq_groupd keeps groups: who is a member, who may lease what, and what became of every message.

Owns members, assignment, leases, acks, attempts, retries, dead letters, offsets. Never touches payloads (copying a dead letter is
the one exception, and the shell's), never stores anything but records in its partition of `__groups`.

One `Core` per `__groups` partition, pure: inputs in, effects out (`effects`). Decide, hand the records to the log, apply at
once, reply when they are durable. `apply` is the only mutator, live and at replay; what it does not write is soft and its loss is
harmless: sessions' clocks, started-progress, parked polls, the runs buffered per lane.

Invariants
- A message whose ack was answered is never handed out again, and one that was not acked always is, sooner or later.
- At most one live lease holds a message. Attempts never go down but by Mark (reset, replay, redrive).
- Lag is the number of deliverable messages that are not acked: exact as soon as the runs up to the end are known.
- Per request the cost is in ranges and bitmap operations, never in messages.
"""

"""gq_delayd makes delayed messages ready: the timer wheel, the ready and cancelled records, and the index of what waits.

Owns when a message is due, and that its partition is told so by a control record: one per partition and tick (or step of a tick,
where messages are few), written through logd, which drops what was decided before. Never decides who consumes, never touches
payloads: what is delayed, until when, and what became of it is learnt from logd (`Due`, `Watch`) and from nobody else.

The delayd of a partition is that of the node that leads it. One pure `Core` for all of them: inputs and time in, effects out.

Invariants
- Hard state of a partition (`pending`, `ready`, `cancelled`) is a function of its log below `known`, and changes only as the log is
  scanned. A marker that was sent or confirmed is soft until it is met there: what a power loss takes back, is sent again.
- A message is never made ready before its time by the wall clock, and once it is due it stays with us until the log decided.
- Nothing is made ready in a partition of which something below the end was not yet scanned.
- The index is a cache. Every block of it is what the log said below one offset; without it, or with a bad one, the log is asked.

    wheel      what is due when           part       one partition            loading    learning the logs
    firing     markers                    cancelling cancelling               listing    pages in due order
    index      the files' layout          saving     what goes into them      core       the face of it all
"""

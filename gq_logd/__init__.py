"""gq_logd keeps partitions: it appends, stores, and reads back.

Owns the folders `logs/{topic}/{partition}`: the log segments, what is derived from them, idempotence state, leader epochs,
markers, retention. Never knows groups, never looks into keys or values, never decides who leads: gq_metad does.

Everything but `daemon`, `options`, `syncing` and `__main__` is a pure core: it gets a Disk, the monotonic time and the wall clock
as arguments and returns effects, so the simulation runs it unchanged.

Invariants
- Offsets in a partition are consecutive but for damage that recovery fenced off; none is ever given out twice to what was
  answered as durable.
- A produce is answered ok only after all of it is written (fsync=every: synced); sequence state changes only after that.
- Nothing that fails its CRC leaves this process as a record.
- Nothing is removed but by retention, DeleteBefore, or a topic's explicit deletion.
"""

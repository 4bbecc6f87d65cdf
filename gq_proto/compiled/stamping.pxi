# logd's part of an append, and the scan of what lies in a log. A part of _codec.pyx.

cdef class _Notes:
    """What stamp and scan collect on their way. The last run is kept apart until another kind follows."""

    cdef int64_t segment_base, last_index_position, index_interval, max_timestamp, last_time_point, time_interval
    cdef int64_t count, run_offset, run_count
    cdef int run_kind, flags
    cdef list runs, due, times, controls
    cdef bytearray index

    def __cinit__(self):
        self.count = self.run_count = 0
        self.flags = 0
        self.run_kind = -1
        self.runs, self.due, self.times, self.controls = [], [], [], []
        self.index = bytearray()

    cdef int note(self, const uint8_t *p, const gq_head *head, int64_t offset, int64_t timestamp, int64_t position) except -1:
        cdef int kind = ((head.flags & KIND_FLAGS) << 2) | head.priority
        cdef uint8_t point[8]
        self.count += 1
        self.flags |= head.flags
        if kind == self.run_kind:
            self.run_count += 1
        else:
            self.end_run()
            self.run_offset, self.run_count, self.run_kind = offset, 1, kind
        if position - self.last_index_position >= self.index_interval and 0 <= offset - self.segment_base < FAR_32 \
                and position < FAR_32:
            gq_put32(point, <uint32_t>(offset - self.segment_base))
            gq_put32(point + 4, <uint32_t>position)
            self.index += PyBytes_FromStringAndSize(<char *>point, 8)
            self.last_index_position = position
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            if timestamp - self.last_time_point >= self.time_interval:
                self.times.append(timestamp)
                self.times.append(offset)
                self.last_time_point = timestamp
        if head.flags & CONTROL:
            self.controls.append(FoundControl(offset, gq_u16(p + HEADER + 2),
                                              PyBytes_FromStringAndSize(<char *>p + HEADER + 4, head.value_size)))
        return 0

    cdef int end_run(self) except -1:
        if self.run_count:
            self.runs.append(self.run_offset)
            self.runs.append(self.run_count)
            self.runs.append(self.run_kind)
        self.run_count = 0
        return 0


cdef _Notes notes_of(int64_t segment_base, int64_t last_index_position, int64_t last_timestamp, int64_t last_time_point,
                     int64_t index_interval, int64_t time_interval_us):
    cdef _Notes notes = _Notes.__new__(_Notes)
    notes.segment_base, notes.last_index_position, notes.index_interval = segment_base, last_index_position, index_interval
    notes.max_timestamp, notes.last_time_point, notes.time_interval = last_timestamp, last_time_point, time_interval_us
    return notes


def stamp(object frame, int64_t base_offset, int64_t timestamp_us, *, bint create=False, bint internal=False, int64_t position=0,
          int64_t segment_base=0, int64_t last_index_position=0, int64_t max_value=VALUE_MAX, int64_t last_timestamp=0,
          int64_t last_time_point=0, int64_t index_interval=INDEX_INTERVAL, int64_t time_interval_us=TIME_INTERVAL_US):
    """Validate a batch from outside and stamp it in place. See pure.stamp."""
    cdef _Notes notes = notes_of(segment_base, last_index_position, last_timestamp, last_time_point, index_interval,
                                 time_interval_us)
    cdef Py_buffer view
    cdef uint8_t *p
    cdef uint8_t *end
    cdef gq_head head
    cdef Said said
    cdef int why
    cdef int64_t timestamp, offset, due
    cdef uint32_t state
    cdef object batch = None
    cdef int64_t batch_count = -1
    PyObject_GetBuffer(frame, &view, PyBUF_WRITABLE)
    try:
        p = <uint8_t *>view.buf
        end = p + view.len
        if view.len == 0:
            raise _violation(EMPTY, 0, 0)
        while p < end:
            why = parse(p, end - p, &head)
            if why == OK:
                if head.value_size > max_value:
                    why = LONG_VALUE
                elif notes.count == BATCH_MESSAGES_MAX or (view.len > BATCH_BYTES_MAX and <int64_t>head.total < view.len):
                    why = LONG_BATCH
            if why:
                raise _violation(why, notes.count, p - <uint8_t *>view.buf)
            state = gq_crc_body(p, head.total)
            timestamp = head.timestamp if create else timestamp_us
            if gq_crc_stamp(state, p) != head.crc:
                why = BAD_CRC
            elif head.flags & CONTROL and not internal:
                why = FORBIDDEN_CONTROL
            elif timestamp - timestamp_us > SKEW_MAX or timestamp_us - timestamp > SKEW_MAX:
                why = SKEWED
            if why:
                raise _violation(why, notes.count, p - <uint8_t *>view.buf)
            offset = base_offset + notes.count
            if head.headers_size or head.flags & (BATCH | DELAYED):
                why = section(p, &head, &said)
                due = said.due + timestamp if said.delay == 2 else said.due
                if why == OK:
                    if said.user_size > USER_HEADERS_MAX:
                        why = LONG_HEADERS
                    elif said.system and not internal:
                        why = FORBIDDEN_HEADER
                    elif said.batch and notes.count:
                        why = BAD_BATCH
                    elif said.delay and due - timestamp > DELAY_US_MAX:
                        why = LONG_DELAY
                if why:
                    raise _violation(why, notes.count, p - <uint8_t *>view.buf)
                if said.batch:
                    batch = Batch(said.producer_id, said.epoch, said.base_sequence, said.count)
                    batch_count = said.count
                if said.delay:
                    notes.due.append(offset)
                    notes.due.append(due)
            gq_put64(p + 8, <uint64_t>offset)
            gq_put64(p + 16, <uint64_t>timestamp)
            gq_put32(p + 4, gq_crc_stamp(state, p))
            notes.note(p, &head, offset, timestamp, position + (p - <uint8_t *>view.buf))
            p += head.total
        if batch_count >= 0 and batch_count != notes.count:
            raise _violation(BAD_BATCH, 0, 0)
        notes.end_run()
        return Stamped(notes.count, view.len, base_offset, base_offset + notes.count, notes.max_timestamp, notes.flags,
                       notes.runs, notes.due, bytes(notes.index), notes.times, batch, notes.controls,
                       notes.last_index_position, notes.last_time_point)
    finally:
        PyBuffer_Release(&view)


def scan(object data, int64_t start=0, int64_t expected_offset=-1, *, int64_t base_position=0, int64_t segment_base=0,
         int64_t last_index_position=0, int64_t last_timestamp=0, int64_t last_time_point=0,
         int64_t index_interval=INDEX_INTERVAL, int64_t time_interval_us=TIME_INTERVAL_US):
    """Walk the records of a log. See pure.scan."""
    cdef _Notes notes = notes_of(segment_base, last_index_position, last_timestamp, last_time_point, index_interval,
                                 time_interval_us)
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t at = start, expected = expected_offset, first = -1, batch_at = 0, batch_left = 0
    cdef gq_head head
    cdef Said said
    cdef int why = OK
    cdef list batches = []
    cdef object open_batch = None
    if start < 0:
        raise ValueError("a scan begins at a position, not before it")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while at < view.len:
            p = <const uint8_t *>view.buf + at
            why = valid(p, view.len - at, &head)
            if why:
                break
            if expected >= 0 and head.offset != expected:
                why = BAD_OFFSET
                break
            if head.flags & (BATCH | DELAYED):
                why = section(p, &head, &said)
                if why:
                    break
                if said.batch:
                    batches.append(FoundBatch(head.offset, said.producer_id, said.epoch, said.base_sequence, said.count))
                    batch_at, batch_left = at, said.count
                if said.delay:
                    notes.due.append(head.offset)
                    notes.due.append(said.due + head.timestamp if said.delay == 2 else said.due)
            if first < 0:
                first = head.offset
            notes.note(p, &head, head.offset, head.timestamp, base_position + at)
            if batch_left:
                batch_left -= 1
            expected = head.offset + 1
            at += head.total
        notes.end_run()
    finally:
        PyBuffer_Release(&view)
    if batch_left:
        last = batches[len(batches) - 1]
        open_batch = OpenBatch(base_position + batch_at, last.offset, last.count - batch_left, last.count)
    if why == OK:
        reason, detail = "end", ""
    else:
        reason = "short" if why == SHORT else "crc" if why == BAD_CRC else "offset" if why == BAD_OFFSET and head.total else "header"
        detail = f"the record at position {base_position + at} {_WHY[why]}"
    return Scan(notes.count, base_position + at, first, expected, notes.max_timestamp, notes.flags, notes.runs, notes.due,
                bytes(notes.index), notes.times, batches, notes.controls, notes.last_index_position, notes.last_time_point,
                reason, detail, open_batch)

# Batches as a producer makes them. A part of _codec.pyx.

cdef class BatchBuilder:
    """Records of one partition, growing into one batch, in the very bytes object that `seal` returns. See pure_build.

    The first record is written with room for its gq-batch header; a seal without a producer id closes the gap. The next buffer
    is as large as the last batch was, so that a steady producer never grows one."""

    cdef PyObject *_buf
    cdef int64_t _used, _capacity, _next, _count
    cdef uint32_t _first_headers       # bytes of the first record's headers as they were handed in

    def __cinit__(self, int64_t reserve=65536):
        self._buf = NULL
        self._used = self._capacity = self._count = 0
        self._next = reserve if reserve > 256 else 256

    def __dealloc__(self):
        Py_XDECREF(self._buf)

    def clear(self):
        """Forget what was added."""
        self._used = self._count = 0

    @property
    def count(self):
        """Records added since the last seal or clear."""
        return self._count

    @property
    def size(self):
        """Bytes `seal` will return at most: exactly that many with a producer id."""
        return self._used

    cdef int room(self, int64_t need) except -1:
        cdef int64_t wanted
        if self._buf == NULL:
            self._capacity = 0
            wanted = need if need > self._next else self._next
            self._buf = _new_bytes(NULL, wanted)
            self._capacity = wanted
        elif self._capacity - self._used < need:
            wanted = self._used + need + self._capacity
            self._capacity = 0
            try:
                _PyBytes_Resize(&self._buf, wanted)
            except MemoryError:         # it has released the old object and set NULL: what was added is gone
                self._used = self._count = 0
                raise
            self._capacity = wanted
        return 0

    def add(self, object key, object value, object headers=b"", int64_t priority=2, int64_t flags=0, int64_t codec=0,
            int64_t timestamp=0):
        """Append a record; `headers` are already encoded. Its index in the batch; an error leaves the batch as it was."""
        return self.put(key, value, headers, priority, flags, codec, timestamp)

    cdef int64_t put(self, object key, object value, object headers, int64_t priority, int64_t flags, int64_t codec,
                     int64_t timestamp) except -1:
        cdef const char *key_at = b""
        cdef const char *value_at = b""
        cdef int64_t key_size = 0, value_size = 0, headers_size, extra = 0, total
        cdef uint8_t *p
        cdef uint8_t *q
        if key is not None:
            if not PyBytes_CheckExact(key):
                key = bytes(memoryview(key))
            key_at, key_size = PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
        if value is not None:
            if not PyBytes_CheckExact(value):
                value = bytes(memoryview(value))
            value_at, value_size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        if not PyBytes_CheckExact(headers):
            headers = bytes(memoryview(headers))
        headers_size = PyBytes_GET_SIZE(headers)
        if key_size > KEY_MAX or value_size > VALUE_CEILING or headers_size or flags or codec or timestamp < 0 \
                or timestamp > TIMESTAMP_MAX or priority < 0 or priority >= PRIORITIES:
            check_added(key, key_size, value, value_size, headers_size, priority, flags, codec, timestamp)
        if not self._count:
            extra = BATCH_ENTRY if headers_size else BATCH_ENTRY + 2
            if headers_size + extra > HEADERS_MAX:
                raise TooLarge(f"headers are above {HEADERS_MAX - BATCH_ENTRY} bytes")
        total = HEADER + key_size + value_size + headers_size + extra
        self.room(total)
        p = <uint8_t *>_bytes_at(self._buf) + self._used
        p[0], p[1], p[2], p[3] = 0x47, 0x51, 1, <uint8_t>flags
        gq_put64(p + 8, 0)
        gq_put64(p + 16, <uint64_t>timestamp)
        p[24], p[25] = <uint8_t>priority, <uint8_t>codec
        gq_put16(p + 26, KEY_NULL if key is None else <uint16_t>key_size)
        gq_put32(p + 28, VALUE_NULL if value is None else <uint32_t>value_size)
        gq_put16(p + 32, <uint16_t>(headers_size + extra))
        q = p + HEADER
        memcpy(q, key_at, <size_t>key_size)
        q += key_size
        memcpy(q, value_at, <size_t>value_size)
        q += value_size
        if self._count:
            memcpy(q, PyBytes_AS_STRING(headers), <size_t>headers_size)
            gq_put32(p + 4, gq_crc_stamp(gq_crc_body(p, <uint64_t>total), p))
        else:
            self._first_headers = <uint32_t>headers_size
            gq_put16(q, <uint16_t>((gq_u16(<const uint8_t *>PyBytes_AS_STRING(headers)) if headers_size else 0) + 1))
            memcpy(q + 2, BATCH_START, 12)
            if headers_size:
                memcpy(q + 2 + BATCH_ENTRY, PyBytes_AS_STRING(headers) + 2, <size_t>(headers_size - 2))
        self._used += total
        self._count += 1
        return self._count - 1

    def seal(self, int64_t producer_id=-1, int64_t epoch=-1, int64_t sequence=-1):
        """The batch; the builder is empty afterwards. With a producer id its first record names (id, epoch, sequence, count)."""
        cdef uint8_t *p
        cdef uint8_t *q
        cdef gq_head head
        cdef int64_t gap
        cdef object sealed
        if not self._count:
            raise BadRecord("an empty batch cannot be sealed")
        if producer_id >= 0 and (epoch < 0 or epoch > 32767 or sequence < 0 or sequence > 2147483647):
            raise BadRecord("a producer's epoch or sequence is out of range")
        p = <uint8_t *>_bytes_at(self._buf)
        if parse(p, self._used, &head):
            raise SystemError("a builder holds something that is no record")
        q = p + HEADER + head.key_size + head.value_size
        if producer_id >= 0:
            p[3] |= BATCH
            gq_put64(q + 14, <uint64_t>producer_id)
            gq_put16(q + 22, <uint16_t>epoch)
            gq_put32(q + 24, <uint32_t>sequence)
            gq_put32(q + 28, <uint32_t>self._count)
        else:
            gap = BATCH_ENTRY if self._first_headers else BATCH_ENTRY + 2
            if self._first_headers:
                gq_put16(q, <uint16_t>(gq_u16(q) - 1))
                q += 2
            memmove(q, q + gap, <size_t>(self._used - (q - p) - gap))
            gq_put16(p + 32, <uint16_t>self._first_headers)
            self._used -= gap
            head.total -= gap
        gq_put32(p + 4, gq_crc_stamp(gq_crc_body(p, head.total), p))
        self._next = max(256, self._used + (self._used >> 3))
        gap, self._capacity, self._count = self._used, 0, 0
        self._used = 0
        _PyBytes_Resize(&self._buf, gap)
        sealed = <object>self._buf
        Py_XDECREF(self._buf)
        self._buf = NULL
        return sealed


cdef int check_added(object key, int64_t key_size, object value, int64_t value_size, int64_t headers_size, int64_t priority,
                     int64_t flags, int64_t codec, int64_t timestamp) except -1:
    cdef bint control = flags & CONTROL != 0, compressed = flags & COMPRESSED != 0
    if key_size > KEY_MAX:
        raise TooLarge(f"a key of {key_size} bytes is above the limit of {KEY_MAX}")
    if value_size > VALUE_CEILING:
        raise TooLarge(f"a value of {value_size} bytes is above the limit of {VALUE_CEILING}")
    if headers_size > HEADERS_MAX:
        raise TooLarge(f"headers are above {HEADERS_MAX} bytes")
    if priority < 0 or priority >= PRIORITIES:
        raise BadRecord(f"priority {priority} is not one of 0..{PRIORITIES - 1}")
    if timestamp < 0 or timestamp > TIMESTAMP_MAX:
        raise BadRecord(f"timestamp {timestamp} is not Unix microseconds")
    if flags & ~(FLAGS_KNOWN & ~BATCH) or (flags & COMMIT and not control) or (control and flags & (COMPRESSED | DELAYED)):
        raise BadRecord(f"flags {flags:#x} are unknown, the system's, or exclude each other")
    if codec < 0 or codec > 1 or (codec == 1) != compressed:
        raise BadRecord(f"compression {codec} does not go with flags {flags:#x}")
    if (control and (key is None or key_size != 4)) or (value is None and (control or compressed)):
        raise BadRecord("a control record has a key of 4 bytes and a value; a compressed one has a value")
    if 0 < headers_size < ENTRY_MIN or (flags & DELAYED and not headers_size):
        raise BadRecord("headers are malformed or lack the delay that the flags promise")
    return 0

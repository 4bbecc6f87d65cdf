# Messages as applications hold them. A part of _codec.pyx.

cdef class Record:
    """A message. See message.Record."""

    cdef public object topic, key, owner
    cdef public int64_t offset, timestamp
    cdef public int32_t partition, delivery
    cdef public int priority, flags
    cdef object _raw_value, _plain, _raw_headers, _user, _system

    def __init__(self, topic="", int32_t partition=0, int64_t offset=0, int64_t timestamp=0, int priority=2, int flags=0, key=None,
                 value=None, raw_headers=b"", owner=None, int32_t delivery=1):
        """`value` is as stored: compressed when `flags` say so."""
        self.topic, self.partition, self.offset, self.timestamp = topic, partition, offset, timestamp
        self.priority, self.flags, self.key = priority, flags, key
        self.raw_value, self.raw_headers = value, raw_headers
        self.owner, self.delivery = owner, delivery

    @property
    def raw_value(self):
        """The value as it is stored."""
        return self._raw_value

    @raw_value.setter
    def raw_value(self, stored):
        self._raw_value = stored
        self._plain = None

    @property
    def value(self):
        """The value as it was published; BadRecord when it does not decompress."""
        if not self.flags & COMPRESSED or self._raw_value is None:
            return self._raw_value
        if self._plain is None:
            self._plain = decompress(self._raw_value)
        return self._plain

    @value.setter
    def value(self, plain):
        self.flags &= ~COMPRESSED
        self._raw_value = plain
        self._plain = None

    @property
    def raw_headers(self):
        """The header section, system headers included."""
        return self._raw_headers

    @raw_headers.setter
    def raw_headers(self, raw):
        self._raw_headers = raw
        self._user = self._system = None

    @property
    def headers(self):
        """The app's headers, in order, duplicates kept."""
        if self._user is None:
            self._user = headers_of(self._raw_headers, 1)
        return self._user

    @property
    def system_headers(self):
        """The gq- ones."""
        if self._system is None:
            self._system = headers_of(self._raw_headers, 2)
        return self._system

    def __repr__(self):
        return f"<{type(self).__name__} {self.topic}/{self.partition}/{self.offset}>"


def decode(object data, type cls=Record, object topic="", int32_t partition=0, object owner=None, int32_t delivery=1,
           int64_t lo=0, int64_t hi=FARTHEST, object skip=(), object only=None):
    """The records of a fetch reply as objects of `cls`. See pure.decode."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *q
    cdef gq_head head
    cdef int why
    cdef int64_t following = 0, hidden_low = FARTHEST, hidden_end = FARTHEST
    cdef Py_ssize_t hidden = 0, hidden_count, wanted = 0
    cdef list found = [], hides = pairs_of(skip)
    cdef Numbers wants = None if only is None else even(Numbers(only))
    cdef Record made
    if not issubclass(cls, Record):
        raise TypeError("decode makes Records or subclasses of it")
    hidden_count = len(hides)
    if hidden_count:
        hidden_low = hides[0]
        hidden_end = hidden_low + <int64_t>hides[1]
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        end = p + view.len
        while p < end:
            why = parse(p, end - p, &head)
            if why == SHORT:
                break
            if why == OK and head.offset < following:
                why = BAD_OFFSET
            if why:
                raise Corrupt(f"the record at byte {p - <const uint8_t *>view.buf} of a reply for {topic}/{partition} {_WHY[why]}")
            if head.offset >= hi:
                break
            following = head.offset + 1
            while hidden < hidden_count and hidden_end <= head.offset:
                hidden += 2
                if hidden < hidden_count:
                    hidden_low = hides[hidden]
                    hidden_end = hidden_low + <int64_t>hides[hidden + 1]
            if wants is not None:
                while wanted < wants.size and head.offset - wants.at[wanted] >= wants.at[wanted + 1]:
                    wanted += 2
                if wanted >= wants.size:
                    break
                if head.offset < wants.at[wanted]:
                    p += head.total
                    continue
            if head.offset >= lo and not head.flags & CONTROL and not (hidden < hidden_count and hidden_low <= head.offset):
                if not crc_right(p, &head):
                    raise Corrupt(f"the record at byte {p - <const uint8_t *>view.buf} of a reply for {topic}/{partition} "
                                  f"{_WHY[BAD_CRC]}")
                made = <Record>Record.__new__(cls)
                made.topic, made.partition, made.owner, made.delivery = topic, partition, owner, delivery
                made.offset, made.timestamp, made.priority, made.flags = head.offset, head.timestamp, head.priority, head.flags
                q = p + HEADER
                if not head.key_null:
                    made.key = PyBytes_FromStringAndSize(<char *>q, head.key_size)
                q += head.key_size
                if not head.value_null:
                    made._raw_value = PyBytes_FromStringAndSize(<char *>q, head.value_size)
                q += head.value_size
                made._raw_headers = PyBytes_FromStringAndSize(<char *>q, head.headers_size) if head.headers_size else _NOTHING
                found.append(made)
            p += head.total
    finally:
        PyBuffer_Release(&view)
    return found

# Smaller walks over records; checksums; which partition a key belongs to. A part of _codec.pyx.

def find_valid(object data, int64_t start, int64_t min_offset, int64_t max_offset):
    """Position of the next valid record in a range of offsets. See pure.find_valid."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef const uint8_t *hit
    cdef gq_head head
    cdef int64_t at = start if start > 0 else 0, found = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            p = <const uint8_t *>view.buf
            while at < view.len:
                hit = <const uint8_t *>memchr(p + at, 0x47, <size_t>(view.len - at))
                if hit == NULL:
                    break
                at = hit - p
                if parse(hit, view.len - at, &head) == OK and min_offset <= head.offset <= max_offset and crc_right(hit, &head):
                    found = at
                    break
                at += 1
    finally:
        PyBuffer_Release(&view)
    return found


def locate(object data, int64_t start, int64_t offset):
    """Position of the first record at or after `offset`. See pure.locate."""
    cdef Py_buffer view
    cdef gq_head head
    cdef int64_t at = start, found = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            while 0 <= at < view.len:
                parse(<const uint8_t *>view.buf + at, view.len - at, &head)
                if not head.total:
                    break
                if head.offset >= offset:
                    found = at
                    break
                at += head.total
    finally:
        PyBuffer_Release(&view)
    return found


def check(object data):
    """(bytes, count, first offset, next offset) of the valid records `data` begins with. See pure.check."""
    cdef Py_buffer view
    cdef gq_head head
    cdef int64_t at = 0, count = 0, first = -1, following = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            while at < view.len:
                if valid(<const uint8_t *>view.buf + at, view.len - at, &head) or head.offset < following:
                    break
                if first < 0:
                    first = head.offset
                following = head.offset + 1
                count += 1
                at += head.total
    finally:
        PyBuffer_Release(&view)
    return at, count, first, following


def crc32c(object data, uint32_t value=0):
    """CRC-32C of `data`, continuing from `value`."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef uint32_t crc = ~gq_crc_way(~value, <const uint8_t *>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c_table(object data, uint32_t value=0):
    """The same without the processor's help; for tests."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef uint32_t crc = ~gq_crc_soft(~value, <const uint8_t *>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return crc


def partition_of(object key, int64_t count):
    """murmur3 of `key` modulo `count`. See pure.partition_of."""
    cdef Py_buffer view
    cdef uint32_t hashed
    if count <= 0:
        raise BadRecord("a topic has at least one partition")
    if PyBytes_CheckExact(key):
        hashed = gq_murmur3(<const uint8_t *>PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key))
    else:
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        hashed = gq_murmur3(<const uint8_t *>view.buf, <size_t>view.len)
        PyBuffer_Release(&view)
    return (hashed & 0x7FFFFFFF) % count


cdef list pairs_of(object ranges):
    """A copy of flat ranges that nobody else can change, of even length."""
    cdef list copied = list(ranges)
    if len(copied) % 2:
        raise ValueError("flat ranges come in pairs: low, count")
    return copied


cdef Numbers even(Numbers numbers):
    if numbers.size & 1:
        raise ValueError("flat ranges come in pairs: low, count")
    return numbers

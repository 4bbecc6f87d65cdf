# Records of some offsets out of a segment file. A part of _codec.pyx.

cdef struct Points:
    const uint8_t *packed
    int64_t count, base, near          # near: the last point that was asked for


cdef inline bint reaches(const Points *points, int64_t point, int64_t offset) noexcept nogil:
    return point < points.count and points.base + gq_u32(points.packed + point * 8) <= offset


cdef int64_t point_before(Points *points, int64_t offset) noexcept nogil:
    """Number of the last point at or below `offset`, -1 if there is none. Offsets near the last one asked for are found soon."""
    cdef int64_t low = points.near, high, middle, step = 1
    if reaches(points, low, offset):
        while reaches(points, low + step, offset):
            low += step
            step *= 2
        high = min(low + step, points.count)
    else:
        low, high = -1, min(low, points.count)
    while high - low > 1:
        middle = (low + high) // 2
        if reaches(points, middle, offset):
            low = middle
        else:
            high = middle
    points.near = max(low, 0)
    return low


cdef int64_t position_before(Points *points, int64_t offset) noexcept nogil:
    cdef int64_t point = point_before(points, offset)
    return gq_u32(points.packed + point * 8 + 4) if point >= 0 else -1


cdef int64_t position_behind(Points *points, int64_t offset, int64_t end) noexcept nogil:
    """Position of the first point at or above `offset`, at most `end`."""
    cdef int64_t point = point_before(points, offset - 1) + 1
    cdef int64_t position = gq_u32(points.packed + point * 8 + 4) if point < points.count else end
    return position if position < end else end


cdef Py_ssize_t read_at(int fd, char *to, int64_t size, int64_t position) except -1:
    """All of `size` bytes unless the file ends before."""
    cdef Py_ssize_t got, done = 0
    while done < size:
        with nogil:
            got = pread(fd, to + done, <size_t>(size - done), position + done)
        if got < 0:
            if errno == EINTR:
                continue
            PyErr_SetFromErrno(OSError)
        if got == 0:
            break
        done += got
    return done


cdef class Found:
    """Offsets that ascend, as ranges: no more numbers than `size`."""
    cdef Numbers pairs
    cdef Py_ssize_t size, used

    def __cinit__(self, Py_ssize_t size):
        self.pairs = Numbers(_array("q", bytes(8 * size)))
        self.size, self.used = size, 0

    cdef int add(self, int64_t offset) except -1:
        cdef int64_t *last = self.pairs.at + self.used - 2
        if self.used and last[0] + last[1] == offset:
            last[1] += 1
            return 0
        if self.used >= self.size:
            raise AssertionError("more was found than was wanted")
        last[2], last[3] = offset, 1
        self.used += 2
        return 0

    cdef object as_are(self, object ranges):
        """An array if `ranges` is one, else a list."""
        cdef object found = _array("q", PyBytes_FromStringAndSize(<char *>self.pairs.at, self.used * 8))
        return found if isinstance(ranges, _array) else found.tolist()


cdef int64_t AT_ONCE_MAX = 4 * 1024 * 1024      # room made before the first read; more as it is needed


cdef int make_room(PyObject **out, int64_t size) except -1:
    if PyBytes_GET_SIZE(<object>out[0]) < size:
        _PyBytes_Resize(out, size)
    return 0


def gather(int fd, int64_t start_position, int64_t end_position, object ranges, bytes index not None=b"", int64_t base=0,
           int64_t max_bytes=FAR):
    """The records of flat, sorted offset ranges out of a segment file. See pure_gather.gather.

    Spans are read to the end of what was found already, so that a record moves only when something before it was left out."""
    cdef Points points
    cdef Numbers wanted_ranges = even(Numbers(ranges))
    cdef Found found = Found(wanted_ranges.size)
    cdef Py_ssize_t number = 0, following, count = wanted_ranges.size
    cdef int64_t at = start_position, expected = -1, need = 0, used = 0, low, high, jump, stop, length, got, pos
    cdef int64_t bad = -1
    cdef PyObject *out = NULL
    cdef uint8_t *to
    cdef uint8_t *data
    cdef gq_head head
    cdef int why
    cdef bint wanted
    points.packed, points.count, points.base = <const uint8_t *>PyBytes_AS_STRING(index), PyBytes_GET_SIZE(index) // 8, base
    points.near = 0
    max_bytes = min(max_bytes, FAR)
    low = high = 0
    if count:
        low = wanted_ranges.at[0]
        high = low + wanted_ranges.at[1]
    out = _new_bytes(NULL, max(0, min(end_position - at, min(max_bytes, AT_ONCE_MAX) + SLACK)))
    try:
        while number < count and at < end_position and used < max_bytes and bad < 0:
            jump = point_before(&points, low)
            if jump >= 0:
                stop = gq_u32(points.packed + jump * 8 + 4)
                if at < stop < end_position:
                    at, expected = stop, points.base + gq_u32(points.packed + jump * 8)
            stop = position_behind(&points, high, end_position)
            following = number + 2
            while following < count and stop - at < SPAN_MAX:
                jump = wanted_ranges.at[following]
                if position_before(&points, jump) > stop + SLACK:
                    break
                stop = max(stop, position_behind(&points, jump + wanted_ranges.at[following + 1], end_position))
                following += 2
            length = min(max(stop - at, 1), SPAN_MAX, max_bytes - used + SLACK)
            length = min(max(length, need), end_position - at)
            make_room(&out, used + length)
            to = <uint8_t *>_bytes_at(out)
            data = to + used
            got = read_at(fd, <char *>data, length, at)
            if got == 0:
                bad = at
                break
            pos, need = 0, 0
            while pos < got and number < count and used < max_bytes:
                why = parse(data + pos, got - pos, &head)
                if why == SHORT and (pos or got == length < end_position - at):
                    need = head.total if head.total else HEADER
                    break
                if why or (expected >= 0 and head.offset != expected):
                    bad = at + pos
                    break
                while number < count and high <= head.offset:
                    number += 2
                    if number < count:
                        low = wanted_ranges.at[number]
                        high = low + wanted_ranges.at[number + 1]
                wanted = number < count and low <= head.offset
                if (wanted or expected < 0) and not crc_right(data + pos, &head):
                    bad = at + pos
                    break
                if wanted:
                    if data + pos != to + used:
                        memmove(to + used, data + pos, <size_t>head.total)
                    used += head.total
                    found.add(head.offset)
                expected = head.offset + 1
                pos += head.total
            at += pos
        _PyBytes_Resize(&out, used)
        return Gathered(<object>out, found.as_are(ranges), bad)
    finally:
        Py_XDECREF(out)

# Columns, for Arrow. A part of _codec.pyx.

cdef struct Binary:
    int32_t *ends
    uint8_t *data
    int64_t used, size, count


cdef inline void fill(Binary *column, const uint8_t *piece, int64_t size) noexcept nogil:
    memcpy(column.data + column.used, piece, <size_t>size)
    column.used += size
    column.count += 1
    column.ends[column.count] = <int32_t>column.used


cdef class _Asked:
    """Which records columns() takes."""

    cdef int64_t lo, hi
    cdef int without
    cdef Numbers hides
    cdef Py_ssize_t hidden

    cdef inline bint takes(self, const gq_head *head) noexcept nogil:
        """Offsets must ascend from call to call."""
        cdef const int64_t *hides = self.hides.at
        while self.hidden < self.hides.size and hides[self.hidden] + hides[self.hidden + 1] <= head.offset:
            self.hidden += 2
        return head.offset >= self.lo and not head.flags & self.without \
            and not (self.hidden < self.hides.size and hides[self.hidden] <= head.offset)


cdef struct Sums:
    int64_t at, following, rows, key, value, headers, name, content


cdef int headers_into(const uint8_t *p, int count, Sums *sums, Binary *names, Binary *contents) noexcept nogil:
    """Of a section with `count` headers the app's: measured into `sums`, or copied where there is room for it."""
    cdef int number, found = 0, name_size, value_size
    p += 2
    for number in range(count):
        name_size = gq_u16(p)
        value_size = gq_u16(p + 2 + name_size)
        if name_size < 3 or memcmp(p + 2, b"gq-", 3) != 0:
            found += 1
            if sums != NULL:
                sums.name += name_size
                sums.content += value_size
            elif names.used + name_size > names.size or contents.used + value_size > contents.size:
                return -1
            else:
                fill(names, p + 2, name_size)
                fill(contents, p + 4 + name_size, value_size)
        p += 4 + name_size + value_size
    if sums != NULL:
        sums.headers += found
    return found


cdef int measure(const uint8_t *p, int64_t size, _Asked asked, Sums *sums) except -1:
    """Counts records and bytes up to sums.at; OK, or what is wrong there."""
    cdef gq_head head
    cdef int why, count
    while sums.at < size:
        why = parse(p + sums.at, size - sums.at, &head)
        if why == SHORT:
            break
        if why == OK and head.offset < sums.following:
            why = BAD_OFFSET
        if why:
            return why
        if head.offset >= asked.hi:
            break
        sums.following = head.offset + 1
        if asked.takes(&head):
            if not crc_right(p + sums.at, &head):
                return BAD_CRC
            if head.headers_size:
                count = split(p + sums.at + head.total - head.headers_size, head.headers_size)
                if not count:
                    return BAD_HEADERS
                headers_into(p + sums.at + head.total - head.headers_size, count, sums, NULL, NULL)
            sums.rows += 1
            sums.key += head.key_size
            sums.value += head.value_size
        sums.at += head.total
    return OK


cdef inline bytes room(int64_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef inline bytes blank(int64_t size):
    cdef bytes made = room(size)
    memset(PyBytes_AS_STRING(made), 0, <size_t>size)
    return made


cdef inline list binary_of(Binary *column, int64_t count, int64_t size):
    """[offsets, data] for `count` pieces."""
    cdef list made = [room(4 * count + 4), room(size)]
    column.ends, column.data = <int32_t *>PyBytes_AS_STRING(made[0]), <uint8_t *>PyBytes_AS_STRING(made[1])
    column.ends[0], column.used, column.size, column.count = 0, 0, size, 0
    return made


def columns(object data, int64_t lo=0, int64_t hi=FARTHEST, object skip=(), int without=CONTROL):
    """A stretch of log as Arrow-ready buffers. See pure_columns.columns.

    Two passes: one checks and measures, one copies into buffers of exactly that size. `data` must not change in between; the bounds
    are checked again all the same."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef gq_head head
    cdef Sums sums
    cdef int64_t at = 0, row = 0, from_, listed = 0
    cdef int why, found
    cdef Binary key, value, name, content
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef int32_t *lists
    cdef uint8_t *priorities
    cdef uint8_t *flags
    cdef uint8_t *valid[3]
    cdef _Asked asked = _Asked.__new__(_Asked)
    asked.lo, asked.hi, asked.without, asked.hides = lo, hi, without, Numbers(skip)
    if asked.hides.size & 1:
        raise ValueError("flat ranges come in pairs: low, count")
    memset(&sums, 0, sizeof(Sums))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        why = measure(p, view.len, asked, &sums)
        if why:
            raise Corrupt(f"the record at byte {sums.at} {_WHY[why]}")
        if max(sums.key, sums.value, sums.name, sums.content) > 2**31 - 1:
            raise TooLarge("a column holds at most 2 GiB: ask for fewer records")
        fixed = [room(8 * sums.rows), room(8 * sums.rows), room(sums.rows), room(sums.rows), room(4 * sums.rows + 4)]
        valids = [blank((sums.rows + 7) // 8) for _ in range(3)]
        keys, values = binary_of(&key, sums.rows, sums.key), binary_of(&value, sums.rows, sums.value)
        names, contents = binary_of(&name, sums.headers, sums.name), binary_of(&content, sums.headers, sums.content)
        offsets, timestamps = <int64_t *>PyBytes_AS_STRING(fixed[0]), <int64_t *>PyBytes_AS_STRING(fixed[1])
        priorities, flags = <uint8_t *>PyBytes_AS_STRING(fixed[2]), <uint8_t *>PyBytes_AS_STRING(fixed[3])
        lists = <int32_t *>PyBytes_AS_STRING(fixed[4])
        lists[0] = 0
        for found in range(3):
            valid[found] = <uint8_t *>PyBytes_AS_STRING(valids[found])
        asked.hidden = 0
        while row < sums.rows and at < view.len and parse(p + at, view.len - at, &head) == OK:
            if head.offset < hi and asked.takes(&head):
                if key.used + head.key_size > key.size or value.used + head.value_size > value.size:
                    break
                offsets[row], timestamps[row] = head.offset, head.timestamp
                priorities[row], flags[row] = head.priority, head.flags
                from_ = at + HEADER
                fill(&key, p + from_, head.key_size)
                fill(&value, p + from_ + head.key_size, head.value_size)
                valid[0][row >> 3] |= <uint8_t>((not head.key_null) << (row & 7))
                valid[1][row >> 3] |= <uint8_t>((not head.value_null) << (row & 7))
                if head.headers_size:
                    from_ = at + head.total - head.headers_size
                    found = split(p + from_, head.headers_size)
                    found = headers_into(p + from_, found, NULL, &name, &content)
                    if found < 0:
                        break
                    listed += found
                    valid[2][row >> 3] |= <uint8_t>((found > 0) << (row & 7))
                row += 1
                lists[row] = <int32_t>listed
            at += head.total
        if row != sums.rows or listed != sums.headers:
            raise Corrupt("the records changed while they were read")
        return Columns(sums.at, sums.following, sums.rows, sums.headers, fixed[0], fixed[1], fixed[2], fixed[3],
                       keys[0], keys[1], valids[0], values[0], values[1], valids[1], fixed[4], valids[2],
                       names[0], names[1], contents[0], contents[1])
    finally:
        PyBuffer_Release(&view)

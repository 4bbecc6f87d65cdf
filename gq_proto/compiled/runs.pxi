# The run index, packed. A part of _codec.pyx.

def extend_runs(bytearray packed not None, int64_t base, object runs):
    """Append flat runs to packed ones. See pure_runs.extend_runs."""
    cdef list flat = list(runs)
    cdef Py_ssize_t at, size
    cdef int64_t offset, count, kind
    cdef uint8_t *p
    cdef uint8_t entry[9]
    if len(flat) % 3:
        raise ValueError("flat runs come in threes: offset, count, kind")
    for at in range(0, len(flat), 3):
        offset, count, kind = flat[at], flat[at + 1], flat[at + 2]
        offset -= base
        size = len(packed)
        if size >= 9:
            p = <uint8_t *>PyByteArray_AS_STRING(packed) + size - 9
            if p[8] == kind and <int64_t>gq_u32(p) + gq_u32(p + 4) == offset:
                gq_put32(p + 4, <uint32_t>(gq_u32(p + 4) + count))
                continue
        gq_put32(entry, <uint32_t>offset)
        gq_put32(entry + 4, <uint32_t>count)
        entry[8] = <uint8_t>kind
        packed += PyBytes_FromStringAndSize(<char *>entry, 9)


cdef inline int64_t run_holding(const uint8_t *p, int64_t count, int64_t relative) noexcept nogil:
    """Of `count` runs the last that begins at or before an offset; the first when none does."""
    cdef int64_t first = 0, last = count, middle
    while first < last:
        middle = (first + last) // 2
        if <int64_t>gq_u32(p + middle * 9) <= relative:
            first = middle + 1
        else:
            last = middle
    return first - 1 if first else 0


def select_runs(object packed, int64_t base, int64_t low, int64_t high, int64_t lane=-1, int64_t limit=FAR):
    """Runs of a lane in [low, high). See pure_runs.select_runs."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t run, count, offset, start, end, following = low, found = 0
    cdef int64_t last_start = -1, last_end = -1
    cdef int kind, last_kind = -1
    cdef list out = []
    PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        count = view.len // 9
        for run in range(run_holding(p, count, low - base), count):
            offset = base + gq_u32(p + run * 9)
            start = max(offset, low)
            end = min(offset + gq_u32(p + run * 9 + 4), high)
            if offset >= high or found >= limit:
                break
            if start >= end:
                continue
            following = end
            kind = p[run * 9 + 8]
            if lane == -2:
                kind &= 0x30
            if kind == last_kind and last_end == start:
                last_end = end
            elif lane < 0 or (kind & 7) == lane or kind & 0x20:
                if found:
                    out[found * 3 - 2] = last_end - last_start
                out.append(start)
                out.append(0)
                out.append(kind)
                found += 1
                last_kind, last_start, last_end = kind, start, end
        if found:
            out[found * 3 - 2] = last_end - last_start
    finally:
        PyBuffer_Release(&view)
    return out, following


def lane_ranges(object packed, int64_t base, int64_t low, int64_t high, int64_t lane, int64_t limit=FAR):
    """Plain records of one priority in [low, high). See pure_runs.lane_ranges."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t run, count, start, end, last = -1, found = 0
    cdef int64_t *out = NULL
    PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        count = view.len // 9
        limit = min(limit, count)
        out = <int64_t *>PyMem_Malloc(max(limit, 1) * 16)
        if out == NULL:
            raise MemoryError
        for run in range(run_holding(p, count, low - base), count):
            start = base + gq_u32(p + run * 9)
            if start >= high:
                break
            if (p[run * 9 + 8] & 0x37) == lane:
                end = min(start + gq_u32(p + run * 9 + 4), high)
                start = max(start, low)
                if start < end:
                    if found and out[2 * found - 2] + out[2 * found - 1] == start:
                        out[2 * found - 1] += end - start
                    elif found >= limit:
                        break
                    else:
                        out[2 * found], out[2 * found + 1] = start, end - start
                        found += 1
            last = run
        if last >= 0:
            low = max(low, min(base + gq_u32(p + last * 9) + gq_u32(p + last * 9 + 4), high))
        return _array("q", PyBytes_FromStringAndSize(<char *>out, found * 16)), low
    finally:
        PyMem_Free(out)
        PyBuffer_Release(&view)


def lane_counts(object packed, int64_t base, int64_t low, int64_t high):
    """Plain records per priority. See pure_runs.lane_counts."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t run, count, start, end
    cdef int64_t counts[8]
    cdef int kind
    memset(counts, 0, sizeof(counts))
    PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        count = view.len // 9
        for run in range(run_holding(p, count, low - base), count):
            start = base + gq_u32(p + run * 9)
            if start >= high:
                break
            end = min(start + gq_u32(p + run * 9 + 4), high)
            start = max(start, low)
            kind = p[run * 9 + 8]
            if start < end and not kind & 0x30:
                counts[kind & 7] += end - start
    finally:
        PyBuffer_Release(&view)
    return [counts[0], counts[1], counts[2], counts[3], counts[4]]


def lane_totals(object packed):
    """Records and first offset per priority. See pure_runs.lane_totals."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t run
    cdef int64_t counts[8]
    cdef int64_t firsts[8]
    cdef int kind, lane
    for lane in range(8):
        counts[lane], firsts[lane] = 0, -1
    PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        for run in range(view.len // 9):
            kind = p[run * 9 + 8]
            lane = kind & 7
            if not kind & 0x20:
                counts[lane] += gq_u32(p + run * 9 + 4)
                if firsts[lane] < 0:
                    firsts[lane] = gq_u32(p + run * 9)
    finally:
        PyBuffer_Release(&view)
    return [(counts[lane], firsts[lane]) for lane in range(5)]


def lanes_within(object packed, int64_t base, list ranges):
    """Which lanes the records of some ranges are of. See pure_runs.lanes_within."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t run, count, low, high, start, end, last_start, last_end
    cdef Py_ssize_t at
    cdef int lane, last_lane
    cdef list out = []
    PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        count = view.len // 9
        for at in range(0, len(ranges), 2):
            low = ranges[at]
            high = low + <int64_t>ranges[at + 1]
            last_start = last_end = last_lane = -1
            for run in range(run_holding(p, count, low - base), count):
                start = base + gq_u32(p + run * 9)
                if start >= high:
                    break
                end = min(start + gq_u32(p + run * 9 + 4), high)
                start = max(start, low)
                if start >= end:
                    continue
                lane = p[run * 9 + 8] & 7
                if lane != last_lane or start != last_end:
                    if last_lane >= 0:
                        out.append(last_start)
                        out.append(last_end - last_start)
                        out.append(last_lane)
                    last_start, last_lane = start, lane
                last_end = end
            if last_lane >= 0:
                out.append(last_start)
                out.append(last_end - last_start)
                out.append(last_lane)
    finally:
        PyBuffer_Release(&view)
    return out

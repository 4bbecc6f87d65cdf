# Flat ranges of offsets. A part of _codec.pyx.

cdef class Numbers:
    """Integers of a sequence, held as 64 bits; OverflowError or TypeError for what is none. Arrays of 64 bits are copied whole."""
    cdef int64_t *at
    cdef Py_ssize_t size

    def __cinit__(self, object numbers):
        cdef object items = numbers if isinstance(numbers, (list, tuple, _array)) else list(numbers)
        cdef Py_ssize_t number
        cdef Py_buffer view
        if isinstance(items, _array) and items.typecode not in "qQ":
            items = list(items)
        self.size = len(items)
        self.at = <int64_t *>PyMem_Malloc(max(self.size, 1) * sizeof(int64_t))
        if self.at == NULL:
            raise MemoryError
        if isinstance(items, _array):
            PyObject_GetBuffer(items, &view, PyBUF_SIMPLE)
            memcpy(self.at, view.buf, self.size * sizeof(int64_t))
            PyBuffer_Release(&view)
        elif isinstance(items, list):
            for number in range(self.size):
                self.at[number] = (<list>items)[number]
        else:
            for number in range(self.size):
                self.at[number] = (<tuple>items)[number]

    def __dealloc__(self):
        PyMem_Free(self.at)


cdef Numbers flat_of(object ranges):
    cdef Numbers numbers = Numbers(ranges)
    if numbers.size & 1:
        raise IndexError("flat ranges come in pairs: low, count")
    return numbers


cdef class Out:
    """Canonical ranges that grow at the end."""
    cdef list pairs
    cdef int64_t low, end

    def __cinit__(self):
        self.pairs = []
        self.low = self.end = -1

    cdef int add(self, int64_t low, int64_t end) except -1:
        if low >= end:
            return 0
        if self.low >= 0 and low <= self.end:
            self.end = max(self.end, end)
        else:
            self.flush()
            self.low, self.end = low, end
        return 0

    cdef int flush(self) except -1:
        if self.low >= 0:
            self.pairs.append(self.low)
            self.pairs.append(self.end - self.low)
        return 0

    cdef list done(self):
        self.flush()
        return self.pairs


cdef int by_value(const void *one, const void *other) noexcept nogil:
    cdef int64_t a = (<const int64_t *>one)[0], b = (<const int64_t *>other)[0]
    return (a > b) - (a < b)


def ranges_ascend(object ranges):
    """See pure_ranges.ranges_ascend."""
    cdef Numbers numbers
    cdef Py_ssize_t at
    cdef int64_t end = 0
    try:
        numbers = Numbers(ranges)
    except OverflowError:
        return False
    if numbers.size & 1:
        return False
    for at in range(0, numbers.size, 2):
        if numbers.at[at] < end or numbers.at[at + 1] <= 0 or numbers.at[at + 1] > FAR_END - numbers.at[at]:
            return False
        end = numbers.at[at] + numbers.at[at + 1]
    return True


def ranges_of(object offsets):
    """See pure_ranges.ranges_of."""
    cdef Numbers numbers = Numbers(offsets)
    cdef Py_ssize_t at
    cdef int64_t low, end
    cdef list out = []
    for at in range(1, numbers.size):
        if numbers.at[at] <= numbers.at[at - 1]:
            qsort(numbers.at, numbers.size, sizeof(int64_t), by_value)
            break
    if not numbers.size:
        return out
    low, end = numbers.at[0], numbers.at[0] + 1
    for at in range(1, numbers.size):
        if numbers.at[at] < end:
            continue
        if numbers.at[at] > end:
            out.append(low)
            out.append(end - low)
            low = numbers.at[at]
        end = numbers.at[at] + 1
    out.append(low)
    out.append(end - low)
    return out


def ranges_offsets(object ranges):
    """See pure_ranges.ranges_offsets."""
    cdef Numbers numbers = flat_of(ranges)
    cdef Py_ssize_t at
    cdef int64_t offset
    cdef list out = []
    for at in range(0, numbers.size, 2):
        for offset in range(numbers.at[at], numbers.at[at] + numbers.at[at + 1]):
            out.append(offset)
    return out


def ranges_are(object ranges, list offsets not None):
    """See pure_ranges.ranges_are."""
    cdef Numbers numbers = flat_of(ranges)
    cdef Py_ssize_t at, number = 0, count = len(offsets)
    cdef int64_t offset, wanted = 0
    for at in range(0, numbers.size, 2):
        wanted += numbers.at[at + 1]
    if wanted != count:
        return False
    for at in range(0, numbers.size, 2):
        for offset in range(numbers.at[at], numbers.at[at] + numbers.at[at + 1]):
            if number >= count or <int64_t>offsets[number] != offset:
                return False
            number += 1
    return number == count


def ranges_count(object ranges):
    """See pure_ranges.ranges_count."""
    cdef Numbers numbers = flat_of(ranges)
    cdef Py_ssize_t at
    cdef int64_t count = 0
    for at in range(0, numbers.size, 2):
        if numbers.at[at + 1] > FAR_END - max(count, 0):
            raise OverflowError("more than 63 bits of offsets")
        count += numbers.at[at + 1]
    return count


def ranges_head(object ranges, int64_t most):
    """See pure_ranges.ranges_head."""
    cdef Numbers numbers = flat_of(ranges)
    cdef Py_ssize_t at
    cdef list out = []
    if isinstance(ranges, _array):
        at = 0
        while at < numbers.size and most > 0:
            numbers.at[at + 1] = min(most, numbers.at[at + 1])
            most -= numbers.at[at + 1]
            at += 2
        return _array("q", PyBytes_FromStringAndSize(<char *>numbers.at, at * 8))
    for at in range(0, numbers.size, 2):
        if most <= 0:
            break
        out.append(numbers.at[at])
        out.append(min(most, numbers.at[at + 1]))
        most -= numbers.at[at + 1]
    return out


def ranges_tail(object ranges, int64_t passed):
    """See pure_ranges.ranges_tail."""
    cdef Numbers numbers = flat_of(ranges)
    cdef Py_ssize_t at
    cdef int64_t step
    cdef list out = []
    for at in range(0, numbers.size, 2):
        step = min(max(passed, 0), numbers.at[at + 1])
        passed -= step
        if step < numbers.at[at + 1]:
            out.append(numbers.at[at] + step)
            out.append(numbers.at[at + 1] - step)
    return out


def ranges_find(object ranges, int64_t offset):
    """See pure_ranges.ranges_find."""
    cdef Numbers numbers = flat_of(ranges)
    cdef Py_ssize_t at
    cdef int64_t before = 0
    for at in range(0, numbers.size, 2):
        if numbers.at[at] <= offset < numbers.at[at] + numbers.at[at + 1]:
            return before + offset - numbers.at[at]
        before += numbers.at[at + 1]
    return -1


def ranges_intersect(object one, object other):
    """See pure_ranges.ranges_intersect."""
    cdef Numbers a = flat_of(one), b = flat_of(other)
    cdef Py_ssize_t i = 0, j = 0
    cdef int64_t a_end, b_end
    cdef Out out = Out()
    while i < a.size and j < b.size:
        a_end, b_end = a.at[i] + a.at[i + 1], b.at[j] + b.at[j + 1]
        out.add(max(a.at[i], b.at[j]), min(a_end, b_end))
        if a_end <= b_end:
            i += 2
        else:
            j += 2
    return out.done()


def ranges_subtract(object one, object other):
    """See pure_ranges.ranges_subtract."""
    cdef Numbers a = flat_of(one), b = flat_of(other)
    cdef Py_ssize_t i, j = 0, k
    cdef int64_t low, end
    cdef Out out = Out()
    for i in range(0, a.size, 2):
        low, end = a.at[i], a.at[i] + a.at[i + 1]
        while j < b.size and b.at[j] + b.at[j + 1] <= low:
            j += 2
        k = j
        while k < b.size and b.at[k] < end:
            out.add(low, b.at[k])
            low = max(low, b.at[k] + b.at[k + 1])
            k += 2
        out.add(low, end)
    return out.done()


def ranges_union(object one, object other):
    """See pure_ranges.ranges_union."""
    cdef Numbers a = flat_of(one), b = flat_of(other)
    cdef Py_ssize_t i = 0, j = 0
    cdef Out out = Out()
    while i < a.size or j < b.size:
        if j >= b.size or (i < a.size and a.at[i] <= b.at[j]):
            out.add(a.at[i], a.at[i] + a.at[i + 1])
            i += 2
        else:
            out.add(b.at[j], b.at[j] + b.at[j + 1])
            j += 2
    return out.done()


cdef struct Container:
    uint32_t bucket, key, count, runs, first, packed     # first: of its runs


cdef inline uint8_t *put16(uint8_t *p, uint32_t value) noexcept nogil:
    p[0], p[1] = value & 0xFF, value >> 8 & 0xFF
    return p + 2


cdef inline uint8_t *put32(uint8_t *p, uint32_t value) noexcept nogil:
    return put16(put16(p, value & 0xFFFF), value >> 16)


def ranges_roaring(object ranges):
    """See pure_ranges.ranges_roaring. ValueError for ranges that do not ascend."""
    cdef Numbers numbers = flat_of(ranges)
    cdef int64_t low, high, end, last = -1, room = numbers.size // 2
    cdef Py_ssize_t at, size = 0, number = 0, of = -1, buckets = 0, total = 8
    cdef uint32_t *runs = NULL
    cdef Container *found = NULL
    cdef Container *c
    cdef bytes out
    for at in range(0, numbers.size, 2):
        low, end = numbers.at[at], numbers.at[at] + numbers.at[at + 1]
        if low < max(last, 0) or end <= low:
            raise ValueError("ranges must ascend")
        last = end
        room += (end - 1 >> 16) - (low >> 16)
    if room > 0x1000000:
        raise ValueError("ranges span too much")
    runs = <uint32_t *>PyMem_Malloc((room + 1) * sizeof(uint32_t))
    found = <Container *>PyMem_Malloc((room + 1) * sizeof(Container))
    try:
        if runs == NULL or found == NULL:
            raise MemoryError
        for at in range(0, numbers.size, 2):
            low, end = numbers.at[at], numbers.at[at] + numbers.at[at + 1]
            while low < end:
                high = min(end, (low | 0xFFFF) + 1)
                if of < 0 or found[of].bucket != <uint32_t>(low >> 32) or found[of].key != <uint32_t>(low >> 16 & 0xFFFF):
                    of += 1
                    found[of].bucket, found[of].key = <uint32_t>(low >> 32), <uint32_t>(low >> 16 & 0xFFFF)
                    found[of].count, found[of].runs, found[of].first = 0, 0, <uint32_t>number
                if found[of].runs and (runs[number - 1] & 0xFFFF) + 1 == (low & 0xFFFF):
                    runs[number - 1] = (runs[number - 1] & 0xFFFF0000) | <uint32_t>(high - 1 & 0xFFFF)
                else:
                    runs[number] = <uint32_t>((low & 0xFFFF) << 16 | (high - 1 & 0xFFFF))
                    number += 1
                    found[of].runs += 1
                found[of].count += <uint32_t>(high - low)
                low = high
        size = of + 1
        for at in range(size):
            c = &found[at]
            c.packed = c.count > 4096 or 2 * c.runs < c.count
            total += 12 + (2 + 4 * c.runs if c.packed else 2 * c.count)
            if at == 0 or found[at - 1].bucket != c.bucket:
                total += 12
                buckets += 1
        out = PyBytes_FromStringAndSize(NULL, total)
        total = write_roaring(<uint8_t *>PyBytes_AS_STRING(out), found, size, buckets, runs)
        return out[:total]
    finally:
        PyMem_Free(runs)
        PyMem_Free(found)


cdef Py_ssize_t write_roaring(uint8_t *start, const Container *found, Py_ssize_t size, Py_ssize_t buckets,
                              const uint32_t *runs) noexcept nogil:
    cdef uint8_t *p = start
    cdef uint8_t *head
    cdef Py_ssize_t at = 0, end, number, run, any_packed
    cdef uint32_t member, position
    p = put32(put32(p, <uint32_t>buckets), 0)
    while at < size:
        end, any_packed = at, 0
        while end < size and found[end].bucket == found[at].bucket:
            any_packed |= found[end].packed
            end += 1
        p = put32(p, found[at].bucket)
        head = p
        if any_packed:
            p = put32(p, <uint32_t>(12347 | (end - at - 1) << 16))
            memset(p, 0, (end - at + 7) // 8)
            for number in range(end - at):
                if found[at + number].packed:
                    p[number >> 3] |= <uint8_t>(1 << (number & 7))
            p += (end - at + 7) // 8
        else:
            p = put32(put32(p, 12346), <uint32_t>(end - at))
        for number in range(at, end):
            p = put16(put16(p, found[number].key), found[number].count - 1)
        if not any_packed or end - at >= 4:
            position = <uint32_t>(p - head + 4 * (end - at))
            for number in range(at, end):
                p = put32(p, position)
                position += 2 + 4 * found[number].runs if found[number].packed else 2 * found[number].count
        for number in range(at, end):
            if found[number].packed:
                p = put16(p, found[number].runs)
            for run in range(found[number].first, found[number].first + found[number].runs):
                if found[number].packed:
                    p = put16(put16(p, runs[run] >> 16), (runs[run] & 0xFFFF) - (runs[run] >> 16))
                else:
                    for member in range(runs[run] >> 16, (runs[run] & 0xFFFF) + 1):
                        p = put16(p, member)
        at = end
    return p - start


def runs_by_lane(object runs):
    """See pure_runs.runs_by_lane."""
    cdef Numbers numbers = Numbers(runs)
    cdef Py_ssize_t at
    cdef int64_t low, end, kind
    cdef Out plain = Out()
    cdef list lanes = [Out(), Out(), Out(), Out(), Out()]
    for at in range(0, numbers.size - 2, 3):
        kind = numbers.at[at + 2]
        if kind & 0x30:
            continue
        low, end = numbers.at[at], numbers.at[at] + numbers.at[at + 1]
        plain.add(low, end)
        (<Out>lanes[min(kind & 7, 4)]).add(low, end)
    return plain.done(), [(<Out>out).done() for out in lanes]

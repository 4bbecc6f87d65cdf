# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, auto_pickle=False
"""The record codec, compiled. `gq_proto.pure` is its specification: same names, results, errors and bytes.

Memory safety: every read is preceded by a check of the bytes left (`parse` for a record, `split` for its headers); sums of lengths
are 64 bits wide and cannot wrap. Buffers are held for the length of a call. A frame being stamped is not trusted twice: what
was read before a Python callback is not read again after it.
"""

from array import array as _array

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset
from posix.types cimport off_t

from gq_proto import limits as _limits
from gq_proto import record as _r
from gq_proto.compression import compress, decompress
from gq_proto.errors import BadRecord, Corrupt, TooLarge, UnknownPartition
from gq_proto.found import Batch, Columns, FoundBatch, FoundControl, Gathered, OpenBatch, Scan, Stamped

cdef extern from "_codec.h" nogil:
    uint16_t gq_u16(const uint8_t *p)
    uint32_t gq_u32(const uint8_t *p)
    uint64_t gq_u64(const uint8_t *p)
    void gq_put16(uint8_t *p, uint16_t v)
    void gq_put32(uint8_t *p, uint32_t v)
    void gq_put64(uint8_t *p, uint64_t v)
    uint32_t (*gq_crc_way)(uint32_t, const uint8_t *, size_t)
    const char *gq_crc_name
    void gq_crc_init()
    uint32_t gq_crc_soft(uint32_t crc, const uint8_t *p, size_t n)
    uint32_t gq_crc_body(const uint8_t *p, uint64_t total)
    uint32_t gq_crc_stamp(uint32_t state, const uint8_t *p)
    uint32_t gq_murmur3(const uint8_t *p, size_t n)
    ctypedef struct gq_head:
        uint8_t flags, priority, codec, key_null, value_null
        uint32_t crc, key_size, value_size, headers_size
        int64_t offset, timestamp
        uint64_t total

cdef extern from "unistd.h" nogil:
    Py_ssize_t pread(int fd, void *buf, size_t count, off_t offset)

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t newsize) except -1
    PyObject *_new_bytes "PyBytes_FromStringAndSize"(const char *v, Py_ssize_t len) except NULL
    char *_bytes_at "PyBytes_AS_STRING"(PyObject *o)

gq_crc_init()

NAME = "compiled"
CRC_WAY = gq_crc_name.decode()

cdef enum:
    HEADER = 34
    COMPRESSED = 0x01
    DELAYED = 0x04
    CONTROL = 0x08
    COMMIT = 0x10
    BATCH = 0x20
    FLAGS_KNOWN = 0x3F
    KIND_FLAGS = 0x1E
    KEY_NULL = 0xFFFF
    ENTRY_MIN = 6
    BATCH_ENTRY = 30
    OK = 0
    SHORT = 1
    BAD_MAGIC = 2
    BAD_VERSION = 3
    BAD_FLAGS = 4
    BAD_PRIORITY = 5
    BAD_CODEC = 6
    BAD_LENGTH = 7
    BAD_TIMESTAMP = 8
    BAD_CRC = 9
    BAD_OFFSET = 10
    BAD_HEADERS = 11
    BAD_ORDER = 12
    BAD_BATCH = 13
    BAD_DELAY = 14
    FORBIDDEN_CONTROL = 15
    FORBIDDEN_HEADER = 16
    LONG_VALUE = 17
    LONG_HEADERS = 18
    LONG_BATCH = 19
    SKEWED = 20
    LONG_DELAY = 21
    EMPTY = 22

cdef uint32_t VALUE_NULL = 0xFFFFFFFF
cdef int64_t TIMESTAMP_MAX = _r.TIMESTAMP_MAX
cdef uint32_t VALUE_CEILING = _limits.VALUE_CEILING
cdef uint32_t PRIORITIES = _limits.PRIORITIES
cdef int64_t KEY_MAX = _limits.KEY_MAX
cdef int64_t HEADERS_MAX = _limits.HEADERS_MAX
cdef int64_t USER_HEADERS_MAX = _limits.USER_HEADERS_MAX
cdef int64_t HEADER_COUNT_MAX = _limits.HEADER_COUNT_MAX
cdef int64_t BATCH_MESSAGES_MAX = _limits.BATCH_MESSAGES_MAX
cdef int64_t BATCH_BYTES_MAX = _limits.BATCH_BYTES_MAX
cdef int64_t SKEW_MAX = _limits.TIMESTAMP_SKEW_US_MAX
cdef int64_t SPAN_MAX = _limits.SPAN_BYTES_MAX
cdef int64_t DELAY_US_MAX = _limits.DELAY_MS_MAX * 1000
cdef int64_t SLACK = 64 * 1024
cdef int64_t VALUE_MAX = _limits.VALUE_MAX
cdef int64_t INDEX_INTERVAL = _limits.INDEX_INTERVAL_BYTES
cdef int64_t TIME_INTERVAL_US = _limits.TIME_INDEX_INTERVAL_MS * 1000
cdef int64_t FAR = 2**62
cdef int64_t FAR_END = 0x7FFFFFFFFFFFFFFF
cdef int64_t FARTHEST = 2**63 - 1
cdef const uint8_t *BATCH_START = <const uint8_t *>b"\x00\x08gq-batch\x00\x12"

assert _r.HEADER_SIZE == HEADER and _r.EMPTY == EMPTY and _r.BATCH_ENTRY_SIZE == BATCH_ENTRY
assert _r.LONG_DELAY == LONG_DELAY and _r.BAD_CRC == BAD_CRC and _r.FORBIDDEN_CONTROL == FORBIDDEN_CONTROL

cdef object _violation = _r.violation
cdef tuple _WHY = _r.WHY
cdef bytes _NOTHING = b""


# -- one record ---------------------------------------------------------------------------------------------------------------

cdef inline int parse(const uint8_t *p, int64_t left, gq_head *head) noexcept nogil:
    """OK or what is wrong, checked in the order of pure_walk.parse. head.total is 0 when the header is not one."""
    cdef uint32_t key, value
    cdef uint8_t control, compressed
    head.total = 0
    if left < HEADER:
        return SHORT
    if p[0] != 0x47 or p[1] != 0x51:
        return BAD_MAGIC
    if p[2] != 1:
        return BAD_VERSION
    head.flags = p[3]
    control = head.flags & CONTROL
    compressed = head.flags & COMPRESSED
    if head.flags & ~FLAGS_KNOWN or (head.flags & COMMIT and not control) or (control and head.flags & (COMPRESSED | DELAYED)):
        return BAD_FLAGS
    head.priority = p[24]
    if head.priority >= PRIORITIES:
        return BAD_PRIORITY
    head.codec = p[25]
    if head.codec > 1 or (head.codec == 1) != (compressed != 0):
        return BAD_CODEC
    head.timestamp = <int64_t>gq_u64(p + 16)
    if head.timestamp < 0 or head.timestamp > TIMESTAMP_MAX:
        return BAD_TIMESTAMP
    head.offset = <int64_t>gq_u64(p + 8)
    if head.offset < 0:
        return BAD_OFFSET
    key = gq_u16(p + 26)
    value = gq_u32(p + 28)
    head.headers_size = gq_u16(p + 32)
    if value != VALUE_NULL and value > VALUE_CEILING:
        return BAD_LENGTH
    if 0 < head.headers_size < ENTRY_MIN or (value == VALUE_NULL and (compressed or control)) or (control and key != 4):
        return BAD_LENGTH
    head.crc = gq_u32(p + 4)
    head.key_null = key == KEY_NULL
    head.value_null = value == VALUE_NULL
    head.key_size = 0 if head.key_null else key
    head.value_size = 0 if head.value_null else value
    head.total = <uint64_t>HEADER + head.key_size + head.value_size + head.headers_size
    return OK if <int64_t>head.total <= left else SHORT


cdef inline bint crc_right(const uint8_t *p, const gq_head *head) noexcept nogil:
    return gq_crc_stamp(gq_crc_body(p, head.total), p) == head.crc


cdef inline int valid(const uint8_t *p, int64_t left, gq_head *head) noexcept nogil:
    cdef int why = parse(p, left, head)
    if why == OK and not crc_right(p, head):
        why = BAD_CRC
    return why


cdef struct Said:
    bint batch
    int delay
    bint system
    int64_t producer_id, user_size, due
    int32_t epoch, base_sequence
    uint32_t count


cdef int split(const uint8_t *p, int64_t size) except -1:
    """How many headers the section has; 0 when it is malformed."""
    cdef int64_t at = 2, name_end, value_end
    cdef uint32_t number, count
    if size < ENTRY_MIN:
        return 0
    count = gq_u16(p)
    for number in range(count):
        if size - at < 2:
            return 0
        name_end = at + 2 + gq_u16(p + at)
        if size - name_end < 2:
            return 0
        value_end = name_end + 2 + gq_u16(p + name_end)
        if value_end > size:
            return 0
        if not is_utf8(p + at + 2, name_end - at - 2):
            return 0
        at = value_end
    return count if at == size else 0


cdef int is_utf8(const uint8_t *p, int64_t size) except -1:
    cdef int64_t at
    for at in range(size):
        if p[at] >= 0x80:
            break
    else:
        return 1
    try:
        PyUnicode_DecodeUTF8(<char *>p, size, NULL)
    except UnicodeDecodeError:
        return 0
    return 1


cdef inline bint same(const uint8_t *p, int64_t size, const char *word, int64_t word_size) noexcept nogil:
    return size == word_size and memcmp(p, word, <size_t>size) == 0


cdef int section(const uint8_t *p, const gq_head *head, Said *said) except -1:
    """What the header section of the record at `p` says; OK or what is wrong."""
    cdef const uint8_t *raw
    cdef const uint8_t *value
    cdef const uint8_t *name
    cdef int number, count, name_size, value_size
    cdef uint64_t due
    cdef bint relative
    said.batch = said.system = False
    said.delay = 0
    said.due = said.user_size = 0
    if not head.headers_size:
        return BAD_BATCH if head.flags & BATCH else BAD_DELAY if head.flags & DELAYED else OK
    raw = p + head.total - head.headers_size
    count = split(raw, head.headers_size)
    if not count:
        return BAD_HEADERS
    raw += 2
    for number in range(count):
        name_size = gq_u16(raw)
        name = raw + 2
        value_size = gq_u16(name + name_size)
        value = name + name_size + 2
        raw = value + value_size
        if name_size < 3 or memcmp(name, b"gq-", 3) != 0:
            said.user_size += 4 + name_size + value_size
            continue
        if said.user_size:
            return BAD_ORDER
        relative = same(name, name_size, b"gq-delay", 8)
        if same(name, name_size, b"gq-batch", 8):
            if number or not head.flags & BATCH or value_size != 18:
                return BAD_BATCH
            said.producer_id = <int64_t>gq_u64(value)
            said.epoch = <int32_t>gq_u16(value + 8)
            said.base_sequence = <int32_t>gq_u32(value + 10)
            said.count = gq_u32(value + 14)
            if said.producer_id < 0 or said.epoch > 32767 or said.base_sequence < 0 or said.count < 1:
                return BAD_BATCH
            said.batch = True
        elif relative or same(name, name_size, b"gq-deliver-at", 13):
            if number != (1 if said.batch else 0):
                return BAD_ORDER
            if not head.flags & DELAYED or value_size != 8:
                return BAD_DELAY
            due = gq_u64(value)
            if due > <uint64_t>(DELAY_US_MAX if relative else TIMESTAMP_MAX):
                return BAD_DELAY
            said.due = <int64_t>due
            said.delay = 2 if relative else 1
        else:
            said.system = True
    if said.user_size:
        said.user_size += 2
    if head.flags & BATCH and not said.batch:
        return BAD_BATCH
    if head.flags & DELAYED and not said.delay:
        return BAD_DELAY
    return OK


# -- stamp and scan -----------------------------------------------------------------------------------------------------------

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
        if position - self.last_index_position >= self.index_interval:
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


# -- smaller walks ------------------------------------------------------------------------------------------------------------

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


# -- header lists -------------------------------------------------------------------------------------------------------------

def decode_headers(object raw):
    """All (name, value) pairs of a header section. See pure_build.decode_headers."""
    return headers_of(raw if PyBytes_CheckExact(raw) else bytes(raw), 0)


cdef list headers_of(bytes raw, int which):
    """`which`: 0 all, 1 the app's, 2 the system's."""
    cdef const uint8_t *p
    cdef int number, count, name_size, value_size
    cdef bint system
    cdef list found = []
    if raw is None or not PyBytes_GET_SIZE(raw):
        return found
    p = <const uint8_t *>PyBytes_AS_STRING(raw)
    count = split(p, PyBytes_GET_SIZE(raw))
    if not count:
        raise BadRecord("a header section is malformed")
    p += 2
    for number in range(count):
        name_size = gq_u16(p)
        value_size = gq_u16(p + 2 + name_size)
        system = name_size >= 3 and memcmp(p + 2, b"gq-", 3) == 0
        if which == 0 or system == (which == 2):
            found.append((PyUnicode_DecodeUTF8(<char *>p + 2, name_size, NULL),
                          PyBytes_FromStringAndSize(<char *>p + 4 + name_size, value_size)))
        p += 4 + name_size + value_size
    return found


cdef inline int place_of(str name):
    if not name.startswith("gq-"):
        return 3
    return 0 if name == "gq-batch" else 1 if name == "gq-deliver-at" or name == "gq-delay" else 2


def encode_headers(object headers):
    """The header section for (name, value) pairs. See pure_build.encode_headers."""
    cdef list names = [], values = [], places = []
    cdef int64_t total = 2, user_size = 2, count = 0, name_size, value_size
    cdef int place, last = 0, wanted
    cdef bint sorted_already = True
    cdef bytes encoded, name_bytes, value_bytes
    cdef uint8_t *p
    for name, value in headers:
        try:
            name_bytes = (<str?>name).encode()
        except UnicodeEncodeError:
            raise BadRecord("a header name is not UTF-8 text") from None
        place = place_of(name)
        value_bytes = value if PyBytes_CheckExact(value) else bytes(memoryview(value))
        name_size, value_size = PyBytes_GET_SIZE(name_bytes), PyBytes_GET_SIZE(value_bytes)
        if name_size > HEADERS_MAX or value_size > HEADERS_MAX:
            raise TooLarge(f"a header name or value is above {HEADERS_MAX} bytes")
        total += 4 + name_size + value_size
        if place == 3:
            user_size += 4 + name_size + value_size
        if place < last:
            sorted_already = False
        last = place
        count += 1
        names.append(name_bytes)
        values.append(value_bytes)
        places.append(place)
    if not count:
        return b""
    if count > HEADER_COUNT_MAX or user_size > USER_HEADERS_MAX:
        raise TooLarge(f"headers are above {USER_HEADERS_MAX} bytes")
    if total > HEADERS_MAX:
        raise TooLarge(f"headers are above {HEADERS_MAX} bytes")
    encoded = PyBytes_FromStringAndSize(NULL, total)
    p = <uint8_t *>PyBytes_AS_STRING(encoded)
    gq_put16(p, <uint16_t>count)
    p += 2
    for wanted in range(4) if not sorted_already else range(1):
        for name_object, value_object, place_object in zip(names, values, places):
            if not sorted_already and <int>place_object != wanted:
                continue
            name_size, value_size = PyBytes_GET_SIZE(name_object), PyBytes_GET_SIZE(value_object)
            gq_put16(p, <uint16_t>name_size)
            memcpy(p + 2, PyBytes_AS_STRING(name_object), <size_t>name_size)
            gq_put16(p + 2 + name_size, <uint16_t>value_size)
            memcpy(p + 4 + name_size, PyBytes_AS_STRING(value_object), <size_t>value_size)
            p += 4 + name_size + value_size
    return encoded


# -- building -----------------------------------------------------------------------------------------------------------------

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


# -- accumulating -------------------------------------------------------------------------------------------------------------

cdef class Ticket:
    """A message that was added: its place in its batch. See accumulator.PureTicket."""

    cdef public object batch
    cdef public int64_t index


cdef class Accumulator:
    """Where a producer's messages of one topic gather. See accumulator.PureAccumulator; here the GIL is the lock: nothing between
    the choice of a partition and the finished ticket runs Python code."""

    cdef object _owner
    cdef type _ticket
    cdef list _builders, _batches
    cdef int64_t _batch_bytes, _batch_messages, _turn, _reserve, _count
    cdef public int64_t max_value
    cdef public bint gate

    def __init__(self, object owner, type ticket, object batches, int64_t batch_bytes, int64_t batch_messages, int64_t max_value,
                 int64_t reserve=4096):
        self._owner, self._ticket, self._batches = owner, ticket, list(batches)
        if not issubclass(ticket, Ticket):
            raise TypeError("tickets are made from a subclass of Ticket")
        self._batch_bytes, self._batch_messages, self._reserve, self.max_value = batch_bytes, batch_messages, reserve, max_value
        self.gate = False
        self._turn = 0
        self._builders = [BatchBuilder(reserve) for _ in self._batches]
        self._count = len(self._builders)

    @property
    def partitions(self):
        return self._count

    @property
    def size(self):
        """Bytes in all open batches."""
        cdef int64_t total = 0
        cdef object builder
        for builder in self._builders:
            total += (<BatchBuilder>builder)._used
        return total

    def count(self, int64_t partition):
        """Messages in the open batch of a partition."""
        return (<BatchBuilder?>self._builders[self.checked(partition)])._count

    cdef int64_t checked(self, int64_t partition) except -1:
        if partition < 0 or partition >= self._count:
            raise UnknownPartition(f"the topic has partitions 0..{self._count - 1}, not {partition}")
        return partition

    def add(self, object key, object value, int64_t partition=-1, object headers=b"", int64_t priority=2, int64_t flags=0,
            int64_t codec=0, int64_t timestamp=0):
        """A ticket. str keys and values are encoded as UTF-8; None is null. Errors leave everything as it was."""
        cdef int64_t at, index, need
        cdef BatchBuilder builder
        cdef Ticket ticket
        cdef bint full
        if self.gate:
            self._owner.wait()
        ticket = <Ticket>Ticket.__new__(self._ticket)     # before the checks: an allocation may run the garbage collector
        if key is not None and not PyBytes_CheckExact(key):
            key = _as_bytes("key", key)
        if value is not None and not PyBytes_CheckExact(value):
            value = _as_bytes("value", value)
        if not PyBytes_CheckExact(headers):
            headers = bytes(memoryview(headers))
        need = HEADER + BATCH_ENTRY + 2 + PyBytes_GET_SIZE(headers)
        if key is not None:
            need += PyBytes_GET_SIZE(key)
        if value is not None:
            if PyBytes_GET_SIZE(value) > self.max_value:
                raise TooLarge(f"a value of {len(value)} bytes is above the topic's limit of {self.max_value}")
            need += PyBytes_GET_SIZE(value)
        while True:
            if partition != -1:
                at = self.checked(partition)
            elif key is None:
                at = self._turn
            else:
                at = (gq_murmur3(<const uint8_t *>PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % self._count
            builder = <BatchBuilder>self._builders[at]
            if not builder._count or builder._used + need <= self._batch_bytes:
                index = builder.put(key, value, headers, priority, flags, codec, timestamp)
                ticket.batch, ticket.index = self._batches[at], index
                full = builder._count >= self._batch_messages or builder._used >= self._batch_bytes
                break
            self._owner.full(at)
        if not index:
            self._owner.opened(at)
        if full:
            self._owner.full(at)
        return ticket

    def seal(self, int64_t partition, object following, int64_t producer_id=-1, int64_t epoch=-1, int64_t sequence=-1):
        """(batch, bytes, count) of what is open in a partition, or None when nothing is; `following` stands for the next."""
        cdef BatchBuilder builder = <BatchBuilder>self._builders[self.checked(partition)]
        cdef int64_t count = builder._count
        cdef object batch, data
        if not count:
            return None
        data = builder.seal(producer_id, epoch, sequence)
        batch = self._batches[partition]
        self._batches[partition] = following
        if partition == self._turn:
            self._turn = (partition + 1) % self._count
        return batch, data, count

    def grow(self, object batches):
        """The topic has more partitions: `batches` for the new ones."""
        cdef list more = list(batches)
        self._builders.extend([BatchBuilder(self._reserve) for _ in more])
        self._batches.extend(more)
        self._count = len(self._builders)


cdef bytes _as_bytes(str what, object given):
    try:
        return given.encode() if isinstance(given, str) else bytes(memoryview(given))
    except (TypeError, UnicodeEncodeError, BufferError) as error:
        raise BadRecord(f"a {what} is bytes, text or None: {error}") from None


# -- decoding -----------------------------------------------------------------------------------------------------------------

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
           int64_t lo=0, int64_t hi=FARTHEST, object skip=()):
    """The records of a fetch reply as objects of `cls`. See pure.decode."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *q
    cdef gq_head head
    cdef int why
    cdef int64_t following = 0, hidden_low = FARTHEST, hidden_end = FARTHEST
    cdef Py_ssize_t hidden = 0, hidden_count
    cdef list found = [], hides = pairs_of(skip)
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


# -- gather -------------------------------------------------------------------------------------------------------------------

cdef struct Points:
    const uint8_t *packed
    int64_t count, base


cdef int64_t point_before(const Points *points, int64_t offset) noexcept nogil:
    """Number of the last point at or below `offset`, -1 if there is none."""
    cdef int64_t low = 0, high = points.count, middle
    while low < high:
        middle = (low + high) // 2
        if points.base + gq_u32(points.packed + middle * 8) <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef int64_t position_before(const Points *points, int64_t offset) noexcept nogil:
    cdef int64_t point = point_before(points, offset)
    return gq_u32(points.packed + point * 8 + 4) if point >= 0 else -1


cdef int64_t position_behind(const Points *points, int64_t offset, int64_t end) noexcept nogil:
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


cdef int64_t KEPT_MAX = 4 * 1024 * 1024
cdef uint8_t *kept = NULL              # what the last gather read into: fresh memory is dearer than a copy of what was found
cdef int64_t kept_size = 0


def gather(int fd, int64_t start_position, int64_t end_position, object ranges, bytes index not None=b"", int64_t base=0,
           int64_t max_bytes=FAR):
    """The records of flat, sorted offset ranges out of a segment file. See pure_gather.gather.

    Spans are read to the end of what was found already, so that a record moves only when something before it was left out."""
    cdef Points points
    cdef list wanted_ranges = pairs_of(ranges), found = []
    cdef Py_ssize_t number = 0, following, count = len(wanted_ranges)
    cdef int64_t at = start_position, expected = -1, need = 0, used = 0, capacity = 0, low, high, jump, stop, length, got, pos
    cdef int64_t found_low = -1, found_count = 0, bad = -1
    cdef uint8_t *out
    cdef uint8_t *more
    cdef uint8_t *data
    global kept, kept_size
    cdef gq_head head
    cdef int why
    cdef bint wanted
    points.packed, points.count, points.base = <const uint8_t *>PyBytes_AS_STRING(index), PyBytes_GET_SIZE(index) // 8, base
    low = high = 0
    if count:
        low = wanted_ranges[0]
        high = low + <int64_t>wanted_ranges[1]
    out, capacity, kept, kept_size = kept, kept_size, NULL, 0       # another thread's call has its own while this one reads
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
                jump = wanted_ranges[following]
                if position_before(&points, jump) > stop + SLACK:
                    break
                stop = max(stop, position_behind(&points, jump + <int64_t>wanted_ranges[following + 1], end_position))
                following += 2
            length = min(max(stop - at, 1), SPAN_MAX, max_bytes - used + SLACK)
            length = min(max(length, need), end_position - at)
            if capacity - used < length:
                more = <uint8_t *>realloc(out, <size_t>(used + max(length, SPAN_MAX)))
                if more == NULL:
                    raise MemoryError
                out, capacity = more, used + max(length, SPAN_MAX)
            data = out + used
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
                        low = wanted_ranges[number]
                        high = low + <int64_t>wanted_ranges[number + 1]
                wanted = number < count and low <= head.offset
                if (wanted or expected < 0) and not crc_right(data + pos, &head):
                    bad = at + pos
                    break
                if wanted:
                    if data + pos != out + used:
                        memmove(out + used, data + pos, <size_t>head.total)
                    used += head.total
                    if found_low + found_count == head.offset and found_count:
                        found_count += 1
                    else:
                        if found_count:
                            found.append(found_low)
                            found.append(found_count)
                        found_low, found_count = head.offset, 1
                expected = head.offset + 1
                pos += head.total
            at += pos
        if found_count:
            found.append(found_low)
            found.append(found_count)
        return Gathered(PyBytes_FromStringAndSize(<char *>out, used), found, bad)
    finally:
        if kept == NULL and capacity <= KEPT_MAX:
            kept, kept_size = out, capacity
        else:
            free(out)


# -- run index ----------------------------------------------------------------------------------------------------------------

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


# -- flat ranges --------------------------------------------------------------------------------------------------------------

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


def ranges_head(object ranges, int64_t most):
    """See pure_ranges.ranges_head."""
    cdef Numbers numbers = flat_of(ranges)
    cdef Py_ssize_t at
    cdef list out = []
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


# -- columns ------------------------------------------------------------------------------------------------------------------

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

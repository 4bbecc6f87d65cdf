# One record: is it one, and what does it say of itself? A part of _codec.pyx.

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
    if head.offset < 0 or head.offset > OFFSET_MAX:
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

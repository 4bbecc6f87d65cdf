# Header lists. A part of _codec.pyx.

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

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
from libc.stdlib cimport qsort
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
cdef int64_t OFFSET_MAX = _r.OFFSET_MAX
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
cdef int64_t SLACK = 16 * 1024
cdef int64_t VALUE_MAX = _limits.VALUE_MAX
cdef int64_t INDEX_INTERVAL = _limits.INDEX_INTERVAL_BYTES
cdef int64_t TIME_INTERVAL_US = _limits.TIME_INDEX_INTERVAL_MS * 1000
cdef int64_t FAR = 2**62
cdef int64_t FAR_32 = 2**32
cdef int64_t FAR_END = 0x7FFFFFFFFFFFFFFF
cdef int64_t FARTHEST = 2**63 - 1
cdef const uint8_t *BATCH_START = <const uint8_t *>b"\x00\x08gq-batch\x00\x12"

assert _r.HEADER_SIZE == HEADER and _r.EMPTY == EMPTY and _r.BATCH_ENTRY_SIZE == BATCH_ENTRY
assert _r.LONG_DELAY == LONG_DELAY and _r.BAD_CRC == BAD_CRC and _r.FORBIDDEN_CONTROL == FORBIDDEN_CONTROL

cdef object _violation = _r.violation
cdef tuple _WHY = _r.WHY
cdef bytes _NOTHING = b""

include "compiled/record.pxi"
include "compiled/stamping.pxi"
include "compiled/walking.pxi"
include "compiled/headers.pxi"
include "compiled/building.pxi"
include "compiled/accumulating.pxi"
include "compiled/decoding.pxi"
include "compiled/gathering.pxi"
include "compiled/runs.pxi"
include "compiled/ranges.pxi"
include "compiled/columns.pxi"

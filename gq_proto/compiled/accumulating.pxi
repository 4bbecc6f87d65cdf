# Where a producer's messages gather. A part of _codec.pyx.

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

"""Record: one message as applications hold it, in plain Python. The compiled codec has a twin of the same face.

Made by `decode` without a call of __init__; subclasses add methods and keep `__slots__ = ()`. The value is decompressed and
the headers are split when first asked for. Every attribute can be set.
"""

from gq_proto import record as r
from gq_proto.compression import decompress
from gq_proto.pure_build import decode_headers


class Record:
    """A message. `owner` is whatever the decoder was told (a consumer's lease), `delivery` counts from 1."""

    __slots__ = (
        "_headers",
        "_plain",
        "_raw_headers",
        "_raw_value",
        "delivery",
        "flags",
        "key",
        "offset",
        "owner",
        "partition",
        "priority",
        "timestamp",
        "topic",
    )

    def __init__(self, topic: str = "", partition: int = 0, offset: int = 0, timestamp: int = 0, priority: int = 2, flags: int = 0,
                 key: bytes | None = None, value: bytes | None = None, raw_headers: bytes = b"", owner: object = None,
                 delivery: int = 1) -> None:
        """`value` is as stored: compressed when `flags` say so."""
        self.topic, self.partition, self.offset, self.timestamp = topic, partition, offset, timestamp
        self.priority, self.flags, self.key = priority, flags, key
        self.raw_value, self.raw_headers = value, raw_headers
        self.owner, self.delivery = owner, delivery

    @property
    def raw_value(self) -> bytes | None:
        """The value as it is stored."""
        return self._raw_value

    @raw_value.setter
    def raw_value(self, stored: bytes | None) -> None:
        self._raw_value = stored
        self._plain: bytes | None = None

    @property
    def value(self) -> bytes | None:
        """The value as it was published; BadRecord when it does not decompress."""
        if not self.flags & r.COMPRESSED or self._raw_value is None:
            return self._raw_value
        if self._plain is None:
            self._plain = decompress(self._raw_value)
        return self._plain

    @value.setter
    def value(self, plain: bytes | None) -> None:
        self.flags &= ~r.COMPRESSED
        self.raw_value = plain

    @property
    def raw_headers(self) -> bytes:
        """The header section, system headers included."""
        return self._raw_headers

    @raw_headers.setter
    def raw_headers(self, raw: bytes) -> None:
        self._raw_headers = raw
        self._headers: tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]] | None = None

    def _split(self) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
        if self._headers is None:
            every = decode_headers(self._raw_headers)
            system = [header for header in every if header[0].startswith(r.SYSTEM_PREFIX)]
            self._headers = [header for header in every if not header[0].startswith(r.SYSTEM_PREFIX)], system
        return self._headers

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The app's headers, in order, duplicates kept."""
        return self._split()[0]

    @property
    def system_headers(self) -> list[tuple[str, bytes]]:
        """The gq- ones."""
        return self._split()[1]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}/{self.partition}/{self.offset}>"

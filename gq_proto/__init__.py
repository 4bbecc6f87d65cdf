"""What everyone agrees on: record, codec, segment, runs, messages, errors, limits, names. Pure: no sockets, no clock."""

__version__ = "0.1.0"

"""stdin as lines, many at a time, of any length up to a bound: what `publish -l` and `--jsonl` read.

A line ends with LF or CRLF (the CR stays with `keep_cr`), the last one perhaps with nothing. Bytes are bytes: NUL and what is no
UTF-8 pass. Lines are handed on as they come, so a slow writer's lines don't wait. Memory is bounded by one line and one read.
"""

import os
from collections.abc import Callable, Iterator
from typing import Final

READ_BYTES: Final = 1024 * 1024


class LongLine(ValueError):
    """A line above the bound, which was not read to its end; those before it were handed on."""

    def __init__(self, number: int, bound: int) -> None:
        super().__init__(f"line {number} has more than {bound} bytes")
        self.number = number


def read_stdin(size: int) -> bytes:
    """What is there, up to `size` bytes; b"" at the end."""
    try:
        return os.read(0, size)
    except OSError as e:
        raise OSError(e.errno, e.strerror, "stdin") from None


def lines(read: Callable[[int], bytes], bound: int, keep_cr: bool = False) -> Iterator[list[bytes]]:
    """Lists of lines without their ends; `read` as read_stdin. LongLine for one of more than `bound` bytes."""
    pending: list[bytes] = []
    size = count = 0
    while chunk := read(READ_BYTES):
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*pending, whole[0]))
            pending, size = [], 0
            yield from _checked(whole, count, bound, keep_cr)
            count += len(whole)
        pending.append(rest)
        size += len(rest)
        if size > bound + 1:        # a CR may follow
            raise LongLine(count + 1, bound)
    if size:
        yield from _checked([b"".join(pending)], count, bound, keep_cr)


def _checked(whole: list[bytes], before: int, bound: int, keep_cr: bool) -> Iterator[list[bytes]]:
    if not keep_cr and any(line.endswith(b"\r") for line in whole):
        whole = [line[:-1] if line.endswith(b"\r") else line for line in whole]
    if max(map(len, whole)) <= bound:
        yield whole
        return
    first = next(number for number, line in enumerate(whole) if len(line) > bound)
    if first:
        yield whole[:first]
    raise LongLine(before + first + 1, bound)

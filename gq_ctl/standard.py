"""stdin, stdout and stderr when whoever started us has closed one of them (`gqctl consume ... >&-`).

Its number would go to the next file or socket that is opened, ZeroMQ's say: what is printed would be written into that, taken for
printed and acked. So the number is held by a stand-in that fails as the closed one does: stdin can't be read, stdout can't be
written. stderr swallows what it gets: that nobody listens to our talk is no reason to fail.
"""

import os
import sys
from typing import Final

STAND_INS: Final = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))


def hold() -> None:
    """Call it before anything is opened."""
    for number, (name, flags, mode) in enumerate(STAND_INS):
        if not _open(number):
            _stand_in(number, flags)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False))


def _open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _stand_in(number: int, flags: int) -> None:
    """Commands that we start inherit it as they would the real one."""
    null = os.open(os.devnull, flags)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    os.set_inheritable(number, True)

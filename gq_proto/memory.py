"""One switch of the C library's allocator, for processes that move batches.

glibc gives blocks above 128 KiB back to the kernel when they are freed, so every batch and every reply of a megabyte pays for its
pages anew: measured five times the cost of writing the records themselves. `keep_freed_memory` lets the process keep up to
64 MiB it has freed. Values of MALLOC_* in the environment win. Elsewhere than on glibc it does nothing.
"""

import ctypes
import os
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_SETTINGS: Final = (
    ("MALLOC_MMAP_THRESHOLD_", _M_MMAP_THRESHOLD, 32 << 20),
    ("MALLOC_TRIM_THRESHOLD_", _M_TRIM_THRESHOLD, 64 << 20),
    ("MALLOC_TOP_PAD_", _M_TOP_PAD, 4 << 20),
)


def keep_freed_memory() -> bool:
    """True when the allocator took every setting that the environment left open."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version       # noqa: B018  (other libraries have a mallopt of another meaning)
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return False
    taken = [bool(mallopt(option, size)) for name, option, size in _SETTINGS if name not in os.environ]
    return all(taken)

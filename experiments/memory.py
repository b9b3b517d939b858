"""Memory that arrays leave is kept for the next ones, which then need not wait for the kernel to find and clear it."""

import ctypes
from contextlib import suppress

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # names of settings, as the C library's header numbers them
LARGEST_KEPT_BYTES = 1 << 25  # of one array; what is larger comes from the kernel, in large pages
MAX_KEPT_BYTES = 1 << 30  # beyond which all that is free at the end of the heap goes back


def keep_freed_memory() -> None:
    """Keep the memory that this process frees, if the C library can: large simulations free hundreds of megabytes."""
    with suppress(AttributeError, OSError, TypeError):
        c_library = ctypes.CDLL(None)
        c_library.mallopt(MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        c_library.mallopt(TRIM_THRESHOLD, MAX_KEPT_BYTES)

"""A lock between processes that the system itself lets go of when its holder dies."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.1

if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def locked(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock `file` (made when missing, never removed: removing it would let two in). Calls waiting() once
    when another process holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        told = False
        while not _try_lock(handle):
            if not told:
                waiting()
                told = True
            time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(handle)

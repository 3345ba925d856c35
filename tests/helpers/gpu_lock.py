"""A lock on the GPU for tests in several processes: most share it, those that measure time do not."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = Path(tempfile.gettempdir(), "dotcu-tests-gpu.lock")


@contextmanager
def holding_gpu(*, exclusive: bool, path: Path = LOCK) -> Iterator[None]:
    """Hold the lock until the block ends.

    A second lock is held while waiting, so that a test that waits to be alone goes before later ones.

    Args:
        exclusive: Wait for every other test to end, and let none begin.
        path: The file of the lock.
    """
    with path.with_suffix(".queue").open("w") as queue, path.open("w") as lock:
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a test may have forked

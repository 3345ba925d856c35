"""A lock that a fork does not leave locked."""

from __future__ import annotations

import os
import threading
from types import TracebackType


class ForkSafeLock:
    """A reentrant lock; a forked child gets a new one, since the owner's thread is not in it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.RLock()
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

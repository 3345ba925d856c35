from __future__ import annotations

import os
import threading

import pytest

from dotcu.kernel.locks import ForkSafeLock


def test_a_lock_is_reentrant_and_excludes_other_threads() -> None:
    lock, order = ForkSafeLock(), []
    with lock, lock:
        thread = threading.Thread(
            target=lambda: (lock.__enter__(), order.append("other"), lock.__exit__(None, None, None))
        )
        thread.start()
        order.append("own")
    thread.join()
    assert order == ["own", "other"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_leaves_no_lock_locked() -> None:
    lock = ForkSafeLock()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        with lock:
            os._exit(0)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

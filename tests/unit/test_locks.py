"""Locks that a fork does not leave locked; those of files are tested with the cache."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from dotcu import process
from dotcu.locks import ForkSafeLock


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


FORK_BESIDE_A_THREAD = """
import functools, os, signal, sys, threading, time
from pathlib import Path
import dotcu.locks

class Once:
    @functools.cached_property
    def value(self):
        exec(Path("slow.py").read_text(), own := {})
        return own["value"]

def work():
    exec(sys.argv[1], {"__name__": "dotcu.of_a_test", "Once": Once})  # as a module of dotcu's does

thread = threading.Thread(target=work)
thread.start()
while not Path("begun").exists():
    time.sleep(0.01)
dotcu.locks._PYTHON_S = float(sys.argv[2])
child = os.fork()
if child == 0:
    signal.alarm(20)
    if sys.argv[2] != "0.2":
        work()
    os._exit(0)
Path("forked").touch()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


@pytest.mark.parametrize("work", ["import slow", "Once().value"])
def test_a_child_that_is_forked_while_python_has_a_lock_of_its_own_can_take_it(
    work: str, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(0.5)\nvalue = 7\n")
    command = [sys.executable, "-W", "ignore", "-c", FORK_BESIDE_A_THREAD, work, "60"]
    done = process.run(command, folder=tmp_path)
    assert (done.stdout, done.status) == ("0\n", 0), done.stderr


def test_a_fork_waits_only_a_while_for_an_import_that_does_not_end(tmp_path: Path) -> None:
    slow = (
        "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('forked'): time.sleep(0.01)\n"
    )
    (tmp_path / "slow.py").write_text(slow)
    command = [sys.executable, "-W", "ignore", "-c", FORK_BESIDE_A_THREAD, "import slow", "0.2"]
    done = process.run(command, folder=tmp_path)
    assert (done.stdout, done.status) == ("0\n", 0), done.stderr

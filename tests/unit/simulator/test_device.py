"""A program that is read once, for all threads and their forked children."""

from __future__ import annotations

import os
import threading

import pytest

from dotcu.simulator import Program

PTX = ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n    ret;\n}\n"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_is_forked_while_a_thread_reads_a_kernel_reads_it_too() -> None:
    program = Program.parse(PTX)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with program._lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        program.decoded("k")
        os._exit(0)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

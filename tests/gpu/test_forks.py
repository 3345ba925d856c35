"""Forks beside a real driver: before CUDA is up a child is free, after it the child is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers import sample_operators

pytestmark = pytest.mark.gpu

PRELUDE = f"""
import os, sys, traceback, warnings
sys.path.insert(0, {str(sample_operators.TESTS)!r})
warnings.simplefilter("ignore")
import torch
import dotcu
from helpers import sample_operators
from dotcu.errors import LaunchError

axpy = sample_operators.make_axpy()
kernels = sample_operators.fresh_module()

def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def on(device):
    for n in (10, 1000, 10):
        a, b = sample_operators.pair(n, device)
        assert axpy(a, b, 2.0).equal(a + 2 * b)
"""


def run_script(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_cpu_calls_do_not_start_cuda_so_a_child_can() -> None:
    run_script(
        """
from dotcu import gallery
on("cpu")
gallery.add(torch.ones(5), torch.ones(5))  # its body asks for the occupancy
with dotcu.simulate():
    on("cpu")
    gallery.add(torch.ones(5), torch.ones(5))
assert not torch.cuda.is_initialized()
in_child(lambda: on("cuda"))
on("cuda")
"""
    )


def test_a_child_after_cuda_was_up_simulates_and_reports_why_it_does_not_launch() -> None:
    run_script(
        """
on("cuda")
kept = torch.ones(10, device="cuda")
kernels.times[torch.float32].warm()

def refused(call):
    try:
        call()
    except LaunchError as error:
        assert "forked after CUDA was initialized" in str(error), error
        return
    raise AssertionError("it was not refused")

def work():
    on("cpu")
    with dotcu.simulate():
        on("cpu")
    refused(lambda: kernels.times[torch.float32](kept, 2.0, kept, 10, grid=1, block=32))
    refused(lambda: kernels.last_of(kept, 3, grid=1, block=32, smem_bytes=64))
    refused(lambda: kernels.look_up(kept, grid=1, block=4, device="cuda:0"))
    refused(axpy.warm)
    refused(kernels.warm)
    kernels.variable("table").write(torch.ones(4))

in_child(work)
on("cuda")
"""
    )


def test_spawned_children_have_cuda_of_their_own() -> None:
    run_script(
        """
on("cuda")
import subprocess
code = f"import sys; sys.path.insert(0, {sample_operators.TESTS.as_posix()!r}); " \\
    "from helpers import sample_operators;" \\
    "a, b = sample_operators.pair(9, 'cuda'); assert sample_operators.make_axpy()(a, b).equal(a + b)"
subprocess.run([sys.executable, "-c", code], check=True)
"""
    )

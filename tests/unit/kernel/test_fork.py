"""Processes that were forked after CUDA was initialized."""

from __future__ import annotations

import pytest

from helpers import forked_scripts

PRELUDE = """
import os, sys, traceback, warnings
import torch
warnings.simplefilter("ignore")  # Python 3.12 warns of any fork beside torch's threads
import dotcu
from dotcu.errors import LaunchError
from dotcu.kernel import cuda
from dotcu.kernel.faults import forked_with_cuda

SOURCE = '''
__constant__ float table[2];
__global__ void twice(const float* x, float* out) { out[threadIdx.x] = 2 * x[threadIdx.x]; }
__global__ void look_up(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void nothing() {}
'''
kernels = dotcu.load_inline(SOURCE)

def simulate(kernels):
    x, out = torch.ones(4), torch.zeros(4)
    kernels.twice(x, out, grid=1, block=4)
    assert out.tolist() == [2.0] * 4
    kernels.variable("table").write(torch.tensor([5.0, 6.0]))
    kernels.look_up(out, grid=1, block=2)
    assert out.tolist() == [5.0, 6.0, 2.0, 2.0]
    assert kernels.twice.occupancy(32) > 0

def refused(call):
    try:
        call()
    except LaunchError as error:
        assert "forked after CUDA was initialized" in str(error) and '"spawn"' in str(error), error
        return
    raise AssertionError("it was not refused")

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
"""
STARTED = "torch.cuda._is_in_bad_fork = lambda: True  # what torch says in a child once CUDA is up\n"


def run_script(script: str) -> None:
    done = forked_scripts.run(PRELUDE + script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "started",
    [
        pytest.param("", marks=pytest.mark.slow, id="before CUDA"),
        pytest.param(STARTED, id="after CUDA was initialized"),
    ],
)
def test_the_simulator_works_in_a_forked_child(started: str) -> None:
    """With code that the parent had compiled, and with code that it had not."""
    run_script(
        started
        + """
def work():
    with dotcu.simulate():
        simulate(kernels)
        simulate(dotcu.load_inline(SOURCE + "// compiled in the child"))

in_child(work)
with dotcu.simulate():
    simulate(kernels)
in_child(work)
"""
    )


def test_a_child_is_refused_at_every_door_once_cuda_was_up() -> None:
    run_script(
        "in_child(lambda: sys.exit('flag') if forked_with_cuda() else None)  # CUDA has not started\n"
        + STARTED
        + """
assert not forked_with_cuda(), "the parent itself is free"

def work():
    assert forked_with_cuda() and not cuda.available()
    library = cuda.Library("k.cu", b"code", dict)
    refused(lambda: library.kernel("k", 0))
    refused(lambda: kernels.nothing(grid=1, block=1))
    refused(lambda: kernels.nothing(grid=1, block=1, device="cuda:0"))
    refused(kernels.warm)
    with dotcu.simulate():
        kernels.nothing(grid=1, block=1)
    kernels.nothing(grid=1, block=1, device="cpu")
    in_child(lambda: refused(kernels.warm))  # and so is a child of the child

in_child(work)
kernels.nothing.compile("sm_90a")
"""
    )


def test_an_import_after_the_fork_knows_it_too() -> None:
    script = (
        "import torch\ntorch.cuda._is_in_bad_fork = lambda: True\n"
        "from dotcu.kernel.faults import forked_with_cuda\nassert forked_with_cuda()"
    )
    done = forked_scripts.run(script)
    assert done.returncode == 0, done.stderr

"""A kernel that fails on the GPU: whoever notices says which operator and kernel it was, or may have been.

A fault ends CUDA for its process, so each has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

KERNELS = """#include <cassert>
__global__ void calm(float* x) { x[threadIdx.x] += 1.0f; }
__global__ void fail(float* x, int how) {
    if (how == 0) __trap();
    if (how == 1) {
        assert(x[0] > 1000.0f);
    }
    if (how == 2) *reinterpret_cast<float*>(1ull << 45) = x[0];
    if (how == 3) *reinterpret_cast<float*>(reinterpret_cast<char*>(x) + 1) = 1.0f;
}
"""
PROGRAM = """
import sys
import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("failing.cu")

@dotcu.op("faults::calm", mutates_args=("x",))
def calm(x: Tensor) -> None:
    kernels.calm(x, grid=1, block=4)

@dotcu.op("faults::poke", mutates_args=("x",))
def poke(x: Tensor, how: int) -> None:
    kernels.calm(x, grid=1, block=4)
    kernels.fail(x, how, grid=2, block=1)

@dotcu.op("faults::total")
def total(x: Tensor) -> Tensor:
    torch.cuda.synchronize()
    return x.sum()

def told(call):
    try:
        call()
    except dotcu.errors.LaunchError as error:
        print(error)
        print("=====")

x = torch.zeros(4, device="cuda")
how = int(sys.argv[1])
for _ in range(3):
    calm(x)
    poke(x, -1)
kernels.calm(x, grid=1, block=4)
torch.cuda.synchronize()
told(lambda: poke(x, how))
if sys.argv[2] == "0":
    told(lambda: total(x))
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        pass
told(lambda: calm(x))
"""
HOW = {"a trap": 0, "an assert": 1, "an illegal address": 2, "a misaligned address": 3}
SAID = {
    "a trap": "trapped",
    "an assert": "failed an assert",
    "an illegal address": "read or wrote outside its memory",
    "a misaligned address": "used a misaligned address",
}
FAILED = "fail of faults::poke on cuda:0 with grid=(2, 1, 1), block=(1, 1, 1)"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the program printed: each error that it met, and what the driver put on stderr."""

    errors: list[str]
    stderr: str


def run(tmp_path: Path, fault: str, *, blocking: bool) -> Outcome:
    (tmp_path / "failing.cu").write_text(KERNELS)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = dict(os.environ) | ({"CUDA_LAUNCH_BLOCKING": "1"} if blocking else {})
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(HOW[fault]), str(int(blocking))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    *errors, rest = done.stdout.split("=====\n")
    assert rest == "", done.stdout + done.stderr
    return Outcome(errors=errors, stderr=done.stderr)


@pytest.mark.parametrize("fault", HOW)
def test_with_launch_blocking_the_launch_itself_names_operator_and_kernel(fault: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, fault, blocking=True)
    assert outcome.errors, outcome.stderr
    first = outcome.errors[0]
    assert first.startswith(f"{FAILED} failed: CUDA_ERROR_")
    assert SAID[fault] in first
    assert "restart it" in first
    assert "calm" not in first, "nobody else is suspected"


@pytest.mark.parametrize("fault", HOW)
def test_without_it_what_comes_after_lists_the_last_launches(fault: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, fault, blocking=False)
    assert len(outcome.errors) >= 2, outcome.stderr
    for error in outcome.errors:
        listed = [line.strip() for line in error.splitlines() if line.startswith("    ")]
        assert listed[0] == FAILED, "the newest launch first"
        assert listed[1].startswith("calm of faults::poke on cuda:0")
        assert listed[2].startswith("calm on cuda:0"), "a launch outside any operator"
        assert SAID[fault] in error
        assert "CUDA_LAUNCH_BLOCKING=1" in error
    assert outcome.errors[0].startswith("The body of faults::total failed"), "torch saw it first"


def test_an_assert_names_the_users_file_and_line(tmp_path: Path) -> None:
    outcome = run(tmp_path, "an assert", blocking=True)
    assert "failing.cu:6" in outcome.stderr
    assert "x[0] > 1000.0f" in outcome.stderr

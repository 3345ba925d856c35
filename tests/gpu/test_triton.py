"""Triton kernels on a GPU and in the simulator, by turns, in one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dotcu
from dotcu.errors import ArgumentError, FindingError

pytestmark = pytest.mark.gpu
triton: Any = pytest.importorskip("triton", minversion="3.7", reason="Triton 3.7 or later is not installed")
import triton.language as tl  # noqa: E402


@triton.jit
def scale(x_ptr, out_ptr, n, factor, MASKED: tl.constexpr):
    at = tl.program_id(0) * 128 + tl.arange(0, 128)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside) if MASKED else tl.load(x_ptr + at)
    tl.store(out_ptr + at, x * factor, mask=inside)


def call(device: str, masked: bool = True) -> torch.Tensor:
    x = torch.arange(200.0, device=device)
    out = torch.empty_like(x)
    scale[(2,)](x, out, 200, 3.0, MASKED=masked)
    return out.cpu()


def test_the_gpu_and_the_simulator_take_turns() -> None:
    expected = 3 * torch.arange(200.0)
    assert torch.equal(call("cuda"), expected)
    for _ in range(2):
        with dotcu.simulate(arch="sm_90") as run:
            assert torch.equal(call("cpu"), expected)
        assert dict(run.launches) == {"scale": 1}
        assert torch.equal(call("cuda"), expected)


def test_a_fault_is_found_beside_a_gpu() -> None:
    with pytest.raises(FindingError, match="out-of-bounds"), dotcu.simulate(arch="sm_90"):
        call("cpu", masked=False)


def test_a_tensor_on_the_gpu_is_refused_in_the_simulator() -> None:
    told = r"x_ptr of scale is on cuda:0.*\n.*\nPass x_ptr\.cpu\(\)"
    with pytest.raises(ArgumentError, match=told), dotcu.simulate(arch="sm_90"):
        call("cuda")


def test_compiled_code_on_the_gpu_runs_within_a_simulation() -> None:
    compiled = torch.compile(lambda x: torch.relu(x) + 1)
    x = torch.randn(1000, device="cuda")
    with dotcu.simulate(arch="sm_90"):
        torch.testing.assert_close(compiled(x), torch.relu(x) + 1)

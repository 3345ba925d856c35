"""Ranges around launches: for torch's profiler, and for tools that see NVTX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from dotcu import settings
from dotcu.errors import FindingError
from dotcu.kernel import Module, load_inline, ranges

SOURCE = """
template <typename T>
__global__ void fill(T* x, int n) { x[threadIdx.x] = n; }
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return load_inline(SOURCE)


def fill(module: Module, size: int = 8) -> None:
    module.fill[torch.float32](torch.zeros(size), 3, grid=1, block=8, device="cpu")


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is pushed and popped; torch looks like one with CUDA."""
    said: list[str] = []

    @contextmanager
    def seen(message: str) -> Iterator[None]:
        said.append(f"push {message.format()}")
        try:
            yield
        finally:
            said.append("pop")

    monkeypatch.setattr(torch.cuda.nvtx, "range", seen)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return said


def names(prof: Any) -> dict[str, int]:
    return {event.key: event.count for event in prof.key_averages()}


def test_torchs_profiler_shows_each_launch_by_its_kernels_name(module: Module) -> None:
    fill(module)  # compiled before, so that the range holds the launch alone
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as prof:
        fill(module)
        fill(module)
    assert names(prof)["fill<float>"] == 2


def test_a_launch_that_fails_ends_its_range(module: Module) -> None:
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as prof:
        with pytest.raises(FindingError):
            fill(module, size=4)
        torch.ones(3)
    event = next(event for event in prof.events() if event.name == "fill<float>")
    ones = next(event for event in prof.events() if event.name == "aten::ones")
    assert event.time_range.end <= ones.time_range.start


def test_nobody_is_told_where_nobody_looks_on(module: Module, nvtx: list[str]) -> None:
    assert not ranges.wanted()
    fill(module)
    assert nvtx == []


@pytest.mark.parametrize("variable", ["nvtx_injection", "cuda_injection"])
def test_a_tool_outside_the_process_gets_nvtx_ranges(module: Module, nvtx: list[str], variable: str) -> None:
    with settings.override(**{variable: Path("/opt/nsight/libToolsInjection64.so")}):
        fill(module)
    assert nvtx == ["push fill<float>", "pop"]


def test_a_range_ends_where_a_launch_fails(module: Module, nvtx: list[str]) -> None:
    with settings.override(nvtx_injection=Path("/opt/tool.so")), pytest.raises(FindingError):
        fill(module, size=4)
    assert nvtx == ["push fill<float>", "pop"]


def test_braces_in_a_kernels_name_are_shown_as_they_are(nvtx: list[str]) -> None:
    with settings.override(nvtx_injection=Path("/opt/tool.so")), ranges.named("k<S{1}>"):
        pass
    assert nvtx == ["push k<S{1}>", "pop"]


def test_a_torch_without_cuda_has_no_nvtx(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with settings.override(nvtx_injection=Path("/opt/tool.so")):
        fill(module)


def test_cupti_is_left_to_torchs_profiler(module: Module, nvtx: list[str]) -> None:
    with settings.override(nvtx_injection=Path("/usr/local/cuda/lib64/libcupti.so")):
        fill(module)
    assert nvtx == []


def test_the_variables_are_those_that_profilers_set() -> None:
    read = settings.read({"NVTX_INJECTION64_PATH": "/a.so", "CUDA_INJECTION64_PATH": "/b.so"})
    assert (read.nvtx_injection, read.cuda_injection) == (Path("/a.so"), Path("/b.so"))

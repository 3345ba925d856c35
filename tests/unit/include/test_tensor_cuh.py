"""dotcu/tensor.cuh: a tensor as a kernel parameter, its indices checked in the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dotcu
from dotcu import process
from dotcu.compile import CompileOptions, Target, build, inline_source, read_source
from dotcu.errors import ArgumentError, CompileError, FindingError

INCLUDE = Path(dotcu.__file__).parent / "include"
PAGE = Path(__file__).parent / "tensors.cu"

kernels = dotcu.load(PAGE)


def test_a_tensor_is_read_and_written_by_its_strides(device: torch.device) -> None:
    x = torch.randn(7, 5, 3, device=device).permute(2, 0, 1)[:, 1:, ::2]
    out = torch.zeros(3, 3, 6, device=device).transpose(1, 2)
    kernels.copy[torch.float32](x, out, grid=3, block=3)
    assert torch.equal(out, x)


def test_sizes_and_strides_are_those_of_the_tensor(device: torch.device) -> None:
    out = torch.zeros(5, dtype=torch.int64, device=device)
    kernels.describe(torch.randn(4, 6, device=device)[:, ::2], out, grid=1, block=1)
    assert out.tolist() == [4, 3, 6, 2, 12]


def test_a_dimension_of_size_one_and_stride_zero_is_read(device: torch.device) -> None:
    x = torch.arange(3.0, device=device).view(3, 1, 1).expand(3, 4, 2)
    out = torch.zeros(3, 4, 2, device=device)
    kernels.copy[torch.float32](x, out, grid=3, block=2)
    assert torch.equal(out, x)


@pytest.mark.parametrize(
    ("index", "dimension"), [((4, 0), 0), ((-1, 0), 0), ((0, 3), 1), ((0, -2), 1), ((2**40, 0), 0)]
)
def test_an_index_that_leaves_its_dimension_is_found_and_named(
    index: tuple[int, int], dimension: int
) -> None:
    memory = torch.zeros(100)
    inside_the_memory = memory.as_strided((4, 3), (3, 1), 20)
    with dotcu.simulate(on_finding="collect") as run:
        kernels.write_at(inside_the_memory, *index, grid=1, block=1)
    finding = run.findings[0]
    assert finding.kind == "out-of-bounds"
    assert finding.address_of == "x"
    assert f"dimension {dimension}" in str(finding)
    assert str(index[dimension]) in str(finding)
    assert str(inside_the_memory.shape[dimension]) in str(finding)
    assert "tensors.cu" in finding.file


def test_an_index_error_is_raised_where_findings_are() -> None:
    with pytest.raises(FindingError, match="dimension 1"):
        kernels.read_at(torch.zeros(4, 3), 0, 3, torch.zeros(1), grid=1, block=1)


def test_an_index_inside_is_no_finding() -> None:
    x = torch.zeros(4, 3)
    with dotcu.simulate(on_finding="collect") as run:
        kernels.write_at(x, 3, 2, grid=1, block=1)
    assert run.findings == []
    assert x[3, 2] == 1


@pytest.mark.parametrize(
    "wrong", [torch.zeros(4), torch.zeros(4, 3, 1), torch.zeros(4, 3, dtype=torch.float64)]
)
def test_a_tensor_of_another_rank_or_dtype_is_refused(wrong: torch.Tensor) -> None:
    with pytest.raises(ArgumentError):
        kernels.write_at(wrong, 0, 0, grid=1, block=1)


def test_an_index_too_few_is_a_compile_error() -> None:
    text = "#include <dotcu/tensor.cuh>\n__global__ void k(dotcu::tensor<int, 2> x) { x(1) = 0; }\n"
    with pytest.raises(CompileError, match="one index for each dimension"):
        build(inline_source(text), options=CompileOptions(), target=Target.parse("compute_80"), names=["k"])


def test_code_for_a_gpu_checks_nothing() -> None:
    built = build(
        read_source(PAGE), options=CompileOptions(), target=Target.parse("compute_80"), names=["write_at"]
    )
    assert "__dotcu_index_error" not in built.ptx


@pytest.mark.slow
def test_the_same_file_compiles_under_nvcc(tmp_path: Path) -> None:
    nvcc = process.find("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed: it shows that the same file serves both compilers")
    command = [nvcc, "-c", "-std=c++17", f"-I{INCLUDE}", PAGE, "-o", tmp_path / "page.o"]
    finished = process.run(command, timeout_s=120)
    assert finished.status == 0, finished.stderr

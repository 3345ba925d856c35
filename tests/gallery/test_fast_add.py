"""fast_add: vectors as wide as the addresses of all tensors allow."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.testing import make_tensor

import dotcu
from dotcu.compile import CompileOptions, Target, build, read_source
from dotcu.gallery import add, fast_add
from dotcu.gallery.fast_add import op as module
from helpers.quick_cases import quick, quick_pairs

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WIDTHS = [torch.float64, torch.bfloat16]
"""The widest and a narrowest, whose vectors have two and eight elements."""


def random(device: torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return make_tensor(shape, device=device, dtype=dtype, low=-9, high=9)


@pytest.mark.parametrize("dtype", fast_add.dtypes, ids=str)
def test_it_gives_the_bits_that_torch_gives(dtype: torch.dtype, device: torch.device) -> None:
    a, b = random(device, dtype, 37, 29), random(device, dtype, 37, 29)
    assert torch.equal(fast_add(a, b), a + b)
    assert torch.equal(fast_add(a, b.T.contiguous().T), a + b)


@pytest.mark.parametrize("dtype", quick(WIDTHS, FLOATS), ids=str)
def test_every_length_around_a_vector_has_its_tail(dtype: torch.dtype, device: torch.device) -> None:
    for n in range(20):
        a, b = random(device, dtype, n), random(device, dtype, n)
        memory = torch.full((n + 16,), 7.0, dtype=dtype, device=device)
        fast_add(a, b, out=memory[:n])
        assert torch.equal(memory[:n], a + b), n
        assert (memory[n:] == 7).all(), n


QUICK = {(dtype, offset) for dtype in FLOATS for offset in (1, 4)}


@pytest.mark.parametrize(("dtype", "offset"), quick_pairs(QUICK, FLOATS, range(1, 8)))
def test_a_view_that_starts_anywhere_is_right(dtype: torch.dtype, offset: int, device: torch.device) -> None:
    a, b = random(device, dtype, 100)[offset:], random(device, dtype, 100)[offset:]
    assert torch.equal(fast_add(a, b), a + b)


@pytest.mark.parametrize("dtype", quick(WIDTHS, FLOATS), ids=str)
def test_tensors_that_start_at_different_offsets_are_right(dtype: torch.dtype, device: torch.device) -> None:
    memory = [random(device, dtype, 80) for _ in range(3)]
    for i, j, k in product((0, 1, 3, 8), (0, 2, 5), (0, 1, 4)):
        a, b, out = memory[0][i : i + 70], memory[1][j : j + 70], memory[2][k : k + 70]
        expected, rest = a + b, memory[2].clone()
        fast_add(a, b, out=out)
        assert torch.equal(out, expected), (i, j, k)
        rest[k : k + 70] = expected
        assert torch.equal(memory[2], rest), (i, j, k)


def test_an_aligned_view_is_loaded_as_vectors(device: torch.device) -> None:
    if device.type == "cuda":
        pytest.skip("counts instructions, which the simulator does")
    a, b = torch.randn(1024), torch.randn(1024)
    with dotcu.simulate() as run:
        fast_add(a, b)
    by_vectors = run.counters.lane_instructions
    with dotcu.simulate() as run:
        fast_add(a[1:], b[1:])
    assert by_vectors < run.counters.lane_instructions


@pytest.mark.parametrize(
    "name",
    ["fast_add<float, 4, 1, true>", "fast_add<double, 2, 1, true>", "fast_add<signed char, 16, 1, true>"],
)
def test_the_kernel_moves_16_bytes_at_a_time(name: str) -> None:
    source = read_source(Path(module.__file__).with_name("kernel.cu"))
    built = build(source, options=CompileOptions(), target=Target.parse("compute_80"), names=[name])
    assert len(re.findall(r"ld\.global\.v[24]\.[buf](?:32|64)", built.ptx)) == 2
    assert len(re.findall(r"st\.global\.v[24]\.[buf](?:32|64)", built.ptx)) == 1


@pytest.mark.parametrize(
    ("dtype", "offset", "lanes"),
    [
        (torch.int8, 8, 8),
        (torch.int8, 4, 4),
        (torch.int8, 3, 1),
        (torch.bfloat16, 2, 2),
        (torch.float32, 2, 2),
    ],
)
def test_vectors_are_as_wide_as_an_address_allows(
    dtype: torch.dtype, offset: int, lanes: int, device: torch.device
) -> None:
    a, b = random(device, dtype, 100)[offset:], random(device, dtype, 100 - offset)
    with dotcu.kernel.launch_policy.watching_launches() as seen:
        assert torch.equal(fast_add(a, b), a + b)
    assert [launch.kernel.split(", ")[1] for launch in seen] == [str(lanes)]


def test_a_block_of_fewer_threads_than_a_vector_has_elements_leaves_no_element(device: torch.device) -> None:
    a, b = random(device, torch.int8, 1003), random(device, torch.int8, 1003)
    for block_size in (1, 3, 8):
        assert torch.equal(fast_add(a, b, block_size=block_size), a + b)


@pytest.mark.parametrize("grid_size", [1, 3, 1000])
def test_any_grid_gives_the_same(grid_size: int, device: torch.device) -> None:
    a, b = torch.randn(5003, device=device), torch.randn(5003, device=device)
    assert torch.equal(fast_add(a, b, block_size=64, grid_size=grid_size), a + b)
    assert torch.equal(fast_add(a[1:], b[1:], block_size=64, grid_size=grid_size), a[1:] + b[1:])


@pytest.mark.parametrize("grid_size", [0, -2])
def test_a_grid_without_blocks_is_refused(grid_size: int, device: torch.device) -> None:
    with pytest.raises(ValueError, match=f"got {grid_size}"):
        fast_add(torch.ones(3, device=device), torch.ones(3, device=device), grid_size=grid_size)


def test_more_elements_than_threads_are_all_added(device: torch.device) -> None:
    a, b = torch.randn(30_003, device=device), torch.randn(30_003, device=device)
    with dotcu.simulate(arch="sm_87"):  # holds 8192 threads in blocks of 32
        assert torch.equal(fast_add(a, b, block_size=32), a + b)
        assert torch.equal(fast_add(a[1:], b[1:], block_size=32), a[1:] + b[1:])


def test_the_gradient_of_tensors_of_one_shape_is_handed_on(device: torch.device) -> None:
    a, b = (torch.randn(4, 3, device=device, requires_grad=True) for _ in range(2))
    grad = torch.randn(4, 3, device=device)
    for got in torch.autograd.grad(fast_add(a, b), (a, b), grad):
        assert got.data_ptr() == grad.data_ptr()
        assert torch.equal(got, grad)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((4, 3), (3,)), ((), (5,)), ((2, 1), (1, 4)), ((3,), (2, 4, 3)), ((0, 3), (3,))]
)
def test_the_gradient_of_what_was_broadcast_is_summed(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], device: torch.device
) -> None:
    a, b = (torch.randn(shape, device=device, requires_grad=True) for shape in (a_shape, b_shape))
    grad = torch.randn(torch.broadcast_shapes(a_shape, b_shape), device=device)
    wanted = torch.autograd.grad(a + b, (a, b), grad)
    torch.testing.assert_close(torch.autograd.grad(fast_add(a, b), (a, b), grad), wanted)


def test_two_dtypes_are_refused_by_name(device: torch.device) -> None:
    with pytest.raises(TypeError, match=r"float32 and torch.float64"):
        fast_add(torch.ones(3, device=device), torch.ones(3, dtype=torch.float64, device=device))


@pytest.mark.parametrize("operator", [add, fast_add], ids=["add", "fast_add"])
def test_it_compiles_for_a_size_that_depends_on_values(operator: dotcu.operator.Operator) -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), dotcu.simulate():

        def positive_twice(x: torch.Tensor) -> torch.Tensor:
            kept = x[x > 0]
            result: torch.Tensor = operator(kept, kept)
            return result

        compiled = torch.compile(positive_twice, backend="aot_eager", fullgraph=True)
        assert compiled(torch.tensor([1.0, -1.0, 2.0, 3.0])).tolist() == [2.0, 4.0, 6.0]

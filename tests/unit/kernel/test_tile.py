"""Tile kernels: which they are, how they are launched, what they assume, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import dotcu
from dotcu.compile import Target, driver, tile
from dotcu.errors import ArgumentError, KernelNotFound, LaunchConfigError, LaunchError
from dotcu.kernel import Module, extents, load_inline
from dotcu.kernel.arguments.pack import Placement, pack
from dotcu.kernel.launch import _row

SOURCE = """
#include "cuda_tile.h"
namespace ct = cuda::tiles;
using namespace ct::literals;

#define MADE(name) __tile_global__ void name(float* x) { x[0] = 1; }

template <class T>
__tile_global__ void add(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int n) {
  auto view = [&](auto* p) {
    auto span = ct::tensor_span{ct::assume_aligned(p, 16_ic), ct::extents{n}};
    return ct::partition_view{span, ct::shape{512_ic}};
  };
  auto i = ct::bid().x;
  view(c).store_masked(view(a).load_masked(i) + view(b).load_masked(i), i);
}

__tile_global__ void scale(float* __restrict__ x, int rows_, int columns_, float by) {
  int rows = ct::assume_bounded_below<0>(rows_), columns = ct::assume_divisible<8>(columns_);
  auto span = ct::tensor_span{ct::assume_aligned(x, 16_ic), ct::extents{rows, columns}};
  auto view = ct::partition_view{span, ct::shape{16_ic, 16_ic}};
  view.store_masked(view.load_masked(ct::bid().x, ct::bid().y) * by, ct::bid().x, ct::bid().y);
}

__tile_global__ void numbers(float* out, float f, double d, bool on, signed char i8, unsigned short u16,
                             int i32, long long i64, unsigned n) {
  if (on) {
    out[0] = f; out[1] = float(d); out[2] = float(i8); out[3] = float(u16);
    out[4] = float(i32); out[5] = float(i64); out[6] = float(n);
  }
}

__global__ void plain(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
MADE(made)
__tile__ float factor = 3;
"""

SM = Target.parse("sm_90")


@pytest.fixture(scope="module")
def kernels() -> Module:
    return load_inline(SOURCE)


def packed(kernels: Module, name: str, *args: Any) -> tuple[bytes, ...]:
    """The bytes of a launch's parameters, by the compiled code."""
    kernel = kernels.kernels[name]
    plan = kernel.unit.code(SM, simulated=True).plan(kernel.name)
    return pack(plan, args, Placement(lambda tensor, *_: tensor.data_ptr(), lambda *_: b"", lambda *_: 0))[0]


def test_each_kernel_is_known_for_what_it_is(kernels: Module) -> None:
    declared = {name: kernel.declaration.is_tile for name, kernel in kernels.kernels.items()}
    assert declared == {"add": True, "scale": True, "numbers": True, "plain": False}


def test_a_kernel_that_a_macro_makes_is_known_by_its_code(kernels: Module) -> None:
    assert kernels.made.declaration.is_tile


def test_the_signature_is_the_real_one(kernels: Module) -> None:
    plan = kernels.numbers.unit.code(SM, simulated=True).plan("numbers")
    assert str(plan) == (
        "numbers(float* out, float f, double d, bool on, signed char i8, unsigned short u16, int i32, "
        "long long i64, unsigned int n)"
    )
    assert [parameter.size for parameter in plan.parameters] == [8, 4, 8, 1, 1, 2, 4, 8, 4]


def test_arguments_are_packed_as_for_any_kernel(kernels: Module) -> None:
    x = torch.zeros(8)
    found = packed(kernels, "numbers", x, 0.5, 2.0, True, -3, 60000, -(2**31), 2**40, 2**32 - 1)
    assert (
        b"".join(found[3:])
        == b"\1\xfd\x60\xea" + (2**31).to_bytes(4, "little") + (2**40).to_bytes(8, "little") + b"\xff" * 4
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"block": 128}, "the compiler chooses the threads of a tile block"),
        ({"smem_bytes": 1024}, "the compiler places tiles in shared memory"),
        ({"cluster": 2}, "num_cta_in_cga"),
        ({"cooperative": True}, "do not wait for each other"),
        ({"programmatic": True}, "no call that waits"),
    ],
)
def test_what_a_tile_kernel_does_not_take_is_refused_with_the_reason(
    kernels: Module, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(LaunchConfigError) as caught:
        kernels.made(torch.zeros(4), grid=1, **given)
    assert reason in str(caught.value)
    assert f"Leave {next(iter(given))} out" in str(caught.value)


def test_an_ordinary_kernel_still_needs_a_block(kernels: Module) -> None:
    with pytest.raises(ArgumentError, match="block is missing"):
        kernels.plain(torch.zeros(4), 4, grid=1)


def test_an_extent_below_zero_is_refused(kernels: Module) -> None:
    x = torch.zeros(8)
    with pytest.raises(
        ArgumentError, match=r"parameter 4, int n, takes .*at least 0 \(assumed at .*got int -5"
    ):
        kernels.add[torch.float32](x, x, torch.zeros(8), -5, grid=1)


def test_extents_of_another_rank_are_counted_in_the_message(kernels: Module) -> None:
    with pytest.raises(ArgumentError, match=r"Left over: float 2\.0") as caught:
        kernels.scale(extents(torch.zeros(4, 4, 4)), 2.0, grid=1)
    told = "dotcu.extents of a float32 tensor of shape (4, 4, 4) on cpu counts as a pointer and its 3 sizes"
    assert told in str(caught.value)


def test_a_variable_of_tile_code_is_not_written(kernels: Module) -> None:
    with pytest.raises(ArgumentError, match=r"factor of .* is a __tile__ variable(.|\n)*Pass its value"):
        kernels.variable("factor").write(torch.tensor(2.0))


def test_a_grid_of_zero_runs_nothing(kernels: Module) -> None:
    x = torch.ones(16, 8)
    kernels.scale(extents(x), 2.0, grid=(0, 1))
    assert x.eq(1).all()


def test_a_grid_beyond_a_limit_is_refused_without_a_word_of_threads(kernels: Module) -> None:
    with pytest.raises(LaunchConfigError, match=r"grid.y=65536; the limit is 65535") as caught:
        kernels.scale(extents(torch.ones(16, 8)), 2.0, grid=(1, 65536))
    assert "thread" not in str(caught.value)


def test_a_grid_below_zero_is_refused(kernels: Module) -> None:
    with pytest.raises(LaunchConfigError, match="the least is 0"):
        kernels.scale(extents(torch.ones(16, 8)), 2.0, grid=-1)


class TestExtents:
    def test_they_stand_for_a_pointer_and_the_sizes(self, kernels: Module) -> None:
        x = torch.ones(3, 16)
        assert packed(kernels, "scale", extents(x), 2.0) == packed(kernels, "scale", x, 3, 16, 2.0)

    def test_they_want_a_contiguous_tensor(self, kernels: Module) -> None:
        with pytest.raises(ArgumentError, match="with strides"):
            packed(kernels, "scale", extents(torch.ones(16, 8).t()), 2.0)

    def test_a_size_that_does_not_fit_is_named(self, kernels: Module) -> None:
        with pytest.raises(ArgumentError, match=r"int columns.*a size of a dotcu.extents tensor"):
            packed(kernels, "scale", extents(torch.ones(3, 12)), 2.0)

    def test_they_are_public(self) -> None:
        assert dotcu.extents is extents


class TestPromises:
    def test_a_number_that_is_no_multiple(self, kernels: Module) -> None:
        with pytest.raises(ArgumentError) as caught:
            packed(kernels, "scale", torch.ones(3, 12), 3, 12, 2.0)
        assert "parameter 3, int columns_" in str(caught.value)
        assert "got int 12, which is not a multiple of 8" in str(caught.value)
        assert "assumed at inline.cu:19" in str(caught.value)

    def test_a_number_that_is_too_small(self, kernels: Module) -> None:
        with pytest.raises(ArgumentError, match=r"int rows_.*got int -1, which is not at least 0"):
            packed(kernels, "scale", torch.ones(3, 16), -1, 16, 2.0)

    def test_a_tensor_that_is_not_aligned(self, kernels: Module) -> None:
        with pytest.raises(
            ArgumentError, match=r"16-byte aligned \(assumed at inline.cu:20\).*starts 4 bytes past"
        ):
            packed(kernels, "scale", torch.ones(65)[1:].view(8, 8), 8, 8, 2.0)

    def test_one_that_is_aligned_is_taken(self, kernels: Module) -> None:
        assert packed(kernels, "scale", torch.ones(68)[4:].view(8, 8), 8, 8, 2.0)

    def test_they_hold_for_templates_too(self, kernels: Module) -> None:
        x = torch.ones(8)
        code = kernels.add[torch.float32].unit.code(SM, simulated=True)
        plan = code.plan("add<float>")
        with pytest.raises(ArgumentError, match="16-byte aligned"):
            pack(plan, (x, x, x[1:], 4), Placement(lambda *_: 0, lambda *_: b"", lambda *_: 0))

    def test_a_broken_one_ends_the_launch_on_the_cpu(self, kernels: Module) -> None:
        with pytest.raises(ArgumentError, match="not a multiple of 8"):
            kernels.scale(extents(torch.ones(3, 12)), 2.0, grid=(1, 1))

    def test_native_code_knows_them(self, kernels: Module) -> None:
        plan = kernels.scale.unit.code(SM, simulated=True).plan("scale")
        rows = [_row(packer, 0, p.size) for packer, p in zip(plan.packers, plan.parameters, strict=True)]
        alignments = [int.from_bytes(row[20:24], "little") for row in rows]
        assert alignments == [16, 1, 8, 1]


class TestErrors:
    def test_an_old_driver_is_told_before_anything_is_compiled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = load_inline(f"{SOURCE}// compiled by no other test\n")
        monkeypatch.setattr(driver, "version", lambda: (12, 4))
        with pytest.raises(LaunchError, match="r580 or later"):
            module.scale.unit.on_gpu(0)

    def test_code_for_hosts_of_another_processor_is_not_loaded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = load_inline(SOURCE.replace("MADE(made)", ""))
        code = module.scale.unit.code(SM)
        other = next(host for host in tile.HOSTS if host != tile.host())
        monkeypatch.setattr(tile, "host", lambda: other)
        with pytest.raises(LaunchError, match=f"compiled for hosts of .*, and this machine is {other}"):
            code.library("scale")

    def test_a_gpu_that_the_compiler_does_not_know_yet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "version", lambda: (13, 9))
        found = tile.target_of_gpu((19, 0))
        assert "has no code for compute capability 19.0" in str(found)

    def test_a_name_that_is_not_there(self, kernels: Module) -> None:
        with pytest.raises(KernelNotFound, match="scale"):
            kernels.scales  # noqa: B018


def test_the_resources_are_those_of_the_cubin(kernels: Module) -> None:
    attributes = kernels.scale.attributes
    assert attributes.registers > 0
    assert attributes.max_threads_per_block % 32 == 0
    assert kernels.scale.occupancy() >= 1
    with pytest.raises(LaunchConfigError, match="chooses the threads"):
        kernels.scale.occupancy(128)


class TestSimulated:
    def test_a_sum_is_torchs(self, kernels: Module) -> None:
        a, b = torch.randn(2, 1000)
        out = torch.empty_like(a)
        kernels.add[torch.float32](a, b, out, 1000, grid=dotcu.cdiv(1000, 512))
        assert out.equal(a + b)

    def test_both_kinds_run_from_one_file(self, kernels: Module) -> None:
        x = torch.ones(16, 16)
        kernels.scale(extents(x), 3.0, grid=(1, 1))
        kernels.plain(x, 4, grid=1, block=32)
        assert x.sum() == 16 * 16 * 3 + 4 * 3

    def test_every_kind_of_number_arrives(self, kernels: Module) -> None:
        out = torch.zeros(7)
        kernels.numbers(out, 0.5, 2.0, True, -3, 60000, -7, 2**30, 9, grid=1)
        assert out.tolist() == [0.5, 2.0, -3.0, 60000.0, -7.0, 2.0**30, 9.0]

    def test_a_read_of_what_nothing_wrote_has_its_line(self, kernels: Module) -> None:
        with dotcu.simulate(on_finding="collect") as run:
            x, out = torch.empty(512), torch.zeros(512)
            kernels.add[torch.float32](x, torch.ones(512), out, 512, grid=1)
        assert {finding.kind for finding in run.findings} == {"uninitialized-read"}
        assert {finding.line for finding in run.findings} == {15}
        assert "`a`, argument 1 of `add<float>`" in run.findings[0].caller

    def test_a_written_tensor_counts_as_written(self, kernels: Module) -> None:
        x = torch.ones(16, 16)
        before = x._version
        kernels.scale(extents(x), 3.0, grid=(1, 1))
        assert x._version > before

    def test_it_can_be_warmed(self, kernels: Module) -> None:
        kernels.scale.warm()


of_operator = load_inline(SOURCE)


@dotcu.op("tile_tests::twice")
def twice(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        raise TypeError(f"twice takes floating-point tensors, got {x.dtype}")
    x = x.contiguous()
    out = torch.empty_like(x)
    of_operator.add[x.dtype](x, x, out, x.numel(), grid=dotcu.cdiv(x.numel(), 512))
    return out


@twice.reference
def _(x: torch.Tensor) -> torch.Tensor:
    return x + x


@twice.backward
def _(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    return grad * 2


@twice.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.randn(700, device=device, dtype=dtype))


class TestOperator:
    def test_its_body_is_simulated_and_its_own_fake(self) -> None:
        x = torch.randn(700)
        with dotcu.simulate():
            assert twice(x).equal(2 * x)
        assert twice(x.to("meta")).shape == (700,)

    def test_it_has_a_gradient(self) -> None:
        x = torch.randn(700, requires_grad=True)
        twice(x).sum().backward()
        assert x.grad is not None
        assert x.grad.eq(2).all()

    @pytest.mark.slow
    def test_it_passes_its_checks(self) -> None:
        report = dotcu.check(twice, level="quick")
        assert report.passed, str(report)

    @pytest.mark.gpu
    def test_torch_compile_takes_it_whole(self) -> None:
        x = torch.randn(700, device="cuda")
        compiled = torch.compile(lambda x: twice(x) + 1, fullgraph=True, dynamic=True)
        assert compiled(x).allclose(2 * x + 1)

    @pytest.mark.gpu
    def test_a_repeated_call_still_checks_promises(self) -> None:
        x = torch.randn(704, device="cuda")
        for _ in range(4):
            assert twice(x).equal(2 * x)
        with pytest.raises(ArgumentError, match="16-byte aligned"):
            twice(x[1:])


@pytest.mark.gpu
class TestOnGpu:
    @pytest.fixture(autouse=True)
    def _sm_80(self) -> None:
        if torch.cuda.get_device_capability() < (8, 0):
            pytest.skip("tile kernels need compute capability 8.0")

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_a_sum_is_torchs(self, kernels: Module, dtype: torch.dtype) -> None:
        a, b = torch.randn(2, 5000, device="cuda", dtype=dtype)
        out = torch.empty_like(a)
        for _ in range(3):  # the second is native
            out.zero_()
            kernels.add[dtype](a, b, out, a.numel(), grid=dotcu.cdiv(a.numel(), 512))
            assert out.equal(a + b)

    def test_every_kind_of_number_arrives(self, kernels: Module) -> None:
        out = torch.zeros(7, device="cuda")
        kernels.numbers(out, 0.5, 2.0, True, -3, 60000, -7, 2**30, 9, grid=1)
        assert out.tolist() == [0.5, 2.0, -3.0, 60000.0, -7.0, 2.0**30, 9.0]

    def test_both_kinds_run_from_one_file(self, kernels: Module) -> None:
        x = torch.ones(16, 16, device="cuda")
        kernels.scale(extents(x), 3.0, grid=(1, 1))
        kernels.plain(x, 4, grid=1, block=32)
        assert x.sum() == 16 * 16 * 3 + 4 * 3

    def test_the_second_launch_is_native_and_still_checks_promises(self, kernels: Module) -> None:
        x = torch.ones(16, 16, device="cuda")
        for _ in range(2):
            kernels.scale(extents(x), 2.0, grid=(1, 1))
        assert kernels.scale._plans.quick((extents(x), 2.0), (1, 1), 1, 0, None, False, False, None)
        with pytest.raises(ArgumentError, match="not a multiple of 8"):
            kernels.scale(extents(torch.ones(16, 12, device="cuda")), 2.0, grid=(1, 1))
        with pytest.raises(ArgumentError, match="not at least 0"):
            kernels.scale(x, -16, 16, 2.0, grid=(1, 1))
        with pytest.raises(ArgumentError, match="16-byte aligned"):
            kernels.scale(extents(torch.ones(65, device="cuda")[1:].view(8, 8)), 2.0, grid=(1, 1))
        assert x.eq(8).all()

    def test_it_runs_on_the_current_stream_and_in_a_graph(self, kernels: Module) -> None:
        x = torch.ones(64, 64, device="cuda")
        kernels.scale.warm()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            kernels.scale(extents(x), 2.0, grid=(4, 4))
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernels.scale(extents(x), 2.0, grid=(4, 4))
        for _ in range(3):
            graph.replay()
        assert x.eq(16).all()

    def test_it_runs_from_many_threads(self, kernels: Module) -> None:
        from concurrent.futures import ThreadPoolExecutor

        def run(_: int) -> bool:
            x = torch.ones(64, 64, device="cuda")
            for _ in range(50):
                kernels.scale(extents(x), -1.0, grid=(4, 4))
            return bool(x.eq(1).all())

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(run, range(8)))

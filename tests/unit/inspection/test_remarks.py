from __future__ import annotations

from typing import Any

import pytest
import torch

from dotcu.compile import Target
from dotcu.inspection.assembly import SassInstruction
from dotcu.inspection.build import KernelCode
from dotcu.inspection.remarks import Remark, code_remarks, count_remarks
from dotcu.kernel import load_inline, simulate
from dotcu.simulator import Counters, LineCounters
from dotcu.tile_ir.module import SourceLocation
from helpers.inspected_kernels import GENERATIONS, everything, inspected, line_of, needs_nvdisasm


def remarks(kernel: str, arch: str = "sm_90a", *, with_sass: bool = True) -> list[Remark]:
    return list(everything(arch, with_sass=with_sass)[kernel].remarks)


def the(kind: str, found: list[Remark]) -> Remark:
    (one,) = [remark for remark in found if remark.kind == kind]
    return one


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_an_integer_division_is_remarked_on_at_its_line(arch: str) -> None:
    remark = the("integer division", remarks("divide", arch))
    assert remark.location is not None
    assert remark.location.line == line_of("y[0] = a / b;")
    assert remark.message.startswith("div.s32 by a value known only at run time, ")


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_a_long_division_counts_the_subroutine_that_it_calls(arch: str) -> None:
    assert "and a call of a subroutine of" in the("integer division", remarks("divide_long", arch)).message


@pytest.mark.parametrize("arch", GENERATIONS)
def test_a_division_by_a_constant_is_none(arch: str) -> None:
    assert remarks("divide_by_seven", arch) == []


LITERAL = """__global__ void k(float* y, float a) {
    y[0] = a * 2.1 + 1.0;
}
"""


@pytest.mark.parametrize("arch", ["sm_90", "compute_90"])
def test_a_constant_that_lacks_its_f_is_remarked_on(arch: str) -> None:
    remark = the("double", list(inspected(LITERAL, arch)["k"].remarks))
    assert remark.location is not None
    assert remark.location.line == 2
    assert "though no parameter is a double" in remark.message


def test_doubles_are_remarked_on_only_where_nothing_asks_for_them() -> None:
    kernels = inspected("""// double trouble
#include <dotcu/tensor.cuh>
#include <cuda_fp16.h>
struct Pair { float a; };
__global__ void literal(float* y, float a) { y[0] = a * 2.1; }
__global__ void compared(float* y, float a) { if (a > 0.1) y[0] = 1.0f; }
__global__ void tensor(float* y, const dotcu::tensor<float, 2> x, float a) { y[0] = a * 2.1; }
__global__ void integer(unsigned long long* y, const __half* x, float a) { y[0] = a * 2.1; }

__global__ void meant(float* y, float a) { double wide = a; y[0] = static_cast<float>(wide * 2.1); }
__global__ void parameter(float* y, double a) { y[0] = a * 2.1; }
__global__ void structure(float* y, Pair p) { y[0] = p.a * 2.1; }
__global__ void pointer(float* y, const void* x, float a) { y[0] = a * 2.1; }
__global__ void tensor_of_doubles(float* y, const dotcu::tensor<double, 2> x, float a) { y[0] = a * 2.1; }
""")
    remarked = {name for name, one in kernels.items() if [r.kind for r in one.remarks] == ["double"]}
    assert remarked == {"literal", "compared", "tensor", "integer"}
    assert all(one.remarks == () for name, one in kernels.items() if name not in remarked)


@pytest.mark.parametrize("arch", GENERATIONS)
def test_the_double_of_a_sines_range_reduction_is_no_accident(arch: str) -> None:
    kernel = inspected("__global__ void k(float* y, float a) { y[0] = sinf(a); }", arch)["k"]
    assert ".f64" in kernel.code.ptx_text
    assert "double" not in {remark.kind for remark in kernel.remarks}


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_ieee_division_and_root_report_their_slow_path(arch: str) -> None:
    assert "div.rn.f32, with IEEE 754 rounding" in the("division", remarks("divide_floats", arch)).message
    assert "sqrt.rn.f32" in the("square root", remarks("root", arch)).message


@needs_nvdisasm
def test_the_fast_forms_have_no_slow_path() -> None:
    text = "__global__ void k(float* y, float a, float b) { y[0] = __fdividef(a, b) + rsqrtf(a); }"
    assert inspected(text)["k"].remarks == ()


@needs_nvdisasm
def test_fp8_products_are_remarked_on_where_they_are_not_native() -> None:
    emulated = the("fp8 product", remarks("fp8_products", "sm_90a"))
    assert "unpacked to f16 for HMMA" in emulated.message


@needs_nvdisasm
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_89", "sm_120a"])
def test_native_fp8_products_are_not_remarked_on(arch: str) -> None:
    assert remarks("fp8_products", arch) == []


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_an_atomic_that_is_a_loop_is_remarked_on(arch: str) -> None:
    assert "compare-and-swap" in the("atomic by a loop", remarks("shared_float_atomic", arch)).message
    assert remarks("global_atomic", arch) == []
    assert remarks("own_lock", arch) == []


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_of_a_generic_atomic_it_is_reported_where_the_loop_is_taken(arch: str) -> None:
    text = """
__global__ void k(long long* x, long long a) {
    asm volatile("red.max.s64 [%0], %1;" :: "l"(x), "l"(a));
}
"""
    shown = the("atomic by a loop", list(inspected(text, arch)["k"].remarks))
    assert shown.message.startswith("red.max.s64 is a compare-and-swap loop for an address in shared memory")
    assert "in shared memory" not in the("atomic by a loop", remarks("shared_float_atomic")).message


@needs_nvdisasm
def test_spills_and_local_arrays_are_kept_apart() -> None:
    assert {remark.kind for remark in remarks("spill")} == {"spill"}
    assert {remark.kind for remark in remarks("local_array")} == {"local memory"}


@needs_nvdisasm
def test_local_memory_stands_at_the_line_that_accesses_it() -> None:
    places = [remark.location for remark in remarks("local_array")]
    assert line_of("counts[(x[i] * 7) & 63] = i;") in {place.line for place in places if place}


def test_without_a_disassembler_spills_are_reported_in_bytes() -> None:
    (remark,) = remarks("spill", with_sass=False)
    code = everything("sm_90a")["spill"].code
    assert code.resources is not None
    assert f"{code.resources.spill_store_bytes} B of stores" in remark.message
    assert remark.location is None


def test_without_a_disassembler_nothing_is_said_that_only_it_can_tell() -> None:
    assert remarks("shared_float_atomic", with_sass=False) == []
    assert the("integer division", remarks("divide", with_sass=False)).message.endswith("at run time")


def test_a_division_of_no_source_line_is_reported_near_the_line_before_it() -> None:
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
        ".loc 1 3 1\n add.s64 %rd1, %rd2, %rd3;\n.loc 1 0 1\n div.u64 %rd1, %rd2, %rd3;\n ret;\n}\n"
        '.file 1 "/dotcu/k.cu"\n'
    )
    code = KernelCode(
        name="k", symbol="k", arch=Target.parse("sm_90"), resources=None, ptx_text=text, cubin=None, files={}
    )
    (remark,) = code_remarks(code, None)
    assert (remark.location, remark.near) == (SourceLocation("/dotcu/k.cu", 3), True)
    assert str(remark).startswith("near /dotcu/k.cu:3: div.u64 by a value")
    assert remark.message.endswith("(PTX line 9; the compiler gives no source line)")


def test_where_no_line_stands_before_it_a_division_is_reported_by_its_line_of_ptx_alone() -> None:
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
        " div.u64 %rd1, %rd2, %rd3;\n ret;\n}\n"
    )
    code = KernelCode(
        name="k", symbol="k", arch=Target.parse("sm_90"), resources=None, ptx_text=text, cubin=None, files={}
    )
    (remark,) = code_remarks(code, None)
    assert (remark.location, remark.near) == (None, False)
    assert "(PTX line 6; the compiler gives no source line)" in str(remark)


def test_a_remark_begins_with_its_place() -> None:
    assert str(Remark(kind="spill", location=SourceLocation("k.cu", 3), message="why")) == "k.cu:3: why"
    assert str(Remark(kind="spill", location=None, message="why")) == "why"


AT = SourceLocation("k.cu", 5)
COALESCED = LineCounters(
    lane_instructions=3200, warp_instructions=100, global_requests=100, global_sectors=400, ideal_sectors=400,
    global_bytes=12800,
)  # fmt: skip


def load(modifiers: tuple[str, ...] = ("E",), opcode: str = "LDG") -> SassInstruction:
    return SassInstruction(
        address=0, text="", predicate="", opcode=opcode, modifiers=modifiers, operands=(), chain=(AT,)
    )


def kinds(
    line: LineCounters, sass: tuple[SassInstruction, ...] = (), total: LineCounters | None = None
) -> list[str]:
    return [remark.kind for remark in count_remarks(total or line, {AT: line}, sass, "k.cu")]


def changed(**values: Any) -> LineCounters:
    return LineCounters(**{**vars(COALESCED), **values})


def test_neighbours_in_neighbouring_words_are_fine() -> None:
    assert kinds(COALESCED, (load(("E", "128")),)) == []


def test_scattered_accesses_are_reported_with_both_numbers() -> None:
    (remark,) = count_remarks(COALESCED, {AT: changed(global_sectors=3200)}, (), "k.cu")
    assert remark.kind == "uncoalesced"
    assert "32.0 sectors per request, where 4.0 would be enough (12% of" in remark.message


def test_a_few_requests_prove_nothing() -> None:
    assert kinds(changed(global_requests=4, global_sectors=128, ideal_sectors=16)) == []


def test_bank_conflicts_are_reported() -> None:
    conflicts = LineCounters(shared_requests=100, shared_wavefronts=3200, ideal_wavefronts=100)
    assert kinds(conflicts) == ["bank conflicts"]
    assert kinds(LineCounters(shared_requests=100, shared_wavefronts=100, ideal_wavefronts=100)) == []


def test_idle_lanes_are_reported_where_much_is_issued() -> None:
    few = LineCounters(lane_instructions=100, warp_instructions=100)
    assert kinds(few) == ["idle lanes"]
    assert kinds(few, total=LineCounters(warp_instructions=10_000)) == []


@pytest.mark.parametrize(
    ("modifiers", "times"), [(("E", "U8"), 16), (("E", "U16"), 8), (("E",), 4), (("E", "64"), 2)]
)
def test_narrow_accesses_side_by_side_are_reported(modifiers: tuple[str, ...], times: int) -> None:
    (remark,) = count_remarks(COALESCED, {AT: COALESCED}, [load(modifiers)], "k.cu")
    assert remark.kind == "narrow access"
    assert f"{times} times fewer accesses" in remark.message


def test_narrow_accesses_are_not_reported_where_lanes_share_words() -> None:
    broadcast = changed(global_sectors=100, ideal_sectors=100)
    assert kinds(broadcast, (load(),)) == []


def test_narrow_accesses_are_not_reported_where_some_are_wide() -> None:
    assert kinds(COALESCED, (load(), load(("E", "128")))) == []


def test_narrow_accesses_are_not_reported_of_atomics_or_without_sass() -> None:
    assert kinds(changed(atomics=3200), (load(),)) == []
    assert kinds(COALESCED) == []


SOURCE = """
__global__ void strided(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[(i * 33) % n];
}
__global__ void transposed(float* y) {
    __shared__ float tile[32][32];
    tile[threadIdx.x][threadIdx.y] = threadIdx.x;
    __syncthreads();
    y[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.y][threadIdx.x];
}
"""


def counted(kernel: str, *args: Any, **shape: Any) -> Counters:
    with simulate(on_finding="collect", checks=()) as run:
        load_inline(SOURCE).kernels[kernel](*args, **shape)
    return run.counters


def of(counters: Counters) -> list[Remark]:
    lines = {SourceLocation(*place): line for place, line in counters.lines.items()}
    return list(count_remarks(counters, lines, (), "inline.cu"))


def test_a_strided_kernel_is_seen_by_the_simulators_counts() -> None:
    found = of(counted("strided", torch.zeros(4096), torch.zeros(4096), 4096, grid=16, block=256))
    assert [(remark.kind, remark.location) for remark in found] == [
        ("uncoalesced", SourceLocation("inline.cu", 4))
    ]


def test_a_column_of_shared_memory_is_seen_by_the_simulators_counts() -> None:
    found = of(counted("transposed", torch.zeros(1024), grid=1, block=(32, 32)))
    assert [(remark.kind, remark.location) for remark in found] == [
        ("bank conflicts", SourceLocation("inline.cu", 8))
    ]
    assert "32.0 times as many wavefronts" in found[0].message

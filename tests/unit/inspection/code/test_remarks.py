from __future__ import annotations

import pytest

from dotcu.compile import Target
from dotcu.inspection.code.places import Place
from dotcu.inspection.code.remarks import Remark, of_code
from dotcu.inspection.code.units import KernelCode
from inspecting import everything, inspected, line_of, needs_nvdisasm

ALL = ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"]


def remarks(kernel: str, arch: str = "sm_90a", *, with_sass: bool = True) -> list[Remark]:
    return list(everything(arch, with_sass=with_sass)[kernel].remarks)


def the(kind: str, found: list[Remark]) -> Remark:
    (one,) = [remark for remark in found if remark.kind == kind]
    return one


@needs_nvdisasm
@pytest.mark.parametrize("arch", ALL)
def test_an_integer_division_is_remarked_on_at_its_line(arch: str) -> None:
    remark = the("integer division", remarks("divide", arch))
    assert remark.place is not None
    assert remark.place.line == line_of("y[0] = a / b;")
    assert remark.message.startswith("div.s32 by a value that is known only at run time, ")


@needs_nvdisasm
@pytest.mark.parametrize("arch", ALL)
def test_a_long_division_counts_the_subroutine_that_it_calls(arch: str) -> None:
    assert "and a call of a subroutine of" in the("integer division", remarks("divide_long", arch)).message


@pytest.mark.parametrize("arch", ALL)
def test_a_division_by_a_constant_is_none(arch: str) -> None:
    assert remarks("divide_by_seven", arch) == []


LITERAL = """__global__ void k(float* y, float a) {
    y[0] = a * 2.1 + 1.0;
}
"""
MEANT = "__global__ void k(float* y, float a) { double wide = a; y[0] = static_cast<float>(wide * 2.1); }"
STRUCT = "struct Pair { float a; }; __global__ void k(float* y, Pair p) { y[0] = p.a * 2.1; }"


@pytest.mark.parametrize("arch", ["sm_90", "compute_90"])
def test_a_constant_that_lacks_its_f_is_remarked_on(arch: str) -> None:
    remark = the("double", list(inspected(LITERAL, arch)["k"].remarks))
    assert remark.place is not None
    assert remark.place.line == 2
    assert "though no parameter is a double" in remark.message


@pytest.mark.parametrize("kernel", [MEANT, STRUCT, LITERAL.replace("float a", "double a")])
def test_doubles_that_may_be_meant_are_not_remarked_on(kernel: str) -> None:
    assert inspected(kernel)["k"].remarks == ()


def test_the_word_double_in_a_comment_means_nothing() -> None:
    assert [remark.kind for remark in inspected("// double trouble\n" + LITERAL)["k"].remarks] == ["double"]


def test_a_comparison_with_a_double_constant_is_remarked_on() -> None:
    kernel = inspected("__global__ void k(float* y, float a) { if (a > 0.1) y[0] = 1.0f; }")["k"]
    assert [remark.kind for remark in kernel.remarks] == ["double"]


def test_doubles_of_another_kernel_in_the_file_mean_nothing() -> None:
    other = "__global__ void other(double* y) { y[0] = 2; }\n"
    assert [remark.kind for remark in inspected(LITERAL + other)["k"].remarks] == ["double"]


@pytest.mark.parametrize("arch", ALL)
def test_the_double_of_a_sines_range_reduction_is_nobodys_accident(arch: str) -> None:
    kernel = inspected("__global__ void k(float* y, float a) { y[0] = sinf(a); }", arch)["k"]
    assert ".f64" in kernel.code.text
    assert "double" not in {remark.kind for remark in kernel.remarks}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("float* y, const dotcu::tensor<float, 2> x", True),
        ("float* y, const dotcu::tensor<double, 2> x", False),
        ("float* y, const void* x", False),
        ("unsigned long long* y, const __half* x", True),
    ],
)
def test_doubles_are_remarked_on_only_where_all_parameters_are_known(parameters: str, expected: bool) -> None:
    text = (
        "#include <dotcu/tensor.cuh>\n#include <cuda_fp16.h>\n"
        f"__global__ void k({parameters}, float a) {{\n    y[0] = a * 2.1;\n}}\n"
    )
    found = inspected(text)["k"].remarks
    assert [remark.kind for remark in found] == (["double"] if expected else [])


@needs_nvdisasm
@pytest.mark.parametrize("arch", ALL)
def test_ieee_division_and_root_tell_of_their_slow_path(arch: str) -> None:
    assert "div.rn.f32, rounded as IEEE 754 says" in the("division", remarks("divide_floats", arch)).message
    assert "sqrt.rn.f32" in the("square root", remarks("root", arch)).message


@needs_nvdisasm
def test_the_fast_forms_have_no_slow_path() -> None:
    text = "__global__ void k(float* y, float a, float b) { y[0] = __fdividef(a, b) + rsqrtf(a); }"
    assert inspected(text)["k"].remarks == ()


@needs_nvdisasm
def test_fp8_products_are_remarked_on_where_they_are_not_native() -> None:
    assert [remark.kind for remark in remarks("fp8_products", "sm_89")] == []
    assert [remark.kind for remark in remarks("fp8_products", "sm_120a")] == []
    emulated = the("fp8 product", remarks("fp8_products", "sm_90a"))
    assert "unpacked to f16 for HMMA" in emulated.message


@needs_nvdisasm
@pytest.mark.parametrize("arch", ALL)
def test_an_atomic_that_is_a_loop_is_remarked_on(arch: str) -> None:
    assert "compare-and-swap" in the("atomic by a loop", remarks("shared_float_atomic", arch)).message
    assert remarks("global_atomic", arch) == []
    assert remarks("own_lock", arch) == []


@needs_nvdisasm
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_of_a_generic_atomic_it_is_told_where_the_loop_is_taken(arch: str) -> None:
    text = """
__global__ void k(long long* x, long long a) {
    asm volatile("red.max.s64 [%0], %1;" :: "l"(x), "l"(a));
}
"""
    told = the("atomic by a loop", list(inspected(text, arch)["k"].remarks))
    assert told.message.startswith(
        "red.max.s64 has a loop of compare-and-swap for an address in shared memory"
    )
    assert "in shared memory" not in the("atomic by a loop", remarks("shared_float_atomic")).message


@needs_nvdisasm
def test_spills_and_local_arrays_are_told_apart() -> None:
    assert {remark.kind for remark in remarks("spill")} == {"spill"}
    assert {remark.kind for remark in remarks("local_array")} == {"local memory"}


@needs_nvdisasm
def test_local_memory_stands_at_the_line_that_accesses_it() -> None:
    places = [remark.place for remark in remarks("local_array")]
    assert line_of("counts[(x[i] * 7) & 63] = i;") in {place.line for place in places if place}


def test_without_a_disassembler_spills_are_told_in_bytes() -> None:
    (remark,) = remarks("spill", with_sass=False)
    code = everything("sm_90a")["spill"].code
    assert code.resources is not None
    assert f"{code.resources.spill_store_bytes} B of stores" in remark.message
    assert remark.place is None


def test_without_a_disassembler_nothing_is_said_that_only_it_can_tell() -> None:
    assert remarks("shared_float_atomic", with_sass=False) == []
    assert the("integer division", remarks("divide", with_sass=False)).message.endswith("at run time")


def test_a_division_of_no_source_line_is_told_near_the_line_before_it() -> None:
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
        ".loc 1 3 1\n add.s64 %rd1, %rd2, %rd3;\n.loc 1 0 1\n div.u64 %rd1, %rd2, %rd3;\n ret;\n}\n"
        '.file 1 "/dotcu/k.cu"\n'
    )
    code = KernelCode(
        name="k", symbol="k", arch=Target.parse("sm_90"), resources=None, text=text, cubin=None, files={}
    )
    (remark,) = of_code(code, None)
    assert (remark.place, remark.near) == (Place("/dotcu/k.cu", 3), True)
    assert str(remark).startswith("near /dotcu/k.cu:3: div.u64 by a value")
    assert remark.message.endswith("(PTX line 9; the compiler tells no source line)")


def test_where_no_line_stands_before_it_a_division_is_told_by_its_line_of_ptx_alone() -> None:
    text = (
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
        " div.u64 %rd1, %rd2, %rd3;\n ret;\n}\n"
    )
    code = KernelCode(
        name="k", symbol="k", arch=Target.parse("sm_90"), resources=None, text=text, cubin=None, files={}
    )
    (remark,) = of_code(code, None)
    assert (remark.place, remark.near) == (None, False)
    assert "(PTX line 6; the compiler tells no source line)" in str(remark)


def test_a_remark_begins_with_its_place() -> None:
    assert str(Remark(kind="spill", place=Place("k.cu", 3), message="why")) == "k.cu:3: why"
    assert str(Remark(kind="spill", place=None, message="why")) == "why"

from __future__ import annotations

import re
from typing import Any

import pytest

from dotcu.compile import CompileOptions, Target, inline_source, toolchain
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.code.build import BuildRequest, FailedBuild, compile_kernels, kernels_in_source
from dotcu.inspection.code.listing import KINDS, emit
from dotcu.inspection.code.report import InspectedKernel, InspectReport
from dotcu.inspection.code.sass import disassemble
from helpers.inspected_kernels import everything, inspected, needs_nvdisasm


def report(*names: str, arch: str = "sm_90a", with_sass: bool = True) -> InspectReport:
    kernels = everything(arch, with_sass=with_sass)
    return InspectReport(target="k.cu", kernels=tuple(kernels[name] for name in names))


def entries(ptx: bytes) -> list[str]:
    return re.findall(r"\.entry (\w+)", ptx.decode())


def functions(cubin: bytes) -> set[str]:
    return {name.decode() for name in re.findall(rb"\.text\.(\w+)", cubin)}


def of(text: str, *names: str, arch: str = "sm_90", **options: Any) -> InspectReport:
    kernels = inspected(text, arch, **options)
    return InspectReport(target="k.cu", kernels=tuple(kernels[name] for name in names))


@pytest.mark.parametrize("arch", ["sm_90a", "compute_90"])
def test_ptx_of_one_kernel_has_that_kernel_alone(arch: str) -> None:
    text = emit(report("divide", arch=arch), "ptx")
    assert entries(text) == ["_Z6dividePiii"]
    assert b"div.s32" in text


def test_a_cubin_of_one_kernel_has_that_kernel_alone() -> None:
    assert functions(emit(report("divide"), "cubin")) == {"_Z6dividePiii"}


@pytest.mark.slow
def test_of_several_kernels_of_a_file_the_cubin_has_those() -> None:
    assert functions(emit(report("divide", "spill"), "cubin")) == {"_Z6dividePiii", "_Z5spillPfPKf"}


@needs_nvdisasm
@pytest.mark.parametrize("what", [kind for kind in KINDS if kind != "tileir"])
def test_nothing_of_the_probe_is_emitted(what: str) -> None:
    assert b"dotcu_probe" not in emit(report("divide", "calls"), what)


def test_what_is_emitted_is_the_kernel_that_was_inspected() -> None:
    shown = everything("sm_90a")["divide_long"]
    made = disassemble(emit(report("divide_long"), "cubin"), {})[shown.code.symbol]
    assert shown.function is not None
    assert [i.mnemonic for i in made] == [i.mnemonic for i in shown.function]


@pytest.mark.parametrize("name", ["made", "own"])
def test_kernels_that_a_macro_makes_stand_alone_too(name: str) -> None:
    text = """
#define MAKE(name) __global__ void name(int* x) { x[0] = 1; }
MAKE(made)
__global__ void own(int* x) { x[0] = 2; }
"""
    found = of(text, name)
    assert entries(emit(found, "ptx")) == [found.kernels[0].code.symbol]
    assert functions(emit(found, "cubin")) == {found.kernels[0].code.symbol}


def test_overloads_are_emitted_together() -> None:
    text = """
__global__ void over(int* x) { x[0] = 1; }
__global__ void over(float* x) { x[0] = 1; }
__global__ void other(float* x) { x[0] = 1; }
"""
    unit, _, _ = kernels_in_source(inline_source(text), CompileOptions())
    found = compile_kernels(BuildRequest(unit=unit, target=Target.parse("sm_90")))
    assert not isinstance(found, FailedBuild)
    kernels = tuple(InspectedKernel(code=code) for code in found if code.name == "over")
    report = InspectReport(target="k.cu:over", kernels=kernels)
    assert entries(emit(report, "ptx")) == ["_Z4overPi", "_Z4overPf"]
    assert functions(emit(report, "cubin")) == {"_Z4overPi", "_Z4overPf"}


def test_a_kernel_that_names_another_is_emitted_with_it() -> None:
    text = """
__global__ void first(int* x) { x[0] = 1; }
__global__ void second(int* x) { x[0] = (long long)(void*)first; }
"""
    assert entries(emit(of(text, "second"), "ptx")) == ["_Z5firstPi", "_Z6secondPi"]
    assert functions(emit(of(text, "second"), "cubin")) == {"_Z5firstPi", "_Z6secondPi"}
    assert entries(emit(of(text, "first"), "ptx")) == ["_Z5firstPi"]


@pytest.mark.parametrize("what", ["sass", "cubin", "resources"])
def test_of_ptx_alone_nothing_of_machine_code_is_emitted(what: str) -> None:
    with pytest.raises(UsageError, match=f"--emit {what} needs machine code, and compute_90 is only PTX"):
        emit(report("divide", arch="compute_90"), what)


@pytest.mark.parametrize("what", KINDS)
def test_where_there_is_no_kernel_that_is_reported(what: str) -> None:
    with pytest.raises(UsageError, match=rf"no kernel of which to emit {what}.*\n.*\n.*dotcu inspect k.cu"):
        emit(InspectReport(target="k.cu", kernels=()), what)


@pytest.mark.parametrize("what", ["ptx", "cubin"])
def test_of_several_architectures_no_file_can_be_made(what: str) -> None:
    kernels = (everything("sm_90a")["divide"], everything("sm_75")["divide"])
    with pytest.raises(UsageError, match=r"one architecture.*divide sm_90a, divide sm_75"):
        emit(InspectReport(target="k.cu", kernels=kernels), what)


@needs_nvdisasm
def test_sass_has_each_instruction_after_its_source_line() -> None:
    text = emit(report("copy_vectors"), "sass").decode()
    kernel = everything("sm_90a")["copy_vectors"]
    assert kernel.function is not None
    lines = text.splitlines()
    assert lines[0] == f"{kernel.code.symbol}:  // copy_vectors sm_90a"
    assert sum("/*" in line for line in lines) == len(kernel.function)
    (load,) = [i for i in kernel.function if i.opcode == "LDG"]
    assert f"    /*{load.address:04x}*/  {load.text};" in lines
    assert f"    // {load.chain[0]}" in lines


@needs_nvdisasm
def test_subroutines_and_branch_targets_are_labelled_in_sass() -> None:
    text = emit(report("divide_long"), "sass").decode()
    assert "\n$__internal_" in text
    assert "\n.L_x_" in text


def test_sass_without_a_disassembler_is_an_error_that_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    with pytest.raises(EnvironmentFault, match="pip install nvidia-cuda-nvdisasm"):
        emit(report("divide", with_sass=False), "sass")


def test_resources_are_a_table_with_a_head() -> None:
    head, first, second = emit(report("divide", "spill"), "resources").decode().splitlines()
    rows = [dict(zip(head.split("\t"), row.split("\t"), strict=True)) for row in (first, second)]
    assert [row["kernel"] for row in rows] == ["divide", "spill"]
    resources = everything("sm_90a")["spill"].code.resources
    assert resources is not None
    assert int(rows[1]["spill_store_bytes"]) == resources.spill_store_bytes > 0


def test_symbols_are_reported_with_their_names() -> None:
    assert emit(report("divide"), "symbols") == b"T _Z6dividePiii\tdivide\tsm_90a\n"


def test_what_cannot_be_emitted_is_refused_with_what_can() -> None:
    with pytest.raises(UsageError, match="one of " + ", ".join(KINDS)):
        emit(report("divide"), "llvm")

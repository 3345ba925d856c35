from __future__ import annotations

import pytest

from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.code.emit import KINDS, emit
from dotcu.inspection.code.report import InspectReport
from inspecting import everything, needs_nvdisasm


def report(*names: str, arch: str = "sm_90a", with_sass: bool = True) -> InspectReport:
    kernels = everything(arch, with_sass=with_sass)
    return InspectReport(target="k.cu", kernels=tuple(kernels[name] for name in names))


def test_ptx_is_the_units_own() -> None:
    assert emit(report("divide"), "ptx") == everything("sm_90a")["divide"].code.text.encode()


def test_a_cubin_is_the_units_own() -> None:
    assert emit(report("divide", "spill"), "cubin") == everything("sm_90a")["divide"].code.cubin


@pytest.mark.parametrize("what", ["ptx", "cubin"])
def test_of_several_architectures_no_file_can_be_made(what: str) -> None:
    kernels = (everything("sm_90a")["divide"], everything("sm_80")["divide"])
    with pytest.raises(UsageError, match=r"one architecture.*divide sm_90a, divide sm_80"):
        emit(InspectReport(target="k.cu", kernels=kernels), what)


def test_of_ptx_alone_there_is_no_cubin() -> None:
    with pytest.raises(UsageError, match=r"k\.cu has 0"):
        emit(report("divide", arch="compute_90"), "cubin")


@needs_nvdisasm
def test_sass_has_each_instruction_after_its_source_line() -> None:
    text = emit(report("copy_vectors"), "sass").decode()
    kernel = everything("sm_90a")["copy_vectors"]
    assert kernel.function is not None
    lines = text.splitlines()
    assert lines[0] == f"{kernel.code.symbol}:  // copy_vectors sm_90a"
    assert sum("/*" in line for line in lines) == len(kernel.function.instructions)
    (load,) = [i for i in kernel.function.instructions if i.opcode == "LDG"]
    assert f"    /*{load.address:04x}*/  {load.text};" in lines
    assert f"    // {load.line}" in lines


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


def test_symbols_are_told_with_their_names() -> None:
    assert emit(report("divide"), "symbols") == b"T _Z6dividePiii\tdivide\tsm_90a\n"


def test_what_cannot_be_emitted_is_refused_with_what_can() -> None:
    with pytest.raises(UsageError, match="one of " + ", ".join(KINDS)):
        emit(report("divide"), "llvm")

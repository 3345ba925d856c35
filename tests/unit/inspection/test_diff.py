from __future__ import annotations

import json

import pytest

from dotcu.inspection.diff import MAX_OPCODES, CountChange, compare, diff, normalised
from dotcu.inspection.report import InspectedKernel, InspectReport
from helpers.inspected_kernels import everything, inspected, needs_nvdisasm

SOURCE = """
__global__ void k(const float* x, float* y) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""


def kernel(body: str, arch: str = "sm_90") -> InspectedKernel:
    return inspected(SOURCE.format(body=body), arch)["k"]


@needs_nvdisasm
def test_a_kernel_is_the_same_as_itself() -> None:
    one = kernel("y[i] = x[i];")
    found = compare(one, one)
    assert found.same
    assert found.opcodes == found.lines == ()
    assert all(change.by == 0 for change in found.resources)


@needs_nvdisasm
def test_lines_that_only_move_change_nothing() -> None:
    assert compare(kernel("y[i] = x[i];"), kernel("\n\n    y[i] = x[i];")).same


@needs_nvdisasm
def test_what_changed_is_reported_by_opcode_and_in_the_listing() -> None:
    found = compare(kernel("y[i] = x[i];"), kernel("y[i] = x[i] * 3;"))
    assert not found.same
    assert CountChange(name="FMUL", before=0, after=1) in found.opcodes
    assert (found.before, found.after) == ("k sm_90", "k sm_90")
    added = [line for line in found.lines if line.startswith("+") and not line.startswith("+++")]
    assert any(line.startswith("+FMUL") for line in added)


@needs_nvdisasm
def test_resources_are_reported_before_and_after() -> None:
    found = compare(kernel("y[i] = x[i];"), kernel("__shared__ float s[32]; s[i] = x[i]; y[i] = s[i ^ 1];"))
    changes = {change.name: change for change in found.resources}
    assert (changes["smem_bytes"].before, changes["smem_bytes"].after) == (0, 128)
    assert changes["instructions"].by > 0


@needs_nvdisasm
def test_registers_and_addresses_are_no_difference() -> None:
    function = everything("sm_90a")["copy_vectors"].function
    assert function is not None
    text = list(normalised(function))
    assert "LDG.E.128 R, desc[UR][R.64]" in text or "LDG.E.128.CONSTANT R, desc[UR][R.64]" in text
    assert "LDC R, c[0x0][0x28]" in text


def test_without_a_disassembler_resources_are_still_reported() -> None:
    one, other = (everything("sm_90a", with_sass=False)[name] for name in ("divide", "spill"))
    found = compare(one, other)
    assert found.lines == ()
    assert not found.same
    assert {change.name for change in found.resources if change.by} >= {"registers", "spill_store_bytes"}


def test_the_difference_of_kernels_is_plain_values_too() -> None:
    (change,) = diff(report(NEW, with_sass=False), report(NEW, with_sass=False)).to_json()["changes"]
    assert change["same"] is True
    (registers, *_) = change["resources"]
    assert registers["name"] == "registers"
    assert registers["before"] == registers["after"] > 0


def report(*kernels: tuple[str, str], with_sass: bool = True) -> InspectReport:
    found = tuple(everything(arch, with_sass=with_sass)[name] for name, arch in kernels)
    return InspectReport(target="k.cu", kernels=found)


OLD, NEW, OTHER = ("divide", "sm_75"), ("divide", "sm_90a"), ("divide_long", "sm_90a")


def test_kernels_of_one_name_and_architecture_are_compared() -> None:
    found = diff(report(NEW, OTHER), report(NEW, OLD))
    assert [(change.before, change.after) for change in found.changes] == [("divide sm_90a", "divide sm_90a")]
    assert (found.before, found.after) == (("divide_long sm_90a",), ("divide sm_75",))
    assert not found.same


def test_the_only_kernel_of_each_side_is_compared_whatever_its_name() -> None:
    found = diff(report(OLD), report(OTHER))
    assert [(change.before, change.after) for change in found.changes] == [
        ("divide sm_75", "divide_long sm_90a")
    ]


@needs_nvdisasm
def test_what_is_the_same_is_reported_to_be() -> None:
    found = diff(report(NEW), report(NEW))
    assert found.same
    assert str(found).splitlines() == [
        "divide sm_90a", "  the same, except for addresses and register numbers",
    ]  # fmt: skip


@needs_nvdisasm
def test_what_changed_is_reported_in_numbers_and_lines() -> None:
    found = diff(report(NEW), report(OTHER))
    lines = str(found).splitlines()
    assert lines[0] == "divide sm_90a -> divide_long sm_90a"
    assert any(line.startswith("  registers: ") and line.endswith(")") for line in lines)
    assert any(line.startswith("+CALL.REL.NOINC") for line in lines)
    (change,) = found.changes
    assert f"  and {len(change.opcodes) - MAX_OPCODES} more opcodes" in lines


def test_reports_without_kernels_have_nothing_to_compare() -> None:
    assert str(diff(report(), report())) == "no kernels to compare"
    assert diff(report(), report()).same


@pytest.mark.parametrize("with_sass", [True, False])
def test_the_difference_is_plain_values_too(with_sass: bool) -> None:
    found = diff(report(NEW, with_sass=with_sass), report(OTHER, with_sass=with_sass))
    shown = json.loads(json.dumps(found.to_json()))
    assert (shown["version"], shown["same"]) == (1, False)
    assert len(shown["changes"]) == 1

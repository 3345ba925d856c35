from __future__ import annotations

from dotcu.inspection.code.diff import Change, compare, normalised
from dotcu.inspection.code.inspected import InspectedKernel
from inspecting import everything, inspected, needs_nvdisasm

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
def test_what_changed_is_told_by_opcode_and_in_the_listing() -> None:
    found = compare(kernel("y[i] = x[i];"), kernel("y[i] = x[i] * 3;"))
    assert not found.same
    assert Change(name="FMUL", before=0, after=1) in found.opcodes
    assert (found.before, found.after) == ("k sm_90", "k sm_90")
    added = [line for line in found.lines if line.startswith("+") and not line.startswith("+++")]
    assert any(line.startswith("+FMUL") for line in added)


@needs_nvdisasm
def test_resources_are_told_before_and_after() -> None:
    found = compare(kernel("y[i] = x[i];"), kernel("__shared__ float s[32]; s[i] = x[i]; y[i] = s[i ^ 1];"))
    changes = {change.name: change for change in found.resources}
    assert (changes["smem_bytes"].before, changes["smem_bytes"].after) == (0, 128)
    assert changes["instructions"].by > 0


@needs_nvdisasm
def test_registers_and_addresses_are_no_difference() -> None:
    function = everything("sm_90a")["copy_vectors"].function
    assert function is not None
    text = list(normalised(function.instructions))
    assert "LDG.E.128 R, desc[UR][R.64]" in text or "LDG.E.128.CONSTANT R, desc[UR][R.64]" in text
    assert "LDC R, c[0x0][0x28]" in text


def test_without_a_disassembler_resources_are_still_told() -> None:
    one, other = (everything("sm_90a", with_sass=False)[name] for name in ("divide", "spill"))
    found = compare(one, other)
    assert found.lines == ()
    assert not found.same
    assert {change.name for change in found.resources if change.by} >= {"registers", "spill_store_bytes"}


def test_the_difference_is_plain_values_too() -> None:
    one = everything("sm_90a", with_sass=False)["divide"]
    told = compare(one, one).to_json()
    assert told["same"] is True
    (registers, *_) = told["resources"]
    assert registers["name"] == "registers"
    assert registers["before"] == registers["after"] > 0

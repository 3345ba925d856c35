from __future__ import annotations

import json

import pytest

from dotcu.inspection.code.diff_report import MOST_OPCODES, diff
from dotcu.inspection.code.report import InspectReport
from inspecting import everything, needs_nvdisasm


def report(*kernels: tuple[str, str], with_sass: bool = True) -> InspectReport:
    found = tuple(everything(arch, with_sass=with_sass)[name] for name, arch in kernels)
    return InspectReport(target="k.cu", kernels=found)


OLD, NEW, OTHER = ("divide", "sm_80"), ("divide", "sm_90a"), ("divide_long", "sm_90a")


def test_kernels_of_one_name_and_architecture_are_compared() -> None:
    found = diff(report(NEW, OTHER), report(NEW, OLD))
    assert [(change.before, change.after) for change in found.changes] == [("divide sm_90a", "divide sm_90a")]
    assert (found.before, found.after) == (("divide_long sm_90a",), ("divide sm_80",))
    assert not found.same


def test_the_only_kernel_of_each_side_is_compared_whatever_its_name() -> None:
    found = diff(report(OLD), report(OTHER))
    assert [(change.before, change.after) for change in found.changes] == [
        ("divide sm_80", "divide_long sm_90a")
    ]


@needs_nvdisasm
def test_what_is_the_same_is_said_to_be() -> None:
    found = diff(report(NEW), report(NEW))
    assert found.same
    assert str(found).splitlines() == [
        "divide sm_90a", "  the same, but for addresses and the numbers of registers",
    ]  # fmt: skip


@needs_nvdisasm
def test_what_changed_is_told_in_numbers_and_lines() -> None:
    found = diff(report(NEW), report(OTHER))
    lines = str(found).splitlines()
    assert lines[0] == "divide sm_90a -> divide_long sm_90a"
    assert any(line.startswith("  registers: ") and line.endswith(")") for line in lines)
    assert any(line.startswith("+CALL.REL.NOINC") for line in lines)
    (change,) = found.changes
    assert f"  and {len(change.opcodes) - MOST_OPCODES} more opcodes" in lines


def test_reports_without_kernels_have_nothing_to_compare() -> None:
    assert str(diff(report(), report())) == "no kernels to compare"
    assert diff(report(), report()).same


@pytest.mark.parametrize("with_sass", [True, False])
def test_the_difference_is_plain_values_too(with_sass: bool) -> None:
    found = diff(report(NEW, with_sass=with_sass), report(OTHER, with_sass=with_sass))
    told = json.loads(json.dumps(found.to_json()))
    assert (told["version"], told["same"]) == (1, False)
    assert len(told["changes"]) == 1

"""Cubins, held against what the assembler and cuobjdump say of the same kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dotcu import process
from dotcu.compile import ObjectCode
from dotcu.compile.cubin import BinaryKernel, read_cubin
from dotcu.elf import Image
from dotcu.errors import UsageError
from helpers.binary_files import CUDA, RELOCATABLE, elf

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103f", "sm_120")


def read(made: ObjectCode) -> tuple[str, bool, tuple[BinaryKernel, ...]]:
    assert made.cubin is not None
    return read_cubin(Image(name="it", data=made.cubin))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_take_what_the_assembler_says(arch: str, compiled: Callable[[str], ObjectCode]) -> None:
    made = compiled(arch)
    found_arch, relocatable, found = read(made)
    assert found_arch == arch
    assert not relocatable
    kernels = {kernel.symbol: kernel for kernel in found}
    for symbol in made.lowered.values():
        said, kernel = made.resources[symbol], kernels[symbol]
        assert (kernel.registers, kernel.smem_bytes, kernel.barriers) == (
            said.registers, said.smem_bytes, said.barriers,
        )  # fmt: skip
    assert kernels[made.lowered["shared"]].smem_bytes == 400
    assert kernels[made.lowered["stacked"]].stack_bytes >= 256  # what it calls keeps 64 floats


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_kernels_take_what_cuobjdump_says(
    arch: str, compiled: Callable[[str], ObjectCode], cuobjdump: Path, tmp_path: Path
) -> None:
    made = compiled(arch)
    file = tmp_path / "it.cubin"
    file.write_bytes(made.cubin or b"")
    said = process.run([cuobjdump, "-res-usage", file]).stdout
    pattern = r"Function (\S+):\n\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) .*CONSTANT\[0\]:(\d+)"
    reserved = 0 if arch == "sm_80" else 1024  # the driver's, which cuobjdump counts where there is any
    theirs = {
        name: (int(registers), int(stack), max(0, int(shared) - reserved), int(constant))
        for name, registers, stack, shared, constant in re.findall(pattern, said)
    }
    assert set(made.lowered.values()) <= set(theirs)
    assert theirs == {
        k.symbol: (k.registers, k.stack_bytes, k.smem_bytes, k.constant_bytes) for k in read(made)[2]
    }


def test_a_kernel_prints_its_name_and_what_it_takes(compiled: Callable[[str], ObjectCode]) -> None:
    (kernel,) = [k for k in read(compiled("sm_80"))[2] if k.name == "shared(float*)"]
    assert re.fullmatch(r"\d+ registers, 400 bytes shared, 1 barrier", kernel.resources)


@pytest.mark.parametrize(
    ("flags", "arch"), [(0x5A055A, "sm_90"), (0x5A0D5A, "sm_90a"), (0x500550, "sm_80"), (0x230523, "sm_35")]
)
def test_cubins_of_the_older_format_have_their_architecture_in_the_low_byte(flags: int, arch: str) -> None:
    data = elf({}, machine=CUDA, abi=7, flags=flags)
    assert read_cubin(Image(name="it", data=data))[0] == arch


def test_without_the_assemblers_note_the_suffix_is_reported_by_what_the_code_needs() -> None:
    needs = bytes([2, 9, 1, 0])  # the attribute of a target with an architecture's own features
    for sections, arch in (({".nv.compat": needs}, "sm_90a"), ({}, "sm_90")):
        data = elf(sections, machine=CUDA, abi=8, flags=0x06005A04)
        assert read_cubin(Image(name="it", data=data))[0] == arch


def test_a_cubin_that_has_to_be_linked_says_so() -> None:
    data = elf({}, machine=CUDA, abi=8, flags=0x06005004, kind=RELOCATABLE)
    assert read_cubin(Image(name="it", data=data))[1]


@pytest.mark.parametrize("part", [0.01, 0.5, 0.9])
def test_a_truncated_cubin_is_refused(part: float, compiled: Callable[[str], ObjectCode]) -> None:
    whole = compiled("sm_80").cubin or b""
    with pytest.raises(
        UsageError, match=r"k\.cubin is cut short: .* and there are \d+\.\nRequired: the whole"
    ):
        read_cubin(Image(name="k.cubin", data=whole[: int(len(whole) * part)]))

"""What the assembler says of kernels."""

from __future__ import annotations

from binary_files import elf
from dotcu.compile import Resources
from dotcu.compile.objects import parse_resources, section_bytes

LOG = """ptxas info    : 16 bytes gmem, 12 bytes cmem[3]
ptxas info    : Compiling entry function '_Z1kPi' for 'sm_90a'
ptxas info    : Function properties for _Z1kPi
ptxas         .     2952 bytes stack frame, 3660 bytes spill stores, 4816 bytes spill loads
ptxas info    : Used 64 registers, used 2 barriers, 1024 bytes smem, 368 bytes cmem[0]
ptxas info    : Compile time = 124.959 ms
ptxas info    : Compiling entry function '_Z13__dotcu_probeIPFvPiEEvv' for 'sm_90a'
ptxas info    : Used 4 registers, used 0 barriers
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_each_kernel_has_its_resources_and_probes_have_none() -> None:
    assert parse_resources(LOG) == {
        "_Z1kPi": Resources(
            registers=64,
            spill_store_bytes=3660,
            spill_load_bytes=4816,
            stack_bytes=2952,
            smem_bytes=1024,
            barriers=2,
        ),
        "plain": Resources(registers=8),
    }


def test_constants_are_counted_by_the_section_that_holds_them() -> None:
    elf_of_two = elf({".nv.constant3": bytes(1200), ".nv.constant0.plain": bytes(368)})
    found = parse_resources(LOG, elf_of_two)
    assert {name: each.constant_bytes for name, each in found.items()} == {"_Z1kPi": 1200, "plain": 1200}
    assert section_bytes(elf_of_two, ".nv.constant4") == 0


def test_a_log_of_no_assembler_has_none() -> None:
    assert parse_resources("") == {}

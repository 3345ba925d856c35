from __future__ import annotations

import pytest

from dotcu.errors import LaunchConfigError
from dotcu.kernel.occupancy import LIMITS, limits, occupancy


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "static", "dynamic", "blocks"),
    [
        # By hand, after the CUDA Occupancy Calculator.
        ((8, 0), 256, 32, 0, 0, 8),  # threads: 2048 / 256
        ((8, 0), 32, 16, 0, 0, 32),  # blocks per multiprocessor
        ((8, 6), 32, 16, 0, 0, 16),
        ((8, 0), 1024, 32, 0, 0, 2),
        ((8, 0), 256, 64, 0, 0, 4),  # registers: 65536 / (64 * 256)
        ((8, 0), 256, 65, 0, 0, 3),  # rounded up to 72
        ((9, 0), 128, 168, 0, 0, 3),  # 65536 / (168 * 128) = 3.04
        ((8, 0), 1024, 65, 0, 0, 0),  # 65 * 1024 registers are too many
        ((8, 0), 128, 32, 0, 48 * 1024, 3),  # 164 / (48 + 1)
        ((8, 0), 128, 32, 48 * 1024, 0, 3),
        ((9, 0), 128, 32, 0, 113 * 1024, 2),  # 228 / (113 + 1)
        ((9, 0), 128, 32, 0, 114 * 1024, 1),
        ((9, 0), 128, 32, 0, 227 * 1024, 1),
        ((9, 0), 128, 32, 0, 227 * 1024 + 1, 0),
        ((7, 5), 128, 32, 0, 32 * 1024, 2),  # nothing is reserved before sm_80
        ((8, 9), 1024, 32, 0, 0, 1),  # 1536 threads
        ((8, 9), 96, 40, 0, 0, 16),
    ],
)
def test_occupancy_is_that_of_the_calculator(
    arch: tuple[int, int], threads: int, registers: int, static: int, dynamic: int, blocks: int
) -> None:
    held = occupancy(
        LIMITS[arch], threads=threads, registers=registers, static_smem_bytes=static, smem_bytes=dynamic
    )
    assert held.blocks == blocks


def test_unknown_registers_set_no_limit() -> None:
    assert occupancy(LIMITS[8, 0], threads=256, registers=0, static_smem_bytes=0).blocks == 8


@pytest.mark.parametrize("threads", [0, 1025, -1])
def test_a_block_that_cannot_be_launched_has_no_occupancy(threads: int) -> None:
    with pytest.raises(LaunchConfigError, match=f"got {threads}"):
        occupancy(LIMITS[8, 0], threads=threads, registers=32, static_smem_bytes=0)


def test_a_capability_that_the_table_lacks_has_the_limits_of_the_one_before() -> None:
    assert limits(8, 8).capability == (8, 7)
    assert limits(13, 0).capability == max(LIMITS)
    assert limits(5, 0).capability == min(LIMITS)

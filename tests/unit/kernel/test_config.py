"""Launch configurations and occupancy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dotcu.errors import LaunchConfigError
from dotcu.kernel.config import LIMITS, KernelNeeds, LaunchConfig, limits, occupancy, read_config, require_fit


def read(**given: Any) -> LaunchConfig:
    return read_config("k", **{"grid": 1, "block": 1, **given})


def fit(needs: KernelNeeds, arch: tuple[int, int] = (8, 0), multiprocessors: int = 108, **given: Any) -> None:
    require_fit("k", read(**given), needs, replace(LIMITS[arch], multiprocessors=multiprocessors))


def test_sizes_are_an_int_or_up_to_three() -> None:
    config = read(grid=(2, 3), block=[4], cluster=(2, 1, 1))
    assert (config.grid, config.block, config.cluster) == ((2, 3, 1), (4, 1, 1), (2, 1, 1))
    assert read(grid=np.int64(5)).grid == (5, 1, 1)
    assert read(grid=(0, 7)).blocks == 0


def test_a_configuration_prints_as_it_is_written() -> None:
    assert str(read(grid=2, block=64, smem_bytes=16, cooperative=True)) == (
        "grid=(2, 1, 1), block=(64, 1, 1), smem_bytes=16, cooperative"
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"block": 2048}, r"block.x=2048; the limit is 1024"),
        ({"block": 0}, "block with 0; the least is 1"),
        ({"block": (32, 64)}, "has 2048 threads; a block has at most 1024"),
        ({"block": (1, 1, 65)}, "block.z=65; the limit is 64"),
        ({"grid": -1}, "grid with -1; the least is 0"),
        ({"grid": 2**31}, "grid.x=2147483648; the limit is 2147483647"),
        ({"grid": (1, 65536)}, "grid.y=65536; the limit is 65535"),
        ({"grid": (1, 1, 65536)}, "grid.z=65536; the limit is 65535"),
        ({"grid": 2.5}, r"grid with float 2.5; .*\nDivide with dotcu.cdiv"),
        ({"grid": True}, "grid with bool True"),
        ({"grid": (1, 1, 1, 1)}, "grid with 4 dimensions"),
        ({"grid": ()}, "grid with 0 dimensions"),
        ({"smem_bytes": -1}, "smem_bytes with -1"),
        ({"cluster": 0}, "cluster with 0"),
        ({"cluster": 32, "grid": 32}, "of 32 blocks; a cluster has at most 16"),
        ({"cluster": 2, "grid": 3}, "the grid counts blocks and is a multiple of the cluster"),
    ],
)
def test_what_no_gpu_can_launch_is_refused_by_limit_and_value(given: dict[str, Any], says: str) -> None:
    with pytest.raises(LaunchConfigError, match=says):
        read(**given)


@pytest.mark.parametrize(
    ("given", "needs", "says"),
    [
        ({"smem_bytes": 164 * 1024}, {}, "sm_80 has 166912.\nPass smem_bytes=166912 or less"),
        (
            {"smem_bytes": 163 * 1024},
            {"static_smem_bytes": 4},
            r"166916 bytes .*\(4 static, smem_bytes=166912\)",
        ),
        ({"block": 512}, {"max_threads": 256}, "its __launch_bounds__ allow 256"),
        ({"block": 1024}, {"registers": 96}, "1024 threads of 96 registers each; a block has 65536"),
        ({"cluster": 2, "grid": 2}, {}, "sm_80 has no clusters"),
        (
            {"grid": 3},
            {"cluster": (2, 1, 1)},
            r"grid=\(3, 1, 1\) with cluster=\(2, 1, 1\); the grid counts blocks",
        ),
        (
            {"grid": 4, "cluster": 4, "arch": (9, 0)},
            {"cluster": (2, 1, 1)},
            r"cluster=\(4, 1, 1\); it is compiled for __cluster_dims__\(2, 1, 1\)",
        ),
        (
            {"grid": 16, "cluster": 16, "smem_bytes": 232449, "arch": (9, 0)},
            {},
            "232449 bytes of shared memory per block .*; sm_90 has 232448.\nPass smem_bytes=232448 or less",
        ),
        (
            {"block": 1024, "grid": 217, "cooperative": True},
            {"registers": 32},
            "217 blocks; 2 blocks on each of 108",
        ),
        (
            {"block": 1024, "grid": 217, "cooperative": True},
            {},
            "217 blocks; 2 blocks on each of 108",
        ),
    ],
)
def test_what_an_architecture_cannot_run_is_refused(
    given: dict[str, Any], needs: dict[str, Any], says: str
) -> None:
    with pytest.raises(LaunchConfigError, match=says):
        fit(KernelNeeds(**needs), **given)


def test_what_fits_passes() -> None:
    fit(KernelNeeds(registers=32, max_threads=256), block=256, smem_bytes=163 * 1024)
    fit(KernelNeeds(registers=32), block=1024, grid=216, cooperative=True)
    fit(KernelNeeds(), (9, 0), grid=16, cluster=16, smem_bytes=232448)
    fit(KernelNeeds(cluster=(2, 1, 1)), (9, 0), grid=4)
    fit(KernelNeeds(cluster=(2, 1, 1)), (9, 0), grid=4, cluster=2)


@pytest.mark.parametrize(
    ("static", "advice"),
    [
        (60000, "Use extern __shared__ and smem_bytes=60000."),
        (
            200000,
            "Use extern __shared__ and smem_bytes=166912, of which sm_80 has 166912 per block: use smaller",
        ),
    ],
)
def test_static_shared_memory_over_48_kib_is_refused_with_what_to_write(static: int, advice: str) -> None:
    with pytest.raises(LaunchConfigError) as error:
        fit(KernelNeeds(static_smem_bytes=static))
    assert f"{static} bytes of static shared memory; the limit is 49152" in str(error.value)
    assert advice in str(error.value)


def test_48_kib_of_static_shared_memory_pass() -> None:
    fit(KernelNeeds(static_smem_bytes=49152), smem_bytes=1024)


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


@pytest.mark.parametrize(
    ("arch", "barriers", "blocks"),
    [
        # By cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13.0: 24 registers, 32 threads.
        ((8, 0), 16, 32),  # counted from 9.0 on
        ((9, 0), 2, 32),
        ((9, 0), 3, 21),
        ((9, 0), 16, 4),
        ((10, 3), 16, 4),
        ((11, 0), 16, 1),
        ((12, 0), 2, 12),
    ],
)
def test_named_barriers_limit_the_blocks(arch: tuple[int, int], barriers: int, blocks: int) -> None:
    held = occupancy(LIMITS[arch], threads=32, registers=24, static_smem_bytes=0, barriers=barriers)
    assert held.blocks == blocks
    assert (held.limiter == "barriers") == (blocks < 24)


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

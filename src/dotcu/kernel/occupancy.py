"""Occupancy: how many blocks of a kernel a multiprocessor holds at once, by arithmetic alone.

Sources: CUDA C++ Programming Guide 13.0, table "Technical Specifications per Compute Capability",
and the CUDA Occupancy Calculator's data (allocation granularities). The same answer for every
caller: no GPU is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from dotcu.errors import LaunchConfigError

WARP = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_CLUSTER = 16
_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class ArchLimits:
    """What a multiprocessor of one compute capability holds.

    Attributes:
        smem_bytes: Shared memory of a multiprocessor.
        smem_block_bytes: The most that a block may use, static and dynamic, after opt-in.
        smem_reserved_bytes: What the driver keeps of it for itself, per block.
        multiprocessors: Of the GPU that the simulator stands for.
    """

    capability: tuple[int, int]
    warps: int
    blocks: int
    smem_bytes: int
    smem_block_bytes: int
    smem_reserved_bytes: int
    multiprocessors: int
    registers: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    register_unit: int = 256
    register_warps: int = 4
    smem_unit: int = 128


def _row(
    capability: tuple[int, int], warps: int, blocks: int, smem: int, block: int, multiprocessors: int
) -> ArchLimits:
    return ArchLimits(
        capability=capability,
        warps=warps,
        blocks=blocks,
        smem_bytes=smem * _KIB,
        smem_block_bytes=block * _KIB,
        smem_reserved_bytes=_KIB if capability >= (8, 0) else 0,
        multiprocessors=multiprocessors,
        smem_unit=128 if capability >= (8, 0) else 256,
    )


# capability, warps and blocks per multiprocessor, KiB of shared memory of it and of a block,
# multiprocessors of: V100, T4, A100, A10, Orin, L40S, H100 SXM, B200, B300, Thor, RTX PRO 6000, GB10
_TABLE = (
    _row((7, 0), 64, 32, 96, 96, 80),
    _row((7, 5), 32, 16, 64, 64, 40),
    _row((8, 0), 64, 32, 164, 163, 108),
    _row((8, 6), 48, 16, 100, 99, 72),
    _row((8, 7), 48, 16, 164, 163, 16),
    _row((8, 9), 48, 24, 100, 99, 142),
    _row((9, 0), 64, 32, 228, 227, 132),
    _row((10, 0), 64, 32, 228, 227, 148),
    _row((10, 3), 64, 32, 228, 227, 148),
    _row((11, 0), 48, 24, 228, 227, 20),
    _row((12, 0), 48, 24, 100, 99, 188),
    _row((12, 1), 48, 24, 100, 99, 48),
)
LIMITS = {row.capability: row for row in _TABLE}


def limits(major: int, minor: int) -> ArchLimits:
    """The limits of a compute capability; of the nearest one before it where the table has no row."""
    before = [row for row in _TABLE if row.capability <= (major, minor)]
    return before[-1] if before else _TABLE[0]


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """Blocks per multiprocessor by each limit; the smallest holds.

    Attributes:
        by_registers: None where the kernel's registers set no limit (none are known).
    """

    by_threads: int
    by_blocks: int
    by_smem: int
    by_registers: int | None

    @property
    def blocks(self) -> int:
        registers = self.by_registers if self.by_registers is not None else self.by_blocks
        return min(self.by_threads, self.by_blocks, self.by_smem, registers)

    @property
    def limiter(self) -> str:
        """What sets the smallest limit."""
        limits = {
            "shared memory": self.by_smem,
            "registers": self.by_registers if self.by_registers is not None else self.by_blocks,
            "threads": self.by_threads,
            "blocks": self.by_blocks,
        }
        return min(limits, key=lambda name: limits[name])


def occupancy(
    arch: ArchLimits, *, threads: int, registers: int, static_smem_bytes: int, smem_bytes: int = 0
) -> Occupancy:
    """How many blocks a multiprocessor holds.

    Args:
        threads: Per block.
        registers: Per thread; 0 where they are not known.
        smem_bytes: Dynamic shared memory per block.

    Raises:
        LaunchConfigError: A block has no threads, or more than 1024.
    """
    if not 0 < threads <= MAX_THREADS_PER_BLOCK:
        raise LaunchConfigError(
            f"A block has from 1 to {MAX_THREADS_PER_BLOCK} threads, got {threads}.\n"
            "Ask with the block that is launched: kernel.occupancy(256)."
        )
    warps = -(-threads // WARP)
    shared = static_smem_bytes + smem_bytes
    per_block = _up(shared + arch.smem_reserved_bytes, arch.smem_unit)
    fits = shared <= arch.smem_block_bytes
    by_smem = (arch.smem_bytes // per_block if per_block else arch.blocks) if fits else 0
    return Occupancy(
        by_threads=arch.warps // warps,
        by_blocks=arch.blocks,
        by_smem=by_smem,
        by_registers=_by_registers(arch, warps, registers) if registers else None,
    )


def _by_registers(arch: ArchLimits, warps: int, registers: int) -> int:
    """Registers go to whole warps, in units of 256, from the quarter that a warp is scheduled by."""
    per_warp = _up(registers * WARP, arch.register_unit)
    if per_warp * _up(warps, arch.register_warps) > arch.registers_per_block:
        return 0
    per_quarter = arch.registers // arch.register_warps // per_warp
    return per_quarter * arch.register_warps // warps

"""Launch configurations, checked against every limit before the driver is asked; occupancy.

Occupancy is arithmetic on a table, the same for every caller: no GPU is asked.

Sources: CUDA C++ Programming Guide 13.0, table "Technical Specifications per Compute Capability", and the
CUDA Occupancy Calculator's data (allocation granularities); `cuda_occupancy.h` of CUDA 13.0 (named barriers).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dotcu.errors import ArgumentError, LaunchConfigError

Dim3 = tuple[int, int, int]

WARP = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_CLUSTER = 16
_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class ArchLimits:
    """The resources of a multiprocessor of one compute capability.

    Attributes:
        smem_bytes: Shared memory of a multiprocessor.
        smem_block_bytes: The most that a block may use, static and dynamic, after opt-in.
        smem_reserved_bytes: What the driver keeps of it for itself, per block.
        barriers: Named barriers of a multiprocessor; 0 before 9.0, where the driver does not count them.
        multiprocessors: Of the GPU, or of the one that the simulator stands for.
    """

    capability: tuple[int, int]
    warps: int
    blocks: int
    smem_bytes: int
    smem_block_bytes: int
    smem_reserved_bytes: int
    barriers: int
    multiprocessors: int
    registers: int = 65536
    registers_per_block: int = 65536
    register_unit: int = 256
    register_warps: int = 4
    smem_unit: int = 128


# capability, warps and blocks per multiprocessor, KiB of shared memory of it and of a block, its barriers,
# multiprocessors of: V100, T4, A100, A10, Orin, L40S, H100 SXM, B200, B300, Thor, RTX PRO 6000, GB10
_TABLE = (
    ((7, 0), 64, 32, 96, 96, 0, 80),
    ((7, 5), 32, 16, 64, 64, 0, 40),
    ((8, 0), 64, 32, 164, 163, 0, 108),
    ((8, 6), 48, 16, 100, 99, 0, 72),
    ((8, 7), 48, 16, 164, 163, 0, 16),
    ((8, 9), 48, 24, 100, 99, 0, 142),
    ((9, 0), 64, 32, 228, 227, 64, 132),
    ((10, 0), 64, 32, 228, 227, 64, 148),
    ((10, 3), 64, 32, 228, 227, 64, 148),
    ((11, 0), 48, 24, 228, 227, 24, 20),
    ((12, 0), 48, 24, 100, 99, 24, 188),
    ((12, 1), 48, 24, 100, 99, 24, 48),
)
LIMITS = {
    capability: ArchLimits(
        capability=capability,
        warps=warps,
        blocks=blocks,
        smem_bytes=smem * _KIB,
        smem_block_bytes=block * _KIB,
        smem_reserved_bytes=_KIB if capability >= (8, 0) else 0,
        barriers=barriers,
        multiprocessors=multiprocessors,
        smem_unit=128 if capability >= (8, 0) else 256,
    )
    for capability, warps, blocks, smem, block, barriers, multiprocessors in _TABLE
}


@functools.cache
def limits(major: int, minor: int) -> ArchLimits:
    """Return the limits of a compute capability, or of the nearest one before it that the table has."""
    return LIMITS[max((row for row in LIMITS if row <= (major, minor)), default=min(LIMITS))]


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """A launch configuration. `str()` gives it as a user writes it.

    Attributes:
        grid: In blocks, also where there are clusters.
        smem_bytes: Dynamic shared memory per block.
        cluster: In blocks; None without clusters.
    """

    grid: Dim3
    block: Dim3
    smem_bytes: int = 0
    cluster: Dim3 | None = None
    cooperative: bool = False
    programmatic: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def __str__(self) -> str:
        parts = [f"grid={self.grid}", f"block={self.block}"]
        parts += [f"smem_bytes={self.smem_bytes}"] if self.smem_bytes else []
        parts += [f"cluster={self.cluster}"] if self.cluster else []
        parts += [name for name in ("cooperative", "programmatic") if getattr(self, name)]
        return ", ".join(parts)


class BlockConfig(NamedTuple):
    """A launch as its caller gave it, without grid and arguments: what a launch plan is found by."""

    block: Any
    smem_bytes: Any
    cluster: Any
    cooperative: bool
    programmatic: bool


def read_config(
    kernel: str,
    grid: Any,
    block: Any,
    smem_bytes: Any = 0,
    cluster: Any = None,
    cooperative: bool = False,
    programmatic: bool = False,
) -> LaunchConfig:
    """Turn the values that a user wrote into a configuration, within the limits that every GPU has."""
    if block is None:
        refuse_missing_block(kernel)
    config = LaunchConfig(
        grid=_dim(kernel, "grid", grid, low=0),
        block=_dim(kernel, "block", block, low=1),
        smem_bytes=_whole(kernel, "smem_bytes", smem_bytes, low=0),
        cluster=None if cluster is None else _dim(kernel, "cluster", cluster, low=1),
        cooperative=bool(cooperative),
        programmatic=bool(programmatic),
    )
    _require_within(kernel, "grid", config.grid, MAX_GRID)
    _require_within(kernel, "block", config.block, MAX_BLOCK)
    if config.threads > MAX_THREADS_PER_BLOCK:
        got, limit = f"block={config.block} has {config.threads} threads", MAX_THREADS_PER_BLOCK
        remedy = "Use block=256 and a larger grid: grid=dotcu.cdiv(n, 256)."
        raise _breach(kernel, got, f"a block has at most {limit}", remedy)
    if config.cluster is not None:
        _require_cluster(kernel, config.grid, config.cluster)
    return config


def refuse_missing_grid(kernel: str) -> NoReturn:
    """Raise the error for a launch without a grid."""
    raise ArgumentError(
        f"{kernel}: grid is missing.\nA launch is configured by keywords, behind the kernel's arguments: "
        f"{kernel}(..., grid=dotcu.cdiv(n, 256), block=256)"
    )


def refuse_missing_block(kernel: str) -> NoReturn:
    """Raise the error for a launch without a block."""
    raise ArgumentError(
        f"{kernel}: block is missing.\nA __global__ kernel runs in blocks of threads: pass "
        "block=256, for example."
    )


def refuse_shape(
    kernel: str, block: Any, smem_bytes: Any, cluster: Any, cooperative: Any, programmatic: Any
) -> NoReturn:
    """Raise the error for what a tile kernel does not take."""
    given = {
        "block": (block, None, "the compiler chooses the threads of a tile block"),
        "smem_bytes": (smem_bytes, 0, "the compiler places tiles in shared memory"),
        "cluster": (cluster, None, "its own hint makes clusters: [[cutile::hint(0, num_cta_in_cga = 2)]]"),
        "cooperative": (cooperative, False, "its blocks do not wait for each other"),
        "programmatic": (programmatic, False, "it has no call that waits for the kernel before it"),
    }
    name, (value, _, reason) = next(
        (name, row) for name, row in given.items() if row[0] is not row[1] and row[0] != row[1]
    )
    raise LaunchConfigError(
        f"{kernel}: got {name}={value!r}, and it is a tile kernel: {reason}.\n"
        f"Leave {name} out: the grid alone counts, in tile blocks."
    )


def read_grid(kernel: str, grid: Any, checked: LaunchConfig) -> LaunchConfig:
    """Put another grid into a checked configuration."""
    sizes = _dim(kernel, "grid", grid, low=0)
    _require_within(kernel, "grid", sizes, MAX_GRID)
    if checked.cluster is not None:
        _require_cluster(kernel, sizes, checked.cluster)
    return replace(checked, grid=sizes)


def read_block(kernel: str, block: Any, smem_bytes: Any) -> tuple[int, int]:
    """Check the size of a block and its dynamic shared memory, and return threads and bytes."""
    x, y, z = _dim(kernel, "block", block, low=1)
    return x * y * z, _whole(kernel, "smem_bytes", smem_bytes, low=0)


def _breach(kernel: str, got: str, limit: str, remedy: str) -> LaunchConfigError:
    return LaunchConfigError(f"{kernel}: got {got}; {limit}.\n{remedy}")


def _whole(kernel: str, name: str, value: Any, *, low: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        got = f"{name} with {type(value).__name__} {value!r}"
        remedy = "Divide with dotcu.cdiv(n, 256), which rounds up, or write int(x)."
        raise _breach(kernel, got, "it is made of whole numbers", remedy)
    if value < low:
        raise _breach(kernel, f"{name} with {value}", f"the least is {low}", f"Pass {name}={low} or more.")
    return int(value)


def _dim(kernel: str, name: str, value: Any, *, low: int) -> Dim3:
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3:
        got = f"{name} with {len(sizes)} dimensions"
        raise _breach(kernel, got, "it has one, two or three", f"Pass {name}=(x, y, z).")
    x, y, z = [_whole(kernel, name, size, low=low) for size in (*sizes, 1, 1)[:3]]
    return x, y, z


def _require_within(kernel: str, name: str, sizes: Dim3, most: Dim3) -> None:
    for axis, size, limit in zip("xyz", sizes, most, strict=True):
        if size > limit:
            several = "block do more" if name == "grid" else "thread do several elements"
            remedy = f"Let each {several} in a loop, or move the size to x."
            raise _breach(kernel, f"{name}.{axis}={size}", f"the limit is {limit}", remedy)


def _require_cluster(kernel: str, grid: Dim3, cluster: Dim3) -> None:
    size = cluster[0] * cluster[1] * cluster[2]
    if size > MAX_CLUSTER:
        limit = f"a cluster has at most {MAX_CLUSTER}, and at most 8 on every GPU"
        raise _breach(kernel, f"cluster={cluster} of {size} blocks", limit, "Use a smaller cluster.")
    if any(blocks % each for blocks, each in zip(grid, cluster, strict=True)):
        limit = "the grid counts blocks and is a multiple of the cluster in each dimension"
        remedy = "Round the grid up: dotcu.cdiv(blocks, cluster) * cluster."
        raise _breach(kernel, f"grid={grid} with cluster={cluster}", limit, remedy)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """Blocks per multiprocessor by each limit; the smallest holds.

    Attributes:
        by_registers: None if the kernel's registers set no limit (none are known).
        by_barriers: None if it has no named barriers, or the driver does not count them.
    """

    by_threads: int
    by_blocks: int
    by_smem: int
    by_registers: int | None
    by_barriers: int | None

    @property
    def by_limit(self) -> dict[str, int]:
        """The blocks by the name of each limit that there is."""
        by_limit = {
            "registers": self.by_registers,
            "shared memory": self.by_smem,
            "threads": self.by_threads,
            "blocks": self.by_blocks,
            "barriers": self.by_barriers,
        }
        return {name: most for name, most in by_limit.items() if most is not None}

    @property
    def blocks(self) -> int:
        return min(self.by_limit.values())

    @property
    def limiter(self) -> str:
        """The name of the smallest limit."""
        return min(self.by_limit, key=self.by_limit.__getitem__)


def occupancy(
    arch: ArchLimits,
    *,
    threads: int,
    registers: int,
    static_smem_bytes: int,
    smem_bytes: int = 0,
    barriers: int = 0,
) -> Occupancy:
    """Return the blocks that a multiprocessor holds, by each limit.

    Args:
        registers: Per thread; 0 if they are not known.
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
    by_registers = None
    if registers:  # these go to whole warps, in units of 256, from the quarter that a warp is scheduled by
        per_warp = _up(registers * WARP, arch.register_unit)
        fits = per_warp * _up(warps, arch.register_warps) <= arch.registers_per_block
        per_quarter = arch.registers // arch.register_warps // per_warp
        by_registers = per_quarter * arch.register_warps // warps if fits else 0
    return Occupancy(
        by_threads=arch.warps // warps,
        by_blocks=arch.blocks,
        by_smem=by_smem,
        by_registers=by_registers,
        by_barriers=arch.barriers // barriers if arch.barriers and barriers else None,
    )


MAX_STATIC_SMEM_BYTES = 49152
"""What ptxas takes of `__shared__` arrays of a fixed size, on every architecture.

Source: CUDA Programming Guide, "Shared Memory" of each compute capability: above 48 KB it is dynamic.
"""


@dataclass(frozen=True, kw_only=True)
class KernelNeeds:
    """The resources that one kernel takes of a multiprocessor, as far as they are known.

    Attributes:
        registers: Per thread; 0 if nothing was assembled.
        barriers: Named barriers, per block.
        max_threads: Of `__launch_bounds__`; 0 without.
        cluster: Of `__cluster_dims__`, in blocks; None without.
    """

    static_smem_bytes: int = 0
    registers: int = 0
    barriers: int = 0
    max_threads: int = 0
    cluster: Dim3 | None = None


def require_fit(kernel: str, config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits) -> None:
    """Refuse a configuration that the kernel, or an architecture, cannot run."""
    name = f"sm_{arch.capability[0]}{arch.capability[1]}"
    static, most = needs.static_smem_bytes, arch.smem_block_bytes
    if static > MAX_STATIC_SMEM_BYTES:
        enough = "" if static <= most else f", of which {name} has {most} per block: use smaller arrays"
        got, limit = f"{static} bytes of static shared memory", f"the limit is {MAX_STATIC_SMEM_BYTES}"
        remedy = f"Use extern __shared__ and smem_bytes={min(static, most)}{enough}."
        raise _breach(kernel, got, limit, remedy)
    if static + config.smem_bytes > most:
        got = f"{static + config.smem_bytes} bytes of shared memory per block ({static} static, "
        got += f"smem_bytes={config.smem_bytes})"
        raise _breach(kernel, got, f"{name} has {most}", f"Pass smem_bytes={max(0, most - static)} or less.")
    if needs.max_threads and config.threads > needs.max_threads:
        got = f"block={config.block} of {config.threads} threads"
        remedy = f"Pass block={needs.max_threads} or less, or raise the bound."
        raise _breach(kernel, got, f"its __launch_bounds__ allow {needs.max_threads}", remedy)
    if config.cluster is not None and arch.capability < (9, 0):
        lacks = f"{name} has no clusters; sm_90 has"
        raise _breach(kernel, f"cluster={config.cluster}", lacks, "Leave cluster out.")
    if needs.cluster is not None and config.cluster not in (None, needs.cluster):
        own, remedy = f"__cluster_dims__{needs.cluster}", "Leave cluster out, or __cluster_dims__."
        raise _breach(kernel, f"cluster={config.cluster}", f"it is compiled for {own}", remedy)
    if needs.cluster is not None:
        _require_cluster(kernel, config.grid, needs.cluster)
    _require_resident(kernel, config, needs, arch)


def require_grid(kernel: str, config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits) -> None:
    """Refuse a grid that a kernel cannot run, of a configuration that fits otherwise."""
    if needs.cluster is not None:
        _require_cluster(kernel, config.grid, needs.cluster)
    if config.cooperative:
        _require_resident(kernel, config, needs, arch)


def resident_blocks(needs: KernelNeeds, threads: int, smem_bytes: int, arch: ArchLimits) -> Occupancy:
    return occupancy(
        arch,
        threads=threads,
        registers=needs.registers,
        static_smem_bytes=needs.static_smem_bytes,
        smem_bytes=smem_bytes,
        barriers=needs.barriers,
    )


def _require_resident(kernel: str, config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits) -> None:
    if not needs.registers and not config.cooperative:
        return
    resident = resident_blocks(needs, config.threads, config.smem_bytes, arch).blocks
    if resident == 0 and needs.registers:
        got = f"{config.threads} threads of {needs.registers} registers each"
        limit = f"a block has {arch.registers_per_block} registers"
        bound = f"__launch_bounds__({config.threads})"
        raise _breach(kernel, got, limit, f"Use a smaller block, or write {bound} so that registers spill.")
    most = resident * arch.multiprocessors
    if config.cooperative and config.blocks > most:
        raise _breach(
            kernel,
            f"a cooperative grid of {config.blocks} blocks",
            f"{resident} blocks on each of {arch.multiprocessors} multiprocessors make {most}",
            "Size the grid by dotcu.sm_count(t) * kernel.occupancy(block), and loop over the rest.",
        )

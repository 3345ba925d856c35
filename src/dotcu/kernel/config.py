"""Launch configurations, checked against every limit before a driver is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dotcu.errors import LaunchConfigError
from dotcu.kernel.occupancy import (
    MAX_BLOCK,
    MAX_CLUSTER,
    MAX_GRID,
    MAX_THREADS_PER_BLOCK,
    ArchLimits,
    occupancy,
)

Dim = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """How a kernel is launched. `str()` is as a user writes it.

    Attributes:
        grid: In blocks, also where there are clusters.
        smem_bytes: Dynamic shared memory per block.
        cluster: In blocks; None without clusters.
    """

    grid: Dim
    block: Dim
    smem_bytes: int = 0
    cluster: Dim | None = None
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


def read_config(
    kernel: str,
    *,
    grid: Any,
    block: Any,
    smem_bytes: Any = 0,
    cluster: Any = None,
    cooperative: bool = False,
    programmatic: bool = False,
) -> LaunchConfig:
    """Turn what a user wrote into a configuration, within the limits that every GPU has.

    Raises:
        LaunchConfigError: A size is no whole number, negative, zero (block, cluster) or too large.
    """
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
        raise _breach(
            kernel,
            f"block={config.block} has {config.threads} threads",
            f"a block has at most {MAX_THREADS_PER_BLOCK}",
            "Use block=256 and a larger grid: grid=dotcu.cdiv(n, 256).",
        )
    if config.cluster is not None:
        _require_cluster(kernel, config.grid, config.cluster)
    return config


def read_grid(kernel: str, grid: Any, checked: LaunchConfig) -> LaunchConfig:
    """Put another grid into a configuration whose other parts were checked.

    Raises:
        LaunchConfigError: As `read_config`.
    """
    sizes = _dim(kernel, "grid", grid, low=0)
    _require_within(kernel, "grid", sizes, MAX_GRID)
    if checked.cluster is not None:
        _require_cluster(kernel, sizes, checked.cluster)
    return LaunchConfig(
        grid=sizes,
        block=checked.block,
        smem_bytes=checked.smem_bytes,
        cluster=checked.cluster,
        cooperative=checked.cooperative,
        programmatic=checked.programmatic,
    )


def read_block(kernel: str, block: Any, smem_bytes: Any) -> tuple[int, int]:
    """The threads of a block and its dynamic shared memory, as a user wrote them.

    Raises:
        LaunchConfigError: A size is no whole number, or negative, or there are no threads.
    """
    x, y, z = _dim(kernel, "block", block, low=1)
    return x * y * z, _whole(kernel, "smem_bytes", smem_bytes, low=0)


def _breach(kernel: str, got: str, limit: str, remedy: str) -> LaunchConfigError:
    return LaunchConfigError(f"{kernel}: got {got}; {limit}.\n{remedy}")


def _whole(kernel: str, name: str, value: Any, *, low: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise _breach(
            kernel,
            f"{name} with {type(value).__name__} {value!r}",
            "it is made of whole numbers",
            "Divide with dotcu.cdiv(n, 256), which rounds up, or write int(x).",
        )
    if value < low:
        raise _breach(kernel, f"{name} with {value}", f"the least is {low}", f"Pass {name}={low} or more.")
    return int(value)


def _dim(kernel: str, name: str, value: Any, *, low: int) -> Dim:
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3:
        raise _breach(
            kernel,
            f"{name} with {len(sizes)} dimensions",
            "it has one, two or three",
            f"Pass {name}=(x, y, z).",
        )
    x, y, z = (*sizes, 1, 1)[:3]
    return (
        _whole(kernel, name, x, low=low),
        _whole(kernel, name, y, low=low),
        _whole(kernel, name, z, low=low),
    )


def _require_within(kernel: str, name: str, sizes: Dim, most: Dim) -> None:
    for axis, size, limit in zip("xyz", sizes, most, strict=True):
        if size > limit:
            raise _breach(
                kernel,
                f"{name}.{axis}={size}",
                f"the limit is {limit}",
                "Let each thread do several elements in a loop, or move the size to x.",
            )


def _require_cluster(kernel: str, grid: Dim, cluster: Dim) -> None:
    size = cluster[0] * cluster[1] * cluster[2]
    if size > MAX_CLUSTER:
        raise _breach(
            kernel,
            f"cluster={cluster} of {size} blocks",
            f"a cluster has at most {MAX_CLUSTER}, and at most 8 on every GPU",
            "Use a smaller cluster.",
        )
    if any(blocks % each for blocks, each in zip(grid, cluster, strict=True)):
        raise _breach(
            kernel,
            f"grid={grid} with cluster={cluster}",
            "the grid counts blocks and is a multiple of the cluster in each dimension",
            "Round the grid up: dotcu.cdiv(blocks, cluster) * cluster.",
        )


MAX_STATIC_SMEM_BYTES = 49152
"""What ptxas takes of `__shared__` arrays of a fixed size, on every architecture.

Source: CUDA Programming Guide, "Shared Memory" of each compute capability: above 48 KB it is dynamic.
"""


@dataclass(frozen=True, kw_only=True)
class KernelNeeds:
    """What one kernel takes of a multiprocessor, as far as it is known.

    Attributes:
        registers: Per thread; 0 where nothing was assembled.
        max_threads: Of `__launch_bounds__`; 0 without.
        cluster: Of `__cluster_dims__`, in blocks; None without.
    """

    static_smem_bytes: int = 0
    registers: int = 0
    max_threads: int = 0
    cluster: Dim | None = None


def require_fit(
    kernel: str, config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits, *, multiprocessors: int
) -> None:
    """Refuse a configuration that the kernel, or an architecture, cannot run.

    Raises:
        LaunchConfigError: Names the limit that is broken, its value, and the value asked for.
    """
    name = f"sm_{arch.capability[0]}{arch.capability[1]}"
    if needs.static_smem_bytes > MAX_STATIC_SMEM_BYTES:
        raise _too_much_static(kernel, needs.static_smem_bytes, arch.smem_block_bytes, name)
    shared = needs.static_smem_bytes + config.smem_bytes
    if shared > arch.smem_block_bytes:
        raise _breach(
            kernel,
            f"{shared} bytes of shared memory per block ({needs.static_smem_bytes} static, smem_bytes="
            f"{config.smem_bytes})",
            f"{name} has {arch.smem_block_bytes}",
            f"Pass smem_bytes={max(0, arch.smem_block_bytes - needs.static_smem_bytes)} or less.",
        )
    if needs.max_threads and config.threads > needs.max_threads:
        raise _breach(
            kernel,
            f"block={config.block} of {config.threads} threads",
            f"its __launch_bounds__ allow {needs.max_threads}",
            f"Pass block={needs.max_threads} or less, or raise the bound.",
        )
    if config.cluster is not None and arch.capability < (9, 0):
        raise _breach(
            kernel, f"cluster={config.cluster}", f"{name} has no clusters; sm_90 has", "Leave cluster out."
        )
    if needs.cluster is not None:
        _require_own_cluster(kernel, config, needs.cluster)
    _require_resident(kernel, config, needs, arch, multiprocessors)


def require_grid(
    kernel: str, config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits, *, multiprocessors: int
) -> None:
    """Refuse a grid that a kernel cannot run, of a configuration that fits otherwise.

    Raises:
        LaunchConfigError: As `require_fit`.
    """
    if needs.cluster is not None:
        _require_cluster(kernel, config.grid, needs.cluster)
    if config.cooperative:
        _require_resident(kernel, config, needs, arch, multiprocessors)


def _require_own_cluster(kernel: str, config: LaunchConfig, own: Dim) -> None:
    """Keep to the cluster that a kernel was compiled for."""
    if config.cluster not in (None, own):
        raise _breach(
            kernel,
            f"cluster={config.cluster}",
            f"it is compiled for __cluster_dims__{own}",
            "Leave cluster out, or __cluster_dims__.",
        )
    _require_cluster(kernel, config.grid, own)


def _too_much_static(kernel: str, static: int, most: int, name: str) -> LaunchConfigError:
    enough = "" if static <= most else f", of which {name} has {most} per block: use smaller arrays"
    return _breach(
        kernel,
        f"{static} bytes of static shared memory",
        f"the limit is {MAX_STATIC_SMEM_BYTES}",
        f"Use extern __shared__ and smem_bytes={min(static, most)}{enough}.",
    )


def _held(needs: KernelNeeds, config: LaunchConfig, arch: ArchLimits) -> int:
    """How many blocks of a launch a multiprocessor holds at once."""
    return occupancy(
        arch,
        threads=config.threads,
        registers=needs.registers,
        static_smem_bytes=needs.static_smem_bytes,
        smem_bytes=config.smem_bytes,
    ).blocks


def most_blocks(config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits, *, multiprocessors: int) -> int:
    """How many blocks a cooperative launch may have; 0 for another launch, and where that is not known."""
    known = config.cooperative and needs.registers
    return _held(needs, config, arch) * multiprocessors if known else 0


def _require_resident(
    kernel: str, config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits, multiprocessors: int
) -> None:
    if not needs.registers:
        return
    held = _held(needs, config, arch)
    if held == 0:
        raise _breach(
            kernel,
            f"{config.threads} threads of {needs.registers} registers each",
            f"a block has {arch.registers_per_block} registers",
            f"Use a smaller block, or write __launch_bounds__({config.threads}) so that registers spill.",
        )
    if config.cooperative and config.blocks > held * multiprocessors:
        raise _breach(
            kernel,
            f"a cooperative grid of {config.blocks} blocks",
            f"{held} blocks on each of {multiprocessors} multiprocessors make {held * multiprocessors}",
            "Size the grid by dotcu.sm_count(t) * kernel.occupancy(block), and loop over the rest.",
        )

"""Occupancy: the blocks of a kernel that fit a multiprocessor, what limits them, what would let more in.

Arithmetic on the assembler's figures; no GPU is asked, only its compute capability matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dotcu.inspection.code.build import KernelCode, LaunchShape
from dotcu.kernel.config import LIMITS, MAX_THREADS_PER_BLOCK, WARP, ArchLimits, Occupancy, occupancy

DEFAULT_THREADS = 256
"""The block that is assumed where no launch is known, and no launch bound."""

SEEN, BOUND, ASSUMED = "launched by a sample", "its launch bound", "assumed: no launch is known"
BY_COMPILER = "chosen by the compiler"

_BOUNDS = "launch bounds"


@dataclass(frozen=True, kw_only=True)
class OccupancyStep:
    """The smallest change of one resource alone that lets more warps into a multiprocessor.

    Attributes:
        resource: "registers" per thread, "shared memory" in bytes per block, or "threads" per block.
        now: What the kernel takes; need: the most that it may take for that.
        blocks, warps: How many there would be.
    """

    resource: str
    now: int
    need: int
    blocks: int
    warps: int


@dataclass(frozen=True, kw_only=True)
class KernelOccupancy:
    """The blocks of a kernel, launched in one way, that fit a multiprocessor.

    Attributes:
        why: Where the shape comes from.
        limits: Blocks by each limit.
        blocks, warps: How many fit; 0 if no launch can have this shape.
        limiters: Every resource that allows no more than that.
        most_warps: Those that a multiprocessor holds.
        steps: Changes that would let more warps in, where one change alone is enough.
    """

    shape: LaunchShape
    why: str
    limits: Mapping[str, int]
    blocks: int
    limiters: tuple[str, ...]
    warps: int
    most_warps: int
    steps: tuple[OccupancyStep, ...] = ()

    @property
    def share(self) -> float:
        """Warps over the most that fit: the theoretical occupancy."""
        return self.warps / self.most_warps


def kernel_occupancy(code: KernelCode, asked: LaunchShape | None = None) -> tuple[KernelOccupancy, ...]:
    """Return the occupancy of a kernel for each of its known launches, or for the one that is asked for.

    There is none where there is only PTX, or where the compute capability is not in the table.
    """
    arch = LIMITS.get((code.arch.major, code.arch.minor))
    if arch is None or code.resources is None:
        return ()
    bound, _ = code.launch_bounds
    if asked is not None:
        shapes, why = [asked], "asked for"
    elif code.shapes:
        shapes, why = sorted(code.shapes), SEEN
    else:
        shapes, why = [LaunchShape(block=(bound or DEFAULT_THREADS, 1, 1))], BOUND if bound else ASSUMED
    if code.tile is not None:  # whose block nobody else chooses
        shapes, why = [LaunchShape(block=(max(bound, 1), 1, 1))], BY_COMPILER
    return tuple(_one(code, arch, shape, why) for shape in shapes)


def _one(code: KernelCode, arch: ArchLimits, shape: LaunchShape, why: str) -> KernelOccupancy:
    assert code.resources is not None
    threads = min(shape.threads, MAX_THREADS_PER_BLOCK)
    usage = {
        "registers": code.resources.registers,
        "shared memory": code.resources.smem_bytes + shape.smem_bytes,
        "threads": threads,
    }
    fitting, (bound, exact) = _occupancy(arch, usage), code.launch_bounds
    by_resource = {
        "registers": fitting.by_registers,
        "shared memory": fitting.by_smem,
        "threads": fitting.by_threads,
        "blocks": fitting.by_blocks,
    }
    limits, blocks = {name: most for name, most in by_resource.items() if most is not None}, fitting.blocks
    limiters = tuple(name for name, most in limits.items() if most <= blocks)
    allowed = shape.threads == bound if exact else shape.threads <= (bound or MAX_THREADS_PER_BLOCK)
    if not allowed:
        limits, blocks, limiters = {_BOUNDS: 0, **limits}, 0, (_BOUNDS,)
    return KernelOccupancy(
        shape=shape,
        why=why,
        limits=limits,
        blocks=blocks,
        limiters=limiters,
        warps=blocks * _warps(threads),
        most_warps=arch.warps,
        steps=tuple(_steps(arch, usage, fixed_block=exact)) if allowed else (),
    )


def _occupancy(arch: ArchLimits, usage: Mapping[str, int]) -> Occupancy:
    return occupancy(
        arch,
        threads=usage["threads"],
        registers=usage["registers"],
        static_smem_bytes=usage["shared memory"],
    )


def _warps(threads: int) -> int:
    return -(-threads // WARP)


def _steps(arch: ArchLimits, usage: Mapping[str, int], *, fixed_block: bool) -> Iterator[OccupancyStep]:
    """Yield, for each resource, how much less of it alone would let more warps in."""
    reserved, unit = arch.smem_reserved_bytes, arch.smem_unit
    allocated = (usage["shared memory"] + reserved - 1) // unit * unit
    fewer_threads = range((_warps(usage["threads"]) - 1) * WARP, 0, -WARP)
    tried: Mapping[str, Iterable[int]] = {
        "registers": range(usage["registers"] - 1, 0, -1),
        # The amounts at which the allocation gets a unit smaller.
        "shared memory": range(allocated - reserved, -1, -unit),
        "threads": () if fixed_block else fewer_threads,
    }
    now = _occupancy(arch, usage).blocks * _warps(usage["threads"])
    for resource, smaller in tried.items():
        for value in smaller:
            less = {**usage, resource: value}
            blocks = _occupancy(arch, less).blocks
            warps = blocks * _warps(less["threads"])
            if warps > now:
                yield OccupancyStep(
                    resource=resource, now=usage[resource], need=value, blocks=blocks, warps=warps
                )
                break

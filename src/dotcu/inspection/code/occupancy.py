"""How many blocks of a kernel a multiprocessor holds, what limits them, and what one more would need.

Arithmetic on what the assembler reports; no GPU is asked, and none is meant but its compute capability.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dotcu.inspection.code.units import KernelCode, Shape
from dotcu.kernel.occupancy import LIMITS, MAX_THREADS_PER_BLOCK, WARP, ArchLimits, Occupancy, occupancy

DEFAULT_THREADS = 256
"""The block that occupancy is told for where no launch is known, and no launch bound."""

SEEN, BOUND, ASSUMED = "launched by a sample", "its launch bound", "assumed: no launch is known"


_BOUNDS = "launch bounds"


@dataclass(frozen=True, kw_only=True)
class Step:
    """The smallest change of one resource alone that lets a multiprocessor hold more warps.

    Attributes:
        resource: "registers" per thread, "shared memory" in bytes per block, or "threads" per block.
        now: What the kernel takes.
        need: The most that it may take for that.
        blocks: How many blocks there would be.
        warps: How many warps that is.
    """

    resource: str
    now: int
    need: int
    blocks: int
    warps: int


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a multiprocessor holds of a kernel, launched in one way.

    Attributes:
        why: Where the shape comes from.
        limits: Blocks by each limit.
        blocks: How many it holds; 0 where no launch can have this shape.
        limiters: Every resource that allows no more than that.
        warps: Of those blocks.
        most_warps: That a multiprocessor has room for.
        steps: What would let more warps in, where one change alone is enough.
    """

    shape: Shape
    why: str
    limits: dict[str, int]
    blocks: int
    limiters: tuple[str, ...]
    warps: int
    most_warps: int
    steps: tuple[Step, ...] = ()

    @property
    def share(self) -> float:
        """Warps that it holds over those that it has room for: the theoretical occupancy."""
        return self.warps / self.most_warps


def held(code: KernelCode, asked: Shape | None = None) -> tuple[Held, ...]:
    """What a multiprocessor holds of a kernel, for each shape that is known of it.

    Args:
        asked: The shape to tell for, in place of those.

    Returns:
        Nothing where there is PTX alone, or where the compute capability is not in the table.
    """
    arch = LIMITS.get((code.arch.major, code.arch.minor))
    if arch is None or code.resources is None:
        return ()
    return tuple(_held(code, arch, shape, why) for shape, why in _shapes(code, asked))


def _shapes(code: KernelCode, asked: Shape | None) -> Iterable[tuple[Shape, str]]:
    if asked is not None:
        return [(asked, "asked for")]
    if code.shapes:
        return [(shape, SEEN) for shape in sorted(code.shapes)]
    bound, _ = code.launch_bounds
    if bound:
        return [(Shape(block=(bound, 1, 1)), BOUND)]
    return [(Shape(block=(DEFAULT_THREADS, 1, 1)), ASSUMED)]


@dataclass(frozen=True, kw_only=True)
class _Taken:
    """What one block takes."""

    threads: int
    registers: int
    static_smem_bytes: int
    smem_bytes: int

    def on(self, arch: ArchLimits) -> Occupancy:
        return occupancy(
            arch,
            threads=self.threads,
            registers=self.registers,
            static_smem_bytes=self.static_smem_bytes,
            smem_bytes=self.smem_bytes,
        )


def _held(code: KernelCode, arch: ArchLimits, shape: Shape, why: str) -> Held:
    assert code.resources is not None
    taken = _Taken(
        threads=min(shape.threads, MAX_THREADS_PER_BLOCK),
        registers=code.resources.registers,
        static_smem_bytes=code.resources.smem_bytes,
        smem_bytes=shape.smem_bytes,
    )
    found, (bound, only) = taken.on(arch), code.launch_bounds
    limits, blocks = _limits(found), found.blocks
    limiters = tuple(name for name, most in limits.items() if most <= blocks)
    if shape.threads > (bound or MAX_THREADS_PER_BLOCK) or (only and shape.threads != bound):
        limits, blocks, limiters = {_BOUNDS: 0, **limits}, 0, (_BOUNDS,)
    return Held(
        shape=shape,
        why=why,
        limits=limits,
        blocks=blocks,
        limiters=limiters,
        warps=blocks * _warps(taken.threads),
        most_warps=arch.warps,
        steps=() if limiters == (_BOUNDS,) else tuple(_steps(arch, taken, free_block=not only)),
    )


def _limits(found: Occupancy) -> dict[str, int]:
    limits = {
        "registers": found.by_registers,
        "shared memory": found.by_smem,
        "threads": found.by_threads,
        "blocks": found.by_blocks,
    }
    return {name: most for name, most in limits.items() if most is not None}


def _warps(threads: int) -> int:
    return -(-threads // WARP)


def _steps(arch: ArchLimits, taken: _Taken, *, free_block: bool) -> Iterator[Step]:
    """For each resource, how much less of it alone would let more warps in."""
    smem = taken.static_smem_bytes + taken.smem_bytes
    fewer_threads = range((_warps(taken.threads) - 1) * WARP, 0, -WARP) if free_block else ()
    tried = {
        "registers": (taken.registers, range(taken.registers - 1, 0, -1)),
        "shared memory": (smem, _smaller_smem(arch, smem)),
        "threads": (taken.threads, fewer_threads),
    }
    for resource, (now, smaller) in tried.items():
        for value in smaller:
            less = _with(taken, resource, value)
            blocks, warps = less.on(arch).blocks, _warps(less.threads)
            if blocks * warps > taken.on(arch).blocks * _warps(taken.threads):
                yield Step(resource=resource, now=now, need=value, blocks=blocks, warps=blocks * warps)
                break


def _smaller_smem(arch: ArchLimits, now: int) -> Iterator[int]:
    """The amounts of shared memory below one at which the allocation gets a unit smaller."""
    end = (now + arch.smem_reserved_bytes - 1) // arch.smem_unit * arch.smem_unit
    for allocated in range(end, arch.smem_reserved_bytes - 1, -arch.smem_unit):
        yield allocated - arch.smem_reserved_bytes


def _with(taken: _Taken, resource: str, value: int) -> _Taken:
    if resource == "registers":
        return replace(taken, registers=value)
    if resource == "threads":
        return replace(taken, threads=value)
    return replace(taken, static_smem_bytes=0, smem_bytes=value)

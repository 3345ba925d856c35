"""Launching a kernel in the simulated device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dotcu import stopwatch
from dotcu.errors import SimulationError
from dotcu.simulator.finding import Coordinates
from dotcu.simulator.machine.grid import Grid
from dotcu.simulator.machine.heap import keep_freed_memory
from dotcu.simulator.machine.memory import Buffer, Memory, Region, allocate
from dotcu.simulator.program import Loaded, pack_params
from dotcu.simulator.run import Run

MAX_BLOCK_THREADS = 1024
# What the driver gives a cooperative launch for its grid-wide barrier (cooperative_groups.h).
_WORKSPACE_BYTES = 256


def launch(
    loaded: Loaded,
    entry: str,
    *,
    params: Sequence[bytes],
    memory: Memory,
    grid: Coordinates,
    block: Coordinates,
    smem_bytes: int,
    run: Run,
    kernel: str,
    parameter_names: tuple[str, ...] = (),
    cooperative: bool = False,
) -> None:
    """Run a kernel over its whole grid, and note findings and counts in `run`.

    Args:
        entry: The kernel's mangled name.
        params: The bytes of each parameter; pointers are addresses that `memory` gave.
        smem_bytes: Dynamic shared memory of each block.
        kernel: What findings call the kernel.
        cooperative: Its blocks may wait for each other by a grid-wide barrier.
        parameter_names: Names of the parameters, for pointers to memory whose buffer has none.

    Raises:
        FindingError: A fault was found and the run is to stop at the first.
        UnsupportedInstruction: The kernel holds an instruction that is not executed; nothing ran.
        SimulationError: No such kernel, or parameters that do not fit it.

    Note:
        Writes to the buffers that are mapped, to their `written` masks, and to `loaded.variables`.
    """
    keep_freed_memory()
    program = loaded.program
    with stopwatch.during("decode"):
        decoded = program.decoded(entry)
    header = program.headers[entry]
    _check_shape(header.name, grid, block)
    everything = _with_variables(memory, loaded)
    _name_buffers(memory, params, parameter_names)
    workspace = Region(allocate(_WORKSPACE_BYTES), _workspace()) if cooperative else None
    if workspace is not None:
        everything.insert(workspace)
    machine = Grid(
        decoded=decoded,
        source_line=program.source_line,
        memory=everything,
        run=run,
        kernel=kernel,
        grid=grid,
        block=block,
        smem_bytes=smem_bytes,
        params=pack_params(header, params),
        workspace=0 if workspace is None else workspace.base,
    )
    if 0 in grid:
        return
    with stopwatch.during("simulate"):
        try:
            machine.execute()
        finally:
            machine.count()


def _workspace() -> Buffer:
    return Buffer(name="the grid's barrier", data=np.zeros(_WORKSPACE_BYTES, np.uint8))


def _check_shape(name: str, grid: Coordinates, block: Coordinates) -> None:
    threads = block[0] * block[1] * block[2]
    if not 1 <= threads <= MAX_BLOCK_THREADS or min(block) < 1 or min(grid) < 0:
        raise SimulationError(
            f"The kernel {name} cannot be launched with grid {grid} and block {block}.\n"
            f"A block has 1 to {MAX_BLOCK_THREADS} threads, and no grid is negative.\n"
            "Give a block of 256, say."
        )


def _with_variables(memory: Memory, loaded: Loaded) -> Memory:
    """The launch's own view of memory: what is mapped, and the program's variables."""
    everything = Memory()
    for region in (*memory.regions, *loaded.regions()):
        everything.insert(region)
    return everything


def _name_buffers(memory: Memory, params: Sequence[bytes], names: tuple[str, ...]) -> None:
    """Give regions that have no name that of the parameter which points to them."""
    unnamed = {region.base: region for region in memory.regions if not region.name}
    for name, raw in zip(names, params, strict=False):
        if len(raw) == 8 and int.from_bytes(raw, "little") in unnamed:
            unnamed[int.from_bytes(raw, "little")].name = name

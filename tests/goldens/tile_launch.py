"""Launches of golden tile kernels in the interpreter."""

from __future__ import annotations

import numpy as np

from dotcu.simulator import Buffer, Memory, Run
from dotcu.simulator.tile.launch import TileProgram, launch_tile
from golden_recipes import Array
from tile_case import Data, TileCase


def interpreted(program: TileProgram, symbol: str, case: TileCase) -> dict[str, Array]:
    """Return a case's outputs in the interpreter.

    Args:
        program: The Tile IR of the case's source.
        symbol: The kernel's mangled name.
        case: The launch.

    Raises:
        FindingError: The interpreter found something.
    """
    arrays, memory, params = case.arrays(), Memory(), []
    for name, argument in case.args.items():
        if isinstance(argument, Data):
            buffer = Buffer(name=name, data=arrays[name].reshape(-1).view(np.uint8))
            params.append(memory.map(buffer).to_bytes(8, "little"))
        else:
            params.append(argument.tobytes())
    launch_tile(
        program,
        symbol,
        params=params,
        memory=memory,
        grid=case.grid,
        run=Run(),
        kernel=case.name,
        parameter_names=tuple(case.args),
    )
    return {name: arrays[name] for name in case.outputs}

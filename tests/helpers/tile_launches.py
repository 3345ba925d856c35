"""Launches of the tile kernels that the tests have as bytecode, with arrays for pointers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dotcu.simulator import Buffer, Memory, Run
from dotcu.simulator.tile.launch import TileProgram, launch_tile

FOLDER = Path(__file__).parents[1] / "unit" / "tile_ir" / "data"
SOURCE = (FOLDER / "kernels.cu").read_text(encoding="utf-8")
BYTECODE = (FOLDER / "kernels.tileir").read_bytes()
"""What NVRTC 13.5.37 made of kernels.cu in the folder /: --enable-tile -std=c++20 -arch=sm_90."""


@cache
def kernels() -> TileProgram:
    return TileProgram.parse(BYTECODE, {"/kernels.cu": "kernels.cu"}, {"kernels.cu": SOURCE})


def line_of(text: str) -> int:
    """Return the number of the one source line that holds a text."""
    (number,) = [number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line]
    return number


def launched(
    kernel: str,
    grid: int | tuple[int, int, int],
    *,
    run: Run | None = None,
    program: TileProgram | None = None,
    unwritten: tuple[str, ...] = (),
    read_only: tuple[str, ...] = (),
    storage: tuple[int, int] | None = None,
    **arguments: Any,
) -> Run:
    """Launch a kernel and return its run, which collects findings.

    Args:
        kernel: Its name.
        grid: Tile blocks, along x or along all dimensions.
        run: To launch in; None: a new one.
        program: The file that the kernel is of; None: that of kernels.cu.
        unwritten: Arrays that nothing has written.
        read_only: Arrays that are passed for pointers to const.
        storage: Address and size of the allocation that some arrays are parts of.
        arguments: Its arguments in order; arrays for pointers.
    """
    run = run or Run(on_finding="collect")
    memory, params = Memory(), []
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            data = value.reshape(-1).view(np.uint8)
            start, size = storage or (0, 0)
            buffer = Buffer(
                name=name,
                data=data,
                itemsize=value.itemsize,
                written=np.zeros(data.size, np.uint8) if name in unwritten else None,
                read_only=name in read_only,
                storage=storage if start <= data.ctypes.data < start + size else None,
            )
            params.append(memory.map(buffer).to_bytes(8, "little"))
        else:
            params.append(value.tobytes() if isinstance(value, np.generic) else np.int32(value).tobytes())
    launch_tile(
        program or kernels(),
        kernel,
        params=params,
        memory=memory,
        grid=grid if isinstance(grid, tuple) else (grid, 1, 1),
        run=run,
        kernel=kernel,
        parameter_names=tuple(arguments),
    )
    return run

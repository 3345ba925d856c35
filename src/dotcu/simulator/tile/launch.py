"""Tile kernels in the simulated device: a program that is loaded once, and its launches, block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dotcu import telemetry
from dotcu.errors import SimulationError
from dotcu.locks import ForkSafeLock
from dotcu.simulator.machine.memory import Buffer, Bytes, Memory, allocate
from dotcu.simulator.program.inlining import line_reader
from dotcu.simulator.run import Coordinates, Run
from dotcu.simulator.tile.decode import BINDERS
from dotcu.simulator.tile.state import TileDecoder, TileLaunch
from dotcu.tile_ir.module import TileModule, TileOperation
from dotcu.tile_ir.reader import read

_LARGEST_GRID = (1 << 31) - 1


class TileProgram:
    """A file of Tile IR that kernels are launched from, and decoded at their first launch.

    Attributes:
        addresses, variables: Of each variable its address, and its bytes; writable.
    """

    def __init__(self, module: TileModule, files: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self.module = module
        self._files, self.source_line = files, line_reader(texts)
        self.addresses = {name: allocate() for name in module.variables}
        self.variables: dict[str, Bytes] = {}
        for name, (type_, data, _) in module.variables.items():
            times = type_.size if len(data) == type_.itemsize else 1
            self.variables[name] = np.frombuffer(data * times, np.uint8).copy()
        self._decoded: dict[str, TileDecoder] = {}
        self._lock = ForkSafeLock()

    @classmethod
    def parse(
        cls, data: bytes, files: Mapping[str, str] | None = None, texts: Mapping[str, str] | None = None
    ) -> TileProgram:
        """Read a Tile IR file.

        Args:
            data, files, texts: The file, and names and texts as of `Program.parse`.

        Raises:
            TileCodeError: The file is not well-formed Tile IR.
        """
        return cls(read(data), files or {}, texts or {})

    def place(self, operation: TileOperation) -> tuple[str, int]:
        """Return the file and the line of an operation; 0 if none is known."""
        line = operation.line
        return ("", 0) if line is None else (self._files.get(line.file, line.file), line.line)

    def regions(self) -> list[Buffer]:
        """Return the variables as regions of global memory."""
        constants, addresses = self.module.variables, self.addresses
        return [
            Buffer(name=name, data=data, read_only=constants[name].read_only, base=addresses[name])
            for name, data in self.variables.items()
            if data.size
        ]

    def decoded(self, name: str) -> TileDecoder:
        """Return a kernel, ready to run.

        Raises:
            SimulationError: There is none of that name.
            UnsupportedInstruction: It holds an operation that is not executed.
        """
        if name not in self.module.functions:
            raise SimulationError(
                f"The Tile IR has no kernel {name!r}.\nIt has {', '.join(self.module.functions) or 'none'}.\n"
                "Name one of those."
            )
        with self._lock:
            if name not in self._decoded:
                self._decoded[name] = TileDecoder(self.module.functions[name], BINDERS)
            return self._decoded[name]


def launch_tile(
    program: TileProgram,
    entry: str,
    *,
    params: Sequence[bytes],
    memory: Memory,
    grid: Coordinates,
    run: Run,
    kernel: str,
    parameter_names: tuple[str, ...] = (),
    caller: Callable[[str], str] = lambda name: "",
) -> None:
    """Run a tile kernel over its whole grid, and note findings and counts in `run`.

    Args:
        grid: Tile blocks in x, y, z.

    Raises:
        FindingError: A fault was found and the run stops at the first.
        UnsupportedInstruction: The kernel holds an operation that is not executed; nothing ran.
        SimulationError: No such kernel, or parameters or a grid that do not fit it.
    """
    with telemetry.during("decode"):
        decoded = program.decoded(entry)
    count = len(decoded.function.parameters)
    if len(params) != count:
        raise SimulationError(
            f"The kernel {kernel} takes {count} parameters; got {len(params)}.\n"
            "Pass the bytes of each, in order."
        )
    if min(grid) < 0 or math.prod(grid) > _LARGEST_GRID:
        raise SimulationError(
            f"The kernel {kernel} cannot be launched with grid {grid}.\n"
            f"A grid counts tile blocks: 0 to {_LARGEST_GRID} in all.\nFor example: grid=(64, 1, 1)."
        )
    memory.name(params, parameter_names)
    device_memory = Memory()
    for region in (*memory.regions, *program.regions()):
        device_memory.insert(region)
    launch = TileLaunch(
        addresses=program.addresses,
        place=program.place,
        source_line=program.source_line,
        decoded=decoded,
        memory=device_memory,
        extent=grid,
        run=run,
        kernel=kernel,
        caller=caller,
        names=parameter_names,
    )
    launch.start(params)
    if 0 in grid:
        return
    run.launches[kernel] += 1
    with telemetry.during("simulate"), np.errstate(all="ignore"):
        try:
            launch.execute()
        except StopIteration:
            pass
        except MemoryError as error:
            raise SimulationError(
                f"The tiles of {kernel} do not fit into this machine's memory: {error}.\nUse smaller tiles."
            ) from error
        finally:
            launch.count()

"""A PTX program in the simulated device: loaded once, launched any number of times."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dotcu import telemetry
from dotcu.demangler import demangle
from dotcu.errors import SimulationError
from dotcu.locks import ForkSafeLock
from dotcu.ptx.instructions import TYPE_BYTES, FunctionHeader, Symbol, Variable
from dotcu.ptx.module import PtxModule, parse_module
from dotcu.simulator.machine.memory import Buffer, Memory, allocate
from dotcu.simulator.machine.schedule import execute
from dotcu.simulator.machine.state import DecodedKernel, LaunchState
from dotcu.simulator.program.inlining import inline_calls, line_reader
from dotcu.simulator.program.variables import parameter_offsets
from dotcu.simulator.run import Coordinates, Run
from dotcu.simulator.sanitizers.cluster_exits import watch_exits
from dotcu.simulator.sanitizers.dependent_launches import DependentLaunch
from dotcu.simulator.sanitizers.races import Races
from dotcu.simulator.sanitizers.unwritten import Unwritten
from dotcu.simulator.semantics.builtins import BUILTINS
from dotcu.simulator.semantics.decode import decode
from dotcu.simulator.traffic import TrafficCounters

Language = Literal["cuda", "triton", "numba"]
"""What kernels are written in."""
MAX_BLOCK_THREADS = 1024
# What the driver gives a cooperative launch for its grid-wide barrier (cooperative_groups.h).
_WORKSPACE_BYTES = 256
_HEAP_BLOCK_BYTES = 31 << 20


class Program:
    """A PTX file that kernels are launched from, and decoded at their first launch.

    Attributes:
        files: Names that findings use for the source files, by their number in the PTX.
        addresses: Addresses of the variables, and of functions that a pointer may call.
        variables: The bytes of each __device__ and __constant__ variable; writable.
        heap: What its kernels have from malloc().
    """

    def __init__(
        self,
        module: PtxModule,
        files: Mapping[str, str],
        texts: Mapping[str, str],
        language: Language = "cuda",
    ) -> None:
        self.module, self.language = module, language
        self.files = {n: files.get(path, path) for n, path in module.files.items()}
        self._declared = dict(module.module_variables)
        functions = (name for name in module.bodies if not module.headers[name].is_entry)
        self.addresses = {name: allocate() for name in (*self._declared, *functions)}
        self.variables = {n: initial_bytes(v, self.addresses) for n, v in self._declared.items()}
        self.heap: list[Buffer] = []
        self.source_line = line_reader(texts)
        self._decoded: dict[str, DecodedKernel] = {}
        self._lock = ForkSafeLock()

    @classmethod
    def parse(
        cls,
        ptx: str,
        files: Mapping[str, str] | None = None,
        texts: Mapping[str, str] | None = None,
        language: Language = "cuda",
        name: str = "",
    ) -> Program:
        """Read a PTX file.

        Args:
            ptx: The text of the file.
            files: Names that findings use for the files of .file directives, by the directive's name.
            texts: The text of files that findings quote and that are on no disk, by the same names.
            language: That of the kernels' source, in whose words findings speak.
            name: What findings call the PTX, to name its lines where no .loc names a source line.

        Raises:
            SimulationError: The text is not well-formed PTX.
        """
        module = parse_module(ptx)
        if name:
            module.files.setdefault(0, name)
        return cls(module, files or {}, texts or {}, language)

    def write(self, name: str, data: bytes) -> None:
        """Write the first bytes of a variable."""
        self.variables[name][: len(data)] = memoryview(data)

    def regions(self) -> list[Buffer]:
        """Return the variables as regions of global memory."""
        regions = []
        for name, data in list(self.variables.items()):
            const, base = self._declared[name].space == "const", self.addresses[name]
            if data.size:
                regions.append(Buffer(name=name, data=data, read_only=const, constant=const, base=base))
        return regions

    def decoded(self, name: str) -> DecodedKernel:
        """Return a kernel, ready to run.

        Raises:
            SimulationError: There is none of that name.
            UnsupportedInstruction: It holds an instruction that is not executed.
        """
        self.module.entry(name)
        with self._lock:
            if name not in self._decoded:
                self._decoded[name] = self._decode(name)
            return self._decoded[name]

    def _decode(self, name: str) -> DecodedKernel:
        kernel = inline_calls(self.module, name, frozenset(BUILTINS), self.files)
        for variable in kernel.module.values():
            if variable.name not in self.addresses:
                self.addresses[variable.name] = allocate()
                self.variables[variable.name] = initial_bytes(variable, self.addresses)
                self._declared[variable.name] = variable
        return decode(kernel, self.module, name, self.addresses, self.language)


def initial_bytes(variable: Variable, addresses: Mapping[str, int]) -> NDArray[np.uint8]:
    """Return a variable's contents when its module is loaded."""
    size = TYPE_BYTES[variable.type]
    initial = bytearray()
    for element in variable.initial[: variable.size // size]:
        value = element if isinstance(element, int) else _initial_address(element, addresses)
        initial += (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    data = np.zeros(variable.size, np.uint8)
    data[: len(initial)] = initial
    return data


def _initial_address(symbol: Symbol, addresses: Mapping[str, int]) -> int:
    if symbol.name not in addresses:
        raise SimulationError(
            f"A variable is initialised with the address of {symbol.name!r}, which is neither a variable "
            "nor a function with a body in this file.\n"
            "Define it in the source that is compiled, or include the file that does."
        )
    address = addresses[symbol.name] + symbol.offset
    lowest = symbol.mask & -symbol.mask
    return (address & symbol.mask) // lowest if symbol.mask else address


def pack_params(header: FunctionHeader, params: Sequence[bytes]) -> bytes:
    """Return parameters laid out one after the other, as `parameter_offsets` says."""
    offsets = parameter_offsets(header)
    if len(params) != len(header.params):
        raise SimulationError(
            f"The kernel {demangle(header.name)} takes {len(header.params)} parameters; got {len(params)}.\n"
            "Pass the bytes of each, in order."
        )
    packed = bytearray(sum(p.size + p.align for p in header.params) + 16)
    for param, value in zip(header.params, params, strict=True):
        if len(value) != param.size:
            raise SimulationError(
                f"The parameter {param.name} takes {param.size} bytes; got {len(value)}.\n"
                "Pack the value in the size that the kernel declares."
            )
        packed[offsets[param.name] : offsets[param.name] + param.size] = value
    return bytes(packed)


def launch(
    program: Program,
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
    cluster: Coordinates | None = None,
    cooperative: bool = False,
    programmatic: bool = False,
    others: Sequence[Sequence[bytes]] = (),
    caller: Callable[[str], str] = lambda name: "",
) -> None:
    """Run a kernel over its whole grid, and note findings and counts in `run`.

    Args:
        program: The kernel's program; its variables are read and written.
        entry: The kernel's mangled name.
        params: The bytes of each parameter; pointers are addresses that `memory` gave.
        memory: The buffers that the kernel may reach.
        grid: Blocks in x, y, z.
        block: Threads in x, y, z.
        smem_bytes: Dynamic shared memory of each block, in bytes.
        run: Says what is checked, and takes findings and counts.
        kernel: The kernel's name in findings.
        parameter_names: Names of the parameters, for pointers to memory whose buffer has none.
        cluster: Blocks of a cluster in x, y, z, of which the grid is a multiple; None: as the kernel says.
        cooperative: Its blocks may wait for each other by a grid-wide barrier.
        programmatic: It may start before the launch before it in this run has ended.
        others: The parameters of the other ranks of a launch on several GPUs: `params` are those of rank 0.
        caller: Returns what findings say of the caller, for the name of the memory at fault.

    Raises:
        FindingError: A fault was found and the run stops at the first.
        UnsupportedInstruction: The kernel holds an instruction that is not executed; nothing ran.
        SimulationError: No such kernel, or parameters that do not fit it.

    Note:
        Writes to the buffers that are mapped, to their `written` masks, and to `program.variables`.
    """
    _keep_freed_memory()
    with telemetry.during("decode"):
        decoded = program.decoded(entry)
    header = program.module.headers[entry]
    if not 1 <= math.prod(block) <= MAX_BLOCK_THREADS or min(block) < 1 or min(grid) < 0:
        raise SimulationError(
            f"The kernel {demangle(header.name)} cannot be launched with grid {grid} and block {block}.\n"
            f"A block has 1 to {MAX_BLOCK_THREADS} threads, and no grid is negative.\n"
            "For example: a block of 256."
        )
    if cluster is None and header.cluster:
        x, y, z = (*header.cluster, 1, 1)[:3]
        cluster = x, y, z
    if cluster is not None and any(blocks % each for blocks, each in zip(grid, cluster, strict=True)):
        raise SimulationError(
            f"The kernel {demangle(header.name)} cannot be launched with grid {grid} and cluster {cluster}.\n"
            "The grid counts blocks and is a multiple of the cluster in each dimension.\n"
            "Round the grid up to whole clusters."
        )
    for each in (params, *others):
        memory.name(each, parameter_names)
    device_memory, workspace = Memory(), 0
    variables = program.regions()
    for variable in variables if others else ():
        variable.read_only = True  # every GPU has its own, and there is one here
    for region in (*memory.regions, *variables, *program.heap):
        device_memory.insert(region)
    if cooperative:
        workspace = allocate()
        data = np.zeros(_WORKSPACE_BYTES, np.uint8)
        device_memory.insert(Buffer(name="the grid's barrier", data=data, base=workspace))
    state = LaunchState(
        decoded=decoded,
        source_line=program.source_line,
        caller=caller,
        memory=device_memory,
        run=run,
        kernel=kernel,
        extent=grid,
        block=block,
        smem_bytes=smem_bytes,
        params=pack_params(header, params),
        others=tuple(pack_params(header, each) for each in others),
        cluster=cluster,
        workspace=workspace,
        registers=header.registers,
        heap=program.heap,
    )
    traffic = TrafficCounters(state)
    Unwritten(state)
    races = Races(state) if state.checks_races else None
    watch_exits(state)
    if programmatic and run.earlier and not others:
        DependentLaunch(state, run.earlier)
    if 0 in grid:
        return
    run.launches[kernel] += 1
    with telemetry.during("simulate"), np.errstate(all="ignore"):
        try:
            execute(state)
        finally:
            traffic.add_to_run()
            run.earlier = () if races is None else races.writes(kernel)
            state.on.clear()


@functools.cache
def _keep_freed_memory() -> None:
    """Let the C library keep freed memory in the process, from now on.

    glibc returns large blocks to the system as soon as they are freed, and every page of the next
    one costs a fault when it is first touched: for registers of 65536 threads, several times what the
    arithmetic costs. It adapts to the largest block that was freed so far, up to 32 MiB: blocks of
    that size are then cut from the heap, of which twice as much is kept.

    Note:
        Up to 64 MiB more stay with the process. It touches no memory, and does nothing where the
        C library is another one.

    Source: mallopt(3), "M_MMAP_THRESHOLD"; measured, 2 cores, 2026-11: an elementwise kernel over a
    million floats in 14 ms instead of 31, a tiled 256 x 256 x 256 matmul in 0.28 s instead of 0.71.
    """
    np.empty(_HEAP_BLOCK_BYTES, np.uint8)

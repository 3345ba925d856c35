"""A PTX file that can be launched: parsed on demand, decoded once for each kernel."""

from __future__ import annotations

import linecache
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dotcu.errors import SimulationError
from dotcu.ptx.headers import EntryHeader, Outline, function_not_found, outline
from dotcu.ptx.instructions import TYPE_BYTES, Body, Header, Location, Part, Symbol, Variable
from dotcu.ptx.link import Linked, Placed, Refusal, Unresolved, link
from dotcu.simulator.decoding.decode import Decoded, decode
from dotcu.simulator.machine.memory import Buffer, Region, allocate
from dotcu.simulator.refusal import refusal_error, refused_call, unresolved_call
from dotcu.simulator.semantics.calls import BUILTINS


@dataclass(frozen=True, kw_only=True)
class Entry(EntryHeader):
    """The same with what only its body says.

    Attributes:
        smem_bytes: Static shared memory.
    """

    smem_bytes: int


def parameter_offsets(header: Header | EntryHeader) -> dict[str, int]:
    """Where each parameter begins when all are laid out one after the other, aligned."""
    offsets, end = {}, 0
    for param in header.params:
        start = -(-end // param.align) * param.align
        offsets[param.name] = start
        end = start + param.size
    return offsets


class Program:
    """A PTX file. Bodies are parsed, and kernels decoded, when they are first asked for."""

    def __init__(self, outlined: Outline, files: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self.outlined = outlined
        self.texts = texts
        self.files = {n: files.get(path, path) for n, path in outlined.files.items()}
        self.headers: Mapping[str, EntryHeader] = outlined.entries
        self.variables = dict(outlined.module_variables)
        self.addresses = {v.name: allocate(v.size) for v in self.variables.values()}
        self.addresses |= {n: allocate(1) for n in outlined.bodies if not outlined.headers[n].is_entry}
        self._decoded: dict[str, Decoded] = {}
        self._lock = threading.RLock()

    @classmethod
    def parse(
        cls, ptx: str, files: Mapping[str, str] | None = None, texts: Mapping[str, str] | None = None
    ) -> Program:
        """Read a PTX file.

        Args:
            files: What findings call the files that .file directives name, by that name.
            texts: The text of files that findings are to quote and that are on no disk, by what
                findings call them.

        Raises:
            SimulationError: The text is not well-formed PTX.
        """
        return cls(outline(ptx), files or {}, texts or {})

    def source_line(self, file: str, line: int) -> str:
        """The text of a line, from 1; empty where it is not known."""
        if file not in self.texts:
            return linecache.getline(file, line)
        lines = self.texts[file].splitlines()
        return lines[line - 1] if 0 < line <= len(lines) else ""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every kernel, with what its body says of static shared memory."""
        return {name: self.entry(name) for name in self.headers}

    def entry(self, name: str) -> Entry:
        """One kernel.

        Raises:
            SimulationError: There is none of that name.
        """
        header = self.headers.get(name)
        if header is None:
            raise function_not_found(self.outlined, name)
        with self._lock:
            return Entry(**vars(header), smem_bytes=self.outlined.static_smem_bytes(name))

    def body(self, name: str) -> Body:
        """The parsed body of a function."""
        with self._lock:
            return self.outlined.body(name)

    def decoded(self, name: str) -> Decoded:
        """A kernel, ready to run.

        Raises:
            SimulationError: There is none of that name.
            UnsupportedInstruction: It holds an instruction that is not executed.
        """
        if name not in self.headers:
            raise function_not_found(self.outlined, name)
        with self._lock:
            if name not in self._decoded:
                self._decoded[name] = self._decode(name)
            return self._decoded[name]

    def _decode(self, name: str) -> Decoded:
        place = Places(self, name)
        cluster = self.outlined.headers[name].cluster
        if any(blocks > 1 for blocks in cluster):
            raise refusal_error(f"{name}: a kernel with __cluster_dims__{cluster}")
        try:
            linked = link(self.outlined, self.body, name, frozenset(BUILTINS))
        except Refusal as refusal:
            raise refused_call(refusal, place) from None
        except Unresolved as unresolved:
            raise unresolved_call(unresolved, place) from None
        place.settle(linked)
        for variable in linked.module.values():
            if variable.name not in self.addresses:
                self.addresses[variable.name] = allocate(variable.size)
                self.variables[variable.name] = variable
        shared = {n: v for n, v in self.outlined.variables.items() if v.space == "shared"}
        return decode(
            linked,
            parameters=parameter_offsets(self.outlined.headers[name]),
            addresses=self.addresses,
            shared=shared,
            place=place,
            is_library=place.is_library,
        )


_LIBRARY = re.compile(r"/include/(cccl|cub|thrust|cuda/std|cooperative_groups)\b")


class Places:
    """The line of the user's source that an instruction belongs to.

    The kernel's own file is the home. Of the chain of places that an instruction was inlined
    into, or called from, the innermost one at home is the user's line.
    """

    def __init__(self, program: Program, kernel: str) -> None:
        self.files = program.files
        self.home = 0
        self.known: dict[tuple[Location, tuple[Location, ...]], tuple[str, int]] = {}

    def settle(self, linked: Linked) -> None:
        """Find the home: the outermost file of the kernel's first instruction that has a line."""
        for placed in linked.code:
            chain = self._chain(placed.instruction.location, placed.calls)
            if chain[-1].line:
                self.home = chain[-1].file
                return

    def __call__(self, placed: Placed) -> tuple[str, int]:
        key = (placed.instruction.location, placed.calls)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._find(*key)
        return found

    def is_library(self, placed: Placed) -> bool:
        """Whether an instruction was written in a header of CUDA's own libraries."""
        return _LIBRARY.search(self.files.get(placed.instruction.location.file, "")) is not None

    def _find(self, location: Location, calls: tuple[Location, ...]) -> tuple[str, int]:
        chain = self._chain(location, calls)
        best = next((at for at in chain if at.file == self.home and at.line), chain[-1])
        return self.files.get(best.file, ""), best.line

    @staticmethod
    def _chain(location: Location, calls: tuple[Location, ...]) -> list[Location]:
        chain: list[Location] = []
        for start in (location, *calls):
            at: Location | None = start
            while at is not None:
                chain.append(at)
                at = at.inlined_at
        return chain


@dataclass
class Loaded:
    """A program in the simulated device, with variables of its own.

    Attributes:
        variables: The bytes of each __device__ and __constant__ variable; write them at will.
    """

    program: Program
    variables: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._complete()

    def regions(self) -> list[Region]:
        """The variables as regions of global memory."""
        self._complete()
        return [
            Region(
                self.program.addresses[name], Buffer(name=name, data=data, read_only=const, constant=const)
            )
            for name, data in self.variables.items()
            if data.size
            for const in [self.program.variables[name].space == "const"]
        ]

    def _complete(self) -> None:
        for name, variable in list(self.program.variables.items()):
            if name not in self.variables:
                self.variables[name] = initial_bytes(variable, self.program.addresses)


def initial_bytes(variable: Variable, addresses: Mapping[str, int]) -> NDArray[np.uint8]:
    """A variable's contents when its module is loaded."""
    size = TYPE_BYTES[variable.type]
    given = bytearray()
    for element in variable.initial[: variable.size // size]:
        value = _initial_value(element, addresses)
        given += (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    data = np.zeros(variable.size, np.uint8)
    data[: len(given)] = given
    return data


def _initial_value(element: int | Symbol | Part, addresses: Mapping[str, int]) -> int:
    if isinstance(element, int):
        return element
    if isinstance(element, Symbol):
        return _address(element, addresses)
    shift = (element.mask & -element.mask).bit_length() - 1
    return (_address(element.symbol, addresses) & element.mask) >> max(0, shift)


def _address(symbol: Symbol, addresses: Mapping[str, int]) -> int:
    if symbol.name not in addresses:
        raise SimulationError(
            f"A variable is initialised with the address of {symbol.name!r}, which is neither a variable "
            "nor a function with a body in this file.\n"
            "Define it in the source that is compiled, or include the file that does."
        )
    return addresses[symbol.name] + symbol.offset


def pack_params(header: EntryHeader, params: Sequence[bytes]) -> bytes:
    """Parameters laid out one after the other, as `parameter_offsets` says."""
    offsets = parameter_offsets(header)
    if len(params) != len(header.params):
        raise SimulationError(
            f"The kernel {header.name} takes {len(header.params)} parameters; got {len(params)}.\n"
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

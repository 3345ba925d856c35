"""Kernels to look at: what a unit of compilation has for an architecture, or why it has nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from dotcu.compile import CompileOptions, ObjectCode, Resources, Source, Target, build_visible
from dotcu.compile.objects import PROBE
from dotcu.errors import DotcuError, EnvironmentFault, SourceError
from dotcu.inspection.code import ptx
from dotcu.inspection.code.places import Place, home_of
from dotcu.inspection.code.ptx import PtxLine
from dotcu.kernel.mangling import parameter_types, shown_name, spell
from dotcu.simulator import entry_headers

Dim = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, order=True)
class Shape:
    """How a kernel is launched, as far as occupancy asks. `str()` is as a user writes it.

    Attributes:
        smem_bytes: Dynamic shared memory per block.
        cluster: In blocks; None without clusters.
    """

    block: Dim
    smem_bytes: int = 0
    cluster: Dim | None = None

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    def __str__(self) -> str:
        sizes = list(self.block)
        while len(sizes) > 1 and sizes[-1] == 1:
            sizes.pop()
        parts = [f"block={sizes[0]}" if len(sizes) == 1 else f"block={tuple(sizes)}"]
        parts += [f"smem_bytes={self.smem_bytes}"] if self.smem_bytes else []
        parts += [f"cluster={self.cluster}"] if self.cluster else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class KernelCode:
    """A kernel, compiled for one architecture.

    Attributes:
        name: As the user writes it, template arguments included.
        symbol: In PTX and cubin.
        resources: None where there is PTX alone.
        text: The PTX of the whole unit.
        cubin: The machine code of the whole unit; None where there is PTX alone.
        files: What to call the files that PTX and cubin name.
        texts: The text of the source that was compiled, by what to call it.
        parameters: The parameters' C++ types; None where they are not known.
        shapes: The launches that are known of it.
        unit: What it was compiled in; None of code that was not compiled here.
    """

    name: str
    symbol: str
    arch: Target
    resources: Resources | None
    text: str
    cubin: bytes | None
    files: Mapping[str, str]
    texts: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[str, ...] | None = None
    shapes: tuple[Shape, ...] = ()
    unit: Unit | None = None

    @cached_property
    def ptx(self) -> tuple[PtxLine, ...]:
        """Its PTX, line by line, with that of the functions that it calls."""
        return ptx.lines_of(self.text, self.symbol, self.files)

    @cached_property
    def home(self) -> str:
        """The file that it is written in; empty where the PTX has no lines."""
        return home_of([line.chain for line in self.ptx if line.statements])

    @cached_property
    def place(self) -> Place | None:
        """Where it begins in its file; None where the PTX has no lines."""
        return next((line.chain[-1] for line in self.ptx if line.chain), None)

    @cached_property
    def takes_dynamic_smem(self) -> bool:
        """Whether it uses shared memory whose size its launch says."""
        return ptx.takes_dynamic_smem(self.text, self.ptx)

    @cached_property
    def launch_bounds(self) -> tuple[int, bool]:
        """The most threads that it may be launched with, 0 if not said; whether they are the only choice."""
        return ptx.max_threads(self.text, self.symbol)


@dataclass(frozen=True, kw_only=True)
class Failed:
    """What could not be compiled for one architecture.

    Attributes:
        names: The kernels that were to be in it.
        message: Why, as the compiler's messages go.
    """

    arch: Target
    names: tuple[str, ...]
    message: str


@dataclass(frozen=True, kw_only=True)
class Template:
    """A template of kernels of which no instantiation is known.

    Attributes:
        head: As the source declares it.
        example: How it would be instantiated: `scale[float32,256]`.
    """

    name: str
    head: str
    example: str

    @property
    def remedy(self) -> str:
        """What to type."""
        return f"type: --instantiate '{self.example}'"


class Unit(Protocol):
    """What is compiled together."""

    @property
    def source(self) -> Source: ...
    @property
    def options(self) -> CompileOptions: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    def build(self, target: Target) -> ObjectCode: ...


@dataclass(frozen=True, kw_only=True)
class TextUnit:
    """Kernels of a file that are compiled together, needing no torch."""

    source: Source
    options: CompileOptions
    names: tuple[str, ...]

    def build(self, target: Target) -> ObjectCode:
        """Compile for a target.

        Raises:
            SourceError: The source does not compile, or an instantiation is not possible.
        """
        return build_visible(self.source, options=self.options, target=target, names=self.names)


Shapes = Mapping[str, Sequence[Shape]]
"""The known launches of some kernels, by name."""


def compiled(
    unit: Unit, target: Target, shapes: Shapes, only: Sequence[str] | None = None
) -> tuple[KernelCode, ...] | Failed:
    """The kernels of a unit, compiled for a target.

    Args:
        only: The names of those that are wanted; None for all that the compiler sees.

    Raises:
        EnvironmentFault: There is no compiler, or none that may be used.
    """
    try:
        made = unit.build(target)
        entries = [symbol for symbol in entry_headers(made.ptx) if PROBE not in symbol]
    except EnvironmentFault:
        raise
    except DotcuError as error:
        return Failed(arch=target, names=tuple(only or unit.names), message=str(error))
    by_symbol = {symbol: name for name, symbol in made.lowered.items() if not name.startswith("&")}
    names = {symbol: by_symbol.get(symbol) or shown_name(symbol) for symbol in entries}
    return tuple(
        _code(unit, made, name, symbol, tuple(shapes.get(name, ())))
        for symbol, name in names.items()
        if only is None or name in only
    )


def _code(unit: Unit, made: ObjectCode, name: str, symbol: str, shapes: tuple[Shape, ...]) -> KernelCode:
    source = unit.source
    return KernelCode(
        name=name,
        symbol=symbol,
        arch=made.target,
        resources=made.resources.get(symbol),
        text=made.ptx,
        cubin=made.cubin,
        files=made.files,
        texts={source.display: source.text},
        parameters=_parameters(made, name),
        shapes=shapes,
        unit=unit,
    )


def _parameters(made: ObjectCode, name: str) -> tuple[str, ...] | None:
    probe = made.signatures.get(name)
    try:
        return None if probe is None else tuple(map(spell, parameter_types(probe)))
    except SourceError:
        return None

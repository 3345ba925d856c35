"""The kernels of a file, compiled and disassembled for some architectures, several at a time.

It needs no torch: a file of kernels can be inspected wherever there is a compiler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from dotcu import elf, tile_ir
from dotcu.compile import CompileOptions, Declaration, ObjectCode, Resources, Source, Target, build
from dotcu.compile.object_code import PROBE
from dotcu.compile.source.declarations import only_kernels
from dotcu.compile.tile import host
from dotcu.errors import ArgumentError, DotcuError, EnvironmentFault, SourceError, ToolchainError, UsageError
from dotcu.inspection import assembly
from dotcu.inspection.assembly import PtxLine, SassFunction
from dotcu.kernel.arguments.signature import parameter_types, shown_name, spell
from dotcu.kernel.declarations import (
    CXX_TYPES,
    PYTORCHS_TYPES,
    example_arguments,
    instance_name,
    require_argument_count,
    scan_declarations,
    split_arguments,
    template_head,
    with_headers,
)
from dotcu.tile_ir import TileFunction
from dotcu.tile_ir.module import SourceLocation

if TYPE_CHECKING:
    from dotcu.kernel.compiled import CompilationUnit

CompileUnit: TypeAlias = "FileUnit | CompilationUnit"
"""Kernels that are compiled together."""

_MAX_AT_ONCE = 8
_INSTANTIATION = re.compile(r"\s*([A-Za-z_][\w:]*)\s*\[(.*)\]\s*", re.DOTALL)


@dataclass(frozen=True, kw_only=True, order=True)
class LaunchShape:
    """The part of a launch configuration that occupancy depends on. `str()` is as a user writes it."""

    block: tuple[int, int, int]
    smem_bytes: int = 0
    cluster: tuple[int, int, int] | None = None

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    def __str__(self) -> str:
        x, y, z = self.block
        parts = [f"block={x if y == z == 1 else (x, y) if z == 1 else self.block}"]
        parts += [f"smem_bytes={self.smem_bytes}"] if self.smem_bytes else []
        parts += [f"cluster={self.cluster}"] if self.cluster else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class KernelCode:
    """A kernel, compiled for one architecture.

    Attributes:
        name: As the user writes it, template arguments included.
        resources: None if there is only PTX.
        ptx_text: The PTX of the whole unit, as `cubin` is its machine code.
        files: The names to show for the files that PTX and cubin name.
        texts: The source that was compiled, by the name to show.
        parameters: The parameters' C++ types; None if they are not known.
        shapes: Its known launches.
        unit: None of code that was not compiled here.
        tile: The Tile IR of a tile kernel; None of another, which has PTX.
    """

    name: str
    symbol: str
    arch: Target
    resources: Resources | None
    ptx_text: str
    cubin: bytes | None
    files: Mapping[str, str]
    texts: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[str, ...] | None = None
    shapes: tuple[LaunchShape, ...] = ()
    unit: CompileUnit | None = None
    tile: TileFunction | None = field(default=None, repr=False)

    @property
    def host_code(self) -> str:
        """The processor that the host code of a tile kernel's cubin is for; "" without such code."""
        return elf.machine_within(self.cubin, elf.HOST_CODE) if self.tile is not None and self.cubin else ""

    @property
    def language(self) -> str:
        """The name of the code that machine code was made of: "PTX", or "Tile IR"."""
        return "PTX" if self.tile is None else "Tile IR"

    @cached_property
    def ptx(self) -> tuple[PtxLine, ...]:
        """Its PTX, line by line, with that of the functions that it calls; of a tile kernel its Tile IR."""
        if self.tile is not None:
            return assembly.tile_lines(self.tile, self.files)
        return assembly.ptx_lines(self.ptx_text, self.symbol, self.files)

    @cached_property
    def file(self) -> str:
        """The outermost file of its first instruction that has a line; empty if the PTX has no lines."""
        return next((line.chain[-1].file for line in self.ptx if line.statements and line.chain), "")

    @cached_property
    def location(self) -> SourceLocation | None:
        """The line where it begins in its file; None if the PTX has no lines."""
        return next((line.chain[-1] for line in self.ptx if line.chain), None)

    @cached_property
    def takes_dynamic_smem(self) -> bool:
        """True if it uses shared memory whose size its launch sets."""
        return self.tile is None and assembly.takes_dynamic_smem(self.ptx_text, self.ptx)

    @cached_property
    def launch_bounds(self) -> tuple[int, bool]:
        """The most threads that it may be launched with, 0 if not limited; whether it needs exactly that."""
        if self.tile is not None:
            return self.resources.threads if self.resources else 0, True
        return assembly.max_threads(self.ptx_text, self.symbol)


@dataclass(frozen=True, kw_only=True)
class FailedBuild:
    """Kernels that could not be compiled for one architecture, and the compiler's messages."""

    arch: Target
    names: tuple[str, ...]
    message: str


@dataclass(frozen=True, kw_only=True)
class FileUnit:
    """Kernels of a file that are compiled together, without torch."""

    source: Source
    options: CompileOptions
    names: tuple[str, ...]

    def build(self, target: Target) -> ObjectCode:
        return build(self.source, options=self.options, target=target, names=self.names, visible=True)


def kernels_in_source(
    source: Source, options: CompileOptions, instantiate: Sequence[str] = ()
) -> tuple[FileUnit, list[FileUnit], tuple[Declaration, ...]]:
    """Return the plain kernels of a source, each instantiation, and the other templates.

    Code of the plain kernels also has those that only the compiler sees; that of an instantiation such as
    `scale[float32,256]` has the plain kernels again.

    Raises:
        UsageError: `instantiate` names no template of the source, gives other arguments, or is malformed.
    """
    declared = scan_declarations(source, options)
    types = PYTORCHS_TYPES if declared.is_pytorchs else CXX_TYPES
    kernels = {kernel.name: kernel for kernel in declared.kernels}
    templates = {name: kernel for name, kernel in kernels.items() if kernel.template_parameters}
    asked = [_instantiation(text, templates, source.name, types) for text in instantiate]
    plain = tuple(name for name in kernels if name not in templates)
    instances = [
        FileUnit(
            source=with_headers(source, arguments),
            options=options,
            names=(instance_name(declaration, arguments),),
        )
        for declaration, arguments in asked
    ]
    instantiated = {declaration.name for declaration, _ in asked}
    others = tuple(one for name, one in templates.items() if name not in instantiated)
    return FileUnit(source=source, options=options, names=plain), instances, others


def instantiation(template: Declaration) -> str:
    """Return an example of an instantiation, as `--instantiate` takes it: `scale[float32,256]`."""
    return f"{template.name}[{','.join(example_arguments(template))}]"


def _instantiation(
    text: str, templates: Mapping[str, Declaration], file: str, types: Mapping[str, str]
) -> tuple[Declaration, tuple[str, ...]]:
    match = _INSTANTIATION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"instantiate={text!r} names no template with its arguments.\n"
            "They stand in brackets, a dtype for its C++ type: scale[float32,256]"
        )
    name = match[1]
    named = [each for each in templates if each == name or each.rsplit("::")[-1] == name]
    if len(named) != 1:
        has = ", ".join(map(template_head, templates.values())) or "none"
        raise UsageError(
            f"instantiate={text!r}: {file} has {len(named) or 'no'} templates of kernels of that name.\n"
            f"It has {has}.\nName one of them in full, such as {next(iter(templates), 'scale')}[float32]."
        )
    declaration = templates[named[0]]
    arguments = tuple(cxx_argument(argument, types) for argument in split_arguments(match[2]))
    try:
        require_argument_count(declaration, arguments)
    except ArgumentError as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{reason}\nIt is declared: {template_head(declaration)}.\n"
            f"Type: --instantiate '{instantiation(declaration)}'"
        ) from error
    return declaration, arguments


def cxx_argument(argument: str, types: Mapping[str, str] = CXX_TYPES) -> str:
    """Return a template argument in C++: a dtype's name becomes its type, True becomes true."""
    plain = argument.removeprefix("torch.").strip("\"'")
    return {"True": "true", "False": "false"}.get(plain) or types.get(plain, plain)


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """Kernels of a unit to build for one architecture: those in `only`, or all that the compiler sees."""

    unit: CompileUnit
    target: Target
    shapes: Mapping[str, Sequence[LaunchShape]] = field(default_factory=dict)
    only: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """Kernels with their machine code, what failed, and notes."""

    kernels: tuple[tuple[KernelCode, SassFunction | None], ...] = ()
    failed: tuple[FailedBuild, ...] = ()
    notes: tuple[str, ...] = ()


def build_all(requests: Sequence[BuildRequest]) -> BuildResult:
    """Compile and disassemble kernels, in the order of the requests."""
    with ThreadPoolExecutor(max_workers=min(_MAX_AT_ONCE, os.cpu_count() or 1)) as pool:
        try:
            return _joined(list(pool.map(_build, requests)))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # an interrupt need not wait for what has not begun
            raise


def _joined(results: Sequence[BuildResult]) -> BuildResult:
    return BuildResult(
        kernels=tuple(kernel for one in results for kernel in one.kernels),
        failed=tuple(failure for one in results for failure in one.failed),
        notes=tuple(dict.fromkeys(note for one in results for note in one.notes)),
    )


def _build(request: BuildRequest) -> BuildResult:
    """Build the kernels of a request together; where that fails, each without the others of its file."""
    together = compile_kernels(request)
    if not isinstance(together, FailedBuild):
        return _disassembled(together)
    rest = compile_kernels(replace(request, only=None), kept=())
    if isinstance(rest, FailedBuild):  # with no kernel in it: the fault is in none of them
        return BuildResult(failed=(together,))
    names = request.only or request.unit.names
    apart = [compile_kernels(replace(request, only=(name,)), kept=(name,)) for name in names]
    failed = tuple(each for each in apart if isinstance(each, FailedBuild))
    if not request.only:
        apart.append(rest)
        failed = failed or (together,)
    compiled = [each for each in apart if not isinstance(each, FailedBuild)]
    return _joined([*map(_disassembled, compiled), BuildResult(failed=failed)])


def compile_kernels(
    request: BuildRequest, kept: tuple[str, ...] | None = None
) -> tuple[KernelCode, ...] | FailedBuild:
    """Compile the kernels of a unit for a target; with `kept`, without the other kernels of the file.

    Raises:
        EnvironmentFault: There is no compiler, or none that may be used.
    """
    unit, target = request.unit, request.target
    try:
        if kept is None:
            code = unit.build(target)
        else:
            source = only_kernels(unit.source, unit.options.defined, kept)
            code = build(source, options=unit.options, target=target, names=kept, visible=True)
        entries = [symbol for symbol in assembly.ptx_module(code.ptx).entries if PROBE not in symbol]
        tiles = tile_ir.read(code.tile_ir).functions if code.tile_ir else {}
    except EnvironmentFault:
        raise
    except DotcuError as error:
        return FailedBuild(arch=target, names=request.only or kept or unit.names, message=str(error))
    by_symbol = {symbol: name for name, symbol in code.lowered.items() if not name.startswith("&")}
    names = {symbol: by_symbol.get(symbol) or shown_name(symbol) for symbol in (*entries, *tiles)}
    of_tiles = code.tile_cubins.get(host())
    return tuple(
        KernelCode(
            name=name,
            symbol=symbol,
            arch=code.target,
            resources=code.resources.get(symbol),
            ptx_text=code.ptx,
            cubin=of_tiles if symbol in tiles else code.cubin,
            files=code.files,
            texts={unit.source.display: unit.source.text},
            parameters=_parameters(code.signatures.get(name)),
            shapes=() if symbol in tiles else tuple(request.shapes.get(name, ())),
            unit=unit,
            tile=tiles.get(symbol),
        )
        for symbol, name in names.items()
        if request.only is None or name in request.only
    )


def _parameters(probe: str | None) -> tuple[str, ...] | None:
    try:
        return None if probe is None else tuple(map(spell, parameter_types(probe)))
    except SourceError:
        return None


def _disassembled(codes: tuple[KernelCode, ...]) -> BuildResult:
    cubins = dict.fromkeys(code.cubin for code in codes if code.cubin is not None)
    functions: dict[str, SassFunction] = {}
    notes: tuple[str, ...] = ()
    for cubin in cubins:
        try:
            functions |= assembly.disassemble(cubin, codes[0].files)
        except (EnvironmentFault, UsageError, ToolchainError) as error:
            notes = (str(error),)
    kernels: list[tuple[KernelCode, SassFunction | None]] = []
    for code in codes:
        function = functions.get(code.symbol)
        unknown = {line.number for line in code.ptx if line.statements and not line.chain}
        kernels.append((code, function and assembly.without_guessed_lines(function, unknown)))
    return BuildResult(kernels=tuple(kernels), notes=notes)

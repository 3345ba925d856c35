"""Units of compilation: kernels that are compiled together, and their code for each target.

The plain kernels of a file are one unit, each instantiation of a template is one. A unit is
compiled when something first needs it for a target, once, however many threads ask.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from dotcu import compile as compiler
from dotcu import settings, telemetry
from dotcu.compile import CompileOptions, Declaration, ObjectCode, Source, Target
from dotcu.compile.build import build_of
from dotcu.compile.object_code import is_kernel
from dotcu.compile.plan import BuildInputs
from dotcu.compile.source.source import PREBUILT
from dotcu.errors import (
    ArgumentError,
    CompileError,
    DotcuError,
    JitDisabled,
    KernelNotFound,
    LaunchError,
    SourceError,
    ToolchainError,
)
from dotcu.files import is_folder
from dotcu.kernel import cuda
from dotcu.kernel.arguments.pack import MapUse, PackingPlan, packing_plan
from dotcu.kernel.arguments.signature import TypeLayout, qualified_name, read_parameters
from dotcu.kernel.arguments.tensor_map import BYTES, MAP_ALIGNMENT
from dotcu.kernel.arguments.values import Mismatch
from dotcu.kernel.config import KernelNeeds
from dotcu.kernel.declarations import CXX_TYPES, not_found, overload_key, split_arguments
from dotcu.kernel.ptx_source import object_code, outline, plan_packing
from dotcu.locks import ForkSafeLock
from dotcu.ptx.instructions import Variable as PtxVariable
from dotcu.ptx.module import PtxModule, parse_module

if TYPE_CHECKING:
    from dotcu.ptx.debug_info import TypeRow
    from dotcu.simulator import Program
    from dotcu.simulator.tile.launch import TileProgram
    from dotcu.tile_ir import Promise, TileFunction, TileModule

CodeTarget = tuple[Target, bool]
"""A target, and whether the simulator runs the code."""

QUALIFIED_NAME = re.compile(r"(?:[A-Za-z_]\w*::)*[A-Za-z_]\w*")


class CompiledUnit:
    """A unit's object code for one target, and what is loaded of it."""

    def __init__(self, unit: CompilationUnit, object_code: ObjectCode, code_target: CodeTarget) -> None:
        self.unit = unit
        self.object = object_code
        self._target = code_target
        self._claimed: set[str] = set()
        self._by_name: dict[str, ObjectCode] = {}
        self._lock = ForkSafeLock()
        self._plans: dict[str, PackingPlan] = {}
        self._rows: dict[str, Sequence[TypeRow]] = {}
        self._needs: dict[str, KernelNeeds] = {}
        self._program: Program | None = None
        self._tile_program: TileProgram | None = None
        self._libraries: dict[bool, cuda.Library] = {}

    @cached_property
    def outline(self) -> PtxModule:
        """The headers and variables of the PTX."""
        if self.unit.source.is_compiled:
            return outline(self.unit.source)
        with telemetry.during("ptx"):
            return parse_module(self.object.ptx)

    @cached_property
    def tiles(self) -> TileModule | None:
        """The tile kernels; None if there is none."""
        if not self.object.tile_ir:
            return None
        from dotcu.tile_ir import read  # few files have tile kernels

        with telemetry.during("ptx"):
            return read(self.object.tile_ir)

    def is_tile(self, name: str) -> bool:
        """Return whether a kernel is a tile kernel, which the code of tiles holds and PTX does not."""
        return self.tiles is not None and self.symbol(name) in self.tiles.functions

    def tile_function(self, name: str) -> TileFunction:
        """Return the Tile IR of a tile kernel."""
        assert self.tiles is not None
        return self.tiles.functions[self.symbol(name)]

    def symbol(self, name: str) -> str:
        """Return the symbol of a kernel.

        Raises:
            KernelNotFound: The code has none; the preprocessor left it out, for example.
            CompileError: Another function, such as `exp`, has its name.
        """
        symbol = self.object.lowered.get(name) or self._about(name).lowered.get(name)
        if symbol is None:
            from dotcu.compile.diagnostics import is_overloaded  # no launch needs it

            try:
                self.compile_one(name)
            except DotcuError as error:
                if isinstance(error, CompileError) and is_overloaded(error):
                    raise
            raise KernelNotFound(
                f"{self.unit.source.display} declares {name}, but the compiler does not see it for "
                f"{self.object.target}.\nIs it inside an #if? Pass the macro: load(..., define={{...}})."
            )
        return symbol

    def compile_one(self, name: str) -> ObjectCode:
        """Compile for one more name, of a kernel or `&` and a variable, to learn about it.

        The code of a wheel may know it.
        """
        code = self.object if name in self.object.lowered else self._by_name.get(name)
        if code is None and self.unit.source.is_compiled:
            raise KernelNotFound(not_found(self.unit.source.name, name, "kernel", self.unit.names))
        if code is None:
            target, simulated = self._target
            source, options = self.unit.source, self.unit.options
            code = self._by_name[name] = compiler.build(
                source, options=options, target=target, names=(name,), simulated=simulated
            )
        return code

    def _about(self, name: str) -> ObjectCode:
        """Return the code that has a name: this, or that of a name which only the compiler sees."""
        known = name in self.object.lowered or name not in self.unit.variables.late
        return self.object if known else self.compile_one(name)

    def find_kernel(self, name: str) -> Declaration | None:
        """Ask the compiler for a kernel, or a template of kernels, that the scan of the text did not find."""
        from dotcu.compile.diagnostics import is_unchosen  # no launch needs it

        if not QUALIFIED_NAME.fullmatch(name):
            return None
        try:
            symbol = self.compile_one(name).lowered[name]
        except KernelNotFound:
            return None
        except CompileError as error:
            return Declaration(name, ("...",), (), 0) if is_unchosen(error) else None
        is_tile = self.tiles is not None and symbol in self.tiles.functions
        return Declaration(name, (), (), 0, is_tile) if is_tile or symbol in self.outline.entries else None

    def plan(self, name: str) -> PackingPlan:
        """Return how the arguments of a kernel are packed."""
        plan = self._plans.get(name)
        if plan is None:
            with telemetry.during("ptx"):
                if self.unit.source.is_compiled:
                    return self._plans.setdefault(name, plan_packing(self.outline, name, self.symbol(name)))
                params = self._params(name)
                parameters = read_parameters(
                    overload_key(name),
                    probe=self._about(name).signatures[name],
                    names=self.unit.parameter_names.get(name, ()),
                    entry=params,
                )
                maps = [
                    index
                    for index, param in enumerate(params)
                    if param.size == BYTES
                    and param.align >= MAP_ALIGNMENT
                    and parameters[index].ctype.kind == "named"
                ]
                uses: Sequence[MapUse] = ()
                if maps:
                    from dotcu.kernel.ptx_uses import map_uses  # only tensor maps need it

                    uses = map_uses(self.outline, self.symbol(name), [params[index].name for index in maps])
                plan = packing_plan(
                    overload_key(name),
                    parameters,
                    dict(zip(maps, uses, strict=True)),
                    partial(self._is_written, name),
                    partial(self._layout, name),
                    partial(self._stores_through_maps, name),
                    self._promises(name),
                )
                self._plans[name] = plan
        return plan

    def _promises(self, name: str) -> Sequence[Promise]:
        if not self.is_tile(name):
            return ()
        from dotcu.tile_ir import promises

        return promises(self.tile_function(name))

    def _params(self, name: str) -> Sequence[PtxVariable]:
        if not self.is_tile(name):
            return self.outline.entries[self.symbol(name)].params
        rows = []
        for number, of in enumerate(self.tile_function(name).parameters):
            kind = "u" if of.is_pointer else of.element[0].replace("i", "u").replace("b", "f")
            size, label = of.itemsize, f"{name}_param_{number}"
            rows.append(PtxVariable(label, "param", f".{kind}{8 * size}", size, size))
        return rows

    def _is_written(self, name: str, index: int) -> bool:
        if self.is_tile(name):
            return True
        from dotcu.kernel.ptx_uses import parameter_is_written  # only refusals ask

        symbol = self.symbol(name)
        return parameter_is_written(self.outline, symbol, self.outline.entries[symbol].params[index].name)

    def _layout(self, name: str, index: int) -> TypeLayout:
        """Return the type of a kernel's parameter: as a wheel says, else from a compile for debugging."""
        rows = self.object.layouts.get(name) or self._rows.get(name)
        if rows is None:
            target, simulated = self._target
            try:
                found = compiler.parameter_layouts(
                    self.unit.source, self.unit.options, target, (name,), simulated=simulated
                )
                rows = self._rows[name] = found[name]
            except DotcuError as error:
                reason = str(error).partition("\n")[0]
                raise Mismatch(
                    f"values for the members of a struct, whose places a compile has to tell: {reason}",
                    "Pass its bytes, or a ctypes.Structure without tensors.",
                ) from error
        return TypeLayout(rows, rows[0]["members"][index][3])

    def _stores_through_maps(self, name: str, index: int) -> bool:
        from dotcu.kernel.ptx_uses import stores_through_maps  # only tensor maps in memory need it

        symbol = self.symbol(name)
        return stores_through_maps(self.outline, symbol, self.outline.entries[symbol].params[index].name)

    def needs(self, name: str) -> KernelNeeds:
        """Return the resources that a kernel takes of a multiprocessor."""
        needs = self._needs.get(name)
        if needs is None and self.is_tile(name):  # its compiler has chosen what fits
            needs = self._needs[name] = KernelNeeds()
        if needs is None:
            with telemetry.during("ptx"):
                symbol = self.symbol(name)
                if symbol not in self.outline.entries:
                    raise KernelNotFound(
                        f"{name} is declared and has no body, so there is no code of it.\n"
                        "Define it in this source, or in a header that it includes."
                    )
                resources, header = self.object.resources.get(symbol), self.outline.entries[symbol]
                static = resources.smem_bytes if resources else self.outline.static_smem_bytes(symbol)
                threads = header.required_threads or header.max_threads
                x, y, z = (*header.cluster, 1, 1, 1)[:3]
                needs = self._needs[name] = KernelNeeds(
                    static_smem_bytes=static,
                    registers=resources.registers if resources else 0,
                    barriers=resources.barriers if resources else 0,
                    max_threads=math.prod(threads) if threads else 0,
                    cluster=(x, y, z) if header.cluster else None,
                )
        return needs

    def claim(self, kernel: str) -> None:
        """Make sure that no other unit has a copy of a variable that this kernel shares with it."""
        if kernel in self._claimed or self.is_tile(kernel):
            return
        with telemetry.during("ptx"):
            names = self._device_variables
            used = {}
            if names:
                from dotcu.kernel.ptx_uses import variable_writes

                used = variable_writes(self.outline, self.symbol(kernel), tuple(names))
        shown = {names[symbol]: writes for symbol, writes in used.items()}
        self.unit.variables.claim(self._target, self.unit, kernel, shown)
        self._claimed.add(kernel)

    @cached_property
    def _device_variables(self) -> dict[str, str]:
        """The names of the variables in global memory by symbol; not of const ones and string literals.

        NVRTC names the array of an `assert`'s or a function's `__PRETTY_FUNCTION__` `__unnamed_N`.
        """
        variables = self.unit.variables
        declared = {self.variable_symbol(name): name for name in variables.names}
        names = {
            symbol: declared.get(symbol, symbol)
            for symbol, variable in self.outline.module_variables.items()
            if variable.space == "global" and not symbol.startswith(("$", "__unnamed_"))
        }
        return {symbol: name for symbol, name in names.items() if name not in variables.constants}

    @property
    def variable_names(self) -> Iterator[str]:
        """The names of the variables in the code that have one outside of it."""
        for symbol in self.outline.module_variables:
            with suppress(SourceError):  # a variable of a function
                name, _ = qualified_name(symbol)
                if QUALIFIED_NAME.fullmatch(name) and not name.startswith("__unnamed_"):
                    yield name

    def variable_symbol(self, name: str) -> str | None:
        """Return the symbol of a variable; None if the compiler does not see it."""
        return self._about("&" + name).lowered.get("&" + name)

    def variable_bytes(self, name: str) -> int | None:
        """Return the size of a variable in bytes; None if the compiler does not see it.

        Raises:
            ArgumentError: It is one of tile code.
        """
        symbol, about = self.variable_symbol(name), self._about("&" + name)
        if symbol is None:
            return None
        outlined = self.outline if about is self.object else parse_module(about.ptx)
        if symbol not in outlined.module_variables:
            raise ArgumentError(
                f"{name} of {self.unit.source.name} is a __tile__ variable, and those are not written from "
                "Python: __constant__ and __device__ variables are.\n"
                "Pass its value to the kernel: a number as it is, an array as a tensor for a pointer."
            )
        return outlined.module_variables[symbol].size

    def program(self) -> Program:
        """Return the code in the simulator, with its variables as they were last written."""
        with self._lock:
            if self._program is None:
                from dotcu.simulator import Program

                source = self.unit.source
                texts = {source.display: source.text} if source.path is None else {}
                with telemetry.during("ptx"):
                    program = Program(self.outline, self.object.files, texts)
                for symbol, data in self._initial().items():
                    program.write(symbol, data)
                self._program = program
            return self._program

    def tile_program(self) -> TileProgram:
        """Return the tile kernels in the simulator."""
        with self._lock:
            if self._tile_program is None:
                from dotcu.simulator.tile.launch import TileProgram

                source = self.unit.source
                texts = {source.display: source.text} if source.path is None else {}
                assert self.tiles is not None
                self._tile_program = TileProgram(self.tiles, self.object.files, texts)
            return self._tile_program

    def library(self, kernel: str) -> cuda.Library:
        """Return the code in the driver that has a kernel; this loads nothing onto a GPU yet."""
        is_tile = self.is_tile(kernel)
        with self._lock:
            if is_tile not in self._libraries:
                names = {symbol: name for name, symbol in self.object.lowered.items()}
                code = self._tile_cubin() if is_tile else self.object.cubin
                self._libraries[is_tile] = cuda.Library(
                    self.unit.source.name,
                    self.object.ptx.encode() + b"\0" if code is None else code,
                    dict if is_tile else self._initial,
                    names,
                    is_tile=is_tile,
                )
            return self._libraries[is_tile]

    def _tile_cubin(self) -> bytes:
        """Return the machine code of the tile kernels, whose host code is this machine's."""
        from dotcu.compile import tile

        cubins, name = self.object.tile_cubins, self.unit.source.name
        cubin = cubins.get(tile.host())
        if cubin is None:
            made_for = ", ".join(cubins) or "no host"
            raise LaunchError(
                f"The tile kernels of {name} are compiled for hosts of {made_for}, and this machine is "
                f"{tile.host()}.\nTheir machine code holds host code of one processor.\n"
                "Build the wheel again with a dotcu that has tileiras: dotcu build"
            )
        tile.require_loadable(cubin, name)
        return cubin

    def _initial(self) -> dict[str, bytes]:
        """Return the bytes that were written to the variables so far, by symbol."""
        written = {self.variable_symbol(name): data for name, data in self.unit.variables.contents.items()}
        return {symbol: data for symbol, data in written.items() if symbol in self.outline.module_variables}

    def write(self, name: str, data: bytes) -> None:
        """Write a variable in every copy that is loaded."""
        symbol = self.variable_symbol(name)
        if symbol is None or symbol not in self.outline.module_variables:
            return
        with self._lock:
            for loaded in (self._program, self._libraries.get(False)):
                if loaded is not None:
                    loaded.write(symbol, data)


class CompilationUnit:
    """Kernels of one source that are compiled together, by their name expressions.

    Attributes:
        is_tile: The source is written in CUDA Tile C++, also where the kernels are ordinary ones.
        is_plain: It has the source's kernels that are no templates, those that macros make among them.
    """

    def __init__(
        self,
        source: Source,
        options: CompileOptions,
        names: Sequence[str],
        parameter_names: Mapping[str, Sequence[str]],
        variables: ModuleVariables,
        *,
        is_tile: bool = False,
        is_plain: bool = False,
    ) -> None:
        self.source = source
        self.is_tile = is_tile
        self.is_plain = is_plain
        self.options = options
        self.names = tuple(names)
        self.parameter_names = parameter_names
        self.variables = variables
        self._lock = ForkSafeLock()
        self._codes: dict[CodeTarget, CompiledUnit] = {}
        self._on_gpu: dict[int, CompiledUnit | tuple[str, ...]] = {}

    @property
    def late(self) -> tuple[str, ...]:
        """The names that only the compiler knows, of its kernels and of `&variables`."""
        return tuple(sorted(one for one in self.variables.late if self.is_plain or not is_kernel(one)))

    def code(self, target: Target, *, simulated: bool = False) -> CompiledUnit:
        """Return the code for a target, perhaps in the simulator: that of a wheel, else compiled once."""
        code = self._codes.get((target, simulated))
        if code is None:
            with self._lock:
                code = self._codes.get((target, simulated))
                if code is None:
                    code = CompiledUnit(self, self._object(target, simulated), (target, simulated))
                    self._codes[target, simulated] = code
        return code

    def _object(self, target: Target, simulated: bool) -> ObjectCode:
        if self.source.is_compiled:
            return object_code(self.source, target, simulated=simulated)
        found: ObjectCode | tuple[str, ...] = ()
        if simulated or target.kind == "sm":
            driver = None if simulated else compiler.driver.version()
            found = self._find_prebuilt(
                (target.major, target.minor), driver, simulated=simulated, assembled=not simulated
            )
        if isinstance(found, ObjectCode):
            return found
        with _adding_reasons(found):
            return self.build(target, simulated=simulated)

    def on_gpu(self, index: int) -> CompiledUnit:
        """Return the code for a GPU of this machine."""
        found = self._on_gpu.get(index)
        if found is None and self.source.is_compiled:
            found = self._on_gpu[index] = self.code(Target("sm", *cuda.capability(index)))
        if found is None:
            if self.is_tile:
                from dotcu.compile import tile

                tile.require_driver()
            code = self._find_prebuilt(cuda.capability(index), compiler.driver.version())
            if isinstance(code, ObjectCode):
                key = code.target, False
                with self._lock:
                    found = self._codes.setdefault(key, CompiledUnit(self, code, key))
            else:
                found = code
            self._on_gpu[index] = found
        if isinstance(found, CompiledUnit):
            return found
        with _adding_reasons(found):
            target = target_of(index, is_tile=self.is_tile)
        return self.code(target)

    def _find_prebuilt(
        self, capability: tuple[int, int], driver: tuple[int, int] | None, **more: bool
    ) -> ObjectCode | tuple[str, ...]:
        path = self.source.path
        if path is None or not is_folder(path.parent / PREBUILT):
            return ()
        from dotcu.compile import prebuilt

        return prebuilt.find_prebuilt(
            self.source, self.options, self.names, capability=capability, driver=driver, **more
        )

    def pending(self, target: Target, *, simulated: bool) -> BuildInputs | None:
        """Return the build that code for a target would begin with; None if a wheel or this unit has it."""
        if (target, simulated) in self._codes or not self.names or self.source.is_compiled:
            return None
        driver = None if simulated else compiler.driver.version()
        found = self._find_prebuilt((target.major, target.minor), driver, simulated=simulated)
        return None if isinstance(found, ObjectCode) else self.inputs(target, simulated=simulated)

    def inputs(self, target: Target, *, simulated: bool = False) -> BuildInputs:
        """Return what `build` compiles for a target."""
        names = (*self.names, *("&" + name for name in self.variables.names))
        return BuildInputs(
            source=self.source, options=self.options, target=target, names=names, simulated=simulated
        )

    def codes(self) -> tuple[CompiledUnit, ...]:
        """Return all code there is so far."""
        with self._lock:
            return tuple(self._codes.values())

    def build(self, target: Target, *, simulated: bool = False) -> ObjectCode:
        """Compile, leaving out plain names that the preprocessor has hidden from the compiler."""
        if self.source.is_compiled:
            return object_code(self.source, target, simulated=simulated)
        try:
            return build_of(self.inputs(target, simulated=simulated), visible=True)
        except JitDisabled as error:
            others = ", ".join(compiler.cache.targets_of(self.source.name))
            if others:
                error.args = (f"{error}\nThe caches have code of {self.source.name} for {others}.",)
            raise


@contextmanager
def _adding_reasons(reasons: Sequence[str]) -> Iterator[None]:
    """Add to the refusal to compile why no prebuilt code fits."""
    try:
        yield
    except (JitDisabled, ToolchainError, LaunchError, SourceError) as error:
        if reasons:
            listed = "\n    ".join(["Prebuilt code in a wheel cannot be used:", *reasons])
            error.args = (f"{error}\n{listed}", *error.args[1:])
        raise


_targets: dict[tuple[int, bool], tuple[settings.Settings, Target]] = {}


def target_of(index: int, *, is_tile: bool = False) -> Target:
    """Return the target to compile for on a GPU, by the compiler of tile kernels or of others."""
    now, (asked, target) = settings.current(), _targets.get((index, is_tile), (None, None))
    if target is None or asked is not now:
        if is_tile:
            from dotcu.compile.tile import target_of_gpu as native
        else:
            native = compiler.toolchain.target_of_gpu
        with telemetry.during("build"):
            chosen = native(cuda.capability(index))
        if isinstance(chosen, compiler.Rejected):
            raise LaunchError(f"Nothing can be compiled for cuda:{index}. {chosen}")
        target = chosen
        _targets[index, is_tile] = now, target
    return target


def gpu_target(index: int) -> Target:
    """Return the target of machine code for a GPU, also where nothing here can compile it."""
    try:
        return target_of(index)
    except (LaunchError, ToolchainError):
        return Target("sm", *cuda.capability(index))


@dataclass
class ModuleVariables:
    """The variables of a module, which all its units share.

    Attributes:
        file: The source's name, for messages.
        names: Those that the scan of the text finds.
        constants: Those of them that no kernel writes.
        contents: The bytes that were written to them so far, by name.
        late: Names that only the compiler knows, of kernels and `&variables`.
    """

    file: str
    names: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    contents: dict[str, bytes] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    _users: dict[tuple[str, object], list[tuple[object, str, bool]]] = field(default_factory=dict)

    def claim(self, target: object, unit: object, kernel: str, used: Mapping[str, bool]) -> None:
        """Note that a kernel uses variables; refuse if one that is written has users in another unit too.

        Args:
            used: For each variable, whether the kernel may write it.
        """
        for variable, writes in used.items():
            users = self._users.get((variable, target), [])
            if any(other is not unit and (writes or other_writes) for other, _, other_writes in users):
                names = list(dict.fromkeys(name for _, name, _ in users))
                raise SourceError(
                    f"{self.file}: {kernel} would get its own copy of the __device__ variable {variable}, "
                    f"which {', '.join(names)} already uses: what one writes, the other would not see.\n"
                    "Kernels that share a variable are compiled together: name the instantiations when you "
                    "load.\n"
                    f"Type: dotcu.load(..., instantiate={{{_instantiate_text([*names, kernel])}}})"
                )
        for variable, writes in used.items():
            self._users.setdefault((variable, target), []).append((unit, kernel, writes))


def _instantiate_text(kernels: Sequence[str]) -> str:
    """Return the instantiations among some kernels, as `instantiate` takes them."""
    python = {"true": "True", "false": "False"}
    python |= {spelling: f"torch.{name}" for name, spelling in CXX_TYPES.items()}
    rows: dict[str, list[str]] = {}
    for kernel in kernels:
        name, opened, rest = kernel.partition("<")
        if opened:
            arguments = [
                python.get(text) or (text if text.lstrip("-").isdigit() else f'"{text}"')
                for text in split_arguments(rest[:-1])
            ]
            row = f"({', '.join(arguments)}{',' if len(arguments) == 1 else ''})"
            rows.setdefault(name, []).append(row)
    return ", ".join(f'"{name}": [{", ".join(found)}]' for name, found in rows.items())

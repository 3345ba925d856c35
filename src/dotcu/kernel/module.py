"""A module, which is a source of kernels, and its kernels: objects to call, with attributes and occupancy."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from dotcu import settings
from dotcu.compile import CompileOptions, Declaration, ObjectCode, Source, Target
from dotcu.compile.include_graph import include_graph, system_headers
from dotcu.compile.source.declarations import overload
from dotcu.compile.source.source import PREBUILT
from dotcu.errors import ArgumentError, DotcuError, KernelNotFound, LaunchConfigError, SourceError, UsageError
from dotcu.files import is_folder
from dotcu.kernel import cuda, ptx_source
from dotcu.kernel.arguments.memory import memory_fault
from dotcu.kernel.arguments.signature import qualified_name
from dotcu.kernel.arguments.values import describe
from dotcu.kernel.compiled import QUALIFIED_NAME, CompilationUnit, CompiledUnit, ModuleVariables, gpu_target
from dotcu.kernel.config import (
    MAX_THREADS_PER_BLOCK,
    BlockConfig,
    KernelNeeds,
    Occupancy,
    limits,
    read_block,
    read_config,
    refuse_missing_block,
    refuse_missing_grid,
    refuse_shape,
    resident_blocks,
)
from dotcu.kernel.declarations import (
    CXX_TYPES,
    PYTORCHS_TYPES,
    instance_name,
    is_unknown,
    kernel_access,
    match_name,
    not_found,
    overload_key,
    require_argument_count,
    scan_declarations,
    template_example,
    template_head,
    template_usage,
    with_headers,
)
from dotcu.kernel.faults import require_own_cuda
from dotcu.kernel.launch import (
    DeviceLike,
    GpuDevice,
    LaunchPlans,
    announce,
    default_device,
    kernel_listeners,
    launch,
)
from dotcu.kernel.launch_policy import (
    LaunchPolicy,
    current_scope,
    refuse_captured_write,
    refuse_compiled,
    refuse_launch,
    refuse_write,
    require_seen,
)
from dotcu.locks import ForkSafeLock
from dotcu.tracebacks import shorten, shortens_tracebacks

_log = logging.getLogger("dotcu")

Instantiations = Mapping[str, Sequence[Any]]

live_modules: WeakSet[Module] = WeakSet()
"""Every module that is still in use: their files are those that a watcher or a wheel must know."""


@dataclass(frozen=True, kw_only=True)
class KernelAttributes:
    """The resources of a kernel, as the assembler reports them.

    Attributes:
        target: The architecture that it was assembled for.
        registers: Per thread.
        static_smem_bytes: Shared memory that it declares, per block.
        local_bytes: Stack, per thread; spilled registers are in it.
        constant_bytes: `__constant__` variables of the code that it is part of.
        max_threads_per_block: By its launch bounds and its registers.
    """

    target: str
    registers: int
    static_smem_bytes: int
    local_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    constant_bytes: int
    barriers: int
    max_threads_per_block: int


def _restored_kernel(module: Module, name: str, arguments: tuple[str, ...]) -> Kernel:
    """Return a pickled kernel, found in its module by name and template arguments."""
    kernel = module.kernels[name]
    return kernel[arguments] if arguments else kernel


class Kernel:
    """A `__global__` function: a plain one, a template, or an instantiation of one.

    A launch runs where its tensors live: on the GPU, on torch's current stream, or in the
    simulator. It does not wait for a GPU. A template is instantiated by indexing it.
    """

    def __init__(
        self,
        module: Module,
        declaration: Declaration,
        unit: CompilationUnit | None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self._module = module
        self._declaration = declaration
        self._unit = unit
        self._arguments = arguments
        self._occupancies: dict[tuple[int, int, Target], int] = {}
        self._by_arguments: dict[Any, Kernel] = {}
        self._plans = LaunchPlans()
        self._is_tile = declaration.is_tile
        instantiated = declaration.template_parameters and unit is not None
        self.name = instance_name(declaration, arguments) if instantiated else declaration.name

    @property
    def module(self) -> Module:
        """The module that has it."""
        return self._module

    @property
    def is_template(self) -> bool:
        """A template, which must be instantiated before it can be called."""
        return self._unit is None

    @property
    def declaration(self) -> Declaration:
        """Its declaration in the source."""
        return self._declaration

    @property
    def unit(self) -> CompilationUnit:
        """The unit that compiles it.

        Raises:
            ArgumentError: It is a template without arguments.
        """
        if self._unit is None:
            raise ArgumentError(
                f"{self._shown} is a template and was used without template arguments.\n"
                f"It is declared: {template_head(self._declaration)}.\n"
                f"Instantiate it: {template_example(self._declaration)}"
            )
        return self._unit

    def __getitem__(self, arguments: Any) -> Kernel:
        """Instantiate a template.

        Args:
            arguments: A torch dtype stands for its C++ type and includes its header, ints and bools
                for themselves, a str for C++ text.

        Raises:
            ArgumentError: It is not a template, or takes other arguments.
        """
        if is_dynamo_compiling():
            refuse_compiled(self._shown)
        values = arguments if type(arguments) is tuple else (arguments,)
        key = (values, *map(type, values))  # True is not 1 to a template
        try:
            kernel = self._by_arguments.get(key)
        except TypeError:  # something that cannot be hashed is not an argument of a template
            return self._instantiated(values)
        if kernel is None:
            kernel = self._by_arguments[key] = self._instantiated(values)
        return kernel

    def _instantiated(self, values: tuple[Any, ...]) -> Kernel:
        if self._unit is None:
            return self._module.instantiation(self._declaration, values)
        state, access = "not a template", kernel_access(self._declaration.name)
        if self._declaration.template_parameters:
            arguments = ", ".join(f'"{text}"' for text in self._arguments) or "()"
            state, access = "instantiated already", f"{access}[{arguments}]"
        raise ArgumentError(
            f"{self._shown} is {state}, got {list(values)!r}.\n"
            f"Call it as it is: {access}(..., grid=dotcu.cdiv(n, 256), block=256)"
        )

    def __call__(
        self,
        *args: Any,
        grid: Any = None,
        block: Any = None,
        smem_bytes: Any = 0,
        cluster: Any = None,
        cooperative: bool = False,
        programmatic: bool = False,
        device: DeviceLike | None = None,
    ) -> None:
        """Launch the kernel where its tensors live.

        Args:
            args: One for each parameter. A tensor stands for a pointer or a `dotcu::tensor`, None
                for a null pointer, a number for a number, a `tensor_map` for a `CUtensorMap`, a list of
                these for a pointer to them. A struct is a dataclass, a dict, a named tuple or a
                ctypes.Structure with a value for each member (a `py_object` for a tensor), or its bytes.
            grid: Required. In blocks, also with clusters; an int or up to three. With a zero in it nothing
                runs. For a tile kernel in tile blocks.
            block: In threads; an int or up to three. A tile kernel has none, nor what follows but `device`.
            smem_bytes: Dynamic shared memory per block, up to what the architecture has.
            cluster: Blocks of a cluster; an int or up to three.
            cooperative: All blocks run at once, so that the grid can synchronize.
            programmatic: It may start before the kernel before it ends (programmatic dependent launch),
                and calls cudaGridDependencySynchronize() before it reads what that one writes. Before
                sm_90, and in the simulator, it starts when that one has ended; the simulator reports
                what it touches too early.
            device: Where a kernel without tensors runs.

        Raises:
            ArgumentError: A value does not fit its parameter.
            LaunchConfigError: The configuration breaks a limit.
            TracedLaunchError: A trace would lose the launch.
            GradientError: Autograd would not see it.
            LaunchError: The driver refused it.
            FindingError: The simulator found a fault.

        Note:
            The version counter of each tensor passed for a pointer to non-const, also in a struct or a list,
            or as a tensor map that the kernel stores through, is bumped. While a profiler looks on, the
            launch is in a range of the kernel's name.
        """
        if is_dynamo_compiling():
            refuse_compiled(self._shown)
        if grid is None:
            refuse_missing_grid(self._shown)
        if self._is_tile:
            shape = block, smem_bytes, cluster, cooperative, programmatic
            if shape != _NO_SHAPE:
                refuse_shape(self._shown, *shape)
            block = 1
        if self._plans.quick(args, grid, block, smem_bytes, cluster, cooperative, programmatic, device):
            return
        shape = BlockConfig(block, smem_bytes, cluster, bool(cooperative), bool(programmatic))
        try:
            self._launch(args, grid, shape, device)
        except Exception as error:
            __tracebackhide__ = True
            shorten(error)
            raise error  # DOTCU_DEBUG=1 shows the frames of dotcu

    def _launch(
        self, args: tuple[Any, ...], grid: Any, shape: BlockConfig, device: DeviceLike | None
    ) -> None:
        scope = current_scope()
        if scope.policy is LaunchPolicy.SKIP:
            if kernel_listeners():
                announce(self.unit, self.name, read_config(self._shown, grid, *shape[:3]))
            if scope.recording is not None:
                scope.recording.launched(self, args, grid, shape)
            return
        if scope.policy is LaunchPolicy.REFUSE:
            refuse_launch(self._shown, scope)
        launch(self.unit, self.name, self._plans, args, grid=grid, shape=shape, device=device)

    @shortens_tracebacks
    def compile(self, arch: str | None = None) -> ObjectCode:
        """Compile for an architecture, `sm_90a` or `compute_80`; by default for the device in use."""
        return self.unit.code(Target.parse(arch) if arch is not None else _assembled_target()).object

    @shortens_tracebacks
    def warm(self) -> None:
        """Compile and load on every visible device, or else in the simulator.

        After it no launch of this kernel loads anything, so that it can be captured in a CUDA graph.

        Raises:
            KernelNotFound: The preprocessor hides it from the compiler.
            CaptureError: A CUDA graph is being captured, and it is not loaded yet.
            LaunchError: This process was forked after CUDA was initialized.
        """
        require_own_cuda(f"Warming {self._shown}")
        if not cuda.available():
            from dotcu.kernel.simulation import simulated_device

            code = simulated_device().code(self.unit)
            code.plan(self.name)
            if code.is_tile(self.name):
                code.tile_program().decoded(code.symbol(self.name))
            else:
                code.program()
            return
        for index in range(torch.cuda.device_count()):
            code = GpuDevice(index=index).code(self.unit)
            code.plan(self.name)
            code.library(self.name).kernel(code.symbol(self.name), index)

    @property
    @shortens_tracebacks
    def attributes(self) -> KernelAttributes:
        """Registers, shared memory, spills and limits, on the architecture in use."""
        announce(self.unit, self.name, None)
        code = self._assembled_code(_assembled_target())
        resources = code.object.resources[code.symbol(self.name)]
        most = resources.threads or self._most_threads(code)
        return KernelAttributes(
            target=str(code.object.target),
            registers=resources.registers,
            static_smem_bytes=resources.smem_bytes,
            local_bytes=resources.stack_bytes,
            spill_store_bytes=resources.spill_store_bytes,
            spill_load_bytes=resources.spill_load_bytes,
            constant_bytes=resources.constant_bytes,
            barriers=resources.barriers,
            max_threads_per_block=most,
        )

    def _assembled_code(self, target: Target) -> CompiledUnit:
        """Return code whose resources are known."""
        source = self._module.source
        code = self.unit.code(ptx_source.own_target(source, target) if source.is_compiled else target)
        if source.is_compiled and not code.object.resources:
            stem, name = Path(source.name).stem, source.name
            raise UsageError(
                f"{self._shown} of {name} is PTX: its registers are chosen by the driver's assembler.\n"
                "Attributes and occupancy are known of machine code.\n"
                f"Assemble it, and load the cubin: ptxas -arch={target} -o {stem}.cubin {name}"
            )
        return code

    def _most_threads(self, code: CompiledUnit) -> int:
        """Return the most threads of a block that the registers of a multiprocessor allow."""
        most = min(code.needs(self.name).max_threads or MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_BLOCK)
        while most > 32 and self._occupancy(code, most, 0).by_registers == 0:
            most -= 32
        return most

    def _occupancy(self, code: CompiledUnit, threads: int, smem_bytes: int) -> Occupancy:
        target = code.object.target
        return resident_blocks(code.needs(self.name), threads, smem_bytes, limits(target.major, target.minor))

    @shortens_tracebacks
    def occupancy(self, block: int | tuple[int, ...] | None = None, smem_bytes: int = 0) -> int:
        """Return how many blocks a multiprocessor holds at once, by registers, shared memory and limits.

        Args:
            block: In threads; an int or up to three. None for a tile kernel, whose compiler chooses it.
            smem_bytes: Dynamic shared memory per block.

        Returns:
            At least 1.

        Raises:
            LaunchConfigError: A multiprocessor cannot hold even one such block, so no launch can have it;
                or the block is not made of whole numbers.

        Note:
            Arithmetic on what the assembler reports: the same answer for fakes and in the simulator.
        """
        if self._declaration.is_tile:
            return self._tile_occupancy(block, smem_bytes)
        if block is None:
            refuse_missing_block(self._shown)
        if type(block) is int and type(smem_bytes) is int:
            threads = block
        else:
            threads, smem_bytes = read_block(self._shown, _whole(block), _whole(smem_bytes))
        announce(self.unit, self.name, None)
        target = _assembled_target()
        key = (threads, smem_bytes, target)
        if key not in self._occupancies:
            code = self._assembled_code(target)
            threads, smem_bytes = read_block(self._shown, threads, smem_bytes)
            resident = self._occupancy(code, threads, smem_bytes)
            if resident.blocks == 0:
                raise LaunchConfigError(
                    f"{self._shown}: no multiprocessor of {code.object.target} holds a block of {threads} "
                    f"threads with {smem_bytes} bytes of dynamic shared memory; {resident.limiter} is the "
                    "limit.\nUse a smaller block or less shared memory; see kernel.attributes."
                )
            self._occupancies[key] = resident.blocks
        return self._occupancies[key]

    def _tile_occupancy(self, block: Any, smem_bytes: Any) -> int:
        """Return how many tile blocks a multiprocessor holds; at least 1."""
        if block is not None or smem_bytes != 0:
            refuse_shape(self._shown, block, smem_bytes, None, False, False)
        announce(self.unit, self.name, None)
        code = self.unit.code(_assembled_target())
        found, target = code.object.resources[code.symbol(self.name)], code.object.target
        needs = KernelNeeds(
            static_smem_bytes=found.smem_bytes, registers=found.registers, barriers=found.barriers
        )
        resident = resident_blocks(needs, found.threads, 0, limits(target.major, target.minor))
        return max(1, resident.blocks // found.cluster)

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        return self  # like a function: there is one of it

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored_kernel, (self._module, overload_key(self._declaration.name), self._arguments)

    @property
    def _shown(self) -> str:
        """The name in messages: of an overload `k(float*)`."""
        return overload_key(self.name)

    def __repr__(self) -> str:
        line = f":{self._declaration.line}" if self._declaration.line else ""
        where = f"{self._module.name}{line}"
        if self.is_template:
            return f"<dotcu.Kernel {template_head(self._declaration)}, {where}>"
        codes = self.unit.codes()
        if not codes:
            return f"<dotcu.Kernel {self._shown}, {where}, not compiled yet>"
        targets = ", ".join(str(code.object.target) for code in codes)
        return f"<dotcu.Kernel {codes[0].plan(self.name)}, {where}, compiled for {targets}>"


def _assembled_target() -> Target:
    """Return the target of attributes and occupancy: in a body that of its tensors' GPU."""
    scope = current_scope()
    if scope.recording is not None:
        scope.recording.asked_device()
    if scope.gpu is not None:
        return _assembled(gpu_target(scope.gpu))
    from dotcu.kernel.simulated_memory import active_run
    from dotcu.kernel.simulation import DEFAULT_ARCH

    run = active_run()
    if run is not None:
        return _assembled(run.arch)
    outside = scope.policy is LaunchPolicy.OUTSIDE  # elsewhere CUDA is not started to ask
    in_use = cuda.available() if outside else torch.cuda.is_initialized()
    return _assembled(gpu_target(torch.cuda.current_device()) if in_use else DEFAULT_ARCH)


def _whole(size: Any) -> Any:
    """Return symbolic sizes as the whole numbers that they are now, with a guard on each."""
    if isinstance(size, tuple):
        return tuple(map(_whole, size))
    return int(size) if isinstance(size, torch.SymInt) else size


_NO_SHAPE = (None, 0, None, False, False)


@functools.cache
def _assembled(target: Target | str) -> Target:
    return replace(Target.parse(target) if isinstance(target, str) else target, kind="sm")


class Module:
    """The kernels and variables of one source. Nothing is compiled before something needs it.

    Attributes:
        name: The source's file name, or what messages call it instead.
        source: Its text, and where it was read.
        options: How it is compiled.
        kernels: Every kernel by its qualified name; `module.k` is short for `module.kernels["k"]`.
        instantiate: The instantiations that a wheel must hold, by template.
        contents: The bytes that were written to variables so far, by name.
    """

    def __init__(self, source: Source, options: CompileOptions, instantiate: Instantiations) -> None:
        self.source = source
        self.options = options
        self.name = source.shown or source.name
        self._lock = ForkSafeLock()
        scan = ptx_source.declarations(source) if source.is_compiled else scan_declarations(source, options)
        declared = self._declared = scan
        self._variables = ModuleVariables(self.name, declared.variables, declared.constants)
        self.contents = self._variables.contents
        plain = [d for d in declared.kernels if not d.template_parameters]
        templates = {d.name: d for d in declared.kernels if d.template_parameters}
        self.instantiate = self._read_instantiate(instantiate, templates)
        named = [(templates[name], row) for name, rows in self.instantiate.items() for row in rows]
        together = named if declared.has_state else []
        self._plain = self._unit_of(plain, together, is_plain=True)
        self._units = [self._plain]
        self.kernels = Kernels(self, [self._kernel(d) for d in declared.kernels])
        for name, same in declared.overloads.items():
            for each in map(overload, same):
                unit = None if each.template_parameters else self._unit_of([each], [])
                self._units += [unit] if unit is not None else []
                key = overload_key(each.name) if len(same) > 1 else name
                self.kernels.found[key] = Kernel(self, each, unit)
        for name in self.kernels:
            if hasattr(type(self), name) or name in vars(self):
                shown = f'module.kernels["{name}"]'
                _log.warning("%s: module.%s is not the kernel of that name: use %s", self.name, name, shown)
        live_modules.add(self)
        self._instances = {(d.name, row): Kernel(self, d, self._plain, row) for d, row in together}

    def _read_instantiate(
        self, asked: Instantiations, declarations: Mapping[str, Declaration]
    ) -> dict[str, tuple[tuple[str, ...], ...]]:
        read = {}
        for name, rows in asked.items():
            qualified = match_name(name, tuple(declarations))
            if qualified is None:
                raise KernelNotFound(not_found(self.name, name, "template", list(declarations)))
            given = [row if isinstance(row, tuple) else (row,) for row in rows]
            is_pytorchs, template = self._declared.is_pytorchs, declarations[qualified]
            read[qualified] = tuple(spell_arguments(template, row, is_pytorchs=is_pytorchs) for row in given)
        return read

    def _unit_of(
        self,
        plain: Sequence[Declaration],
        instances: Sequence[tuple[Declaration, tuple[str, ...]]],
        *,
        is_plain: bool = False,
    ) -> CompilationUnit:
        names = [d.name for d in plain] + [instance_name(*instance) for instance in instances]
        declarations = [*plain, *(declaration for declaration, _ in instances)]
        return CompilationUnit(
            with_headers(self.source, [text for _, row in instances for text in row]),
            self.options,
            names,
            {name: d.parameter_names for name, d in zip(names, declarations, strict=True)},
            self._variables,
            is_tile=self._declared.is_tile,
            is_plain=is_plain,
        )

    def _kernel(self, declaration: Declaration) -> Kernel:
        return Kernel(self, declaration, None if declaration.template_parameters else self._plain)

    def instantiation(self, declaration: Declaration, values: Sequence[Any]) -> Kernel:
        """Return the instantiation of a template for some arguments."""
        arguments = spell_arguments(declaration, values, is_pytorchs=self._declared.is_pytorchs)
        key = (declaration.name, arguments)
        with self._lock:
            if key not in self._instances:
                unit = self._unit_of([], [(declaration, arguments)])
                self._units.append(unit)
                self._instances[key] = Kernel(self, declaration, unit, arguments)
            return self._instances[key]

    def units(self) -> tuple[CompilationUnit, ...]:
        """Return the unit of the plain kernels, and one for each instantiation so far."""
        with self._lock:
            return tuple(self._units)

    def __getattr__(self, name: str) -> Kernel:
        # of names like these Python asks any object, also one that is not made yet
        if name.startswith("_") and ("kernels" not in vars(self) or name not in self.kernels):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if is_dynamo_compiling():
            refuse_compiled(name)
        kernel = self.__dict__[name] = self.kernels[name]  # so that the next look is Python's own
        return kernel

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        return self  # compiled code has no second copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored_module, (self.source, self.options, self.instantiate, dict(self.contents))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.kernels]

    def __repr__(self) -> str:
        return f"<dotcu.Module {self.source.display!r}: {', '.join(self.kernels) or 'no kernels'}>"

    def missing(self, name: str) -> Kernel:
        """Look for a kernel that the scan of the text did not find: a macro makes it, for example."""
        why = ""
        if self.source.is_compiled:
            return self._by_symbol(name)
        if name in self._declared.overloads:
            self._add(self._only_overload(name))
        elif is_unknown(name, tuple(self.kernels.found)):
            why = self._discover(name)
        known = tuple(self.kernels.found)
        qualified = match_name(name, known)
        if qualified is None:
            raise KernelNotFound(f"{why}{not_found(self.name, name, 'kernel', known)}")
        return self.kernels.found[qualified]

    def _by_symbol(self, name: str) -> Kernel:
        """Return a kernel of PTX or a cubin by its symbol, or by its name without template arguments."""
        known = tuple(self.kernels.found)
        symbols = ptx_source.symbols(self.source)
        same = [one for one in known if name == symbols[one] or name == one.partition("<")[0]]
        if len(same) != 1:
            listed = f"{self.name} has {len(same)} kernels named {name}: {', '.join(same)}.\nSay which: "
            told = (
                f"{listed}{kernel_access(same[0])}" if same else not_found(self.name, name, "kernel", known)
            )
            raise KernelNotFound(told)
        return self.kernels.found[same[0]]

    def _only_overload(self, name: str) -> Declaration:
        """Return the one kernel of a name that the preprocessor leaves, where the text has several."""
        same = self._declared.overloads[name]
        only = default_device().code(self._plain).find_kernel(name)
        if only is not None and only.template_parameters:  # it keeps one template, and not which
            forms = {declaration.template_parameters for declaration in same}
            only = replace(same[0], parameter_names=()) if len(forms) == 1 else None
        if only is None:
            lines = ", ".join(str(declaration.line) for declaration in same)
            access = "\n".join(f"    {kernel_access(overload(each).name)}" for each in same)
            raise SourceError(
                f"{self.name} has {len(same)} kernels named {name}, on lines {lines}.\n"
                f"Say which, by the types of its parameters:\n{access}"
            )
        return replace(only, line=same[0].line)

    def _discover(self, name: str) -> str:
        """Add the kernels that the compiler sees and the scan does not; return why it could not be asked.

        A wheel tells which of its kernels are templates; of those that macros make, only the compiler does.
        """
        from dotcu.compile import prebuilt

        for template in prebuilt.templates(self.source, self.options):
            if is_unknown(template, tuple(self.kernels.found)):
                self._add(Declaration(template, ("...",), (), 0))
        if not is_unknown(name, tuple(self.kernels.found)):
            return ""
        kernel = None
        try:
            code = default_device().code(self._plain)
            tiles = code.tiles.functions if code.tiles is not None else {}
            for symbol in (*code.outline.entries, *tiles):
                entry, is_template = qualified_name(symbol)
                plain = entry.replace("(anonymous namespace)::", "")
                if not is_template and plain not in self._declared.overloads:
                    self._add(Declaration(plain, (), (), 0, is_tile=symbol in tiles))
            if is_unknown(name, tuple(self.kernels.found)):
                kernel = self._assumed(name) or code.find_kernel(name)
        except DotcuError as error:
            kernel = self._assumed(name)
            if kernel is None:
                return f"The compiler could not be queried: {error}\n\n"
        if kernel is not None:
            self._add(kernel)
        return ""

    def _assumed(self, name: str) -> Declaration | None:
        """Return a template where a macro may make one, and only a cache could be asked: it has none to tell.

        If there is none of that name, the cache has no instantiation either.
        """
        in_wheel = self.source.path is not None and is_prebuilt(self.source.path)
        may_be = settings.current().jit == "error" and not in_wheel and QUALIFIED_NAME.fullmatch(name)
        return Declaration(name, ("...",), (), 0) if may_be and _makes(self, _TEMPLATES) else None

    def _add(self, declaration: Declaration) -> None:
        """Add a kernel that only the compiler sees; the code of the plain ones holds it."""
        with self._lock:
            if declaration.name not in self.kernels.found:
                if not declaration.template_parameters:
                    self._variables.late.add(declaration.name)
                self.kernels.found[declaration.name] = self._kernel(declaration)

    @shortens_tracebacks
    def compile(self, arch: str) -> ObjectCode:
        """Compile the plain kernels, and the instantiations named or used so far, for an architecture.

        Args:
            arch: `sm_90a` for a cubin and its PTX, `compute_80` for PTX only.
        """
        used = [key for key, kernel in self._instances.items() if kernel.unit.codes()]
        named = [(name, row) for name, rows in self.instantiate.items() for row in rows]
        instances = [
            (self.kernels[overload_key(name)].declaration, row)
            for name, row in dict.fromkeys([*named, *used])
        ]
        plain = [k.declaration for k in self.kernels.values() if k.declaration.name in self._plain.names]
        return self._unit_of(plain, instances).build(Target.parse(arch))

    @shortens_tracebacks
    def warm(self) -> None:
        """Compile and load every kernel, for example before a graph is captured.

        Plain kernels that the compiler sees, those named by `instantiate` and all instantiations so far,
        on every visible device; if there is none, in the simulator.

        Raises:
            CaptureError: A CUDA graph is being captured, and something is not loaded yet.
            LaunchError: This process was forked after CUDA was initialized.
        """
        for name, rows in self.instantiate.items():
            for row in rows:
                self.instantiation(self.kernels[name].declaration, row)
        for kernel in [*self.kernels.values(), *self._instances.values()]:
            if not kernel.is_template:
                with suppress(KernelNotFound):  # the preprocessor hides it: no launch can need it
                    kernel.warm()

    def variable(self, name: str) -> DeviceVariable:
        """Return a handle on a `__constant__` or `__device__` variable, to write it.

        Raises:
            KernelNotFound: There is none of that name; lists the others.
        """
        late = tuple(name[1:] for name in self._variables.late if name.startswith("&"))
        names = (*self._variables.names, *late)
        known = match_name(name, names)
        if known is None and is_unknown(name, names) and QUALIFIED_NAME.fullmatch(name):
            with suppress(DotcuError):  # ask the compiler, which sees what macros make
                default_device().code(self._plain).compile_one("&" + name)
                self._variables.late.add("&" + name)
                known = name
        if known is None:
            raise KernelNotFound(not_found(self.name, name, "variable", names))
        return DeviceVariable(self, known)


def is_prebuilt(path: Path) -> bool:
    """Return whether a wheel holds code for a source."""
    if not is_folder(path.parent / PREBUILT):
        return False
    from dotcu.compile import prebuilt

    return prebuilt.is_prebuilt(path)


def _restored_module(
    source: Source, options: CompileOptions, instantiate: Instantiations, contents: Mapping[str, bytes]
) -> Module:
    """Return a module that was pickled: the one that is here, or a new one of the same text."""
    wanted = source, options, instantiate
    for module in list(live_modules):
        if (module.source, module.options, module.instantiate) == wanted:
            return module
    module = Module(source, options, instantiate)
    module.contents.update(contents)
    return module


_DEFINED = r"^[ \t]*#[ \t]*define\b(?:\\\r?\n|[^\n])*?"
_KERNELS_OR_VARIABLES = re.compile(_DEFINED + "__(?:global|tile_global|constant)__", re.MULTILINE)
_TEMPLATES = re.compile(_DEFINED + r"\btemplate\b", re.MULTILINE)


def _makes(module: Module, what: re.Pattern[str]) -> bool:
    files = include_graph(module.source, system_headers(()), options=module.options).files
    return any(what.search(file.text) for file in files)


def find_macro_made(module: Module) -> None:
    """Ask the compiler for the kernels and variables that macros make, if a macro of the source may."""
    if _makes(module, _KERNELS_OR_VARIABLES) and not module._discover(""):
        seen = default_device().code(module._plain).variable_names
        module._variables.late.update(f"&{name}" for name in seen if name not in module._variables.names)


SPELLINGS: dict[torch.dtype, str] = {getattr(torch, name): text for name, text in CXX_TYPES.items()}


def spelling(dtype: torch.dtype, *, is_pytorchs: bool = False) -> str:
    """Return the C++ type of a torch dtype, for device code of PyTorch's or of CUDA's own types."""
    known = PYTORCHS_TYPES if is_pytorchs else CXX_TYPES
    name = known.get(str(dtype).removeprefix("torch."))
    if name is not None:
        return name
    if dtype.is_complex:
        part = str(dtype.to_real()).removeprefix("torch.")
        remedy = f'Pass torch.view_as_real(t) to a kernel of {part}, or name a C++ type: ["float2"].'
    else:
        remedy = f"Use one of {', '.join(str(d) for d in SPELLINGS)}, or name a C++ type as a str."
    raise ArgumentError(f"{dtype} has no C++ type that a template can be instantiated with.\n{remedy}")


def spell_arguments(
    declaration: Declaration, values: Sequence[Any], *, is_pytorchs: bool = False
) -> tuple[str, ...]:
    """Return template arguments as C++ text.

    Args:
        values: The arguments as a caller gave them: dtypes, ints, bools or C++ text.
        is_pytorchs: Write a dtype as PyTorch's own device type (`c10::Half`) instead of CUDA's (`__half`).

    Raises:
        ArgumentError: Too many or too few of them, or one that has no C++ text.
    """
    require_argument_count(declaration, values)
    return tuple(_spell(declaration, value, is_pytorchs) for value in values)


def _spell(declaration: Declaration, value: Any, is_pytorchs: bool) -> str:
    if isinstance(value, torch.dtype):
        return spelling(value, is_pytorchs=is_pytorchs)
    if isinstance(value, (bool, np.bool_, torch.SymBool)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer, torch.SymInt)):
        return str(int(value))
    if isinstance(value, str) and value.strip():
        return " ".join(value.split())
    raise ArgumentError(
        f"{declaration.name}: a template argument is a torch dtype, an int, a bool or C++ text as a str, "
        f"got {type(value).__name__} {value!r}.\n{template_usage(declaration)}"
    )


class Kernels(Mapping[str, Kernel]):
    """Every kernel of a module by its qualified name; a plain name will do where only one ends in it."""

    def __init__(self, module: Module, kernels: Sequence[Kernel]) -> None:
        self._module = module
        self.found = {kernel.name: kernel for kernel in kernels}

    def __getitem__(self, name: str) -> Kernel:
        if name in self.found:
            return self.found[name]
        qualified = match_name(name, tuple(self.found))
        return self.found[qualified] if qualified is not None else self._module.missing(name)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self.found))

    def __len__(self) -> int:
        return len(self.found)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and match_name(name, tuple(self.found)) is not None

    def __repr__(self) -> str:
        return f"<kernels of {self._module.name}: {', '.join(self.found)}>"


class DeviceVariable:
    """A handle on a `__constant__` or `__device__` variable of a module, to write it from a tensor.

    Every unit of compilation, on every device and in the simulator, has its own copy; `write`
    reaches all of them, also those that are loaded later.
    """

    def __init__(self, module: Module, name: str) -> None:
        self._module = module
        self.name = name

    def write(self, tensor: Tensor) -> None:
        """Copy a tensor's elements into every copy of the variable.

        Args:
            tensor: On any device, of as many bytes as the variable; strided is fine. Its dtype must
                be the variable's: only the size can be checked.

        Raises:
            ArgumentError: It has another size, or it is a `__tile__` variable.
            TracedLaunchError: A trace would lose the write, or it is in a backward.
            CaptureError: A CUDA graph is being captured.

        Note:
            On a GPU it is ordered on torch's current stream, and waits for the copy. What kernels
            themselves stored into the variable is overwritten.
        """
        scope = current_scope()
        if scope.policy is LaunchPolicy.SKIP:
            return
        if scope.policy is LaunchPolicy.REFUSE:
            refuse_write(self.name, scope)
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"{self.name}: write takes a tensor, got {describe(tensor)}.\n"
                f"Pass torch.tensor(x, dtype=torch.{self._dtype_for(tensor)})."
            )
        if scope.policy is LaunchPolicy.OUTSIDE:
            require_seen(f"the write of {self.name}", [tensor.detach()])
        if cuda.capturing():
            refuse_captured_write(self.name, self._module.name)
        data = self._bytes_of(tensor)
        self._module.contents[self.name] = data
        for unit in self._module.units():
            for code in unit.codes():
                code.write(self.name, data)

    def _dtype_for(self, values: Any) -> str:
        """Return the dtype of a tensor that holds some numbers in the variable's bytes."""
        are_numbers = isinstance(values, (list, tuple, int, float))
        flat = np.asarray(values).reshape(-1) if are_numbers else np.empty(0)
        bits = 8 * self.size() // max(flat.size, 1)
        of_kind = {"i": {8: "int8", 16: "int16", 64: "int64"}, "f": {16: "float16", 64: "float64"}}
        other = {"i": "int32", "b": "bool"}.get(flat.dtype.kind, "float32")
        return of_kind.get(flat.dtype.kind, {}).get(bits, other)

    def _bytes_of(self, tensor: Tensor) -> bytes:
        mismatch = memory_fault(tensor)
        if mismatch is not None:
            raise ArgumentError(f"{self.name}: write got {mismatch.got}.\n{mismatch.remedy}")
        host = tensor.detach().cpu().contiguous().reshape(-1)
        data = host.view(torch.uint8).numpy().tobytes() if host.numel() else b""
        size = self.size()
        if len(data) != size:
            raise ArgumentError(
                f"{self.name} of {self._module.name} has {size} bytes, got {describe(tensor)} of {len(data)} "
                "bytes.\nPass a tensor of the variable's element type and number of elements."
            )
        return data

    def size(self) -> int:
        """Return its size in bytes; compiles the module's plain kernels where nothing is compiled yet."""
        size = default_device().code(self._module.units()[0]).variable_bytes(self.name)
        if size is None:
            raise KernelNotFound(
                f"{self._module.name} declares the variable {self.name}, but the compiler does not see it.\n"
                "Is it inside an #if? Pass the macro: load(..., define={...})."
            )
        return size

    def __repr__(self) -> str:
        state = "written" if self.name in self._module.contents else "not written"
        return f"<dotcu variable {self.name} of {self._module.name}, {state}>"

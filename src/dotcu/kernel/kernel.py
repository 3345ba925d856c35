"""A kernel: an object to call, with its attributes and its occupancy."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling

from dotcu.compile import Declaration, ObjectCode, Target
from dotcu.errors import ArgumentError, LaunchConfigError
from dotcu.kernel import cuda
from dotcu.kernel.compiled import CompilationUnit, CompiledUnit, gpu_target
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
    instance_name,
    kernel_access,
    overload_key,
    template_example,
    template_head,
)
from dotcu.kernel.faults import require_own_cuda
from dotcu.kernel.launch import DeviceLike, GpuDevice, LaunchPlans, announce, launch
from dotcu.kernel.scope import LaunchPolicy, current_scope, kernel_listeners, refuse_compiled, refuse_launch
from dotcu.kernel.simulation import DEFAULT_ARCH, active_run, simulated_device
from dotcu.tracebacks import shorten, shortens_tracebacks

if TYPE_CHECKING:
    from dotcu.kernel.module import Module


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


def _restored(module: Module, name: str, arguments: tuple[str, ...]) -> Kernel:
    """Return a kernel that was pickled, of a module that was."""
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
        """The module that it is of."""
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
        """The unit that it is compiled in.

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

    def _launch(self, args: tuple[Any, ...], grid: Any, shape: BlockConfig, device: DeviceLike | None) -> None:
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
        code = self.unit.code(_assembled_target())
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
            code = self.unit.code(target)
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
        return _restored, (self._module, overload_key(self._declaration.name), self._arguments)

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
    run, scope = active_run(), current_scope()
    if scope.recording is not None:
        scope.recording.asked_device()
    if scope.gpu is not None:
        return _assembled(gpu_target(scope.gpu))
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

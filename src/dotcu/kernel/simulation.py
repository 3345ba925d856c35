"""The simulator as a device: `simulate()`, and launches on CPU tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from dotcu.compile.target import Target
from dotcu.errors import CompileError, SimulationError, UsageError
from dotcu.kernel import languages
from dotcu.kernel.arguments.pack import PackingPlan, Placement, pack, tensors_in
from dotcu.kernel.arguments.tensor_map import DTYPES, Tiled
from dotcu.kernel.config import ArchLimits, LaunchConfig, limits
from dotcu.kernel.declarations import overload_key
from dotcu.kernel.launch_policy import count_launch_writes
from dotcu.kernel.ptx_source import own_target
from dotcu.kernel.simulated_memory import (
    active_run,
    capability_of,
    handing_out_addresses,
    print_output,
    run_in_force,
    simulated_memory,
    tensor_buffer,
    tracking_allocations,
)
from dotcu.simulator import CHECKS, ON_REQUEST
from dotcu.tracebacks import caller_line

if TYPE_CHECKING:
    from dotcu.kernel.compiled import CompilationUnit, CompiledUnit
    from dotcu.simulator import Run


DEFAULT_ARCH = "sm_80"
_OF_SM_90A = re.compile(r"^\s*(wgmma|setmaxnreg)\.", re.MULTILINE)
"""Instructions for which the default gives way: no other architecture has them."""
OLDEST = (7, 5)

_threads: Counter[int] = Counter()
"""How many `simulate()` blocks each thread is in."""


def simulating_elsewhere() -> bool:
    """Return whether another thread is in a `simulate()` block that this thread is not in."""
    return bool(_threads) and active_run() is None and any(each != get_ident() for each in list(_threads))


active_rank: ContextVar[tuple[Any, int]] = ContextVar("dotcu_rank", default=(None, 0))
"""The ranks of `dotcu.simulate_ranks`, and which of them this thread is; None and 0 outside."""


@contextmanager
def simulate(
    arch: str | None = None,
    on_finding: Literal["raise", "collect"] = "raise",
    seed: int | None = None,
    checks: Collection[str] = CHECKS,
    step_limit: int | None = None,
) -> Iterator[Run]:
    """Run operators on CPU tensors in the simulator, and gather what it finds and counts.

    Args:
        arch: The architecture that kernels are compiled for; by default sm_80, or sm_90a for a kernel with
            wgmma, setmaxnreg or __cluster_dims__, and for PTX the one that it names.
        on_finding: "raise" stops at the first finding with a `FindingError`; "collect" goes on.
        seed: Shuffles which warps run ahead of others, and the order in which atomics that meet at
            one address take effect; None keeps all warps in step, and -1 reverses its order: the last
            blocks, and of these the last warps, run first.
        checks: Which of "bounds" (and alignment), "init" (reads of what nothing wrote), "race" and
            "barrier" are on, and whether "divergence" is: a __syncthreads() that not all threads of a block
            reach together, which hardware tolerates. A faulty access is left out in any case.
        step_limit: Instructions that blocks which run together may issue before a launch ends with a
            `step-limit` finding. None allows any number, as long as every 5 million of them end some thread
            or reach code for the first time.

    Yields:
        The run: `.findings`, `.counters`.

    Note:
        It holds for this thread and task. An operator that is called on another thread computes its
        reference and warns, unless the call is made in a copy of this context. CUDA tensors still go to
        their GPU. What `torch.empty` allocates inside counts as unwritten until something writes it.
    """
    from dotcu.simulator import Run
    from dotcu.simulator.run import REVERSED

    is_arch_chosen, arch = arch is not None, DEFAULT_ARCH if arch is None else arch
    if not isinstance(arch, str):
        raise UsageError(f'arch is the name of an architecture, such as "sm_80", got {arch!r}.')
    if capability_of(arch) < OLDEST:
        raise UsageError(f'arch is "sm_75" or newer, which the compiler has code for, got {arch!r}.')
    if seed is not None and seed < REVERSED:
        raise UsageError(f"seed is None, -1 for the reversed order, or a number from 0 on, got {seed}.")
    if on_finding not in ("raise", "collect"):
        raise UsageError(f'on_finding is "raise" or "collect", got {on_finding!r}.')
    if isinstance(checks, str) or not (CHECKS | ON_REQUEST).issuperset(checks):
        raise UsageError(f"checks are some of {sorted(CHECKS | ON_REQUEST)}, got {checks!r}.")
    if step_limit is not None and step_limit < 1:
        raise UsageError(f"step_limit is a positive number of instructions, got {step_limit}.")
    run = Run(arch=arch, on_finding=on_finding, seed=seed, checks=frozenset(checks), step_limit=step_limit)
    run.is_arch_chosen = is_arch_chosen
    token, thread = run_in_force.set(run), get_ident()
    _threads[thread] += 1
    try:
        with ExitStack() as stack:
            stack.enter_context(languages.simulated())
            stack.enter_context(tracking_allocations())
            stack.enter_context(handing_out_addresses())
            yield run
    finally:
        _threads[thread] -= 1
        if not _threads[thread]:
            _threads.pop(thread, None)
        run_in_force.reset(token)


def _caller(plan: PackingPlan, passed: Mapping[str, Tensor], name: str) -> str:
    """Return the tensor that findings call by a name, such as `params.x`, and the line of the launch."""
    label = re.split(r"[.\[]", name)[0]
    number = next((p.index + 1 for p in plan.parameters if p.label in (name, label)), 0)
    told = [f"launched at {line}"] if (line := caller_line()) else []
    if number and name in passed:
        tensor = passed[name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        place = "argument" if name == label else "in argument"
        what = f"`{name}`, {place} {number} of `{plan.kernel}`"
        told.insert(0, f"{what}, shape {tuple(tensor.shape)} {dtype}")
    return ", ".join(told)


_MAP_TYPES = {
    "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "INT32": "s32", "UINT64": "u64", "INT64": "s64",
    "FLOAT16": "f16", "FLOAT32": "f32", "FLOAT64": "f64", "BFLOAT16": "bf16",
}  # fmt: skip
"""PTX's names of the element types of tensor maps."""


def _encode_map(tiled: Tiled, address: int) -> bytes:
    """Encode a tensor map in the simulator's own format."""
    from dotcu.simulator import Map

    if tiled.fill == "nan":
        raise SimulationError(
            'A tensor map has fill="nan"; the simulator fills what lies outside a tensor with zeros.\n'
            'Pass fill="zeros", or launch on CUDA tensors.'
        )
    return Map(
        address=address,
        sizes=tiled.sizes,
        strides_bytes=tiled.strides_bytes,
        box=tiled.box,
        steps=tiled.element_strides,
        type=_MAP_TYPES[DTYPES[tiled.dtype]],
        swizzle=tiled.swizzle,
        lower_corner=tiled.lower_corner,
        upper_corner=tiled.upper_corner,
    ).encode()


@dataclass(frozen=True, kw_only=True)
class SimulatedDevice:
    """The simulator, to launch on CPU tensors; the run collects findings and counters."""

    simulation: Run

    def __str__(self) -> str:
        return "simulator"

    @property
    def key(self) -> object:  # a launch plan holds for one architecture
        return self.simulation.arch, self.simulation.is_arch_chosen

    def arch(self, code: CompiledUnit) -> ArchLimits:
        return limits(code.object.target.major, code.object.target.minor)

    def code(self, unit: CompilationUnit) -> CompiledUnit:
        if unit.source.is_compiled:
            asked = Target.parse(self.simulation.arch)
            return unit.code(
                asked if self.simulation.is_arch_chosen else own_target(unit.source, asked), simulated=True
            )
        is_default, newer = self.simulation.arch == DEFAULT_ARCH, Target.parse("sm_90a").virtual
        try:
            code = unit.code(Target.parse(self.simulation.arch).virtual, simulated=True)
        except CompileError as error:
            if is_default and "__cluster_dims__ is not supported" in str(error):
                return unit.code(newer, simulated=True)
            raise
        if is_default and _OF_SM_90A.search(code.object.ptx):
            return unit.code(newer, simulated=True)
        return code

    def run(
        self, code: CompiledUnit, kernel: str, plan: PackingPlan, args: Sequence[Any], config: LaunchConfig
    ) -> None:
        ranks, number = active_rank.get()
        if ranks is None or not any(
            tensor.untyped_storage().data_ptr() in ranks.shared for tensor in tensors_in(args)
        ):
            self._run(code, kernel, plan, [args], config)
            return

        def together(launches: Sequence[Any]) -> list[None]:
            self._run(code, kernel, plan, list(launches), config, ranks.shared)
            return [None] * len(launches)

        what = f"the launch of {kernel} with grid {config.grid} and block {config.block}"
        ranks.meet(number, what, args, together)

    def _run(
        self,
        code: CompiledUnit,
        kernel: str,
        plan: PackingPlan,
        ranks: Sequence[Sequence[Any]],
        config: LaunchConfig,
        shared: Collection[int] = (),
    ) -> None:
        """Run a launch, or those of several ranks at once.

        Args:
            ranks: The arguments of each rank.
            shared: The addresses of storages that several ranks reach.
        """
        from dotcu.simulator import Buffer, launch

        memory = simulated_memory()

        def store(data: bytes, name: str, writable: bool) -> int:
            copy = np.frombuffer(data, np.uint8).copy()
            return memory.map(Buffer(name=name, data=copy, read_only=not writable))

        passed: dict[str, Tensor] = {}

        def address(tensor: Tensor, name: str, writable: bool) -> int:
            passed[name] = tensor
            return memory.map(tensor_buffer(tensor, name, writable, shared))

        to = Placement(address, _encode_map, store)
        packed = [pack(plan, args, to) for args in ranks]
        if not config.blocks:
            return
        printed = len(self.simulation.output)
        given: Any = {
            "params": packed[0][0],
            "memory": memory,
            "grid": config.grid,
            "run": self.simulation,
            "kernel": overload_key(kernel),
            "parameter_names": tuple(p.label for p in plan.parameters),
            "caller": lambda name: _caller(plan, passed, name),
        }
        try:
            if code.is_tile(kernel):
                from dotcu.simulator.tile.launch import launch_tile  # few files have tile kernels

                if len(packed) > 1:
                    raise SimulationError(
                        f"{kernel} is a tile kernel, which the simulator does not run on peers.\n"
                        "Write what meets other GPUs as a __global__ kernel."
                    )
                launch_tile(code.tile_program(), code.symbol(kernel), **given)
                self.simulation.earlier = ()
            else:
                launch(
                    code.program(),
                    code.symbol(kernel),
                    block=config.block,
                    smem_bytes=config.smem_bytes,
                    cluster=config.cluster,
                    cooperative=config.cooperative,
                    programmatic=config.programmatic and self.arch(code).capability >= (9, 0),
                    others=[parameters for parameters, _ in packed[1:]],
                    **given,
                )
        finally:  # also after a finding, which may come late in the kernel
            print_output(self.simulation, printed)
            for _, written in packed:
                count_launch_writes(written)


def simulated_device() -> SimulatedDevice:
    """Return the run of the `simulate()` block that this thread is in, or a new one."""
    from dotcu.simulator import Run

    return SimulatedDevice(simulation=active_run() or Run())

"""The kernels that operators launch: found by tracing their samples, and counted in the simulator.

A body runs with its launches skipped, so that nothing is computed; the launches that it would make are
recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dotcu.checking.cases.samples import samples_of
from dotcu.checking.subject import Subject
from dotcu.compile import Target
from dotcu.errors import DotcuError, SimulationError, SourceError
from dotcu.inspection.build import BuildRequest, BuildResult, FailedBuild, LaunchShape, build_all
from dotcu.inspection.report import SimulatedCounts
from dotcu.kernel import simulate
from dotcu.kernel.compiled import CompilationUnit
from dotcu.kernel.launch import KernelRequest, listening_for_kernels
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from dotcu.kernel.simulated_memory import FunctionMode, OperatorMode
from dotcu.operator import Operator, Overload, Sample
from dotcu.operator.execution import around_bodies
from dotcu.simulator import Counters
from dotcu.tile_ir.module import SourceLocation

MAX_ELEMENTS = 1 << 17
"""The most elements of a sample that is simulated: the largest one below this that reaches a kernel."""

_IS_CUDA, _IS_CPU = torch.Tensor.is_cuda.__get__, torch.Tensor.is_cpu.__get__  # type: ignore[attr-defined]


@dataclass(kw_only=True, eq=False)
class SampleCall:
    """A call of an overload with one of its samples, and the kernels that it launches.

    Attributes:
        name: In a message: `mylib::scale, float32, sample 2`.
        backward: The gradients of its results are computed too.
        kernels: The names of the launched kernels, each once.
    """

    overload: Overload
    name: str
    sample: Sample
    backward: bool = False
    kernels: tuple[str, ...] = ()

    @property
    def elements(self) -> int:
        return sum(tensor.numel() for tensor in self.sample.tensors)

    def run(self) -> None:
        if not self.backward:
            self.overload(*self.sample.args, **self.sample.kwargs)
            return
        call = self.sample.map_tensors(lambda t: t.detach().requires_grad_(t.is_floating_point()))
        with torch.enable_grad():
            results = tree_leaves(self.overload(*call.args, **call.kwargs))
            ends = [value for value in results if isinstance(value, torch.Tensor) and value.requires_grad]
            leaves = [tensor for tensor in call.tensors if tensor.requires_grad]
            if ends and leaves:
                torch.autograd.grad(ends, leaves, list(map(torch.ones_like, ends)), allow_unused=True)


@dataclass(frozen=True, kw_only=True)
class TracedKernels:
    """The kernels that operators launch for one architecture.

    Attributes:
        kernels: By unit and name, the shapes of their launches.
        queried: The units of kernels whose attributes or occupancy a body reads.
        calls: The calls that were traced to their end.
        compile_errors: The compiler's messages where it refused a kernel that a body uses.
        notes: What else could not be traced, and why.
    """

    kernels: dict[CompilationUnit, dict[str, list[LaunchShape]]] = field(default_factory=dict)
    queried: dict[CompilationUnit, None] = field(default_factory=dict)
    calls: list[SampleCall] = field(default_factory=list)
    compile_errors: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def kernels_of(
    operators: Sequence[Operator], targets: Sequence[Target], counts: bool
) -> tuple[BuildResult, dict[str, SimulatedCounts]]:
    """Build the kernels that samples of some operators launch; with `counts`, simulate some of the calls.

    Calls are simulated for the first architecture for which they could be traced.

    Returns:
        The kernels for each architecture; and what a sample executed, by kernel.

    Raises:
        OperatorError: The `samples` function of one failed.
    """
    traced = {target: trace_operators(operators, target) for target in targets}
    anywhere: dict[CompilationUnit, dict[str, list[LaunchShape]]] = {}
    for each in traced.values():
        for unit, by_name in each.kernels.items():
            for name, shapes in by_name.items():
                known = anywhere.setdefault(unit, {}).setdefault(name, [])
                known += [shape for shape in shapes if shape not in known]
    counted: dict[str, SimulatedCounts] = {}
    notes = list(dict.fromkeys(note for each in traced.values() for note in each.notes))
    target = next((target for target, each in traced.items() if counts and each.calls), None)
    if target is not None:
        counted, more = count(traced[target].calls, target)
        notes += more
    requests = [
        BuildRequest(unit=unit, target=target, shapes=shapes, only=tuple(shapes))
        for target, each in traced.items()
        # Where a kernel does not compile, its body ends early: then the kernels that others reach.
        for unit, shapes in (anywhere if each.compile_errors else each.kernels).items()
    ]
    failed = [
        FailedBuild(arch=target, names=(), message=message)
        for target, each in traced.items()
        for message in each.compile_errors
        if not anywhere  # else the kernels that other architectures reach are built here, and fail
    ]
    built = build_all(requests)
    return replace(built, failed=(*failed, *built.failed), notes=(*notes, *built.notes)), counted


def trace_operators(
    operators: Sequence[Operator],
    target: Target,
    report: Callable[[str], object] = lambda _: None,
    *,
    backwards: bool = False,
) -> TracedKernels:
    """Trace every sample of some operators in each of their dtypes; with `backwards`, its gradients too.

    Meanwhile `kernel.occupancy` and `dotcu.sm_count` answer for the target; if it is a GPU's, tensors say
    that they are on one. `report` is called with each overload that is traced.

    Raises:
        OperatorError: The `samples` function of one failed.
    """
    traced = TracedKernels()
    for overload in (overload for operator in operators for overload in operator.overloads.values()):
        name = overload.qualified_name
        if overload.body is None and Subject(overload=overload, device=torch.device("cpu")).launches:
            traced.notes.append(
                f"{name} launches kernels that others compile, which inspect does not show; it takes "
                "a file of their PTX: in dotcu.simulate(), a launch of Triton's returns it, as "
                'kernel[grid](...).asm["ptx"]. Write that to a file, and type: dotcu inspect kernel.ptx'
            )
            continue
        if overload.body is None:
            file = (
                "but what its file holds" if overload.library is not None else
                "and its file is not known, since dotcu.load_cpp did not load it: dotcu inspect lib.so"
            )  # fmt: skip
            traced.notes.append(
                f"{name} is computed by a library: there is no source, PTX or line to show, {file}"
            )
            continue
        has_samples = False
        for label, sample in samples_on_cpu(overload):
            has_samples = True
            call = SampleCall(overload=overload, name=f"{name}, {label}", sample=sample)
            _trace(call, target, traced)
            if backwards and overload.has_backward:
                name_of_backward = f"the backward of {call.name}"
                _trace(replace(call, name=name_of_backward, backward=True, kernels=()), target, traced)
        if not has_samples:
            traced.notes.append(
                f"{name} has no samples, so what it launches is not known: "
                f"give it some with @{overload.signature.name}.samples"
            )
        report(f"{name} for {target}")
    return traced


def samples_on_cpu(overload: Overload) -> Iterator[tuple[str, Sample]]:
    """Yield each sample in every dtype, the same each time, with its name: `float32, sample 2`."""
    with torch.random.fork_rng(devices=[]):
        for dtype in overload.dtypes:
            torch.default_generator.manual_seed(0)
            for number, sample in enumerate(samples_of(overload, torch.device("cpu"), dtype)):
                yield f"{str(dtype).removeprefix('torch.')}, sample {number}", sample


def _pretend_gpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Have tensors say that they are on a GPU, so that a body takes the branch that it takes there."""
    return bool(func == _IS_CUDA) if func in (_IS_CUDA, _IS_CPU) else func(*args, **kwargs)


def _trace(call: SampleCall, target: Target, traced: TracedKernels) -> None:
    arch = str(target).replace("compute_", "sm_")
    as_on_gpu = partial(FunctionMode, _pretend_gpu)
    try:
        try:
            requests = _requests(call, arch, as_on_gpu if target.kind == "sm" else nullcontext)
        except Exception as error:
            if isinstance(error, DotcuError) or target.kind != "sm":
                raise
            # The body asks torch for what only a GPU has.
            reason = str(error).partition("\n")[0]
            note = f"{call.name} was traced as on the CPU, since as on a GPU it failed: {reason}"
            traced.notes.append(note)
            requests = _requests(call, arch, nullcontext)
    except SourceError as error:
        traced.compile_errors[str(error)] = None
        return
    except DotcuError as error:
        traced.notes.append(f"{call.name} could not be traced: {error}")
        return
    kernels: dict[str, None] = {}
    for request in requests:
        config = request.config
        if config is None:
            traced.queried[request.unit] = None
            continue
        kernels[request.kernel] = None
        shape = LaunchShape(block=config.block, smem_bytes=config.smem_bytes, cluster=config.cluster)
        shapes = traced.kernels.setdefault(request.unit, {}).setdefault(request.kernel, [])
        shapes += [] if shape in shapes else [shape]
    call.kernels = tuple(kernels)
    traced.calls.append(call)


class _ValuesAreRead(Exception):
    """A body depends on the values of tensors, which skipped launches do not write."""


_DEPENDING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_TAKING_MEMORY = {"tolist", "numpy", "__array__", "__dlpack__"}


def _refuse_values(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not _DEPENDING.isdisjoint(getattr(func, "tags", ())):
        raise _ValuesAreRead
    return func(*args, **kwargs)


def _refuse_memory(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuse what takes the memory of a tensor past the dispatcher."""
    if getattr(func, "__name__", "") in _TAKING_MEMORY:
        raise _ValuesAreRead
    return func(*args, **kwargs)


def _requests(
    call: SampleCall, arch: str, around: Callable[[], AbstractContextManager[object]]
) -> list[KernelRequest]:
    """Return the launches of a body; one that reads values runs in the simulator."""
    requests: list[KernelRequest] = []
    name, bodies = call.overload.qualified_name, around_bodies(around, skipped=True)
    if call.backward:
        with (
            listening_for_kernels(requests.append),
            simulate(arch=arch),
            around_bodies(partial(_skipped, name, around), skipped=True),
        ):
            call.run()
        return requests
    with listening_for_kernels(requests.append), simulate(arch=arch), torch.no_grad(), bodies:
        skipped = entering_scope(LaunchPolicy.SKIP, operator=name)
        if not call.overload.has_fake:
            with skipped:
                call.run()
            return requests
        body = call.overload.body
        assert body is not None  # an overload of a library is not traced
        try:
            with skipped, around(), FunctionMode(_refuse_memory), OperatorMode(_refuse_values):
                body(*call.sample.args, **call.sample.kwargs)
            return requests
        except _ValuesAreRead:
            requests.clear()
        try:
            call.run()
        except SimulationError:  # of a launch that the simulator lacks
            with suppress(Exception), entering_scope(LaunchPolicy.SKIP, operator=name), around():
                body(*call.sample.args, **call.sample.kwargs)  # it may read what they would write
    return requests


@contextmanager
def _skipped(name: str, around: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Run a body without its launches, also where a backward calls it, which leaves the scope of a call."""
    with entering_scope(LaunchPolicy.SKIP, operator=name), around():
        yield


def count(calls: Sequence[SampleCall], target: Target) -> tuple[dict[str, SimulatedCounts], list[str]]:
    """Simulate one call for each kernel; return the counts by kernel, and notes on what was not counted."""
    counted: dict[str, SimulatedCounts] = {}
    notes: list[str] = []
    chosen: dict[SampleCall, list[str]] = {}
    for name in dict.fromkeys(name for call in calls for name in call.kernels):
        launching = [call for call in calls if name in call.kernels]
        fitting = [call for call in launching if call.elements <= MAX_ELEMENTS]
        size = attrgetter("elements")
        chosen.setdefault(max(fitting, key=size) if fitting else min(launching, key=size), []).append(name)
    for call, names in chosen.items():
        try:
            counters = _simulated(call, target)
        except DotcuError as error:
            notes.append(f"{call.name} could not be counted in the simulator: {error}")
            continue
        for name in names:
            if name in counters:
                total = counters[name]
                lines = {SourceLocation(file, line): counts for (file, line), counts in total.lines.items()}
                counted[name] = SimulatedCounts(call=call.name, total=total, lines=lines)
            else:
                notes.append(f"{name} is launched only on a GPU, so there are no counts of it")
    return counted, notes


def _simulated(call: SampleCall, target: Target) -> dict[str, Counters]:
    counters: dict[str, Counters] = {}
    arch = str(target).replace("compute_", "sm_")
    with simulate(arch=arch, on_finding="collect", checks=()) as simulation, torch.no_grad():

        def switch(request: KernelRequest) -> None:
            if request.config is not None:
                simulation.counters = counters.setdefault(request.kernel, Counters())

        with listening_for_kernels(switch):
            call.run()
    return counters

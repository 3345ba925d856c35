"""The subject of a check: one overload, on one device, at one level, from one seed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import torch
from torch import Tensor

from dotcu.checking.budget import Budget
from dotcu.checking.cases.samples import Case, samples_of, seed_of, short
from dotcu.checking.catalogue import Level
from dotcu.checking.memory import PoisonedBuffers, poisoning, require_memory, same_bits
from dotcu.checking.numerics import Oracle, oracle, outputs
from dotcu.errors import ArgumentError, OperatorError, SimulationError
from dotcu.kernel import simulate
from dotcu.kernel.languages import ADAPTERS
from dotcu.kernel.launch_policy import current_scope
from dotcu.kernel.simulated_memory import FunctionMode
from dotcu.operator import Overload, Sample
from dotcu.operator.execution import around_bodies
from dotcu.simulator import Run
from dotcu.tracebacks import own_fault

REFUSALS = (ArgumentError, TypeError, ValueError, NotImplementedError)
"""The errors by which an operator may refuse a call that its reference would take."""


GROUP = "group_name"
"""The argument by which an operator names a process group, as torch's collectives do."""


class _Launched(BaseException):
    """A kernel was launched. Operators do not catch it: no Exception."""


class ReferenceCalls(OperatorError):
    """A reference has the body of an operator compute for it."""


def _calls(judged: str, called: str) -> ReferenceCalls:
    return ReferenceCalls(
        f"the reference of {judged} calls the operator {called}.\n"
        "A reference must not depend on dotcu operators: use torch functions only."
    )


def _refuse(overload: Overload) -> FunctionMode:
    """Refuse calls of an operator that a library computes: no body reports them."""
    name = overload.signature.packet_name if overload.body is None else ""

    def handle(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        called = getattr(func, "overloadpacket", func)  # an OpOverload, or the packet of several
        if name and getattr(called, "_qualified_op_name", "") == name:
            raise _calls(name, name)
        return func(*args, **kwargs)

    return FunctionMode(handle)


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """One overload under check.

    Attributes:
        device: CUDA tensors go to the GPU, CPU tensors to the simulator.
        seed: What every random number starts from, together with the name of what it is for.
        budget: Of the simulator's work, at the quick level.
    """

    overload: Overload
    device: torch.device
    level: Level = Level.STANDARD
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    _given: dict[torch.dtype, list[Case]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The overload's qualified name."""
        return self.overload.qualified_name

    @property
    def on_gpu(self) -> bool:
        """Return whether kernels run on a GPU."""
        return self.device.type == "cuda"

    @property
    def has_body(self) -> bool:
        """Return whether a body computes it, which dotcu can look into, and not a library."""
        return self.overload.body is not None

    @property
    def communicates(self) -> bool:
        """Return whether it meets the other ranks of a process group."""
        return GROUP in self.overload.signature.arguments

    @property
    def simulated(self) -> bool:
        """Return whether calls run in the simulator."""
        return not self.on_gpu and (self.has_body or self.launches)

    @functools.cached_property
    def launches(self) -> bool:
        """True if a library's operator launches kernels in `simulate()`, as one of Triton does.

        It is called, up to its first launch, where a package is imported whose launches are simulated.
        """
        case = next(filter(None, map(self.smallest, self.overload.dtypes)), None)
        if self.has_body or self.on_gpu or case is None or not any(map(sys.modules.get, ADAPTERS)):
            return False

        def end(kernel: str, ended: int, blocks: int) -> None:
            raise _Launched

        try:
            with self.seeded(case.name), simulate(on_finding="collect") as run:
                run.progress = end
                self.call(case.make())
        except _Launched:
            return True
        except Exception as error:  # one that has a launch in it, or one that other trials report
            refuses = type(error).__module__.partition(".")[0] in ADAPTERS
            return refuses or isinstance(error, SimulationError) or bool(run.launches)
        return bool(run.launches)

    @property
    def bounded(self) -> bool:
        """Return whether only so much is simulated as a quick check has time for."""
        return self.simulated and self.level == Level.QUICK

    @property
    def where(self) -> str:
        """The device as `check` takes it and a report shows it: `cuda:0`, `simulator`, `cpu` of a library."""
        return str(self.device) if self.on_gpu else "simulator" if self.simulated else "cpu"

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The oracle as `call` sees the operator: it gives what it returns and what it writes.

        It raises ReferenceCalls where the body of an operator would compute for it.
        """
        function = self.overload.reference_function
        if function is None:
            return None

        def refuse() -> AbstractContextManager[object]:
            raise _calls(self.name, current_scope().operator)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with around_bodies(refuse), _refuse(self.overload):
                result = function(*args, **kwargs)
            return self.gives(Sample(*args, **kwargs), result) if self._gives_writes else result

        return call

    @property
    def _gives_writes(self) -> bool:
        return self.overload.functional is None and bool(self.overload.signature.mutates)

    @property
    def is_deterministic(self) -> bool:
        """Return whether the same arguments give the same bits, as far as its author says."""
        tags = (torch.Tag.nondeterministic_bitwise, torch.Tag.nondeterministic_seeded)
        return not any(map(self.declares, tags))

    def declares(self, tag: torch.Tag) -> bool:
        """Return whether the author gave the operator one of torch's tags."""
        return tag in self.overload.tags

    def tolerance(self, dtype: torch.dtype) -> float | None:
        """Return the tolerance that the author declared for a dtype; None if the bounds are dotcu's."""
        declared = self.overload.tolerance
        return declared.get(dtype) if isinstance(declared, Mapping) else declared

    def given(self, dtype: torch.dtype) -> list[Case]:
        """A case for each sample of the author's.

        Raises:
            OperatorError: The `samples` function failed, or gave something else.
        """
        if dtype not in self._given:
            with self.seeded(f"{self.name}/{short(dtype)}"):
                samples = list(samples_of(self.overload, self.device, dtype))  # it draws while it yields

            def case(number: int, sample: Sample) -> Case:
                return Case(dtype=dtype, number=number, build=lambda: sample)

            self._given[dtype] = list(starmap(case, enumerate(samples)))
        return self._given[dtype]

    def whole(self, dtype: torch.dtype) -> list[Case]:
        """The given cases in which no tensor is empty, those with the fewest elements first."""
        cases = [case for case in self.given(dtype) if all(t.numel() for t in case.sample.tensors)]
        return sorted(cases, key=lambda case: case.elements)

    def smallest(self, dtype: torch.dtype) -> Case | None:
        """Return the given case with the fewest elements in which no tensor is empty."""
        return next(iter(self.whole(dtype)), None)

    def takes(self, case: Case) -> bool:
        """Return whether there is such a call: of a doubtful one, whether a reference computes it."""
        if not case.doubtful and not case.finite:
            return True
        sample = case.build()
        if case.finite and (sample is None or not self._stays_finite(sample)):
            return False
        try:
            return sample is not None and self.reference is not None and self.reference_error(sample) is None
        except ReferenceCalls:  # the check of the reference says so
            return False

    def _stays_finite(self, sample: Sample) -> bool:
        """Return whether the reference of a call gives finite numbers, and of its sizes too."""
        if self.reference is None:
            return False
        for change in (torch.clone, lambda tensor: tensor.abs() if tensor.is_floating_point() else tensor):
            inputs = self.for_reference(sample).map_tensors(change)
            try:
                results = outputs(self.reference(*inputs.args, **inputs.kwargs))
            except Exception:
                return False
            # of 8-bit floats torch knows no isfinite
            if not all(bool(t.double().isfinite().all()) for t in results if t.is_floating_point()):
                return False
        return True

    def refuses(self, error: BaseException) -> bool:
        """Return whether the operator refuses a call by an error; a library's checks raise RuntimeError."""
        if own_fault(error):
            return False
        return isinstance(error, REFUSALS) or (not self.has_body and type(error) is RuntimeError)

    @contextmanager
    def place(self, seed: int | None = None) -> Iterator[Run | None]:
        """Return the context in which calls are made: the simulator, for CPU tensors; and its run.

        Args:
            seed: Shuffles warps and colliding atomics of the simulator.
        """
        with simulate(seed=seed) if self.simulated else nullcontext() as run:
            if run is not None and self.bounded:
                self.budget.watch(run)
            yield run

    def poisoning(self, byte: int) -> AbstractContextManager[PoisonedBuffers]:
        """Fill with a byte what the operator allocates of torch, until the block ends."""
        native = None if self.has_body else self.overload.torch_op
        return poisoning(byte, native, simulated=self.simulated)

    def call(self, sample: Sample) -> tuple[Tensor, ...]:
        """Call the operator: the tensors that it returns, and those that it wrote, in one row.

        An overload that writes `out` gives these; one that mutates, what it returns and the mutated.

        Raises:
            BodyError: What it returned has less memory than it says.
            Exception: What the call raises.
        """
        with torch.no_grad():
            given = self.gives(sample, self.overload(*sample.args, **sample.kwargs))
        require_memory(given)
        return given

    def gives(self, sample: Sample, result: Any) -> tuple[Tensor, ...]:
        """Return the tensors that a call, such as its reference's, returned, and those that it wrote."""
        if not self._gives_writes:
            return outputs(result)
        return (*(outputs(result) if self.overload.signature.returns else ()), *self.written(sample))

    def written(self, sample: Sample) -> tuple[Tensor, ...]:
        """The tensors among a call's arguments that the operator declares to write."""
        return outputs(self.overload.signature.written(sample.args, sample.kwargs))

    @contextmanager
    def seeded(self, name: str) -> Iterator[None]:
        """Start torch's random numbers from the seed and a name, and leave them as they were."""
        number = seed_of(name, self.seed)
        with torch.random.fork_rng([self.device] if self.on_gpu else []):
            torch.default_generator.manual_seed(number)
            if self.on_gpu:
                with torch.cuda.device(self.device):
                    torch.cuda.manual_seed(number)
            yield

    def for_reference(self, sample: Sample) -> Sample:
        """Return the inputs of the reference: copies on the CPU, without what the call only writes."""
        return self.inputs(sample).map_tensors(lambda tensor: tensor.detach().clone().cpu())

    def oracle(self, sample: Sample, dtype: torch.dtype) -> Oracle:
        """Compute what a call should give by the reference, and its bounds. There is a reference.

        Raises:
            Exception: What the reference raises.
        """
        assert self.reference is not None
        return oracle(
            self.reference, self.for_reference(sample), self.tolerance(dtype), flushes=self.adds_by_atomics
        )

    @property
    def adds_by_atomics(self) -> bool:
        """Return True if the author declares that its last bits vary, as those of sums by atomics do."""
        return self.declares(torch.Tag.nondeterministic_bitwise)

    def inputs(self, sample: Sample) -> Sample:
        """The call without what it only writes."""
        if self.overload.functional is None:
            return sample
        outs = self.overload.signature.outs
        return Sample(*sample.args, **{name: v for name, v in sample.kwargs.items() if name not in outs})

    def reference_draws(self, inputs: Sample) -> bool:
        """Return whether the reference gives random values, as its operator is declared to.

        Args:
            inputs: As `for_reference` gives them; they are left alone.

        Raises:
            Exception: What the reference raises.
        """
        if self.reference is None or not self.declares(torch.Tag.nondeterministic_seeded):
            return False
        results = []
        for seed in range(2):
            sample = inputs.map_tensors(torch.clone)
            with self.seeded(f"{self.name}/{seed}"):
                results.append(outputs(self.reference(*sample.args, **sample.kwargs)))
        return not same_bits(*results)

    def reference_error(self, sample: Sample) -> Exception | None:
        """Return the error that the reference raises on a call; None if it computes, or there is none.

        Raises:
            ReferenceCalls: It has an operator compute, and so says nothing of the call.
        """
        inputs = self.for_reference(sample)
        try:
            if self.reference is not None:
                self.reference(*inputs.args, **inputs.kwargs)
        except Exception as error:
            if isinstance(error, ReferenceCalls) or own_fault(error):
                raise
            return error
        return None

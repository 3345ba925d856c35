"""What is checked: one overload, on one device, at one level, from one seed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from dotcu.checking.cases.case import Case, seed_of, short
from dotcu.checking.cases.given import samples_of
from dotcu.checking.catalogue import Level
from dotcu.checking.numerics import outputs
from dotcu.checking.returned import require_memory
from dotcu.errors import OperatorError
from dotcu.kernel import simulate
from dotcu.kernel.context import current
from dotcu.operator import Overload, Sample
from dotcu.operator.execution import around_bodies


class ReferenceCalls(OperatorError):
    """A reference has the body of an operator compute for it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """One overload under check.

    Attributes:
        device: CUDA tensors go to the GPU, CPU tensors to the simulator.
        seed: What every random number starts from, together with the name of what it is for.
    """

    overload: Overload
    device: torch.device
    level: Level = Level.STANDARD
    seed: int = 0
    _given: dict[torch.dtype, list[Case]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The overload's qualified name."""
        return self.overload.qualified_name

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on a GPU."""
        return self.device.type == "cuda"

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The oracle as `call` sees the operator: it gives what it returns and what it writes.

        It raises ReferenceCalls where the body of an operator would compute for it.
        """
        function = self.overload.reference_function
        return None if function is None else self._with_writes(self._without_bodies(function))

    @property
    def is_deterministic(self) -> bool:
        """Whether the same arguments give the same bits, as far as its author says."""
        return not (
            self.declares(torch.Tag.nondeterministic_bitwise)
            or self.declares(torch.Tag.nondeterministic_seeded)
        )

    def declares(self, tag: torch.Tag) -> bool:
        """Whether the author gave the operator one of torch's tags."""
        return tag in self.overload.torch_op.tags

    def tolerance(self, dtype: torch.dtype) -> float | None:
        """What the author declared for a dtype, None where the bounds are dotcu's."""
        declared = self.overload.tolerance
        return declared.get(dtype) if isinstance(declared, Mapping) else declared

    def given(self, dtype: torch.dtype) -> list[Case]:
        """A case for each sample of the author's.

        Raises:
            OperatorError: The `samples` function failed, or gave something else.
        """
        if dtype not in self._given:
            name = short(dtype)
            with self.seeded(f"{self.name}/{name}"):
                samples = list(samples_of(self.overload, self.device, dtype))  # it draws while it yields
            self._given[dtype] = [
                Case(name=f"{name}-s{i}", dtype=dtype, sample=sample, derived=False)
                for i, sample in enumerate(samples)
            ]
        return self._given[dtype]

    def smallest(self, dtype: torch.dtype) -> Case | None:
        """Of the given cases in which no tensor is empty, the one with the fewest elements."""
        cases = [case for case in self.given(dtype) if all(t.numel() for t in case.sample.tensors)]
        return min(cases, key=lambda case: sum(t.numel() for t in case.sample.tensors), default=None)

    def place(self, seed: int | None = None) -> AbstractContextManager[object]:
        """What calls are made in: the simulator, for CPU tensors.

        Args:
            seed: Shuffles warps and colliding atomics of the simulator.
        """
        return nullcontext() if self.on_gpu else simulate(seed=seed)

    def call(self, sample: Sample) -> tuple[torch.Tensor, ...]:
        """Call the operator: the tensors that it returns, and those that it wrote, in one row.

        An overload that writes `out` gives these; one that mutates, what it returns and the mutated.

        Raises:
            BodyError: What it returned has less memory than it says.
            Exception: What the call raises.
        """
        with torch.no_grad():
            given = outputs(self._with_writes(self.overload)(*sample.args, **sample.kwargs))
        require_memory(given)
        return given

    def gives(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> tuple[torch.Tensor, ...]:
        """What a call that was made gives: what it returned, and what it wrote of its arguments, in one row.

        The result may be that of anything that is called as the operator is: of a reference, say.
        """
        signature = self.overload.signature
        if self.overload.functional is not None or not signature.mutates:
            return outputs(result)
        returned = () if signature.outs else outputs(result)
        return outputs((*returned, *signature.written(args, kwargs)))

    @contextmanager
    def seeded(self, name: str) -> Iterator[None]:
        """Start torch's random numbers from the seed and a name, and leave them as they were."""
        gpus = [self.device] if self.on_gpu else []
        with torch.random.fork_rng(gpus):
            number = seed_of(name, self.seed)
            torch.default_generator.manual_seed(number)
            for gpu in gpus:
                with torch.cuda.device(gpu):
                    torch.cuda.manual_seed(number)
            yield

    def for_reference(self, sample: Sample) -> Sample:
        """What the reference takes: copies on the CPU, without what the call only writes."""
        return self.inputs(sample).map_tensors(lambda tensor: tensor.detach().clone().cpu())

    def inputs(self, sample: Sample) -> Sample:
        """The call without what it only writes."""
        if self.overload.functional is None:
            return sample
        outs = self.overload.signature.outs
        return Sample(*sample.args, **{name: v for name, v in sample.kwargs.items() if name not in outs})

    def reference_error(self, sample: Sample) -> Exception | None:
        """What the reference raises on a call; None where it computes, or there is none.

        Raises:
            ReferenceCalls: It has an operator compute, and so says nothing of the call.
        """
        inputs = self.for_reference(sample)
        try:
            if self.reference is not None:
                self.reference(*inputs.args, **inputs.kwargs)
        except ReferenceCalls:
            raise
        except Exception as error:
            return error
        return None

    def _without_bodies(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def refuse() -> AbstractContextManager[object]:
            raise ReferenceCalls(
                f"the reference of {self.name} calls the operator {current().operator}.\n"
                "An oracle must not hang on what it judges: compute by torch alone."
            )

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with around_bodies(refuse):
                return function(*args, **kwargs)

        return call

    def _with_writes(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.overload.functional is not None or not self.overload.signature.mutates:
            return function

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.gives(args, kwargs, function(*args, **kwargs))

        return call

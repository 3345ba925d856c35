"""One signature of an operator, and what was said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from dotcu.errors import SchemaError, UsageError
from dotcu.operator import autograd, register, warming
from dotcu.operator.replaying import Replay
from dotcu.operator.samples import Sample, SampleFunction
from dotcu.operator.schema import Body, Signature

Tolerance = float | Mapping[torch.dtype, float] | None
"""A relative error that `check` allows: one for all dtypes, or some for each; None to have it found."""

WorkFunction = Callable[..., tuple[int, int]]
Registered = TypeVar("Registered")


class Overload:
    """One signature of an operator, and what was said of it: reference, backward, samples and more.

    Each of the methods `reference`, `backward`, `setup_context`, `samples`, `fake`, `vmap` and `work`
    decorates one function and gives it back. Calling the overload calls the operator.
    """

    body: Body | None = None
    """The function that it was made of; None where a library computes it."""

    def __init__(
        self,
        registration: register.Registration,
        *,
        dtypes: Sequence[torch.dtype],
        tolerance: Tolerance = None,
        family: Mapping[str, Overload] | None = None,
    ) -> None:
        self.signature: Signature = registration.signature
        self.dtypes = tuple(dtypes)
        self.tolerance = tolerance
        self._beside = family
        self._registration = registration
        self._reference: Callable[..., Any] | None = None
        self._derivative = autograd.Derivative()
        self._samples: SampleFunction | None = None
        self._fake: Callable[..., Any] | None = None
        self._vmap: Callable[..., Any] | None = None
        self._work: WorkFunction | None = None
        self._call: Callable[..., Any] = registration.operator
        self.__name__ = self.signature.name

    def resolve(self) -> None:
        """Call what `torch.ops` has of this overload now."""
        self._call = self._registration.operator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._call(*args, **kwargs)
        return self._written(kwargs) if self.signature.outs else result

    def _written(self, kwargs: dict[str, Any]) -> Any:
        """What the Python call of an `out=` overload gives: the tensors that were written."""
        outs = tuple(kwargs[name] for name in self.signature.outs)
        return None if not outs else outs[0] if len(outs) == 1 else outs

    # What was said of it.

    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the operator in plain PyTorch: the oracle, and what a call on CPU tensors computes.

        It takes the operator's arguments. For an operator that writes its arguments it writes them too; an
        overload `out` or `Scalar_out` has none of its own: that of the operator or of `Scalar` serves.

        Raises:
            UsageError: The overload is such a one.
        """
        if self.functional is not None:
            raise UsageError(
                f"{self.qualified_name} writes what {self.functional.qualified_name} returns, so the "
                "reference of that serves.\n"
                f"Remove this one, and give {self.functional.qualified_name} its reference."
            )
        self._reference = function
        return function

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the gradient, with torch.library.register_autograd's meaning.

        `function(ctx, *grads)` returns one gradient, or None, for each positional argument. It may call
        operators, this one too, but no kernel: a launch in it raises `TracedLaunchError`.

        Raises:
            SchemaError: The operator writes its arguments, or takes a tensor by keyword only.
        """
        by_keyword = self._registration.keyword_tensors
        if self.signature.mutates or by_keyword:
            why = (
                "writes its arguments" if self.signature.mutates else f"takes {by_keyword[0]} by keyword only"
            )
            raise SchemaError(
                f"{self.signature} {why}, so it cannot have a backward.\n"
                "A gradient is for positional tensors of an operator that returns its result."
            )
        self._derivative = autograd.Derivative(
            backward=function, setup_context=self._derivative.setup_context
        )
        return function

    def setup_context(self, function: Callable[..., None]) -> Callable[..., None]:
        """Give what a call keeps for its backward: `function(ctx, inputs, output)`.

        An operator with keyword-only arguments gets them as `keyword_only_inputs`.
        """
        self._derivative = autograd.Derivative(backward=self._derivative.backward, setup_context=function)
        return function

    def samples(self, function: SampleFunction) -> SampleFunction:
        """Give what `check` and `bench` call it with: `function(device, dtype)` yields `Sample`s."""
        self._samples = function
        return function

    def fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the shapes where the body cannot: where its result's shape hangs on values."""
        self._fake = function
        return function

    def vmap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give a batching rule for torch.func.vmap, with torch.library.register_vmap's meaning.

        `function(info, in_dims, *args, **kwargs)` returns the result and its `out_dims`; it may call
        operators, this one too. Without a rule torch calls the operator for each element, and warns.

        Raises:
            SchemaError: The operator takes a tensor by keyword only.
        """
        by_keyword = self._registration.keyword_tensors
        if by_keyword:
            raise SchemaError(
                f"{self.signature} takes {by_keyword[0]} by keyword only, so it cannot have a "
                "batching rule.\nA rule is told the batch dimensions of positional tensors: make it one."
            )
        if self._vmap is None:
            self._registration.implement_vmap(self._batched)
        self._vmap = function
        return function

    def _batched(self, *args: Any, **kwargs: Any) -> Any:
        assert self._vmap is not None
        return self._vmap(*args, **kwargs)

    def autocast(self, dtype: torch.dtype) -> Callable[[Registered], Registered]:
        """Let `torch.autocast` cast floating inputs, float64 apart, to `dtype`.

        Takes effect by the call alone; as a decorator it gives the decorated function back.
        """
        if dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise UsageError(
                f"{self.qualified_name}.autocast takes bfloat16, float16 or float32 (got {dtype!r}).\n"
                f"Type: {self.signature.name}.autocast(torch.bfloat16)"
            )
        self._registration.implement_autocast(dtype)
        return lambda function: function

    def work(self, function: WorkFunction) -> WorkFunction:
        """Give the bytes moved and the FLOPs of a call: `function(*args, **kwargs) -> (bytes, flops)`."""
        self._work = function
        return function

    # What others ask.

    @property
    def qualified_name(self) -> str:
        """The name in the dispatcher: `mylib::scale_add.out`."""
        return self.signature.qualified_name

    @property
    def torch_op(self) -> Any:
        """The `torch._ops.OpOverload`, as torch's own tools take it."""
        return self._registration.operator

    @property
    def library(self) -> Path | None:
        """The file of the library that computes it; None where a body does, or nobody knows the file."""
        return None

    @property
    def tags(self) -> frozenset[torch.Tag]:
        """torch's tags for it."""
        return frozenset(self.torch_op.tags)

    @property
    def functional(self) -> Overload | None:
        """For an overload that writes `out`, the one that returns the same result instead.

        As in torch, `out` belongs to the operator itself and `Scalar_out` to the overload `Scalar`.
        """
        name = self.signature.overload
        family = self._beside
        if family is None or not self.signature.outs or not f"_{name}".endswith("_out"):
            return None
        return family.get(name.removesuffix("out").removesuffix("_"))

    @property
    def reference_function(self) -> Callable[..., Any] | None:
        """The reference; an overload that writes `out` has that of the one that returns its result."""
        return self._reference if self.functional is None else self.functional.reference_function

    @property
    def autocasts(self) -> bool:
        """Whether it has a rule for autocast, whoever gave it."""
        return self._registration.autocasts

    @property
    def replay(self) -> Replay:
        """How calls on a GPU are replayed so far: how many plans there are, and why a call had none."""
        return Replay(path="no plans", plans=0, reasons=(self.unreplayed,))

    @property
    def unreplayed(self) -> str:
        """Why no call is ever replayed; empty where calls may be."""
        return "a library computes it, so there is no body to make plans of"

    @property
    def has_fake(self) -> bool:
        """Whether a fake was given, since the body reads values."""
        return self._fake is not None

    @property
    def has_backward(self) -> bool:
        """Whether a backward was given."""
        return self._derivative.backward is not None

    @property
    def has_vmap(self) -> bool:
        """Whether it has a batching rule."""
        return self._vmap is not None

    @property
    def lacks_fake(self) -> bool:
        """Whether nothing tells torch.compile what a call gives."""
        return not self._registration.fakes

    @property
    def has_samples(self) -> bool:
        """Whether samples of its own were given."""
        return self._samples is not None

    def make_samples(self, device: torch.device, dtype: torch.dtype) -> Iterable[Sample]:
        """The samples that were given, for a device and dtype; none where no function was given."""
        return () if self._samples is None else self._samples(device, dtype)

    @property
    def declares_work(self) -> bool:
        """Whether a `work` function says what a call does: its own, or that of `functional`."""
        return self._work is not None or (self.functional is not None and self.functional.declares_work)

    def work_of(self, sample: Sample, result: Any) -> tuple[int, int]:
        """Bytes moved and FLOPs of a call; without a `work` function, every tensor once and no FLOPs."""
        if self._work is not None:
            return self._work(*sample.args, **sample.kwargs)
        if self.functional is not None and self.declares_work:
            inputs = {name: v for name, v in sample.kwargs.items() if name not in self.signature.outs}
            return self.functional.work_of(Sample(*sample.args, **inputs), result)
        results = result if isinstance(result, (tuple, list)) else (result,)
        tensors = [*sample.tensors, *(value for value in results if isinstance(value, torch.Tensor))]
        unique = {id(tensor): tensor for tensor in tensors}
        return sum(tensor.numel() * tensor.element_size() for tensor in unique.values()), 0

    def warm(self) -> None:
        """Compile and load every kernel that the samples reach, before a CUDA graph capture, say.

        Calls this overload, and its backward where it has one, with each sample of each dtype, on every
        CUDA device, or in the simulator where there is none.

        Raises:
            UsageError: It has no samples.
            CaptureError: A CUDA graph is being captured.

        Note:
            Synchronizes. torch's random numbers and the current device stay as they were.
        """
        warming.warm([self], self.signature.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Overload:
        return self  # like a function: there is one of it

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self.__name__

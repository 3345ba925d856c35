"""Overloads: one signature of an operator, with its reference, backward, samples and more."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.compiler import is_dynamo_compiling
from torch.utils._pytree import tree_leaves

from dotcu import torch_compat
from dotcu.compile import Target
from dotcu.compile.plan import BuildInputs
from dotcu.compile.pool import build_all
from dotcu.errors import DotcuError, JitDisabled, SchemaError, UsageError
from dotcu.kernel import cuda, simulate
from dotcu.kernel.compiled import target_of
from dotcu.kernel.faults import require_own_cuda
from dotcu.kernel.launch import KernelRequest, listening_for_kernels
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope, refuse_captured_warming
from dotcu.kernel.simulated_memory import OperatorMode
from dotcu.operator import autograd, register
from dotcu.operator.execution import device_of
from dotcu.operator.samples import Sample, SampleFunction, describe
from dotcu.operator.schema import OperatorBody, Signature
from dotcu.operator.sharding import Sharding, ShardingRule, rules, validate
from dotcu.tracebacks import shorten

Tolerance = float | Mapping[torch.dtype, float] | None
"""The relative error that `check` allows: one for all dtypes, or by dtype; None to compute it."""

WorkFunction = Callable[..., tuple[int, int]]
Progress = Callable[[int, int], object]
"""Called with the number of compiles that are done, and of all."""

SIMULATED = Target.parse("compute_80")
"""What the simulator stands for unless it is asked otherwise."""

Registered = TypeVar("Registered")
Declared = TypeVar("Declared", bound=Sharding)


def _require_arguments(
    what: str, function: Callable[..., Any], names: Sequence[str], *, by_name: bool
) -> None:
    """Raise if a function cannot be called with some arguments, as torch calls it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # it does not tell
        return
    try:
        signature.bind(**dict.fromkeys(names)) if by_name else signature.bind(*names)
    except TypeError as error:
        how = "by these names" if by_name else "in this order"
        name = getattr(function, "__name__", "_").replace("<lambda>", "_")
        raise SchemaError(
            f"{what} is called with {', '.join(names)}, {how}; the function takes {signature}.\n"
            f"Write: def {name}({', '.join(names)}): ..."
        ) from error


class Overload:
    """One signature of an operator, with its reference, backward, samples and more.

    Each of the methods `reference`, `backward`, `setup_context`, `samples`, `fake`, `vmap` and `work`
    decorates one function and returns it. Calling the overload calls the operator.
    """

    body: OperatorBody | None = None
    """The decorated function; None if a library computes the operator."""

    overloads: Mapping[str, Overload]
    """The overloads of its operator by name, itself included."""

    def __init__(
        self,
        registration: register.Registration,
        *,
        dtypes: Sequence[torch.dtype],
        tolerance: Tolerance = None,
        overloads: Mapping[str, Overload] | None = None,
    ) -> None:
        self.signature: Signature = registration.signature
        self.dtypes = tuple(dtypes)
        self.tolerance = tolerance
        self.overloads = {self.signature.overload: self} if overloads is None else overloads
        self._registration = registration
        self._reference: Callable[..., Any] | None = None
        self._backward: autograd.Backward | None = None
        self._setup_context: autograd.SetupContext | None = None
        self._samples: SampleFunction | None = None
        self._fake: Callable[..., Any] | None = None
        self._vmap: Callable[..., Any] | None = None
        self._work: WorkFunction | None = None
        self._sharding: Sharding | None = None
        self.waived: dict[str, str] = {}
        self._call: Callable[..., Any] = registration.operator
        self.__name__ = self.signature.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self._dispatch(*args, **kwargs)
        except Exception as error:
            __tracebackhide__ = True
            shorten(error)
            raise error  # DOTCU_DEBUG=1 shows the frames of dotcu
        return self._written(kwargs) if self.signature.outs else result

    def _dispatch(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return self._call(*args, **kwargs)
        with torch_compat.keeping_autocast():  # in inference mode no kernel of ours comes before a mode
            return self._call(*args, **kwargs)

    def _written(self, kwargs: dict[str, Any]) -> Any:
        """Return the tensors that a call of an `out=` overload has written."""
        outs = tuple(kwargs[name] for name in self.signature.outs)
        return None if not outs else outs[0] if len(outs) == 1 else outs

    def reference(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set the operator in plain PyTorch: the oracle of `check`, and the result of calls on CPU tensors.

        It takes the operator's arguments, and writes those that the operator writes. An overload `out` or
        `Scalar_out` has none of its own: that of the operator or of `Scalar` serves.

        Raises:
            UsageError: The overload is such a one.
        """
        if self.functional is not None:
            raise UsageError(
                f"{self.qualified_name} writes what {self.functional.qualified_name} returns, whose "
                "reference is used.\n"
                f"Remove this one, and give {self.functional.qualified_name} its reference."
            )
        self._reference = function
        return function

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set the backward, with torch.library.register_autograd's meaning.

        `function(ctx, *grads)` returns one gradient, or None, for each positional argument. It may call
        operators, this one too, but no kernel: a launch in it raises `TracedLaunchError`.

        Raises:
            SchemaError: The operator writes its arguments, or takes a tensor by keyword only; or the function
                takes other arguments.
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
        grads = (
            ["grad"] if self.signature.returns == 1 else [f"grad{i}" for i in range(self.signature.returns)]
        )
        _require_arguments("backward", function, ["ctx", *grads], by_name=False)
        self._backward = function
        return function

    def setup_context(self, function: Callable[..., None]) -> Callable[..., None]:
        """Set the function that saves for the backward: `function(ctx, inputs, output)`.

        Keyword-only arguments are passed as `keyword_only_inputs`.

        Raises:
            SchemaError: The function takes other arguments.
        """
        names = ["ctx", "inputs", "output", *["keyword_only_inputs"] * bool(self.signature.keyword_only)]
        _require_arguments("setup_context", function, names, by_name=True)
        self._setup_context = function
        return function

    def samples(self, function: SampleFunction) -> SampleFunction:
        """Set the arguments for `check` and `bench`: `function(device, dtype)` yields `Sample`s."""
        self._samples = function
        return function

    def waive(self, case: str, reason: str) -> None:
        """Let `check` leave out a case that this overload is known to fail, and report it with the reason.

        Args:
            case: The end of the name of a trial: `nan` for `mylib::scale/call/float32-s0-nan` in each dtype,
                or all of it behind the overload: `call/float32-s0-nan`.
            reason: Why this case need not hold: "padding has the weight 0, and 0 * NaN is 0 here".

        Raises:
            UsageError: One of the two is empty.
        """
        if not (case.strip() and reason.strip()):
            raise UsageError(
                f"{self.qualified_name}.waive takes a case and a reason (got {case!r}, {reason!r}).\n"
                f'Type: {self.__name__}.waive("nan", "why it need not hold")'
            )
        self.waived[case] = reason

    def fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set the fake kernel, for a result whose shape depends on values, which the body cannot give."""
        self._fake = function
        return function

    def vmap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set the batching rule for torch.func.vmap, with torch.library.register_vmap's meaning.

        `function(info, in_dims, *args, **kwargs)` returns the result and its `out_dims`; it may call
        operators, this one too. Without a rule torch calls the operator for each element, and warns.

        Raises:
            SchemaError: The operator takes a tensor by keyword only.
        """
        by_keyword = self._registration.keyword_tensors
        if by_keyword:
            raise SchemaError(
                f"{self.signature} takes {by_keyword[0]} by keyword only, so it cannot have a "
                "batching rule.\nA rule gets the batch dimensions of positional tensors: make it one."
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

        The call alone has this effect; as a decorator it returns the decorated function.

        Raises:
            SchemaError: The operator writes its arguments, and would write copies of another dtype.
            UsageError: autocast knows no such dtype.
        """
        if self.signature.mutates:
            raise SchemaError(
                f"{self.signature} writes {', '.join(self.signature.mutates)}, and a cast would be a copy, "
                "whose write is lost.\n"
                "A rule for autocast is for an operator that returns its result. In the body, cast what is "
                "read only: y.to(x.dtype)."
            )
        if dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise UsageError(
                f"{self.qualified_name}.autocast takes bfloat16, float16 or float32 (got {dtype!r}).\n"
                f"Type: {self.__name__}.autocast(torch.bfloat16)"
            )
        self._registration.implement_autocast(dtype)
        return lambda function: function

    def sharding(self, declared: Declared) -> Declared:
        """Declare how tensors may be split over the ranks of a mesh, for calls on DTensors.

        A rule such as `"x:0 residual:0 -> 0, 0"` says of the arguments that are split, and of each result,
        along which dimension; `rows` stands for every dimension but the last; `sum`, `avg`, `max` and `min`
        for parts that are still to be reduced; `*` and arguments that are not named for whole tensors.
        `"elementwise"` and `"replicated"` are whole declarations. `dotcu check --shardings` finds rules.

        Args:
            declared: A rule, several, or a function of the operator's arguments that returns them, for which
                this is a decorator. Of a tensor the function may ask `shape` and `ndim`.

        Raises:
            UsageError: A rule has another form, or names what is no tensor of the operator.
        """
        validate(declared, self.signature)
        self._sharding = declared
        for each in dict.fromkeys((self, *self.overloads.values())):
            if each.declared_sharding is declared:
                each.register_sharding()
        return declared

    def register_sharding(self) -> None:
        """Give DTensor the declared sharding."""
        self._registration.implement_sharding(self.sharding_rules)

    def sharding_rules(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[ShardingRule]:
        """Return the rules that are declared for a call, besides that every tensor is whole."""
        declared = self.declared_sharding
        return [] if declared is None else rules(declared, self.signature, args, kwargs)

    @property
    def declared_sharding(self) -> Sharding | None:
        """The declaration given to `sharding`, its own or that of `functional`."""
        if self._sharding is None and self.functional is not None:
            return self.functional.declared_sharding
        return self._sharding

    def work(self, function: WorkFunction) -> WorkFunction:
        """Set the work of a call in bytes moved and FLOPs: `function(*args, **kwargs) -> (bytes, flops)`."""
        self._work = function
        return function

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
        """The file of the library that computes it; None if a body does, or the file is unknown."""
        return None

    @property
    def tags(self) -> frozenset[torch.Tag]:
        """torch's tags for it."""
        return frozenset(self.torch_op.tags)

    @property
    def functional(self) -> Overload | None:
        """The overload that returns the result that this one writes to `out`.

        As in torch, `out` belongs to the operator itself and `Scalar_out` to the overload `Scalar`.
        """
        name = self.signature.overload
        if not self.signature.outs or not f"_{name}".endswith("_out"):
            return None
        return self.overloads.get(name.removesuffix("out").removesuffix("_"))

    @property
    def reference_function(self) -> Callable[..., Any] | None:
        """The reference; an overload that writes `out` has that of the one that returns its result."""
        return self._reference if self.functional is None else self.functional.reference_function

    @property
    def autocasts(self) -> bool:
        """True if it has a rule for autocast, of dotcu or of a library."""
        return self._registration.autocasts

    @property
    def has_fake(self) -> bool:
        """True if `fake` was called: the body reads values."""
        return self._fake is not None

    @property
    def has_backward(self) -> bool:
        """True if it has a backward."""
        return self._backward is not None

    @property
    def has_vmap(self) -> bool:
        """True if it has a batching rule."""
        return self._vmap is not None

    @property
    def lacks_fake(self) -> bool:
        """True if torch.compile cannot infer its results' shapes."""
        return not self._registration.fakes

    @property
    def has_samples(self) -> bool:
        """True if it has samples of its own."""
        return self._samples is not None

    def make_samples(self, device: torch.device, dtype: torch.dtype) -> Iterable[Sample]:
        """Return its samples for a device and dtype; none if it has no `samples` function."""
        return () if self._samples is None else self._samples(device, dtype)

    @property
    def declares_work(self) -> bool:
        """True if there is a `work` function: its own, or that of `functional`."""
        return self._work is not None or (self.functional is not None and self.functional.declares_work)

    def work_of(self, sample: Sample, result: Any) -> tuple[int, int]:
        """Return bytes moved and FLOPs of a call; without `work`, every tensor once and no FLOPs."""
        if self._work is not None:
            return self._work(*sample.args, **sample.kwargs)
        if self.functional is not None and self.declares_work:
            inputs = {name: v for name, v in sample.kwargs.items() if name not in self.signature.outs}
            return self.functional.work_of(Sample(*sample.args, **inputs), result)
        results = result if isinstance(result, (tuple, list)) else (result,)
        tensors = [*sample.tensors, *(value for value in results if isinstance(value, torch.Tensor))]
        unique = {id(tensor): tensor for tensor in tensors}
        return sum(tensor.numel() * tensor.element_size() for tensor in unique.values()), 0

    def warm(self, samples: Iterable[Sample] | None = None, *, progress: Progress | None = None) -> None:
        """Compile and load every kernel that the samples reach, before a CUDA graph capture, for example.

        Compiles on all cores what is in no cache and no wheel. Then calls this overload, and its backward
        where it has one, with each sample of each dtype, on every CUDA device; without one, in the simulator.

        Args:
            samples: Calls to make instead, on the devices of their tensors: those that will come.
            progress: Is called before the first compile and after each: how many are done, of how many.

        Raises:
            UsageError: It has no samples.
            CaptureError: A CUDA graph is being captured.

        Note:
            Synchronizes. torch's random numbers and the current device stay as they were.
        """
        warm([self], self.signature.name, samples, progress)

    def __deepcopy__(self, memo: dict[int, Any]) -> Overload:
        return self  # like a function, it is not copied

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self.__name__


# Warming: call operators beforehand, so that later calls load nothing.


def warm(
    overloads: Sequence[Overload],
    name: str,
    samples: Iterable[Sample] | None = None,
    progress: Progress | None = None,
) -> None:
    """Do as `Overload.warm` says, for several; `samples` are those of the first, and `name` is for messages.

    An overload that writes what another returns is called on the samples of that one.
    """
    require_own_cuda(f"{name}.warm()")
    if cuda.capturing():
        refuse_captured_warming(name)
    count = torch.cuda.device_count() if cuda.available() else 0
    devices = [torch.device("cuda", index) for index in range(count)] or [torch.device("cpu")]
    given = None if samples is None else _by_device(name, samples)
    silent: dict[str, None] = {}
    with torch.random.fork_rng(range(count), device_type="cuda"):
        for device in devices if given is None else given:
            with simulate() if device.type == "cpu" else torch.cuda.device(device):
                if given is not None:
                    _compile_ahead([(overloads[0], each) for each in given[device]], device, progress)
                    _call_each(overloads[0], given[device], device)
                    continue
                made = {overload: _declared(overload, device) for overload in overloads}
                ahead = [(overload, sample) for overload, some in made.items() for sample in some]
                _compile_ahead(ahead, device, progress)
                for overload in overloads:
                    of_twin = _with_outs(overload, made, device)
                    if not _call_each(overload, made[overload] or of_twin, device):
                        silent[overload.qualified_name] = None
    if silent:
        raise UsageError(
            f"{name}.warm() calls operators with their samples, and there are none of {', '.join(silent)}.\n"
            f"Give it some with @{name}.samples, or warm kernels instead of operators: kernels.warm().\n"
            "Or call it once, before a capture, with the dtypes that it will get."
        )


def _by_device(name: str, samples: Iterable[Sample]) -> dict[torch.device, list[Sample]]:
    by_device: dict[torch.device, list[Sample]] = {}
    for sample in samples:
        if not isinstance(sample, Sample):
            raise UsageError(
                f"{name}.warm() takes samples, got {describe(sample)}.\n"
                f"Type: {name}.warm([dotcu.Sample(x, alpha=0.5)])"
            )
        by_device.setdefault(device_of(sample.args, dict(sample.kwargs)), []).append(sample)
    return by_device


def _call_each(overload: Overload, samples: Iterable[Sample], device: torch.device) -> int:
    """Call an overload with samples; return the number of calls."""
    calls = 0
    for sample in samples:
        calls += 1
        _call(overload, sample)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return calls


def _declared(overload: Overload, device: torch.device) -> list[Sample]:
    return [sample for dtype in overload.dtypes for sample in overload.make_samples(device, dtype)]


def _zeroed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Zero what a body allocates: it may index by the values, and its launches are skipped."""
    result = func(*args, **kwargs)
    return result.zero_() if "empty" in func.__name__ else result


def _compile_ahead(
    calls: Iterable[tuple[Overload, Sample]], device: torch.device, progress: Progress | None
) -> None:
    """Compile, on all cores and into the cache, what calls will need; what is not found here they compile."""
    requests: list[KernelRequest] = []
    with listening_for_kernels(requests.append), torch.no_grad():
        for overload, sample in calls:
            if overload.body is not None:
                own = sample.map_tensors(torch.clone)
                skipped = entering_scope(LaunchPolicy.SKIP, operator=overload.qualified_name)
                with suppress(Exception), skipped, OperatorMode(_zeroed):  # a body that reads values may fail
                    overload.body(*own.args, **own.kwargs)
    builds: dict[BuildInputs, None] = {}
    for unit in dict.fromkeys(request.unit for request in requests):
        simulated = device.type == "cpu"
        with suppress(DotcuError):  # the call says why
            target = SIMULATED if simulated else target_of(device.index or 0, is_tile=unit.is_tile)
            wanted = unit.pending(target, simulated=simulated)
            builds |= {wanted: None} if wanted is not None else {}
    if not builds:
        return
    total, done = len(builds), itertools.count(1)
    if progress is not None:
        progress(0, total)
    with suppress(JitDisabled):  # the call raises it, and names the kernel
        build_all(list(builds), lambda _: progress(next(done), total) if progress is not None else None)


def _with_outs(
    overload: Overload, made: Mapping[Overload, Sequence[Sample]], device: torch.device
) -> Iterator[Sample]:
    """Yield the samples of the overload that returns what this one writes, with tensors to write."""
    twin = overload.functional
    if twin is None:
        return
    for sample in made[twin] if twin in made else _declared(twin, device):
        with torch.no_grad():
            result = twin(*sample.args, **sample.kwargs)
        results = result if isinstance(result, tuple) else (result,)
        outs = dict(zip(overload.signature.outs, map(torch.empty_like, results), strict=False))
        yield Sample(*sample.args, **{**sample.kwargs, **outs})


def _call(overload: Overload, sample: Sample) -> None:
    if not overload.has_backward:
        with torch.no_grad():
            overload(*sample.args, **sample.kwargs)
        return
    inputs = sample.map_tensors(lambda tensor: tensor.detach().requires_grad_(tensor.is_floating_point()))
    with torch.enable_grad():
        results = _differentiable(overload(*inputs.args, **inputs.kwargs))
        leaves = _differentiable(inputs.tensors)
        if results and leaves:
            ones = [torch.ones_like(result) for result in results]
            torch.autograd.grad(results, leaves, ones, allow_unused=True)


def _differentiable(values: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor) and v.requires_grad]

"""Targets of a benchmark: an operator or a bare callable, the oracle of its results, and its contenders.

An operator's oracle is its reference, in float64 on the same device where memory suffices, else in the
operator's own dtype. A bare callable's oracle is the `reference=` of its author.
"""

from __future__ import annotations

import difflib
import gc
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from dotcu.benchmark.results import OWN
from dotcu.benchmark.work import Work, work_of
from dotcu.benchmark.workloads import InputValues, Workload
from dotcu.checking import numerics, target
from dotcu.checking.cases.samples import short
from dotcu.checking.memory import NAN_BYTE
from dotcu.checking.numerics import TRIALS, difference, is_whole, outputs
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.errors import UsageError
from dotcu.kernel.arguments.pack import tensors_in
from dotcu.operator import Sample
from dotcu.tracebacks import first_lines, one_line

Results = tuple[Tensor, ...]

LARGE, FEWER_TRIALS = 2**22, 4
"""Elements of inputs and results above which the oracle runs the reference only so many times."""


class OperatorTarget:
    """An overload to time, called in one of its dtypes, with the oracle of its results.

    Attributes:
        mutates: True if a call changes arguments that it reads.
        caveat: The reason why results were not compared in float64; empty where they were.
    """

    def __init__(self, subject: Subject, dtype: torch.dtype | None) -> None:
        signature = subject.overload.signature
        self.subject, self.dtype = subject, dtype
        self.name, self.device = subject.name, subject.device
        self.mutates = not set(signature.mutates) <= set(signature.outs)  # `out` is only written
        self.caveat = ""

    @property
    def unverified(self) -> str:
        """The reason why results cannot be verified; empty where they can."""
        if self.subject.reference is None:
            return "not verified: the operator has no reference"
        if self.subject.declares(torch.Tag.nondeterministic_seeded):
            return "not verified: the operator is declared random"
        return ""

    def context(self) -> AbstractContextManager[object]:
        """Return the simulator for CPU tensors, with poison in memory that bodies allocate."""
        if self.subject.on_gpu:
            return nullcontext()
        stack = ExitStack()
        stack.enter_context(self.subject.place())
        stack.enter_context(self.subject.poisoning(NAN_BYTE))
        return stack

    def results(self, sample: Sample, result: Any) -> Results:
        """Return the tensors that a call returned and wrote."""
        return self.subject.gives(sample, result)

    def written(self, sample: Sample) -> tuple[Tensor, ...]:
        """Return the arguments that a call may change."""
        return outputs(self.subject.overload.signature.written(sample.args, sample.kwargs))

    def find_errors(self, inputs: Sample, results: Mapping[str, Results]) -> dict[str, str]:
        """Compare results of one call with the reference, by contender; an empty text is a pass.

        In float64, or in the operator's dtype where that fails: what it raises there is raised.
        """
        arguments = self.subject.inputs(inputs)
        try:
            return self._in_float64(arguments, results)
        except ReferenceCalls:
            raise
        except torch.OutOfMemoryError:
            why = "too little memory for float64"
        except Exception as error:  # a reference that takes no inputs at all raises again below
            why = f"the reference fails in float64, {type(error).__name__}: {one_line(error)}"
        if self.subject.on_gpu:
            gc.collect()
            torch.cuda.empty_cache()
        added = max(tensor.numel() for tensor in arguments.tensors)
        with torch.no_grad():
            reference: Any = self.subject.reference
            expected = outputs(reference(*arguments.args, **arguments.kwargs))
            errors = {name: difference(own, expected, added) for name, own in results.items()}
        dtype = self.dtype or arguments.tensors[0].dtype
        self.caveat = self.caveat or f"compared in {short(dtype)} with wide bounds: {why}"
        return errors

    def _in_float64(self, inputs: Sample, results: Mapping[str, Results]) -> dict[str, str]:
        reference: Any = self.subject.reference
        tensors = [*inputs.tensors, *(t for own in results.values() for t in own)]
        trials = TRIALS if max((t.numel() for t in tensors), default=0) <= LARGE else FEWER_TRIALS
        tolerance = None if self.dtype is None else self.subject.tolerance(self.dtype)
        with torch.no_grad():
            oracle = numerics.oracle(reference, inputs, tolerance, trials=trials)
            judged = {name: numerics.judge(own, oracle) for name, own in results.items()}
        return {name: "" if error.passed else str(error) for name, error in judged.items()}

    def input_values(self, sets: Sequence[Sample]) -> InputValues:
        """Return what writes new values into all arguments that a call reads."""
        return InputValues(sets, outs=self.subject.overload.signature.outs)

    def work(self, sample: Sample, result: Any) -> Work:
        """Return the work that the operator declares; else every tensor counts once."""
        return work_of(self.subject.overload, sample, result)


@dataclass(kw_only=True, eq=False)
class BareTarget:
    """A callable without arguments, which has inputs of its own; otherwise like an `OperatorTarget`.

    Attributes:
        reference: Returns the expected results, in any floating-point dtype; None: nothing is verified.
        outputs: The tensors that a call writes; empty where it returns them.
        bytes, flops: That a call moves and does, 0 where unknown; half of the bytes count as read.
    """

    name: str
    function: Callable[[], Any]
    device: torch.device
    reference: Callable[[], Any] | None = None
    outputs: Sequence[Tensor] = ()
    bytes: int = 0
    flops: int = 0
    dtype: str = ""
    mutates: ClassVar[bool] = False
    caveat: ClassVar[str] = ""

    @property
    def workload(self) -> Workload:
        """Its only case, which has no arguments."""
        return Workload(
            name="as given", dtype=None, shapes=(),
            elements=max((tensor.numel() for tensor in self.outputs), default=0),
            make=lambda seed: Sample(), input_bytes=0, result_bytes=self.bytes,
        )  # fmt: skip

    @property
    def unverified(self) -> str:
        """The reason why results cannot be verified; empty where they can."""
        return "" if self.reference is not None else "not verified: reference= is missing"

    def context(self) -> AbstractContextManager[object]:
        """Return the context to call it in."""
        return nullcontext()

    def written(self, sample: Sample) -> tuple[Tensor, ...]:
        """Return the arguments that a call may change: it has none."""
        return ()

    def results(self, sample: Sample, result: Any) -> Results:
        """Return the tensors that a call wrote, or else returned."""
        return tuple(self.outputs) or tuple(tensors_in([result]))

    def find_errors(self, inputs: Sample, results: Mapping[str, Results]) -> dict[str, str]:
        """Compare with the reference, rounded to the dtype of the results."""
        assert self.reference is not None
        expected = outputs(self.reference())
        errors = dict.fromkeys(results, "it returns no tensor: name those that it writes, outputs=(out,)")
        for name, own in results.items():
            rounded = expected
            if len(expected) == len(own):
                rounded = tuple(
                    want if is_whole(want) or is_whole(got) else want.to(got.dtype)
                    for want, got in zip(expected, own, strict=True)
                )
            if own:
                errors[name] = difference(own, rounded, max(self.flops, self.bytes))
        return errors

    def input_values(self, sets: Sequence[Sample]) -> InputValues:
        """Return what poisons its outputs before each call; its inputs are its own."""
        return InputValues(sets, poisoned=self.outputs)

    def work(self, sample: Sample, result: Any) -> Work | None:
        """Return the declared work; None where nothing is declared."""
        if not (self.bytes or self.flops):
            return None
        written = self.bytes // 2
        return Work(
            read_bytes=self.bytes - written, written_bytes=written, flops=self.flops, dtype=self.dtype,
            declared=True,
        )  # fmt: skip


BenchTarget = OperatorTarget | BareTarget


MODES: Mapping[str, str | None] = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
"""Baselines that torch compiles, and the mode of each. A CUDA graph of torch's would copy inputs into its own
memory at each call, and return memory that the next call overwrites: the kernels are what is compared."""

KNOWN = ("eager", *MODES)  # baselines with names of their own: all of them run the reference
Call = Callable[[Sample], Any]  # makes one call
Baseline = str | Callable[..., Any]  # one of `KNOWN`, a callable, or its location: `ops.py:fn`

Contenders = Mapping[str, Callable[[], Call]]
"""The implementations to compare, by name: each prepares the function that makes a call, and may raise."""


def contenders(subject: Subject, against: Sequence[Baseline] = ()) -> Contenders:
    """Return the operator, and its baselines, which are called without the arguments that it only writes.

    Raises:
        UsageError: A baseline is unknown; names the nearest.
    """
    overload = subject.overload
    outs = frozenset(overload.signature.outs if overload.functional is not None else ())
    baselines = _baselines(
        subject.name, overload.reference_function, against, lambda function: _with_arguments(function, outs)
    )
    return {OWN: lambda: _with_arguments(overload, frozenset()), **baselines}


def bare_contenders(bare: BareTarget, against: Sequence[Baseline] = ()) -> Contenders:
    """Return a bare callable, and its baselines, which take no arguments either."""

    def adapt(function: Callable[..., Any]) -> Call:
        return lambda sample: function()

    return {OWN: lambda: adapt(bare.function), **_baselines(bare.name, bare.reference, against, adapt)}


def prepare_calls(those: Contenders) -> tuple[dict[str, Call], dict[str, str]]:
    """Return the calls of contenders by name, and why others could not be prepared."""
    torch._dynamo.reset()  # after some shapes it would run the reference in eager mode without a warning
    calls: dict[str, Call] = {}
    failed: dict[str, str] = {}
    for name, prepare in those.items():
        try:
            calls[name] = prepare()
        except Exception as error:
            failed[name] = first_lines(error)
    return calls, failed


def _with_arguments(function: Callable[..., Any], outs: frozenset[str]) -> Call:
    """Return a call of a function with a sample's arguments, without keywords that it does not name."""
    names: frozenset[str] | None = None
    if inspect.isfunction(function):
        parameters = inspect.signature(function).parameters.values()
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            names = frozenset(one.name for one in parameters if one.kind in by_keyword)
    if names is None and not outs:
        return lambda sample: function(*sample.args, **sample.kwargs)

    def call(sample: Sample) -> Any:
        taken = {
            name: value
            for name, value in sample.kwargs.items()
            if name not in outs and (names is None or name in names)
        }
        return function(*sample.args, **taken)

    return call


def _baselines(
    op: str, reference: Callable[..., Any] | None, against: Sequence[Baseline],
    adapt: Callable[[Callable[..., Any]], Call],
) -> Contenders:  # fmt: skip
    """Return a contender for each baseline; `adapt` makes a function take a sample."""

    def prepare(name: str) -> Call:
        """Prepare a baseline that runs the reference."""
        if reference is None:
            raise UsageError(
                f"{op} has no reference, and {name!r} is its reference.\n"
                "Give it one, or name a callable to compare with: --against ops.py:fn"
            )
        if name == "eager":
            return adapt(reference)
        return adapt(torch.compile(reference, dynamic=False, mode=MODES[name]))

    baselines: dict[str, Callable[[], Call]] = {}
    for baseline in against:
        if isinstance(baseline, str) and baseline in KNOWN:
            baselines[baseline] = partial(prepare, baseline)
            continue
        function = callable_of(baseline)
        own = getattr(function, "__name__", type(function).__name__).strip("<>")
        located = [baseline] if isinstance(baseline, str) else []
        names = (own, *located, *(f"{own}-{i}" for i in range(2, 100)))
        free = next(name for name in names if name not in {OWN, *KNOWN, *baselines})
        baselines[free] = partial(adapt, function)
    return baselines


def callable_of(baseline: Baseline) -> Callable[..., Any]:
    """Return the function that a baseline is, or that its location names."""
    if callable(baseline):
        return baseline
    if ":" in baseline:
        return target.function(baseline)
    nearest = difflib.get_close_matches(baseline, KNOWN, n=1, cutoff=0.4)
    raise UsageError(
        f"there is no baseline {baseline!r}."
        + (f" Did you mean {nearest[0]!r}?" if nearest else "")
        + f"\nA baseline is {', '.join(KNOWN)}, a callable, or the location of one.\n"
        "Type: --against eager,compile,ops.py:fn"
    )

"""`compile`: under torch.compile an operator is one graph, with the values and gradients of eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.numerics import outputs
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Failed, Outcome, Passed, Trial, Verdict
from dotcu.checking.trials import skipped
from dotcu.checking.trials.fresh_values import COMPUTED, doubled, first_integer, of_some_size, with_new_values
from dotcu.checking.trials.gradients import requiring
from dotcu.checking.trials.reference import equal
from dotcu.operator import Sample
from dotcu.tracebacks import brief, quiet

CHECK = "compile"


@dataclass(frozen=True, kw_only=True)
class CompileMode:
    """One way to compile."""

    dynamic: bool
    backend: str = "aot_eager"
    backward: bool = False

    @property
    def name(self) -> str:
        """The end of the trial's name, behind that of the case."""
        words = ("dynamic" if self.dynamic else "static", "" if self.backend == "aot_eager" else self.backend)
        return "-".join(filter(None, (*words, "backward" if self.backward else "")))


def plan(subject: Subject) -> Iterator[Trial]:
    """Static and dynamic for a case of the first dtype; at full for an integer one too, and by inductor."""
    if subject.overload.lacks_fake:
        yield skipped(subject, CHECK, "no fake kernel: see the failure of `fake`")
        return
    dtypes = subject.overload.dtypes[:1]
    if subject.level >= Level.FULL:
        dtypes = tuple(dict.fromkeys((*dtypes, *first_integer(subject))))
    cases = [case for dtype in dtypes for case in of_some_size(subject, dtype)[:1]]
    if not cases:
        yield skipped(subject, CHECK, "no sample without empty tensors")
    for case in cases:
        for way in _ways(subject, case.dtype):
            run, name = partial(look, subject, case, way), f"{case.name}-{way.name}"
            yield Trial(overload=subject.name, kind=CHECK, case=name, checks=(CHECK,), run=run)


def _ways(subject: Subject, dtype: torch.dtype) -> Iterator[CompileMode]:
    backends = ["aot_eager"]
    if subject.on_gpu and subject.level >= Level.FULL:
        backends.append("inductor")
    for backend in backends:
        yield from (CompileMode(dynamic=dynamic, backend=backend) for dynamic in (False, True))
    if subject.overload.has_backward and dtype.is_floating_point:
        yield CompileMode(dynamic=True, backward=True)


def look(subject: Subject, case: Case, way: CompileMode) -> Iterator[Verdict]:
    """Compile a function that calls the operator, and call it as eager mode is called.

    Args:
        subject: The overload under check.
        case: The call to begin with.
        way: How it is done.
    """
    torch._dynamo.reset()
    try:
        # Numbers stay those that the author wrote, as they do where a model's code has them.
        numbers = torch._dynamo.config.patch(specialize_int=True)
        with subject.place(), numbers, quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch remarks while it traces is for who compiles
            yield CHECK, _look(subject, case, way)
    finally:
        torch._dynamo.reset()


def _look(subject: Subject, case: Case, way: CompileMode) -> Outcome:
    from torch._dynamo.testing import CompileCounterWithBackend  # takes a second, so not at the start

    function = _function(subject, case.sample)
    counter = CompileCounterWithBackend(way.backend)
    compiled = torch.compile(function, backend=counter, fullgraph=True, dynamic=way.dynamic)
    graphs: list[int] = []
    for call in _calls(subject, case, way):
        twin = call.map_tensors(torch.clone)
        try:
            eager = _run(subject, way, function, twin)
        except Exception:
            if len(graphs) < 2:
                raise
            break  # dotcu made the other size, which the operator need not take
        try:
            got = _run(subject, way, compiled, call)
        except Exception as error:
            return Failed(reason="fails under torch.compile and works in eager mode", evidence=brief(error))
        wrong = _unlike(subject, way, (*eager, *twin.tensors), (*got, *call.tensors))
        if wrong:
            return Failed(reason="gives other values under torch.compile than in eager mode", evidence=wrong)
        graphs.append(int(counter.frame_count))
    if graphs[1] > graphs[0]:
        return Failed(reason="is compiled again for a call that differs only in values")
    return Passed(note=f"{graphs[-1]} graphs for {len(graphs)} calls")


def _calls(subject: Subject, case: Case, way: CompileMode) -> Iterator[Sample]:
    """Two calls that differ in values alone, and one of another size."""
    calls = [case.make(), with_new_values(subject, case, 1) or case.make(), doubled(case)]
    outs = subject.overload.signature.outs
    for call in filter(None, calls):
        if way.dynamic:  # so that the last call differs in its size alone
            yield call.map_tensors(lambda tensor: tensor.clone(memory_format=torch.contiguous_format))
        else:  # what it only writes is contiguous: torch.compile takes no other `out`
            named = {name: v.contiguous() if name in outs else v for name, v in call.kwargs.items()}
            yield Sample(*call.args, **named)


def _function(subject: Subject, like: Sample) -> Callable[..., list[Tensor]]:
    """A function of a call's tensors that calls an operator by both its names, between torch's own.

    Args:
        like: The call; what in it is not a tensor is written into the function.
    """
    overload, torch_op = subject.overload, subject.overload.torch_op
    mutates, arguments = overload.signature.mutates, overload.signature.arguments
    draws = subject.declares(torch.Tag.nondeterministic_seeded)  # a graph may hold equal calls once
    kept = {i for i, name in enumerate(arguments) if name in mutates}
    constants, named_constants = list(like.args), dict(like.kwargs)

    def function(args: dict[int, Any], keywords: dict[str, Any]) -> list[Tensor]:
        given = [args.get(i, constant) for i, constant in enumerate(constants)]
        given = [value if i in kept else _before(value) for i, value in enumerate(given)]
        named = {name: keywords.get(name, constant) for name, constant in named_constants.items()}
        named = {name: value if name in mutates else _before(value) for name, value in named.items()}
        results = [overload(*given, **named), None if draws else torch_op(*given, **named)]
        return [_after(tensor) for tensor in outputs(results)]

    return function


def _before(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_before(item) for item in value]
    return value.clone() if isinstance(value, Tensor) else value


def _after(result: Tensor) -> Tensor:
    return result + result if result.dtype in COMPUTED else result.clone()


def _tensors(sample: Sample) -> tuple[dict[int, Any], dict[str, Any]]:
    """The arguments that hold tensors: by position, and by name."""
    having = {i: value for i, value in enumerate(sample.args) if Sample(value).tensors}
    return having, {name: value for name, value in sample.kwargs.items() if Sample(value).tensors}


def _run(
    subject: Subject, way: CompileMode, function: Callable[..., Any], sample: Sample
) -> tuple[Tensor, ...]:
    """Return the function's results; or the gradients of what follows it."""
    if not way.backward:
        with subject.seeded("compile"), torch.no_grad():
            return outputs(function(*_tensors(sample)))
    floats = [i for i, tensor in enumerate(sample.tensors) if tensor.is_floating_point()]
    call, leaves = requiring(sample, floats)
    with subject.seeded("compile"):
        results = [t for t in outputs(function(*_tensors(call))) if t.requires_grad]
        total = sum(result.cos().sum() for result in results)
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)


def _unlike(subject: Subject, way: CompileMode, eager: Sequence[Tensor], got: Sequence[Tensor]) -> str:
    """Say how results differ: in any bit, save where sums may be taken in another order."""
    if len(eager) != len(got):
        return f"{len(got)} results, eager mode gives {len(eager)}"
    if subject.is_deterministic and not way.backward and all(map(equal, eager, got)):
        return ""
    try:
        exact = 0.0 if subject.is_deterministic and not way.backward else None
        torch.testing.assert_close(list(got), list(eager), rtol=exact, atol=exact, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""

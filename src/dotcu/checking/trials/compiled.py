"""`compile`: under torch.compile an operator is one graph, with the values and gradients of eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.numerics import outputs, unlike
from dotcu.checking.results import CheckResult, Failed, Passed, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.checking.trials.fresh_values import COMPUTED, doubled, first_integer, of_some_size, with_new_values
from dotcu.checking.trials.gradients import requiring
from dotcu.checking.trials.reference import equal
from dotcu.operator import Sample
from dotcu.tracebacks import brief

CHECK = "compile"


def plan(subject: Subject) -> Iterator[Trial]:
    """Static and dynamic for a case of the first dtype; at full for an integer one too, and by inductor."""
    if subject.overload.lacks_fake:
        yield skipped(subject, CHECK, "no fake kernel: see the failure of `fake`")
        return
    dtypes, full = subject.overload.dtypes[:1], subject.level >= Level.FULL
    if full:
        dtypes = tuple(dict.fromkeys((*dtypes, *first_integer(subject))))
    cases = [case for dtype in dtypes for case in of_some_size(subject, dtype)[:1]]
    if not cases:
        yield skipped(subject, CHECK, "no sample without empty tensors")
    for case in cases:
        modes = ["static", "dynamic"]
        if full and subject.on_gpu:
            modes += ["static-inductor", "dynamic-inductor"]
        if subject.overload.has_backward and case.dtype.is_floating_point:
            modes.append("dynamic-backward")
        for mode in modes:
            yield trial(subject, CHECK, _look, case, mode, variant=mode)


def _look(subject: Subject, case: Case, mode: str) -> CheckResult:
    """Compile a function that calls the operator, in one of the modes, and compare it with eager mode."""
    torch._dynamo.reset()
    try:
        # Numbers stay those that the author wrote, as they do where a model's code has them.
        numbers = torch._dynamo.config.patch(specialize_int=True)
        with subject.place(), numbers, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch remarks while it traces is for who compiles
            return _compared(subject, case, mode)
    finally:
        torch._dynamo.reset()


def _compared(subject: Subject, case: Case, mode: str) -> CheckResult:
    from torch._dynamo.testing import CompileCounterWithBackend  # takes a second, so not at the start

    function = _function(subject, case.sample)
    dynamic, backward = mode.startswith("dynamic"), mode.endswith("backward")
    counter = CompileCounterWithBackend("inductor" if mode.endswith("inductor") else "aot_eager")
    compiled = torch.compile(function, backend=counter, fullgraph=True, dynamic=dynamic)
    exact = 0.0 if subject.is_deterministic and not backward else None  # else sums may change their order
    graphs: list[int] = []
    for call in _calls(subject, case, dynamic=dynamic):
        twin = call.map_tensors(torch.clone)
        try:
            eager = _run(subject, function, twin, backward=backward)
        except Exception:
            if len(graphs) < 2:
                raise
            break  # dotcu made the other size, which the operator need not take
        try:
            compiled_results = _run(subject, compiled, call, backward=backward)
        except Exception as error:
            return Failed.raised("fails under torch.compile and works in eager mode", error, brief(error))
        wanted, got = (*eager, *twin.tensors), (*compiled_results, *call.tensors)
        if len(wanted) != len(got):
            wrong = f"{len(got)} results, eager mode gives {len(wanted)}"
        else:
            same = exact is not None and all(map(equal, wanted, got))
            wrong = "" if same else unlike(got, wanted, exact)
        if wrong:
            return Failed(reason="gives other values under torch.compile than in eager mode", evidence=wrong)
        graphs.append(int(counter.frame_count))
    if graphs[1] > graphs[0]:
        return Failed(reason="is compiled again for a call that differs only in values")
    plural = "graph" if graphs[-1] == 1 else "graphs"
    return Passed(note=f"{graphs[-1]} {plural} for {len(graphs)} calls")


def _calls(subject: Subject, case: Case, *, dynamic: bool) -> Iterator[Sample]:
    """Two calls that differ in values alone, and one of another size."""
    calls = [case.make(), with_new_values(subject, case, 1) or case.make(), doubled(case)]
    outs = subject.overload.signature.outs
    for call in filter(None, calls):
        if dynamic:  # so that the last call differs in its size alone
            yield call.map_tensors(lambda tensor: tensor.clone(memory_format=torch.contiguous_format))
        else:  # what it only writes is contiguous: torch.compile takes no other `out`
            named = {name: v.contiguous() if name in outs else v for name, v in call.kwargs.items()}
            yield Sample(*call.args, **named)


def _function(subject: Subject, like: Sample) -> Callable[..., list[Tensor]]:
    """A function of a call's tensors that calls an operator by both its names, between torch's own.

    What in the call is not a tensor is written into the function.
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
        results = outputs([overload(*given, **named), None if draws else torch_op(*given, **named)])
        return [one + one if one.dtype in COMPUTED else one.clone() for one in results]

    return function


def _before(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_before(item) for item in value]
    return value.clone() if isinstance(value, Tensor) else value


def _run(
    subject: Subject, function: Callable[..., Any], sample: Sample, *, backward: bool
) -> tuple[Tensor, ...]:
    """Return the function's results; or the gradients of what follows it."""
    floats = [i for i, tensor in enumerate(sample.tensors) if tensor.is_floating_point()]
    call, leaves = requiring(sample, floats) if backward else (sample, [])
    args = {i: value for i, value in enumerate(call.args) if Sample(value).tensors}
    keywords = {name: value for name, value in call.kwargs.items() if Sample(value).tensors}
    with subject.seeded("compile"), torch.set_grad_enabled(backward):
        results = outputs(function(args, keywords))
        if not backward:
            return results
        total = sum(result.cos().sum() for result in results if result.requires_grad)
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)

"""`gradients` and `second-gradients`: by finite differences, and compared with those of the reference."""

from __future__ import annotations

import gc
import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from dotcu import settings
from dotcu.checking import numerics
from dotcu.checking.cases.derived import arguments, derived_cases, size_pattern, with_arguments
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.memory import NAN_BYTE, same_bits, without_repeats
from dotcu.checking.numerics import outputs
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.checking.trials.fresh_values import floating, of_some_size
from dotcu.errors import BodyError, EnvironmentFault, GradientError, UsageError
from dotcu.operator import Sample
from dotcu.tracebacks import brief, one_line, own_fault

FEW, MANY = 24, 5000
"""Elements up to which finite differences are taken for each one alone, and at all."""

_DOUBLE = 1e-10
"""The relative error of a gradient in float64: far above rounding, far below a wrong formula."""

_ROUNDING = 1e-13
"""The error of one in float64 relative to the largest of all: it may be zero, as that of softmax's sum."""

UNIMPLEMENTED = re.compile(r"derivative for .* is not implemented|no autograd formula was registered")
"""The words of torch for an operator whose library registered none, and for one of `custom_op` without."""

_FEW = (size_pattern(1, 33, 257), "transposed", "sliced", "offset-1", "expanded", "large")
_MORE = (*_FEW, size_pattern(0), "channels-last", "normal")
"""The derived cases that are differentiated, as patterns."""


def plan(subject: Subject) -> Iterator[Trial]:
    """Trials for finite differences in float64, and for the reference's gradients in every dtype."""
    dtypes = floating(subject)
    if not dtypes:
        yield from (skipped(subject, check, "no floating dtype") for check in (FIRST, SECOND))
        return
    if not subject.overload.has_backward:
        yield from plan_without_backward(subject, dtypes)
        return
    for order, check in enumerate((FIRST, SECOND), 1):
        trials = list(_trials(subject, dtypes, order, check))
        if not trials:
            why = "nothing to compare with: it has no sample in float64 for gradcheck, and no reference"
            yield skipped(subject, check, why)
        yield from trials


def _trials(subject: Subject, dtypes: Sequence[torch.dtype], order: int, check: str) -> Iterator[Trial]:
    def look(case: Case, mode: str, alone: int | None = None) -> Trial:
        variant = mode if alone is None else f"{mode}-{alone}"
        return trial(subject, check, _look, case, order, mode, alone, variant=variant)

    main = torch.float64 if torch.float64 in dtypes else dtypes[0]
    some = {Level.QUICK: 1, Level.STANDARD: 2, Level.FULL: 4}[subject.level]
    cases = of_some_size(subject, main)[:some]
    if main == torch.float64:
        small = [case for case in cases if case.elements <= MANY]
        yield from (look(case, "gradcheck") for case in small or cases[:1])
    if subject.reference is None:
        return
    if order == 2:
        if main != torch.float64:
            yield from (look(case, "dense") for case in cases[:2])
        return
    yield from (look(case, ending) for case in cases for ending in ENDINGS)
    for case in _ordered(subject, dtypes):
        yield from (look(case, mode) for mode in ORDERS if _rank(case) > 2 or mode == "transposed")
    for case in cases[:1]:
        yield look(case, KEPT)
        several = len(_differentiable(case.sample))
        yield from (look(case, "dense", alone) for alone in range(several if several > 1 else 0))
        results = subject.overload.signature.returns
        yield from (look(case, "result", alone) for alone in range(results if results > 1 else 0))
        yield from (look(each, "dense") for each in _broadcast(subject, case))
    if subject.level == Level.QUICK:
        others = list(derived_cases(subject, dtypes[0], _FEW))
    else:
        others = [case for dtype in dtypes for case in derived_cases(subject, dtype, _MORE)]
        for dtype in dtypes:
            others += of_some_size(subject, dtype)[: some - 1] if dtype != main else []
        others += [case for case in subject.given(main) if not all(t.numel() for t in case.sample.tensors)]
    yield from (look(case, "dense") for case in others if not _overflows(case))


def _overflows(case: Case) -> bool:
    """Return whether a gradient may be a product of several large values, which no dtype need hold."""
    return case.variant.endswith("large") and len(_differentiable(case.sample)) > 1


def _ordered(subject: Subject, dtypes: Sequence[torch.dtype]) -> Iterator[Case]:
    """Yield a case of several dimensions, in other orders of which its gradient may lie."""
    given = [case for dtype in dtypes for case in subject.whole(dtype)]
    rank = min(3, max(map(_rank, given), default=0))
    cases = [case for case in given if _rank(case) >= rank]
    if rank < 2:
        cases = derived_cases(subject, dtypes[0], ("4d-outer-swapped",))
    yield from cases[:1]


def _broadcast(subject: Subject, case: Case) -> Iterator[Case]:
    """Yield the call with, for one of two tensors of a shape, a part that has this shape by broadcasting."""
    signature, sample = subject.overload.signature, case.sample
    given = arguments(signature, sample)
    positional = [name for name in given if name not in signature.keyword_only]
    for name in positional:
        tensor = given[name]
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point() or not tensor.dim():
            continue
        others = (other for each, other in given.items() if each != name and isinstance(other, Tensor))
        if tensor.shape[0] > 1 and any(other.shape == tensor.shape for other in others):
            build = partial(_with_first, subject, case, name)
            yield case.derive(f"{name}-broadcast", build, doubtful=True)


def _with_first(subject: Subject, case: Case, name: str) -> Sample:
    sample, signature = case.make(), subject.overload.signature
    return with_arguments(signature, sample, {name: arguments(signature, sample)[name][:1].clone()})


def _rank(case: Case) -> int:
    return max((tensor.dim() for tensor in case.sample.tensors), default=0)


def _differentiable(sample: Sample) -> tuple[int, ...]:
    """Positions, among all tensors, of those that can have a gradient: by keyword none can."""
    by_position = len(Sample(*sample.args).tensors)
    return tuple(i for i, t in enumerate(sample.tensors[:by_position]) if t.is_floating_point())


# ------------------------------------------------------------------ with a backward


def _look(subject: Subject, case: Case, order: int, mode: str, alone: int | None) -> CheckResult | None:
    """Differentiate one call once or twice. Of a derived one that cannot be, say nothing.

    Args:
        mode: `gradcheck`, `KEPT`, `result`, or what follows the call, a name out of `ENDINGS` or `ORDERS`.
        alone: The one result whose gradient it is, or the one that alone requires it of the tensors that can.
    """
    if case.derived and not _computes(subject, case):
        return None
    outcome: CheckResult | None
    try:
        with subject.seeded(case.name):
            if order == 2 and _only_once(subject, case.make()):
                outcome = Skipped(reason="its backward is declared once_differentiable")
            elif mode == "gradcheck":
                outcome = _checked(subject, case, order)
            elif mode == KEPT:
                outcome = _keeps(subject, case)
            else:
                outcome = _compared(subject, case, order, mode, alone)
    except GradientError as error:
        if order == 1:
            outcome = Failed.raised("the backward fails", error, brief(error))
        else:  # the first gradient is made of something that has none
            outcome = Skipped(reason=one_line(error))
    except Exception as error:
        if not subject.has_body and UNIMPLEMENTED.search(str(error)):
            outcome = Passed(note="no backward, so differentiating raises an error")
        elif not case.derived or isinstance(error, (BodyError, UsageError)) or not subject.refuses(error):
            raise
        else:
            outcome = Passed.refused(error)
    return None if case.derived and isinstance(outcome, Skipped) else outcome  # the given cases say why


def _computes(subject: Subject, case: Case) -> bool:
    """Return whether the call itself works or is refused; other checks report one that fails."""
    try:
        with subject.seeded(case.name), subject.place():
            _results(subject, case.make(), ())
    except BodyError:  # a TypeError, but no refusal
        return False
    except Exception as error:
        return isinstance(error, EnvironmentFault) or subject.refuses(error)
    return True


def _results(
    subject: Subject, sample: Sample, needs: Sequence[int]
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """Call the operator, with tensors at some positions requiring a gradient; and return these too."""
    call, leaves = requiring(sample, needs)
    return outputs(subject.overload(*call.args, **call.kwargs)), leaves


def _only_once(subject: Subject, sample: Sample) -> bool:
    """Return whether torch has to refuse a second gradient; gradgradcheck would take it for zeros."""
    with subject.place():
        results, leaves = _results(subject, sample, _differentiable(sample))
        ends = [result for result in results if result.requires_grad]
        weights = [torch.ones_like(end).requires_grad_() for end in ends]
        first = _grad(ends, leaves, weights, create_graph=True)
    nodes = (gradient.grad_fn for gradient in first)
    return any(node is not None and node.name().endswith("::Error") for node in nodes)


def _checked(subject: Subject, case: Case, order: int) -> CheckResult:
    """Check by finite differences, in float64."""
    # where elements share memory, moving one would move others
    sample = case.make().map_tensors(lambda t: t.contiguous() if without_repeats(t) is not t else t)
    doubles = [i for i in _differentiable(sample) if sample.tensors[i].dtype == torch.float64]
    doubles = _not_detached(subject, sample, doubles)
    _, leaves = requiring(sample, doubles)
    elements = sum(leaf.numel() for leaf in leaves)
    if elements > MANY:
        return Skipped(reason=f"{elements} elements are too many for finite differences")

    def function(*inputs: Tensor) -> Any:
        given = dict(zip(doubles, inputs, strict=True))
        positions = iter(range(len(sample.tensors)))
        call = sample.map_tensors(lambda tensor: given.get(next(positions), tensor))
        with subject.seeded(case.name):  # the same random numbers at each call
            return subject.overload(*call.args, **call.kwargs)

    check = gradcheck if order == 1 else partial(gradgradcheck, gen_non_contig_grad_outputs=True)
    # Not bit by bit: torch's own operators, which a backward may call, differ in last places on a GPU.
    tolerance = 1e-9 if subject.is_deterministic else 1e-6
    slow = subject.level == Level.FULL and elements <= FEW
    try:
        with subject.place(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(function, tuple(leaves), nondet_tol=tolerance, check_batched_grad=False, fast_mode=not slow)
    except GradcheckError as error:
        return Failed(
            reason=f"the {GRADIENTS[order]} is not what finite differences give", evidence=brief(error)
        )
    return Passed()


def _not_detached(subject: Subject, sample: Sample, positions: list[int]) -> list[int]:
    """Return the positions of the tensors to which the reference gives a gradient; all if it gives none."""

    def has_gradient(position: int) -> bool:
        call, _ = requiring(subject.inputs(sample), [position])
        assert subject.reference is not None
        with torch.enable_grad():
            return any(t.requires_grad for t in outputs(subject.reference(*call.args, **call.kwargs)))

    if subject.reference is None:
        return positions
    try:
        return [i for i in positions if has_gradient(i)] or positions
    except Exception:  # the checks of the reference report it
        return positions


def _compared(subject: Subject, case: Case, order: int, ending: str, alone: int | None) -> CheckResult | None:
    """Compare with the reference's, by the bounds that its values have too."""
    assert subject.reference is not None
    sample = case.make()
    needs = _differentiable(sample)
    of_result = alone if ending == "result" else None
    needs = (needs[alone],) if alone is not None and of_result is None else needs
    if subject.reference_draws(subject.for_reference(sample)):
        return Skipped(reason="declared random, and so is its reference")
    with subject.place():
        own, _ = _results(subject, sample, needs)
    derivative = Differentiation(
        needs=needs,
        outputs=tuple(i for i, r in enumerate(own) if r.requires_grad and of_result in (None, i)),
        ending={**ENDINGS, **ORDERS}["dense" if of_result is not None else ending],
        order=order,
    )
    if not derivative.outputs:
        return Skipped(reason="no result has a gradient")
    weights = [random_like(derivative.ending(own[i].detach())) for i in derivative.outputs]
    call = derivative.call(sample, weights)
    copies = call.map_tensors(lambda tensor: tensor.detach().clone().cpu())
    with ExitStack() as stack:
        stack.enter_context(subject.place())
        if ending == "dense" and order == 1:  # the others are as in use
            stack.enter_context(subject.poisoning(NAN_BYTE))  # what bodies leave unwritten shows
            # On a GPU torch would run the backward on its own thread, which no poison reaches.
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        gradients = derivative.of(subject.overload)(*call.args, **call.kwargs)
    if written := _written(subject, sample, call, copies):
        return Failed(reason=f"its backward changes {written}", evidence="A backward writes new memory only.")
    tolerance = subject.tolerance(case.dtype)
    if tolerance is None and case.dtype == torch.float64:  # where no oracle is more exact
        tolerance = _DOUBLE
    try:
        function = derivative.of(subject.reference)
        expected = numerics.oracle(function, copies, tolerance, floor=_ROUNDING, rounded_once=False)
    except Exception as error:  # it may compute by what torch cannot differentiate
        if own_fault(error):
            raise
        if of_result is not None:  # or this result of it depends on nothing
            return None
        return Skipped(reason=f"the reference cannot be differentiated: {one_line(error)}")
    worst = numerics.judge(gradients, expected)
    if worst.passed:
        return Passed(ratio=worst.ratio)
    where = worst.where.replace("output", "gradient")
    where += _missing(subject, sample, needs, gradients) if order == 1 else ""
    return Failed(reason=f"a {GRADIENTS[order]} is not that of the reference: {worst.what}", evidence=where)


def _written(subject: Subject, sample: Sample, call: Sample, copies: Sample) -> str:
    """Name the first tensor of the call of a derivative that is not as it was; empty if there is none.

    Args:
        sample: The operator's call in it.
        copies: Its tensors as they were.
    """
    pairs = zip(call.tensors, copies.tensors, strict=True)
    changed = [i for i, (now, was) in enumerate(pairs) if not same_bits([now.detach().cpu()], [was])]
    if not changed:
        return ""
    given = arguments(subject.overload.signature, sample)
    names = [name for name, value in given.items() for _ in Sample(value).tensors]
    by_position = len(Sample(*sample.args).tensors)
    return names[changed[0]] if changed[0] < by_position else "the gradient that it gets"


def _missing(subject: Subject, sample: Sample, needs: Sequence[int], gradients: Sequence[Tensor]) -> str:
    """Name the first input to which the backward gives nothing, and say how that is declared."""
    none = [
        id(sample.tensors[i])
        for i, gradient in zip(needs, gradients, strict=True)
        if not bool(numerics.real(gradient).double().any())
    ]
    given = arguments(subject.overload.signature, sample)
    name = next((n for n, v in given.items() if any(id(t) in none for t in Sample(v).tensors)), "")
    declared = (
        f"\nThe backward gives none for `{name}`. If it has none, say so in the reference: {name}.detach()"
    )
    return declared if name else ""


# ---- first and second gradients of a call, of an operator or of its reference, as functions of tensors alone

ResultChange = Callable[[Tensor], Tensor]
AnyFunction = Callable[..., Any]

ENDINGS: dict[str, ResultChange] = {
    "dense": lambda result: result.clone(),
    "expanded": lambda result: result.sum(),
    "strided": lambda result: torch.stack([torch.zeros_like(result), result], -1),
}
"""The functions behind the operator, by the kind of gradient that they give it."""


ORDERS: dict[str, ResultChange] = {
    "transposed": lambda result: result.mT if result.dim() > 1 else result.clone(),
    "swapped": lambda result: result.transpose(-3, -2) if result.dim() > 2 else result.clone(),
}
"""Those that give it a gradient whose dimensions lie in another order."""


@dataclass(frozen=True, kw_only=True)
class Differentiation:
    """The gradients of a call that are asked for.

    Attributes:
        needs: Positions, among all tensors of the call, of those that require a gradient.
        outputs: Positions, among the results, of those that have one.
        ending: What follows the call.
        order: 1, or 2 for the gradients of the gradients.
    """

    needs: tuple[int, ...]
    outputs: tuple[int, ...]
    ending: ResultChange = ENDINGS["dense"]
    order: int = 1

    def of(self, function: AnyFunction) -> AnyFunction:
        """The gradients of a function, as a function of what `call` makes."""
        return partial(self._gradients, function)

    def call(self, sample: Sample, weights: Sequence[Tensor]) -> Sample:
        """Return the inputs of a call's gradients, with a weight for each ending, as one call."""
        directions = [random_like(sample.tensors[i]) for i in self.needs]
        return Sample(list(sample.args), list(weights), directions, **sample.kwargs)

    @torch.enable_grad()
    def _gradients(
        self, function: AnyFunction, args: Any, weights: Any, directions: Any, /, **keywords: Any
    ) -> tuple[Tensor, ...]:
        sample, leaves = requiring(Sample(*args, **keywords), self.needs)
        results = outputs(function(*sample.args, **sample.kwargs))
        weights = [weight.detach().requires_grad_(self.order == 2) for weight in weights]
        ends = [(self.ending(results[i]), w) for i, w in zip(self.outputs, weights, strict=True)]
        pairs = [(end, weight) for end, weight in ends if end.requires_grad]
        if not pairs:
            raise GradientError("none of its results requires a gradient")
        first = _grad([e for e, _ in pairs], leaves, [w for _, w in pairs], create_graph=self.order == 2)
        if self.order == 1:
            return first
        pairs = [(g, d) for g, d in zip(first, directions, strict=True) if g.requires_grad]
        inputs = [*leaves, *weights]
        if not pairs:
            return tuple(torch.zeros_like(tensor) for tensor in inputs)
        return _grad([g for g, _ in pairs], inputs, [d for _, d in pairs])


def random_like(tensor: Tensor) -> Tensor:
    """Normal random numbers that a tensor's dtype holds exactly, drawn on the CPU."""
    return torch.randn(tensor.shape, dtype=torch.float64).to(tensor.device, tensor.dtype)


def requiring(sample: Sample, needs: Sequence[int]) -> tuple[Sample, list[Tensor]]:
    """The call with tensors at some positions requiring a gradient, the others not; and those tensors."""
    leaves: list[Tensor] = []
    positions = iter(range(len(sample.tensors)))

    def prepare(tensor: Tensor) -> Tensor:
        plain = tensor.detach()
        if next(positions) in needs:
            leaves.append(plain.requires_grad_())
        return plain

    return sample.map_tensors(prepare), leaves


def _grad(
    ends: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor], create_graph: bool = False
) -> tuple[Tensor, ...]:
    return torch.autograd.grad(
        ends, inputs, weights, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )


# ---------------------- what a recorded call keeps: autograd knows of it, and it ends with its last reference

KEPT = "kept"
"""The mode of `_look` that differentiates a call twice, and one whose arguments have changed since."""


def _keeps(subject: Subject, case: Case) -> CheckResult:
    """Differentiate a call again, and one of which arguments and results are written before its backward."""
    needs = _differentiable(case.sample)
    first = _Recorded(subject, case, needs)
    if not first.ends:
        return Skipped(reason="no result has a gradient")
    before = [result.detach().clone() for result in first.results]
    gradients = first.differentiate(retain_graph=True)
    if not same_bits([result.detach() for result in first.results], before):
        return Failed(reason="its backward changes a result", evidence="A backward writes new memory only.")
    if wrong := _unlike(subject, first.differentiate(), gradients):
        reason = "a second backward through the same graph gives another gradient"
        return Failed(reason=reason, evidence=wrong)
    if wrong := _after_writes(subject, case, needs, gradients):
        return Failed(
            reason="its gradient changes without an error if a tensor of the call is written before backward",
            evidence=wrong,
        )
    collecting = gc.isenabled()
    gc.disable()
    try:
        alive = _alive_results(subject, case, needs)
    finally:
        if collecting:
            gc.enable()
    if alive:
        return Failed(
            reason=f"{alive} stays in memory after its last reference, until Python collects cycles",
            evidence="Save a result with ctx.save_for_backward(output), and not as an attribute of ctx.",
        )
    return Passed()


def _after_writes(subject: Subject, case: Case, needs: Sequence[int], gradients: tuple[Tensor, ...]) -> str:
    """Say how to save what a gradient depends on that a write before the backward changed; empty if none did.

    What `ctx.save_for_backward` saves is copied in one call: an attribute of `ctx` changes with the argument,
    where torch would raise for the former. Without copies torch raises, unless it was given a tensor with
    another counter of its writes, as `x.data` has.
    """
    late = _Recorded(subject, case, needs)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        copied = _Recorded(subject, case, needs)
    for recorded in (copied, late):
        with torch.no_grad():
            for tensor in (*recorded.call.tensors, *recorded.results):
                _overwrite(without_repeats(tensor))
        try:
            changed = _unlike(subject, recorded.differentiate(), gradients)
        except RuntimeError:  # of torch, which has seen the write
            if recorded is copied:
                raise
            continue
        if changed:
            return (
                f"{recorded.attributes()}Save tensors with ctx.save_for_backward(x), and not x.data, and "
                "read them from ctx.saved_tensors: torch then raises for such a write."
            )
    return ""


class _Recorded:
    """A call with tensors that require a gradient.

    Attributes:
        ends: Those of its results that have one.
    """

    def __init__(self, subject: Subject, case: Case, needs: Sequence[int]) -> None:
        self.subject = subject
        self.call, self.leaves = requiring(case.make(), needs)
        with subject.seeded(case.name), subject.place():
            self.results = outputs(subject.overload(*self.call.args, **self.call.kwargs))
        self.ends = [result for result in self.results if result.requires_grad]
        with subject.seeded(f"{case.name}/weights"):
            self._weights = list(map(random_like, self.ends))

    def differentiate(self, *, retain_graph: bool = False) -> tuple[Tensor, ...]:
        """Return the gradient of each tensor that requires one."""
        with self.subject.place():
            return torch.autograd.grad(
                self.ends,
                self.leaves,
                self._weights,
                retain_graph=retain_graph,
                allow_unused=True,
                materialize_grads=True,
            )

    def attributes(self) -> str:
        """Name the attributes of `ctx` that hold memory of the call, each in a line."""
        memory = {t.untyped_storage().data_ptr() for t in (*self.call.tensors, *self.results) if t.numel()}
        lines = [
            f"ctx.{name} holds an argument or a result.\n"
            for name, value in getattr(self.ends[0].grad_fn, "__dict__", {}).items()
            if any(t.untyped_storage().data_ptr() in memory for t in Sample(value).tensors)
        ]
        return "".join(lines)


def _unlike(subject: Subject, got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str:
    """Say how gradients differ: in a bit, or by more than the order of sums makes."""
    return "" if same_bits(got, expected) else numerics.unlike(got, expected)


def _overwrite(tensor: Tensor) -> None:
    """Write other values: of whole numbers those that it has, as indices go on to fit."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(torch.nan)
    elif tensor.numel():
        tensor.copy_(tensor.flatten().roll(1).view(tensor.shape))


def _alive_results(subject: Subject, case: Case, needs: Sequence[int]) -> str:
    """Name the first result of a call that lives on after it; empty if there is none.

    The simulator keeps some itself until Python collects cycles, so the reference computes.
    """
    if subject.simulated and subject.reference is None:
        return ""
    call, _ = requiring(case.make(), needs)
    with settings.override(simulate=False), subject.seeded(case.name):
        try:
            results = outputs(subject.overload(*call.args, **call.kwargs))
        except Exception:  # which the check of the reference reports
            return ""
    storages = [weakref.ref(result.untyped_storage()) for result in results]
    del results
    return next((f"output {i}" for i, storage in enumerate(storages) if storage() is not None), "")


# ---------- whether an operator without a backward says so: a gradient that is dropped silently is wrong

FIRST, SECOND = "gradients", "second-gradients"
GRADIENTS = {1: "gradient", 2: "second gradient"}


def plan_without_backward(subject: Subject, dtypes: Sequence[torch.dtype]) -> Iterator[Trial]:
    """A trial of the first of some floating dtypes that has a sample; none of what a library computes."""
    if not subject.has_body:  # its gradients only torch and the library define
        why = "no backward, from its library or from you: torch drops its gradient silently"
        yield from (skipped(subject, check, why) for check in (FIRST, SECOND))
        return
    case = next(filter(None, map(subject.smallest, dtypes)), None)
    if case is None:
        yield skipped(subject, FIRST, "no backward, and no sample without empty tensors")
    else:
        yield trial(subject, FIRST, _refusal, case, variant="none")
    yield skipped(subject, SECOND, "no backward")


def _refusal(subject: Subject, case: Case) -> CheckResult:
    """Call on tensors that require a gradient, and differentiate."""
    sample = case.make()
    places = [i for i, tensor in enumerate(sample.tensors) if tensor.is_floating_point()]
    try:
        with subject.seeded(case.name), subject.place():
            results, leaves = _results(subject, sample, places)
            floats = [result for result in results if result.is_floating_point()]
            if not floats or not leaves:
                return Skipped(reason="no backward, and no result that could have a gradient")
            torch.autograd.grad(floats, leaves, list(map(torch.empty_like, floats)), allow_unused=True)
    except GradientError:
        return Passed(note="no backward, so differentiating raises an error")
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        return Failed(reason="it has no backward, and its result drops the gradient silently")
    return Failed(reason="it has no backward, but returns a gradient")

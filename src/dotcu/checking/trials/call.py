"""One call, and all that one call can show.

The operator runs first, so that no memory holds a right answer yet: on guarded inputs, with what its
body allocates poisoned. It runs again with another poison, the simulator's warps in another order. Only
then the reference computes, from inputs of its own.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.cases.derived import arguments
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.memory import (
    NAN_BYTE,
    OTHER_BYTE,
    GuardedTensor,
    PoisonedBuffers,
    bits,
    guard,
    opaque,
    same_bits,
    shared,
    snapshot,
    span,
    writes_outside,
)
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, skipped, trial, trial_id
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.errors import BodyError, EnvironmentFault, FindingError, SimulationError, UsageError
from dotcu.operator import Sample
from dotcu.tracebacks import describe, one_line, own_fault

FIRST_ELEMENTS = 4096
"""A quick check begins with the author's samples of no more elements."""

SANITIZERS = ("sanitizer-bounds", "sanitizer-init", "sanitizer-race", "sanitizer-barrier")


@dataclass(frozen=True, kw_only=True)
class MadeCall:
    """A call that was made.

    Attributes:
        results: What it returned and wrote, as it was once torch's current stream had come to it.
        returned: The same tensors themselves.
        opaque: Why these cannot be read as what they seem to be; then there are no `results`.
        allocated: What the body allocated.
        launched: It launched a kernel in the simulator.
    """

    sample: Sample
    guards: list[GuardedTensor]
    results: tuple[Tensor, ...]
    returned: tuple[Tensor, ...]
    opaque: list[str]
    allocated: PoisonedBuffers
    launched: bool


def call(subject: Subject, case: Case, byte: int, seed: int | None = None) -> MadeCall:
    """Make a call with what it is not given filled with a byte.

    Args:
        seed: Of the order in which the simulator runs warps. With one, torch's random numbers are others
            too, unless the operator is declared to draw them.

    Raises:
        Exception: What the call raises.
    """
    outs = () if subject.overload.functional is None else subject.overload.signature.outs
    sample, guards = guard(case.sample, dict.fromkeys(outs, byte))
    same = seed is None or subject.declares(torch.Tag.nondeterministic_seeded)
    numbers = subject.seeded(case.name if same else f"{case.name}/{seed}")
    with numbers, subject.place(seed) as run, subject.poisoning(byte) as allocated:
        returned = subject.call(sample)
        unreadable = opaque(returned, subject.device)
        results = () if unreadable else tuple(map(snapshot, returned))  # on torch's current stream
    if subject.on_gpu:
        torch.cuda.synchronize(subject.device)  # a fault of the kernel shows here
    return MadeCall(
        sample=sample,
        guards=guards,
        results=results,
        returned=returned,
        opaque=unreadable,
        allocated=allocated,
        launched=run is not None and bool(run.launches),
    )


def plan(subject: Subject, cases: Sequence[Case]) -> Iterator[Trial]:
    """A trial for each case."""
    names = ("call", "numerics", "written", "bounds", "inputs", "mutation", "result", "determinism", "errors")
    checks = (*names, *SANITIZERS) if subject.simulated else names
    if subject.bounded:  # large ones last: they may be left out
        sizes = {case.name: case.elements for case in cases}
        cases = sorted(
            cases, key=lambda c: sizes[c.name] if c.derived or sizes[c.name] > FIRST_ELEMENTS else -1
        )
    for case in cases:
        run = partial(look, subject, case)
        yield Trial(id=trial_id(subject, "call", case), checks=checks, run=run)


def look(subject: Subject, case: Case, known: numerics.Oracle | None = None) -> Iterator[CheckResult]:
    """Call twice, and say what of it is as it must be.

    Args:
        known: What the reference gives, where it was computed before; None to compute it.
    """
    if not subject.takes(case):
        return
    calls: list[MadeCall] = []
    try:
        with subject.budget.of_case(case) if subject.bounded else nullcontext():
            calls.append(call(subject, case, NAN_BYTE))
            calls.append(call(subject, case, OTHER_BYTE, seed=1))
    except FindingError:
        raise
    except Exception as error:
        if not calls:
            yield _raised(subject, case, error)
        else:
            reason = "a second call with equal arguments fails"
            yield Failed.raised(reason, error, check="determinism")
        return
    yield Passed(check="call")
    yield from _memory(subject, calls)
    if any(one.opaque for one in calls):
        return
    if subject.simulated:
        yield from _sanitized(subject, case, calls)
    unwritten = _unwritten(*calls)
    yield _none("written", unwritten)
    yield Passed(check="determinism") if unwritten else _determinism(subject, *calls)
    yield from _values(subject, case, calls[0], unwritten, known)


def _sanitized(subject: Subject, case: Case, calls: Sequence[MadeCall]) -> Iterator[CheckResult]:
    """Say that the simulator found nothing; of a library's operator, if it had anything to look at."""
    idle = not subject.has_body and case.elements > 0 and not any(one.launched for one in calls)
    why = "the call launches no kernel, so there is nothing to run in the simulator"
    yield from (Skipped(check=name, reason=why) if idle else Passed(check=name) for name in SANITIZERS)


def _raised(subject: Subject, case: Case, error: Exception) -> CheckResult:
    """A call that failed: it may where dotcu made the arguments, and it is a clear refusal.

    Raises:
        Exception: This is not a verdict on the call; or the call is the author's, and so must not fail.
    """
    if isinstance(error, BodyError):
        return Failed.raised("the body returns an invalid result", error, check="result")
    if isinstance(error, SimulationError):
        return Skipped(check="call", reason=f"the simulator cannot run it: {one_line(error)}")
    if not case.derived or isinstance(error, (UsageError, EnvironmentFault)) or own_fault(error):
        raise error
    if subject.refuses(error) or subject.reference_error(case.make()) is not None:
        return Passed.refused(error, check="errors")
    reason = "the call failed without a clear error, and the reference accepts it"
    return Failed.raised(reason, error, check="errors")


def _none(check: str, faults: Sequence[str]) -> Passed | Failed:
    """Return the result of a check by the faults that it found, each once."""
    first, *others = dict.fromkeys(faults) or ("",)
    return Failed(check=check, reason=first, evidence="\n".join(others)) if first else Passed(check=check)


# ------------------------------------------------------------------ memory, and what two calls show


def _memory(subject: Subject, calls: Sequence[MadeCall]) -> Iterator[CheckResult]:
    """Judge what calls have done to memory that is not theirs, and the memory that they return."""
    changed: list[str] = []
    outside: list[str] = []
    for one in calls:
        mutated = set(map(id, subject.written(one.sample)))
        for guarded in one.guards:
            of_elements, around = guarded.changed()
            place = _position(one.sample, guarded.tensor)
            if of_elements and id(guarded.tensor) not in mutated:
                changed.append(f"changes {place}, which it does not declare as mutated")
            if around:
                outside.append(f"writes outside of its memory: next to {place}")
        outside += [f"writes outside of its memory: {damage}" for damage in writes_outside(one.allocated)]
    yield _none("inputs", changed)
    yield _none("bounds", outside)
    yield _none("result", [why for one in calls for why in one.opaque] or _shared(subject, *calls))


def _position(sample: Sample, tensor: Tensor) -> str:
    named = {**{f"argument {i}": value for i, value in enumerate(sample.args)}, **sample.kwargs}
    return next((name for name, value in named.items() if value is tensor), "a tensor of a list")


def _shared(subject: Subject, first: MadeCall, second: MadeCall) -> list[str]:
    """Name the outputs that are memory of another tensor."""
    if subject.overload.signature.mutates:
        return []
    inputs, others = (
        [(span(g.buffer), _position(one.sample, g.tensor)) for g in one.guards] for one in (first, second)
    )
    earlier = [(span(t), f"output {i} of an earlier call") for i, t in enumerate(first.returned)]
    return [*shared(first.returned, inputs), *shared(second.returned, [*inputs, *earlier, *others])]


def _unwritten(first: MadeCall, second: MadeCall) -> list[str]:
    """Say how many elements of each output still have the poison of each call."""
    faults = []
    for i, (a, b) in enumerate(zip(first.results, second.results, strict=False)):
        if a.shape == b.shape and a.numel():
            left = (bits(a) == NAN_BYTE).all(dim=1) & (bits(b) == OTHER_BYTE).all(dim=1)
            if count := int(left.sum()):
                where = numerics.index_of(int(left.int().argmax()), a.shape)
                faults.append(
                    f"leaves {count} of {a.numel()} elements of output {i} unwritten, the first at {where}"
                )
    return faults


def _determinism(subject: Subject, first: MadeCall, second: MadeCall) -> Passed | Failed | Skipped:
    if subject.declares(torch.Tag.nondeterministic_bitwise):
        return Skipped(check="determinism", reason="declared nondeterministic by a tag")
    if same_bits(first.results, second.results):
        return Passed(check="determinism")
    return Failed(
        check="determinism",
        reason="gives different bits at a second call with equal arguments",
        evidence="If this is intended, declare it: tags=(torch.Tag.nondeterministic_bitwise,); if it "
        "uses torch's random numbers, torch.Tag.nondeterministic_seeded.",
    )


# ------------------------------------------------------------------ against the reference


def _values(
    subject: Subject, case: Case, made: MadeCall, unwritten: Sequence[str], known: numerics.Oracle | None
) -> Iterator[CheckResult]:
    """Compare the results, and the arguments that are to be written, with the reference."""
    inputs, idle = subject.for_reference(case.make()), list[str]()
    try:
        if subject.reference is None:
            yield Skipped(check="numerics", reason="no reference")
        elif subject.reference_draws(inputs):
            yield Skipped(check="numerics", reason="declared random, and so is its reference")
        else:
            tolerance = subject.tolerance(case.dtype)
            expected = known or numerics.oracle(
                subject.reference,
                inputs,
                tolerance,
                sharp=case.sharp,
                flushes=subject.adds_by_atomics,
            )
            worst = numerics.judge(made.results, expected)
            if worst.passed:
                yield Passed(check="numerics", ratio=worst.ratio)
            else:
                idle = list(_idle(subject, made, subject.written(inputs), expected))
                explained = Skipped(check="numerics", reason="not all of the result is written")
                wrong = Failed(check="numerics", reason=worst.what, evidence=worst.where)
                yield explained if idle or unwritten else wrong
    except ReferenceCalls:
        raise
    except Exception as error:
        if case.derived:
            reason = "the call is accepted, the reference refuses it"
            yield Failed.raised(reason, error, f"the reference: {describe(error)}", check="errors")
        else:
            reason = "the reference fails on a sample"
            yield Failed.raised(reason, error, check="reference")
    if subject.overload.signature.mutates:
        written = set(map(id, subject.written(made.sample)))
        uncounted = (
            f"does not count its write to {_position(made.sample, each.tensor)} in the tensor's version"
            for each in made.guards
            if id(each.tensor) in written and each.tensor.numel() and each.tensor._version == each.version
        )
        yield _none("mutation", [*idle, *uncounted])


def _idle(
    subject: Subject, made: MadeCall, before: Sequence[Tensor], expected: numerics.Oracle
) -> Iterator[str]:
    """Name the arguments that should be written and are as they were, although the reference changes them."""
    arguments = subject.written(made.sample)
    for argument, old, new, want in zip(arguments, before, made.results, expected.plain, strict=False):
        if same_bits([new.cpu()], [old]) and not same_bits([want], [old]):
            yield f"does not change {_position(made.sample, argument)}, which it declares as mutated"


# ------------------------------------------------------------------ after the call


def plan_kept(subject: Subject) -> Iterator[Trial]:
    """A trial of what the smallest call of the first dtype keeps."""
    case = subject.smallest(subject.overload.dtypes[0])
    if case is not None:
        yield trial(subject, "inputs", _keeps, case, variant="kept")


def _keeps(subject: Subject, case: Case) -> CheckResult:
    """Call, and see whether anything still has the memory of the arguments."""
    try:
        memory = _memory_of_a_call(subject, case)
    except (FindingError, UsageError, EnvironmentFault):
        raise
    except Exception as error:
        if own_fault(error):
            raise
        return Skipped(reason=f"the call fails: {one_line(error)}")
    if any(storage() is not None for storage in memory.values()):
        gc.collect()
    kept = [name for name, storage in memory.items() if storage() is not None]
    if not kept:
        return Passed()
    return Failed(
        reason=f"{' and '.join(kept)} stays in memory after the call and its last reference",
        evidence="A body keeps none of its arguments and results, in no global and no cache.",
    )


def _memory_of_a_call(subject: Subject, case: Case) -> dict[str, weakref.ref[torch.UntypedStorage]]:
    """Make a call, and return the memory of its arguments and results, to which nothing here refers then."""
    sample = case.make()
    given = arguments(subject.overload.signature, sample)
    memory = {
        name: weakref.ref(tensor.untyped_storage())
        for name, value in given.items()
        for tensor in Sample(value).tensors
    }
    with subject.seeded(case.name), subject.place():
        results = subject.call(sample)
    if not subject.overload.signature.mutates:
        for i, result in enumerate(results):
            memory[f"output {i}"] = weakref.ref(result.untyped_storage())
    return memory


# --------------------------------- on a machine with a GPU: the simulator's sanitizers, on the smallest calls


def plan_simulated(subject: Subject) -> Iterator[Trial]:
    """The smallest call of the first dtype; at the full level, of each. None that launches nothing there."""
    twin = Subject(
        overload=subject.overload, device=torch.device("cpu"), level=subject.level, seed=subject.seed
    )
    if not (subject.has_body or twin.launches):
        why = "a library computes it, and launches no kernel that can run in the simulator"
        yield from (skipped(subject, check, why) for check in SANITIZERS)
        return
    if not subject.on_gpu:
        return
    dtypes = subject.overload.dtypes
    for dtype in dtypes if subject.level >= Level.FULL else dtypes[:1]:
        case = twin.smallest(dtype)
        if case is not None:
            run = partial(_look_in_simulator, twin, case)
            yield Trial(id=trial_id(subject, "simulated", case), checks=SANITIZERS, run=run)


def _look_in_simulator(twin: Subject, case: Case) -> Iterator[CheckResult]:
    """Call in the simulator, and pass on what it finds. Values are the GPU's to be judged by."""
    try:
        with twin.budget.of_case(case):
            made = call(twin, case, NAN_BYTE)
    except (FindingError, UsageError, EnvironmentFault):
        raise
    except Exception as error:  # for example clusters, or code that is only for newer GPUs
        if own_fault(error):
            raise
        why = f"the simulator cannot run it: {one_line(error)}"
        yield from (Skipped(check=name, reason=why) for name in SANITIZERS)
    else:
        yield from _sanitized(twin, case, [made])
